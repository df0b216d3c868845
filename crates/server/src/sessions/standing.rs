//! Standing: what the server may do for a session now.
//!
//! Decides which event leads from which standing to which, and refuses the others as error values. Place in the walk: every
//! message of a session is judged by it before it acts, and again at the instant of execution.
//! Implements `wire-spec.md` section 11.3. Invariant: only [`Standing::Good`] may be answered by a message that renews, and a
//! session in good standing carries no lease state: D and the end of the wait exist only in [`Standing::TimingOut`]. The one way
//! back, [`Event::Rescued`], is closed by the first NACK, by a cause that is final, and by the end of the wait.
//! Leaves to others: what has to be done on the way (`lifecycle`), timers, the store.

use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use core::fmt;

/// Why a session ends, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A notice was not receipted in time (section 11.3).
    DeliveryFailed,
    /// A demand for a cache lock was receipted and not complied with in time (section 11.3).
    NotComplying,
    /// An operator evicted the agent.
    Evicted,
    /// The agent opened another session: a new incarnation, or a new handshake of the same one (section 11.6).
    Superseded,
    /// The agent closed it in good standing.
    Closed,
    /// The agent said that nothing of it can be used again (section 11.3).
    Surrendered,
    /// It reclaimed after a restart what another agent reclaimed, too (section 11.7).
    ReclaimConflict,
    /// Its agent has reclaimed after a restart what it wants of it (section 11.7).
    Reclaimed,
    /// Its agent did not come back in time after a restart (section 11.7).
    NotReclaimed,
    /// So many of its datagrams were forged that one might have been believed soon (`docs/sealed.md`).
    WornOut,
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
            Self::Reclaimed => "reclaimed",
            Self::NotReclaimed => "not reclaimed in time",
            Self::WornOut => "too many forged datagrams",
        }
    }

    /// Whether nothing that the agent does could still undo the decision (section 11.3).
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

/// Whether anything can be given back of a session of an earlier start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimState {
    /// Its agent may reclaim.
    Open,
    /// Its end was decided, durably: only its lease has to be waited for.
    Forfeited,
    /// The time for it is over, and it is about to be ended.
    Missed,
}

/// A session's standing.
///
/// ```text
///            Over (reclaimed; surrendered; not reclaimed)
///  Recorded ──────────────────────────────────────────────────────────────────▶  Ending
///   │    ▲
///   └────┘ Forfeited, Missed
///
///                          Rescued (no NACK, no final cause)
///                         ┌────────────────────┐
///                         ▼      Failed (D)    │          Waited (the wait is over)
///  (CONFIRM) ─────────▶  Good  ────────────▶  TimingOut ─────────────────────▶  Ending ──────────▶ Ended
///                         │                    │     ▲                            ▲     Durable
///                         │                    └─────┘ Refused (NACK);            │
///                         │                    │       Failed, for a final cause  │
///                         │                    │       (the timer runs on)        │
///                         └────────────────────┴──────────────────────────────────┘
///                              Over (closed; surrendered)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Of an earlier start of the server, by the store's record of it; its agent may come back for what it held (section 11.7).
    Recorded {
        /// Whether anything is given back.
        reclaim: ReclaimState,
    },
    /// The agent may be answered, once its record is durable. Nothing about its lease is kept.
    Good,
    /// D was decided: no message renews, nothing is executed, valid requests get NACK.
    TimingOut {
        /// D.
        decided: Instant,
        /// When the session is over, by both clocks: T after D, or T after what was heard last (section 11.3).
        until: Instant,
        /// Why.
        cause: Cause,
        /// Whether a NACK was produced since D: the agent may have discarded everything, so there is no way back (section 11.3).
        nacked: bool,
    },
    /// Over; its end record is on the way to the store, and until it is there nothing is freed (section 11.3).
    Ending {
        /// Why.
        cause: Cause,
    },
    /// Over, durably; its locks are being freed, and it is remembered for a while.
    Ended {
        /// Why.
        cause: Cause,
    },
}

/// What happens to a session's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// What it held before the start is not given back to anybody.
    Forfeited,
    /// Nobody came back for it in time.
    Missed,
    /// D: decided now, over at the earliest at `until`.
    Failed {
        /// D.
        now: Instant,
        /// The end of the wait.
        until: Instant,
        /// Why.
        cause: Cause,
    },
    /// A NACK was produced.
    Refused,
    /// What was missing has come.
    Rescued {
        /// Now; the end of the wait must still lie ahead.
        now: Instant,
    },
    /// The wait is over.
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
            (Self::Recorded { reclaim: ReclaimState::Open }, Event::Forfeited) => Ok(Self::Recorded { reclaim: ReclaimState::Forfeited }),
            (Self::Recorded { reclaim: ReclaimState::Open | ReclaimState::Forfeited }, Event::Missed) => {
                Ok(Self::Recorded { reclaim: ReclaimState::Missed })
            }
            (Self::TimingOut { .. }, Event::Refused) if bugs::is(Bug::M13) => Ok(Self::Good),
            (Self::TimingOut { .. }, Event::Waited { .. }) if bugs::is(Bug::M24) => Ok(Self::Good),
            (Self::Good, Event::Failed { now, until, cause }) => Ok(Self::TimingOut { decided: now, until, cause, nacked: false }),
            // The timer that runs is the right one: what was promised to the agent was promised before the first D.
            //= wire-spec.md#11-3-failure-and-ending
            //# The timer MUST run from D for the whole of T, however often further deliveries fail.
            //= wire-spec.md#11-3-failure-and-ending
            //# T MUST NOT be shortened by any evidence of failure.
            (Self::TimingOut { decided, until, nacked, .. }, Event::Failed { cause, .. }) if cause.is_final() => {
                Ok(Self::TimingOut { decided, until, cause, nacked })
            }
            (Self::TimingOut { decided, until, cause, .. }, Event::Refused) => Ok(Self::TimingOut { decided, until, cause, nacked: true }),
            //= wire-spec.md#11-3-failure-and-ending
            //# Rescue: the server MUST take a session back only if no NACK was produced since D, every failed notice is receipted, the
            //# cause allows it, and no end record was handed to the store.
            (Self::TimingOut { until, cause, nacked: false, .. }, Event::Rescued { now }) if !cause.is_final() && !now.waited(until) => {
                Ok(Self::Good)
            }
            (Self::TimingOut { until, cause, .. }, Event::Waited { now }) if now.waited(until) => Ok(Self::Ending { cause }),
            (Self::Recorded { .. } | Self::Good | Self::TimingOut { .. }, Event::Over { cause }) => Ok(Self::Ending { cause }),
            (Self::Ending { cause }, Event::Durable) => Ok(Self::Ended { cause }),
            (standing, event) => Err(Illegal { standing, event }),
        }
    }

    /// Whether the session may be answered by messages that renew, and its requests may execute.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Good) || bugs::is(Bug::M4) && matches!(self, Self::TimingOut { .. })
    }

    /// Whether an event may happen in it.
    pub(crate) fn takes(self, event: Event) -> bool {
        self.after(event).is_ok()
    }

    /// Its name, for logs and listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Recorded { .. } => "recorded",
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
            Self::Recorded { .. } | Self::Good => cistern_wire::Standing::Good,
            Self::TimingOut { cause, .. } | Self::Ending { cause } | Self::Ended { cause } => {
                if cause.is_final() {
                    cistern_wire::Standing::Evicted
                } else {
                    cistern_wire::Standing::TimingOut
                }
            }
        }
    }

    /// How long from now the locks of a session that has failed stay taken; `None`: it has not.
    pub(crate) fn bound(self, now: Instant) -> Option<core::time::Duration> {
        match self {
            Self::Recorded { .. } | Self::Good => None,
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

    const TIMING: Standing = Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::DeliveryFailed, nacked: false };
    const NACKED: Standing = Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::DeliveryFailed, nacked: true };
    const EVICTED: Standing = Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::Evicted, nacked: false };

    fn standings() -> [(&'static str, Standing); 9] {
        let cause = Cause::DeliveryFailed;
        [
            ("of before", Standing::Recorded { reclaim: ReclaimState::Open }),
            ("forfeited", Standing::Recorded { reclaim: ReclaimState::Forfeited }),
            ("missed", Standing::Recorded { reclaim: ReclaimState::Missed }),
            ("good", Standing::Good),
            ("timing out", TIMING),
            ("nacked", NACKED),
            ("evicted", EVICTED),
            ("ending", Standing::Ending { cause }),
            ("ended", Standing::Ended { cause }),
        ]
    }

    fn name(standing: Standing) -> &'static str {
        standings().into_iter().find(|known| known.1 == standing).map_or_else(|| standing.name(), |known| known.0)
    }

    fn events() -> [(&'static str, Event); 11] {
        let failed = |cause| Event::Failed { now: LATER, until: LATER, cause };
        [
            ("forfeited", Event::Forfeited),
            ("missed", Event::Missed),
            ("failed", failed(Cause::DeliveryFailed)),
            ("evicted", failed(Cause::Evicted)),
            ("refused", Event::Refused),
            ("rescued", Event::Rescued { now: D }),
            ("too late", Event::Rescued { now: UNTIL }),
            ("too early", Event::Waited { now: D }),
            ("waited", Event::Waited { now: UNTIL }),
            ("over", Event::Over { cause: Cause::Closed }),
            ("durable", Event::Durable),
        ]
    }

    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# Rescue: the server MUST take a session back only if no NACK was produced since D, every failed notice is receipted, the cause allows
    //# it, and no end record was handed to the store.
    #[test]
    fn table_of_standings_and_events_is_the_diagram() {
        let mut table = String::new();
        for (of, standing) in standings() {
            let cells: Vec<&str> = events().iter().map(|(_, event)| standing.after(*event).map_or("-", name)).collect();
            writeln!(table, "{of:>10} | {}", cells.join(" | ")).unwrap();
        }
        // Columns: forfeited, missed, failed, evicted, refused, rescued, too late, too early, waited, over, durable.
        let expected = " of before | forfeited | missed | - | - | - | - | - | - | - | ending | -
 forfeited | - | missed | - | - | - | - | - | - | - | ending | -
    missed | - | - | - | - | - | - | - | - | - | ending | -
      good | - | - | timing out | evicted | - | - | - | - | - | ending | -
timing out | - | - | - | evicted | nacked | good | - | - | ending | ending | -
    nacked | - | - | - | evicted | nacked | - | - | - | ending | ending | -
   evicted | - | - | - | evicted | evicted | - | - | - | ending | ending | -
    ending | - | - | - | - | - | - | - | - | - | - | ended
     ended | - | - | - | - | - | - | - | - | - | - | -
";
        assert_eq!(table, expected);
    }

    #[test]
    fn eviction_does_not_make_a_nack_undone() {
        let evicted = NACKED.after(Event::Failed { now: LATER, until: LATER, cause: Cause::Evicted });
        assert_eq!(evicted, Ok(Standing::TimingOut { decided: D, until: UNTIL, cause: Cause::Evicted, nacked: true }));
    }

    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# The timer MUST run from D for the whole of T, however often further deliveries fail.
    //= wire-spec.md#11-3-failure-and-ending
    //= type=test
    //# T MUST NOT be shortened by any evidence of failure.
    #[test]
    fn second_failure_neither_restarts_nor_shortens_the_timer() {
        let evicted = TIMING.after(Event::Failed { now: LATER, until: LATER, cause: Cause::Evicted });
        assert_eq!(evicted, Ok(EVICTED));
    }

    #[test]
    fn wait_is_over_only_by_both_clocks() {
        let lagging = Event::Waited { now: Instant::new(900, 199) };
        assert_eq!(TIMING.after(lagging), Err(Illegal { standing: TIMING, event: lagging }));
    }

    #[test]
    fn illegal_event_is_told_with_the_standing_in_which_it_came() {
        let refused = Standing::Good.after(Event::Durable).unwrap_err();
        assert_eq!(refused.standing, Standing::Good);
        assert_eq!(refused.event, Event::Durable);
    }
}
