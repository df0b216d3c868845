//! Restart: incarnations, grace, reclaim, and what is said of former sessions (`wire-spec.md` sections 11.6 and 11.7).

use crate::auditor::Evidence;
use crate::event::{Answer, Event, Grant, How, What};
use crate::rule::Rule;
use crate::story::{Asked, Server, Session};
use crate::verdict::{Court, Why};
use cistern_wire::{SessionFate, SessionId};

/// A WELCOME: which start of the server it is.
pub(super) fn welcome(evidence: &Evidence<'_>, event: &Event, session: SessionId, court: &mut Court) {
    let What::Welcome { incarnation, again, .. } = &event.what else { return };
    let Some(server) = evidence.story.session(session).and_then(|session| evidence.story.servers.get(&session.server)) else { return };
    match server.incarnation {
        Some((newest, mark)) if newest > *incarnation => {
            court.accuse(Rule::Incarnation, evidence.in_order(), event, Some(mark.frame), || {
                format!("WELCOME names incarnation {incarnation:?}; {newest:?} was named before")
            });
        }
        _ => court.kept(Rule::Incarnation),
    }
    if let Some((then, frame)) = server.forgot.filter(|(then, _)| then == incarnation && !*again) {
        court.accuse(Rule::Incarnation, evidence.in_order(), event, Some(frame), || {
            format!("incarnation {then:?} was started anew: it did not know a session of its own that cannot have ended")
        });
    }
}

/// OPENED: what it says of former sessions.
pub(super) fn opened(evidence: &Evidence<'_>, event: &Event, former: &[(SessionId, SessionFate)], court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    let (Some(server), Some(incarnation)) = (evidence.story.servers.get(&session.server), session.incarnation) else { return };
    for (id, fate) in former.iter().filter(|(_, fate)| *fate == SessionFate::Ended) {
        // Of another agent's sessions nothing is told.
        match evidence.story.session(*id).filter(|known| known.agent == session.agent) {
            Some(known)
                if cannot_have_ended(evidence, server, known, event) && known.incarnation.map(|one| one.0) == Some(incarnation.0) =>
            {
                let certain = evidence.story.steady(known.echo_frame).and_then(|()| evidence.in_order()).and_then(|()| evidence.whole(*id));
                court.accuse(Rule::FormerFate, certain, event, known.opened.map(|opened| opened.frame), || {
                    format!("session {id} is said to have ended ({fate}); it holds locks, and T since it was last renewed is not over")
                });
            }
            // What it held, or when it was renewed last, may be forgotten.
            Some(known) if may_not_have_ended(evidence, server, known, event) => court.open(Rule::FormerFate, Why::Forgotten),
            // What has taken long enough by a clock that was set back may not have.
            Some(known) if holds(server, known) && evidence.story.steady(known.echo_frame).is_err() => {
                court.open(Rule::FormerFate, Why::Clock);
            }
            _ => court.kept(Rule::FormerFate),
        }
    }
}

/// Whether a session holds something, was given up by nobody, and its lease can last.
fn cannot_have_ended(evidence: &Evidence<'_>, server: &Server, session: &Session, event: &Event) -> bool {
    let (Some(echo), Some(promise)) = (session.newest_echo, session.promise) else { return false };
    let within = evidence.story.vantage().is_shorter(event.at.saturating_sub(echo), promise.wait);
    within && holds(server, session)
}

/// Whether that may be so, for all that was not forgotten.
fn may_not_have_ended(evidence: &Evidence<'_>, server: &Server, session: &Session, event: &Event) -> bool {
    let (Some(echo), Some(promise)) = (session.newest_echo.max(session.echo_latest), session.promise) else { return false };
    let within = evidence.story.vantage().is_shorter(event.at.saturating_sub(echo), promise.wait);
    let forgotten = session.echo_latest.is_some() && holds(server, session) || server.short.holds.is_some() && is_free(session);
    within && forgotten
}

/// Whether a session holds something, and was given up by nobody.
fn holds(server: &Server, session: &Session) -> bool {
    is_free(session) && server.holds.values().flatten().any(|hold| hold.session == session.id)
}

/// Whether a session was given up by nobody.
const fn is_free(session: &Session) -> bool {
    session.given_up.is_none() && session.stolen.is_none() && session.nack.is_none() && session.ended.is_none()
}

/// An ephemeral file is gone, and nobody is known to have taken it away.
pub(super) fn gone(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Gone { object, owner, removed, unanswered } = event.what else { return };
    let Some(owner) = owner else { return court.open(Rule::Ephemeral, Why::Forgotten) };
    let Some(session) = evidence.story.session(owner) else { return court.open(Rule::Ephemeral, Why::Late) };
    let over = session.given_up.is_some() || session.ended.is_some();
    let (Some(echo), Some(promise)) = (session.newest_echo, session.promise) else {
        return court.open(Rule::Ephemeral, Why::Unpromised);
    };
    let span = event.at.saturating_sub(echo);
    if let (Err(why), false) = (evidence.story.steady(session.echo_frame), removed || over) {
        return court.open(Rule::Ephemeral, why);
    }
    let is_shorter = |since: std::time::Duration| evidence.story.vantage().is_shorter(event.at.saturating_sub(since), promise.wait);
    if removed || over || !is_shorter(echo) {
        // What was renewed last may be forgotten.
        let late = session.echo_latest.is_some_and(is_shorter) && !(removed || over);
        return if late { court.open(Rule::Ephemeral, Why::Forgotten) } else { court.kept(Rule::Ephemeral) };
    }
    let certain = evidence.in_order().and_then(|()| evidence.whole(owner));
    let certain = certain.and(if unanswered { Err(Why::Unanswered) } else { Ok(()) });
    // What took it away may have been forgotten.
    let short = evidence.story.servers.get(&session.server).is_some_and(|server| server.short.objects);
    let certain = certain.and(if short { Err(Why::Forgotten) } else { Ok(()) });
    court.accuse(Rule::Ephemeral, certain, event, None, || {
        format!("{object} of session {owner} is gone {span:?} after what that was answered last was seen; T is {:?}", promise.wait)
    });
}

/// Something is said in a session of an earlier start, or a session is not known that must be.
pub(super) fn answer(evidence: &Evidence<'_>, event: &Event, answer: &Answer, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    let Some(server) = evidence.story.servers.get(&session.server) else { return };
    let (Some(own), Some((newest, mark))) = (session.incarnation, server.incarnation) else { return };
    if answer.kind == cistern_wire::Kind::Hint {
        return;
    }
    if own >= newest {
        return court.kept(Rule::Incarnation);
    }
    court.accuse(Rule::Incarnation, evidence.in_order(), event, Some(mark.frame), || {
        format!("{} in a session of incarnation {own:?}; {newest:?} has been started since", answer.kind.name())
    });
}

/// A grant: in grace only what is reclaimed; and reclaimed only from a former session that may be.
pub(super) fn granted(evidence: &Evidence<'_>, event: &Event, grant: &Grant, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    let Some(server) = evidence.story.servers.get(&session.server) else { return };
    if grant.how == How::Reclaim {
        return reclaimed(evidence, event, grant, server, court);
    }
    if !grant.news || !matches!(grant.how, How::Answer | How::Notice) || session.incarnation != server.incarnation.map(|(now, _)| now) {
        return;
    }
    let nobody = server.awaited.is_empty() && server.perhaps_awaited.is_empty();
    if let (Err(why), false) = (evidence.story.steady(server.died_frame), nobody) {
        return court.open(Rule::Grace, why);
    }
    let is_early = |awaited: &&Session| {
        // One that asked for its lease may be long, and holds up nobody but who wants its very locks.
        let wait = awaited.promise.filter(|_| !awaited.asked).map(|promise| promise.wait);
        wait.is_some_and(|wait| evidence.story.vantage().is_shorter(event.at.saturating_sub(server.died_after), wait))
    };
    let of = |id: &SessionId| evidence.story.session(*id);
    match server.awaited.iter().filter_map(of).find(is_early) {
        None if server.perhaps_awaited.iter().filter_map(of).any(|awaited| is_early(&awaited)) => court.open(Rule::Grace, Why::Forgotten),
        None => court.kept(Rule::Grace),
        Some(awaited) => {
            let certain = evidence.in_order().and_then(|()| evidence.whole(awaited.id));
            court.accuse(Rule::Grace, certain, event, None, || {
                format!(
                    "{} is granted anew; session {} may hold locks of before the start, and T since then is not over",
                    grant.lock, awaited.id
                )
            });
        }
    }
}

fn reclaimed(evidence: &Evidence<'_>, event: &Event, grant: &Grant, server: &Server, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    let Some((request, from)) = session.requests.get(grant.nonce).and_then(|request| match request.asked {
        Asked::Reclaim { from, .. } => Some((request, from)),
        _ => None,
    }) else {
        return;
    };
    let Some(former) = evidence.story.session(from) else { return court.open(Rule::Reclaim, Why::Late) };
    let tell = |why: String| format!("{} generation {} is reclaimed from session {from}: {why}", grant.lock, grant.generation);
    if former.agent.is_none() || session.agent.is_none() || former.opened.is_none() {
        return court.open(Rule::Reclaim, Why::Late);
    }
    if (former.agent, former.agent_incarnation) != (session.agent, session.agent_incarnation) {
        return court.broken(Rule::Reclaim, event, None, tell("it belongs to another agent, or to another start of this one".to_owned()));
    }
    let (was, is) = (former.incarnation.unwrap_or_default(), session.incarnation.unwrap_or_default());
    if was.0 != is.0 || was >= is {
        return court.broken(Rule::Reclaim, event, None, tell(format!("it is of incarnation {was:?}, and this of {is:?}")));
    }
    if let Some(frame) = server.completed.get(&from).filter(|frame| **frame < request.first.frame) {
        return court.broken(Rule::Reclaim, event, Some(*frame), tell("its reclaim was completed before".to_owned()));
    }
    // One that asked for its lease may be long, and then it may be reclaimed from as long as no start has waited for its own T.
    let missed = server.ordinary.iter().find(|(between, _)| !former.asked && **between > was && **between < is);
    if let Some((missed, frame)) = missed {
        let what = tell(format!("it missed the grace of incarnation {missed:?}, which has granted something since"));
        return court.broken(Rule::Reclaim, event, Some(*frame), what);
    }
    match former.was_given(grant.lock, grant.generation) {
        Some(true) if server.short.ordinary => court.open(Rule::Reclaim, Why::Forgotten),
        Some(true) => court.kept(Rule::Reclaim),
        None => court.open(Rule::Reclaim, Why::Forgotten),
        Some(false) => {
            court.accuse(Rule::Reclaim, evidence.whole(from), event, None, || tell("it was never granted that generation".to_owned()));
        }
    }
}
