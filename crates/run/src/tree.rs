//! The process tree below one process: finding it in /proc, signalling it, freezing and killing it.
//!
//! Decides which processes are "the command's tree": every descendant of the guardian. The guardian is a child subreaper, so
//! a process cannot leave its tree by daemonising (double fork, setsid): it becomes the guardian's own child. Children are
//! read from `/proc/PID/task/TID/children`, or from the parent field of every `/proc/PID/stat` where the kernel lacks
//! that. Both miss what is forked meanwhile, so killing goes in rounds, and only `wait` saying "no children" proves the end.
//! Invariant: a signal reaches only the very process that was found, never one that took over its number: it goes
//! through a pidfd that is checked, after opening, against the start time seen before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::messages::Survivor;

/// A process as it was found in /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) name: String,
    pub(crate) state: char,
    /// Clock ticks from boot to its start: with the pid, what tells it from all others.
    started: u64,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Done,
    /// The process had ended.
    Gone,
    /// The kernel refused: another user's process.
    Denied,
}

/// Freezing stops as soon as a look finds nobody new. A tree that forks faster than it can be stopped stops growing at its limit
/// of processes (stopped ones count), which takes a few looks; this bounds them so that the kill is never put off for long.
const FREEZE_LOOKS_MAX: usize = 32;

impl Process {
    /// Reads one process; `None` if there is none of that number.
    pub(crate) fn read(pid: i32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Process::parse(&String::from_utf8_lossy(&stat))
    }

    /// `PID (NAME) STATE PARENT … STARTED …`; the name may hold anything, so the last parenthesis ends it.
    fn parse(stat: &str) -> Option<Process> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // Field 22 of proc_pid_stat(5); state and parent were fields 3 and 4.
        let started = fields.nth(17)?.parse().ok()?;
        Some(Process { pid: pid.parse().ok()?, parent, name: name.to_owned(), state, started })
    }

    /// Sends `signal` to this process and no other.
    pub(crate) fn send(&self, signal: Signal) -> Sent {
        let Some(pid) = Pid::from_raw(self.pid) else { return Sent::Gone };
        let handle = pidfd_open(pid, PidfdFlags::empty());
        if Process::read(self.pid).is_none_or(|now| now.started != self.started) {
            return Sent::Gone;
        }
        let sent = match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            Err(rustix::io::Errno::SRCH) => return Sent::Gone,
            // No pidfd to be had (a sandbox, too many open files): the number, checked just now, must do.
            Err(_) => kill_process(pid, signal),
        };
        match sent {
            Ok(()) => Sent::Done,
            Err(rustix::io::Errno::SRCH) => Sent::Gone,
            Err(_) => Sent::Denied,
        }
    }

    /// This process as one that is still there after having been killed; `denied` are those that may not be killed.
    pub(crate) fn survives(self, denied: &BTreeSet<i32>) -> Survivor {
        Survivor { denied: denied.contains(&self.pid), pid: self.pid, name: self.name, state: self.state }
    }

    /// Whether it still runs: a zombie has ended and only waits to be reaped, unless other threads of it live on.
    pub(crate) fn lives(&self) -> bool {
        let threads = || fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count);
        !matches!(self.state, 'Z' | 'X') || threads() > 1
    }
}

/// The ids of the children that process `root` has now.
pub(crate) fn children(root: i32) -> BTreeSet<i32> {
    if Path::new("/proc/thread-self/children").exists() {
        listed_children(root).into_iter().collect()
    } else {
        everybody().into_iter().filter(|p| p.parent == root).map(|p| p.pid).collect()
    }
}

/// All descendants of `root`, parents before children, leaving out the children in `spared` and what is below them.
pub(crate) fn descendants(root: i32, spared: &BTreeSet<i32>) -> Vec<Process> {
    if Path::new("/proc/thread-self/children").exists() {
        walk(root, spared, listed_children, Process::read)
    } else {
        let all: BTreeMap<i32, Process> = everybody().into_iter().map(|p| (p.pid, p)).collect();
        let mut below: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in all.values() {
            below.entry(process.parent).or_default().push(process.pid);
        }
        walk(root, spared, |pid| below.get(&pid).cloned().unwrap_or_default(), |pid| all.get(&pid).cloned())
    }
}

/// Breadth first. A process that moves while it is looked at may be missed or met twice, never followed in a circle.
fn walk(root: i32, spared: &BTreeSet<i32>, children_of: impl Fn(i32) -> Vec<i32>, read: impl Fn(i32) -> Option<Process>) -> Vec<Process> {
    let mut seen: BTreeSet<i32> = spared.clone();
    seen.insert(root);
    let mut found = Vec::new();
    let mut level = vec![root];
    while !level.is_empty() {
        let mut next = Vec::new();
        for pid in level.into_iter().flat_map(&children_of) {
            if seen.insert(pid) {
                found.extend(read(pid));
                next.push(pid);
            }
        }
        level = next;
    }
    found
}

fn listed_children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

fn everybody() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| Process::read(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// Asks the whole tree below `root` to end: SIGTERM, and SIGCONT so that stopped processes get it too.
pub(crate) fn terminate(root: i32) {
    for process in descendants(root, &BTreeSet::new()) {
        if process.send(Signal::TERM) == Sent::Done {
            process.send(Signal::CONT);
        }
    }
}

/// One round of killing the tree below `root`; returns whom the kernel does not let us kill.
///
/// First everybody is stopped, so that nobody forks on or replaces a dead child while others still die, then everybody is killed.
/// The caller repeats rounds until `wait` says that nobody is left.
pub(crate) fn kill(root: i32, spared: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut met: BTreeMap<(i32, u64), Process> = BTreeMap::new();
    let mut denied = BTreeSet::new();
    for _ in 0..FREEZE_LOOKS_MAX {
        let before = met.len();
        for process in descendants(root, spared) {
            met.entry((process.pid, process.started)).or_insert_with(|| {
                process.send(Signal::STOP);
                process
            });
        }
        if met.len() == before {
            break;
        }
    }
    for process in met.values() {
        if process.send(Signal::KILL) == Sent::Denied {
            denied.insert(process.pid);
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, name: "x".into(), state: 'S', started: 1 }
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse_the_fields() {
        let tail = "S 41 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3";
        let parsed = Process::parse(&format!("42 (a) S 1 (b) {tail}")).expect("parses");
        assert_eq!((parsed.pid, parsed.parent, parsed.state), (42, 41, 'S'));
        assert_eq!(parsed.name, "a) S 1 (b");
        assert_eq!(parsed.started, 987_654);
        assert_eq!(Process::parse("42 (a"), None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn parents_come_before_children_spared_children_are_left_out_with_all_below_them() {
        let all: BTreeMap<i32, Process> =
            [(2, 1), (3, 1), (4, 2), (5, 3), (6, 4)].into_iter().map(|(pid, parent)| (pid, process(pid, parent))).collect();
        let children_of = |pid: i32| all.values().filter(|p| p.parent == pid).map(|p| p.pid).collect::<Vec<_>>();
        let found = walk(1, &BTreeSet::from([3]), children_of, |pid| all.get(&pid).cloned());
        assert_eq!(found.iter().map(|p| p.pid).collect::<Vec<_>>(), [2, 4, 6]);
    }

    #[test]
    fn a_circle_seen_while_numbers_are_reused_ends_the_walk() {
        let found = walk(1, &BTreeSet::new(), |pid| vec![pid % 3 + 1], |pid| Some(process(pid, 0)));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn this_process_is_found_as_a_child_of_its_parent() {
        let own = i32::try_from(std::process::id()).expect("pids are positive 32-bit numbers");
        let me = Process::read(own).expect("own entry");
        assert!(me.lives());
        let parents: Vec<i32> = everybody().into_iter().filter(|p| p.pid == own).map(|p| p.parent).collect();
        assert_eq!(parents, [me.parent]);
        assert!(children(me.parent).contains(&own));
    }

    #[test]
    fn a_signal_never_reaches_another_process_under_the_same_number() {
        let own = i32::try_from(std::process::id()).expect("pids are positive 32-bit numbers");
        let mut other = Process::read(own).expect("own entry");
        other.started += 1;
        assert_eq!(other.send(Signal::KILL), Sent::Gone, "and this test lives on");
    }
}
