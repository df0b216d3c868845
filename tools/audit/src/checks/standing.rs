//! Standing: what a session that has failed or ended may still get, and when it may fail (`wire-spec.md` section 11.3).

use super::answers;
use crate::auditor::Evidence;
use crate::event::{Answer, Cause, Event, What};
use crate::rule::Rule;
use crate::story::{Notice, Session};
use crate::verdict::{Court, Why};
use cistern_wire::{Kind, NackReason, SessionId};
use std::time::Duration;

/// Transmissions before a delivery may fail.
const TRANSMISSIONS: u32 = 3;

/// The largest part of τ that an RTO may be.
const RTO_SHARE: u32 = 8;

/// What a server may take beyond a deadline: turns, and work in them.
const LEEWAY: Duration = Duration::from_millis(100);

/// Nothing renews after a NACK or an ENDED; and not for long over a notice that nobody receipts.
pub(super) fn answer(evidence: &Evidence<'_>, event: &Event, answer: &Answer, court: &mut Court) {
    if event.session.0 == 0 || !answer.kind.renews() {
        return;
    }
    let Some(session) = evidence.story.session(event.session) else { return };
    let nack = session.nack.filter(|nack| nack.packet <= event.packet);
    let refusal = nack.or(session.ended.filter(|ended| ended.packet < event.packet));
    court.judge(Rule::NoRenewal, refusal.is_none(), event, refusal.map(|mark| mark.frame), || {
        format!("{} of {} renews a session that was refused or ended before", answer.kind.name(), answer.number)
    });
    abandoned(evidence, event, session, court);
    keep_alive(evidence, event, session, answer, court);
}

/// What comes after a KEEPALIVE is not answered before it.
fn keep_alive(evidence: &Evidence<'_>, event: &Event, session: &Session, answer: &Answer, court: &mut Court) {
    let Some((mark, answered)) = session.keep_alive else { return };
    let later = matches!(answer.cause, Cause::Seen { frame, .. } if frame > mark.frame);
    if answered || !later {
        return court.kept(Rule::KeepAliveAnswered);
    }
    // It may have failed before the answer went out, and have been rescued since: nothing that is written shows that.
    let failed = |notice: &Notice| notice.transmissions >= TRANSMISSIONS && notice.receipted.is_none_or(|at| at >= mark.at);
    if session.notices.iter().any(|(_, notice)| failed(notice)) {
        return court.open(Rule::KeepAliveAnswered, Why::Outside);
    }
    let certain = evidence.inside_server().and_then(|()| evidence.whole(event.session));
    court.accuse(Rule::KeepAliveAnswered, certain, event, Some(mark.frame), || {
        format!("packet {} is answered, and the KEEPALIVE in packet {} is not", answer.echo.unwrap_or_default(), mark.packet)
    });
}

/// A notice that is open, was sent often enough to fail, and is neither sent again nor has failed although the server listened.
fn abandoned(evidence: &Evidence<'_>, event: &Event, session: &Session, court: &mut Court) {
    let (Some(promise), Some(server)) = (session.promise, evidence.story.servers.get(&session.server)) else { return };
    let open = session.open.iter().filter_map(|seq| Some((seq, session.notices.get(*seq)?)));
    let Some((seq, notice)) = open.filter(|(_, notice)| notice.transmissions >= TRANSMISSIONS).min_by_key(|(_, notice)| notice.listened)
    else {
        return if session.open_forgotten { court.open(Rule::NotAbandoned, Why::Forgotten) } else { court.kept(Rule::NotAbandoned) };
    };
    if let Err(why) = evidence.story.steady(notice.first.frame) {
        return court.open(Rule::NotAbandoned, why);
    }
    let bound = promise.delivery_timeout + promise.tau / RTO_SHARE * 2 + LEEWAY;
    let span = server.listened.saturating_sub(notice.listened);
    if promise.delivery_timeout.is_zero() || span <= bound {
        return court.kept(Rule::NotAbandoned);
    }
    let certain = evidence.inside_server().and_then(|()| evidence.whole(event.session));
    court.accuse(Rule::NotAbandoned, certain, event, Some(notice.first.frame), || {
        format!(
            "the session is renewed {span:?} after notice {seq} was sent for the {}th time, and it is not receipted",
            notice.transmissions
        )
    });
}

/// When a session is refused for the first time.
pub(super) fn nack(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    answers::fate(event, court);
    let What::Nack { reason, first, .. } = event.what else { return };
    let Some(session) = evidence.story.session(event.session) else { return };
    if let Some(renewed) = session.newest_renewal.filter(|renewed| renewed.packet > event.packet) {
        let what = format!("packet {} renews the session, and packet {} has refused it before", renewed.packet, event.packet);
        court.broken(Rule::NoRenewal, event, Some(renewed.frame), what);
    }
    if !first || reason != NackReason::TimingOut {
        return;
    }
    // One that its agent gave up is refused until its end is durable. A receipt or a release may have come after the decision.
    let often = session.notices.iter().any(|(_, notice)| notice.transmissions >= TRANSMISSIONS);
    if often || session.may_have_owed || session.superseded || session.given_up.is_some() {
        return court.kept(Rule::FailureNotices);
    }
    let certain = evidence.inside_server().and_then(|()| evidence.whole(event.session));
    let certain = certain.and(if session.notices.is_short() { Err(Why::Forgotten) } else { Ok(()) });
    let certain = certain.and(if evidence.terms.no_evictions { Ok(()) } else { Err(Why::Evicted) });
    court.accuse(Rule::FailureNotices, certain, event, None, || {
        "the session is refused, and no notice of it was sent three times in vain, nor any demand disregarded".to_owned()
    });
}

/// A notice goes out.
pub(super) fn notice(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Notice { kind, seq, first, transmissions, object, changed, .. } = event.what else { return };
    court.judge(Rule::RepeatUnchanged, !changed, event, Some(first), || format!("notice {seq} says something else than before"));
    let Some(session) = evidence.story.session(event.session) else { return };
    if kind == Kind::Grant && transmissions == 0 {
        court.open(Rule::NoGrant, Why::Forgotten);
    }
    if kind == Kind::Grant && transmissions == 1 {
        let nack = session.nack.filter(|nack| nack.packet < event.packet);
        court.judge(Rule::NoGrant, nack.is_none(), event, nack.map(|mark| mark.frame), || {
            format!("notice {seq} grants a lock to a session that was refused before")
        });
    }
    if kind == Kind::WatchEvent && transmissions == 1 {
        watched(evidence, event, session, (seq, object), court);
    }
}

/// One notice of a watch at a time.
fn watched(evidence: &Evidence<'_>, event: &Event, session: &Session, (seq, object): (u64, cistern_wire::ObjectId), court: &mut Court) {
    let of = |number: &u64| session.notices.get(*number).is_some_and(|other| other.kind == Kind::WatchEvent && other.object == object);
    let open = session.open.range(..seq).rev().find(|number| of(number));
    match open.and_then(|other| session.notices.get(*other)) {
        None if session.open_forgotten => court.open(Rule::WatchOnce, Why::Forgotten),
        None => court.kept(Rule::WatchOnce),
        Some(other) => {
            let certain = evidence.inside_server().and_then(|()| evidence.whole(event.session));
            court.accuse(Rule::WatchOnce, certain, event, Some(other.first.frame), || {
                format!("notice {seq} tells of {object}, and one before it is not receipted")
            });
        }
    }
}

/// A lock is passed to another session, or a session is renewed after that.
pub(super) fn passed(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    match &event.what {
        What::Passed { holder, lock, generation, since, passed, by_mutation, .. } => {
            let Some(session) = evidence.story.session(*holder) else { return };
            let (Some(promise), Some(echo)) = (session.promise, session.newest_echo) else {
                return court.open(Rule::PassedInLease, Why::Unpromised);
            };
            if let Err(why) = evidence.story.steady(session.echo_frame) {
                return court.open(Rule::PassedInLease, why);
            }
            let span = passed.saturating_sub(echo);
            if evidence.story.vantage().is_shorter(span, evidence.wait(&promise)) {
                court.accuse(Rule::PassedInLease, evidence.whole(*holder), event, Some(*since), || {
                    let how = if *by_mutation { "is passed by a mutation" } else { "goes to another session" };
                    format!(
                        "{lock} {how} while session {holder} holds generation {generation}: {span:?} after what it was answered last was \
                         seen; T is {:?}",
                        promise.wait
                    )
                });
            } else if session.echo_latest.is_some_and(|latest| passed.saturating_sub(latest) < promise.wait) {
                court.open(Rule::PassedInLease, Why::Forgotten);
            } else {
                court.kept(Rule::PassedInLease);
                granted_late(evidence, event, session, (*holder, *passed), court);
            }
        }
        What::PassedUnknown { .. } => court.open(Rule::PassedInLease, Why::Forgotten),
        What::RenewedAfterSteal { of, by, stolen } => {
            let certain = evidence.story.steady(*by.min(&stolen.1)).and_then(|()| evidence.whole(*of));
            court.accuse(Rule::PassedInLease, certain, event, Some(stolen.1), || {
                format!("session {of} is renewed, and its locks went to others less than T after what renews it was seen")
            });
        }
        _ => {}
    }
}

/// From D on nothing is granted from a queue; D was T before the steal at the latest, unless the server goes by what it heard last.
fn granted_late(evidence: &Evidence<'_>, event: &Event, session: &Session, (holder, passed): (SessionId, Duration), court: &mut Court) {
    let (Some(grant), Some(promise)) = (session.newest_grant, session.promise) else { return };
    if let Err(why) = evidence.story.steady(grant.frame) {
        return court.open(Rule::NoGrant, why);
    }
    if !evidence.story.vantage().is_shorter(passed.saturating_sub(grant.at), evidence.wait(&promise)) {
        return court.kept(Rule::NoGrant);
    }
    let certain = evidence.in_order().and_then(|()| evidence.whole(holder));
    let certain = certain.and(if evidence.terms.no_last_heard { Ok(()) } else { Err(Why::LastHeard) });
    court.accuse(Rule::NoGrant, certain, event, Some(grant.frame), || {
        format!("session {holder} was granted a lock from a queue less than T before its locks were taken: it had failed by then")
    });
}
