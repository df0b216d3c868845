//! What was said before, for listings: which message a number names, when it passed first and how often, and until when a lease lasts.
//!
//! Decides nothing: it looks things up in the tables that the rest of the story fills. Leaves to others: what a listing makes of it.

use super::{Handshake, Session, Story};
use cistern_wire::{Kind, Number};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// A message that a number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its kind.
    pub kind: Kind,
    /// When it passed first.
    pub first: Duration,
    /// In how many transmissions it passed; copies are none.
    pub transmissions: u32,
}

impl Story {
    /// A handshake, as far as it is remembered.
    #[must_use]
    pub fn opening(&self, handshake: u64) -> Option<&Handshake> {
        self.handshakes.get(&handshake)
    }
}

impl Session {
    /// What a number names, if that is remembered.
    #[must_use]
    pub fn said(&self, number: Number) -> Option<Said> {
        let of = |kind, first: super::Mark, transmissions| Said { kind, first: first.at, transmissions };
        match number {
            Number::Nonce(nonce) => self.requests.get(nonce).map(|known| of(known.kind, known.first, known.transmissions)),
            Number::Serial(serial) => self.controls.get(serial).map(|known| of(known.kind, known.first, known.transmissions)),
            Number::Seq(seq) => self.notices.get(seq).map(|known| of(known.kind, known.first, known.transmissions)),
            Number::Handshake(_) => None,
        }
    }

    /// When a transmission of its agent passed.
    #[must_use]
    pub fn sent(&self, packet: u64) -> Option<Duration> {
        self.up.get(packet).map(|sent| sent.mark.at)
    }

    /// The first packet number of its server or its agent, if the handshake was seen.
    #[must_use]
    pub fn first_packet(&self, from_server: bool) -> Option<u64> {
        self.first[usize::from(!from_server)]
    }

    /// Until when its lease lasts if the capture was made where its agent is; `None`: not known.
    #[must_use]
    pub fn lease_until(&self) -> Option<Duration> {
        Some(self.newest_echo?.saturating_add(self.promise?.tau))
    }
}

impl Handshake {
    /// What its agent calls itself; empty if it does not.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its HELLO, with the cookie or without: the one is another message than the other.
    #[must_use]
    pub fn said(&self, with_cookie: bool) -> Option<Said> {
        let same = || self.hellos.iter().filter(|(_, hello)| hello.has_cookie == with_cookie);
        let first = same().map(|(_, hello)| hello.mark.at).min()?;
        let packets: BTreeSet<u64> = same().map(|((packet, _), _)| *packet).collect();
        Some(Said { kind: Kind::Hello, first, transmissions: u32::try_from(packets.len()).unwrap_or(u32::MAX) })
    }

    /// When the HELLO with a packet number passed, as an answer to an address echoes it.
    #[must_use]
    pub fn sent(&self, packet: u64, to: SocketAddr) -> Option<Duration> {
        self.hello_at(packet, to).map(|hello| hello.mark.at)
    }
}
