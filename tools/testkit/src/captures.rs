//! What processes sent and received, as they captured it themselves, and the auditor that reads it when the test is over.
//!
//! Decides: which file each process writes, and that a test fails if a capture shows a rule of the protocol broken, has nothing in it
//! although agents ran, or has what nobody sent. The capture is then kept, and named. Leaves to others: the rules (`cistern-audit`).

use crate::program;
use cistern_audit::{Auditor, Report, Side, Terms, Vantage};
use cistern_capture::Reader;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The captures of a test: read when this is dropped, after the processes that write them.
pub struct Captures {
    dir: PathBuf,
    hostile: AtomicBool,
    off: bool,
}

impl Captures {
    /// Captures are put below the directory of the test's server.
    pub fn below(dir: &Path) -> Self {
        let dir = dir.join("captures");
        fs::create_dir_all(&dir).unwrap();
        Self { dir, hostile: AtomicBool::new(false), off: false }
    }

    /// No captures: of floods there is too much to read.
    pub fn none(dir: &Path) -> Self {
        let mut captures = Self::below(dir);
        captures.off = true;
        captures
    }

    /// A file for the next process of an agent.
    pub fn of_agent(&self, label: &str) -> String {
        self.fresh(&format!("agent-{label}"))
    }

    /// The switch for the next process of "server" or of "agent-" and its label.
    pub fn switch(&self, of: &str) -> Vec<String> {
        if self.off { Vec::new() } else { vec!["--pcap".to_owned(), self.fresh(of)] }
    }

    /// The test sends datagrams that are none of the protocol, or breaks some on their way.
    pub fn have_hostile_datagrams(&self) {
        self.hostile.store(true, Relaxed);
    }

    /// The capture of the `n`th process, from 1, of "server" or of "agent-" and its label.
    pub fn file(&self, name: &str, n: u32) -> PathBuf {
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
        let mut files: Vec<_> = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let read: Vec<_> = files.iter().map(|file| (file, Read::of(file))).collect();
        let mut wrong: Vec<_> = read.iter().filter_map(|(file, read)| read.broken(file)).collect();
        if !self.hostile.load(Relaxed) {
            wrong.extend(read.iter().filter_map(|(file, read)| read.strange(file)));
        }
        let of = |side| read.iter().filter(move |(_, read)| read.side == side);
        // A server that is started and never asked has no session to show; one with agents has.
        if of(Side::Agent).count() > 0 && of(Side::Server).all(|(_, read)| read.report.tally.sessions == 0) {
            wrong.push(format!("{}: agents ran, and no capture of the server has a session", self.dir.display()));
        }
        assert!(wrong.is_empty(), "the captures are not as they must be:\n{}", wrong.join("\n"));
    }
}

/// A capture as the auditor read it.
struct Read {
    side: Side,
    /// Bytes of the file: the recorder begins it before the first socket is opened.
    length: u64,
    report: Report,
}

impl Read {
    fn of(file: &Path) -> Self {
        let side = if name(file).starts_with("server") { Side::Server } else { Side::Agent };
        let mut auditor = Auditor::new(Vantage { side, inside: true, complete: true, ..Vantage::default() }, Terms::default());
        for datagram in Reader::new(File::open(file).unwrap()) {
            auditor.take((&datagram.unwrap()).into());
        }
        Self { side, length: fs::metadata(file).unwrap().len(), report: auditor.report() }
    }

    /// Which rules it shows broken, and where it was kept.
    fn broken(&self, file: &Path) -> Option<String> {
        if self.report.is_clean() {
            return None;
        }
        let violations: Vec<_> = self.report.violations.iter().take(5).map(ToString::to_string).collect();
        Some(format!("{}: rules of the protocol are broken: {}", kept(file), violations.join("\n  ")))
    }

    /// What in it cannot be what the process sent and received, if nobody else sent anything.
    fn strange(&self, file: &Path) -> Option<String> {
        let tally = &self.report.tally;
        if self.length == 0 {
            return Some(format!("{}: --pcap wrote nothing", file.display()));
        }
        let well = tally.foreign == 0 && tally.unreadable.is_empty();
        (!well).then(|| format!("{}: {} datagrams are foreign, unreadable are {:?}", kept(file), tally.foreign, tally.unreadable))
    }
}

fn name(file: &Path) -> &str {
    file.file_name().unwrap().to_str().unwrap()
}

/// Keeps a capture beyond its test.
fn kept(file: &Path) -> String {
    let dir = program("kept");
    fs::create_dir_all(&dir).unwrap();
    let kept = dir.join(format!("{}-{}", std::process::id(), name(file)));
    fs::copy(file, &kept).unwrap();
    kept.display().to_string()
}
