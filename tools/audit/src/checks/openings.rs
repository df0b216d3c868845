//! Handshakes, addresses, and what is sent without a session (`wire-spec.md` sections 6.1 and 11.6).

use crate::auditor::Evidence;
use crate::event::{Answer, Cause, Event, Passage, What};
use crate::rule::Rule;
use crate::story::{Handshake, Helloed};
use crate::vantage::Side;
use crate::verdict::{Court, Why};
use cistern_wire::{Kind, Message, SessionFate, SessionId};

/// An answer that is sent without a session is smaller than its cause; a WELCOME answers what its HELLO says.
pub(super) fn answer(evidence: &Evidence<'_>, event: &Event, answer: &Answer, passage: Passage<'_>, court: &mut Court) {
    match (answer.kind, answer.cause) {
        (Kind::Hint | Kind::Challenge | Kind::Refuse | Kind::Welcome, Cause::Seen { frame, length, .. }) => {
            court.judge(Rule::StrangerSmaller, event.length < length, event, Some(frame), || {
                format!("{} has {} bytes; the datagram that caused it has {length}", answer.kind.name(), event.length)
            });
        }
        (Kind::Hint | Kind::Challenge | Kind::Refuse | Kind::Welcome, _) => court.open(Rule::StrangerSmaller, Why::Incomplete),
        _ => {}
    }
    match (answer.kind, answer.cause) {
        (Kind::Welcome, Cause::Seen { frame, .. }) => fits(evidence, event, answer, frame, passage, court),
        (Kind::Welcome, _) => court.open(Rule::Cookie, Why::Incomplete),
        _ => {}
    }
}

fn fits(evidence: &Evidence<'_>, event: &Event, answer: &Answer, frame: u64, passage: Passage<'_>, court: &mut Court) {
    let Some(handshake) = evidence.story.handshakes.get(&answer.number) else { return };
    let Some(hello) = answer.echo.and_then(|echo| handshake.hello_at(echo, passage.to)) else { return };
    let other = Some(frame);
    cookie(handshake, hello, event, frame, court);
    let welcome = crate::story::raw::messages(passage.payload).find_map(|(message, _)| match message {
        Message::Welcome(welcome) if welcome.handshake == answer.number => Some(welcome),
        _ => None,
    });
    let Some(welcome) = welcome else { return };
    let fault = if welcome.window > hello.window || welcome.max_datagram > hello.max_datagram.max(548) {
        Some(format!("it grants more than was asked for: window {}, datagrams of {}", welcome.window, welcome.max_datagram))
    } else {
        None
    };
    match fault {
        None => court.kept(Rule::WelcomeFits),
        Some(fault) => court.broken(Rule::WelcomeFits, event, other, format!("WELCOME does not fit its HELLO: {fault}")),
    }
}

/// The cookie that a HELLO brings was given to it: to its address, and to its agent.
fn cookie(handshake: &Handshake, hello: &Helloed, event: &Event, frame: u64, court: &mut Court) {
    let given = || handshake.cookies.iter().filter(|given| given.cookie == hello.cookie);
    let fault = if !hello.has_cookie {
        "WELCOME answers a HELLO without a cookie".to_owned()
    } else if given().any(|given| given.to == hello.from && given.agent == Some(hello.agent)) {
        return court.kept(Rule::Cookie);
    } else if given().any(|given| given.to == hello.from && given.agent.is_none()) || given().next().is_none() {
        return court.open(Rule::Cookie, Why::Late);
    } else if given().any(|given| given.to == hello.from) {
        format!("the cookie of {} was given to another agent", hello.from)
    } else {
        format!("the cookie of {} was given to another address", hello.from)
    };
    court.broken(Rule::Cookie, event, Some(frame), fault);
}

/// OPENED tells of the sessions that CONFIRM has named.
pub(super) fn opened(evidence: &Evidence<'_>, event: &Event, former: &[(SessionId, SessionFate)], court: &mut Court) {
    match evidence.story.session(event.session).and_then(|session| session.claims.as_ref()) {
        Some(claims) => {
            let told = former.iter().map(|(session, _)| session);
            court.judge(Rule::WelcomeFits, told.eq(claims), event, None, || {
                format!("OPENED tells of {} former sessions; CONFIRM named {}", former.len(), claims.len())
            });
        }
        None => court.open(Rule::WelcomeFits, Why::Incomplete),
    }
}

/// One handshake per session.
pub(super) fn welcome(evidence: &Evidence<'_>, event: &Event, court: &mut Court) {
    let What::Welcome { session, handshake, .. } = &event.what else { return };
    let Some(known) = evidence.story.session(*session) else { return };
    let first = known.opened.map(|opened| opened.frame);
    court.judge(Rule::SessionIds, known.handshake == *handshake, event, first, || {
        format!("session {session} was offered to handshake {:016x}, and now to {handshake:016x}", known.handshake)
    });
}

/// What goes to an address that has not proven itself.
pub(super) fn exchanged(evidence: &Evidence<'_>, event: &Event, passage: Passage<'_>, court: &mut Court) {
    if event.up {
        return;
    }
    let Some(server) = evidence.story.servers.get(&event.from) else { return };
    let Some(exchange) = server.exchanges.get(&(passage.from, passage.to)) else { return };
    if exchange.sent < exchange.received || evidence.story.is_proven(passage.to) {
        return court.kept(Rule::Unproven);
    }
    let began = event.session.0 == 0 || evidence.story.session(event.session).is_some_and(|session| session.opened.is_some());
    let certain = match (evidence.story.vantage().complete, began) {
        // An agent's own capture does not tell what a NAT makes of its address.
        _ if evidence.story.vantage().side == Side::Agent => Err(Why::Vantage),
        (false, _) => Err(Why::Incomplete),
        (_, false) => Err(Why::Late),
        _ if server.short.exchanges || evidence.story.proven_forgotten => Err(Why::Forgotten),
        // Elsewhere the network's copies of what was sent once pass as well.
        _ => evidence.in_order(),
    };
    court.accuse(Rule::Unproven, certain, event, None, || {
        format!("{} bytes have gone to {}, which has not proven itself and has sent {}", exchange.sent, passage.to, exchange.received)
    });
}
