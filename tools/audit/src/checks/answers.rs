//! Answers and what they answer: causes, results, versions (`wire-spec.md` sections 6.2, 6.5, 7 and 11.2).

use crate::auditor::Evidence;
use crate::event::{Answer, Cause, Event, What};
use crate::rule::Rule;
use crate::story::Asked;
use crate::verdict::{Court, Why};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{CancelOutcome, Class, Fate, Kind, LockClass, LockId, LockWait, Status};

pub(super) fn answer(evidence: &Evidence<'_>, event: &Event, answer: &Answer, court: &mut Court) {
    let name = answer.kind.name();
    match (answer.cause, answer.echo) {
        (Cause::Seen { frame, .. }, _) => {
            court.kept(Rule::HasCause);
            if answer.limit > 0 {
                let limit = usize::from(answer.limit).max(DATAGRAM_MIN);
                court.judge(Rule::AnswerLimit, event.length <= limit, event, Some(frame), || {
                    format!("{name} stands in a datagram of {} bytes; what it answers allowed {}", event.length, answer.limit)
                });
            }
        }
        (Cause::Other { frame }, Some(echo)) => court.broken(
            Rule::HasCause,
            event,
            Some(frame),
            format!("{name} of {} echoes packet {echo}, which did not carry that", answer.number),
        ),
        (Cause::Forgotten, _) => court.open(Rule::HasCause, Why::Forgotten),
        (Cause::Unseen, Some(echo)) => {
            let certain = if event.session.0 == 0 { Err(Why::Late) } else { evidence.whole(event.session) };
            court.accuse(Rule::HasCause, certain, event, None, || format!("{name} echoes packet {echo}, which was never sent"));
        }
        (_, None) => result_of_nothing(evidence, event, answer, court),
    }
    if let (Some(echo), true) = (answer.echo, event.session.0 != 0) {
        court.judge(Rule::AnsweredOnce, answer.repeats.is_none(), event, answer.repeats, || {
            format!("{name} of {} answers packet {echo} a second time: a copy of it was acted on", answer.number)
        });
    }
    if matches!(answer.kind, Kind::Ack | Kind::Result) {
        result(evidence, event, answer, court);
    }
}

/// RESULT echoes nothing; its request must have been there.
fn result_of_nothing(evidence: &Evidence<'_>, event: &Event, answer: &Answer, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    if session.requests.get(answer.number).is_some() {
        court.kept(Rule::HasCause);
    } else if session.requests.may_be_forgotten(answer.number) {
        court.open(Rule::HasCause, Why::Forgotten);
    } else {
        let what = || format!("RESULT of request {}, which was never sent", answer.number);
        court.accuse(Rule::HasCause, evidence.whole(event.session), event, None, what);
    }
}

/// What a reply says, beside what was said to the same request.
fn result(evidence: &Evidence<'_>, event: &Event, answer: &Answer, court: &mut Court) {
    let request = evidence.story.session(event.session).and_then(|session| session.requests.get(answer.number));
    let Some(request) = request else { return };
    if answer.status == Some(Status::NONCE_REUSED) {
        return;
    }
    match answer.unfit {
        None => court.kept(Rule::ReplyFits),
        Some(what) => {
            let what = format!("{} to {} {}: {what} differs from what was asked", reply_name(answer), request.kind.name(), answer.number);
            court.broken(Rule::ReplyFits, event, Some(request.first.frame), what);
        }
    }
    let refused = matches!(answer.status, Some(Status::BUSY | Status::IN_GRACE | Status::ECANCELED));
    if let Some(mark) = request.not_executed.filter(|_| !refused) {
        let what = format!("{} of {} says what came of it; a NACK said that it was not executed", answer.kind.name(), answer.number);
        court.broken(Rule::OneResult, event, Some(mark.frame), what);
    } else if let Some(mark) = request.cancelled.filter(|_| !refused) {
        let what = format!("{} of {} says what came of it; CANCELLED said that it was cancelled", answer.kind.name(), answer.number);
        court.broken(Rule::Cancelled, event, Some(mark.frame), what);
    } else if let Some(before) = answer.before {
        let kept = !answer.differs || !is_kept(request.kind);
        court.judge(Rule::OneResult, kept, event, Some(before), || {
            format!("{} of {} {} says something else than before", answer.kind.name(), request.kind.name(), answer.number)
        });
    } else {
        court.kept(Rule::OneResult);
    }
}

fn reply_name(answer: &Answer) -> &'static str {
    answer.reply.map_or("a reply", cistern_wire::ReplyKind::name)
}

/// Whether the reply to a request is kept as it is: those to reads may be made anew (section 11.2).
const fn is_kept(kind: Kind) -> bool {
    matches!(kind.class(), Some(Class::Mutation)) || matches!(kind, Kind::Lock)
}

/// A receipt is of a notice that was sent.
pub(super) fn receipt(evidence: &Evidence<'_>, event: &Event, seq: u64, of: Option<u64>, court: &mut Court) {
    let Some(session) = evidence.story.session(event.session) else { return };
    if of.is_some() {
        court.kept(Rule::HasCause);
        court.kept(Rule::NoticeReceipted);
    } else if session.notices.may_be_forgotten(seq) {
        court.open(Rule::HasCause, Why::Forgotten);
    } else {
        court.accuse(Rule::HasCause, evidence.whole(event.session), event, None, || {
            format!("RECEIPT of notice {seq}, which was never sent")
        });
    }
}

/// The rule is kept; or it is broken, if all of the session was seen.
fn accuse_unless(
    kept: bool,
    rule: Rule,
    (evidence, event, other): (&Evidence<'_>, &Event, Option<u64>),
    court: &mut Court,
    what: impl FnOnce() -> String,
) {
    if kept {
        court.kept(rule);
    } else {
        court.accuse(rule, evidence.whole(event.session), event, other, what);
    }
}

/// GRANT and WAIT_OVER end the wait of a request that was queued.
pub(super) fn notice(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Notice { kind, seq, nonce, lock, object, status, transmissions: 1, .. } = event.what else { return };
    let rule = match kind {
        Kind::Grant => Rule::GrantHasWaiter,
        Kind::WaitOver => Rule::WaitOver,
        _ => return,
    };
    let Some(session) = evidence.story.session(event.session) else { return };
    let Some(request) = session.requests.get(nonce) else {
        if session.requests.may_be_forgotten(nonce) {
            return court.open(rule, Why::Forgotten);
        }
        let what = || format!("{} for request {nonce}, which was never sent", kind.name());
        return court.accuse(rule, evidence.whole(event.session), event, None, what);
    };
    let first = Some(request.first.frame);
    let tell = |why: &str| format!("{} for {} {nonce}: {why}", kind.name(), request.kind.name());
    let Asked::Lock { object: asked, wait: LockWait::Queue, .. } = request.asked else {
        return court.broken(rule, event, first, tell("it asked for no place in a queue"));
    };
    if asked != object {
        return court.broken(rule, event, first, tell("it asked for another lock"));
    }
    match (lock, status) {
        (Some((_, generation)), _) if request.granted.is_some_and(|(granted, _)| granted != generation) => {
            court.broken(rule, event, first, tell("it was given another grant before"));
        }
        (Some(_), _) if let Some(cancelled) = request.cancelled.filter(|cancelled| cancelled.packet < event.packet) => {
            court.broken(rule, event, Some(cancelled.frame), tell("it was cancelled"));
        }
        (Some(_), _) if request.wait_over.is_some_and(|over| over < seq) => {
            court.broken(rule, event, first, tell("its wait was over"));
        }
        (None, Some(Status::ECANCELED)) if session.notices.is_short() || session.controls.is_short() => court.open(rule, Why::Forgotten),
        (None, Some(Status::ECANCELED)) => {
            let own = session.own.get(&LockId { object, class: LockClass::Advisory });
            let came_back = match request.granted {
                // Or the lock was granted anew since, and the request is asked about once more.
                Some((granted, by)) => by > seq || !session.grant_stands(LockId { object, class: LockClass::Advisory }, granted),
                None => {
                    // Of a CANCEL the answer may pass later, or be lost.
                    let cancel = session.controls.iter().any(|(_, control)| control.cancels == nonce);
                    cancel || request.wait_over < Some(seq) || own.is_some_and(|own| own.disowned.is_some())
                }
            };
            accuse_unless(came_back, rule, (evidence, event, first), court, || tell("no grant of it came back"));
        }
        // Two upgrades wait for each other: the first one's session was away when the second began.
        (None, Some(Status::EDEADLK)) if session.own_forgotten => court.open(rule, Why::Forgotten),
        (None, Some(Status::EDEADLK)) => {
            let upgrades = request.granted.is_none() && session.own.contains_key(&LockId { object, class: LockClass::Advisory });
            accuse_unless(upgrades, rule, (evidence, event, first), court, || tell("it had nothing to upgrade"));
        }
        (None, Some(Status::ESTALE | Status::BUSY)) => {
            let granted = request.granted.is_some_and(|(_, by)| by < seq);
            court.judge(rule, !granted, event, first, || tell("it was granted before"));
        }
        (None, status) => {
            court.broken(
                rule,
                event,
                first,
                tell(&format!("{} ends no wait", status.map_or_else(String::new, |status| status.to_string()))),
            );
        }
        _ => court.kept(rule),
    }
}

/// What CANCELLED says of a request.
pub(super) fn cancelled(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Cancelled { serial, nonce, outcome, generation } = event.what else { return };
    let Some(session) = evidence.story.session(event.session) else { return };
    let rule = Rule::Cancelled;
    let tell = |why: &str| format!("CANCELLED of request {nonce} says {outcome}: {why}");
    if let Some(control) = session.controls.get(serial).filter(|control| control.cancels != nonce) {
        let what = format!("CANCEL {serial} named request {}", control.cancels);
        return court.broken(rule, event, Some(control.first.frame), tell(&what));
    }
    if (outcome == CancelOutcome::Granted) != (generation.0 > 0) {
        return court.broken(rule, event, None, tell("with \"granted\", and with nothing else, goes a generation"));
    }
    let Some(request) = session.requests.get(nonce) else {
        // One that never came is cancelled as well, but never granted.
        return match outcome {
            CancelOutcome::Granted if session.requests.may_be_forgotten(nonce) => court.open(rule, Why::Forgotten),
            CancelOutcome::Granted => court.accuse(rule, evidence.whole(event.session), event, None, || tell("it was never sent")),
            CancelOutcome::Cancelled | CancelOutcome::Answered => court.kept(rule),
        };
    };
    let first = Some(request.first.frame);
    let answered = request.replied.filter(|replied| !replied.refused);
    let lock = match request.asked {
        Asked::Lock { object, .. } => Some(LockId { object, class: LockClass::Advisory }),
        _ => None,
    };
    match outcome {
        CancelOutcome::Granted if lock.is_none() => court.broken(rule, event, first, tell("it asked for no lock")),
        CancelOutcome::Granted if request.granted.is_some_and(|(granted, _)| granted != generation) => {
            court.broken(rule, event, first, tell("it was given another grant"));
        }
        CancelOutcome::Cancelled if let Some(replied) = answered => {
            court.broken(rule, event, Some(replied.mark.frame), tell("it was answered"));
        }
        CancelOutcome::Cancelled if let (Some(lock), Some((granted, _))) = (lock, request.granted) => {
            let stands = session.grant_stands(lock, granted);
            accuse_unless(!stands, rule, (evidence, event, first), court, || tell("its grant stands"));
        }
        _ => court.kept(rule),
    }
}

/// Versions that a mutation makes, and that answers show.
pub(super) fn versions(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    match &event.what {
        What::Changed { object, version, nonce, by_other, .. } => {
            let server = evidence.story.session(event.session).and_then(|session| evidence.story.servers.get(&session.server));
            if by_other.is_none() && server.is_some_and(|server| server.short.objects) {
                return court.open(Rule::OneEffect, Why::Forgotten);
            }
            court.judge(Rule::OneEffect, by_other.is_none(), event, None, || {
                let (session, other) = by_other.unwrap_or_default();
                format!("request {nonce} has made version {version} of {object}, and so has request {other} of session {session}")
            });
        }
        What::Older { object, version, newer, shown, nonce } => {
            let request = evidence.story.session(event.session).and_then(|session| session.requests.get(*nonce));
            let Some(request) = request else { return };
            if let Err(why) = evidence.story.steady(shown.1.min(request.first.frame)) {
                return court.open(Rule::VersionsForward, why);
            }
            if request.first.at <= shown.0 || request.first.frame <= shown.1 {
                // It was asked for before, and may have been executed before.
                return court.kept(Rule::VersionsForward);
            }
            court.accuse(Rule::VersionsForward, evidence.whole(event.session), event, Some(shown.1), || {
                format!("request {nonce} is shown version {version} of {object}; version {newer} was shown before it was asked")
            });
        }
        _ => {}
    }
}

/// What a NACK says of a request.
pub(super) fn fate(event: &Event, court: &mut Court) {
    let What::Nack { nonce, fate, executed, .. } = event.what else { return };
    if nonce == 0 {
        return;
    }
    let kept = fate != Fate::NotExecuted || executed.is_none();
    court.judge(Rule::OneResult, kept, event, executed, || format!("a NACK says that request {nonce} was not executed; it was answered"));
}
