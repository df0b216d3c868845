//! Locks: generations, tokens, what is given back, the order of a queue (`wire-spec.md` section 11.4).

use crate::auditor::Evidence;
use crate::event::{Event, Grant, How, What};
use crate::rule::Rule;
use crate::story::Session;
use crate::verdict::{Court, Why};
use cistern_wire::{Generation, LockClass, Mode};

/// Bits of a generation below the store's epoch.
const EPOCH_SHIFT: u32 = 56;

pub(super) fn granted(evidence: &Evidence<'_>, event: &Event, grant: &Grant, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    let generation = grant.generation;
    if let How::Downgrade { of } = grant.how {
        court.judge(Rule::GenerationsGrow, generation > of, event, None, || {
            format!("generation {of} of {} is downgraded to generation {generation}", grant.lock)
        });
    }
    if grant.how == How::Reclaim || !grant.news {
        return;
    }
    let epoch = session.incarnation.map(|(epoch, _)| u64::from(epoch));
    if epoch.is_some_and(|epoch| generation.0 >> EPOCH_SHIFT != epoch) {
        let what = format!("{} is granted generation {generation}, which is of another epoch than the store's", grant.lock);
        return court.broken(Rule::GenerationsGrow, event, None, what);
    }
    let runs_from = evidence.story.servers.get(&session.server).map_or(0, |server| server.runs_from);
    if generation.0 < runs_from {
        court.open(Rule::TokensOnce, Why::Forgotten);
    } else if !overlaps(evidence, generation) {
        court.kept(Rule::TokensOnce);
    }
    match session.requests.get(grant.nonce).filter(|_| grant.nonce > 0) {
        None if matches!(grant.how, How::Downgrade { .. }) => {}
        None => court.open(Rule::GenerationsGrow, Why::Forgotten),
        Some(request) if generation.0 > request.generation_then => court.kept(Rule::GenerationsGrow),
        Some(request) => {
            court.accuse(Rule::GenerationsGrow, evidence.whole(event.session), event, Some(request.first.frame), || {
                let then = request.generation_then;
                format!("{} is granted generation {generation}; {then} was granted before it was asked for", grant.lock)
            });
        }
    }
    queue(evidence, event, grant, court);
}

/// Whether the tokens of a grant in this datagram were given before, which is judged by itself.
fn overlaps(evidence: &Evidence<'_>, generation: Generation) -> bool {
    evidence.story.events().iter().any(|event| matches!(event.what, What::Overlaps { generation: of, .. } if of == generation))
}

/// A shared request must not pass an exclusive one that has waited since before it was made.
fn queue(evidence: &Evidence<'_>, event: &Event, grant: &Grant, court: &mut Court) {
    if grant.lock.class != LockClass::Advisory || grant.mode != Mode::Shared || grant.nonce == 0 {
        return;
    }
    let Some(session) = evidence.story.session(event.session) else { return };
    let (Some(server), Some(request)) = (evidence.story.servers.get(&session.server), session.requests.get(grant.nonce)) else { return };
    // Of a lock that it has already, its agent only asks for a new generation.
    let had = session.own.get(&grant.lock).is_some_and(|own| {
        let before = own.given.iter().rev().find(|given| **given < grant.generation);
        before.is_some_and(|before| own.disowned.is_none_or(|(up_to, _)| up_to < *before))
    });
    let waiting = server.waiting.get(&grant.lock.object).into_iter().flatten();
    let passed = waiting.filter(|(of, _, queued)| *of != event.session && queued.frame < request.first.frame).find(|(of, ..)| {
        // One that may have failed is passed over.
        let waiter = evidence.story.session(*of);
        let sound = |waiter: &Session| {
            let receipted =
                waiter.open.is_empty() && !waiter.notices.is_short() && waiter.notices.iter().all(|(_, notice)| notice.transmissions < 3);
            receipted && waiter.owed.is_empty() && !waiter.superseded && waiter.nack.is_none()
        };
        waiter.is_some_and(sound)
    });
    match passed.filter(|_| !had) {
        None if server.short.waiting => court.open(Rule::QueueOrder, Why::Forgotten),
        None => court.kept(Rule::QueueOrder),
        Some((of, nonce, queued)) => {
            let certain = evidence.inside_server().and_then(|()| evidence.whole(event.session)).and_then(|()| evidence.whole(*of));
            court.accuse(Rule::QueueOrder, certain, event, Some(queued.frame), || {
                format!("{} is granted shared, while request {nonce} of session {of} has waited for it since before", grant.lock)
            });
        }
    }
}

/// What an agent gives back was its own.
pub(super) fn released(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Released { lock, generation, given, .. } = event.what else { return };
    match given {
        Some(true) => court.kept(Rule::ReleaseGranted),
        None => court.open(Rule::ReleaseGranted, Why::Forgotten),
        Some(false) => court.accuse(Rule::ReleaseGranted, evidence.whole(event.session), event, None, || {
            format!("generation {generation} of {lock} is given back, and was never granted to the session")
        }),
    }
}

/// What an agent names as its own was its own; a request that has waited to be sent may name what was given back since.
pub(super) fn uses(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Uses { lock, generation, given, of } = event.what else { return };
    let own = evidence.story.session(event.session).and_then(|session| session.agent);
    let other = of.and_then(|of| evidence.story.session(of)).filter(|other| other.agent.is_some() && own.is_some() && other.agent != own);
    match (given, other) {
        (Some(true), _) => court.kept(Rule::UseGranted),
        (_, Some(other)) => {
            let what = format!("generation {generation} of {lock} is named as held; it was granted to session {}", other.id);
            court.broken(Rule::UseGranted, event, None, what);
        }
        // It may be what a former session of the same agent had: a request may have been made in that.
        _ => court.open(Rule::UseGranted, Why::Forgotten),
    }
}
