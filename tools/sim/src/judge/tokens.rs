//! I12, fencing: tokens only grow, over all objects, holders, restarts and restores.
//!
//! Decides: the runs of tokens granted never overlap, none is granted beyond what the disk has reserved, and after a start of the
//! server all are larger than before it (a reclaimed lock keeps its own); a token shown to a user is larger than every token shown
//! before to anybody whose hold does not go with it; so a resource that refuses smaller tokens after larger ones never refuses a
//! holder whose lock is certain; writes that the store accepts under a guard come in the order of the guards; and none is accepted under
//! the token of a user who had given the lock back before it was asked for.
//! Invariant: what is granted and what the store accepts needs no lease, so it is judged in every run; what users are shown, and what a
//! resource refuses, only where the lease holds.
//! Leaves to others: exclusion in time (`exclusion`).

use super::case::{Case, Granting, Verdict, grants_of, violated};
use super::durable::number;
use super::{Facts, Family};
use crate::observe::{Node, Seen, UserOp};
use crate::users::written_by;
use cistern_agent::api::{Command, Guard, HolderId, Locked, Output};
use cistern_server::store::{Counter, Key};
use cistern_wire::{Mode, ObjectId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A start of an agent.
type Process = (usize, u64);

/// What users of one object were shown.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// Largest tokens shown for holds of each mode.
    shared: u64,
    exclusive: u64,
    /// The largest token that a resource outside has accepted.
    accepted: u64,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct TokensGrow {
    /// Runs granted, by their first token: past their last one, and to whom.
    runs: BTreeMap<u64, (u64, SessionId, cistern_wire::LockId)>,
    /// The last token granted before the server started.
    before: u64,
    shown: BTreeMap<ObjectId, Shown>,
    /// Guarded writes that succeeded, by version: the guard, and which start of which agent wrote.
    guarded: BTreeMap<ObjectId, BTreeMap<u64, (u64, Process)>>,
    /// The token of each user who has a lock.
    held: BTreeMap<(Process, HolderId), u64>,
    /// Tokens of users who have given the lock back, and what was asked for under them since.
    former: BTreeSet<u64>,
    late: BTreeSet<UserOp>,
}

impl Family for TokensGrow {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        self.asked_late(case, facts)?;
        match case.seen {
            Seen::Started { node: Node::Server, .. } => self.before = self.last(),
            Seen::Restored => self.guarded.clear(),
            Seen::Ended { agent, result: Some(Ok(Output::Locked(locked))), .. } if !case.sight.fence_only => self.shows(*agent, locked)?,
            Seen::Ended { agent, op, result: Some(Ok(Output::Attr(attr))) } => {
                if let Some((_, guard)) = facts.asked.get(op).and_then(|asked| guarded_write(&asked.command)) {
                    let process = (*agent, facts.sessions.agents[*agent].start);
                    self.wrote(guard.object, attr.version, (guard.token, process))?;
                }
            }
            Seen::Submitted { agent, command, .. } => {
                if let Some((data, guard)) = guarded_write(command) {
                    let token = written_by(data).map_or(0, |written| written.1);
                    // Who does not know that it has given the lock back uses nothing but the store.
                    if token > 0 {
                        self.used(case, facts, *agent, guard.object, token)?;
                    }
                }
            }
            _ => {}
        }
        let Some(packet) = case.sent_by_server() else { return Ok(()) };
        for grant in packet.messages.iter().flat_map(grants_of) {
            if facts.locks.is_news(packet.session(), &grant) {
                self.granted(case, packet.session(), &grant)?;
            }
        }
        Ok(())
    }
}

impl TokensGrow {
    fn last(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(_, (end, ..))| end - 1)
    }

    fn granted(&mut self, case: &Case<'_>, session: SessionId, grant: &Granting) -> Verdict {
        let (first, end) = (grant.generation.0, grant.generation.0 + u64::from(grant.run.max(1)));
        let tell = |what: String| format!("{} of {} to session {session}: {what}", first, grant.lock);
        if let Some((end_before, whose, lock)) = self.runs.get(&first).copied()
            && (whose, lock) == (session, grant.lock)
            && end_before == end
        {
            // Said again after it was disowned, or kept over a reclaim.
            return Ok(());
        }
        if let Some((old, (old_end, whose, lock))) = self.runs.range(..end).next_back().filter(|(_, (old_end, ..))| *old_end > first) {
            return violated(
                "I12",
                "token-twice",
                tell(format!("tokens {old} to {} were granted to session {whose} for {lock}", old_end - 1)),
            );
        }
        if first <= self.before {
            return violated("I12", "token-went-back", tell(format!("token {} was granted before the server started", self.before)));
        }
        let reserved = case.sight.disk.durable(&Key::Counter(Counter::Tokens)).and_then(|bytes| number(bytes));
        if reserved.is_none_or(|reserved| reserved < end - 1) {
            return violated("I12", "not-reserved", tell(format!("the run ends at {}, and the disk has reserved {reserved:?}", end - 1)));
        }
        self.runs.insert(first, (end, session, grant.lock));
        Ok(())
    }

    fn shows(&mut self, agent: usize, locked: &Locked) -> Verdict {
        let shown = self.shown.entry(locked.object).or_default();
        let exclusive = locked.mode == Mode::Exclusive;
        let before = if exclusive { shown.shared.max(shown.exclusive) } else { shown.exclusive };
        if locked.token <= before {
            let what = format!("agent {agent} shows token {} of {} ({}) after {before}", locked.token, locked.object, locked.mode);
            return violated("I12", "token-not-larger", what);
        }
        if !exclusive && locked.token == shown.shared {
            let what = format!("agent {agent} shows token {} of {} a second time", locked.token, locked.object);
            return violated("I12", "token-shown-twice", what);
        }
        let newest = if exclusive { &mut shown.exclusive } else { &mut shown.shared };
        *newest = (*newest).max(locked.token);
        Ok(())
    }

    /// A holder uses a resource outside, which refuses smaller tokens than it has seen.
    fn used(&mut self, case: &Case<'_>, facts: &Facts, agent: usize, object: ObjectId, token: u64) -> Verdict {
        let shown = self.shown.entry(object).or_default();
        if token >= shown.accepted {
            shown.accepted = token;
            return Ok(());
        }
        let until = facts.sessions.agents[agent].view.valid_until;
        let certain = until.is_some_and(|until| !case.agent_now(agent).lease_over(until));
        if certain && !case.sight.fence_only {
            let what =
                format!("agent {agent} uses {object} with token {token} under a certain lease; token {} was used before", shown.accepted);
            return violated("I12", "holder-refused", what);
        }
        Ok(())
    }

    /// Nothing is done under the token of a user who had given the lock back when it was asked for, whoever of its agent holds it now.
    fn asked_late(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let process = |agent: usize| (agent, facts.sessions.agents[agent].start);
        match case.seen {
            Seen::Ended { agent, result: Some(Ok(Output::Locked(locked))), .. } => {
                self.held.insert((process(*agent), locked.holder), locked.token);
            }
            Seen::Submitted { agent, command: Command::Unlock { holder }, .. } => {
                self.former.extend(self.held.remove(&(process(*agent), *holder)));
            }
            Seen::Submitted { op, command, .. } if command.guard().is_some_and(|guard| self.former.contains(&guard.token)) => {
                self.late.insert(*op);
            }
            Seen::Ended { agent, op, result } if self.late.remove(op) && matches!(result, Some(Ok(_))) => {
                let what = format!("agent {agent} did what user {op:?} asked for under the token of a lock that it had given back");
                return violated("I12", "guard-of-a-former-user", what);
            }
            _ => {}
        }
        Ok(())
    }

    /// Guarded writes are in the order of their guards. Of two users of one agent the server takes the token of either, and the agent that
    /// of who holds the lock when the write is asked for; a write that its user did not wait for may be done after that.
    fn wrote(&mut self, object: ObjectId, version: u64, (token, process): (u64, Process)) -> Verdict {
        let writes = self.guarded.entry(object).or_default();
        let older = writes.range(..version).next_back().filter(|(_, (guard, by))| *guard > token && *by != process);
        let newer = writes.range(version + 1..).next().filter(|(_, (guard, by))| *guard < token && *by != process);
        if let Some((other, (guard, _))) = older.or(newer) {
            let what = format!("version {version} of {object} was written under guard {token}, version {other} under guard {guard}");
            return violated("I12", "stale-guard-accepted", what);
        }
        writes.insert(version, (token, process));
        Ok(())
    }
}

/// What is written under a guard, and under which.
fn guarded_write(command: &Command) -> Option<(&[u8], Guard)> {
    match command.unconditional() {
        Command::Write { data, .. } => Some((&data[..], command.guard()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, T0, attr, counter_record, fired};
    use super::*;
    use crate::observe::UserOp;
    use crate::users::content;
    use cistern_agent::api::Target;
    use cistern_wire::{Ack, Generation, Granted, LockClass, LockId, Message, Reply};

    const UNTIL: u64 = T0 + 1_000;

    fn granted(object: u64, generation: u64) -> Message<'static> {
        let lock = LockId { object: ObjectId(object), class: LockClass::Advisory };
        let granted = Granted { lock, mode: Mode::Shared, generation: Generation(generation), run: 10 };
        Ack { nonce: 1, echo: 5, reply: Reply::Granted(granted) }.into()
    }

    fn reserved(up_to: u64) -> (Bench, TokensGrow) {
        let bench = Bench::new(2);
        let mut bench = bench;
        bench.put(Key::Counter(Counter::Tokens), counter_record(up_to));
        (bench, TokensGrow::default())
    }

    #[test]
    fn runs_one_after_the_other_are_clean() {
        let (mut bench, mut judge) = reserved(1_000);
        for generation in [10, 20, 40, 30] {
            bench.server_sends(&mut judge, generation, 1, &[granted(generation, generation)]).unwrap();
        }
        bench.server_sends(&mut judge, 10, 2, &[granted(10, 10)]).expect("said again");
    }

    #[test]
    fn overlapping_runs_are_caught() {
        let (mut bench, mut judge) = reserved(1_000);
        bench.server_sends(&mut judge, 1, 1, &[granted(7, 10)]).unwrap();
        fired(bench.server_sends(&mut judge, 2, 1, &[granted(8, 19)]), "I12", "token-twice");
        fired(bench.server_sends(&mut judge, 3, 1, &[granted(9, 1)]), "I12", "token-twice");
    }

    #[test]
    fn run_beyond_what_is_reserved_is_caught() {
        let (mut bench, mut judge) = reserved(18);
        fired(bench.server_sends(&mut judge, 1, 1, &[granted(7, 10)]), "I12", "not-reserved");
    }

    #[test]
    fn smaller_token_after_a_start_is_caught() {
        let (mut bench, mut judge) = reserved(1_000);
        bench.server_sends(&mut judge, 1, 1, &[granted(7, 500)]).unwrap();
        bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }).unwrap();
        fired(bench.server_sends(&mut judge, 2, 1, &[granted(8, 400)]), "I12", "token-went-back");
    }

    #[test]
    fn token_shown_must_be_larger_than_those_of_conflicting_holds() {
        let (mut bench, mut judge) = reserved(1_000);
        bench.locked(&mut judge, 0, 1, Mode::Shared, 20, UNTIL).unwrap();
        bench.locked(&mut judge, 1, 1, Mode::Shared, 11, UNTIL).expect("shared holds go together");
        bench.locked(&mut judge, 0, 2, Mode::Exclusive, 21, UNTIL).unwrap();
        fired(bench.locked(&mut judge, 1, 2, Mode::Shared, 21, UNTIL), "I12", "token-not-larger");
        fired(bench.locked(&mut judge, 1, 3, Mode::Exclusive, 20, UNTIL), "I12", "token-not-larger");
    }

    fn guarded(op: u64, token: u64) -> Command {
        let guard = Guard { object: ObjectId(7), token };
        let data = content(UserOp(op), token, false);
        Command::Write { target: Target::Object(ObjectId(7)), offset: 0, data, truncate: true }.guarded(guard)
    }

    #[test]
    fn resource_that_would_refuse_a_certain_holder_is_caught() {
        let (mut bench, mut judge) = reserved(1_000);
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(500));
        bench.submit(&mut judge, 1, &guarded(1, 30)).unwrap();
        fired(bench.submit(&mut judge, 0, &guarded(2, 20)).map(|_| ()), "I12", "holder-refused");
        bench.pass(600);
        bench.submit(&mut judge, 0, &guarded(3, 20)).expect("a holder whose lease is over may be refused");
    }

    #[test]
    fn write_under_the_guard_of_a_user_who_gave_the_lock_back_is_caught() {
        let (mut bench, mut judge) = reserved(1_000);
        bench.locked(&mut judge, 0, 1, Mode::Shared, 20, UNTIL).unwrap();
        let in_time = bench.submit(&mut judge, 0, &guarded(1, 20)).unwrap();
        bench.submit(&mut judge, 0, &Command::Unlock { holder: HolderId(1) }).unwrap();
        bench.end(&mut judge, 0, in_time, Ok(Output::Attr(attr(7, 3)))).expect("it was asked for before");
        let late = bench.submit(&mut judge, 0, &guarded(2, 20)).unwrap();
        fired(bench.end(&mut judge, 0, late, Ok(Output::Attr(attr(7, 4)))), "I12", "guard-of-a-former-user");
    }

    #[test]
    fn write_under_an_older_guard_after_one_under_a_newer_is_caught() {
        let (mut bench, mut judge) = reserved(1_000);
        let mut write = |agent: usize, token: u64, version: u64| {
            let op = bench.submit(&mut judge, agent, &guarded(version, token)).unwrap();
            bench.end(&mut judge, agent, op, Ok(Output::Attr(attr(7, version))))
        };
        write(1, 20, 3).unwrap();
        write(0, 30, 5).unwrap();
        fired(write(1, 20, 6), "I12", "stale-guard-accepted");
        write(1, 20, 4).expect("it was done before, and told late");
    }
}
