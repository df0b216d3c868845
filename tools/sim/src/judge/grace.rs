//! I9, grace: after a start the server waits for those who may still hold locks, and gives back only what was theirs.
//!
//! Decides: while a session that was recorded at the start is not accounted for, nothing new is granted and only mutations under
//! reclaimed exclusive locks are executed (section 11.7); such a session ends of the server's own accord only T after the start; a
//! reclaim is accepted only from a session that was recorded at this very start and is not over, for a lock that it held under that
//! generation and mode, and never after its agent said that it was through.
//! Invariant: what a session held is known from the wire, not from what its agent claims.
//! Leaves to others: conflicts of what is reclaimed (`server_rule`), what agents do meanwhile (`agent_lease`).

use super::case::{Case, Verdict, cache_lock, grants_of, reading, violated};
use super::sessions::{GivenUp, Record};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_wire::{LockId, Message, Mode, Reply, SessionId, Status};
use std::collections::BTreeSet;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Grace {
    /// Sessions recorded at this start whose end was judged.
    ended: BTreeSet<SessionId>,
    /// Sessions of which everything was reclaimed, or was not and is over.
    complete: BTreeSet<SessionId>,
    /// Requests by which agents said so.
    completing: std::collections::BTreeMap<(SessionId, u64), SessionId>,
    /// Agents went back to an older copy of the store: none of them may reclaim.
    restored: bool,
    /// RECLAIMs that were answered, by session and nonce: what their duplicates are told was judged then.
    answered: BTreeSet<(SessionId, u64)>,
    /// Locks given back: what was changed under one before may be answered after.
    given_back: BTreeSet<(SessionId, LockId)>,
}

impl Family for Grace {
    fn name(&self) -> &'static str {
        "grace"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Started { node: Node::Server, .. } => self.ended.clear(),
            Seen::Restored => self.restored = true,
            Seen::Durable { .. } => {
                self.ends(case, facts)?;
                if self.restored && !facts.sessions.in_grace() {
                    self.restored = false;
                }
            }
            _ => {}
        }
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                if let Message::Release(release) = message {
                    self.given_back.extend(release.items.iter().map(|item| (packet.session(), item.lock)));
                }
                if let Message::ReclaimComplete(complete) = message {
                    self.completing.insert((packet.session(), complete.ask.nonce), complete.from);
                }
            }
        }
        let Some(packet) = case.sent_by_server() else { return Ok(()) };
        for message in &packet.messages {
            let session = packet.session();
            if facts.sessions.in_grace() {
                grants(facts, session, message)?;
                mutations(facts, &self.given_back, session, message)?;
            }
            if let Message::Ack(ack) = message {
                match ack.reply {
                    Reply::Reclaimed(reclaimed) => self.reclaimed(facts, session, ack.nonce, &reclaimed)?,
                    Reply::Done(_) => self.complete.extend(self.completing.get(&(session, ack.nonce))),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Nothing new is granted in grace, but by mutations that may be executed.
fn grants(facts: &Facts, session: SessionId, message: &Message<'_>) -> Verdict {
    let fresh = grants_of(message).into_iter().find(|grant| {
        let held = facts.locks.hold(session, grant.lock);
        !grant.by_mutation && facts.locks.is_news(session, grant) && held.is_none_or(|hold| !hold.reclaimed)
    });
    match fresh {
        Some(grant) => {
            let what = format!("{} ({}) is granted to session {session} in grace", grant.lock, grant.mode);
            violated("I9", "granted-in-grace", what)
        }
        None => Ok(()),
    }
}

/// Only what is under an exclusive lock that the requester has reclaimed may change in grace.
fn mutations(facts: &Facts, given_back: &BTreeSet<(SessionId, LockId)>, session: SessionId, message: &Message<'_>) -> Verdict {
    let Message::Ack(ack) = message else { return Ok(()) };
    let Reply::Changed(changed) = ack.reply else { return Ok(()) };
    for effect in changed.effects.iter().filter(|effect| effect.before != effect.attr.version && effect.before != 0) {
        let lock = cache_lock(effect.attr.object);
        if given_back.contains(&(session, lock)) {
            continue;
        }
        let hold = facts.locks.hold(session, lock);
        if hold.is_none_or(|hold| hold.mode != Mode::Exclusive) {
            let what = format!("{} got version {} by session {session} in grace", effect.attr.object, effect.attr.version);
            return violated("I9", "changed-in-grace", what);
        }
    }
    Ok(())
}

impl Grace {
    /// A recorded session ends of the server's own accord only when T has passed since the start.
    fn ends(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let Some(started) = facts.sessions.server_started else { return Ok(()) };
        for id in &facts.sessions.recorded {
            let Some(session) = facts.sessions.get(*id).filter(|session| session.record == Record::Ended) else { continue };
            if !self.ended.insert(*id) {
                continue;
            }
            let until = started.plus(session.wait);
            let now = case.server_now();
            let restored = facts.truth.restored.is_some_and(|restored| session.opened <= restored);
            if session.given_up.is_none() && !restored && !now.waited(until) {
                let what =
                    format!("session {id} ends at {}; the server started at {}, T is {:?}", reading(now), reading(started), session.wait);
                return violated("I9", "grace-too-short", what);
            }
        }
        Ok(())
    }

    fn reclaimed(&mut self, facts: &Facts, session: SessionId, nonce: u64, reclaimed: &cistern_wire::Reclaimed<'_>) -> Verdict {
        let Some(asked) = facts.locks.reclaim(session, nonce) else {
            return violated("I9", "reclaim-of-nothing", format!("session {session} is answered a reclaim that it never sent"));
        };
        // The same answer again, perhaps after the agent was asked for a lock in it and has given that back.
        if !self.answered.insert((session, nonce)) {
            return Ok(());
        }
        for (asked, told) in asked.iter().zip(reclaimed.items.iter()).filter(|(_, told)| told.status == Status::OK) {
            let (from, lock) = (asked.from, told.lock);
            let tell = |why: &str| format!("{lock} goes from session {from} to session {session}: {why}");
            if facts.locks.hold(session, lock).is_some_and(|hold| hold.reclaimed) {
                // The same answer again.
                continue;
            }
            let known = facts.sessions.get(from);
            if self.restored {
                return violated("I9", "reclaimed-after-restore", tell("the store is an older copy"));
            }
            if !facts.sessions.recorded.contains(&from) || known.is_none_or(|known| known.record == Record::Ended) {
                return violated("I9", "reclaimed-from-the-dead", tell("that one is not recorded as open at this start"));
            }
            if self.complete.contains(&from) {
                return violated("I9", "reclaimed-after-complete", tell("its agent had said that it was through"));
            }
            if known.and_then(|known| known.agent) != facts.sessions.get(session).and_then(|known| known.agent) {
                return violated("I9", "reclaimed-from-another", tell("they belong to different agents"));
            }
            if matches!(known.and_then(|known| known.given_up), Some(GivenUp::Surrendered | GivenUp::Closed)) {
                return violated("I9", "reclaimed-after-surrender", tell("that one was given up"));
            }
            // A newer grant of the same lock may never have reached the agent.
            let held = facts.locks.hold(from, lock).filter(|held| held.generation >= asked.item.generation);
            if held.is_none_or(|held| held.generation == asked.item.generation && held.mode != asked.item.mode) {
                let what = format!(
                    "{}, asked for as {} of generation {}; it held {held:?}",
                    tell("not as held"),
                    asked.item.mode,
                    asked.item.generation
                );
                return violated("I9", "reclaimed-what-was-not-held", what);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, T, fired};
    use super::*;
    use cistern_server::store::Key;
    use cistern_wire::{
        Ack, Ask, Generation, Granted, Keep, KeepAlive, List, LockClass, LockId, ObjectId, Reclaim, ReclaimComplete, ReclaimItem,
        Reclaimed, ReclaimedItem, Release, ReleaseItem,
    };

    const OLD: u64 = 71;
    const NEW: u64 = 72;
    const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Advisory };
    const ASK: Ask = Ask { nonce: 3, back: 0, limit: 0 };

    fn granted(generation: u64) -> Message<'static> {
        let granted = Granted { lock: LOCK, mode: Mode::Exclusive, generation: Generation(generation), run: 10 };
        Ack { nonce: 1, echo: 5, reply: Reply::Granted(granted) }.into()
    }

    /// A session holds the lock; the server starts anew, and the agent has a new session.
    fn restarted() -> (Bench, Grace) {
        let (mut bench, mut judge) = (Bench::new(2), Grace::default());
        bench.open(&mut judge, 0, OLD).unwrap();
        bench.server_gets(&mut judge, OLD, 5, &[KeepAlive { serial: 1, clock_us: 0 }.into()]).unwrap();
        bench.server_sends(&mut judge, OLD, 2, &[granted(100)]).unwrap();
        bench.pass(50);
        bench.show(&mut judge, &Seen::Crashed { node: Node::Server }).unwrap();
        bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }).unwrap();
        bench.open(&mut judge, 0, NEW).unwrap();
        (bench, judge)
    }

    fn reclaim(bench: &mut Bench, judge: &mut Grace, session: u64, generation: u64) -> Verdict {
        let items = [ReclaimItem {
            lock: LOCK,
            mode: Mode::Exclusive,
            generation: Generation(generation),
            first: Generation(generation),
            run: 10,
            version: 0,
        }];
        let ask: Message<'_> = Reclaim { ask: ASK, from: SessionId(OLD), items: List::of(&items) }.into();
        bench.server_gets(judge, session, 6, &[ask])?;
        let items = [ReclaimedItem { lock: LOCK, generation: Generation(generation), status: Status::OK, version: 1 }];
        let reply = Reply::Reclaimed(Reclaimed { items: List::of(&items) });
        bench.server_sends(judge, session, 3, &[Ack { nonce: 3, echo: 6, reply }.into()])
    }

    #[test]
    fn reclaim_of_what_was_held_is_clean() {
        let (mut bench, mut judge) = restarted();
        reclaim(&mut bench, &mut judge, NEW, 100).unwrap();
        reclaim(&mut bench, &mut judge, NEW, 100).expect("the same answer again");
    }

    #[test]
    fn repeated_answer_gives_nothing_back_that_was_released_since() {
        let (mut bench, mut judge) = restarted();
        reclaim(&mut bench, &mut judge, NEW, 100).unwrap();
        assert!(bench.facts.locks.hold(SessionId(NEW), LOCK).is_some());
        let items = [ReleaseItem { lock: LOCK, generation: Generation(100), keep: Keep::Nothing }];
        bench.server_gets(&mut judge, NEW, 7, &[Release { serial: 1, items: List::of(&items) }.into()]).unwrap();
        reclaim(&mut bench, &mut judge, NEW, 100).unwrap();
        assert_eq!(bench.facts.locks.hold(SessionId(NEW), LOCK), None);
    }

    #[test]
    fn reclaim_of_another_generation_is_caught() {
        let (mut bench, mut judge) = restarted();
        fired(reclaim(&mut bench, &mut judge, NEW, 101), "I9", "reclaimed-what-was-not-held");
    }

    #[test]
    fn reclaim_from_a_session_that_ended_is_caught() {
        let (mut bench, mut judge) = restarted();
        bench.pass(T);
        bench.record(&mut judge, OLD, false).unwrap();
        fired(reclaim(&mut bench, &mut judge, NEW, 100), "I9", "reclaimed-from-the-dead");
    }

    #[test]
    fn reclaim_after_complete_is_caught() {
        let (mut bench, mut judge) = restarted();
        let ask = Ask { nonce: 2, ..ASK };
        bench.server_gets(&mut judge, NEW, 5, &[ReclaimComplete { ask, from: SessionId(OLD) }.into()]).unwrap();
        let done = Ack { nonce: 2, echo: 5, reply: Reply::Done(cistern_wire::Done {}) };
        bench.server_sends(&mut judge, NEW, 2, &[done.into()]).unwrap();
        fired(reclaim(&mut bench, &mut judge, NEW, 100), "I9", "reclaimed-after-complete");
    }

    #[test]
    fn reclaim_by_another_agent_is_caught() {
        let (mut bench, mut judge) = restarted();
        bench.open(&mut judge, 1, 73).unwrap();
        fired(reclaim(&mut bench, &mut judge, 73, 100), "I9", "reclaimed-from-another");
    }

    #[test]
    fn grant_in_grace_is_caught_and_after_it_clean() {
        let (mut bench, mut judge) = restarted();
        fired(bench.server_sends(&mut judge, NEW, 3, &[granted(200)]), "I9", "granted-in-grace");
        bench.pass(T);
        bench.record(&mut judge, OLD, false).unwrap();
        bench.server_gets(&mut judge, NEW, 6, &[KeepAlive { serial: 1, clock_us: 0 }.into()]).unwrap();
        bench.server_sends(&mut judge, NEW, 4, &[granted(201)]).unwrap();
    }

    #[test]
    fn grace_shorter_than_t_is_caught() {
        let (mut bench, mut judge) = restarted();
        bench.pass(T - 1);
        let end = vec![(Key::Session(SessionId(OLD)), None)];
        fired(bench.persist(&mut judge, end), "I9", "grace-too-short");
    }

    #[test]
    fn mutation_in_grace_is_caught() {
        use super::super::bench::attr;
        use cistern_wire::{CacheGrant, Changed, Effect};
        let (mut bench, mut judge) = restarted();
        let effects = [Effect { before: 3, attr: attr(7, 4), grant: CacheGrant::NONE }];
        let reply = Reply::Changed(Changed { effects: List::of(&effects) });
        fired(bench.server_sends(&mut judge, NEW, 3, &[Ack { nonce: 1, echo: 5, reply }.into()]), "I9", "changed-in-grace");
    }
}
