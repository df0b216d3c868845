//! How each "sometimes" counter is noticed: from datagrams, events and a look at the server's own counts.
//!
//! Decides what counts once: a retransmission by the nonce of its request, a lapse by the lease that went on, a grace by its end.
//! Place in the walk: under `Counters`, for every happening. Invariant: state here belongs to one run and is never merged.
//! The auditor's story is not used: it knows what passes one machine, and much of what counts here the network loses or no datagram shows.
//! Leaves to others: names and requirements (`counters`).

use super::Sometimes;
use crate::observe::{Node, Seen, Sight, True, UserOp};
use cistern_agent::api::{Command, Event, HolderId, LockEvent, OpError, Output, WatchEvent, WatchId};
use cistern_link::Instant;
use cistern_server::store::Key;
use cistern_server::{Dropped, Server};
use cistern_wire::{
    CancelOutcome, Datagram, EndReason, Fate, Generation, Keep, LockId, Message, Mode, ObjectId, ReceiptAnswer, RefuseReason, Reply,
    SessionId, Status,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where counts go.
type Count<'c> = dyn FnMut(Sometimes, u64) + 'c;

/// The server's own counts, as they were last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    failures: u64,
    rescues: u64,
    steals: u64,
    repeated: u64,
    conflicts: u64,
    moves: u64,
    resumed: u64,
    duplicates: u64,
    failed: bool,
}

/// What is remembered of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Watcher {
    own: Own,
    /// Sessions of this start of the server, and all that ever were.
    sessions: BTreeSet<SessionId>,
    /// The largest nonce asked for in each session.
    nonces: BTreeMap<SessionId, u64>,
    /// How each lock was granted to each session last, until it is given back.
    held: BTreeMap<(SessionId, LockId), (Mode, Generation)>,
    demands: BTreeMap<(SessionId, u64), (LockId, Generation)>,
    /// Newest grant that an agent has received, and the newest it has disowned.
    granted: BTreeMap<(SessionId, LockId), Generation>,
    disowned: BTreeMap<(SessionId, LockId), Generation>,
    surrendered: BTreeSet<SessionId>,
    /// Named leases that have ended.
    ended_leases: BTreeSet<ObjectId>,
    failed: BTreeMap<SessionId, Instant>,
    uncertain: BTreeSet<(usize, HolderId)>,
    uncertain_watches: BTreeSet<(usize, WatchId)>,
    /// Each agent's lease as last seen: session, end, whether it was over.
    leases: BTreeMap<usize, (SessionId, Instant, bool)>,
    submitted: BTreeMap<UserOp, (True, bool)>,
    sent: u64,
    steps: u64,
    /// Sessions recorded at the server's last start that are not accounted for, and when that was.
    waited_for: BTreeSet<SessionId>,
    started: Option<(True, Instant)>,
}

impl Watcher {
    /// Takes a happening in.
    pub(super) fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>, count: &mut Count<'_>) {
        match seen {
            Seen::Sent { from, bytes, .. } => {
                self.sent += 1;
                if let Ok(datagram) = Datagram::seen(bytes) {
                    match from {
                        Node::Server => self.server_sent(&datagram, count),
                        Node::Agent(_) => self.agent_sent(&datagram, count),
                    }
                }
            }
            Seen::Received { by, bytes, .. } => self.received(*by, bytes, count),
            Seen::Submitted { op, command, .. } => {
                let local = matches!(command, Command::Lock { .. });
                let cached = matches!(command, Command::Stat { .. } | Command::Read { .. } | Command::List { .. });
                if local || cached {
                    self.submitted.insert(*op, (True(self.sent), local));
                }
            }
            Seen::Ended { op, result, .. } => self.ended(*op, *result, count),
            Seen::Told { agent, event } => self.told(*agent, event, count),
            Seen::Started { node, incarnation } => self.started(sight, *node, *incarnation, count),
            Seen::Crashed { .. } | Seen::Moved { .. } => {}
            Seen::Persisted { batch } => {
                for (key, value) in &batch.writes {
                    match (key, value) {
                        (Key::Session(session), None) => self.session_ends(sight, *session, count),
                        (Key::Lease(lease), None) => {
                            self.ended_leases.insert(*lease);
                            count(Sometimes::LeaseEnded, 1);
                        }
                        (Key::Ephemeral(owner, _), None) => {
                            let ends = |lease: &ObjectId| batch.writes.iter().any(|(key, _)| *key == Key::Lease(*lease));
                            let late = |lease: &ObjectId| lease.as_owner() == *owner && !ends(lease);
                            count(Sometimes::LeaseFileLate, u64::from(self.ended_leases.iter().any(late)));
                            count(Sometimes::EphemeralRemoved, 1);
                        }
                        (Key::Ephemeral(_, object), Some(_)) => {
                            // What is made is written together with the object.
                            let made = batch.writes.iter().any(|(key, value)| *key == Key::Object(*object) && value.is_some());
                            count(Sometimes::EphemeralRebound, u64::from(!made));
                        }
                        _ => {}
                    }
                }
            }
            Seen::Forged { counted, .. } => count(Sometimes::Forged, u64::from(*counted)),
            Seen::Exposed { .. } | Seen::Durable { .. } => {}
            Seen::Restored => count(Sometimes::Restored, 1),
            Seen::Settled => {
                if let Some(server) = sight.server {
                    self.look(sight, server, count);
                }
                self.lapses(sight, count);
            }
        }
    }

    fn look(&mut self, sight: &Sight<'_>, server: &Server, count: &mut Count<'_>) {
        let stats = server.stats();
        self.steps += 1;
        if self.steps.is_multiple_of(8) && !self.own.failed && server.status(sight.server_clock.at(sight.now)).failure.is_some() {
            self.own.failed = true;
            count(Sometimes::StoreFailed, 1);
        }
        if stats.failures != self.own.failures {
            let now = sight.server_clock.at(sight.now);
            let rows = server.sessions(now).into_iter().filter(|row| matches!(row.standing, "timing out" | "evicted"));
            for row in rows {
                let new = !self.failed.contains_key(&row.session);
                self.failed.entry(row.session).or_insert(now);
                // Nobody evicts an agent here.
                count(Sometimes::Superseded, u64::from(new && row.standing == "evicted"));
            }
        }
        let mut more = |of: Sometimes, now: u64, before: &mut u64| {
            count(of, now - *before);
            *before = now;
        };
        more(Sometimes::Failure, stats.failures, &mut self.own.failures);
        more(Sometimes::Rescue, stats.rescues, &mut self.own.rescues);
        more(Sometimes::Steal, stats.steals, &mut self.own.steals);
        more(Sometimes::CachedReply, stats.repeated, &mut self.own.repeated);
        more(Sometimes::ReclaimConflict, stats.reclaim_conflicts, &mut self.own.conflicts);
        more(Sometimes::Moved, stats.moves, &mut self.own.moves);
        more(Sometimes::Resumed, stats.resumed, &mut self.own.resumed);
        more(Sometimes::DuplicatePacket, stats.dropped(Dropped::DuplicatePacket), &mut self.own.duplicates);
    }

    fn lapses(&mut self, sight: &Sight<'_>, count: &mut Count<'_>) {
        for (agent, machine) in sight.agents.iter().enumerate() {
            let Some(core) = machine.core else {
                self.leases.remove(&agent);
                continue;
            };
            let now = machine.clock.at(sight.now);
            let view = core.view(now);
            let (Some(session), Some(until)) = (view.session, view.valid_until) else { continue };
            let over = now.lease_over(until);
            if let Some((before, end, was_over)) = self.leases.get(&agent).copied().filter(|lease| lease.0 == session) {
                count(Sometimes::Lapse, u64::from(over && !was_over));
                count(Sometimes::Revival, u64::from(was_over && !over && end != until && before == session));
            }
            self.leases.insert(agent, (session, until, over));
        }
    }

    fn started(&mut self, sight: &Sight<'_>, node: Node, incarnation: u64, count: &mut Count<'_>) {
        if incarnation < 2 {
            if node == Node::Server {
                self.started = Some((sight.now, sight.server_clock.at(sight.now)));
                count(Sometimes::Volatile, u64::from(sight.server_config.volatile));
            }
            return;
        }
        let Node::Server = node else { return count(Sometimes::AgentRestart, 1) };
        count(Sometimes::ServerRestart, 1);
        count(Sometimes::RestartInGrace, u64::from(!self.waited_for.is_empty()));
        let lease = u64::try_from(sight.server_config.lease.as_nanos()).unwrap_or(u64::MAX);
        count(Sometimes::TwiceWithinTau, u64::from(self.started.is_some_and(|(at, _)| at.0 > 0 && sight.now.0 - at.0 <= lease)));
        self.started = Some((sight.now, sight.server_clock.at(sight.now)));
        self.waited_for = sight.disk.durable_sessions().map(|(session, _)| session).collect();
        self.own = Own::default();
        self.sessions.clear();
    }

    fn session_ends(&mut self, sight: &Sight<'_>, session: SessionId, count: &mut Count<'_>) {
        let now = sight.server_clock.at(sight.now);
        if let Some(failed) = self.failed.remove(&session) {
            let early = !now.waited(failed.plus(sight.server_config.wait()));
            count(Sometimes::SurrenderEarly, u64::from(early && self.surrendered.contains(&session)));
        }
        if self.waited_for.remove(&session) && self.waited_for.is_empty() {
            let by_time = self.started.is_some_and(|(_, started)| now.waited(started.plus(sight.server_config.wait())));
            count(if by_time { Sometimes::GraceByTime } else { Sometimes::GraceEarly }, 1);
        }
    }
}

/// Datagrams.
impl Watcher {
    fn server_sent(&mut self, datagram: &Datagram<'_>, count: &mut Count<'_>) {
        let session = datagram.header.session;
        for message in datagram.messages() {
            let counted = match message {
                Message::Opened(_) => {
                    self.sessions.insert(session);
                    Sometimes::Opened
                }
                Message::Known(_) => Sometimes::Known,
                Message::Refuse(refuse) if refuse.reason == RefuseReason::Busy => Sometimes::Busy,
                Message::Nack(nack) => {
                    match nack.fate {
                        Fate::Executed => count(Sometimes::FateExecuted, 1),
                        Fate::NotExecuted => count(Sometimes::FateNotExecuted, 1),
                        Fate::Unknown => {}
                    }
                    Sometimes::Nack
                }
                Message::Result(_) => Sometimes::Result,
                Message::Pending(_) => Sometimes::Pending,
                Message::Queued(_) => Sometimes::Queued,
                Message::Grant(_) => Sometimes::DeferredGrant,
                Message::WaitOver(_) => Sometimes::WaitOver,
                Message::Probe(_) => Sometimes::Probe,
                Message::Alive(_) => Sometimes::Alive,
                Message::Hint(_) => Sometimes::Hint,
                Message::Demand(demand) => {
                    self.demands.insert((session, demand.seq), (demand.lock, demand.generation));
                    Sometimes::Demand
                }
                Message::Released(released) => {
                    let kept = released.items.iter().filter(|item| item.keep == Keep::Shared && item.now.0 > 0).count();
                    count(Sometimes::Downgrade, kept as u64);
                    continue;
                }
                Message::Cancelled(cancelled) => match cancelled.outcome {
                    CancelOutcome::Cancelled => Sometimes::CancelInTime,
                    CancelOutcome::Granted => Sometimes::CancelTooLate,
                    CancelOutcome::Answered => Sometimes::CancelAnswered,
                },
                Message::Ack(ack) => {
                    self.acked(session, &ack.reply, count);
                    continue;
                }
                _ => continue,
            };
            count(counted, 1);
        }
    }

    fn acked(&mut self, session: SessionId, reply: &Reply<'_>, count: &mut Count<'_>) {
        match reply {
            Reply::Failed(failed) => match failed.status {
                Status::BUSY => count(Sometimes::Busy, 1),
                Status::IN_GRACE => count(Sometimes::InGrace, 1),
                Status::STALE_GUARD => count(Sometimes::StaleGuard, 1),
                Status::EDEADLK => count(Sometimes::Deadlock, 1),
                Status::VERSION_CHANGED => count(Sometimes::VersionRefused, 1),
                _ => {}
            },
            Reply::Batched(_) => count(Sometimes::BatchDone, 1),
            Reply::Granted(granted) => {
                let before = self.held.insert((session, granted.lock), (granted.mode, granted.generation));
                let goes_on = before.is_some_and(|(mode, generation)| mode == granted.mode && generation < granted.generation);
                count(Sometimes::RunExtended, u64::from(goes_on));
            }
            Reply::Reclaimed(reclaimed) => {
                for item in reclaimed.items.iter() {
                    count(if item.status.is_ok() { Sometimes::ReclaimAccepted } else { Sometimes::ReclaimRefused }, 1);
                }
            }
            Reply::OutcomeTold(told) => {
                let fate = match told.fate {
                    Fate::Executed => Sometimes::OutcomeExecuted,
                    Fate::NotExecuted => Sometimes::OutcomeNotExecuted,
                    Fate::Unknown => Sometimes::OutcomeNotKnown,
                };
                count(fate, 1);
            }
            _ => {}
        }
    }

    fn agent_sent(&mut self, datagram: &Datagram<'_>, count: &mut Count<'_>) {
        let session = datagram.header.session;
        for message in datagram.messages() {
            if let Some(ask) = message.ask() {
                let newest = self.nonces.entry(session).or_default();
                count(Sometimes::Retransmission, u64::from(ask.nonce <= *newest));
                *newest = (*newest).max(ask.nonce);
            }
            match message {
                Message::Stage(_) => count(Sometimes::Stage, 1),
                Message::EndSession(end) => count(Sometimes::Closed, u64::from(end.reason == EndReason::Close)),
                Message::Release(release) => {
                    for item in release.items {
                        self.held.remove(&(session, item.lock));
                    }
                }
                Message::Receipt(receipt) => match receipt.answer {
                    ReceiptAnswer::Awaited => count(Sometimes::Awaited, 1),
                    ReceiptAnswer::InUse => count(Sometimes::InUse, 1),
                    ReceiptAnswer::NotHeld => {
                        if let Some((lock, generation)) = self.demands.get(&(session, receipt.seq)) {
                            let disowned = self.disowned.entry((session, *lock)).or_insert(*generation);
                            *disowned = (*disowned).max(*generation);
                        }
                    }
                    ReceiptAnswer::Received => {}
                },
                _ => {}
            }
        }
    }

    fn received(&mut self, by: Node, bytes: &[u8], count: &mut Count<'_>) {
        let Ok(datagram) = Datagram::seen(bytes) else { return count(Sometimes::Garbage, 1) };
        let session = datagram.header.session;
        match by {
            Node::Server => {
                let old = session.0 != 0 && !datagram.header.from_server && !self.sessions.contains(&session);
                count(Sometimes::OldIncarnation, u64::from(old && self.started.is_some_and(|(at, _)| at.0 > 0)));
                for message in datagram.messages() {
                    if matches!(message, Message::EndSession(end) if end.reason == EndReason::Surrender) {
                        self.surrendered.insert(session);
                    }
                }
            }
            Node::Agent(_) => {
                for message in datagram.messages() {
                    self.agent_got(session, &message, count);
                }
            }
        }
    }

    fn agent_got(&mut self, session: SessionId, message: &Message<'_>, count: &mut Count<'_>) {
        let granted = match message {
            Message::Nack(_) => return count(Sometimes::NackTaken, 1),
            Message::Demand(demand) => {
                let seen = self.granted.get(&(session, demand.lock)).is_some_and(|seen| *seen >= demand.generation);
                return count(Sometimes::DemandFirst, u64::from(!seen));
            }
            Message::Grant(grant) => (grant.lock, grant.generation),
            Message::Ack(ack) => {
                return ack.reply.each_grant(|given| self.grant_came(session, given.lock, given.generation, count));
            }
            _ => return,
        };
        self.grant_came(session, granted.0, granted.1, count);
    }

    fn grant_came(&mut self, session: SessionId, lock: LockId, generation: Generation, count: &mut Count<'_>) {
        let dead = self.disowned.get(&(session, lock)).is_some_and(|disowned| generation <= *disowned);
        let seen = self.granted.entry((session, lock)).or_default();
        count(Sometimes::DeadGrant, u64::from(dead && generation > *seen));
        *seen = (*seen).max(generation);
    }
}

/// Users.
impl Watcher {
    fn ended(&mut self, op: UserOp, result: Option<&Result<Output, OpError>>, count: &mut Count<'_>) {
        let asked = self.submitted.remove(&op);
        if let Some(Ok(Output::LeaseKept { .. })) = result {
            count(Sometimes::LeaseKept, 1);
        }
        match result {
            Some(Ok(_)) => {
                if let Some((True(sent), local)) = asked
                    && sent == self.sent
                {
                    count(if local { Sometimes::LocalGrant } else { Sometimes::CacheHit }, 1);
                }
            }
            Some(Err(OpError::OutcomeUnknown)) => count(Sometimes::OutcomeUnknown, 1),
            Some(Err(OpError::TimedOut)) => count(Sometimes::TimedOut, 1),
            _ => {}
        }
    }

    fn told(&mut self, agent: usize, event: &Event, count: &mut Count<'_>) {
        if let Event::Watch { watch, what, .. } = event {
            return self.watcher_told((agent, *watch), *what, count);
        }
        let Event::Lock { holder, what, .. } = event else { return };
        match what {
            LockEvent::Suspect { .. } => count(Sometimes::Suspect, 1),
            LockEvent::Uncertain => {
                count(Sometimes::Uncertain, 1);
                self.uncertain.insert((agent, *holder));
            }
            LockEvent::Certain { .. } => count(Sometimes::CertainAgain, u64::from(self.uncertain.remove(&(agent, *holder)))),
            LockEvent::Lost => count(Sometimes::Lost, 1),
        }
    }

    fn watcher_told(&mut self, who: (usize, WatchId), what: WatchEvent, count: &mut Count<'_>) {
        match what {
            WatchEvent::Changed { .. } => count(Sometimes::WatchChanged, 1),
            WatchEvent::Uncertain => {
                count(Sometimes::WatchUncertain, 1);
                self.uncertain_watches.insert(who);
            }
            WatchEvent::Certain { .. } => count(Sometimes::WatchCertainAgain, u64::from(self.uncertain_watches.remove(&who))),
            WatchEvent::Gone => count(Sometimes::WatchGone, 1),
        }
    }
}
