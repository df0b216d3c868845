//! One turn of the loop: the order in which a machine is given datagrams, timers and the chance to send.
//!
//! Decides the contract's order: receive batches until every socket was found empty (or the turn's bound is
//! reached), the clock read after each receive call that brought something; then timers; then a slice of work; then services; then sending,
//! the clock read before each batch (section 11.1). Invariants: timers run only when in one round every socket was found empty, with
//! a time read before that round, so whatever had arrived by the time that the timers see has been handled before
//! them (section 11.3); time given to the machine never goes back; a shared machine is held for a whole round or batch, not
//! for each datagram. A machine that the loop has alone is otherwise told what was read last.
//! Leaves to `event_loop`: sleeping; to `socket` and `tx_batch`: the system calls.

use std::io;
use std::ops::ControlFlow;

use cistern_link::{Instant, Machine, Path};

use crate::clock::Clock;
use crate::event_loop::{EventLoop, LoopError, Owner, failed, port_token};
use crate::receive_pool::ReceivePool;
use crate::services::Services;
use crate::socket::{Sent, UdpPort, is_network_report, is_unicast, route};
use crate::stamps::stamp;
use crate::stats::Stats;
use crate::tap::Tapped;
use crate::tx_batch::{Carrier, Filled};

/// Most errors that one socket may give in a row in one round before it is left for the next turn.
const ERRORS_PER_ROUND: usize = 16;

/// Most batches sent in one turn, so that a machine with much to send still receives.
const BATCHES_PER_TURN: usize = 8;

/// What one round over all sockets brought.
#[derive(Default)]
struct Round {
    datagrams: usize,
    /// What the clock showed last: after a receive call that brought something, or before all of them.
    now: Option<Instant>,
    /// Every socket was found empty.
    empty: bool,
    /// The machine was told so.
    drained: bool,
    /// A socket gave nothing but errors.
    trouble: bool,
}

/// What one socket had.
enum Received {
    /// So many buffers of the pool are filled.
    Batch(usize),
    Empty,
    Trouble,
}

impl<O: Owner, S: Services<O::M>> EventLoop<O, S> {
    /// Takes one turn; `Break` if the services want the loop to end.
    pub(crate) fn turn(&mut self) -> Result<ControlFlow<()>, LoopError> {
        self.stats.turns.one();
        self.more = false;
        self.trouble = false;
        let received = self.receive()?;
        if self.serve()?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.transmit()?;
        if received {
            self.overflow.look(self.told, &self.clock, &self.stats, &self.options.name);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Receives in rounds until all sockets are empty or the turn's bound is reached; whether anything came.
    fn receive(&mut self) -> Result<bool, LoopError> {
        let bound = self.options.datagrams_per_turn.max(1);
        let mut left = bound;
        // A reading that no receive call has followed yet. Where something is known to be there none is made: its batch brings one.
        let known = std::mem::take(&mut self.readable) || !O::ALONE;
        let mut before = (!known).then(|| self.clock.now());
        loop {
            let Self { owner, ports, pool, clock, stats, tap, services, .. } = self;
            // The receive calls do not block, so a shared machine may stay locked over them; only so no other
            // thread can give it a later time than the one that the timers are given below.
            let round = owner.with(|machine| {
                let before = if O::ALONE { before } else { Some(clock.now()) };
                let round = receive_round(machine, ports, pool, clock, before, stats, tap);
                if !round.drained && !round.empty {
                    services.between_rounds(machine);
                }
                round
            })?;
            // None: the poll has promised something that is not there. Once more, with a reading.
            self.told = round.now.unwrap_or_else(|| clock.now());
            if round.drained {
                return Ok(left < bound);
            }
            // The next round's calls follow it.
            before = Some(self.told);
            if round.empty {
                continue;
            }
            let told = self.told;
            self.spin.moved(|| told);
            left = left.saturating_sub(round.datagrams);
            if round.trouble || left == 0 {
                self.trouble = round.trouble;
                self.more = true;
                return Ok(left < bound);
            }
        }
    }

    /// Lets the machine work, and serves what became ready and the services' effects.
    fn serve(&mut self) -> Result<ControlFlow<()>, LoopError> {
        let Self { owner, services, ready, clock, told, .. } = self;
        let flow = owner.with(|machine| {
            machine.work(if O::ALONE { *told } else { clock.now() });
            for token in ready.drain(..) {
                // Rare, and each may take long.
                services.on_ready(machine, clock.now(), token);
                *told = clock.now();
            }
            // What a service completes is dated by what was read last: that is no earlier than the receipt of anything handled (section
            // 11.1).
            let now = if O::ALONE { *told } else { clock.now() };
            services.after_turn(machine, now)
        })?;
        Ok(flow)
    }

    /// Sends what the machine has, batch by batch, until it has no more, the sockets have no room, or the turn's
    /// bound is reached.
    fn transmit(&mut self) -> Result<(), LoopError> {
        self.drop_overdue();
        let Self { owner, ports, clock, stats, tx_batch, tap, spin, told, .. } = self;
        self.more |= 'batches: {
            for _ in 0..BATCHES_PER_TURN {
                let filled = owner.with(|machine| {
                    *told = clock.now();
                    tx_batch.fill(machine, *told, |path| {
                        let port = route(ports, path);
                        if port.is_none() {
                            stats.dropped_no_port.one();
                        }
                        port
                    })
                })?;
                let sends = tx_batch.is_held();
                // Sent without the lock: other threads use a shared machine meanwhile.
                tx_batch.flush(|| clock.now(), &mut Sockets { ports, stats, tap });
                if sends {
                    spin.moved(|| clock.now());
                }
                if filled == Filled::MachineEmpty || tx_batch.is_full() {
                    break 'batches false;
                }
            }
            true
        };
        self.watch_blocked()
    }

    /// Gives up on what has waited too long, and lets its socket be tried again.
    fn drop_overdue(&mut self) {
        if !self.tx_batch.is_held() {
            return;
        }
        let dropped = self.tx_batch.drop_overdue(self.clock.now());
        if dropped > 0 {
            self.stats.dropped_held_too_long.add(dropped);
            log::debug!("{}: dropped {dropped} datagrams that found no room for too long", self.options.name);
            for port in &mut self.ports {
                port.unblock();
            }
        }
    }

    fn watch_blocked(&mut self) -> Result<(), LoopError> {
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.watch(self.poll.registry(), port_token(index)).map_err(failed("watching a UDP socket"))?;
        }
        Ok(())
    }
}

/// One receive call on every socket, each batch given to the machine; timers, if all were empty and it is known when that was not yet
/// so: `before` was read before these calls.
fn receive_round<M: Machine>(
    machine: &mut M,
    ports: &mut [UdpPort],
    pool: &mut ReceivePool,
    clock: &Clock,
    before: Option<Instant>,
    stats: &Stats,
    tap: &mut Option<Tapped>,
) -> Round {
    let mut round = Round { now: before, empty: true, ..Round::default() };
    for port in ports {
        match receive_from(port, pool, stats) {
            Received::Batch(filled) => {
                round.empty = false;
                let at = tap.as_ref().map(|_| stamp());
                //= wire-spec.md#11-1-lease
                //# A receiver MUST read the clock for a datagram after it was received.
                let now = clock.now();
                round.now = Some(now);
                round.datagrams += hand_over(machine, pool, filled, now, stats);
                if let (Some(tap), Some(at)) = (tap.as_mut(), at) {
                    pool.datagrams(filled).for_each(|(path, datagram)| tap.received(at, port.local_addr(), &path, datagram));
                }
            }
            Received::Empty => {}
            Received::Trouble => {
                round.empty = false;
                round.trouble = true;
            }
        }
    }
    if let Some(before) = before.filter(|_| round.empty) {
        machine.handle_drained(before);
        round.drained = true;
    }
    round
}

/// One receive call that is not an error report.
fn receive_from(port: &mut UdpPort, pool: &mut ReceivePool, stats: &Stats) -> Received {
    for _ in 0..ERRORS_PER_ROUND {
        match port.receive(pool) {
            Ok(filled) => return Received::Batch(filled),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::Empty,
            // The call tells what the network said about something sent; the next one receives.
            Err(error) => {
                if port.drain_errors(stats) == 0 && !is_network_report(&error) {
                    stats.receive_errors.one();
                    log::debug!("{}: receive failed: {error}", port.local_addr());
                }
            }
        }
    }
    Received::Trouble
}

/// Gives a received batch to the machine, with the time read after the receive call; gives how many datagrams
/// the batch had, dropped ones included.
fn hand_over<M: Machine>(machine: &mut M, pool: &ReceivePool, filled: usize, now: Instant, stats: &Stats) -> usize {
    let limit = machine.max_datagram();
    let (mut all, mut given, mut bytes) = (0, 0, 0);
    for (path, datagram) in pool.datagrams(filled) {
        all += 1;
        if admit(&path, datagram, limit, stats) {
            given += 1;
            bytes += datagram.len();
            machine.handle_datagram(now, path, datagram);
        }
    }
    stats.receive_batches.one();
    stats.datagrams_in.add(given);
    stats.bytes_in.add(bytes);
    all
}

/// Whether the machine gets to see a datagram; what it does not is counted by name.
fn admit(path: &Path, datagram: &[u8], limit: usize, stats: &Stats) -> bool {
    let reason = if datagram.len() > limit {
        &stats.dropped_too_long
    } else if path.remote.port() == 0 {
        &stats.dropped_from_port_zero
    } else if !path.local.is_none_or(is_unicast) {
        &stats.dropped_not_unicast
    } else {
        return true;
    };
    reason.one();
    log::trace!("dropped {} bytes from {} at the socket", datagram.len(), path.remote);
    false
}

/// The loop's sockets, as the batch sends through them.
struct Sockets<'a> {
    ports: &'a mut [UdpPort],
    stats: &'a Stats,
    tap: &'a mut Option<Tapped>,
}

impl Carrier for Sockets<'_> {
    fn segments(&self, port: usize) -> usize {
        self.ports[port].segments()
    }

    fn send(&mut self, port: usize, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent {
        let port = &mut self.ports[port];
        let Some(tap) = self.tap else { return port.send(path, contents, segment, self.stats) };
        // Before the call: on loopback the receiver may be at work before it returns.
        let at = stamp();
        let sent = port.send(path, contents, segment, self.stats);
        if sent == Sent::Done {
            tap.sent(at, port.local_addr(), path, contents, segment);
        }
        sent
    }
}
