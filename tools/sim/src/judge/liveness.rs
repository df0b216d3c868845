//! I15, I16 and I19's second half: what must happen, not only what must not.
//!
//! Decides: a keep-alive that a running server receives is answered at once, whatever its store does (I19); no session of an agent
//! that runs and is reachable fails, also where the server stood still (I16); and after the faults every agent has done one of everything by the end of the
//! run, and then goes quiet again (I15).
//! Invariant: the run's length is the bound (the world derives it from the settings), so what is missing at its end is too late.
//! Leaves to others: the bound (`world`), what users try (`users::healing`).

use super::case::{Case, Verdict, at, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen, Sight, True};
use crate::users::hot_path;
use cistern_agent::api::{Command, Output, Target};
use cistern_wire::{Message, Mode, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// For so long a running server may leave a keep-alive unanswered, besides what holds it up in a turn: it answers in the turn that
/// takes it in. Nanoseconds of true time.
const AT_ONCE: u64 = 50_000_000;
/// Datagrams that one agent and its server may exchange in a lease period once nothing is wanted any more.
const QUIET: u64 = 40;

/// What an agent has done since the faults were over.
#[derive(Clone, Debug, Default)]
struct Healed {
    pinged: bool,
    written: bool,
    read: bool,
    locked: BTreeSet<usize>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    hot: usize,
    healed: Vec<Healed>,
    /// When agents and their links had faults, by agent: from, until; `None`: the network is never sound.
    troubled: Option<Vec<Vec<(u64, u64)>>>,
    /// Until when the server could not know where an agent is, because its address had changed: for ever while it says nothing.
    lost: BTreeMap<usize, u64>,
    /// For how long a machine may be held up in the middle of a turn.
    held_up_ns: u64,
    /// Sessions whose failure was judged.
    failed: BTreeSet<SessionId>,
    /// Keep-alives that the server has and has not answered, with the time since which it could have, and where they came from.
    waiting: BTreeMap<(SessionId, u64), (True, SocketAddr)>,
    /// Addresses that the server challenges, and to which it has sent nothing else: what comes from there is not to be answered.
    challenged: BTreeSet<(SessionId, SocketAddr)>,
    /// Addresses at which sessions were told something else: only what comes from there is answered.
    told: BTreeSet<(SessionId, SocketAddr)>,
    /// When a user last wanted something, and datagrams in each lease period since.
    wanted: True,
    rates: Vec<u64>,
}

impl Liveness {
    pub(super) fn new(agents: usize, hot: usize, troubled: Option<Vec<Vec<(u64, u64)>>>, held_up_ns: u64) -> Self {
        Self { hot, healed: vec![Healed::default(); agents], troubled, held_up_ns, ..Self::default() }
    }
}

impl Family for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Moved { agent } => {
                self.lost.insert(*agent, u64::MAX);
            }
            Seen::Received { by: Node::Server, from, .. } => {
                let of = case.sight.agents.iter().position(|agent| agent.address == *from);
                if let Some(until) = of.and_then(|agent| self.lost.get_mut(&agent)) {
                    *until = case.sight.now.0.min(*until);
                }
            }
            _ => {}
        }
        self.keep_alives(case, facts)?;
        self.false_failures(case, facts)?;
        if case.sight.healed_at.is_some() {
            self.after_healing(case, facts);
        }
        Ok(())
    }

    fn end(&mut self, sight: &Sight<'_>, _facts: &Facts) -> Verdict {
        let Some(healed_at) = sight.healed_at else { return Ok(()) };
        for (agent, healed) in self.healed.iter().enumerate() {
            let missing = match healed {
                Healed { pinged: false, .. } => "no round trip".to_owned(),
                Healed { written: false, .. } => "no write".to_owned(),
                Healed { read: false, .. } => "no read".to_owned(),
                _ => match (0..self.hot).find(|hot| !healed.locked.contains(hot)) {
                    Some(hot) => format!("no exclusive lock on {}", hot_path(hot).escape_ascii()),
                    None => continue,
                },
            };
            let what = format!("agent {agent}: {missing} from {} to {}, although nothing is wrong any more", at(healed_at), at(sight.now));
            return violated("I15", "stuck", what);
        }
        let quiet = QUIET * self.healed.len() as u64;
        // The last whole period of rest; the one in which users ended does not count.
        match self.rates.len().checked_sub(2).filter(|place| *place > 0).map(|place| self.rates[place]) {
            Some(rate) if rate > quiet => {
                let what = format!("{rate} datagrams in a lease period in which nobody wants anything; {quiet} are enough for keep-alives");
                violated("I15", "not-quiet", what)
            }
            _ => Ok(()),
        }
    }
}

impl Liveness {
    fn keep_alives(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let now = case.sight.now;
        if let Some(packet) = case.received_by_server() {
            // A copy of a packet is no message.
            let is_first = |session: &super::sessions::Session| session.receipts.get(packet.header.packet) == Some(case.server_now());
            for message in &packet.messages {
                let known = facts
                    .sessions
                    .get(packet.session())
                    .filter(|session| is_first(session) && is_served(session) && session.opened >= facts.sessions.started_at);
                let Seen::Received { from, .. } = case.seen else { continue };
                let address = (packet.session(), *from);
                let proven = self.told.contains(&address) && !self.challenged.contains(&address);
                if let (Message::KeepAlive(keep_alive), Some(_), true) = (message, known, proven) {
                    self.waiting.entry((packet.session(), keep_alive.serial)).or_insert((now, *from));
                }
            }
        }
        if let (Some(packet), Seen::Sent { to, .. }) = (case.sent_by_server(), case.seen) {
            for message in &packet.messages {
                match message {
                    Message::PathChallenge(_) => {
                        self.challenged.insert((packet.session(), *to));
                        self.waiting.retain(|of, (_, from)| of.0 != packet.session() || from != to);
                        continue;
                    }
                    Message::Alive(alive) => {
                        self.waiting.remove(&(packet.session(), alive.serial));
                    }
                    Message::Nack(_) | Message::Ended(_) | Message::Hint(_) => self.waiting.retain(|of, _| of.0 != packet.session()),
                    _ => {}
                }
                self.challenged.remove(&(packet.session(), *to));
                self.told.insert((packet.session(), *to));
            }
        }
        match case.seen {
            Seen::Crashed { node: Node::Server } | Seen::Started { node: Node::Server, .. } => self.waiting.clear(),
            // What the server leaves out while it stands still or cannot go on is no fault of it.
            Seen::Settled if case.sight.server_paused || is_failed(case) => self.waiting.clear(),
            Seen::Settled if !self.waiting.is_empty() => {
                let facts = &facts.sessions;
                self.waiting.retain(|of, _| facts.get(of.0).is_some_and(is_served));
                if let Some(((session, serial), (since, _))) =
                    self.waiting.iter().find(|(_, (since, _))| now.0 - since.0 > AT_ONCE + self.held_up_ns)
                {
                    let what =
                        format!("keep-alive {serial} of session {session}, received at {}, is not answered at {}", at(*since), at(now));
                    return violated("I19", "keep-alive-unanswered", what);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// An agent that was running and reachable for long enough has not failed, whatever the server did meanwhile.
    fn false_failures(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let (Some(troubled), Seen::Settled) = (&self.troubled, case.seen) else { return Ok(()) };
        let config = case.sight.server_config;
        let longest = config.longest_lease();
        // What was on its way when the trouble ended, what was sent again, and what was given up before it began to count.
        let span = super::case::nanos(config.delivery_timeout * 3 + config.probe_period_for(longest) + longest);
        let now = case.sight.now.0;
        for (id, session) in facts.sessions.all.iter().filter(|(_, session)| session.failed.is_some() && session.given_up.is_none()) {
            let Some(agent) = session.agent.filter(|_| self.failed.insert(*id)) else { continue };
            let current =
                facts.sessions.agents[agent].view.session == Some(*id) && facts.sessions.agents[agent].start == session.agent_start;
            let lost = self.lost.get(&agent).is_some_and(|until| until.saturating_add(span) >= now);
            let sound = !lost && troubled[agent].iter().all(|(from, until)| until.saturating_add(span) < now || *from > now);
            if current && sound {
                let what = format!("session {id} failed at {}; its agent {agent} runs and was reachable all the time", at(case.sight.now));
                return violated("I16", "false-failure", what);
            }
        }
        Ok(())
    }

    fn after_healing(&mut self, case: &Case<'_>, facts: &Facts) {
        match case.seen {
            Seen::Submitted { .. } => self.wants(case),
            Seen::Ended { agent, op, result } => {
                self.wants(case);
                let Some(asked) = facts.asked.get(op).filter(|asked| Some(asked.at) >= case.sight.healed_at) else { return };
                let healed = &mut self.healed[*agent];
                match (&asked.command, result) {
                    (Command::Ping, Some(Ok(_))) => healed.pinged = true,
                    (Command::Write { .. }, Some(Ok(_))) => healed.written = true,
                    (Command::Read { .. }, Some(Ok(_))) => healed.read = true,
                    (Command::Lock { target: Target::Path(path), mode: Mode::Exclusive, .. }, Some(Ok(Output::Locked(_)))) => {
                        healed.locked.extend((0..self.hot).find(|hot| hot_path(*hot) == *path));
                    }
                    _ => {}
                }
            }
            Seen::Sent { .. } => {
                let period = super::case::nanos(case.sight.server_config.lease).max(1);
                let place = usize::try_from((case.sight.now.0 - self.wanted.0) / period).unwrap_or(0);
                if self.rates.len() <= place {
                    self.rates.resize(place + 1, 0);
                }
                self.rates[place] += 1;
            }
            _ => {}
        }
    }

    fn wants(&mut self, case: &Case<'_>) {
        self.wanted = case.sight.now;
        self.rates.clear();
    }
}

/// Whether a session is one whose keep-alives the server answers.
fn is_served(session: &super::sessions::Session) -> bool {
    session.failed.is_none() && session.given_up.is_none() && session.record != super::sessions::Record::Ended
}

/// Whether the server has stopped because its store failed (section 11.7), or has not begun.
fn is_failed(case: &Case<'_>) -> bool {
    case.sight.server.is_some_and(|server| !server.status(case.server_now()).serving)
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, attr, fired};
    use super::*;
    use cistern_agent::api::{HolderId, Locked, Wait};
    use cistern_link::Instant;
    use cistern_wire::{Alive, Generation, KeepAlive, ObjectId};
    use std::time::Duration;

    const S: u64 = 77;

    fn keep_alive() -> Message<'static> {
        KeepAlive { serial: 1, clock_us: 0 }.into()
    }

    #[test]
    fn keep_alive_must_be_answered_at_once() {
        for answered in [true, false] {
            let (mut bench, mut judge) = (Bench::new(1), Liveness::new(1, 1, None, 0));
            bench.open(&mut judge, 0, S).unwrap();
            bench.server_gets(&mut judge, S, 5, &[keep_alive()]).unwrap();
            if answered {
                bench.server_sends(&mut judge, S, 2, &[Alive { serial: 1, echo: 5 }.into()]).unwrap();
            }
            bench.pass(51);
            let verdict = bench.show(&mut judge, &Seen::Settled);
            if answered {
                verdict.unwrap();
            } else {
                fired(verdict, "I19", "keep-alive-unanswered");
            }
        }
    }

    #[test]
    fn failure_of_a_sound_agent_is_caught() {
        let second = 1_000_000_000;
        for (trouble, right) in [(Some(vec![]), false), (Some(vec![(0, second)]), true), (None, true)] {
            let (mut bench, mut judge) = (Bench::new(1), Liveness::new(1, 1, trouble.map(|trouble| vec![trouble]), 0));
            bench.open(&mut judge, 0, S).unwrap();
            bench.pass(2_000);
            bench.show(&mut judge, &Seen::Settled).unwrap();
            bench.facts.sessions.all.get_mut(&SessionId(S)).unwrap().failed = Some(bench.instant(5));
            let verdict = bench.show(&mut judge, &Seen::Settled);
            if right {
                verdict.unwrap();
            } else {
                fired(verdict, "I16", "false-failure");
            }
        }
    }

    #[test]
    fn failure_of_an_agent_that_moved_and_says_nothing_is_no_fault() {
        let (mut bench, mut judge) = (Bench::new(1), Liveness::new(1, 1, Some(vec![vec![]]), 0));
        bench.open(&mut judge, 0, S).unwrap();
        bench.show(&mut judge, &Seen::Moved { agent: 0 }).unwrap();
        bench.pass(60_000);
        bench.facts.sessions.all.get_mut(&SessionId(S)).unwrap().failed = Some(bench.instant(5));
        bench.show(&mut judge, &Seen::Settled).unwrap();
    }

    fn heal(bench: &mut Bench, judge: &mut Liveness, steps: usize) {
        bench.healed_at = Some(bench.now);
        let target = || Target::Path(hot_path(0));
        let locked = Locked {
            holder: HolderId(1),
            object: ObjectId(7),
            mode: Mode::Exclusive,
            generation: Generation(1),
            token: 1,
            valid_until: Instant::new(9, 9),
        };
        let all = [
            (Command::Ping, Output::Pong { round_trip: Duration::ZERO }),
            (Command::Write { target: target(), offset: 0, data: Default::default(), truncate: true }, Output::Attr(attr(7, 1))),
            (Command::Read { target: target(), offset: 0, length: None }, Output::Done),
            (Command::Lock { target: target(), mode: Mode::Exclusive, wait: Wait::Forever }, Output::Locked(locked)),
        ];
        for (command, output) in all.into_iter().take(steps) {
            let op = bench.submit(judge, 0, &command).unwrap();
            bench.end(judge, 0, op, Ok(output)).unwrap();
        }
    }

    #[test]
    fn agent_that_gets_everything_after_healing_is_clean_and_any_gap_is_caught() {
        for steps in 0..=4 {
            let (mut bench, mut judge) = (Bench::new(1), Liveness::new(1, 1, None, 0));
            heal(&mut bench, &mut judge, steps);
            let verdict = bench.finish(&mut judge);
            if steps == 4 {
                verdict.unwrap();
            } else {
                fired(verdict, "I15", "stuck");
            }
        }
    }

    #[test]
    fn traffic_that_does_not_cease_is_caught() {
        for rate in [4, 400] {
            let (mut bench, mut judge) = (Bench::new(1), Liveness::new(1, 1, None, 0));
            heal(&mut bench, &mut judge, 4);
            for _ in 0..rate * 4 {
                bench.now.0 += 1_000_000_000 / rate;
                bench.agent_sends(&mut judge, 0, S, 5, &[keep_alive()]).unwrap();
            }
            let verdict = bench.finish(&mut judge);
            if rate == 4 {
                verdict.unwrap();
            } else {
                fired(verdict, "I15", "not-quiet");
            }
        }
    }
}
