//! What an observer reads of any message: the numbers by which messages refer to each other, and what a reply shows and grants.
//!
//! Decides: which of its fields a message is called by, from the declarations alone, so that a new kind needs nothing here; a new reply
//! that shows attributes or grants a lock needs its arm.
//! Leaves to others: what was seen under those numbers before (inspector, auditor, simulator).

use crate::{Attr, CacheGrant, Direction, Generation, Handle, Kind, Lane, LockClass, LockId, Message, Mode, ObjectId, Reply};
use core::fmt;

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

impl Kind {
    /// Whether it is what the server says in answer to something.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!((self.lane(), self.direction()), (Lane::Answer | Lane::Renewal, _) | (Lane::Handshake, Direction::Server))
    }

    /// Whether an answer to it renews the lease: all requests and control messages, but for the end of the session and receipts.
    #[must_use]
    pub const fn is_renewing(self) -> bool {
        matches!(self.lane(), Lane::Request | Lane::Control) && !matches!(self, Self::EndSession | Self::Receipt)
    }
}

impl<'a> Message<'a> {
    /// The numbers in it.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let of = |field| self.number(field);
        // A NACK of a control message names nothing but the transmission.
        let nonce = self.ask().map(|ask| ask.nonce).or_else(|| of("nonce").filter(|nonce| *nonce != 0));
        let own = || {
            let name = of("handshake").map(Number::Handshake).or_else(|| of("serial").map(Number::Serial));
            name.or_else(|| of("seq").map(Number::Seq)).or_else(|| nonce.map(Number::Nonce))
        };
        let name = if self.kind().lane() == Lane::Request { nonce.map(Number::Nonce) } else { own() };
        Numbers { name, echo: of("echo"), nonce }
    }

    /// The reply that it carries, and the request that this answers.
    #[must_use]
    pub const fn reply(&self) -> Option<(u64, Reply<'a>)> {
        match self {
            Message::Ack(m) => Some((m.nonce, m.reply)),
            Message::Result(m) => Some((m.nonce, m.reply)),
            _ => None,
        }
    }
}

/// A lock that a reply grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The lock.
    pub lock: LockId,
    /// Its mode.
    pub mode: Mode,
    /// The grant.
    pub generation: Generation,
    /// Tokens of its run; 0 for a cache lock.
    pub run: u32,
    /// Version of the object with which a cache lock came; 0 for an advisory lock.
    pub version: u64,
}

impl Reply<'_> {
    /// Every object whose attributes it shows, and the cache lock that came with them.
    pub fn each_attr(&self, mut tell: impl FnMut(&Attr, CacheGrant)) {
        match self {
            Self::Walked(walked) => walked.steps.iter().for_each(|step| tell(&step.attr, step.grant)),
            Self::Stated(stated) => tell(&stated.attr, stated.grant),
            Self::Listing(listing) => {
                tell(&listing.dir, listing.grant);
                listing.entries.iter().filter_map(|entry| entry.detail).for_each(|detail| tell(&detail.attr, detail.grant));
            }
            Self::Data(data) => tell(&data.attr, data.grant),
            Self::Changed(changed) => changed.effects.iter().for_each(|effect| tell(&effect.attr, effect.grant)),
            Self::Watched(watched) => tell(&watched.attr, CacheGrant::NONE),
            _ => {}
        }
    }

    /// Every object of which it shows a version. What a batch has taken away has none.
    pub fn each_version(&self, mut tell: impl FnMut(ObjectId, u64)) {
        match self {
            Self::Batched(done) => done.items.iter().filter(|item| item.version > 0).for_each(|item| tell(item.object, item.version)),
            Self::Xattr(xattr) => tell(xattr.object, xattr.version),
            Self::XattrNames(names) => tell(names.object, names.version),
            _ => self.each_attr(|attr, _| tell(attr.object, attr.version)),
        }
    }

    /// Every ephemeral file that it shows, and the handle of the session that owns it.
    pub fn each_owner(&self, mut tell: impl FnMut(ObjectId, Handle)) {
        self.each_attr(|attr, _| {
            if attr.is_ephemeral() {
                tell(attr.object, attr.owner);
            }
        });
    }

    /// Every new grant in it; not what a reclaim gives back.
    pub fn each_grant(&self, mut tell: impl FnMut(Given)) {
        if let Self::Granted(granted) = self {
            tell(Given { lock: granted.lock, mode: granted.mode, generation: granted.generation, run: granted.run, version: 0 });
        }
        self.each_attr(|attr, grant| {
            if let (Some(mode), true) = (grant.mode.mode(), grant.generation.0 > 0) {
                let lock = LockId { object: attr.object, class: LockClass::Cache };
                tell(Given { lock, mode, generation: grant.generation, run: 0, version: attr.version });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn every_kind_is_called_by_the_number_of_its_lane() {
        for message in samples() {
            let Numbers { name, echo, nonce } = message.numbers();
            let kind = message.kind();
            match kind.lane() {
                Lane::Handshake => assert!(matches!(name, Some(Number::Handshake(_))), "{kind:?}"),
                Lane::Request => assert!(name == nonce.map(Number::Nonce) && nonce == message.ask().map(|ask| ask.nonce), "{kind:?}"),
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
