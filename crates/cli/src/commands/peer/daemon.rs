//! What a member serves beside its group: local programs by the control socket, names of hosts, tokens on disk, and its own end.
//!
//! Decides: the lines of the control socket, which are those of the host's agent as far as they concern locks, and the order of a clean end:
//! programs are told by the end of their connections, then what they held is kept until the last instant that they were told, then
//! released, and the others have heard so, or a little later nobody waits for that any more.
//! Leaves to others: who has what (`holders`), the group (`cistern_flease`).

use super::LINE_MAX;
use super::holders::{Granted, Holders, LockRequest};
use super::report::{locks, report};
use super::reserve::{Reserve, Waking};
use crate::commands::agent::run::shares_clocks;
use crate::execute::EXIT_FAILED;
use crate::group::{Found, GroupList, Troubles};
use crate::local::{Event as Told, Failure, Greeting, Hold, Request, RequestLine, Response, Said, Unread, Until, micros, millis};
use cistern_driver::control::ControlHandler;
use cistern_driver::{ConnectionId, ControlServer, Handle, Registry, Response as Line, Services, Token};
use cistern_flease::{Event, Node};
use cistern_group::SealedNode;
use cistern_link::Instant;
use cistern_wire::Status;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the others have to confirm the releases of a member that ends. Whoever has not heard by then waits for the records' ends.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// The guests of a member's loop.
pub(super) struct PeerServices {
    pub(super) group: GroupList,
    /// Until the end has begun.
    pub(super) control: Option<ControlServer>,
    pub(super) holders: Holders,
    /// The programs that have said hello.
    pub(super) greeted: BTreeSet<ConnectionId>,
    pub(super) found: Receiver<Found>,
    pub(super) reserve: Option<Reserve>,
    /// Until the loop is known.
    pub(super) waking: Option<Waking>,
    pub(super) stop: Arc<AtomicBool>,
    /// Once nothing is held any more: when to end at the latest.
    pub(super) leaves_by: Option<Instant>,
    pub(super) troubles: Troubles,
    /// Why the loop was ended.
    pub(super) failure: Option<Failure>,
}

/// What has come by the control socket; `None`: the connection is gone.
#[derive(Default)]
struct Inbox(Vec<(ConnectionId, Option<String>)>);

impl ControlHandler for Inbox {
    fn line(&mut self, connection: ConnectionId, line: &str) -> Line {
        self.0.push((connection, Some(line.to_owned())));
        Line::Later
    }

    fn closed(&mut self, connection: ConnectionId) {
        self.0.push((connection, None));
    }
}

impl Services<SealedNode> for PeerServices {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        if let Some(waking) = self.waking.take() {
            waking.wakes(handle.clone());
        }
        self.control.as_mut().map_or(Ok(()), |control| control.register(registry, 0))
    }

    fn on_ready(&mut self, node: &mut SealedNode, now: Instant, token: Token) {
        let mut inbox = Inbox::default();
        if let Some(control) = &mut self.control {
            control.on_ready(token, &mut inbox);
        }
        for (connection, line) in inbox.0 {
            match line {
                Some(line) => self.line(node, now, connection, &line),
                None => {
                    self.greeted.remove(&connection);
                    self.holders.gone(node, now, connection);
                }
            }
        }
    }

    fn after_turn(&mut self, node: &mut SealedNode, now: Instant) -> ControlFlow<()> {
        self.troubles.look_at(node, &self.group);
        node.set_wall_clock(now, wall_us());
        self.found.try_iter().for_each(|found| found.tell(node, &self.group));
        if let Err(failure) = self.reserve_tokens(node, now) {
            self.failure = Some(failure);
            return ControlFlow::Break(());
        }
        while let Some(event) = node.poll_event() {
            self.event(node, now, event);
        }
        for (request, failure) in self.holders.overdue(node, now) {
            self.answer(request, Err(failure));
        }
        if self.stop.load(Ordering::Acquire) { self.end(node, now) } else { ControlFlow::Continue(()) }
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        let leaves = self.leaves_by.map(|by| now.until_lease_over(by));
        self.holders.wake_after(now).into_iter().chain(leaves).min()
    }
}

impl PeerServices {
    fn reserve_tokens(&mut self, node: &mut Node, now: Instant) -> Result<(), Failure> {
        let Some(reserve) = &mut self.reserve else { return Ok(()) };
        while let Some(reserved) = reserve.taken()? {
            node.set_reserved(reserved);
        }
        if let Some(reserved) = node.reservation_due(now) {
            reserve.ask(reserved);
        }
        Ok(())
    }

    fn event(&mut self, node: &mut Node, now: Instant, event: Event) {
        match event {
            Event::Acquired { name, ownership } => {
                // What ended since is told next.
                if node.owned(now, &name).is_some_and(|owned| owned.tenure == ownership.tenure)
                    && let Some(Granted { request, hold, token, basis }) = self.holders.acquired(node, now, &name, &ownership)
                {
                    self.answer(request, Ok(Response::Locked { hold, token, object: 0, basis: Some(basis), slot: None, item: None }));
                }
            }
            Event::Lost { name, ownership } => {
                if let Some((connection, hold)) = self.holders.lost(node, now, &name, ownership.tenure) {
                    self.tell(connection, &Said::event(Told::Lock { hold, state: "lost".to_owned() }));
                }
            }
            Event::Held { name } => {
                for (request, failure) in self.holders.held(node, now, &name) {
                    self.answer(request, Err(failure));
                }
            }
            Event::Refused { .. } | Event::Cloned { .. } => self.troubles.note(&event, &self.group),
        }
    }

    fn tell(&mut self, connection: ConnectionId, said: &Said) {
        // Nothing in it cannot be written. Who does not read it has its connection closed, which is told by `gone`.
        let line = serde_json::to_string(said).unwrap_or_default();
        if let Some(control) = &mut self.control {
            control.push(connection, &line);
        }
    }

    fn answer(&mut self, request: LockRequest, result: Result<Response, Failure>) {
        self.tell(request.connection, &Said::answer(Some(request.id), result));
    }

    fn line(&mut self, node: &mut Node, now: Instant, connection: ConnectionId, line: &str) {
        match RequestLine::read(line.as_bytes()) {
            Ok(asked) => {
                let id = asked.id;
                if let Some(answer) = self.carry_out(node, now, connection, asked) {
                    self.tell(connection, &Said::answer(Some(id), answer));
                }
            }
            Err(Unread { id, failure }) => self.tell(connection, &Said::answer(id, Err(failure))),
        }
    }

    /// Carries out a request; `None`: it is answered later.
    fn carry_out(
        &mut self,
        node: &mut Node,
        now: Instant,
        connection: ConnectionId,
        asked: RequestLine,
    ) -> Option<Result<Response, Failure>> {
        log::trace!("local request: {asked:?}");
        let RequestLine { id, deadline_ms, guard, request } = asked;
        Some(match request {
            Request::Hello { api } => {
                let answer = Greeting::to(api, "member", LINE_MAX);
                if answer.is_ok() {
                    self.greeted.insert(connection);
                }
                answer
            }
            _ if !self.greeted.contains(&connection) => Err(Greeting::missing()),
            _ if guard.is_some() => Err(Failure::usage("guard is for changes of files, which a member of a group has not")),
            Request::Lock { slots: Some(_), .. } => Err(Failure::usage("a group without a server has no semaphores")),
            Request::Lock { shared: true, .. } => Err(Failure::usage("a lock of a group is exclusive")),
            Request::Lock { path, wait_ms, events, .. } => {
                // A try ends by itself.
                let wait_ms = wait_ms.into_iter().chain(deadline_ms).min();
                match self.holders.ask(node, now, LockRequest { connection, id, events }, &path.0, wait_ms) {
                    Ok(()) => return None,
                    Err(failure) => Err(failure),
                }
            }
            Request::Cancel { request } => {
                if self.holders.cancel(node, now, connection, request) {
                    let failure = Failure::new(Status::ECANCELED.name(), EXIT_FAILED, "the lock request was given up");
                    self.tell(connection, &Said::answer(Some(request), Err(failure)));
                }
                Ok(Response::Done {})
            }
            Request::Unlock { hold } if self.holders.unlock(node, now, connection, hold) => Ok(Response::Done {}),
            Request::Unlock { hold } => Err(Failure::failed(format!("hold {hold} is not one of this connection's"))),
            Request::Hold { hold } => Ok(Response::Hold(self.look(node, now, connection, hold))),
            Request::Ping => Ok(Response::Pong { round_trip_us: 0 }),
            Request::Locks { path } => Ok(Response::Locks(locks(node, &self.holders, now, &self.group, path.as_ref()))),
            Request::Group => Ok(Response::Group(Box::new(report(node, now, &self.group, &self.troubles)))),
            _ => Err(Failure::usage("this is a member of a group: it has locks, and no files")),
        })
    }

    fn look(&mut self, node: &Node, now: Instant, connection: ConnectionId, hold: u64) -> Hold {
        let lease_ms = millis(node.group().terms.lease);
        let Some(until) = self.holders.look(node, now, connection, hold) else {
            return Hold { state: "lost".to_owned(), until: None, lease_ms };
        };
        let pid = self.control.as_mut().and_then(|control| control.pid(connection));
        // The instants mean nothing to a program whose clocks have another origin.
        let until = Until { clock_monotonic_raw_ns: until.raw_ns, clock_boottime_ns: until.boot_ns };
        Hold { state: "certain".to_owned(), until: pid.is_some_and(shares_clocks).then_some(until), lease_ms }
    }

    /// A step of the end; `Break` when it is over.
    fn end(&mut self, node: &mut Node, now: Instant) -> ControlFlow<()> {
        if self.control.take().is_some() {
            self.holders.all_gone(node, now);
        }
        if !self.holders.is_empty() {
            return ControlFlow::Continue(());
        }
        let by = *self.leaves_by.get_or_insert(now.plus(LEAVE_TIME));
        if node.is_leaving() && !now.lease_over(by) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Microseconds since 1970.
fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}
