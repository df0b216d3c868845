//! What a request costs, and what sessions and locks take, with tables of one size beside small ones.
//!
//! Decides the stages after each of which memory is read (sessions opened, one request of each, files known, locks held), and the rounds:
//! GETATTR of a file, and RELEASE then LOCK of a lock, sessions and locks drawn at random, the large core and the small one in turn.
//! Half of the locks are advisory, half are cache locks. Place: a part of `scale`, in a process of its own.
//! Invariant: the small core is there before memory is read for the first time, and does not grow. Leaves to others: printing (`scale`).

use super::figures::{Cost, median};
use super::memory;
use super::tables::{TOGETHER, Tables};
use crate::trouble::Trouble;
use cistern_link::{Machine as _, Rng};
use cistern_wire::{
    Generation, GetAttr, Keep, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Release, ReleaseItem, Reply, Want,
};
use std::time::Duration;

/// The tables beside which the others are measured.
const SMALL: (usize, usize) = (1_000, 10_000);
/// Requests of each kind in one round.
const REQUESTS: usize = 16_384;

/// Fills tables and measures.
pub(super) fn measure(sessions: usize, locks: usize, rounds: u32) -> Result<Cost, Trouble> {
    let mut rng = Rng::from_seed([3; 32]);
    let mut small = Tables::new(SMALL.0, SMALL.1, SMALL.1)?;
    small.open()?;
    fill(&mut small)?;
    let mut large = Tables::new(sessions, locks, locks)?;
    let empty = memory::resident()?;
    large.open()?;
    let opened = memory::resident()?;
    let peak_opened = memory::peak()?;
    for agent in 0..sessions {
        get_attr(&mut large, agent, ObjectId(cistern_wire::limits::ROOT), Want::Nothing);
        if agent % TOGETHER == 0 {
            large.exchange(|_, _| {});
        }
    }
    large.exchange(|_, _| {});
    let asked = memory::resident()?;
    know_files(&mut large);
    let known = memory::resident()?;
    large.longest = Duration::ZERO;
    take_locks(&mut large)?;
    let (held, peak_held) = (memory::resident()?, memory::peak()?);
    let idle = large.server.wake_after(large.now);
    let timers = large.server.listening() + large.server.lease_timers();
    let each = |more: u64, less: u64, n: usize| more.saturating_sub(less) / n as u64;
    let longest_filling = large.longest;
    let rounds =
        (0..=rounds).map(|_| Ok([round(&mut small, &mut rng)?, round(&mut large, &mut rng)?])).collect::<Result<Vec<_>, Trouble>>()?;
    // The first one does not count.
    let of = |side: usize, kind: usize| median(rounds[1..].iter().map(|round| round[side][kind]).collect());
    let ratio = |kind: usize| median(rounds[1..].iter().map(|round| round[1][kind] / round[0][kind]).collect());
    Ok(Cost {
        sessions,
        locks,
        session_bytes: each(opened, empty, sessions),
        session_bytes_peak: each(peak_opened, empty, sessions),
        session_bytes_asked: each(asked, empty, sessions),
        lock_bytes: each(held, known, locks),
        lock_bytes_peak: each(peak_held, known, locks),
        getattr_ns: of(1, 0),
        getattr_ratio: ratio(0),
        lock_ns: of(1, 1),
        lock_ratio: ratio(1),
        longest_turn_filling_us: longest_filling.as_secs_f64() * 1e6,
        idle_wakes: idle.is_some(),
        idle_timers: timers,
    })
}

/// Makes the core know every file and hold every lock.
pub(super) fn fill(tables: &mut Tables) -> Result<(), Trouble> {
    know_files(tables);
    take_locks(tables)
}

fn know_files(tables: &mut Tables) {
    for n in 0..tables.locks.len() {
        let agent = tables.holder(n);
        get_attr(tables, agent, Tables::file(n), Want::Nothing);
        if n % TOGETHER == 0 {
            tables.exchange(|_, _| {});
        }
    }
    tables.exchange(|_, _| {});
}

fn take_locks(tables: &mut Tables) -> Result<(), Trouble> {
    let all: Vec<usize> = (0..TOGETHER).collect();
    for start in (0..tables.locks.len()).step_by(TOGETHER) {
        let those: Vec<usize> = all.iter().map(|n| start + n).filter(|n| *n < tables.locks.len()).collect();
        take(tables, &those)?;
    }
    Ok(())
}

/// Whether lock `n` is advisory.
const fn is_advisory(n: usize) -> bool {
    n.is_multiple_of(2)
}

/// Takes locks, each by its agent.
fn take(tables: &mut Tables, those: &[usize]) -> Result<(), Trouble> {
    for n in those {
        let agent = tables.holder(*n);
        let object = Tables::file(*n);
        if is_advisory(*n) {
            let ask = tables.ask(agent);
            tables.post(agent, &[Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Try }.into()]);
        } else {
            get_attr(tables, agent, object, Want::Exclusive);
        }
    }
    let mut taken = Vec::with_capacity(those.len());
    tables.exchange(|_, message| {
        if let Message::Ack(ack) = message {
            match ack.reply {
                Reply::Granted(granted) => taken.push((granted.lock.object, granted.generation)),
                Reply::Stated(stated) if stated.grant.mode != Want::Nothing => taken.push((stated.attr.object, stated.grant.generation)),
                _ => {}
            }
        }
    });
    for (object, generation) in &taken {
        let n = usize::try_from(object.0 - Tables::file(0).0).unwrap_or(0);
        tables.locks[n] = generation.0;
    }
    if taken.len() == those.len() { Ok(()) } else { Err(Tables::missing("taking locks", "a grant for each")) }
}

fn get_attr(tables: &mut Tables, agent: usize, object: ObjectId, want: Want) {
    let ask = tables.ask(agent);
    tables.post(agent, &[GetAttr { ask, object, want }.into()]);
}

/// CPU in nanoseconds of a GETATTR, and of a RELEASE or LOCK.
fn round(tables: &mut Tables, rng: &mut Rng) -> Result<[f64; 2], Trouble> {
    let (mut reads, mut locks) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..REQUESTS / TOGETHER {
        for _ in 0..TOGETHER {
            let (agent, n) = (below(rng, tables.agents.len()), below(rng, tables.locks.len()));
            get_attr(tables, agent, Tables::file(n), Want::Nothing);
        }
        let mut answered = 0;
        tables.exchange(|_, message| answered += usize::from(matches!(message, Message::Ack(_))));
        reads += tables.last;
        if answered != TOGETHER {
            return Err(Tables::missing("measuring GETATTR", "an ACK for each"));
        }
    }
    for _ in 0..REQUESTS / TOGETHER / 2 {
        let mut those: Vec<usize> = (0..TOGETHER).map(|_| below(rng, tables.locks.len())).collect();
        those.sort_unstable();
        those.dedup();
        // The order of their numbers is no order in memory that an agent would keep to.
        for at in (1..those.len()).rev() {
            those.swap(at, below(rng, at + 1));
        }
        give_back(tables, &those);
        locks += tables.last;
        take(tables, &those)?;
        locks += tables.last;
    }
    let each = |spent: Duration| spent.as_secs_f64() * 1e9 / f64::from(u32::try_from(REQUESTS).unwrap_or(u32::MAX));
    Ok([each(reads), each(locks)])
}

fn give_back(tables: &mut Tables, those: &[usize]) {
    for n in those {
        let agent = tables.holder(*n);
        let class = if is_advisory(*n) { LockClass::Advisory } else { LockClass::Cache };
        let lock = LockId { object: Tables::file(*n), class };
        let items = [ReleaseItem { lock, generation: Generation(tables.locks[*n]), keep: Keep::Nothing }];
        let serial = tables.serial(agent);
        tables.post(agent, &[Release { serial, items: List::of(&items) }.into()]);
    }
    tables.exchange(|_, _| {});
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or(0)
}
