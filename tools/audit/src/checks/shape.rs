//! What a datagram looks like: whether it decodes, how long it is, which number it has (`wire-spec.md` sections 3.2, 3.5, 3.7).

use crate::auditor::Evidence;
use crate::event::{Event, Passage, What};
use crate::rule::Rule;
use crate::vantage::Side;
use crate::verdict::{Court, Why};
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_DEFAULT, DATAGRAM_MIN, HEADER_LEN, MESSAGE_HEADER_LEN};
use cistern_wire::{DropReason, Kind, Lane, Raw};

/// A datagram that its receiver drops: its sender's fault only where it cannot have been damaged since.
pub(super) fn unreadable(evidence: &Evidence<'_>, event: &Event, reason: DropReason, _passage: Passage<'_>, court: &mut Court) {
    let own = match evidence.story.vantage().side {
        Side::Server => !event.up,
        Side::Agent => event.up,
        Side::Between => false,
    };
    // A checksum that is right was made by a sender; what it covers is as it was sent.
    let sound = !matches!(reason, DropReason::BadChecksum | DropReason::TooShort | DropReason::BadMagic);
    let foreign = matches!(reason, DropReason::UnknownVersion(_) | DropReason::UnknownForm(_) | DropReason::TooLong);
    let certain = if own && !foreign && sound { Ok(()) } else { Err(Why::Foreign) };
    court.accuse(Rule::Decodes, certain, event, None, || format!("the datagram does not decode: {reason}"));
}

pub(super) fn number_twice(event: &Event, of: u64, court: &mut Court) {
    court.broken(Rule::NumberOnce, event, Some(of), format!("packet {} was another datagram before", event.packet));
}

/// The length of a datagram, and of the messages that must always fit.
pub(super) fn sizes(evidence: &Evidence<'_>, event: &Event, passage: Passage<'_>, court: &mut Court) {
    court.kept(Rule::Decodes);
    if event.session.0 != 0 && !matches!(event.what, What::NumberTwice { .. }) {
        court.kept(Rule::NumberOnce);
    }
    let agreed = evidence.story.session(event.session).and_then(|session| session.promise).map(|promise| usize::from(promise.max_datagram));
    let limit = if event.session.0 == 0 { Some(DATAGRAM_DEFAULT) } else { agreed.filter(|agreed| *agreed > 0) };
    match limit {
        None if event.length > DATAGRAM_DEFAULT => court.open(Rule::DatagramSize, Why::Late),
        // The smallest size is everybody's right, whatever was asked for.
        limit => {
            let limit = limit.unwrap_or(DATAGRAM_DEFAULT).max(DATAGRAM_MIN);
            court.judge(Rule::DatagramSize, event.length <= limit, event, None, || {
                format!("the datagram has {} bytes; {limit} were agreed", event.length)
            });
        }
    }
    for Raw { kind, body } in Raw::all(passage.payload) {
        let always = matches!(kind.lane(), Lane::Handshake | Lane::Control | Lane::Notice)
            || matches!(kind, Kind::Nack | Kind::Opened | Kind::Known | Kind::Joined | Kind::RosterPart);
        if always {
            let alone = HEADER_LEN + MESSAGE_HEADER_LEN + body.len() + CHECKSUM_LEN;
            court.judge(Rule::ControlSize, alone <= DATAGRAM_MIN, event, None, || {
                format!("{} alone makes a datagram of {alone} bytes", kind.name())
            });
        }
    }
}
