//! Failover on each service: a holder that is gone without a word, until somebody else has its lock.
//!
//! Decides that each is set as low as it goes, that the holder's last word is answered right before it falls silent (so the whole of what
//! it was promised is waited for), and that the one who waits does so as the service's users do. A holder of another service falls silent
//! when nobody turns its client any more: its connection stays open; ours is stopped with SIGSTOP (`failover`). Place: a part of `peers`.
//! Leaves to others: each service's holder and waiter (its own file), ours (`crate::failover`).

use super::{etcd, redis, zookeeper};
use crate::cases::Plan;
use crate::failover;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use std::path::Path;
use std::time::Duration;

/// A service whose lock can change hands.
pub(crate) trait FailoverService {
    /// What it is called in tables.
    fn name(&self) -> String;

    /// One holder that falls silent; gives how long the waiter waited from then on.
    fn round(&mut self) -> Result<Duration, Trouble>;
}

/// A service whose lock can change hands; the inner error says why it is skipped.
pub(crate) type Started = Result<Box<dyn FailoverService>, String>;

/// Measures everybody who is there.
pub(super) fn run(dir: &Path, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("peers failover", "a holder that falls silent, until the waiter has its lock; ms");
    section.rows.extend(failover::beside_peers(plan, progress)?.into_iter().map(|row| row.named(|load| format!("Cistern, {load}"))));
    for started in [etcd::failover(dir)?, zookeeper::failover(dir)?, redis::failover(dir)?] {
        let mut service = match started {
            Ok(service) => service,
            Err(skipped) => {
                section.notes.push(skipped);
                continue;
            }
        };
        let mut ms = Vec::new();
        for round in 1..=plan.rounds {
            progress.say(&format!("failover of {}, round {round} of {}", service.name(), plan.rounds));
            match service.round() {
                Ok(took) => ms.push(took.as_secs_f64() * 1e3),
                Err(trouble) => section.notes.push(format!("{}: a round could not be measured: {trouble}.", service.name())),
            }
        }
        let rounds = ms.len() as u64;
        let Some(Spread { median, min, max }) = Spread::of(ms) else { continue };
        section.rows.push(
            Row::new(service.name())
                .with("p50_ms", "median", median)
                .with("shortest_ms", "shortest", min)
                .with("longest_ms", "longest", max)
                .with("rounds", "rounds", rounds),
        );
    }
    Ok(section.note(
        "The others' holders fall silent right after their last word was answered. Redis: the waiter asks every millisecond; its lock is \
         not safe when its holder pauses. ZooKeeper ends sessions at ticks.",
    ))
}
