//! The story of a capture: who talks to whom, which session has which lease and locks, brought up to date by each datagram.
//!
//! Decides what is known at each frame, from datagrams alone: where the transmission is that an answer echoes, from when until when a
//! lease can last, who was given which lock and has given it back. Place in the walk: fed with datagrams in the order of the capture;
//! drained of events after each; asked by rules and pictures.
//! Invariant: tables have bounds; a session that is over and silent for long is forgotten and counted.
//! Leaves to others: verdicts (the rules), pictures and words (the inspector).

mod down;
mod handshake;
mod hosts;
mod intervals;
mod locks;
pub(crate) mod raw;
mod replies;
mod said;
mod server;
mod session;
mod up;

pub use said::Said;
pub use server::Handshake;
pub(crate) use server::Helloed;
pub use session::{Mark, Promise, Session};

pub(crate) use server::Server;
pub(crate) use session::{Asked, Notice};
use session::{KEPT_MAX, Transmission};

use crate::event::{Event, Host, HostId, Interval, Passage, Role, What};
use crate::vantage::{Side, Terms, Vantage};
use crate::verdict::Why;
use cistern_wire::{AgentId, Datagram, DropReason, Header, Message, SessionId};
use hosts::Hosts;
use intervals::Intervals;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Most sessions remembered.
const SESSIONS_MAX: usize = 100_000;

/// Most handshakes remembered.
const HANDSHAKES_MAX: usize = 10_000;

/// A session that is over, or whose lease is, is forgotten after so long without a datagram.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// How far back a time may be where several queues of the kernel are captured side by side; beyond it the clock was set.
const MIXED: Duration = Duration::from_millis(1);

/// Most entries remembered of all sessions together, each of 150 to 300 bytes. Beyond half of it sessions keep fewer transmissions, requests
/// and notices each, but [`KEPT_ENOUGH`]; only beyond all of it fewer still, and then fewer locks.
const TOTAL_MAX: usize = 8_000_000;

/// Entries of each table that tell what is on the way in a session: two windows.
const KEPT_ENOUGH: usize = 128;

/// Entries of each table that a session keeps, however many sessions there are.
const KEPT_LEAST: usize = 8;

/// Datagrams between two looks for what can be forgotten.
const LOOK_EVERY: u64 = 16_384;

/// By how much a packet number may be above the highest (section 3.2).
const AHEAD_MAX: u64 = 1 << 20;

/// What was read and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams taken in.
    pub datagrams: u64,
    /// Of these, copies of others.
    pub copies: u64,
    /// Datagrams to or from nobody known that are not of this protocol.
    pub foreign: u64,
    /// Datagrams whose packet number is below the first of their sender: nobody acts on them.
    pub guessed: u64,
    /// Datagrams from an address that is not proven for their session, or from which their agent expects nothing, and those whose packet
    /// number jumps: nobody acts on them.
    pub strange: u64,
    /// Datagrams between known hosts that a receiver drops, by reason.
    pub unreadable: BTreeMap<&'static str, u64>,
    /// Sessions seen.
    pub sessions: u64,
    /// Of these, sessions whose WELCOME was not seen.
    pub begun_before: u64,
    /// Sessions forgotten.
    pub forgotten: u64,
    /// Handshakes forgotten.
    pub handshakes_forgotten: u64,
    /// Entries of tables that were forgotten, of sessions, servers, hosts and pictures.
    pub entries_forgotten: u64,
    /// Times at which the capture's clock went back.
    pub clock_back: u64,
}

/// A datagram of this protocol as the story takes it in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) passage: Passage<'a>,
    pub(crate) header: Header,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) up: bool,
}

impl Seen<'_> {
    pub(crate) const fn mark(&self) -> Mark {
        Mark { frame: self.passage.frame, at: self.passage.at, packet: self.header.packet }
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.header.session
    }

    pub(crate) const fn length(&self) -> usize {
        self.passage.payload.len()
    }

    fn event(&self, what: What) -> Event {
        Event {
            frame: self.passage.frame,
            at: self.passage.at,
            from: self.from,
            to: self.to,
            up: self.up,
            session: self.header.session,
            packet: self.header.packet,
            length: self.length(),
            what,
        }
    }
}

/// The story of a capture.
#[derive(Debug)]
pub struct Story {
    pub(crate) vantage: Vantage,
    terms: Terms,
    tally: Tally,
    now: Duration,
    /// The newest time since the capture's clock was set back last.
    clock: Duration,
    /// The frame at which it was; 0: it never was.
    stepped: u64,
    hosts: Hosts,
    /// Addresses that have proven themselves.
    proven: BTreeSet<SocketAddr>,
    pub(crate) proven_forgotten: bool,
    /// In an agent's capture, the addresses to which it has written.
    written_to: BTreeSet<SocketAddr>,
    intervals: Option<Intervals>,
    events: Vec<Event>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    of_agent: BTreeMap<AgentId, BTreeSet<SessionId>>,
    pub(crate) handshakes: BTreeMap<u64, Handshake>,
    pub(crate) servers: BTreeMap<HostId, Server>,
}

impl Story {
    /// A story that has not begun.
    #[must_use]
    pub fn new(vantage: Vantage, terms: Terms) -> Self {
        Self {
            vantage,
            terms,
            tally: Tally::default(),
            now: Duration::ZERO,
            clock: Duration::ZERO,
            stepped: 0,
            hosts: Hosts::default(),
            proven: BTreeSet::new(),
            proven_forgotten: false,
            written_to: BTreeSet::new(),
            intervals: None,
            events: Vec::new(),
            sessions: BTreeMap::new(),
            of_agent: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }

    /// Keeps the stretches of time of leases, holds and refusals from now on, for a picture.
    #[must_use]
    pub fn with_intervals(mut self) -> Self {
        self.intervals = Some(Intervals::default());
        self
    }

    /// Takes the next datagram in; [`events`](Self::events) then has what it did.
    pub fn take(&mut self, passage: Passage<'_>) {
        self.events.clear();
        self.tally.datagrams += 1;
        self.tally.clock_back += u64::from(passage.at < self.clock);
        if passage.at.saturating_add(MIXED) < self.clock {
            self.stepped = passage.frame;
            self.clock = passage.at;
        }
        self.clock = self.clock.max(passage.at);
        self.now = self.now.max(passage.at);
        let before = self.hosts.forgotten();
        match Datagram::seen(passage.payload) {
            Ok(datagram) => self.learn(passage, datagram.header),
            Err(reason) => self.unreadable(passage, reason),
        }
        self.tally.entries_forgotten += self.hosts.forgotten() - before;
        if self.tally.datagrams.is_multiple_of(LOOK_EVERY) {
            self.forget();
        }
    }

    /// What the last datagram did, in the order of its messages.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What was read so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Everybody who takes part, in order of appearance; an event names them by their place.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        self.hosts.all()
    }

    /// A session, as far as it is remembered.
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session)
    }

    /// All sessions that are remembered, in order of their numbers.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The stretches of time seen so far, those that have not ended included; none without [`with_intervals`](Self::with_intervals).
    #[must_use]
    pub fn intervals(&self) -> Vec<Interval> {
        self.intervals.as_ref().map(Intervals::all).unwrap_or_default()
    }

    /// The newest time seen.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Where the capture was taken.
    #[must_use]
    pub const fn vantage(&self) -> &Vantage {
        &self.vantage
    }

    /// Whether what is absent of a session was never there: the capture lost nothing, and saw its beginning.
    #[must_use]
    pub fn is_whole(&self, session: SessionId) -> bool {
        self.whole(session).is_ok()
    }

    /// Whether what is absent of a session was never there; else why that is not certain.
    pub(crate) fn whole(&self, session: SessionId) -> Result<(), Why> {
        let known = self.sessions.get(&session);
        if !self.vantage.complete {
            return Err(Why::Incomplete);
        }
        match known {
            Some(known) if known.opened.is_some() && known.gap => Err(Why::Missing),
            Some(known) if known.opened.is_some() => known.doubt.map_or(Ok(()), Err),
            _ => Err(Why::Late),
        }
    }

    /// Whether the time since a frame is what the capture's clock says.
    pub(crate) const fn steady(&self, since: u64) -> Result<(), Why> {
        if self.stepped > since { Err(Why::Clock) } else { Ok(()) }
    }

    /// Not all of a session is certain any more.
    fn doubt(&mut self, session: SessionId, why: Why) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.doubt = session.doubt.or(Some(why));
        }
    }

    fn learn(&mut self, passage: Passage<'_>, header: Header) {
        let up = !header.from_server;
        if self.is_nobodys_server(passage, up) {
            self.tally.strange += 1;
            return;
        }
        let role = |server: bool| if server { Role::Server } else { Role::Agent };
        let from = if up { self.hosts.at(Role::Agent, passage.from) } else { self.hears(passage.from) };
        let to = self.hosts.at(role(up), passage.to);
        let seen = Seen { passage, header, from, to, up };
        let (server, peer) = if up { (passage.to, passage.from) } else { (passage.from, passage.to) };
        self.exchanged(&seen, server, peer);
        if header.session.0 == 0 {
            self.handshake(&seen);
        } else if self.is_strange(&seen) {
            self.tally.strange += 1;
        } else if self.number(&seen) {
            if up {
                self.up(&seen);
            } else {
                self.down(&seen);
            }
        }
    }

    /// Whether an agent, in its own capture, is sent something by whom it has never written to: it takes nothing from there.
    fn is_nobodys_server(&mut self, passage: Passage<'_>, up: bool) -> bool {
        if self.vantage.side != Side::Agent || !self.vantage.complete {
            return false;
        }
        if up && self.written_to.len() < server::TABLE_MAX {
            self.written_to.insert(passage.to);
        }
        !up && !self.written_to.is_empty() && self.written_to.len() < server::TABLE_MAX && !self.written_to.contains(&passage.from)
    }

    /// Whether a server, in its own capture, is sent something of a session from an address that is not proven for that, or under a
    /// packet number that jumps.
    fn is_strange(&mut self, seen: &Seen<'_>) -> bool {
        let (server, peer) = (seen.passage.to, seen.passage.from);
        let exchange = self.servers.get(&seen.to).and_then(|known| known.exchanges.get(&(server, peer)));
        let proves = |token| exchange.is_some_and(|exchange| exchange.tokens.contains(&token));
        let Some(session) = self.sessions.get_mut(&seen.session()).filter(|session| session.opened.is_some()) else { return false };
        if self.vantage.side != Side::Server || !self.vantage.complete || session.paths.len() >= session::PATHS_MAX {
            return false;
        }
        let is_proof = |message: &Message<'_>| matches!(message, Message::PathResponse(path) if proves(path.token));
        let is_for_all = |message: &Message<'_>| matches!(message, Message::PathChallenge(_) | Message::Hint(_));
        let mut messages = raw::messages(seen.passage.payload);
        if !seen.up {
            if messages.any(|(message, _)| !is_for_all(&message)) {
                session.paths.insert(seen.passage.to);
            }
            // What it answers was not noted.
            let known = session.paths.contains(&seen.passage.to);
            let unknown = |echo| session.up.get(echo).is_none();
            let answers = |message: &Message<'_>| match message {
                Message::Hint(hint) => !known || unknown(hint.echo),
                Message::Nack(nack) => unknown(nack.echo),
                _ => false,
            };
            return session.had_strange && raw::messages(seen.passage.payload).any(|(message, _)| answers(&message));
        }
        if messages.any(|(message, _)| is_proof(&message)) {
            session.paths.insert(peer);
        }
        let highest = session.up.last().max(session.first[usize::from(seen.up)].map_or(0, |first| first - 1));
        // Of a session that is over the server knows no numbers any more, and answers whatever comes.
        let over = session.given_up.is_some() || session.ended.is_some() || session.nack.is_some();
        let ahead = !over && highest > 0 && seen.header.packet > highest.saturating_add(AHEAD_MAX);
        let strange = ahead || !session.paths.contains(&peer);
        session.had_strange |= strange;
        strange
    }

    /// The server that says something; what was written to it before is its own, too.
    fn hears(&mut self, address: SocketAddr) -> HostId {
        let is_new = !self.hosts.is_server(address);
        let host = self.hosts.heard(address);
        if let Some(unplaced) = self.hosts.unplaced().filter(|_| is_new)
            && let Some(others) = self.servers.get_mut(&unplaced)
        {
            let (own, short) = (others.exchanges_of(address), others.short.exchanges);
            let server = self.servers.entry(host).or_default();
            server.exchanges.extend(own);
            server.short.exchanges |= short;
        }
        host
    }

    /// Whether an address has proven itself, to whichever of a server's own addresses: an agent may go on by another.
    pub(crate) fn is_proven(&self, peer: SocketAddr) -> bool {
        self.proven.contains(&peer)
    }

    /// An address has proven itself.
    fn proves(&mut self, peer: SocketAddr) {
        self.proven.insert(peer);
        if self.proven.len() > server::TABLE_MAX {
            self.proven.pop_first();
            self.proven_forgotten = true;
            self.tally.entries_forgotten += 1;
        }
    }

    /// Whether all servers were told apart; else nothing that is known of one is certain.
    pub(crate) const fn all_told_apart(&self) -> Result<(), Why> {
        if self.hosts.folded_servers() { Err(Why::Servers) } else { Ok(()) }
    }

    /// Counts bytes for addresses that have not proven themselves.
    fn exchanged(&mut self, seen: &Seen<'_>, server: SocketAddr, peer: SocketAddr) {
        let length = seen.length() as u64;
        let host = if seen.up { seen.to } else { seen.from };
        let known = self.servers.entry(host).or_default();
        known.acts(seen.passage.at);
        let exchange = known.exchange(server, peer);
        if seen.up {
            exchange.received += length;
        } else {
            exchange.sent += length;
        }
    }

    /// Notes the transmission under its number; false: it is a copy of one that was seen.
    fn number(&mut self, seen: &Seen<'_>) -> bool {
        let is_hint = !seen.up && raw::is_hint(seen.passage.payload);
        self.session_of(seen);
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return false };
        session.last = seen.passage.at;
        if is_hint {
            return true;
        }
        // Its receiver drops it: somebody has guessed.
        if session.first[usize::from(seen.up)].is_some_and(|first| seen.header.packet < first) {
            self.tally.guessed += 1;
            return false;
        }
        let (since, evidence) = session.evidence;
        let not_before = (seen.up && seen.header.packet >= since && evidence > Duration::ZERO).then_some(evidence);
        let carried = raw::carried(seen.passage.payload);
        let sum = raw::sum(seen.passage.payload);
        let transmission = Transmission { mark: seen.mark(), length: seen.length(), sum, carried, answered: Vec::new(), not_before };
        let own = match self.vantage.side {
            Side::Server => !seen.up,
            Side::Agent => seen.up,
            Side::Between => false,
        };
        let log = if seen.up { &mut session.up } else { &mut session.down };
        if let Some(known) = log.get(seen.header.packet) {
            let of = known.mark.frame;
            if known.sum == sum && known.length == seen.length() {
                self.tally.copies += 1;
                self.events.push(seen.event(What::Copy { of }));
                return false;
            }
            self.events.push(seen.event(What::NumberTwice { of }));
            return true;
        }
        if log.may_be_forgotten(seen.header.packet) {
            // A copy of what was forgotten, or what comes after so much else: either way it was said long ago.
            self.tally.entries_forgotten += 1;
            session.doubt = session.doubt.or(Some(Why::Forgotten));
            return false;
        }
        // A session whose handshake was not seen is not whole in any case.
        let before = if log.last() > 0 { Some(log.last()) } else { session.first[usize::from(seen.up)].map(|first| first - 1) };
        session.gap |= own && before.is_some_and(|before| before.checked_add(1) != Some(seen.header.packet));
        log.put(seen.header.packet, transmission);
        true
    }

    /// The session of a datagram, made if it is new: the capture began after it, or lost its WELCOME.
    fn session_of(&mut self, seen: &Seen<'_>) {
        let (agent, server) = if seen.up { (seen.from, seen.to) } else { (seen.to, seen.from) };
        let terms = self.terms;
        let tally = &mut self.tally;
        let session = self.sessions.entry(seen.session()).or_insert_with(|| {
            tally.sessions += 1;
            tally.begun_before += 1;
            let mut session = Session::new(seen.session(), agent, server);
            let promise = |tau| Promise::new(tau, terms.delta_ppm.unwrap_or(10_000), terms.epsilon.unwrap_or(Duration::from_millis(1)));
            session.promise = terms.tau.map(promise);
            session
        });
        if !seen.up && self.hosts.unplaced() == Some(session.server) {
            session.server = server;
        }
        if seen.up && session.host != agent {
            let address = seen.passage.from;
            self.hosts.moved(session.host, address);
        }
    }

    fn unreadable(&mut self, passage: Passage<'_>, reason: DropReason) {
        let known = |address| self.hosts.is_server(address) || self.hosts.is_agent(address);
        let up = self.hosts.is_server(passage.to);
        if !(up || self.hosts.is_server(passage.from)) || !known(passage.from) || !known(passage.to) {
            self.tally.foreign += 1;
            return;
        }
        *self.tally.unreadable.entry(reason.name()).or_default() += 1;
        let role = |server: bool| if server { Role::Server } else { Role::Agent };
        let (from, to) = (self.hosts.at(role(!up), passage.from), self.hosts.at(role(up), passage.to));
        let header = Header { from_server: !up, session: SessionId(0), packet: 0 };
        let seen = Seen { passage, header, from, to, up };
        self.events.push(seen.event(What::Unreadable { reason }));
    }

    /// Forgets what is over and silent for long, and what goes beyond the bounds.
    fn forget(&mut self) {
        let now = self.clock;
        let over = |session: &Session| {
            let ended = session.ended.is_some() || session.nack.is_some() || session.given_up.is_some();
            let silent = now.saturating_sub(session.last);
            let lapsed = session.promise.is_none_or(|promise| silent > promise.wait * 4);
            silent > FORGET_AFTER && lapsed && (ended || session.stolen.is_some() || silent > FORGET_AFTER * 4)
        };
        let mut gone: BTreeSet<SessionId> = self.sessions.values().filter(|session| over(session)).map(|session| session.id).collect();
        let beyond = (self.sessions.len() - gone.len()).saturating_sub(SESSIONS_MAX);
        if beyond > 0 {
            let stays = self.sessions.values().filter(|session| !gone.contains(&session.id));
            let mut by_age: Vec<(Duration, SessionId)> = stays.map(|session| (session.last, session.id)).collect();
            by_age.sort_unstable();
            gone.extend(by_age.into_iter().take(beyond).map(|(_, session)| session));
        }
        self.forget_sessions(&gone);
        self.forget_handshakes();
        for (host, server) in &mut self.servers {
            let most = self.hosts.share(*host, 4 * server::TABLE_MAX).min(server::TABLE_MAX);
            self.tally.entries_forgotten += server.trim(most);
        }
        self.tally.entries_forgotten += self.intervals.as_mut().map_or(0, Intervals::trim);
        self.shrink(TOTAL_MAX);
    }

    fn forget_sessions(&mut self, gone: &BTreeSet<SessionId>) {
        for session in gone {
            let Some(known) = self.sessions.remove(session) else { continue };
            self.tally.forgotten += 1;
            if let Some(agent) = known.agent
                && let Some(own) = self.of_agent.get_mut(&agent)
            {
                own.remove(session);
                if own.is_empty() {
                    self.of_agent.remove(&agent);
                }
            }
            if let Some(intervals) = &mut self.intervals {
                intervals.forget(*session);
            }
        }
        if !gone.is_empty() {
            self.servers.values_mut().for_each(|server| server.forget_sessions(gone));
        }
    }

    fn forget_handshakes(&mut self) {
        let beyond = self.handshakes.len().saturating_sub(HANDSHAKES_MAX);
        if beyond == 0 {
            return;
        }
        let mut by_age: Vec<(Duration, u64)> = self.handshakes.iter().map(|(number, handshake)| (handshake.last, *number)).collect();
        by_age.sort_unstable();
        for (_, number) in by_age.into_iter().take(beyond) {
            self.handshakes.remove(&number);
            self.tally.handshakes_forgotten += 1;
        }
    }

    /// Keeps of each session only as much as lets all of them together have `total` entries: first go locks that were given back and the
    /// oldest of what was sent, locks that are held go last.
    pub(crate) fn shrink(&mut self, total: usize) {
        let before = self.weight();
        let mut weight = before;
        if weight > total / 2 {
            self.sessions.values_mut().for_each(Session::forget_settled);
            weight = self.weight();
        }
        let mut most = KEPT_MAX;
        while weight > if most > KEPT_ENOUGH { total / 2 } else { total } && most > KEPT_LEAST {
            most /= 2;
            let mut shorter = false;
            for session in self.sessions.values_mut() {
                shorter |= session.shrink(most);
            }
            weight = if shorter { self.weight() } else { weight };
        }
        let mut most = KEPT_MAX * 8;
        while weight > total && most > KEPT_LEAST {
            most /= 2;
            self.sessions.values_mut().for_each(|session| session.shrink_locks(most));
            weight = self.weight();
        }
        self.tally.entries_forgotten += (before - weight) as u64;
    }

    pub(crate) fn weight(&self) -> usize {
        self.sessions.values().map(Session::weight).sum()
    }
}

#[cfg(test)]
mod tests;
