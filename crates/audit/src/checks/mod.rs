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

use crate::auditor::Bench;
use crate::event::{Event, Passage, What};
use crate::verdict::Court;

/// Judges one event.
pub(crate) fn judge(bench: &Bench<'_>, event: &Event, passage: Passage<'_>, court: &mut Court) {
    match &event.what {
        What::Unreadable { reason } => shape::unreadable(bench, event, *reason, passage, court),
        What::NumberTwice { of } => shape::number_twice(event, *of, court),
        What::Copy { .. } | What::Hint | What::Hello { .. } | What::GivesUp { .. } => {}
        What::Welcome { session, .. } => {
            openings::welcome(bench, event, court);
            recovery::welcome(bench, event, *session, court);
        }
        What::Request { .. } => agents::request(bench, event, court),
        What::Uses { .. } => locks::uses(bench, event, court),
        What::Control { .. } => agents::control(bench, event, court),
        What::Notice { .. } => {
            standing::notice(bench, event, court);
            answers::notice(bench, event, court);
        }
        What::Unreceipted { seq, first } => agents::unreceipted(bench, event, *seq, *first, court),
        What::Receipt { seq, of, .. } => answers::receipt(bench, event, *seq, *of, court),
        What::Answer(answer) => {
            answers::answer(bench, event, answer, court);
            openings::answer(bench, event, answer, passage, court);
            standing::answer(bench, event, answer, court);
            recovery::answer(bench, event, answer, court);
        }
        What::Granted(grant) => {
            locks::granted(bench, event, grant, court);
            recovery::granted(bench, event, grant, court);
        }
        What::Overlaps { generation, with, session, frame } => {
            let certain = bench.story.session(event.session).and_then(|own| own.opened).map(|_| ()).ok_or(crate::verdict::Why::Late);
            court.accuse(crate::rule::Rule::TokensOnce, certain, event, Some(*frame), || {
                format!("grant {generation} has tokens of grant {with} to session {session}")
            });
        }
        What::Released { .. } => locks::released(bench, event, court),
        What::Changed { .. } | What::Older { .. } => answers::versions(bench, event, court),
        What::Nack { .. } => standing::nack(bench, event, court),
        What::Gone { .. } => recovery::gone(bench, event, court),
        What::Cancelled { .. } => {}
        What::Passed { .. } | What::PassedUnknown { .. } | What::RenewedAfterSteal { .. } => standing::passed(bench, event, court),
        What::Restarted { .. } => {}
        What::Path { .. } => {}
    }
}

/// Judges a datagram as a whole.
pub(crate) fn datagram(bench: &Bench<'_>, passage: Passage<'_>, court: &mut Court) {
    // A datagram that nobody known sent has no event to judge it by.
    let Some(event) = bench.story.events().first() else { return };
    if matches!(event.what, What::Unreadable { .. } | What::Copy { .. }) {
        return;
    }
    shape::sizes(bench, event, passage, court);
    openings::exchanged(bench, event, passage, court);
}
