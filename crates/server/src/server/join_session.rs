//! Sessions that were opened with an invite's secret, and the roster that any session may ask for: JOIN, ROSTER (`docs/sealed.md`).
//!
//! Decides that such a session stays half-open and ends as one does: nothing is recorded, nobody is superseded, and no request is looked at. One
//! message of a datagram is answered. Place in the walk: under `opening`, in place of CONFIRM. Leaves to others: who joins (`joining`).

use crate::ids::{InviteId, Joiner};
use crate::principals::PrincipalId;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::server::joining::NotJoined;
use crate::server::receive::{MessageCx, Taken};
use crate::transport::{SMALL, Sealing};
use alloc::boxed::Box;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path};
use cistern_seal::Psk;
use cistern_wire::{Bytes8, Bytes16, Datagram, Join, JoinOutcome, Joined, Kind, Message, RosterAsk, RosterPart, SessionId, Status};
use core::net::IpAddr;

/// The cluster that a server belongs to, with its servers, as agents are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRoster {
    /// The cluster's public key.
    pub cluster: [u8; 32],
    /// The roster's version, from 1.
    pub version: u32,
    /// The roster with its signature.
    pub signed: Box<[u8]>,
}

/// A JOIN that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinAsked {
    session: SessionId,
    serial: u64,
    echo: u64,
}

impl Server {
    /// Tells the cluster's roster: at the start, and when there is a newer one.
    pub fn set_roster(&mut self, now: Instant, roster: ServerRoster) {
        self.step(now, |server| server.roster = Some(Box::new(roster)));
    }

    /// The roster that is told, if there is one.
    #[must_use]
    pub fn roster(&self) -> Option<&ServerRoster> {
        self.roster.as_deref()
    }

    /// The secret that OPEN names; that of zeros is none, and needs no invite.
    pub(crate) fn secret_of(&mut self, psk_id: [u8; 8]) -> Option<Psk> {
        match invite_of(psk_id) {
            None => Some(Psk::none()),
            Some(id) => self.good_invite(id).map(|invite| Psk::of_invite(&invite.secret)),
        }
    }

    /// A record of a half-open session that was opened with an invite's secret.
    pub(crate) fn joining_record(&mut self, path: Path, (session, packet): (SessionId, u64), joiner: Joiner, datagram: &Datagram<'_>) {
        if let Some(half) = self.half_open.find(self.now, session) {
            half.opening.received.note(packet);
        }
        let Some(raw) = datagram.raw().next() else {
            return;
        };
        self.stats.count_in(raw.kind);
        match raw.kind {
            Kind::Join => raw.read(|m: &Join| self.join_asked(path, joiner, JoinAsked { session, serial: m.serial, echo: packet })),
            Kind::Roster => {
                let roster = self.roster.clone();
                raw.read(|m: &RosterAsk| self.say_half_open(session, &Message::RosterPart(part(roster.as_deref(), packet, m))));
            }
            Kind::EndSession => {
                self.half_open.take(session);
            }
            _ => {}
        }
    }

    fn join_asked(&mut self, path: Path, joiner: Joiner, asked: JoinAsked) {
        let from = path.remote.ip();
        match self.join_key(joiner.invite, joiner.key, from) {
            Ok(joined) if joined.batch <= self.store.durable_up_to() => self.tell_joined(asked, joined.principal),
            // Nobody is told of what a crash could still take back.
            Ok(joined) => self.after_commit(joined.batch, OnDurable::Joined(asked, joined.principal)),
            Err(why) => {
                let (outcome, used_s, used_from) = match why {
                    NotJoined::Unknown => (JoinOutcome::Unknown, 0, None),
                    NotJoined::Spent { at_s, from } => (JoinOutcome::Spent, at_s, Some(from)),
                    NotJoined::Revoked => (JoinOutcome::Revoked, 0, None),
                    NotJoined::Refused(Status::EEXIST) => (JoinOutcome::NameTaken, 0, None),
                    NotJoined::Refused(_) => (JoinOutcome::Full, 0, None),
                };
                let used_from = used_from.map_or([0; 16], octets);
                let JoinAsked { session, serial, echo } = asked;
                let (principal, name, cluster) = (0, Bytes8(b""), [0; 32]);
                self.say_half_open(
                    session,
                    &Message::Joined(Joined { serial, echo, outcome, principal, name, cluster, used_s, used_from }),
                );
            }
        }
    }

    /// Its registration is durable. If the session is gone it asks in another.
    pub(crate) fn tell_joined(&mut self, asked: JoinAsked, who: PrincipalId) {
        let Some(record) = self.principals.get(who) else {
            return;
        };
        let name = record.name.clone();
        if bugs::is(Bug::K1) {
            let bytes = record.to_bytes();
            self.write_principal(who, bytes);
        }
        let cluster = self.roster.as_ref().map_or([0; 32], |roster| roster.cluster);
        let JoinAsked { session, serial, echo } = asked;
        let (outcome, principal, name) = (JoinOutcome::Joined, who.0, Bytes8(&name));
        let joined = Joined { serial, echo, outcome, principal, name, cluster, used_s: 0, used_from: [0; 16] };
        self.say_half_open(session, &Message::Joined(joined));
    }

    /// ROSTER, in a session that is open.
    pub(crate) fn roster_asked(&mut self, origin: MessageCx, message: &RosterAsk) -> Taken {
        if !self.is_good(origin.key) {
            return Taken::Refused;
        }
        let roster = self.roster.clone();
        let part = part(roster.as_deref(), origin.packet, message);
        self.push_bulk(origin.key, SMALL, &Message::RosterPart(part));
        Taken::Done
    }

    /// The version of the roster that is told; 0: none.
    pub(crate) fn roster_version(&self) -> u32 {
        self.roster.as_ref().map_or(0, |roster| roster.version)
    }

    fn say_half_open(&mut self, id: SessionId, message: &Message<'_>) {
        let Self { half_open, transport, cipher, stats, now, .. } = self;
        let Some(half) = half_open.find(*now, id) else {
            return;
        };
        let opening = &mut half.opening;
        if let Some(packet) = opening.sent.take() {
            let sealing = Sealing { sealer: &mut opening.sealer, cipher, now: now.uptime() };
            transport.push_loose(opening.path, (id, packet), &[*message], sealing, stats);
        }
    }
}

/// The invite that OPEN names, if it names one.
pub(crate) fn invite_of(psk_id: [u8; 8]) -> Option<InviteId> {
    Some(InviteId(u64::from_be_bytes(psk_id))).filter(|id| id.0 != 0)
}

/// What is asked for of a roster.
fn part<'a>(roster: Option<&'a ServerRoster>, echo: u64, ask: &RosterAsk) -> RosterPart<'a> {
    let (version, all) = roster.map_or((0, &[][..]), |roster| (roster.version, &roster.signed));
    let rest = all.get(usize::from(ask.offset)..).unwrap_or_default();
    let part = rest.get(..RosterPart::PART_MAX).unwrap_or(rest);
    let length = u16::try_from(all.len()).unwrap_or(u16::MAX);
    RosterPart { serial: ask.serial, echo, version, length, offset: ask.offset, part: Bytes16(part) }
}

const fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
