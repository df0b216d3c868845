//! The theft of a session with very many locks, while others go on asking.
//!
//! Decides the story: one agent takes all locks and falls silent; two others wait for two of them, so the delivery of a demand fails, its
//! lease is waited out, and its locks are freed; in every turn others ask and must be answered. Place: a part of `scale`.
//! Invariant: time is virtual and goes from deadline to deadline; CPU is real. Leaves to others: printing (`scale`).

use super::cost;
use super::figures::{Steal, median};
use super::tables::{TOGETHER, Tables};
use crate::trouble::Trouble;
use cistern_link::Machine as _;
use cistern_wire::limits::ROOT;
use cistern_wire::{GetAttr, Lock, LockWait, Message, Mode, ObjectId, Receipt, ReceiptAnswer, SessionId, Want};
use std::time::Duration;

/// Agents besides the one that falls silent.
const OTHERS: usize = TOGETHER;
/// Turns that must do for all of it.
const TURNS_MAX: usize = 1 << 20;
/// How often it is measured.
const TIMES: usize = 3;

/// What one theft showed.
#[derive(Default)]
struct Seen {
    cpu: Duration,
    turns: usize,
    longest: Duration,
    longest_before: Duration,
    answered: usize,
    granted: Vec<(ObjectId, usize)>,
}

/// Measures the theft of so many locks.
pub(super) fn measure(locks: usize) -> Result<Steal, Trouble> {
    let seen = (0..TIMES).map(|_| one(locks)).collect::<Result<Vec<_>, _>>()?;
    let of = |figure: &dyn Fn(&Seen) -> f64| median(seen.iter().map(figure).collect());
    let turn_of = |n: usize| seen[0].granted.iter().find(|(file, _)| *file == Tables::file(n)).map_or(0, |granted| granted.1);
    Ok(Steal {
        locks,
        cpu_ms: of(&|seen| seen.cpu.as_secs_f64() * 1e3),
        turns: seen[0].turns,
        longest_turn_us: of(&|seen| seen.longest.as_secs_f64() * 1e6),
        longest_turn_before_us: of(&|seen| seen.longest_before.as_secs_f64() * 1e6),
        others_answered: seen[0].answered,
        first_waiter_turn: turn_of(0),
        last_waiter_turn: turn_of(last_advisory(locks)),
    })
}

const fn last_advisory(locks: usize) -> usize {
    (locks - 1) / 2 * 2
}

fn one(locks: usize) -> Result<Seen, Trouble> {
    let mut tables = Tables::new(OTHERS + 1, locks, locks)?;
    tables.one_holder = true;
    tables.open()?;
    cost::fill(&mut tables)?;
    let mut seen = Seen::default();
    let mut work = Duration::ZERO;
    // What the others' requests cost by themselves.
    for _ in 0..64 {
        turn(&mut tables, &mut seen, usize::MAX)?;
        work += tables.last;
        seen.longest_before = seen.longest_before.max(tables.last);
    }
    let work = work / 64;
    seen.answered = 0;
    for (agent, n) in [(1, 0), (2, last_advisory(locks))] {
        let ask = tables.ask(agent);
        tables.post(agent, &[Lock { ask, object: Tables::file(n), mode: Mode::Exclusive, wait: LockWait::Queue }.into()]);
    }
    tables.exchange(|_, _| {});
    for _ in 0..TURNS_MAX {
        let stolen = tables.server.stats().steals > 0;
        let wake = tables.server.wake_after(tables.now);
        let Some(wake) = wake.filter(|_| seen.granted.len() < 2 || tables.server.status(tables.now).locks > 2) else { break };
        tables.now = tables.now.plus(wake);
        seen.turns += usize::from(stolen);
        let number = seen.turns;
        turn(&mut tables, &mut seen, number)?;
        if tables.server.stats().steals > 0 {
            seen.cpu += tables.last.saturating_sub(work);
            seen.longest = seen.longest.max(tables.last);
        } else {
            seen.answered = 0;
        }
    }
    let left = tables.server.status(tables.now).locks;
    if left == 2 && seen.granted.len() == 2 { Ok(seen) } else { Err(Tables::missing("stealing locks", "all of them freed")) }
}

/// One turn in which all others ask something; who is granted a lock or probed says so.
fn turn(tables: &mut Tables, seen: &mut Seen, number: usize) -> Result<(), Trouble> {
    for agent in 1..=OTHERS {
        let ask = tables.ask(agent);
        tables.post(agent, &[GetAttr { ask, object: ObjectId(ROOT), want: Want::Nothing }.into()]);
    }
    tables.turn_now();
    let mut answered = 0;
    let mut notices: Vec<(SessionId, u64)> = Vec::new();
    tables.show(|session, message| match message {
        Message::Ack(_) => answered += 1,
        Message::Grant(grant) => {
            notices.push((session, grant.seq));
            seen.granted.push((grant.lock.object, number));
        }
        Message::Probe(probe) => notices.push((session, probe.seq)),
        _ => {}
    });
    for (session, seq) in notices {
        if let Some(agent) = (1..=OTHERS).find(|agent| tables.agents[*agent].session == session) {
            tables.post(agent, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
        }
    }
    seen.answered += answered;
    if answered == OTHERS { Ok(()) } else { Err(Tables::missing("asking while locks are stolen", "an ACK for each request")) }
}
