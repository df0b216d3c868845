//! Why nothing could be counted or compared; each says what was wrong, where, and what to do.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why there are no counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// A system call failed.
    #[error("{step}: {source}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Valgrind did not start.
    #[error("cannot start valgrind: {source}; install it (Debian: apt-get install valgrind)")]
    Valgrind {
        /// What the system said.
        source: io::Error,
    },
    /// What ran under valgrind failed.
    #[error("{name} under valgrind ended with {status}:\n{said}")]
    Run {
        /// What was counted.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
    /// Callgrind wrote something else than it does.
    #[error("callgrind's output is not as expected: {what}; valgrind 3.19 and later are known to work")]
    Output {
        /// What is there, or is not.
        what: &'static str,
    },
    /// The baseline cannot be read.
    #[error("cannot read the baseline {}: {source}; make it by `renew`, or name another with --baseline", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The baseline is not what it should be.
    #[error("the baseline {} does not parse: {source}; make it anew by `renew`", file.display())]
    Baseline {
        /// The file.
        file: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// The baseline cannot be written.
    #[error("cannot write the baseline {}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This program is not optimized.
    #[error("this is a debug build, whose counts mean nothing; run it with `cargo run --profile dist -p cistern-path`")]
    Debug,
}

impl Trouble {
    pub(crate) const fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { step, source }
    }
}
