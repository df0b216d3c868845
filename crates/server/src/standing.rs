//! Standing: what the server may do for a session now.
//!
//! Decides which event leads from which standing to which, and refuses the others as error values. Place in the walk: every
//! message of a session is judged by it before it acts, and again at the instant of execution (R5).
//! Implements `wire-spec.md` section 7. Invariant: only [`Standing::Good`] may be answered by a message that renews (R3), and a
//! session in good standing carries no lease state: D and the end of the wait exist only in [`Standing::TimingOut`] (R3).
//! Leaves to others: what has to be done on the way (`handshake`, `timing_out`), timers, the store.

use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use core::fmt;

/// Why a session ends, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A notice was not receipted in time (R32).
    DeliveryFailed,
    /// A demand for a cache lock was receipted and not complied with in time (R31).
    NotComplying,
    /// An operator evicted the agent.
    Evicted,
    /// The agent opened another session: a new incarnation, or a new handshake of the same one (R40, R42).
    Superseded,
    /// The agent closed it in good standing.
    Closed,
    /// The agent said that nothing of it can be used again (R36).
    Surrendered,
    /// It reclaimed after a restart what another agent reclaimed, too (R60).
    ReclaimConflict,
}

impl Cause {
    /// The cause in words, for logs and listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeliveryFailed => "a delivery failed",
            Self::NotComplying => "a demand was not complied with",
            Self::Evicted => "evicted",
            Self::Superseded => "superseded",
            Self::Closed => "closed",
            Self::Surrendered => "surrendered",
            Self::ReclaimConflict => "reclaimed what another agent reclaimed, too",
        }
    }

    /// Whether nothing that the agent does could still undo the decision (R34).
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::DeliveryFailed | Self::NotComplying)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A session's standing.
///
/// ```text
///            Recorded            Failed (D)               Waited (T after D)
///  Opening ───────────▶  Good  ────────────▶  TimingOut ─────────────────────▶  Ending ──────────▶ Ended
///     │                   │                    │     ▲                            ▲     Durable
///     │                   │                    └─────┘ Failed, for a final cause  │
///     │                   │                    │       (the timer runs on)        │
///     └───────────────────┴────────────────────┴──────────────────────────────────┘
///                              Over (closed; surrendered; never welcomed)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its record is on the way to the store; the agent was not welcomed yet.
    Opening,
    /// The agent may be answered. Nothing about its lease is kept.
    Good,
    /// D was decided: no message renews, nothing is executed, valid requests get NACK.
    TimingOut {
        /// D.
        decided: Instant,
        /// When the session is over: T after D, by both clocks.
        until: Instant,
        /// Why.
        cause: Cause,
    },
    /// Over; its end record is on the way to the store, and until it is there nothing is freed (R50).
    Ending {
        /// Why.
        cause: Cause,
    },
    /// Over, durably; its locks are being freed.
    Ended {
        /// Why.
        cause: Cause,
    },
}

/// What happens to a session's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its record is durable.
    Recorded,
    /// D: decided now, over at the earliest at `until`.
    Failed {
        /// D.
        now: Instant,
        /// T after D.
        until: Instant,
        /// Why.
        cause: Cause,
    },
    /// T has passed.
    Waited {
        /// Now; `until` is checked once more.
        now: Instant,
    },
    /// Nothing of it can be used again.
    Over {
        /// Why.
        cause: Cause,
    },
    /// Its end record is durable.
    Durable,
}

/// An event that cannot happen in the standing; whoever raised it is in error, and nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Illegal {
    /// The standing, which stays.
    pub(crate) standing: Standing,
    /// The event.
    pub(crate) event: Event,
}

impl Standing {
    /// The standing after `event`.
    ///
    /// # Errors
    /// [`Illegal`] for every pair that has no arrow in the diagram above.
    pub(crate) fn after(self, event: Event) -> Result<Self, Illegal> {
        match (self, event) {
            (Self::Opening, Event::Recorded) => Ok(Self::Good),
            (Self::Good, Event::Failed { now, until, cause }) => Ok(Self::TimingOut { decided: now, until, cause }),
            // The timer that runs is the right one: what was promised to the agent was promised before the first D.
            //= wire-spec.md#11-3-failure-and-ending
            //# The server's timer MUST run from D for the whole of T, however often further deliveries fail.
            //= wire-spec.md#11-3-failure-and-ending
            //# T MUST NOT be shortened by any evidence of failure.
            (Self::TimingOut { decided, until, .. }, Event::Failed { cause, .. }) if cause.is_final() => {
                Ok(Self::TimingOut { decided, until, cause })
            }
            (Self::TimingOut { until, cause, .. }, Event::Waited { now }) if now.waited(until) => Ok(Self::Ending { cause }),
            (Self::Opening | Self::Good | Self::TimingOut { .. }, Event::Over { cause }) => Ok(Self::Ending { cause }),
            (Self::Ending { cause }, Event::Durable) => Ok(Self::Ended { cause }),
            (standing, event) => Err(Illegal { standing, event }),
        }
    }

    /// Whether the session may be answered by messages that renew, and its requests may execute.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Good) || bugs::is(Bug::M4) && matches!(self, Self::TimingOut { .. })
    }

    /// Its name, for logs and listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Good => "good",
            Self::TimingOut { cause, .. } if cause.is_final() => "evicted",
            Self::TimingOut { .. } => "timing out",
            Self::Ending { .. } => "ending",
            Self::Ended { .. } => "ended",
        }
    }

    /// What other agents are told of it in lists and as the holder of a lock.
    pub(crate) const fn told(self) -> cistern_wire::Standing {
        match self {
            Self::Opening | Self::Good => cistern_wire::Standing::Good,
            Self::TimingOut { cause, .. } | Self::Ending { cause } | Self::Ended { cause } => {
                if cause.is_final() {
                    cistern_wire::Standing::Evicted
                } else {
                    cistern_wire::Standing::TimingOut
                }
            }
        }
    }

    /// How long from now the locks of a session in this standing stay taken at least; `None`: no end is in sight.
    pub(crate) fn bound(self, now: Instant) -> Option<core::time::Duration> {
        match self {
            Self::Opening | Self::Good => None,
            Self::TimingOut { until, .. } => Some(now.until_waited(until)),
            Self::Ending { .. } | Self::Ended { .. } => Some(core::time::Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::fmt::Write as _;

    const D: Instant = Instant::new(100, 100);
    const UNTIL: Instant = Instant::new(200, 200);
    const LATER: Instant = Instant::new(300, 300);

    fn standings() -> [Standing; 6] {
        let timing = |cause| Standing::TimingOut { decided: D, until: UNTIL, cause };
        let cause = Cause::DeliveryFailed;
        [
            Standing::Opening,
            Standing::Good,
            timing(Cause::DeliveryFailed),
            timing(Cause::Evicted),
            Standing::Ending { cause },
            Standing::Ended { cause },
        ]
    }

    fn events() -> [(&'static str, Event); 7] {
        let failed = |cause| Event::Failed { now: LATER, until: LATER, cause };
        [
            ("recorded", Event::Recorded),
            ("failed", failed(Cause::DeliveryFailed)),
            ("evicted", failed(Cause::Evicted)),
            ("too early", Event::Waited { now: D }),
            ("waited", Event::Waited { now: UNTIL }),
            ("over", Event::Over { cause: Cause::Closed }),
            ("durable", Event::Durable),
        ]
    }

    #[test]
    fn table_of_standings_and_events_is_the_diagram() {
        let mut table = String::new();
        for standing in standings() {
            let cells: Vec<&str> = events().iter().map(|(_, event)| standing.after(*event).map_or("-", Standing::name)).collect();
            writeln!(table, "{:>10} | {}", standing.name(), cells.join(" | ")).unwrap();
        }
        // Columns: recorded, failed, evicted, too early, waited, over, durable.
        let expected = "   opening | good | - | - | - | - | ending | -
      good | - | timing out | evicted | - | - | ending | -
timing out | - | - | evicted | - | ending | ending | -
   evicted | - | - | evicted | - | ending | ending | -
    ending | - | - | - | - | - | - | ended
     ended | - | - | - | - | - | - | -
";
        assert_eq!(table, expected);
    }

    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# The server's timer MUST run from D for the whole of T, however often further deliveries fail.
    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# T MUST NOT be shortened by any evidence of failure.
    #[test]
    fn second_failure_neither_restarts_nor_shortens_the_timer() {
        let timing = Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::DeliveryFailed };
        let evicted = timing.after(Event::Failed { now: LATER, until: LATER, cause: Cause::Evicted });
        assert_eq!(evicted, Ok(Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::Evicted }));
    }

    #[test]
    fn wait_is_over_only_by_both_clocks() {
        let timing = Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::DeliveryFailed };
        let lagging = Event::Waited { now: Instant::new(900, 199) };
        assert_eq!(timing.after(lagging), Err(Illegal { standing: timing, event: lagging }));
    }

    #[test]
    fn illegal_event_is_told_with_the_standing_in_which_it_came() {
        let refused = Standing::Ended { cause: Cause::Evicted }.after(Event::Recorded).unwrap_err();
        assert_eq!(refused.standing, Standing::Ended { cause: Cause::Evicted });
        assert_eq!(refused.event, Event::Recorded);
    }
}
