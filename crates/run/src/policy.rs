//! When the guardian terminates and when it kills: the decision alone, without clocks, processes or pipes.
//!
//! Decides by the instants it is told and the time given as an argument (section 11.6): SIGTERM when the lease was not renewed by its
//! *suspect* instant, when the holder of the lease says so or is gone; SIGKILL no later than the last kill instant told.
//! Invariant: once the kill instant of the newest `Until` has come, the state is `Killing`, whatever happened before.
//! Leaves to `guardian` to do it, and to `tree` how.

use std::time::Duration;

use crate::at::{At, Until};
use crate::exit::Reason;

/// How long a command has in cases that the lease does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After the command has ended by itself: how long what it left behind may run to its own end before SIGTERM.
    /// Long enough for a `tee` or `less` to finish what it was given.
    pub left_settle: Duration,
    /// After the command has ended: how long after SIGTERM what it left behind is killed.
    pub left_grace: Duration,
    /// After a SIGTERM for the lock's sake: how long the tree has at most, if the lease is renewed again meanwhile.
    pub stop_grace: Duration,
}

impl Default for Settings {
    /// 200 ms, 1 s and 10 s.
    fn default() -> Self {
        Settings { left_settle: Duration::from_millis(200), left_grace: Duration::from_secs(1), stop_grace: Duration::from_secs(10) }
    }
}

/// What the guardian learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Until(Until),
    Uncertain,
    Lost,
    HolderGone,
    CommandEnded,
}

/// What the guardian does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// SIGTERM to the whole tree.
    Terminate(Reason),
    /// SIGKILL to the whole tree, until it is gone.
    Kill(Reason),
}

/// ```text
///            suspect instant, Uncertain, HolderGone
///  Running ───────────────────────────────────────────► Stopping ─── kill instant, kill_by, Lost ──► Killing
///     │ CommandEnded          ▲ the same, or term_at        │ ▲                                        ▲
///     ▼                       │                             └─┘ CommandEnded: kill_by comes nearer     │
///  Settling ──────────────────┘                                                                        │
///     └────────────── from Running and Settling too: kill instant, Lost ───────────────────────────────┘
/// ```
/// There is no way back: a command that was told to stop may have stopped half of what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Settling { term_at: At },
    Stopping { reason: Reason, kill_by: At },
    Killing,
}

/// The guardian's decision maker.
#[derive(Debug)]
pub(crate) struct Policy {
    settings: Settings,
    until: Until,
    state: State,
}

impl Policy {
    pub(crate) fn new(settings: Settings, first: Until) -> Policy {
        Policy { settings, until: first.ordered(), state: State::Running }
    }

    /// Takes in what has been learned; the answer is to be done at once.
    pub(crate) fn learn(&mut self, now: At, input: Input) -> Option<Action> {
        match (input, self.state) {
            (_, State::Killing) => None,
            (Input::Until(until), _) => {
                self.until = until.ordered();
                self.due(now)
            }
            (Input::Lost, _) => self.kill(Reason::Lost),
            (Input::Uncertain, _) => self.stop(now, Reason::Uncertain),
            (Input::HolderGone, _) => self.stop(now, Reason::HolderGone),
            (Input::CommandEnded, State::Running) => {
                self.state = State::Settling { term_at: now.plus(self.settings.left_settle) };
                None
            }
            (Input::CommandEnded, State::Stopping { reason, kill_by }) => {
                let kill_by = kill_by.earlier(now.plus(self.settings.left_grace));
                self.state = State::Stopping { reason, kill_by };
                None
            }
            (Input::CommandEnded, State::Settling { .. }) => None,
        }
    }

    /// What the passing of time alone demands.
    pub(crate) fn due(&mut self, now: At) -> Option<Action> {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock
        //# is certain.
        let kill_now = self.until.kill_at.reached(now);
        match self.state {
            State::Killing => None,
            State::Stopping { reason, kill_by } if kill_now || kill_by.reached(now) => self.kill(reason),
            State::Stopping { .. } => None,
            State::Running | State::Settling { .. } if self.until.suspect_at.reached(now) => self.stop(now, Reason::NotRenewed),
            State::Settling { term_at } if term_at.reached(now) => {
                self.state = State::Stopping { reason: Reason::LeftBehind, kill_by: now.plus(self.settings.left_grace) };
                Some(Action::Terminate(Reason::LeftBehind))
            }
            State::Running | State::Settling { .. } => None,
        }
    }

    /// How late the guardian is, if it should have acted by the instants known before, and has not: it stood still past the kill instant.
    pub(crate) fn lateness(&self, now: At) -> Option<Duration> {
        let waits = matches!(self.state, State::Running | State::Settling { .. });
        (waits && self.until.kill_at.reached(now)).then(|| self.until.suspect_at.elapsed(now))
    }

    /// How long [`Policy::due`] will say nothing if nothing is learned; `None`: for ever.
    pub(crate) fn quiet(&self, now: At) -> Option<Duration> {
        let next = match self.state {
            State::Running => self.until.suspect_at,
            State::Settling { term_at } => term_at.earlier(self.until.suspect_at),
            State::Stopping { kill_by, .. } => kill_by.earlier(self.until.kill_at),
            State::Killing => return None,
        };
        Some(next.remaining(now))
    }

    /// Begins to stop, or kills at once when there is no time left to ask. Asking twice does not put the kill off.
    fn stop(&mut self, now: At, reason: Reason) -> Option<Action> {
        if self.until.kill_at.reached(now) {
            return self.kill(reason);
        }
        if matches!(self.state, State::Stopping { reason, .. } if reason != Reason::LeftBehind) {
            return None;
        }
        // The kill instant known now always counts; a later one, should the lease be renewed, only within the grace.
        let kill_by = match self.state {
            State::Stopping { kill_by, .. } => kill_by,
            State::Settling { .. } => now.plus(self.settings.left_grace),
            State::Running | State::Killing => self.until.kill_at.later(now.plus(self.settings.stop_grace)),
        };
        self.state = State::Stopping { reason, kill_by };
        Some(Action::Terminate(reason))
    }

    fn kill(&mut self, reason: Reason) -> Option<Action> {
        self.state = State::Killing;
        Some(Action::Kill(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> At {
        At { raw_ns: ms * 1_000_000, boot_ns: ms * 1_000_000 }
    }

    /// SIGTERM at 1.6 s, SIGKILL at 1.76 s, certain until 2 s, each moved by `start` ms.
    fn lease(start: u64) -> Until {
        Until { suspect_at: ms(start + 1600), kill_at: ms(start + 1760), until: ms(start + 2000) }
    }

    fn policy() -> Policy {
        Policy::new(Settings::default(), lease(0))
    }

    #[test]
    fn a_renewed_lease_leaves_the_command_alone() {
        let mut policy = policy();
        for start in (0..100_000).step_by(1000) {
            assert_eq!(policy.learn(ms(start), Input::Until(lease(start))), None);
            assert_eq!(policy.quiet(ms(start)), Some(Duration::from_millis(1600)));
            assert_eq!(policy.due(ms(start + 1599)), None);
        }
    }

    #[test]
    fn a_lease_not_renewed_brings_sigterm_in_suspect_and_sigkill_before_its_end() {
        let mut policy = policy();
        assert_eq!(policy.due(ms(1599)), None);
        assert_eq!(policy.due(ms(1600)), Some(Action::Terminate(Reason::NotRenewed)));
        assert_eq!(policy.quiet(ms(1600)), Some(Duration::from_millis(160)));
        assert_eq!(policy.due(ms(1759)), None);
        assert_eq!(policy.due(ms(1760)), Some(Action::Kill(Reason::NotRenewed)));
        assert_eq!(policy.due(ms(5000)), None, "killing is said once");
        assert_eq!(policy.quiet(ms(5000)), None);
    }

    #[test]
    fn a_guardian_is_late_only_when_it_has_slept_through_the_kill_instant() {
        let mut policy = policy();
        assert_eq!(policy.lateness(ms(1759)), None);
        assert_eq!(policy.lateness(ms(1760)), Some(Duration::from_millis(160)));
        policy.learn(ms(1760), Input::Until(lease(1000)));
        assert_eq!(policy.lateness(ms(1760)), None, "renewed meanwhile");
        policy.learn(ms(1761), Input::Uncertain);
        assert_eq!(policy.lateness(ms(9000)), None, "it has acted");
    }

    #[test]
    fn either_clock_alone_can_end_the_lease() {
        let slept = At { raw_ns: 1_000_000, ..ms(1700) };
        assert_eq!(policy().due(slept), Some(Action::Terminate(Reason::NotRenewed)));
        let slewed = At { boot_ns: 1_000_000, ..ms(1800) };
        assert_eq!(policy().due(slewed), Some(Action::Kill(Reason::NotRenewed)));
    }

    #[test]
    fn a_holder_that_is_gone_brings_sigterm_at_once_and_sigkill_at_the_last_instant_known() {
        let mut policy = policy();
        assert_eq!(policy.learn(ms(100), Input::HolderGone), Some(Action::Terminate(Reason::HolderGone)));
        assert_eq!(policy.learn(ms(101), Input::HolderGone), None, "asked once");
        assert_eq!(policy.due(ms(1759)), None);
        assert_eq!(policy.due(ms(1760)), Some(Action::Kill(Reason::HolderGone)));
    }

    #[test]
    fn where_no_time_is_left_to_ask_it_kills_at_once() {
        for input in [Input::HolderGone, Input::Uncertain] {
            let Some(Action::Kill(_)) = policy().learn(ms(1760), input) else { panic!("{input:?}") };
        }
        assert_eq!(policy().due(ms(9000)), Some(Action::Kill(Reason::NotRenewed)), "a guardian that was held up");
        assert_eq!(
            policy().learn(ms(9000), Input::Until(lease(0))),
            Some(Action::Kill(Reason::NotRenewed)),
            "an instant that came too late"
        );
    }

    #[test]
    fn lost_kills_at_once_in_every_state() {
        assert_eq!(policy().learn(ms(10), Input::Lost), Some(Action::Kill(Reason::Lost)));
        let mut stopping = policy();
        stopping.learn(ms(10), Input::Uncertain);
        assert_eq!(stopping.learn(ms(11), Input::Lost), Some(Action::Kill(Reason::Lost)));
        let mut settling = policy();
        settling.learn(ms(10), Input::CommandEnded);
        assert_eq!(settling.learn(ms(11), Input::Lost), Some(Action::Kill(Reason::Lost)));
    }

    #[test]
    fn a_lease_renewed_after_sigterm_gives_more_time_but_only_the_grace() {
        let mut policy = policy();
        policy.due(ms(1600));
        for start in (1700..11_600).step_by(100) {
            assert_eq!(policy.learn(ms(start), Input::Until(lease(start))), None, "at {start}");
        }
        assert_eq!(policy.due(ms(11_600)), Some(Action::Kill(Reason::NotRenewed)));
    }

    #[test]
    fn an_instant_that_moved_earlier_counts() {
        let mut policy = policy();
        policy.learn(ms(0), Input::Until(lease(10_000)));
        assert_eq!(policy.learn(ms(1600), Input::Until(lease(0))), Some(Action::Terminate(Reason::NotRenewed)));
    }

    #[test]
    fn what_a_command_leaves_behind_may_settle_then_is_asked_then_killed() {
        let mut policy = policy();
        assert_eq!(policy.learn(ms(100), Input::CommandEnded), None);
        assert_eq!(policy.due(ms(299)), None);
        assert_eq!(policy.due(ms(300)), Some(Action::Terminate(Reason::LeftBehind)));
        assert_eq!(policy.due(ms(1299)), None);
        assert_eq!(policy.due(ms(1300)), Some(Action::Kill(Reason::LeftBehind)));
    }

    #[test]
    fn what_is_left_behind_never_outlives_the_kill_instant() {
        let mut policy = policy();
        policy.learn(ms(1500), Input::CommandEnded);
        assert_eq!(policy.due(ms(1600)), Some(Action::Terminate(Reason::NotRenewed)), "suspect comes before the settling ends");
        assert_eq!(policy.due(ms(1760)), Some(Action::Kill(Reason::NotRenewed)));
    }

    #[test]
    fn the_rest_of_a_stopped_command_gets_the_short_grace() {
        let mut policy = Policy::new(Settings::default(), lease(60_000));
        policy.learn(ms(0), Input::HolderGone);
        policy.learn(ms(500), Input::CommandEnded);
        assert_eq!(policy.due(ms(1499)), None);
        assert_eq!(policy.due(ms(1500)), Some(Action::Kill(Reason::HolderGone)));
    }
}
