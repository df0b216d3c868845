//! I4 and I5, the server's side: what renews, and when a lock may go to another session.
//!
//! Decides: every echo is a packet that the server had received; no message renews a session that is not in good standing, nor one that was
//! ever sent a NACK (I5); a lock that one session holds goes to another in a conflicting mode, and a mutation is executed that it does not
//! know of, only after it gave the lock back or its end is durable, and that end came of the agent's own word or after T (sections 11.3 and
//! 11.6), counted from D and from the receipt of the newest packet ever echoed to it (INV); nobody is told of an end that is not durable
//! (I10).
//! Invariant: T is what the server told in WELCOME, so rounding it down or leaving δ out is seen.
//! Leaves to others: grace (`grace`), whether the end was durable in time (`durable` has the rest of I10).

use super::case::{Case, Verdict, cache_lock, echo_of, grants_of, reading, violated};
use super::locks::Hold;
use super::sessions::{Record, Session};
use super::{Facts, Family};
use crate::observe::Seen;
use cistern_link::Instant;
use cistern_wire::{LockId, Message, Mode, NackReason, Reply, SessionFate, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The judge.
#[derive(Debug, Default)]
pub(super) struct ServerRule {
    /// Newest notice sent in each session.
    notices: BTreeMap<SessionId, u64>,
    /// Sessions whose end was judged.
    judged: BTreeSet<SessionId>,
}

impl Family for ServerRule {
    fn name(&self) -> &'static str {
        "server-rule"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                renewal(case, facts, packet.session(), message)?;
                grants(case, facts, packet.session(), message)?;
                mutation(case, facts, packet.session(), message)?;
                self.notice(case, facts, packet.session(), message)?;
                said_to_have_ended(facts, packet.session(), message)?;
            }
        }
        match case.seen {
            Seen::Durable { .. } => self.ends(case, facts),
            // A start is judged from its first durable batch on; what was durable before was judged then.
            Seen::Started { .. } => {
                self.judged.extend(facts.sessions.all.iter().filter(|(_, s)| s.record == Record::Ended).map(|(id, _)| *id));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A message that renews.
fn renewal(case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
    let Some(echo) = echo_of(message) else { return Ok(()) };
    let name = message.kind().name();
    let Some(known) = facts.sessions.get(session) else {
        return violated("I5", "renews-unknown-session", format!("{name} in session {session}, which nobody has confirmed"));
    };
    if known.receipts.get(echo).is_none() && !known.receipts.may_be_forgotten(echo) {
        return violated("I4", "echo-of-nothing", format!("{name} in session {session} echoes packet {echo}, which never arrived"));
    }
    if known.nacked {
        return violated("I5", "renews-after-nack", format!("{name} in session {session}, to which a NACK was sent"));
    }
    if case.sight.server.is_some() || !facts.sessions.standing.is_empty() {
        let standing = facts.sessions.standing.get(&session).copied().unwrap_or("unknown");
        if standing != "good" {
            return violated("I5", "renews-while-failed", format!("{name} in session {session}, which is {standing}"));
        }
    }
    Ok(())
}

/// Whether a hold can still be used, by somebody other than the process that has a session.
fn counts(case: &Case<'_>, facts: &Facts, session: SessionId, hold: &Hold) -> bool {
    let is_over = facts.sessions.get(hold.session).is_some_and(|session| session.is_over(case.server_now()));
    !is_over && !facts.sessions.is_former(hold.session, session)
}

/// A grant must not meet a conflicting hold of another session.
fn grants(case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
    for grant in grants_of(message) {
        if facts.locks.is_news(session, &grant)
            && let Some(hold) = facts.locks.conflicts(session, grant.lock, grant.mode).find(|hold| counts(case, facts, session, hold))
        {
            return conflict(facts, session, grant.lock, grant.mode, hold);
        }
    }
    if let Message::Ack(ack) = message
        && let Reply::Reclaimed(reclaimed) = ack.reply
        && let Some(asked) = facts.locks.reclaim(session, ack.nonce)
    {
        for (asked, told) in asked.iter().zip(reclaimed.items.iter()).filter(|(_, told)| told.status.is_ok()) {
            let mut others = facts.locks.conflicts(session, told.lock, asked.item.mode);
            let others = others.find(|hold| hold.session != asked.from && counts(case, facts, session, hold));
            if let Some(hold) = others {
                return conflict(facts, session, told.lock, asked.item.mode, hold);
            }
        }
    }
    Ok(())
}

fn conflict(facts: &Facts, session: SessionId, lock: LockId, mode: Mode, hold: &Hold) -> Verdict {
    let what = format!(
        "{lock} goes to session {session} ({mode}), while session {} holds it ({}, generation {}, agent {:?})",
        hold.session,
        hold.mode,
        hold.generation,
        facts.sessions.get(hold.session).and_then(|session| session.agent),
    );
    match facts.sessions.get(hold.session).map(|session| session.record) {
        Some(Record::Ending) => violated("I10", "granted-before-the-end-is-durable", what),
        _ => violated("I4", "granted-while-held", what),
    }
}

/// No session with a cache lock may be left behind by a mutation.
fn mutation(case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
    let changed: Vec<(cistern_wire::ObjectId, u64)> = match message.reply() {
        Some((_, Reply::Changed(changed))) => {
            let effects = changed.effects.iter().filter(|effect| effect.before != effect.attr.version);
            effects.map(|effect| (effect.attr.object, effect.attr.version)).collect()
        }
        Some((_, Reply::Batched(done))) => done.items.iter().map(|item| (item.object, item.version)).collect(),
        _ => return Ok(()),
    };
    for (object, version) in changed {
        let mut holders = facts.locks.holders(cache_lock(object));
        let unaware = |hold: &&Hold| hold.session != session && hold.version < version && counts(case, facts, session, hold);
        if let Some(hold) = holders.find(unaware) {
            let what = format!(
                "{} got version {} by session {session}, while session {} holds its cache lock ({}, generation {}) and knows version {}",
                object, version, hold.session, hold.mode, hold.generation, hold.version,
            );
            return violated("I4", "mutation-under-a-lock", what);
        }
    }
    Ok(())
}

/// Nobody is told that a session has ended before that is durable.
fn said_to_have_ended(facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
    let named: Vec<SessionId> = match message {
        Message::Nack(nack) if nack.reason == NackReason::Ended => vec![session],
        Message::Ended(_) => vec![session],
        Message::Opened(opened) => {
            opened.former.iter().filter(|former| former.fate == SessionFate::Ended).map(|former| former.session).collect()
        }
        _ => return Ok(()),
    };
    for named in named {
        match facts.sessions.get(named).map(|known| known.record) {
            None | Some(Record::None | Record::Ended) => {}
            Some(record) => {
                let what = format!("{} says that session {named} has ended; its record is {record:?}", message.kind().name());
                return violated("I10", "end-told-before-it-is-durable", what);
            }
        }
    }
    Ok(())
}

impl ServerRule {
    /// A grant from the queue is not sent, for the first time, in a session that is not in good standing (section 11.3).
    fn notice(&mut self, case: &Case<'_>, facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
        let Message::Grant(grant) = message else { return Ok(()) };
        let newest = self.notices.entry(session).or_default();
        let is_new = grant.seq > *newest;
        *newest = (*newest).max(grant.seq);
        let standing = facts.sessions.standing_now(case, session);
        match standing {
            Some(standing) if is_new && standing != "good" => {
                violated("I5", "granted-while-failed", format!("{} is granted to session {session}, which is {standing}", grant.lock))
            }
            _ => Ok(()),
        }
    }

    /// Ends of sessions that have become durable.
    fn ends(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let ended = facts.sessions.all.iter().filter(|(id, session)| session.record == Record::Ended && !self.judged.contains(*id));
        let ended: Vec<_> = ended.collect();
        for (id, session) in ended {
            self.judged.insert(*id);
            // A restored store ends all sessions at once, and waits before it grants anything (section 11.7).
            let restored = facts.truth.restored.is_some_and(|restored| session.opened <= restored);
            if session.given_up.is_none() && !restored {
                waited(case, *id, session)?;
            }
        }
        Ok(())
    }
}

/// A session that its agent did not give up ends T after D, and T after the receipt that the lease can count from.
fn waited(case: &Case<'_>, id: SessionId, session: &Session) -> Verdict {
    let now = case.server_now();
    let late = |since: Instant| now.waited(since.plus(session.wait));
    let since = |name: &str, since: Instant| {
        format!("session {id} ends at {}, {:?} after {name} at {}; T is {:?}", reading(now), now.since(since), reading(since), session.wait)
    };
    if let Some(receipt) = session.echoed.filter(|receipt| !late(*receipt)) {
        return violated("I4", "ended-before-the-lease", since("the receipt of what it was answered last", receipt));
    }
    match session.failed.filter(|failed| !late(*failed)) {
        Some(failed) if !case.sight.server_config.last_heard => violated("I4", "ended-before-T", since("D", failed)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, T, fired};
    use super::*;
    use cistern_wire::{Ack, Alive, EndReason, EndSession, Fate, Generation, Granted, KeepAlive, LockClass, Nack, NackReason, ObjectId};

    const A: u64 = 71;
    const B: u64 = 72;
    const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };

    fn alive(echo: u64) -> Message<'static> {
        Alive { serial: 1, echo }.into()
    }

    fn granted(nonce: u64, echo: u64, generation: u64) -> Message<'static> {
        let granted = Granted { lock: LOCK, mode: Mode::Exclusive, generation: Generation(generation), run: 10 };
        Ack { nonce, echo, reply: Reply::Granted(granted) }.into()
    }

    fn keep_alive() -> Message<'static> {
        KeepAlive { serial: 1, clock_us: 0 }.into()
    }

    /// Two sessions; A holds the lock by an answer to packet 5, received at 100 ms.
    fn held() -> (Bench, ServerRule) {
        let (mut bench, mut judge) = (Bench::new(2), ServerRule::default());
        bench.open(&mut judge, 0, A).unwrap();
        bench.open(&mut judge, 1, B).unwrap();
        bench.pass(100);
        bench.server_gets(&mut judge, A, 5, &[keep_alive()]).unwrap();
        bench.server_gets(&mut judge, B, 5, &[keep_alive()]).unwrap();
        bench.server_sends(&mut judge, A, 2, &[granted(1, 5, 100)]).unwrap();
        (bench, judge)
    }

    fn fail(bench: &mut Bench, session: u64) {
        bench.facts.sessions.standing.insert(SessionId(session), "timing out");
        let now = bench.server_clock.at(bench.now);
        bench.facts.sessions.note_failures(now);
    }

    #[test]
    fn grant_after_a_release_is_clean() {
        use cistern_wire::{Keep, List, Release, ReleaseItem};
        let (mut bench, mut judge) = held();
        let items = [ReleaseItem { lock: LOCK, generation: Generation(100), keep: Keep::Nothing }];
        bench.server_gets(&mut judge, A, 6, &[Release { serial: 1, items: List::of(&items) }.into()]).unwrap();
        bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]).unwrap();
        bench.server_sends(&mut judge, A, 3, &[granted(1, 6, 100)]).expect("a late copy of what was released is no grant");
    }

    #[test]
    fn release_of_another_generation_frees_nothing() {
        use cistern_wire::{Keep, List, Release, ReleaseItem};
        let (mut bench, mut judge) = held();
        let items = [ReleaseItem { lock: LOCK, generation: Generation(99), keep: Keep::Nothing }];
        bench.server_gets(&mut judge, A, 6, &[Release { serial: 1, items: List::of(&items) }.into()]).unwrap();
        fired(bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]), "I4", "granted-while-held");
    }

    #[test]
    fn grant_while_held_is_caught() {
        let (mut bench, mut judge) = held();
        fired(bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]), "I4", "granted-while-held");
    }

    #[test]
    fn steal_after_t_is_clean() {
        let (mut bench, mut judge) = held();
        fail(&mut bench, A);
        bench.pass(T);
        bench.record(&mut judge, A, false).unwrap();
        bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]).unwrap();
    }

    #[test]
    fn steal_without_delta_is_caught() {
        let (mut bench, mut judge) = held();
        fail(&mut bench, A);
        bench.pass(T - 10);
        fired(bench.record(&mut judge, A, false), "I4", "ended-before-the-lease");
    }

    #[test]
    fn timer_from_before_the_failure_is_caught() {
        let (mut bench, mut judge) = held();
        bench.pass(600);
        fail(&mut bench, A);
        bench.pass(T - 600);
        fired(bench.record(&mut judge, A, false), "I4", "ended-before-T");
    }

    #[test]
    fn answer_from_after_the_failure_counts_as_a_receipt() {
        let (mut bench, mut judge) = held();
        bench.pass(300);
        bench.server_gets(&mut judge, A, 6, &[keep_alive()]).unwrap();
        bench.server_sends(&mut judge, A, 3, &[alive(6)]).unwrap();
        bench.pass(T - 300);
        fired(bench.record(&mut judge, A, false), "I4", "ended-before-the-lease");
    }

    #[test]
    fn surrender_needs_no_wait() {
        let (mut bench, mut judge) = held();
        bench.server_gets(&mut judge, A, 6, &[EndSession { serial: 1, reason: EndReason::Surrender }.into()]).unwrap();
        bench.record(&mut judge, A, false).unwrap();
        bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]).unwrap();
    }

    #[test]
    fn grant_before_the_end_is_durable_is_caught() {
        use cistern_server::store::Key;
        let (mut bench, mut judge) = held();
        fail(&mut bench, A);
        bench.pass(T);
        bench.write(&mut judge, vec![(Key::Session(SessionId(A)), None)]).unwrap();
        fired(bench.server_sends(&mut judge, B, 2, &[granted(1, 5, 200)]), "I10", "granted-before-the-end-is-durable");
    }

    #[test]
    fn end_that_is_told_before_it_is_durable_is_caught() {
        use cistern_server::store::Key;
        use cistern_wire::Ended;
        let nack = |reason| Message::from(Nack { nonce: 0, echo: 5, reason, fate: Fate::Unknown });
        let ended = Message::from(Ended { serial: 1, echo: 6 });
        for told in [nack(NackReason::Ended), ended] {
            let (mut bench, mut judge) = held();
            bench.record(&mut judge, A, true).unwrap();
            bench.server_gets(&mut judge, A, 6, &[EndSession { serial: 1, reason: EndReason::Close }.into()]).unwrap();
            bench.write(&mut judge, vec![(Key::Session(SessionId(A)), None)]).unwrap();
            bench.server_sends(&mut judge, A, 3, &[nack(NackReason::TimingOut)]).unwrap();
            fired(bench.server_sends(&mut judge, A, 4, &[told]), "I10", "end-told-before-it-is-durable");
            bench.record(&mut judge, A, false).unwrap();
            bench.server_sends(&mut judge, A, 5, &[told]).unwrap();
        }
    }

    #[test]
    fn renewal_of_a_failed_session_is_caught() {
        let (mut bench, mut judge) = held();
        fail(&mut bench, A);
        fired(bench.server_sends(&mut judge, A, 3, &[alive(5)]), "I5", "renews-while-failed");
    }

    #[test]
    fn grant_from_the_queue_in_a_failed_session_is_caught() {
        use cistern_wire::Grant;
        let (mut bench, mut judge) = held();
        fail(&mut bench, B);
        let lock = LockId { object: ObjectId(8), class: LockClass::Advisory };
        let grant = Grant { seq: 1, nonce: 1, lock, mode: Mode::Shared, generation: Generation(500), run: 1 };
        fired(bench.server_sends(&mut judge, B, 2, &[grant.into()]), "I5", "granted-while-failed");
    }

    #[test]
    fn renewal_after_a_nack_is_caught_though_the_standing_is_good_again() {
        let (mut bench, mut judge) = held();
        let nack = Nack { nonce: 0, echo: 5, reason: NackReason::TimingOut, fate: Fate::Unknown };
        bench.server_sends(&mut judge, A, 3, &[nack.into()]).unwrap();
        fired(bench.server_sends(&mut judge, A, 4, &[alive(5)]), "I5", "renews-after-nack");
    }

    #[test]
    fn echo_of_a_packet_that_never_arrived_is_caught() {
        let (mut bench, mut judge) = held();
        fired(bench.server_sends(&mut judge, A, 3, &[alive(6)]), "I4", "echo-of-nothing");
    }

    #[test]
    fn mutation_under_the_cache_lock_of_another_is_caught() {
        use cistern_wire::{Attr, CacheGrant, Changed, Effect, List, Stated, Want};
        let (mut bench, mut judge) = held();
        let attr = |version| Attr { object: ObjectId(9), version, ..Attr::FILE };
        let grant = CacheGrant { mode: Want::Shared, generation: Generation(300) };
        let read = Ack { nonce: 2, echo: 5, reply: Reply::Stated(Stated { attr: attr(4), grant }) };
        bench.server_sends(&mut judge, A, 3, &[read.into()]).unwrap();
        let effects = |version| [Effect { before: version - 1, attr: attr(version), grant: CacheGrant::NONE }];
        let old = effects(4);
        let changed = |effects| Ack { nonce: 2, echo: 5, reply: Reply::Changed(Changed { effects }) };
        bench.server_sends(&mut judge, B, 2, &[changed(List::of(&old)).into()]).expect("it was executed before the lock was granted");
        let new = effects(5);
        fired(bench.server_sends(&mut judge, B, 3, &[changed(List::of(&new)).into()]), "I4", "mutation-under-a-lock");
    }
}
