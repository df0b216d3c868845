//! Sessions opened, plain and sealed: what each costs the loop, what it costs besides, and how much memory it takes.
//!
//! Decides the load: as many handshakes as a server that is no target of a flood lets through, one after the other by as many sockets as it takes,
//! none of whose sessions ever ends. Place: a workload, over `opening`. Invariant: plain and sealed take turns, in servers of their own, which
//! have as many sessions. Leaves to others: what the workers of a sealed server do (`cistern_seal::work`).

use crate::cases::{Plan, connected};
use crate::figures::{Spread, count, per};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use std::time::Instant;

/// Sessions opened in a round.
const SESSIONS: usize = 2_048;

/// A server, and what each round of it took.
struct Opened {
    host: Host,
    loop_us: Vec<f64>,
    all_us: Vec<f64>,
    per_second: Vec<f64>,
    /// Memory after the first round, and now.
    bytes: (u64, u64),
}

impl Opened {
    fn start(sealed: bool, plan: &Plan) -> Result<Self, Trouble> {
        // Room for as many as are opened, from one host, as fast as it can.
        let host = Host::start_with(Role::Server, plan.cores, &Setup { sealed, room: Some(1), ..Setup::default() })?;
        Ok(Self { host, loop_us: Vec::new(), all_us: Vec::new(), per_second: Vec::new(), bytes: (0, 0) })
    }

    fn round(&mut self, number: usize) -> Result<(), Trouble> {
        let Self { host, .. } = self;
        let socket = connected(host)?;
        let (used, of_loop, begun) = (host.usage()?, host.loop_ns()?, Instant::now());
        let numbers = number * SESSIONS..(number + 1) * SESSIONS;
        let opened = opening::open(&socket, 0, numbers, opening::TOGETHER, host.sealed_by().as_ref())?.len() as u64;
        let seconds = begun.elapsed().as_secs_f64();
        let (used, of_loop, bytes) = (host.usage()?.since(used), host.loop_ns()? - of_loop, host.resident_bytes()?);
        if number == 0 {
            // What it needed anyway, and tables at their first size.
            self.bytes = (bytes, bytes);
            return Ok(());
        }
        self.bytes.1 = bytes;
        self.loop_us.push(per(of_loop, opened) / 1e3);
        self.all_us.push(per(used.cpu_ns, opened) / 1e3);
        self.per_second.push(count(opened) / seconds);
        Ok(())
    }

    fn session_bytes(&self, rounds: usize) -> f64 {
        per(self.bytes.1.saturating_sub(self.bytes.0), (rounds * SESSIONS) as u64)
    }
}

/// Opens sessions, plain and sealed in turn.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let title = "sessions opened, 64 handshakes at a time; CPU of the thread that turns the machine, and of all threads";
    let mut section = Section::new("handshakes", title);
    let mut sides = [Opened::start(false, plan)?, Opened::start(true, plan)?];
    let rounds = plan.rounds as usize;
    for number in 0..=rounds {
        progress.say(&format!("{number} of {rounds} rounds of {SESSIONS} sessions, plain and sealed"));
        for side in &mut sides {
            side.round(number)?;
        }
    }
    let spread = |values: &[f64]| Spread::of(values.iter().copied()).expect("the command line lets no plan without rounds through");
    let plain_bytes = sides[0].session_bytes(rounds);
    for (name, side) in ["plain", "sealed"].into_iter().zip(&sides) {
        let bytes = side.session_bytes(rounds);
        let row = Row::new(name)
            .with("loop_us", "loop µs/session", spread(&side.loop_us))
            .with("all_us", "all threads µs/session", spread(&side.all_us))
            .with("per_second", "sessions/s", spread(&side.per_second).median)
            .with("bytes", "bytes a session", bytes)
            .with("sessions", "sessions", (rounds * SESSIONS) as u64);
        section.rows.push(if side.host.sealed_by().is_some() { row.with("bytes_more", "bytes more", bytes - plain_bytes) } else { row });
    }
    Ok(section.note("Memory is what the process grew by after the first round; tables grow by doubling, the same for both."))
}
