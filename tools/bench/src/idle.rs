//! Sessions that do nothing: what the server sends, how often it wakes, and the CPU that it takes.
//!
//! Decides the load: many open sessions, then the same with a lock each, then silence for some seconds. Place: a workload, over
//! `opening`. Invariant: datagrams are counted where they would arrive, at the sessions' sockets.
//! Leaves to others: memory and cost at more sessions (`scale`), an idle agent's own share (it sends nothing either once its locks are
//! given back).

use crate::agent::Agent;
use crate::cases::{Plan, connected};
use crate::figures::{count, per};
use crate::host::{Host, Role};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

/// Rounds are so many times as long as those of a load: silence takes longer to see.
const LONGER: u32 = 10;
/// Sockets that the sessions share.
const SOCKETS: usize = 16;
/// For how long the server is left to itself after the last session was opened.
const SETTLE: Duration = Duration::from_millis(300);

/// Watches a server with `sessions` sessions that do nothing.
pub(crate) fn run(sessions: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("idle", "open sessions of which nobody says anything");
    let host = Host::start(Role::Server, plan.cores)?;
    let empty = host.resident_bytes()?;
    progress.say(&format!("opening {sessions} sessions"));
    let (sockets, mut agents) = open(sessions, &host)?;
    progress.say(&format!("{sessions} sessions do nothing"));
    section.rows.push(watch(&format!("idle, {sessions} sessions without a lock"), &host, &sockets, plan, (empty, sessions))?);
    progress.say("a lock for each session");
    let with = host.resident_bytes()?;
    let per_socket = sessions.div_ceil(SOCKETS);
    for (number, agent) in agents.iter_mut().enumerate() {
        opening::create_and_lock(&sockets[number / per_socket], agent, &format!("idle-{number}"))?;
    }
    progress.say(&format!("{sessions} sessions with a lock each do nothing"));
    section.rows.push(watch(&format!("idle, {sessions} sessions with a file and a lock each"), &host, &sockets, plan, (with, sessions))?);
    Ok(section.note("Memory is what the process grew by, a session, or a file with a lock; `cistern-bench scale` tells it apart."))
}

/// The sessions, as many of them on each socket.
fn open(sessions: usize, host: &Host) -> Result<(Vec<UdpSocket>, Vec<Agent>), Trouble> {
    let (mut sockets, mut agents) = (Vec::new(), Vec::with_capacity(sessions));
    for (line, start) in (0..sessions).step_by(sessions.div_ceil(SOCKETS)).enumerate() {
        let socket = connected(host)?;
        agents.extend(opening::open(&socket, line, start..sessions.min(start + sessions.div_ceil(SOCKETS)), opening::TOGETHER, None)?);
        sockets.push(socket);
    }
    Ok((sockets, agents))
}

/// Looks at the server for a while in which nobody says anything.
fn watch(name: &str, host: &Host, sockets: &[UdpSocket], plan: &Plan, (before, sessions): (u64, usize)) -> Result<Row, Trouble> {
    thread::sleep(SETTLE);
    arrived(sockets)?;
    let (span, grown) = (plan.span * LONGER, host.resident_bytes()?.saturating_sub(before));
    let used = host.usage()?;
    thread::sleep(span);
    let used = host.usage()?.since(used);
    Ok(Row::new(name)
        .with("sessions", "sessions", sessions as u64)
        .with("seconds", "seconds", span.as_secs_f64())
        .with("datagrams", "datagrams", arrived(sockets)?)
        .with("sleeps", "wake-ups", used.sleeps)
        .with("cpu_us_per_s", "server µs/s", count(used.cpu_ns) / 1e3 / span.as_secs_f64())
        .with("bytes", "bytes of memory", per(grown, sessions as u64)))
}

/// Takes what has come to the sockets; gives how many datagrams.
fn arrived(sockets: &[UdpSocket]) -> Result<u64, Trouble> {
    let mut datagrams = 0;
    for socket in sockets {
        socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
        while socket.recv(&mut [0; 1]).is_ok() {
            datagrams += 1;
        }
        socket.set_nonblocking(false).map_err(Trouble::at("making a socket blocking"))?;
    }
    Ok(datagrams)
}
