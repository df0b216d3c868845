//! Deliberate bugs: which of them the auditor catches from captures alone.
//!
//! Decides how each bug is looked for (runs of the profile that the simulator's ledger names, until a capture shows it) and which are
//! not visible on the wire, and why. Place in the walk: simulated runs in, captures as files, the auditor over them.
//! Invariant: no judge of the simulator has a say, and the auditor gets nothing but the files.
//! Leaves to others: the bugs (`cistern_link::bugs`), the runs (`cistern-sim`), the rules (`cistern-audit`).

use super::AuditArgs;
use crate::failure::{EXIT_IO, EXIT_USAGE, EXIT_VIOLATION, Failure};
use cistern_audit::{Side, Violation};
use cistern_capture::{Reader, Writer};
use cistern_link::bugs::{Bug, choose};
use cistern_sim::attack::is_attacker;
use cistern_sim::judge::audit::auditor;
use cistern_sim::ledger::{about, drawn};
use cistern_sim::observe::Node;
use cistern_sim::plan::Plan;
use cistern_sim::run::run;
use cistern_sim::trace::Trace;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a run has shown: its seed, the machine whose capture it is in, the violation.
type Shown = (u64, Node, Violation);

/// Most runs for a bug, and most time.
const SEEDS: u64 = 10_000;
const BUDGET: Duration = Duration::from_secs(120);

/// Bugs that no datagram shows, and why.
const NOT_VISIBLE: &[(Bug, &str)] = &[
    (Bug::M1, "from when an agent counts its lease is never said"),
    (Bug::M2, "from when an agent counts its lease is never said"),
    (Bug::M7, "from when an agent counts its lease is never said"),
    (Bug::M9, "what an agent answers from its cache is never said"),
    (Bug::M10, "by which clock an agent counts its lease is never said"),
    (Bug::M14, "the session is timed out anew for the same notice: a longer wait for the lock, and no word of it"),
    (Bug::M16, "what an agent holds for granted is never said, unless it gives it back"),
    (Bug::M26, "what an agent answers from its cache is never said"),
    (Bug::M29, "the second execution has the same answer, or takes the place of the first before any is sent"),
    (Bug::M31, "the agent hears \"not known\" or \"not executed\" of what it was never answered: no two datagrams differ"),
    (Bug::M37, "when the disk has written is never said; who asks after a crash finds the lock held by one of the two"),
    (Bug::M39, "a session without a record is said to have ended, as one without locks may"),
    (Bug::M46, "a timer that never ends anything sends nothing"),
    (Bug::M49, "how soon to send again follows from round trips that no datagram tells"),
    (Bug::M55, "one run is a run like any other: only a second one of the same seed differs"),
    (Bug::L1, "what a server keeps of a session is never said"),
    (Bug::H1, "whether a session was still in good standing when CONFIRM came is not said: the server may have given it up before"),
    (Bug::H2, "from when an agent counts its lease is never said"),
    (Bug::H3, "whether a session that failed was rescued before CONFIRM came is not said: the server may have given it up again"),
    (Bug::H5, "from when an agent counts its lease is never said"),
    (Bug::C5, "from when an agent counts its lease is never said"),
    (Bug::Q1, "the auditor has no rule for CANCELLED: what it says nothing of may have been given back, or never granted"),
    (Bug::S4, "the auditor has no rule for the datagrams of sealed handshakes"),
    (Bug::S5, "the auditor has no rule for the datagrams of sealed handshakes"),
    (
        Bug::S7,
        "in clear a session begins at a random number, so those from 1 were not used before; sealed, the keys refuse to use one twice",
    ),
    (Bug::S8, "which key a record is sealed with shows only to who opens it"),
    (Bug::S9, "which key a record is sealed with shows only to who opens it"),
    (Bug::S12, "why an agent gives a session up is never said"),
    (Bug::S13, "a record that its receiver cannot open looks like a lost one"),
    (Bug::S15, "a record that its receiver cannot open looks like a lost one"),
    (Bug::S16, "which key a record is sealed with shows only to who opens it"),
    (Bug::U1, "any number may be the first one, 1 as well"),
    (Bug::A2, "what an agent makes of a datagram that nobody should have sent is seldom said"),
    (Bug::A4, "that somebody else has an agent's identity is not said: its address is proven, and its CONFIRM is sound"),
    (Bug::A5, "what an incarnation counts is an agent's affair, and nothing in a sound HELLO says that it is another's"),
    (Bug::A8, "a session whose floor has leapt is answered like any other"),
    (Bug::P1, "whether a waiter was asked shows in no rule, for a server may have heard of it just before"),
    (Bug::F1, "a request without an answer may have been lost on its way"),
    (Bug::G1, "which user of an agent has which token of a run is never said"),
    (Bug::N1, "the auditor follows locks, not names: which object a name is may have changed unseen"),
    (Bug::N2, "the auditor follows leases of sessions, not named ones"),
    (Bug::N3, "the auditor follows leases of sessions, not named ones"),
    (Bug::N4, "the auditor follows leases of sessions, not named ones"),
    (Bug::N5, "the auditor follows leases of sessions, not named ones"),
    (Bug::N6, "the auditor follows leases of sessions, not named ones"),
    (Bug::N7, "the auditor follows leases of sessions, not named ones"),
    (Bug::N8, "the auditor follows leases of sessions, not named ones"),
    (Bug::W2, "silence may mean that nobody watches any more"),
];

/// Looks for every bug; the exit status.
pub(super) fn judge(args: &AuditArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let dir = tempfile::tempdir().map_err(|error| Failure::new(EXIT_IO, format!("making a directory for captures: {error}")))?;
    let place = args.keep.as_deref().unwrap_or(dir.path());
    std::fs::create_dir_all(place).map_err(|error| Failure::new(EXIT_IO, format!("making {}: {error}", place.display())))?;
    let (mut caught, mut hidden, mut missed) = (0, 0, 0);
    for bug in wanted(&args.only)? {
        let (profile, mistake) = about(bug);
        if let Some((_, why)) = NOT_VISIBLE.iter().find(|(hidden, _)| *hidden == bug) {
            hidden += 1;
            writeln!(out, "{:<5} not visible on the wire  {mistake}: {why}", bug.name())?;
            continue;
        }
        choose(Some(bug));
        let found = look(bug, place);
        choose(None);
        match found? {
            Some((seed, node, violation)) => {
                caught += 1;
                writeln!(out, "{:<5} caught  {profile} seed {seed}, at the {node}: {violation}", bug.name())?;
            }
            None => {
                missed += 1;
                writeln!(out, "{:<5} MISSED  {mistake}", bug.name())?;
            }
        }
        out.flush()?;
    }
    let not_caught = if missed > 0 { format!(", {missed} missed") } else { String::new() };
    writeln!(out, "{caught} caught, {hidden} not visible on the wire{not_caught}")?;
    Ok(if missed > 0 { EXIT_VIOLATION } else { 0 })
}

fn wanted(only: &[String]) -> Result<Vec<Bug>, Failure> {
    let named = |name: &String| {
        let known = Bug::ALL.iter().find(|bug| bug.name().eq_ignore_ascii_case(name));
        known.copied().ok_or_else(|| Failure::new(EXIT_USAGE, format!("there is no bug {name}; tools/sim/BUGS.md lists them")))
    };
    if only.is_empty() { Ok(drawn()) } else { only.iter().map(named).collect() }
}

/// The first capture that shows the bug: its seed, its machine, what was seen; of several threads, that of the lowest seed.
fn look(bug: Bug, place: &Path) -> Result<Option<Shown>, Failure> {
    let (begun, next, end) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(SEEDS));
    let found: Mutex<Result<Option<Shown>, Failure>> = Mutex::new(Ok(None));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while begun.elapsed() < BUDGET {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    let seen = one(bug, seed, place);
                    // Whoever holds it does nothing that can panic.
                    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match seen {
                        Ok(None) => {}
                        Ok(Some(shown)) if matches!(&*found, Ok(None)) || matches!(&*found, Ok(Some(other)) if shown.0 < other.0) => {
                            end.fetch_min(seed, Ordering::Relaxed);
                            *found = Ok(Some(shown));
                        }
                        Ok(Some(_)) => {}
                        Err(failure) => {
                            end.store(0, Ordering::Relaxed);
                            *found = Err(failure);
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One run: the first of its captures that shows something.
fn one(bug: Bug, seed: u64, place: &Path) -> Result<Option<Shown>, Failure> {
    let plan = Plan::draw(about(bug).0, seed);
    let mut trace = Trace::witness();
    let _outcome = run(&plan, Some(&mut trace));
    for node in std::iter::once(Node::Server).chain((0..plan.agents).map(Node::Agent)) {
        let path = place.join(format!("{}-{seed}-{}.pcap", bug.name(), node.to_string().replace(' ', "-")));
        let seen = shown(&plan, &trace, node, &path).map_err(|error| failed(&path, &error))?;
        if let Some(violation) = seen {
            return Ok(Some((seed, node, violation)));
        }
        // Only what shows something is worth keeping.
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
    }
    Ok(None)
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("the capture {}: {error}", path.display()))
}

/// Writes what a machine's process has seen as a capture, and judges that.
fn shown(plan: &Plan, trace: &Trace, node: Node, path: &Path) -> std::io::Result<Option<Violation>> {
    let mut writer = Writer::new(File::create(path)?)?;
    for (_, datagram) in trace.witnessed().iter().filter(|(of, _)| *of == node) {
        writer.write(datagram.at, datagram.from, datagram.to, &datagram.payload)?;
    }
    writer.flush()?;
    let side = if node == Node::Server { Side::Server } else { Side::Agent };
    let mut auditor = auditor(plan, side);
    for datagram in Reader::new(File::open(path)?) {
        let datagram = datagram.map_err(std::io::Error::other)?;
        let before = auditor.found();
        // What an insider does wrong itself shows no bug.
        if auditor.take((&datagram).into()) > before && !is_attacker(datagram.from) {
            return Ok(auditor.newest().cloned());
        }
    }
    Ok(None)
}
