//! What the tests' processes sent and received, as they captured it themselves, and the auditor that reads it when the test is over.
//!
//! Decides: which file each process writes, and that a test fails if a capture shows a rule of the protocol broken. The capture is then
//! kept, and named. Leaves to others: the rules (`cistern-audit`).

use cistern_audit::{Auditor, Side, Terms, Vantage};
use cistern_capture::Reader;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The captures of a test: read when this is dropped, after the processes that write them.
pub(crate) struct Captures {
    dir: PathBuf,
}

impl Captures {
    /// Captures are put below the directory of the test's server.
    pub(crate) fn below(dir: &Path) -> Self {
        let dir = dir.join("captures");
        fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    /// A file for the next process of a server.
    pub(crate) fn of_server(&self) -> String {
        self.fresh("server")
    }

    /// A file for the next process of an agent.
    pub(crate) fn of_agent(&self, label: &str) -> String {
        self.fresh(&format!("agent-{label}"))
    }

    /// The capture of the `n`th process, from 1, of "server" or of "agent-" and its label.
    pub(crate) fn file(&self, name: &str, n: u32) -> PathBuf {
        self.dir.join(format!("{name}-{n}.pcap"))
    }

    fn fresh(&self, name: &str) -> String {
        let file = (1..).map(|n| self.file(name, n)).find(|file| !file.exists()).unwrap();
        // Made at once, so that the next process gets another also before this one has begun.
        File::create(&file).unwrap();
        file.into_os_string().into_string().unwrap()
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let files = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path());
        let broken: Vec<_> = files.filter_map(|file| audit(&file)).collect();
        assert!(broken.is_empty(), "rules of the protocol are broken:\n{}", broken.join("\n"));
    }
}

/// Reads a capture; tells which rules it shows broken, and where it was kept.
fn audit(file: &Path) -> Option<String> {
    let name = file.file_name().unwrap().to_str().unwrap();
    let side = if name.starts_with("server") { Side::Server } else { Side::Agent };
    let mut auditor = Auditor::new(Vantage { side, inside: true, complete: true, ..Vantage::default() }, Terms::default());
    for datagram in Reader::new(File::open(file).unwrap()) {
        auditor.take((&datagram.unwrap()).into());
    }
    if auditor.found() == 0 {
        return None;
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::copy(file, &kept).unwrap();
    let violations: Vec<_> = auditor.report().violations.iter().take(5).map(ToString::to_string).collect();
    Some(format!("{}: {}", kept.display(), violations.join("\n  ")))
}
