//! `cistern-torture faults`: calls of the system fail, under a server with its agents, one at a time.
//!
//! Decides which calls fail, of which thread, with which error, and which time it is called: by a seed. strace makes them fail, and the
//! kernel does not do them. What must follow:
//!
//! | who | what failed | the server |
//! |---|---|---|
//! | the store's writer, the engine's worker | a write, a sync, a rename: no space, an error of the disk | ends with status 74 and names the store (section 11.7) |
//! | they | another call, or a call was interrupted | the same, or goes on |
//! | the store's readers | anything | goes on: who asked is told, or it is read once more |
//! | a start | anything | the same as a write, or status 77 for the lack of a right; or it starts |
//!
//! And always: nothing that was answered is lost, `cisternd check` finds nothing, and the next start is a good one. Place: in the stead
//! of a campaign's kills. Leaves to others: the load and its judgement (`worker`, `judge`).

use super::{Campaign, Report, progress};
use crate::images::options;
use crate::processes::{Server, create_store};
use cistern_link::Rng;
use cistern_store::DurableStore;
use cistern_testkit::{PATIENCE, without_settings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a call is waited for that is to fail.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// How long a server that may go on is looked at.
const LOOK: Duration = Duration::from_millis(300);
/// So many calls of a class are tried before it means something that none of them was reached.
const TRIED_MIN: u32 = 5;
/// So many times as long goes on a campaign that has checked nothing of a class.
const LONGER: u32 = 4;
/// Files of each kind that a store will make before a call is reached.
const AHEAD: u64 = 40;
/// Exit statuses: the system could not read or write; it may not.
const STORE: i32 = 74;
const PERMISSION: i32 = 77;

/// Who calls.
const START: &str = "start";
const WRITER: &str = "store-writer";
const WORKER: &str = "fjall:worker";
const READER: &str = "store-reader-0";

/// Calls that fail: who makes them, which they are (names that mean the same), with which errors, and how late at most.
const FAULTS: &[(&str, &str, &[&str], u64)] = &[
    (WRITER, "write", &["EIO", "ENOSPC", "EINTR"], 40),
    (WRITER, "fdatasync", &["EIO", "ENOSPC", "EINTR"], 20),
    (WRITER, "pwrite64", &["EIO", "ENOSPC"], 20),
    (WORKER, "write", &["EIO", "ENOSPC", "EINTR"], 60),
    (WORKER, "fsync", &["EIO", "ENOSPC", "EINTR"], 20),
    (WORKER, "rename,renameat,renameat2", &["EIO", "ENOSPC"], 6),
    (WORKER, "openat", &["EIO", "ENOSPC", "EMFILE"], 20),
    (WORKER, "unlink,unlinkat", &["EIO"], 10),
    (WORKER, "pread64,read", &["EIO", "EINTR"], 30),
    (READER, "pread64,openat", &["EIO", "EMFILE"], 4),
    (START, "openat", &["EIO", "EMFILE", "EACCES"], 60),
    (START, "read,pread64", &["EIO", "EINTR"], 60),
    (START, "write", &["EIO", "ENOSPC"], 10),
    (START, "pwrite64", &["EIO", "ENOSPC"], 2),
    (START, "fsync,fdatasync", &["EIO", "ENOSPC"], 20),
    (START, "ftruncate", &["EIO", "ENOSPC"], 3),
    (START, "flock", &["EIO"], 1),
    (START, "fadvise64,getdents64", &["EIO"], 12),
    (START, "unlink,unlinkat", &["EIO"], 4),
];

/// A call that fails.
#[derive(Clone, Copy, Debug)]
struct Fault {
    who: &'static str,
    calls: &'static str,
    error: &'static str,
    when: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} failed with {} (the {}th)", self.calls, self.who, self.error, self.when)
    }
}

impl Fault {
    fn by_chance(rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, of: usize| usize::try_from(rng.below(of as u64)).unwrap_or_default();
        let (who, calls, errors, latest) = FAULTS[pick(rng, FAULTS.len())];
        Self { who, calls, error: errors[pick(rng, errors.len())], when: 1 + rng.below(latest) }
    }

    /// Whether the server must end.
    fn ends(self) -> bool {
        let changes = ["write", "fdatasync", "pwrite64", "fsync"].contains(&self.calls) || self.calls.starts_with("rename");
        changes && self.error != "EINTR" && [WRITER, WORKER].contains(&self.who)
    }

    /// strace, so that this call fails.
    fn strace(self, log: &Path) -> Command {
        let mut command = Command::new("strace");
        let inject = format!("inject={}:error={}:when={}", self.calls, self.error, self.when);
        command.args(["-qq", "-s", "64", "-e", "signal=none", "-e", &format!("trace={}", self.calls), "-e", &inject, "-o"]).arg(log);
        command
    }
}

/// What came of calls that failed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Faults {
    /// The campaign around it.
    pub(crate) campaign: Report,
    /// By who called and what failed: how often the server ended, and how often it went on.
    pub(crate) outcomes: BTreeMap<String, (u32, u32)>,
    /// Calls that were not reached in time.
    pub(crate) not_reached: u32,
    /// By class, a start or a thread of a running server: calls that were tried, and those of them that failed.
    pub(crate) tried: BTreeMap<&'static str, (u32, u32)>,
}

impl Faults {
    fn count(&mut self, fault: Fault, outcome: Option<bool>) {
        let class = if fault.who == START { "at a start" } else { "in a running server" };
        let (tried, reached) = self.tried.entry(class).or_default();
        *tried += 1;
        match outcome {
            None => self.not_reached += 1,
            Some(ended) => {
                *reached += 1;
                let of = self.outcomes.entry(format!("{} {}", fault.who, fault.calls)).or_default();
                *(if ended { &mut of.0 } else { &mut of.1 }) += 1;
            }
        }
    }

    /// What was not checked, although it was tried: nothing failed at all, or nothing of a class.
    pub(crate) fn unchecked(&self) -> Vec<String> {
        if self.outcomes.is_empty() {
            return vec!["nothing was checked: no call failed; may this user trace its own processes by strace?".to_owned()];
        }
        let of_class = |(class, (tried, reached)): (&&str, &(u32, u32))| {
            (*tried >= TRIED_MIN && *reached == 0)
                .then(|| format!("nothing was checked {class}: of {tried} calls that were to fail none was reached"))
        };
        self.tried.iter().filter_map(of_class).collect()
    }
}

/// strace beside a server; ended when it is dropped, and the server goes on without it.
struct Beside(Child);

impl Beside {
    /// Why strace has ended by itself, if it has: then no call fails any more.
    fn has_ended(&mut self, said: &Path) -> Result<(), String> {
        let Some(status) = self.0.try_wait().map_err(|e| format!("strace: {e}"))? else { return Ok(()) };
        let said = fs::read_to_string(said).unwrap_or_default();
        Err(format!("strace ended ({status}) before the call failed: {}", said.trim_end()))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Asked to end it lets go of the thread; killed, it would do so, too, but for calls that it holds up. Fails only if it has ended.
        if let Ok(id) = i32::try_from(self.0.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

impl Campaign {
    /// Lets calls fail, so many or for so long, and judges.
    pub(crate) fn faults(&mut self, count: u32, at_most: Option<Duration>) -> Faults {
        let started = Instant::now();
        let mut faults = Faults::default();
        match self.each_fault(count, at_most, &mut faults).and_then(|()| self.settle()) {
            Ok(()) => self.report.violations.extend(faults.unchecked()),
            Err(why) => self.report.violations.push(why),
        }
        self.workers.clear();
        self.server = None;
        self.report.seconds = started.elapsed().as_secs();
        progress("");
        faults.campaign = std::mem::take(&mut self.report);
        faults
    }

    fn each_fault(&mut self, count: u32, at_most: Option<Duration>, faults: &mut Faults) -> Result<(), String> {
        let started = Instant::now();
        create_store(&self.place)?;
        // With little in memory, so that tables are written all the while.
        DurableStore::open(&self.place.store(), &options(), || {}).map(drop).map_err(|e| e.to_string())?;
        self.start_server()?;
        for agent in 0..self.agents {
            self.start_worker(agent)?;
        }
        for number in 1..=count {
            // A busy machine is given longer, so that something is checked.
            let enough = |most| started.elapsed() >= if faults.unchecked().is_empty() { most } else { most * LONGER };
            if at_most.is_some_and(enough) || self.report.violations.len() >= super::VIOLATIONS_MAX {
                return Ok(());
            }
            self.all_work_on()?;
            let fault = Fault::by_chance(&mut self.rng);
            progress(&format!("seed {}: fault {number}: {fault}; {} things that must not be", self.seed, self.report.violations.len()));
            let (outcome, said) = if fault.who == START { self.at_start(fault)? } else { self.while_it_runs(fault)? };
            faults.count(fault, outcome);
            self.report.violations.extend(said.map(|what| format!("{fault}: {what}")));
            self.look_at_processes()?;
        }
        Ok(())
    }

    /// A call of one thread fails; whether the server has ended of it, if the call was reached, and what must not be.
    fn while_it_runs(&mut self, fault: Fault) -> Result<(Option<bool>, Option<String>), String> {
        let log = self.place.dir.join("log-strace");
        let _ = fs::remove_file(&log);
        let said_before = self.said().len();
        let server = self.server.as_mut().ok_or("no server")?;
        let thread = server.thread(fault.who).ok_or_else(|| format!("the server has no thread {}", fault.who))?;
        let mut strace = fault.strace(&log);
        // Nothing else: it also wakes the loop by a write, and says something now and then.
        for path in to_come(&self.place.store()) {
            strace.arg("-P").arg(path);
        }
        let said = self.place.dir.join("log-strace-said");
        let stderr = File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        strace.args(["-p", &thread.to_string()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let mut beside =
            Beside(strace.spawn().map_err(|e| format!("strace: {e}; it makes calls fail (on Debian: apt-get install strace)"))?);
        let end = Instant::now() + REACHED_WITHIN;
        while !was_injected(&log) && Instant::now() < end && server.runs() {
            // What strace says is looked at again: it may have ended with the server.
            if let Err(why) = beside.has_ended(&said)
                && !was_injected(&log)
                && server.runs()
            {
                return Err(why);
            }
            thread::sleep(Duration::from_millis(2));
        }
        let reached = was_injected(&log);
        // It would keep the exit status from us as long as it looks on.
        let code = if reached && fault.ends() {
            server.ended_within(PATIENCE)
        } else {
            server.ended_within(if reached { LOOK } else { Duration::ZERO })
        };
        drop(beside);
        let wrong = match code {
            None if reached && fault.ends() => Some("the server goes on".to_owned()),
            None => None,
            Some(code) => self.wrong_end(code, fault, said_before),
        };
        if code.is_none() && reached && wrong.is_none() {
            self.all_work_on()?;
        }
        if code.is_some() || self.rng.below(4) == 0 || wrong.is_some() {
            self.kill_server()?;
        }
        Ok((reached.then_some(code.is_some()), wrong))
    }

    /// A call of a start fails.
    fn at_start(&mut self, fault: Fault) -> Result<(Option<bool>, Option<String>), String> {
        if let Some(server) = self.server.take() {
            server.kill();
            self.report.server_kills += 1;
        }
        let log = self.place.dir.join("log-strace");
        let _ = fs::remove_file(&log);
        let said_before = self.said().len();
        let mut strace = fault.strace(&log);
        // The server is our child, and strace its tracer beside it.
        strace.args(["-D", "-f"]);
        for path in files(&self.place.store()) {
            strace.arg("-P").arg(path);
        }
        strace.arg(&self.place.cisternd);
        without_settings(&mut strace);
        let (code, mut wrong) = match Server::try_start(&self.place, &self.address, strace)? {
            Err(code) => (Some(code), None),
            Ok(mut server) => {
                let code = server.ended_within(LOOK);
                let hangs = code.is_none() && !was_injected(&log) && server.status().is_err();
                server.kill();
                self.report.server_kills += 1;
                (code, hangs.then(|| "the server does not answer".to_owned()))
            }
        };
        if let Some(code) = code {
            wrong = self.wrong_end(code, fault, said_before);
        }
        self.check()?;
        self.start_server()?;
        Ok((was_injected(&log).then_some(code.is_some()), wrong))
    }

    /// What is wrong with how a server has ended.
    fn wrong_end(&self, code: Option<i32>, fault: Fault, said_before: usize) -> Option<String> {
        let said = self.said();
        let said = said.get(said_before..).unwrap_or_default();
        let right = if fault.error == "EACCES" { [STORE, PERMISSION].map(Some).contains(&code) } else { code == Some(STORE) };
        let store = self.place.store().display().to_string();
        if !right {
            return Some(format!("the server ended with {code:?}: {}", said.trim_end()));
        }
        (!said.contains(&store)).then(|| format!("the server ended, and did not say of which store: {}", said.trim_end()))
    }

    fn said(&self) -> String {
        fs::read_to_string(self.place.server_log()).unwrap_or_default()
    }
}

fn was_injected(log: &Path) -> bool {
    fs::read_to_string(log).is_ok_and(|log| log.contains("(INJECTED)"))
}

/// A directory and all in it.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    for path in entries {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// All files of a store, and those that it will make next.
fn to_come(store: &Path) -> Vec<PathBuf> {
    let mut paths = files(store);
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix('v').or(name.strip_suffix(".jnl")).unwrap_or(name).parse::<u64>().ok()
    };
    let data = store.join("data");
    let keyspace = data.join("keyspaces/1");
    for (dir, before, after) in [(keyspace.join("tables"), "", ""), (keyspace, "v", ""), (data, "", ".jnl")] {
        let newest = paths.iter().filter(|path| path.parent() == Some(&dir)).filter_map(number).max().unwrap_or(0);
        paths.extend((newest + 1..=newest + AHEAD).map(|next| dir.join(format!("{before}{next}{after}"))));
    }
    paths
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached: u32 = self.outcomes.values().map(|(ended, went_on)| ended + went_on).sum();
        writeln!(f, "{reached} calls failed, {} were not reached in time", self.not_reached)?;
        for (what, (ended, went_on)) in &self.outcomes {
            writeln!(f, "  {what}: the server ended {ended} times, went on {went_on} times")?;
        }
        write!(f, "{}", self.campaign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_START: Fault = Fault { who: START, calls: "openat", error: "EIO", when: 1 };
    const RUNNING: Fault = Fault { who: WRITER, calls: "write", error: "EIO", when: 1 };

    #[test]
    fn calls_of_which_none_failed_have_checked_nothing() {
        let mut faults = Faults::default();
        assert_eq!(faults.unchecked().len(), 1);
        faults.count(RUNNING, None);
        assert!(faults.unchecked()[0].contains("no call failed"));
        // Of one class everything is checked, of the other nothing.
        for _ in 0..TRIED_MIN {
            faults.count(AT_START, Some(true));
        }
        assert_eq!(faults.unchecked(), Vec::<String>::new(), "one call that comes late is no sign");
        for _ in 1..TRIED_MIN {
            faults.count(RUNNING, None);
        }
        assert_eq!(faults.unchecked(), ["nothing was checked in a running server: of 5 calls that were to fail none was reached"]);
        faults.count(RUNNING, Some(false));
        assert!(faults.unchecked().is_empty());
    }

    #[test]
    fn a_tracer_that_ends_by_itself_is_told_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("said");
        let script = "echo 'strace: attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted' >&2; exit 1";
        let mut beside = Beside(Command::new("sh").args(["-c", script]).stderr(File::create(&said).unwrap()).spawn().unwrap());
        beside.0.wait().unwrap();
        let why = beside.has_ended(&said).unwrap_err();
        assert!(why.contains("Operation not permitted") && why.contains("exit status: 1"), "{why}");
    }
}
