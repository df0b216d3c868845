//! The deliberate bugs: what each changes, and what the model must say about it.
//!
//! Decides the ledger that the command `bugs` runs. A bug is a value of [`Bug`], chosen at run time; the few places that ask for it are
//! in [`crate::agent`], [`crate::server`] and [`crate::rules`]. Each has one property that must break, and is run on until it does:
//! a defence may be backed by another one, so that only a white-box property shows that it is gone. Numbers Mnn are those of the
//! simulator's ledger of deliberate bugs.

use crate::properties::Name;
use crate::rules::Rules;
use clap::ValueEnum;
use serde::Serialize;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Bug {
    /// The server steals as soon as a delivery has failed (M6)
    StealAtOnce,
    /// A lock asked for again by its holder keeps its generation, and an agent takes back what it released (M18)
    SameGeneration,
    /// The server's timer is τ instead of τ(1+δ) (M3)
    NoDelta,
    /// An agent installs a grant that it was already asked to give back (M16)
    GrantDemandRace,
    /// The lease is counted from the receipt of the answer (M1)
    LeaseFromReceipt,
    /// The server's timer is counted from the first demand (M5)
    TimerFromDemand,
    /// A session that is timing out is served as before (M4)
    AckWhileTiming,
    /// The lease is counted from the last transmission, whichever is answered (M2)
    LeaseFromLast,
    /// Sending NACK makes an ended session good again (M13)
    ClearedOnNack,
    /// An agent keeps its lock when it is told NACK (M12)
    NackIgnored,
    /// A session is rescued although a NACK was produced for it
    RescueAfterNack,
    /// A rescued session that fails again waits only for the rest of its first timer
    RescueKeepsTimer,
    /// An agent surrenders while a user may still act on the lock
    SurrenderEarly,
    /// Last-heard notes the first receipt of a request, but not those answered from the reply cache
    HeardFirstOnly,
    /// A repeated lock request is executed again (M29)
    ExecutedTwice,
    /// A release from a session that is timing out makes it good again (M14)
    ReleaseCancelsTimer,
    /// A repeated CONFIRM makes its session good again in any state
    RecoverAnyState,
    /// Another session of an agent frees the lock of its former one at once
    ConfirmFreesAtOnce,
    /// A release frees whatever its agent holds, not the generation that it names (M19)
    ReleaseFreesAny,
    /// The notice of a grant renews the lease (M7)
    NoticeRenews,
    /// An agent takes an answer that arrives after the NACK of its session, though it has surrendered
    AnswerAfterNack,
    /// A steal frees the lock and leaves the session good (M24)
    StealKeepsSession,
}

/// One row of the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The bug.
    pub bug: Bug,
    /// What must break.
    pub breaks: Name,
}

/// Every bug, with the property that must break. Where that is not exclusion, other defences keep exclusion safe.
pub const LEDGER: &[Row] = &[
    row(Bug::StealAtOnce, Name::Exclusion),
    row(Bug::SameGeneration, Name::Exclusion),
    row(Bug::NoDelta, Name::Exclusion),
    row(Bug::GrantDemandRace, Name::Exclusion),
    row(Bug::LeaseFromReceipt, Name::Exclusion),
    row(Bug::TimerFromDemand, Name::Exclusion),
    row(Bug::AckWhileTiming, Name::Exclusion),
    row(Bug::LeaseFromLast, Name::Exclusion),
    row(Bug::ClearedOnNack, Name::Exclusion),
    row(Bug::NackIgnored, Name::Exclusion),
    row(Bug::RescueAfterNack, Name::NoComeback),
    row(Bug::RescueKeepsTimer, Name::Exclusion),
    row(Bug::SurrenderEarly, Name::Exclusion),
    row(Bug::HeardFirstOnly, Name::Exclusion),
    row(Bug::ExecutedTwice, Name::Once),
    row(Bug::ReleaseCancelsTimer, Name::NoComeback),
    row(Bug::RecoverAnyState, Name::Exclusion),
    row(Bug::ConfirmFreesAtOnce, Name::Exclusion),
    row(Bug::ReleaseFreesAny, Name::Exclusion),
    row(Bug::NoticeRenews, Name::Exclusion),
    row(Bug::AnswerAfterNack, Name::Exclusion),
    row(Bug::StealKeepsSession, Name::Exclusion),
];

const fn row(bug: Bug, breaks: Name) -> Row {
    Row { bug, breaks }
}

impl Row {
    /// The row of a bug.
    pub fn of(bug: Bug) -> Row {
        *LEDGER.iter().find(|row| row.bug == bug).expect("every bug has a row, as a test checks")
    }

    /// These rules with the bug in place and the option that it needs.
    pub fn rules(&self, rules: &Rules) -> Rules {
        Rules {
            rescue: matches!(self.bug, Bug::RescueAfterNack | Bug::RescueKeepsTimer),
            surrender: matches!(self.bug, Bug::SurrenderEarly | Bug::AnswerAfterNack),
            last_heard: self.bug == Bug::HeardFirstOnly,
            bug: Some(self.bug),
            ..rules.clone()
        }
    }
}

impl Bug {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
