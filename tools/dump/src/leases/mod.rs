//! Leases as a capture shows them: by session, what renewed it from when until when, how far it ran down, what was demanded and what
//! came of it, refusals and steals.
//!
//! Decides: which events of the story belong together: renewals that follow each other before the lease is over are one stretch; a notice
//! is one entry from its first transmission to its receipt. Times are those of the capture, taken as if it had been made where the agents
//! are. Place in the walk: behind `cistern-audit`'s story. Invariant: entries are bounded; what is left out is counted.
//! Leaves to others: what a capture proves (`cistern-dump audit`), how it is written (`report`).

mod report;

use crate::notes::Notes;
use crate::packet::Packet;
use cistern_audit::{Answer, Event, What};
use cistern_wire::{EndReason, Generation, Keep, Kind, LockId, NackReason, ReceiptAnswer, SessionId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Most entries kept, of all sessions together.
const ENTRIES: usize = 200_000;
/// Ends of the phases of a lease, as fractions of its period, by default (`wire-spec.md` section 11.1).
const PHASES: [(f64, &str); 4] = [(0.60, "valid"), (0.80, "renewing"), (0.88, "suspect"), (0.97, "flush")];

/// The phase of a lease at an age, as a fraction of its period.
fn phase(age: f64) -> &'static str {
    PHASES.iter().find(|(end, _)| age < *end).map_or("expired", |(_, name)| name)
}

/// What happened to the leases of all sessions.
#[derive(Debug, Default)]
pub struct Leases {
    json: bool,
    sessions: BTreeMap<SessionId, Told>,
    /// Sessions in order of appearance.
    order: Vec<SessionId>,
    entries: usize,
    left_out: u64,
}

/// What is told of a session.
#[derive(Debug, Default)]
struct Told {
    address: Option<SocketAddr>,
    opened: bool,
    /// When the newest transmission that renewed was sent.
    renewed_from: Option<Duration>,
    entries: Vec<Entry>,
    /// Which entry is the stretch that goes on, and which the notice of a number.
    stretch: Option<usize>,
    notices: BTreeMap<u64, usize>,
    refusal: Option<usize>,
    /// Whether nothing has renewed it since the server was started anew, or was ended.
    orphaned: bool,
}

/// One thing in the life of a session.
#[derive(Debug)]
struct Entry {
    at: Duration,
    frame: u64,
    what: Thing,
}

#[derive(Debug)]
enum Thing {
    Opened,
    Moved { from: SocketAddr, to: SocketAddr },
    Stretch(Stretch),
    Notice(Notice),
    Refused { reason: NackReason, times: u64, last: Duration },
    GaveUp { reason: Option<EndReason> },
    Ended,
    LostTo { lock: LockId, generation: Generation, to: SessionId, by_mutation: bool },
    ServerRestarted { before: (u8, u64), now: (u8, u64) },
}

/// A time in which the lease was never over.
#[derive(Debug)]
struct Stretch {
    /// Send time of the first transmission that counts.
    from: Duration,
    until: Duration,
    /// How often it was renewed by KEEPALIVE, and by anything else.
    explicit: u64,
    opportunistic: u64,
    /// How old it was at most when a renewal arrived, as a fraction of the period; and when that was.
    oldest: f64,
    oldest_at: Duration,
}

/// A message of the server's that needs a receipt.
#[derive(Debug)]
struct Notice {
    kind: Kind,
    seq: u64,
    lock: Option<(LockId, Generation)>,
    last: Duration,
    transmissions: u32,
    receipt: Option<(Duration, ReceiptAnswer)>,
    back: Option<(Duration, Keep)>,
}

impl Leases {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json, ..Self::default() }
    }

    /// Notes what a datagram, whether it is to be shown or not, did to sessions other than its own of which something was shown.
    pub fn see(&mut self, events: &[Event]) {
        for Event { session: own, at, frame, what, .. } in events {
            match *what {
                What::GivesUp { session, reason } if session != *own && self.sessions.contains_key(&session) => {
                    self.add(session, *at, *frame, Thing::GaveUp { reason });
                }
                What::Passed { holder, lock, generation, by_mutation, .. } if self.sessions.contains_key(&holder) => {
                    self.add(holder, *at, *frame, Thing::LostTo { lock, generation, to: *own, by_mutation });
                }
                What::Restarted { before, now, .. } => {
                    // Later starts mean nothing to a session that has not been renewed since one.
                    let renewed = self.sessions.iter().filter(|(_, told)| !told.orphaned).map(|(session, _)| *session);
                    for session in renewed.collect::<Vec<_>>() {
                        self.add(session, *at, *frame, Thing::ServerRestarted { before, now });
                        self.told(session).orphaned = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes a datagram in that is to be shown.
    pub fn datagram(&mut self, packet: &Packet<'_>, notes: &Notes) {
        let Ok(datagram) = &packet.content else { return };
        let session = datagram.header.session;
        if session.0 != 0 {
            self.address(session, packet, datagram.header.from_server);
        }
        notes.events.iter().for_each(|event| self.event(event));
    }

    /// Where the session's agent is: as it says itself.
    fn address(&mut self, session: SessionId, packet: &Packet<'_>, from_server: bool) {
        let told = self.told(session);
        if from_server {
            told.address.get_or_insert(packet.to);
            return;
        }
        if let Some(from) = told.address.replace(packet.from).filter(|before| *before != packet.from) {
            self.add(session, packet.at, packet.number, Thing::Moved { from, to: packet.from });
        }
    }

    fn told(&mut self, session: SessionId) -> &mut Told {
        self.sessions.entry(session).or_insert_with(|| {
            self.order.push(session);
            Told::default()
        })
    }

    /// Adds an entry; its place, if there is room for it.
    fn add(&mut self, session: SessionId, at: Duration, frame: u64, what: Thing) -> Option<usize> {
        if self.entries >= ENTRIES {
            self.left_out += 1;
            return None;
        }
        self.entries += 1;
        let told = self.told(session);
        told.entries.push(Entry { at, frame, what });
        Some(told.entries.len() - 1)
    }

    fn event(&mut self, event: &Event) {
        let (session, at, frame) = (event.session, event.at, event.frame);
        match &event.what {
            What::Opened { .. } if !self.told(session).opened => {
                self.told(session).opened = true;
                self.add(session, at, frame, Thing::Opened);
            }
            What::Answer(answer) => self.answer(event, answer),
            What::Notice { .. } | What::Receipt { .. } => self.notice(event),
            What::Released { lock, generation, keep, .. } => self.back(event, *keep, |of| of.0 == *lock && of.1 <= *generation),
            What::Nack { reason, .. } => self.refused(event, *reason),
            What::GivesUp { session: own, reason } if *own == session => {
                self.add(session, at, frame, Thing::GaveUp { reason: *reason });
            }
            _ => {}
        }
    }

    fn answer(&mut self, event: &Event, answer: &Answer) {
        let session = event.session;
        if answer.kind == Kind::Ended {
            self.add(event.session, event.at, event.frame, Thing::Ended);
            self.told(event.session).orphaned = true;
        }
        let Some(renewal) = answer.renewal else { return };
        let (from, until) = (renewal.from_latest, renewal.certain_until);
        let tau = until.saturating_sub(from);
        let told = self.told(session);
        told.orphaned = false;
        let before = told.renewed_from.replace(told.renewed_from.unwrap_or(from).max(from)).unwrap_or(from);
        let stretch = told.stretch.and_then(|at| told.entries.get_mut(at)).and_then(|entry| match &mut entry.what {
            // It was over when this came: what is revived is a new stretch.
            Thing::Stretch(stretch) if event.at <= stretch.until => Some(stretch),
            _ => None,
        });
        let explicit = u64::from(answer.kind == Kind::Alive);
        let age = event.at.saturating_sub(before).as_secs_f64() / tau.as_secs_f64();
        if let Some(stretch) = stretch {
            stretch.until = stretch.until.max(until);
            stretch.explicit += explicit;
            stretch.opportunistic += 1 - explicit;
            if age > stretch.oldest {
                (stretch.oldest, stretch.oldest_at) = (age, event.at);
            }
        } else {
            let stretch = Stretch { from, until, explicit, opportunistic: 1 - explicit, oldest: 0.0, oldest_at: event.at };
            let place = self.add(session, from, event.frame, Thing::Stretch(stretch));
            self.told(session).stretch = place;
        }
    }

    fn notice(&mut self, event: &Event) {
        match event.what {
            What::Notice { kind, seq, transmissions, lock, .. } => {
                let told = self.told(event.session);
                if let Some(notice) = told.notice(seq) {
                    (notice.transmissions, notice.last) = (transmissions, event.at);
                    return;
                }
                let notice = Notice { kind, seq, lock, last: event.at, transmissions, receipt: None, back: None };
                if let Some(place) = self.add(event.session, event.at, event.frame, Thing::Notice(notice)) {
                    self.told(event.session).notices.insert(seq, place);
                }
            }
            What::Receipt { seq, answer, .. } => {
                if let Some(notice) = self.told(event.session).notice(seq) {
                    // The first word is when it arrived; a later one may be another, when a user came or went meanwhile.
                    let first = notice.receipt.map_or(event.at, |(at, _)| at);
                    notice.receipt = Some((first, answer));
                }
            }
            _ => {}
        }
    }

    /// Locks came back: those that were demanded are no longer.
    fn back(&mut self, event: &Event, keep: Keep, fits: impl Fn((LockId, Generation)) -> bool) {
        for entry in &mut self.told(event.session).entries {
            if let Thing::Notice(notice) = &mut entry.what
                && notice.kind == Kind::Demand
                && notice.back.is_none()
                // What it had given up before the demand came does not come back by it.
                && notice.receipt.is_none_or(|(_, answer)| answer != ReceiptAnswer::NotHeld)
                && notice.lock.is_some_and(&fits)
            {
                notice.back = Some((event.at, keep));
            }
        }
    }

    fn refused(&mut self, event: &Event, reason: NackReason) {
        let told = self.told(event.session);
        if let Some(place) = told.refusal
            && let Some(Entry { what: Thing::Refused { times, last, .. }, .. }) = told.entries.get_mut(place)
        {
            (*times, *last) = (*times + 1, event.at);
            return;
        }
        let place = self.add(event.session, event.at, event.frame, Thing::Refused { reason, times: 1, last: event.at });
        self.told(event.session).refusal = place;
    }
}

impl Told {
    fn notice(&mut self, seq: u64) -> Option<&mut Notice> {
        match &mut self.entries.get_mut(*self.notices.get(&seq)?)?.what {
            Thing::Notice(notice) => Some(notice),
            _ => None,
        }
    }
}
