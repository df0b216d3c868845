//! A server as a capture shows it: its store and incarnation, what it exchanged with whom, its locks, the versions of its objects; and the
//! handshakes by which sessions were opened.
//!
//! Decides what is remembered of each and for how long. Invariant: every table has a bound; what is forgotten leads to no violation.
//! Leaves to others: the lock table (`locks`), what messages do (`up`, `down`).

use super::session::Mark;
use crate::event::HostId;
use cistern_wire::{AgentId, Generation, Handle, LockId, Mode, ObjectId, SessionId, StoreId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Most addresses, objects, locks and runs remembered of a server, each.
pub(super) const TABLE_MAX: usize = 262_144;

/// What a server counts of a turn at the least as time in which it listened.
const SLACK: Duration = Duration::from_millis(20);

/// Most path challenges remembered of an address.
const TOKENS_MAX: usize = 64;

/// Most transmissions remembered of a handshake.
const HELLOS_MAX: usize = 64;

/// What was exchanged with an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) tokens: BTreeSet<u64>,
}

/// Which tables of a server have forgotten something.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each table forgets by itself")]
pub(crate) struct Short {
    pub(crate) waiting: bool,
    pub(crate) exchanges: bool,
    pub(crate) objects: bool,
    pub(crate) ordinary: bool,
    /// Holds of locks up to here.
    pub(crate) holds: Option<LockId>,
    /// Ephemeral files up to here.
    pub(crate) owners: Option<ObjectId>,
}

impl Short {
    /// Whether a hold of a lock may be forgotten.
    pub(crate) fn may_have_held(&self, lock: LockId) -> bool {
        self.holds.is_some_and(|up_to| lock <= up_to)
    }
}

/// A hold of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) session: SessionId,
    pub(crate) mode: Mode,
    pub(crate) generation: Generation,
    pub(crate) version: u64,
    pub(crate) mark: Mark,
}

/// What was seen of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Object {
    /// The newest version shown, and where.
    pub(crate) version: u64,
    pub(crate) shown: Option<Mark>,
    /// Of the newest mutation seen: the version that it made, its session and nonce.
    pub(crate) made: (u64, SessionId, u64),
    /// Whether a mutation is known that took it away.
    pub(crate) gone: bool,
}

/// A server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) store: Option<StoreId>,
    /// Newest epoch and incarnation that a WELCOME has named, and where.
    pub(crate) incarnation: Option<((u8, u64), Mark)>,
    /// When the present incarnation was last seen to send something in a session.
    pub(crate) last_sent: Duration,
    pub(crate) last_frame: u64,
    /// The newest token granted.
    pub(crate) newest: Generation,
    pub(crate) exchanges: BTreeMap<(SocketAddr, SocketAddr), Exchange>,
    pub(crate) holds: BTreeMap<LockId, Vec<Hold>>,
    pub(crate) objects: BTreeMap<ObjectId, Object>,
    /// Runs of advisory grants by their first token: past their last, and of which lock and session.
    pub(crate) runs: BTreeMap<u64, (u64, LockId, SessionId, u64)>,
    /// Former sessions whose agents have completed their reclaim, with the frame of the answer.
    pub(crate) completed: BTreeMap<SessionId, u64>,
    /// Incarnations that granted something beyond what grace allows, and where first.
    pub(crate) ordinary: BTreeMap<(u8, u64), u64>,
    /// Former sessions that a start has to wait for: they hold something, and cannot have ended before.
    pub(crate) awaited: Vec<SessionId>,
    /// Those that it may have to wait for: what they held, or when they were renewed last, may be forgotten.
    pub(crate) perhaps_awaited: Vec<SessionId>,
    /// When the incarnation before the present one was last seen to send in a session.
    pub(crate) died_after: Duration,
    pub(crate) died_frame: u64,
    /// How long it has certainly listened, and when it was last seen to do anything.
    pub(crate) listened: Duration,
    pub(crate) active: Duration,
    /// It said that it does not know a session which it must know, unless it was started anew: its incarnation then, and where.
    pub(crate) forgot: Option<((u8, u64), u64)>,
    /// Exclusive requests that wait for an advisory lock.
    pub(crate) waiting: BTreeMap<ObjectId, Vec<(SessionId, u64, Mark)>>,
    /// The same, by session and nonce.
    pub(super) waits: BTreeMap<(SessionId, u64), ObjectId>,
    /// What was forgotten: more waited, more addresses, objects or starts were seen than are remembered.
    pub(crate) short: Short,
    /// Past the last token of the runs that were forgotten.
    pub(crate) runs_from: u64,
    /// Ephemeral files and the handles of the sessions that made them.
    pub(crate) owners: BTreeMap<ObjectId, Handle>,
    /// Sessions whose WELCOME was seen, by their handles.
    pub(crate) handles: BTreeMap<Handle, SessionId>,
    /// Sessions bound after a reclaim: the former one, and the present.
    pub(crate) heirs: BTreeMap<SessionId, SessionId>,
}

impl Server {
    /// What was exchanged with an address.
    pub(crate) fn exchange(&mut self, server: SocketAddr, peer: SocketAddr) -> &mut Exchange {
        self.exchanges.entry((server, peer)).or_default()
    }

    /// Takes out what was exchanged with one address of a server.
    pub(crate) fn exchanges_of(&mut self, server: SocketAddr) -> BTreeMap<(SocketAddr, SocketAddr), Exchange> {
        let (own, others) = std::mem::take(&mut self.exchanges).into_iter().partition(|((of, _), _)| *of == server);
        self.exchanges = others;
        own
    }

    /// Something of it was seen on its own host. Between two turns it listened for the slack that it always counts, at the least.
    pub(crate) fn acts(&mut self, now: Duration) {
        self.listened += now.saturating_sub(self.active).min(SLACK);
        self.active = now;
    }

    /// The session that an ephemeral file is bound to now, if the WELCOME of the one that made it was seen.
    pub(crate) fn owner(&self, object: ObjectId) -> Option<SessionId> {
        let mut owner = *self.handles.get(self.owners.get(&object)?)?;
        for _ in 0..self.heirs.len() {
            match self.heirs.get(&owner) {
                Some(heir) => owner = *heir,
                None => break,
            }
        }
        Some(owner)
    }

    /// Notes a path challenge to an address.
    pub(crate) fn challenged(&mut self, server: SocketAddr, peer: SocketAddr, token: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&(server, peer)) {
            exchange.tokens.insert(token);
            if exchange.tokens.len() > TOKENS_MAX {
                exchange.tokens.pop_first();
            }
        }
    }

    /// A new store, or an older copy of it: nothing known of objects and locks counts any more.
    pub(crate) fn restored(&mut self) {
        self.objects.clear();
        self.owners.clear();
        self.heirs.clear();
        self.runs.clear();
        self.newest = Generation(0);
    }

    pub(crate) fn forget_sessions(&mut self, gone: &BTreeSet<SessionId>) {
        self.holds.retain(|_, holds| {
            holds.retain(|hold| !gone.contains(&hold.session));
            !holds.is_empty()
        });
        for session in gone {
            self.completed.remove(session);
            self.heirs.remove(session);
            self.stops_waiting(*session, None);
        }
        self.awaited.retain(|session| !gone.contains(session));
        self.perhaps_awaited.retain(|session| !gone.contains(session));
    }

    /// An exclusive request waits for an advisory lock.
    pub(crate) fn waits(&mut self, object: ObjectId, one: (SessionId, u64, Mark)) {
        let key = (one.0, one.1);
        if self.waits.len() >= TABLE_MAX {
            self.short.waiting = true;
        } else if self.waits.insert(key, object).is_none() {
            self.waiting.entry(object).or_default().push(one);
        }
    }

    /// A request waits no longer, or all of a session.
    pub(crate) fn stops_waiting(&mut self, session: SessionId, nonce: Option<u64>) {
        let (first, last) = nonce.map_or((0, u64::MAX), |nonce| (nonce, nonce));
        let over: Vec<_> = self.waits.range((session, first)..=(session, last)).map(|(key, object)| (*key, *object)).collect();
        for (key, object) in over {
            self.waits.remove(&key);
            if let Some(waiting) = self.waiting.get_mut(&object) {
                waiting.retain(|(of, number, _)| (*of, *number) != key);
                if waiting.is_empty() {
                    self.waiting.remove(&object);
                }
            }
        }
    }

    /// Nobody waits any more.
    pub(crate) fn nobody_waits(&mut self) {
        self.waiting.clear();
        self.waits.clear();
    }

    /// Forgets what goes beyond `most` entries of each table; gives how many.
    pub(crate) fn trim(&mut self, most: usize) -> u64 {
        let beyond = |len: usize| len.saturating_sub(most);
        let mut dropped = 0;
        for _ in 0..beyond(self.exchanges.len()) {
            self.exchanges.pop_first();
            (self.short.exchanges, dropped) = (true, dropped + 1);
        }
        for _ in 0..beyond(self.objects.len()) {
            self.objects.pop_first();
            (self.short.objects, dropped) = (true, dropped + 1);
        }
        for _ in 0..beyond(self.owners.len()) {
            self.short.owners = self.short.owners.max(self.owners.pop_first().map(|(object, _)| object));
            dropped += 1;
        }
        for _ in 0..beyond(self.handles.len()) {
            self.handles.pop_first();
            dropped += 1;
        }
        for _ in 0..beyond(self.holds.len()) {
            self.short.holds = self.short.holds.max(self.holds.pop_first().map(|(lock, _)| lock));
            dropped += 1;
        }
        for _ in 0..beyond(self.runs.len()) {
            if let Some((_, run)) = self.runs.pop_first() {
                (self.runs_from, dropped) = (self.runs_from.max(run.0), dropped + 1);
            }
        }
        for _ in 0..beyond(self.ordinary.len()) {
            self.ordinary.pop_first();
            (self.short.ordinary, dropped) = (true, dropped + 1);
        }
        dropped
    }
}

/// A HELLO of a handshake.
#[derive(Clone, Debug)]
pub(crate) struct Helloed {
    pub(crate) mark: Mark,
    pub(crate) length: usize,
    pub(crate) from: SocketAddr,
    /// The agent, and its incarnation.
    pub(crate) agent: (AgentId, u64),
    pub(crate) cookie: u64,
    pub(crate) has_cookie: bool,
    pub(crate) window: u16,
    pub(crate) max_datagram: u16,
}

/// A cookie of a CHALLENGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenCookie {
    pub(crate) cookie: u64,
    pub(crate) to: SocketAddr,
    /// The agent, and its incarnation, if the HELLO was seen.
    pub(crate) agent: Option<(AgentId, u64)>,
}

/// A handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub(crate) agent: AgentId,
    pub(crate) incarnation: u64,
    /// Whether its agent asks for a lease period of its own.
    pub(crate) asked: bool,
    /// With which packet number its agent begins in the session.
    pub(crate) first_packet: u64,
    pub(crate) host: HostId,
    /// What its agent calls itself.
    pub(crate) label: String,
    pub(crate) last: Duration,
    /// By packet number and address: somebody else may have sent a copy.
    pub(crate) hellos: BTreeMap<(u64, SocketAddr), Helloed>,
    pub(crate) more: bool,
    pub(crate) cookies: Vec<GivenCookie>,
    /// Whether more were given than are remembered.
    pub(crate) more_cookies: bool,
}

impl Handshake {
    /// Takes a HELLO; if it is a copy, gives the frame that it is a copy of.
    pub(crate) fn hello(&mut self, packet: u64, hello: Helloed) -> Option<u64> {
        self.last = hello.mark.at;
        let same = |known: &&Helloed| (known.length, known.cookie) == (hello.length, hello.cookie);
        let copied = self.hello_at(packet, hello.from).filter(same).map(|known| known.mark.frame);
        self.hellos.entry((packet, hello.from)).or_insert(hello);
        if self.hellos.len() > HELLOS_MAX {
            self.hellos.pop_first();
            self.more = true;
        }
        copied
    }

    /// The HELLO that an answer to an address echoes.
    pub(crate) fn hello_at(&self, echo: u64, to: SocketAddr) -> Option<&Helloed> {
        let same = |((packet, _), hello): (&(u64, SocketAddr), _)| (*packet == echo).then_some(hello);
        self.hellos.get(&(echo, to)).or_else(|| self.hellos.iter().find_map(same))
    }

    /// Takes the cookie of a CHALLENGE that echoes a HELLO.
    pub(crate) fn cookie(&mut self, cookie: u64, to: SocketAddr, echo: u64) {
        let given = GivenCookie { cookie, to, agent: self.hello_at(echo, to).map(|hello| hello.agent) };
        if self.cookies.contains(&given) {
            return;
        }
        if self.cookies.len() < HELLOS_MAX {
            self.cookies.push(given);
        } else {
            self.more_cookies = true;
        }
    }
}
