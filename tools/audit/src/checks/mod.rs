//! The checks: which rule each event is judged by.
//!
//! Decides nothing by itself. Place in the walk: after the story has taken a datagram in, once for each event. Invariant: what rests on
//! an absence is only called a violation where the capture lost nothing, and what rests on an order only where the vantage shows it.
//! Leaves to others: what was seen (`story`), counting (`verdict`).

mod agents;
mod answers;
mod locks;
mod openings;
mod recovery;
mod shape;
mod standing;

#[cfg(test)]
mod tests;

use crate::auditor::Evidence;
use crate::event::{Event, Passage, What};
use crate::verdict::Court;

/// Judges one event.
pub(crate) fn judge(evidence: &Evidence<'_>, event: &Event, passage: Passage<'_>, court: &mut Court) {
    match &event.what {
        What::Unreadable { reason } => shape::unreadable(evidence, event, *reason, passage, court),
        What::NumberTwice { of } => shape::number_twice(event, *of, court),
        What::Copy { .. } | What::Hint | What::Hello { .. } | What::GivesUp { .. } => {}
        What::Welcome { session, .. } => {
            openings::welcome(evidence, event, court);
            recovery::welcome(evidence, event, *session, court);
        }
        What::Opened { former } => {
            openings::opened(evidence, event, former, court);
            recovery::opened(evidence, event, former, court);
        }
        What::Request { .. } => agents::request(evidence, event, court),
        What::Uses { .. } => locks::uses(evidence, event, court),
        What::Control { .. } => agents::control(evidence, event, court),
        What::Notice { .. } => {
            standing::notice(evidence, event, court);
            answers::notice(evidence, event, court);
        }
        What::Unreceipted { seq, first } => agents::unreceipted(evidence, event, *seq, *first, court),
        What::Receipt { seq, of, .. } => answers::receipt(evidence, event, *seq, *of, court),
        What::Answer(answer) => {
            answers::answer(evidence, event, answer, court);
            openings::answer(evidence, event, answer, passage, court);
            standing::answer(evidence, event, answer, court);
            recovery::answer(evidence, event, answer, court);
        }
        What::Granted(grant) => {
            locks::granted(evidence, event, grant, court);
            recovery::granted(evidence, event, grant, court);
        }
        What::Overlaps { generation, with, session, frame } => {
            let certain = evidence.story.session(event.session).and_then(|own| own.opened).map(|_| ()).ok_or(crate::verdict::Why::Late);
            court.accuse(crate::rule::Rule::TokensOnce, certain, event, Some(*frame), || {
                format!("grant {generation} has tokens of grant {with} to session {session}")
            });
        }
        What::Released { .. } => locks::released(evidence, event, court),
        What::Changed { .. } | What::Older { .. } => answers::versions(evidence, event, court),
        What::Nack { .. } => standing::nack(evidence, event, court),
        What::Gone { .. } => recovery::gone(evidence, event, court),
        What::Cancelled { .. } => answers::cancelled(evidence, event, court),
        What::Passed { .. } | What::PassedUnknown { .. } | What::RenewedAfterSteal { .. } => standing::passed(evidence, event, court),
        What::Restarted { .. } => {}
        What::Path { .. } => {}
    }
}

/// Judges a datagram as a whole.
pub(crate) fn datagram(evidence: &Evidence<'_>, passage: Passage<'_>, court: &mut Court) {
    // A datagram that nobody known sent has no event to judge it by.
    let Some(event) = evidence.story.events().first() else { return };
    if matches!(event.what, What::Unreadable { .. } | What::Copy { .. }) {
        return;
    }
    shape::sizes(evidence, event, passage, court);
    openings::exchanged(evidence, event, passage, court);
}
