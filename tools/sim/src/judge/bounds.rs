//! I13 and I14: no lease state without a failure, and no table beyond its bound.
//!
//! Decides, once a step is over: the server has one lease timer for each session that is timing out and no other; sessions, locks,
//! waiters and demands stay within the configured bounds, of the server and of each session.
//! Invariant: looking at the core's own lists is the only way to see this, so these are white-box looks; cheap ones at every step,
//! the whole list when something changed and every so often.
//! Leaves to others: what a refusal at a bound looks like (`once` and `liveness` see that users get on).

use super::case::{Case, Verdict, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_server::{Config, Server, SessionRow};

/// The whole list is looked at every so many steps.
const EVERY: u32 = 64;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    steps: u32,
    timers: usize,
    /// Whether anything failed since the server started.
    failed: bool,
}

impl Family for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, _facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Started { node: Node::Server, .. } => *self = Self::default(),
            Seen::Settled => {
                let Some(server) = case.sight.server else { return Ok(()) };
                self.steps = self.steps.wrapping_add(1);
                let timers = server.lease_timers();
                if timers != self.timers || self.steps.is_multiple_of(EVERY) {
                    self.timers = timers;
                    return self.whole(case, server);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Bounds {
    fn whole(&mut self, case: &Case<'_>, server: &Server) -> Verdict {
        let now = case.server_now();
        let (rows, status) = (server.sessions(now), server.status(now));
        self.failed |= server.stats().failures > 0 || case.sight.server_config.surrender && status.timing_out > 0;
        timers(server.lease_timers(), &rows, self.failed)?;
        tables(case.sight.server_config, (status.locks, status.waiting), &rows)
    }
}

/// One timer for each session timing out, none else.
fn timers(timers: usize, rows: &[SessionRow], failed: bool) -> Verdict {
    let timing_out = rows.iter().filter(|row| matches!(row.standing, "timing out" | "evicted")).count();
    if timers != timing_out {
        return violated("I13", "lease-timers", format!("{timers} lease timers, and {timing_out} sessions are timing out"));
    }
    if timers > 0 && !failed {
        return violated("I13", "lease-state", format!("{timers} lease timers although no delivery has failed"));
    }
    Ok(())
}

/// Files of ended sessions that the server itself removes at a time: each waits as a request does.
const REMOVALS_MAX: usize = 128;

/// Tables within their bounds: locks held and requests waiting in all, and everything by session.
fn tables(config: &Config, (locks, waiting): (usize, usize), rows: &[SessionRow]) -> Verdict {
    let sessions_max = usize::try_from(config.sessions_max).unwrap_or(usize::MAX);
    let sessions = rows.len().max(1);
    let requests_max = config.locks.waiters_per_session.saturating_add(usize::from(config.window)).saturating_mul(sessions);
    let bounds = [
        ("sessions", rows.len(), sessions_max),
        ("locks", locks, config.locks.locks_max),
        ("waiting requests", waiting, requests_max.saturating_add(REMOVALS_MAX)),
    ];
    for (name, is, most) in bounds {
        if is > most {
            return violated("I14", "table", format!("{is} {name}; the bound is {most}"));
        }
    }
    for row in rows {
        let own = [("locks", row.locks, config.locks.locks_per_session), ("waiting requests", row.waits, config.locks.waiters_per_session)];
        for (name, is, most) in own {
            if is > most {
                return violated("I14", "session", format!("session {} has {is} {name}; the bound is {most}", row.session));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::bench::fired;
    use super::*;
    use cistern_wire::{AgentId, Handle, SessionId};
    use std::time::Duration;

    fn row(standing: &'static str) -> SessionRow {
        SessionRow {
            session: SessionId(1),
            agent: AgentId([1; 16]),
            incarnation: 1,
            handle: Handle(1),
            label: (*b"bench").into(),
            address: ([10, 0, 0, 1], 1).into(),
            standing,
            left: None,
            age: Duration::ZERO,
            locks: 0,
            waits: 0,
            lease: Duration::ZERO,
            failover: Duration::ZERO,
            waited_for: false,
            notices: 0,
        }
    }

    #[test]
    fn timers_of_failed_sessions_are_clean_and_any_other_is_caught() {
        timers(1, &[row("good"), row("timing out")], true).unwrap();
        timers(0, &[row("good")], false).unwrap();
        fired(timers(1, &[row("good")], true), "I13", "lease-timers");
        fired(timers(0, &[row("evicted")], true), "I13", "lease-timers");
        fired(timers(1, &[row("timing out")], false), "I13", "lease-state");
    }

    #[test]
    fn tables_beyond_their_bounds_are_caught() {
        let mut config = Config::default();
        config.locks.locks_max = 3;
        config.locks.locks_per_session = 2;
        tables(&config, (3, 0), &[row("good")]).unwrap();
        fired(tables(&config, (4, 0), &[row("good")]), "I14", "table");
        fired(tables(&config, (3, 0), &[SessionRow { locks: 3, ..row("good") }]), "I14", "session");
        config.sessions_max = 1;
        fired(tables(&config, (0, 0), &[row("good"), row("good")]), "I14", "table");
    }
}
