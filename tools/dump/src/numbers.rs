//! The numbers by which messages refer to each other: nonce, serial, seq, echo, handshake.
//!
//! Decides: which number each kind has; one exhaustive `match`, so that a new kind has to be placed. `wire-spec.md` sections 2 and 6.
//! Leaves to others: what was seen under those numbers before (`memory`).

use cistern_wire::{Kind, Message};
use std::fmt;

/// What a message is called by, if it is called by anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// A request's: `n7`.
    Nonce(u64),
    /// A control message's: `c7`.
    Serial(u64),
    /// A notice's: `q7`.
    Seq(u64),
    /// A handshake's: `h` and the first 8 hexadecimal digits.
    Handshake(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nonce(nonce) => write!(f, "n{nonce}"),
            Self::Serial(serial) => write!(f, "c{serial}"),
            Self::Seq(seq) => write!(f, "q{seq}"),
            Self::Handshake(handshake) => write!(f, "h{:08x}", handshake >> 32),
        }
    }
}

/// The numbers in one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// What it is called by, or the name of what it answers.
    pub name: Option<Number>,
    /// The packet number that it answers.
    pub echo: Option<u64>,
    /// A nonce that it is about, beside or in its name: the request that a GRANT serves, that a CANCEL ends.
    pub nonce: Option<u64>,
}

impl Numbers {
    /// Reads them.
    #[must_use]
    pub fn of(message: &Message<'_>) -> Self {
        let (name, echo) = match *message {
            Message::Hello(m) => (Some(Number::Handshake(m.handshake)), None),
            Message::Challenge(m) => (Some(Number::Handshake(m.handshake)), Some(m.echo)),
            Message::Welcome(m) => (Some(Number::Handshake(m.handshake)), Some(m.echo)),
            Message::Refuse(m) => (Some(Number::Handshake(m.handshake)), Some(m.echo)),
            Message::Known(m) => (Some(Number::Handshake(m.handshake)), Some(m.echo)),
            Message::KeepAlive(m) => (Some(Number::Serial(m.serial)), None),
            Message::Release(m) => (Some(Number::Serial(m.serial)), None),
            Message::Cancel(m) => (Some(Number::Serial(m.serial)), None),
            Message::EndSession(m) => (Some(Number::Serial(m.serial)), None),
            Message::Alive(m) => (Some(Number::Serial(m.serial)), Some(m.echo)),
            Message::Released(m) => (Some(Number::Serial(m.serial)), Some(m.echo)),
            Message::Cancelled(m) => (Some(Number::Serial(m.serial)), Some(m.echo)),
            Message::Ended(m) => (Some(Number::Serial(m.serial)), Some(m.echo)),
            Message::Demand(m) => (Some(Number::Seq(m.seq)), None),
            Message::Grant(m) => (Some(Number::Seq(m.seq)), None),
            Message::WaitOver(m) => (Some(Number::Seq(m.seq)), None),
            Message::Probe(m) => (Some(Number::Seq(m.seq)), None),
            Message::WatchEvent(m) => (Some(Number::Seq(m.seq)), None),
            Message::Receipt(m) => (Some(Number::Seq(m.seq)), None),
            Message::Ack(m) => (Some(Number::Nonce(m.nonce)), Some(m.echo)),
            Message::Pending(m) => (Some(Number::Nonce(m.nonce)), Some(m.echo)),
            Message::Queued(m) => (Some(Number::Nonce(m.nonce)), Some(m.echo)),
            Message::Result(m) => (Some(Number::Nonce(m.nonce)), None),
            // A NACK of a control message names nothing but the transmission.
            Message::Nack(m) => ((m.nonce != 0).then_some(Number::Nonce(m.nonce)), Some(m.echo)),
            Message::Hint(m) => (None, Some(m.echo)),
            Message::PathChallenge(_) | Message::PathResponse(_) => (None, None),
            // All that is left are requests.
            _ => (message.ask().map(|ask| Number::Nonce(ask.nonce)), None),
        };
        let nonce = match (*message, name) {
            (Message::Grant(m), _) => Some(m.nonce),
            (Message::WaitOver(m), _) => Some(m.nonce),
            (Message::Cancel(m), _) => Some(m.nonce),
            (Message::Cancelled(m), _) => Some(m.nonce),
            (_, Some(Number::Nonce(nonce))) => Some(nonce),
            _ => None,
        };
        Self { name, echo, nonce }
    }
}

/// Whether the kind is what the server says in answer to something.
#[must_use]
pub fn is_answer(kind: Kind) -> bool {
    use cistern_wire::Lane;
    matches!(kind.lane(), Lane::Answer | Lane::Renewal) || matches!(kind, Kind::Challenge | Kind::Refuse | Kind::Known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Lane, samples};

    #[test]
    fn every_kind_is_called_by_the_number_of_its_lane() {
        for message in samples() {
            let Numbers { name, echo, .. } = Numbers::of(&message);
            let kind = message.kind();
            match kind.lane() {
                Lane::Handshake => assert!(matches!(name, Some(Number::Handshake(_))), "{kind:?}"),
                Lane::Request => assert!(matches!(name, Some(Number::Nonce(_))), "{kind:?}"),
                Lane::Notice => assert!(matches!(name, Some(Number::Seq(_))), "{kind:?}"),
                Lane::Control => assert!(matches!(name, Some(Number::Serial(_) | Number::Seq(_))), "{kind:?}"),
                Lane::Renewal => assert!(name.is_some() && echo.is_some(), "{kind:?}"),
                Lane::Answer => assert!(name.is_some() || echo.is_some(), "{kind:?}"),
                Lane::Path => assert_eq!((name, echo), (None, None), "{kind:?}"),
            }
            assert_eq!(echo.is_some(), kind.fields().iter().any(|field| field.name == "echo"), "{kind:?}");
        }
    }
}
