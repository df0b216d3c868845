//! I15's fairness, and the bounds on asking: nobody is granted past a waiting exclusive request, nobody twice, nobody who gave up; and
//! nobody asks without a pause.
//!
//! Decides from the wire: an exclusive request for an advisory lock that was answered QUEUED comes before every shared one that arrives
//! later and was not queued before it (section 11.4); a request is granted once, under one generation, and not at all after CANCELLED said
//! that it never will be; one request or notice is not sent more often in a lease period than doubled and capped timeouts allow (section
//! 11.2).
//! Invariant: a waiter counts only while its session is in good standing (section 11.3) and its server lives.
//! Leaves to others: whether the lock may be granted at all (`server_rule`).

use super::case::{Case, Verdict, violated};
use super::sessions::Record;
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use cistern_link::Instant;
use cistern_wire::{CancelOutcome, Cancelled, Generation, LockClass, LockId, Message, Mode, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Transmissions of one request in a lease period: about four while the timeout doubles, then one in τ/8 less a quarter; twice that.
const ASKED_MAX: usize = 32;
/// For how much longer than a delivery takes nothing may have been heard of a waiter that is granted its lock.
const UNHEARD: Duration = Duration::from_millis(200);
/// Requests whose transmissions are remembered.
const REMEMBERED: usize = 2_048;

/// A request for a lock, as the server received it.
#[derive(Clone, Copy, Debug)]
struct LockAsked {
    mode: Mode,
    /// How many requests had come before.
    order: u64,
    /// How many answers QUEUED there were with its first one: from then on it waits.
    waits_from: Option<u64>,
    /// How many there were when it came with CONFIRM: it may wait from then on, and is answered when its session is durable (section 6.1).
    came_with_confirm: Option<u64>,
    /// When that was.
    waits_since: Option<Instant>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct QueueOrder {
    arrived: u64,
    /// Answers QUEUED so far.
    told: u64,
    asked: BTreeMap<(SessionId, u64), LockAsked>,
    /// Exclusive requests that wait, by lock.
    waiting: BTreeMap<LockId, Vec<(SessionId, u64)>>,
    granted: BTreeMap<(SessionId, u64), (LockId, Generation)>,
    /// Requests that their agents took back, and those of which the server said that they never will be granted.
    taken_back: BTreeSet<(SessionId, u64)>,
    cancelled: BTreeSet<(SessionId, u64)>,
    /// When each request was sent, newest last; by session and nonce, or by notice (`true`).
    sent: BTreeMap<(SessionId, u64, bool), VecDeque<True>>,
    /// Whether the server stood still after its last turn: what it sends next was decided before.
    stood: bool,
}

impl Family for QueueOrder {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if matches!(case.seen, Seen::Started { node: Node::Server, .. }) {
            *self = Self::default();
        }
        if let Some(packet) = case.received_by_server() {
            let opens = packet.messages.iter().any(|message| matches!(message, Message::Confirm(_)));
            for message in &packet.messages {
                self.heard(packet.session(), opens, message);
            }
        }
        if let Some((_, packet)) = case.sent_by_agent() {
            for message in &packet.messages {
                if let Some(ask) = message.ask() {
                    self.sends(case, (packet.session(), ask.nonce, false), message)?;
                }
            }
        }
        if matches!(case.seen, Seen::Settled) {
            self.stood = case.sight.server_paused;
        }
        let Some(packet) = case.sent_by_server() else { return Ok(()) };
        for message in &packet.messages {
            let seq = match message {
                Message::Demand(demand) => Some(demand.seq),
                Message::Grant(grant) => Some(grant.seq),
                Message::Probe(probe) => Some(probe.seq),
                Message::WatchEvent(event) => Some(event.seq),
                _ => None,
            };
            if let Some(seq) = seq {
                self.sends(case, (packet.session(), seq, true), message)?;
            }
            self.told(case, facts, packet.session(), message)?;
        }
        Ok(())
    }
}

impl QueueOrder {
    fn heard(&mut self, session: SessionId, opens: bool, message: &Message<'_>) {
        match message {
            Message::Lock(lock) => {
                self.arrived += 1;
                let came_with_confirm = opens.then_some(self.told);
                let asked = LockAsked { mode: lock.mode, order: self.arrived, waits_from: None, came_with_confirm, waits_since: None };
                self.asked.entry((session, lock.ask.nonce)).or_insert(asked);
            }
            // Whether it was in time or not: who takes back a request does not wait.
            Message::Cancel(cancel) => {
                self.taken_back.insert((session, cancel.nonce));
                self.leaves(session, Some(cancel.nonce));
            }
            Message::EndSession(_) => self.leaves(session, None),
            _ => {}
        }
    }

    fn leaves(&mut self, session: SessionId, nonce: Option<u64>) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|(of, asked)| *of != session || nonce.is_some_and(|nonce| nonce != *asked));
        }
    }

    fn told(&mut self, case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
        match message {
            Message::Queued(queued) => {
                self.told += 1;
                let told = self.told;
                let asked = self.asked.get_mut(&(session, queued.nonce));
                let asked = asked.map(|asked| {
                    asked.waits_from.get_or_insert(told);
                    asked.waits_since.get_or_insert(case.server_now());
                    asked.mode
                });
                let asked = asked.filter(|mode| *mode == Mode::Exclusive);
                let gone = self.taken_back.contains(&(session, queued.nonce)) || self.granted.contains_key(&(session, queued.nonce));
                let waiting = self.waiting.entry(queued.lock).or_default();
                if asked.is_some() && !gone && !waiting.contains(&(session, queued.nonce)) {
                    waiting.push((session, queued.nonce));
                }
                Ok(())
            }
            Message::WaitOver(over) => {
                // A copy of the request is still answered QUEUED, and means nothing any more.
                self.taken_back.insert((session, over.nonce));
                self.leaves(session, Some(over.nonce));
                Ok(())
            }
            Message::Cancelled(cancelled) => {
                if cancelled.outcome == CancelOutcome::Cancelled {
                    self.cancelled.insert((session, cancelled.nonce));
                }
                self.ends_a_wait(case, facts, session, cancelled)
            }
            Message::Grant(grant) => {
                if self.cancelled.contains(&(session, grant.nonce)) {
                    let what = format!("request {} of session {session} is granted {} after it was cancelled", grant.nonce, grant.lock);
                    return violated("I14", "granted-after-cancel", what);
                }
                self.is_there(case, facts, session, grant.nonce)?;
                self.granted(case, facts, session, grant.nonce, (grant.lock, grant.mode, grant.generation))
            }
            Message::Ack(ack) => match ack.reply {
                Reply::Granted(granted) => self.granted(case, facts, session, ack.nonce, (granted.lock, granted.mode, granted.generation)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Who takes a request back is told of the grant that it was given, as long as that stands (section 11.4): else nobody gives the lock
    /// back. What is granted anew by the same datagram, the agent gives back by that.
    fn ends_a_wait(&self, case: &Case<'_>, facts: &Facts, session: SessionId, cancelled: &Cancelled) -> Verdict {
        let grant = self.granted.get(&(session, cancelled.nonce)).copied();
        let messages = || case.packet.iter().flat_map(|packet| &packet.messages);
        let renews =
            |lock: LockId| messages().any(|message| matches!(message.reply(), Some((_, Reply::Granted(granted))) if granted.lock == lock));
        let stands = |(lock, generation): &(LockId, Generation)| {
            facts.locks.hold(session, *lock).is_some_and(|hold| hold.generation == *generation) && !renews(*lock)
        };
        match grant.filter(stands) {
            Some((lock, generation)) if (cancelled.outcome, cancelled.generation) != (CancelOutcome::Granted, generation) => {
                let what = format!(
                    "request {} of session {session} was granted {lock} under {generation}, holds it, and is cancelled as {}",
                    cancelled.nonce, cancelled.outcome
                );
                violated("I14", "cancelled-and-held", what)
            }
            _ => Ok(()),
        }
    }

    /// Who waited is asked whether it is there before it is granted a lock, so that one that is gone costs others no T (section 11.4).
    fn is_there(&self, case: &Case<'_>, facts: &Facts, session: SessionId, nonce: u64) -> Verdict {
        let config = case.sight.server_config;
        let most = config.delivery_timeout_for(config.longest_lease()) + UNHEARD;
        let heard = facts.sessions.get(session).and_then(|session| session.heard).filter(|_| !self.stood);
        // A request may have to become durable before it waits (section 11.7), and is granted at once if nobody is in its way then.
        let waits = self.asked.get(&(session, nonce)).and_then(|asked| asked.waits_since);
        let now = case.server_now();
        match heard.map(|heard| now.since(heard).min(waits.map_or(Duration::MAX, |waits| now.since(waits)))) {
            Some(silence) if silence > most && !self.granted.contains_key(&(session, nonce)) => {
                let what = format!("request {nonce} of session {session} is granted, of which nothing was heard for {silence:?}");
                violated("I15", "granted-unheard", what)
            }
            _ => Ok(()),
        }
    }

    fn granted(&mut self, case: &Case<'_>, facts: &Facts, session: SessionId, nonce: u64, grant: (LockId, Mode, Generation)) -> Verdict {
        let (lock, mode, generation) = grant;
        let (_, first) = *self.granted.entry((session, nonce)).or_insert((lock, generation));
        if first != generation {
            let what =
                format!("request {nonce} of session {session} is granted {lock} under generation {generation}, and before under {first}");
            return violated("I7", "granted-twice", what);
        }
        self.leaves(session, Some(nonce));
        let asked = self.asked.get(&(session, nonce)).copied();
        let (Some(asked), true) = (asked, mode == Mode::Shared && lock.class == LockClass::Advisory) else { return Ok(()) };
        if facts.locks.hold(session, lock).is_some() {
            return Ok(());
        }
        let past = self.waiting.get(&lock).into_iter().flatten().find(|(of, nonce)| {
            let waiter = self.asked.get(&(*of, *nonce));
            let over =
                |of: &super::sessions::Session| of.failed.is_some() || of.given_up.is_some() || of.nacked || of.record == Record::Ended;
            let lives = facts.sessions.get(*of).is_some_and(|of| !over(of));
            // A request may have to become durable before it waits (section 11.7); who was queued meanwhile is before it.
            let from = asked.waits_from.map(|from| asked.came_with_confirm.unwrap_or(from));
            let queued_before = |waiter: &LockAsked| from.is_some_and(|from| waiter.waits_from.is_some_and(|other| from < other));
            // One durable write may decide both in one turn, the shared one first, and the answers leave in any order.
            let earlier_turn = |waiter: &LockAsked| waiter.waits_since.is_some_and(|since| case.server_now().since(since) > Duration::ZERO);
            let before = |waiter: &LockAsked| waiter.order < asked.order && earlier_turn(waiter) && !queued_before(waiter);
            *of != session
                && waiter.is_some_and(before)
                && lives
                && facts.sessions.standing_now(case, *of).is_none_or(|standing| standing == "good")
        });
        match past {
            Some((of, waits)) => {
                let what =
                    format!("{lock} goes to session {session} (shared), past request {waits} of session {of}, which waits for the whole");
                violated("I15", "past-the-queue", what)
            }
            None => Ok(()),
        }
    }

    fn sends(&mut self, case: &Case<'_>, of: (SessionId, u64, bool), message: &Message<'_>) -> Verdict {
        let now = case.sight.now;
        let times = self.sent.entry(of).or_default();
        times.push_back(now);
        let lease = super::case::nanos(case.sight.server_config.lease_min);
        if times.len() > ASKED_MAX {
            let first = times.pop_front().unwrap_or(now);
            // Half of it, so that no clock of the run makes a difference.
            if now.0 - first.0 < lease / 2 {
                let what =
                    format!("{} {} of session {} was sent {ASKED_MAX} times in {} ns", message.kind().name(), of.1, of.0, now.0 - first.0);
                return violated("I15", "no-pause", what);
            }
        }
        if self.sent.len() > REMEMBERED {
            self.sent.retain(|_, times| times.back().is_some_and(|last| now.0 - last.0 < lease));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, confirm, fired};
    use super::*;
    use cistern_wire::{Ack, Ask, Bytes8, Cancel, Grant, Granted, Handle, Holder, Lock, LockWait, ObjectId, Queued, Standing};

    const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };

    fn ask(nonce: u64) -> Ask {
        Ask { nonce, back: 0, limit: 0 }
    }

    fn lock(nonce: u64, mode: Mode) -> Message<'static> {
        Lock { ask: ask(nonce), object: ObjectId(7), mode, wait: LockWait::Queue }.into()
    }

    fn queued(nonce: u64) -> Message<'static> {
        let holder =
            Holder { label: Bytes8(b""), handle: Handle(0), mode: Mode::Shared, since_ms: 0, standing: Standing::Good, bound_ms: 0 };
        Queued { nonce, echo: 1, lock: LOCK, ahead: 0, holder }.into()
    }

    fn granted(nonce: u64, generation: u64) -> Message<'static> {
        let granted = Granted { lock: LOCK, mode: Mode::Shared, generation: Generation(generation), run: 1 };
        Ack { nonce, echo: 1, reply: Reply::Granted(granted) }.into()
    }

    fn grant(nonce: u64, generation: u64) -> Message<'static> {
        Grant { seq: 1, nonce, lock: LOCK, mode: Mode::Exclusive, generation: Generation(generation), run: 1 }.into()
    }

    /// Two sessions; the first waits for the whole lock.
    fn waiting() -> (Bench, QueueOrder) {
        let (mut bench, mut judge) = (Bench::new(2), QueueOrder::default());
        bench.open(&mut judge, 0, 71).unwrap();
        bench.open(&mut judge, 1, 72).unwrap();
        bench.server_gets(&mut judge, 72, 2, &[lock(1, Mode::Shared)]).unwrap();
        bench.server_gets(&mut judge, 71, 2, &[lock(1, Mode::Exclusive)]).unwrap();
        bench.server_sends(&mut judge, 71, 2, &[queued(1)]).unwrap();
        (bench, judge)
    }

    #[test]
    fn shared_grant_asked_for_before_the_exclusive_one_waited_is_clean() {
        let (mut bench, mut judge) = waiting();
        bench.server_sends(&mut judge, 72, 2, &[granted(1, 100)]).unwrap();
    }

    #[test]
    fn shared_grant_past_a_waiting_exclusive_request_is_caught() {
        let (mut bench, mut judge) = waiting();
        bench.pass(1);
        bench.server_gets(&mut judge, 72, 3, &[lock(2, Mode::Shared)]).unwrap();
        fired(bench.server_sends(&mut judge, 72, 2, &[granted(2, 100)]), "I15", "past-the-queue");
    }

    #[test]
    fn shared_grant_of_the_turn_in_which_the_exclusive_one_is_queued_is_clean() {
        let (mut bench, mut judge) = waiting();
        bench.server_gets(&mut judge, 72, 3, &[lock(2, Mode::Shared)]).unwrap();
        bench.server_sends(&mut judge, 72, 2, &[granted(2, 100)]).expect("one write has decided both");
    }

    #[test]
    fn who_was_queued_while_an_earlier_request_became_durable_is_before_it() {
        for (queued_first, right) in [(72, true), (71, false)] {
            let (mut bench, mut judge) = (Bench::new(2), QueueOrder::default());
            bench.open(&mut judge, 0, 71).unwrap();
            bench.open(&mut judge, 1, 72).unwrap();
            bench.server_gets(&mut judge, 71, 2, &[lock(1, Mode::Exclusive)]).unwrap();
            bench.server_gets(&mut judge, 72, 2, &[lock(2, Mode::Shared)]).unwrap();
            for (packet, of) in [(2, queued_first), (3, 143 - queued_first)] {
                bench.server_sends(&mut judge, of, packet, &[queued(of - 70)]).unwrap();
            }
            bench.pass(1);
            let verdict = bench.server_sends(&mut judge, 72, 4, &[granted(2, 100)]);
            match right {
                true => verdict.unwrap(),
                false => fired(verdict, "I15", "past-the-queue"),
            }
        }
    }

    #[test]
    fn who_came_with_confirm_waits_from_then_on_and_is_told_later() {
        for (told_first, right) in [(false, true), (true, false)] {
            let (mut bench, mut judge) = (Bench::new(2), QueueOrder::default());
            bench.open(&mut judge, 0, 71).unwrap();
            bench.open(&mut judge, 1, 72).unwrap();
            bench.server_gets(&mut judge, 71, 2, &[lock(1, Mode::Exclusive)]).unwrap();
            if told_first {
                bench.server_sends(&mut judge, 71, 2, &[queued(1)]).unwrap();
            }
            bench.server_gets(&mut judge, 72, 2, &[confirm(), lock(2, Mode::Shared)]).unwrap();
            bench.server_sends(&mut judge, 71, 3, &[queued(1)]).unwrap();
            bench.server_sends(&mut judge, 72, 2, &[queued(2)]).unwrap();
            bench.pass(1);
            let verdict = bench.server_sends(&mut judge, 72, 4, &[granted(2, 100)]);
            match right {
                true => verdict.unwrap(),
                false => fired(verdict, "I15", "past-the-queue"),
            }
        }
    }

    #[test]
    fn who_has_given_up_waiting_is_past_and_gets_nothing() {
        let (mut bench, mut judge) = waiting();
        bench.server_gets(&mut judge, 71, 3, &[Cancel { serial: 1, nonce: 1 }.into()]).unwrap();
        let cancelled = Cancelled { serial: 1, echo: 3, nonce: 1, outcome: CancelOutcome::Cancelled, generation: Generation(0) };
        bench.server_sends(&mut judge, 71, 3, &[cancelled.into()]).unwrap();
        bench.server_gets(&mut judge, 72, 3, &[lock(2, Mode::Shared)]).unwrap();
        bench.server_sends(&mut judge, 72, 2, &[granted(2, 100)]).unwrap();
        fired(bench.server_sends(&mut judge, 71, 4, &[grant(1, 200)]), "I14", "granted-after-cancel");
    }

    #[test]
    fn request_granted_under_two_generations_is_caught() {
        let (mut bench, mut judge) = waiting();
        bench.server_sends(&mut judge, 71, 3, &[grant(1, 200)]).unwrap();
        bench.server_sends(&mut judge, 71, 4, &[grant(1, 200)]).expect("sent again");
        fired(bench.server_sends(&mut judge, 71, 5, &[grant(1, 300)]), "I7", "granted-twice");
    }

    #[test]
    fn asking_without_a_pause_is_caught() {
        for (gap, right) in [(60, true), (5, false)] {
            let (mut bench, mut judge) = waiting();
            let mut all = (0..40).map(|n| {
                bench.pass(gap);
                bench.agent_sends(&mut judge, 0, 71, 10 + n, &[lock(5, Mode::Shared)])
            });
            match all.find(Result::is_err) {
                Some(verdict) if !right => fired(verdict, "I15", "no-pause"),
                verdict => assert!(right && verdict.is_none()),
            }
        }
    }
}
