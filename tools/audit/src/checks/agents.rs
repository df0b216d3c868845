//! What agents send: nonces, floors, repetition, and nothing after the end (`wire-spec.md` sections 5.3, 6.3, 11.2 and 11.3).

use crate::auditor::Evidence;
use crate::event::{Event, What};
use crate::rule::Rule;
use crate::story::Session;
use crate::vantage::Side;
use crate::verdict::{Court, Why};
use cistern_wire::Kind;

pub(super) fn request(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Request { kind, nonce, first, changed, back, floor_before, news } = event.what else { return };
    let Some(session) = evidence.story.session(event.session) else { return };
    court.judge(Rule::RequestUnchanged, !changed, event, Some(first), || {
        format!("{} has nonce {nonce}, under which something else was asked before", kind.name())
    });
    let floor = nonce.saturating_sub(u64::from(back));
    court.judge(Rule::FloorGrows, floor_before.is_none_or(|before| before <= floor), event, None, || {
        format!("request {nonce} announces the floor {floor}; an earlier packet announced {}", floor_before.unwrap_or_default())
    });
    match session.promise.map(|promise| promise.window).filter(|window| *window > 0) {
        None => court.open(Rule::Window, Why::Late),
        Some(window) => court.judge(Rule::Window, back < window, event, None, || {
            format!("request {nonce} is {back} above its floor; the window is {window}")
        }),
    }
    if news {
        goes_on(evidence, event, session, kind, nonce, court);
    }
}

pub(super) fn control(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Control { kind, serial, first, changed, news } = event.what else { return };
    court.judge(Rule::RepeatUnchanged, !changed, event, Some(first), || {
        format!("{} has serial {serial}, under which something else was said before", kind.name())
    });
    if let (true, Kind::KeepAlive, Some(session)) = (news, kind, evidence.story.session(event.session)) {
        goes_on(evidence, event, session, kind, serial, court);
    }
}

/// An agent that has gone on sending for long has not receipted a notice.
pub(super) fn unreceipted(evidence: &Evidence<'_>, event: &Event, seq: u64, first: u64, court: &mut Court) {
    let vantage = evidence.story.vantage();
    let certain = match vantage.side {
        Side::Agent if vantage.inside => evidence.story.steady(first).and_then(|()| evidence.whole(event.session)),
        Side::Agent => Err(Why::Outside),
        _ => Err(Why::Vantage),
    };
    court.accuse(Rule::NoticeReceipted, certain, event, Some(first), || {
        format!("notice {seq} has not been receipted within the delivery timeout, and its agent goes on sending")
    });
}

/// Something new is asked for in a session: its agent counts on it.
fn goes_on(evidence: &Evidence<'_>, event: &Event, session: &Session, kind: Kind, number: u64, court: &mut Court) {
    let ended = session.given_up.filter(|(mark, reason)| reason.is_some() && mark.packet < event.packet);
    // What is seen for the first time may be sent for the second: only a whole capture shows that it was not asked before the end.
    match ended {
        None => court.kept(Rule::StopsAfterEnd),
        Some((mark, _)) => court.accuse(Rule::StopsAfterEnd, evidence.whole(event.session), event, Some(mark.frame), || {
            format!("{} {number} is asked in a session that its agent has ended", kind.name())
        }),
    }
    let Some(nack) = session.nack else { return court.kept(Rule::StopsAfterNack) };
    let vantage = evidence.story.vantage();
    let certain = match vantage.side {
        Side::Agent if vantage.inside => evidence.whole(event.session),
        Side::Agent => Err(Why::Outside),
        _ => Err(Why::Vantage),
    };
    court.accuse(Rule::StopsAfterNack, certain, event, Some(nack.frame), || {
        format!("{} {number} is asked in a session whose agent has received a NACK", kind.name())
    });
}
