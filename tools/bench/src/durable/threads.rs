//! Which thread of a server with a store used how much CPU, and how its journal grows.
//!
//! Decides what counts as the loop (the process's first thread), as the writer (by its name), and as the rest (readers, the engine's
//! worker); and that a journal whose file is longer than what is written in it is one that the engine has made for itself in its full
//! length. Both are read from /proc. Leaves to others: what is made of it (`durable`).

use crate::host::proc;
use crate::trouble::Trouble;
use nix::unistd::Pid;
use procfs::process::{FDTarget, Process};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Name of the thread that commits.
const WRITER: &str = "store-writer";
/// Length that the engine gives a journal when it makes one; it lets the length of one that it finds at its start grow.
const JOURNAL_LEN: u64 = 64 << 20;

/// CPU time of a server's threads up to now, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Threads {
    /// The loop: sockets and machine.
    pub(super) event_loop: u64,
    /// The thread that writes and syncs.
    pub(super) writer: u64,
    /// All others.
    pub(super) rest: u64,
}

impl Threads {
    /// Up to now.
    pub(super) fn of(pid: Pid) -> Result<Self, Trouble> {
        let mut sum = Self::default();
        for task in proc(pid, Process::tasks)?.flatten() {
            // A thread that has ended meanwhile is as good as one that has done nothing.
            let (Ok(ran), Ok(stat)) = (task.schedstat(), task.stat()) else { continue };
            let ns = ran.sum_exec_runtime;
            if task.tid == pid.as_raw() {
                sum.event_loop += ns;
            } else if stat.comm == WRITER {
                sum.writer += ns;
            } else {
                sum.rest += ns;
            }
        }
        Ok(sum)
    }

    /// What was used since `earlier`.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            event_loop: self.event_loop.saturating_sub(earlier.event_loop),
            writer: self.writer.saturating_sub(earlier.writer),
            rest: self.rest.saturating_sub(earlier.rest),
        }
    }

    /// With what `more` used.
    pub(super) const fn plus(self, more: Self) -> Self {
        Self { event_loop: self.event_loop + more.event_loop, writer: self.writer + more.writer, rest: self.rest + more.rest }
    }
}

/// Whether the journal that a process writes has its full length already, so that writing does not change it. Without any journal
/// open: no.
pub(super) fn journal_has_its_length(pid: Pid) -> Result<bool, Trouble> {
    let open = proc(pid, Process::fd)?.flatten().filter_map(|fd| match fd.target {
        FDTarget::Path(file) => Some(file),
        _ => None,
    });
    let journals = open.filter(|file| is_journal(file));
    // The newest is the one that is written; an older one may still be open.
    let newest = journals.max_by_key(|file| file.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
    let Some(Ok(meta)) = newest.map(fs::metadata) else { return Ok(false) };
    Ok(meta.len() >= JOURNAL_LEN && meta.blocks() * 512 < meta.len())
}

fn is_journal(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "jnl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_this_process_are_told_apart_by_their_names() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::Builder::new().name(WRITER.to_owned());
        let writer = writer.spawn(move || {
            let mut sum = 0_u64;
            // The kernel's own clock of the thread says when it has run for long enough to be counted.
            while nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().tv_nsec() < 5_000_000 {
                sum = std::hint::black_box(sum + 1);
            }
            let _ = wait.recv();
        });
        let writer = writer.unwrap();
        let me = Pid::this();
        let before = Threads::default();
        while Threads::of(me).unwrap().since(before).writer < 1_000_000 {
            std::thread::yield_now();
        }
        drop(done);
        writer.join().unwrap();
    }

    #[test]
    fn a_file_that_is_only_long_has_its_length_and_a_grown_one_has_not() {
        let dir = tempfile::tempdir().unwrap();
        let me = Pid::this();
        assert!(!journal_has_its_length(me).unwrap());
        let grown = fs::File::create(dir.path().join("9.jnl")).unwrap();
        std::io::Write::write_all(&mut &grown, b"grown").unwrap();
        assert!(!journal_has_its_length(me).unwrap());
        let made = fs::File::create(dir.path().join("10.jnl")).unwrap();
        made.set_len(JOURNAL_LEN).unwrap();
        assert!(journal_has_its_length(me).unwrap());
        drop((grown, made));
    }
}
