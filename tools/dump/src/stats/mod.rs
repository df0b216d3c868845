//! Figures of the traffic: how much of what, how fast answered, how often sent again, what renewing cost.
//!
//! Decides: what is counted. Copies of a datagram are counted as such and nowhere else. A round trip is the time from a transmission to the
//! answer that echoes it, as seen where the capture was made; PENDING is no end of one. Of a notice it is the time to its receipt, if it
//! was sent once only. Leaves to others: renewals and arrivals (`renewal`), how figures are written (`report`).

mod renewal;
mod report;

use crate::notes::{Note, Notes};
use crate::packet::Packet;
use cistern_wire::{Kind, Message, NackReason, Reply};
use hdrhistogram::Histogram;
use renewal::Renewals;
use std::collections::BTreeMap;
use std::time::Duration;

/// Digits to which round trips are exact.
const DIGITS: u8 = 3;

/// All figures so far.
#[derive(Debug)]
pub struct Stats {
    json: bool,
    /// Time of the first and of the last datagram.
    span: Option<(Duration, Duration)>,
    to_server: Sum,
    to_agents: Sum,
    copies: u64,
    malformed: BTreeMap<&'static str, u64>,
    kinds: BTreeMap<Kind, KindSum>,
    round_trips: BTreeMap<Kind, Histogram<u64>>,
    nacks: BTreeMap<&'static str, u64>,
    failures: BTreeMap<&'static str, u64>,
    renewals: Renewals,
    scratch: Vec<u8>,
}

/// Datagrams in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    datagrams: u64,
    bytes: u64,
}

/// Messages of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct KindSum {
    messages: u64,
    /// With their headers.
    bytes: u64,
    /// How many of them had been sent before.
    again: u64,
}

impl Stats {
    /// No figures yet; `renewing_at` is the fraction of the lease period at which agents begin to renew.
    #[must_use]
    pub fn new(json: bool, renewing_at: f64) -> Self {
        Self {
            json,
            span: None,
            to_server: Sum::default(),
            to_agents: Sum::default(),
            copies: 0,
            malformed: BTreeMap::new(),
            kinds: BTreeMap::new(),
            round_trips: BTreeMap::new(),
            nacks: BTreeMap::new(),
            failures: BTreeMap::new(),
            renewals: Renewals::new(renewing_at),
            scratch: Vec::new(),
        }
    }

    /// Counts a datagram, and those of its messages that are shown.
    pub fn datagram(&mut self, packet: &Packet<'_>, notes: &Notes, shown: &[bool]) {
        let (_, last) = self.span.get_or_insert((packet.at, packet.at));
        *last = packet.at.max(*last);
        let datagram = match &packet.content {
            Ok(datagram) => datagram,
            Err(reason) => {
                *self.malformed.entry(reason.name()).or_default() += 1;
                return;
            }
        };
        if notes.copy {
            self.copies += 1;
            return;
        }
        let sum = if datagram.header.from_server { &mut self.to_agents } else { &mut self.to_server };
        sum.datagrams += 1;
        sum.bytes += packet.bytes.len() as u64;
        for ((message, note), _) in datagram.messages().zip(&notes.messages).zip(shown).filter(|(_, shown)| **shown) {
            self.message(packet.at, &message, note);
            self.renewals.message(packet.at, message.kind(), note, notes);
        }
    }

    fn message(&mut self, at: Duration, message: &Message<'_>, note: &Note) {
        let kind = message.kind();
        self.scratch.clear();
        message.encode(&mut self.scratch);
        let sum = self.kinds.entry(kind).or_default();
        sum.messages += 1;
        sum.bytes += self.scratch.len() as u64;
        sum.again += u64::from(note.again.is_some());
        match message {
            Message::Nack(m) => {
                let reason = match m.reason {
                    NackReason::TimingOut => "timing_out",
                    NackReason::Ended => "ended",
                };
                *self.nacks.entry(reason).or_default() += 1;
            }
            Message::Ack(ack) => {
                if let Reply::Failed(failed) = ack.reply {
                    *self.failures.entry(failed.status.name()).or_default() += 1;
                }
            }
            _ => {}
        }
        if let (Some(about), Some(sent)) = (note.about, note.sent)
            && kind != Kind::Pending
        {
            let fresh = || Histogram::new(DIGITS).ok();
            let ns = u64::try_from(at.saturating_sub(sent).as_nanos()).unwrap_or(u64::MAX);
            let entry = match self.round_trips.entry(about) {
                std::collections::btree_map::Entry::Occupied(entry) => Some(entry.into_mut()),
                std::collections::btree_map::Entry::Vacant(entry) => fresh().map(|histogram| entry.insert(histogram)),
            };
            if let Some(histogram) = entry {
                // Cannot fail: it grows with what it is given.
                let _grown = histogram.record(ns);
            }
        }
    }
}
