//! Sessions that only stay alive: what each service's server does for them, and how many packets that takes.
//!
//! Decides what a session is where: etcd, a lease with its keep-alives on one connection, a stream each, as its Rust client has it;
//! ZooKeeper, a session with its connection and the client's pings; Redis, a connection with a key that it sets anew; ours, a session of
//! which nobody says anything, for that is what an idle agent does, and beside it one that keeps a lock and so must renew its lease.
//! All live 10 s; who renews does so after a third of it, ZooKeeper's client after 3/20, ours after 0.6. Services are measured one after the
//! other. Place: a part of `peers`. Invariants: opening is bounded, and as many as were opened are measured and said; packets are those of
//! the loopback interface, others' included, which the first row shows.
//! Leaves to others: each service's sessions (its own file), ours while working (`sessions`, `idle`).

use super::{etcd, redis, zookeeper};
use crate::agent::Agent;
use crate::cases::{Plan, connected};
use crate::figures::{count, per};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_wire::{KeepAlive, Message};
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a session lives without a word.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// How long opening may take.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// Rounds are so many times as long as those of a load.
const LONGER: u32 = 20;
/// Sockets that our sessions share.
const SOCKETS: usize = 16;
/// When one of ours that holds a lock renews, as a part of its life.
const RENEWS_AT: f64 = 0.6;

/// Sessions of a service that is running.
pub(crate) trait Sessions {
    /// What it is called in tables.
    fn name(&self) -> String;

    /// Opens as many as it can in that time, at most `wanted`; gives how many.
    fn open(&mut self, wanted: usize, within: Duration) -> Result<usize, Trouble>;

    /// Keeps them alive for `span`.
    fn keep(&mut self, span: Duration) -> Result<(), Trouble>;

    /// CPU time of the server and its resident memory.
    fn used(&self) -> Result<(u64, u64), Trouble>;
}

/// Measures everybody who is there.
pub(super) fn run(dir: &Path, sessions: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let title = format!("{sessions} sessions that live {} s and only stay alive", TTL.as_secs());
    let mut section = Section::new("peers idle", title);
    let span = plan.span * LONGER;
    progress.say("idle: nobody");
    let before = packets()?;
    thread::sleep(span.min(Duration::from_secs(1)));
    let nobody = count(packets()? - before) / span.min(Duration::from_secs(1)).as_secs_f64();
    section.rows.push(Row::new("(nobody: other programs on loopback)").with("packets_per_s", "packets/s", nobody));
    let services: [&dyn Fn() -> Result<Started, Trouble>; 5] =
        [&|| ours(plan, false), &|| ours(plan, true), &|| etcd::sessions(dir), &|| zookeeper::sessions(dir), &|| redis::sessions(dir)];
    for start in services {
        match start()? {
            Ok(mut service) => match watch(&mut *service, sessions, span, progress) {
                Ok(row) => section.rows.push(row),
                Err(trouble) => section.notes.push(format!("{}: could not be measured: {trouble}.", service.name())),
            },
            Err(skipped) => section.notes.push(skipped),
        }
    }
    Ok(section.note(
        "Packets are all of the loopback interface. etcd: a lease each, one connection, a stream each, as its Rust client has it; its Go \
         client shares one stream. ZooKeeper: a connection each, pings as its client sends them (every 1.5 s). Redis: a connection each \
         that sets its key anew every 3.3 s. Ours without a lock needs no renewal; with one it renews every 6 s.",
    ))
}

/// A service whose sessions can be opened; the inner error says why it is skipped.
pub(crate) type Started = Result<Box<dyn Sessions>, String>;

fn watch(service: &mut dyn Sessions, wanted: usize, span: Duration, progress: &Progress) -> Result<Row, Trouble> {
    progress.say(&format!("idle: opening {wanted} sessions of {}", service.name()));
    let ((_, empty), begin) = (service.used()?, Instant::now());
    let opened = service.open(wanted, OPEN_MAX)?;
    let took = begin.elapsed();
    progress.say(&format!("idle: {opened} sessions of {}", service.name()));
    // What opening has left to do is done.
    service.keep(span / 5)?;
    let ((cpu, full), packets_before, begin) = (service.used()?, packets()?, Instant::now());
    service.keep(span)?;
    let ((later, _), packets_after, elapsed) = (service.used()?, packets()?, begin.elapsed().as_secs_f64());
    Ok(Row::new(service.name())
        .with("sessions", "sessions", opened as u64)
        .with("cpu_percent", "server CPU %", count(later.saturating_sub(cpu)) / 1e7 / elapsed)
        .with("packets_per_s", "packets/s", count(packets_after.saturating_sub(packets_before)) / elapsed)
        .with("bytes", "bytes a session", per(full.saturating_sub(empty), opened as u64))
        .with("opened_s", "s to open", took.as_secs_f64()))
}

/// Packets that the loopback interface has carried.
fn packets() -> Result<u64, Trouble> {
    let devices = procfs::net::dev_status().map_err(|e| Trouble::at("reading /proc/net/dev")(io::Error::other(e)))?;
    Ok(devices.get("lo").map_or(0, |lo| lo.recv_packets))
}

/// Our server, and sessions as the generator has them.
struct OurSessions {
    host: Host,
    locks: bool,
    sockets: Vec<UdpSocket>,
    agents: Vec<Agent>,
    datagram: Vec<u8>,
    /// The session that renews next.
    next: usize,
}

fn ours(plan: &Plan, locks: bool) -> Result<Started, Trouble> {
    let tau_ms = u64::try_from(TTL.as_millis()).ok();
    let host = Host::start_with(Role::Server, plan.cores, &Setup { tau_ms, ..Setup::default() })?;
    Ok(Ok(Box::new(OurSessions { host, locks, sockets: Vec::new(), agents: Vec::new(), datagram: Vec::new(), next: 0 })))
}

impl Sessions for OurSessions {
    fn name(&self) -> String {
        if self.locks { "Cistern, a lock each, renewed" } else { "Cistern" }.to_owned()
    }

    fn open(&mut self, wanted: usize, within: Duration) -> Result<usize, Trouble> {
        let (begin, each) = (Instant::now(), wanted.div_ceil(SOCKETS));
        for (line, start) in (0..wanted).step_by(each).enumerate() {
            let socket = connected(&self.host)?;
            let mut agents = opening::open(&socket, line, start..wanted.min(start + each), opening::TOGETHER, None)?;
            for (number, agent) in agents.iter_mut().enumerate().filter(|_| self.locks) {
                opening::create_and_lock(&socket, agent, &format!("idle-{line}-{number}"))?;
            }
            socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
            self.sockets.push(socket);
            self.agents.extend(agents);
            if begin.elapsed() > within {
                break;
            }
        }
        Ok(self.agents.len())
    }

    fn keep(&mut self, span: Duration) -> Result<(), Trouble> {
        if !self.locks {
            thread::sleep(span);
            return Ok(());
        }
        let gap = TTL.mul_f64(RENEWS_AT) / u32::try_from(self.agents.len()).unwrap_or(u32::MAX);
        let (begin, mut due) = (Instant::now(), Instant::now());
        while begin.elapsed() < span {
            let agent = &mut self.agents[self.next];
            let renewal = Message::from(KeepAlive { serial: agent.next_serial(), clock_us: 0 }).to_bytes();
            agent.pack(&renewal, &mut self.datagram);
            let socket = &self.sockets[agent.line];
            socket.send(&self.datagram).map_err(Trouble::at("renewing a lease"))?;
            // Answers of earlier ones; a lost one would only be renewed a little later.
            while socket.recv(&mut [0; 64]).is_ok() {}
            self.next = (self.next + 1) % self.agents.len();
            due += gap;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn used(&self) -> Result<(u64, u64), Trouble> {
        Ok((self.host.usage()?.cpu_ns, self.host.resident_bytes()?))
    }
}
