//! Why a measurement could not be made.
//!
//! Decides the one error type of the bench: what was being done, where, and what to do. A bad figure is no error: the bench ends
//! with status 0 whatever it measured. Leaves to `main`: printing it and the exit status.

use std::io;

/// Why there are no figures.
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
    /// A process under test did not start or ended early.
    #[error("the {who} under test {what}; its own message, if any, stands above")]
    Host {
        /// Which one.
        who: &'static str,
        /// What it did.
        what: &'static str,
    },
    /// A process under test answered otherwise than it must.
    #[error("{while_doing}: expected {expected}, got {got}")]
    Answer {
        /// What was asked.
        while_doing: &'static str,
        /// What must come.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// Nothing came for too long.
    #[error("{while_doing}: no answer for {seconds} s; is the machine overloaded?")]
    Silence {
        /// What was asked.
        while_doing: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// A part of the server or its driver refused to start.
    #[error("{step}: {why}")]
    Start {
        /// What was being started.
        step: &'static str,
        /// Its own words.
        why: String,
    },
}

impl Trouble {
    /// Names the step of a failed system call.
    pub(crate) fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { step, source: source.into() }
    }

    /// Names what did not start, in the words of its own error.
    pub(crate) fn starting<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Start { step, why: error.to_string() }
    }
}
