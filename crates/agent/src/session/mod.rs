//! The sessions of this agent: the present one, and former ones that are not known to have ended at the server, in one table.
//!
//! ```text
//!  WELCOME ──▶ Open ─── OPENED of another session, "reclaimable" ────▶ Source ─── RECLAIM_COMPLETE answered ──▶ (ended)
//!               │ │                                                      │
//!               │ └─ NACK, OPENED of another, idle, close ──▶ Lost ◀─────┘ not reclaimable any more, or the present session lost
//!               │                                               │
//!        close, nobody uses a lock               nobody can use it any more, its outcomes are known
//!               ▼                                               ▼
//!            Closing ──▶ (ended)                             Ending ──▶ (ended)       ended: ENDED, NACK, OPENED says so
//! ```
//!
//! An agent that may be a copy leaves each of them *abandoned*: nothing more is sent in it, and the next CONFIRM names it lost.
//!
//! Invariants: at most one session has a channel, and it is the newest; a session is surrendered only after each of its local users has
//! said that it stopped, or the last instant that was shown to them has passed; a hint never leads there.

pub(crate) mod handshake;
pub(crate) mod reclaim;

use crate::api::HolderId;
use crate::call::{TaskId, Timer, Timers};
use crate::transport::{Channel, Cx, Flights, Sender};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::{Instant, Path, Question};
use cistern_seal::Sealer;
use cistern_wire::limits::{DATAGRAM_MIN, FORMER_MAX};
use cistern_wire::{Claim, EndReason, EndSession, FormerClaim, Header, Message, Messages, NackReason, ObjectId, Packer, Reply, SessionId};
use reclaim::{Completion, Source};

/// The end of a session is asked for so often; after that the server finds out by itself, at the latest when T has passed.
const TRIES_MAX: u32 = 8;

/// How a session stands.
#[derive(Debug)]
pub(crate) enum SessionState {
    /// The present one.
    Open,
    /// The present one, which the agent closes: END_SESSION goes through its channel until it is answered.
    Closing,
    /// Its locks are being taken over into the present one.
    Source(Source),
    /// Over here; somebody may still act under it.
    Lost,
    /// Over here, and nothing of it can be used again: the server is asked to end it.
    Ending(Ending),
    /// Over here, and perhaps used by another copy of this agent: nothing may be sent in it.
    Abandoned,
}

/// How far the end of a session is.
#[derive(Debug)]
pub(crate) struct Ending {
    reason: EndReason,
    /// It is to be asked for now; otherwise the answer is awaited.
    due: bool,
    tries: u32,
}

/// By what its datagrams are made.
#[derive(Debug)]
enum Link {
    Channel(Box<Channel>),
    Sender(Sender),
}

/// A session of this agent.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    state: SessionState,
    link: Link,
    /// Local users who were told that their locks are lost, and have not said that they stopped.
    users: BTreeSet<HolderId>,
    /// The end of the lease as it was shown to them last.
    shown_until: Option<Instant>,
    /// Files of this agent that go with it.
    ephemerals: BTreeSet<ObjectId>,
}

/// All sessions of this agent, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Vec<Session>,
    /// Mutations whose outcome is not known, by the session and the nonce under which they were sent. They stand for as long as their
    /// commands run, whatever becomes of the session here.
    outcomes: BTreeMap<(SessionId, u64), (TaskId, u32)>,
}

/// Who may still act under a session that is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    pub(crate) holders: BTreeSet<HolderId>,
    pub(crate) shown_until: Option<Instant>,
}

impl Session {
    const fn new(id: SessionId, state: SessionState, link: Link) -> Self {
        Self { id, state, link, users: BTreeSet::new(), shown_until: None, ephemerals: BTreeSet::new() }
    }

    const fn is_present(&self) -> bool {
        matches!(self.link, Link::Channel(_))
    }

    const fn is_over(&self) -> bool {
        matches!(self.state, SessionState::Lost | SessionState::Ending(_) | SessionState::Abandoned)
    }

    fn source(&self) -> Option<&Source> {
        if let SessionState::Source(source) = &self.state { Some(source) } else { None }
    }

    fn lose(&mut self, users: Users) {
        let Users { holders, shown_until } = users;
        self.state = SessionState::Lost;
        (self.users, self.shown_until) = (holders, shown_until);
        self.ephemerals.clear();
    }
}

/// The present session.
impl Sessions {
    /// A session is the present one.
    pub(crate) fn open(&mut self, channel: Box<Channel>) {
        debug_assert!(self.channel().is_none(), "one session at a time");
        self.table.push(Session::new(channel.session(), SessionState::Open, Link::Channel(channel)));
    }

    /// A session was offered, is not wanted, and may be open all the same: the server is asked to end it.
    pub(crate) fn decline(&mut self, channel: Channel) {
        let (id, (sender, _)) = (channel.session(), channel.shut());
        let ending = SessionState::Ending(Ending { reason: EndReason::Close, due: true, tries: 0 });
        // The present one stays the last.
        let place = self.table.len() - usize::from(self.channel().is_some());
        self.table.insert(place, Session::new(id, ending, Link::Sender(sender)));
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        match self.table.last() {
            Some(Session { link: Link::Channel(channel), .. }) => Some(channel),
            _ => None,
        }
    }

    pub(crate) fn channel_mut(&mut self) -> Option<&mut Channel> {
        match self.table.last_mut() {
            Some(Session { link: Link::Channel(channel), .. }) => Some(channel),
            _ => None,
        }
    }

    /// The present session.
    pub(crate) fn present(&self) -> Option<SessionId> {
        self.channel().map(Channel::session)
    }

    /// Whether there is one in which something can be asked.
    pub(crate) fn is_open(&self) -> bool {
        self.table.last().is_some_and(|session| matches!(session.state, SessionState::Open))
    }

    /// The present session stays, for nothing but its end. Gives the requests that were on their way in it.
    pub(crate) fn close(&mut self) -> Option<Flights> {
        let session = self.table.last_mut()?;
        let Link::Channel(channel) = &mut session.link else { return None };
        session.state = SessionState::Closing;
        session.ephemerals.clear();
        Some(channel.only_end())
    }

    /// There is no present session any more: it is a source, or lost. Gives the requests that were on their way in it.
    pub(crate) fn shut(&mut self, state: SessionState) -> Option<Flights> {
        let Session { id, link: Link::Channel(channel), ephemerals, .. } = self.table.pop_if(|session| session.is_present())? else {
            return None;
        };
        let (sender, flights) = channel.shut();
        let keeps = matches!(state, SessionState::Source(_));
        let former = Session::new(id, state, Link::Sender(sender));
        self.table.push(Session { ephemerals: if keeps { ephemerals } else { BTreeSet::new() }, ..former });
        Some(flights)
    }
}

/// Former sessions.
impl Sessions {
    /// Whether this is a former session of which something is left.
    pub(crate) fn is_former(&self, id: SessionId) -> bool {
        self.table.iter().any(|session| session.id == id && !session.is_present())
    }

    /// What protects the datagrams of a session, present or former.
    pub(crate) fn sealer(&mut self, id: SessionId) -> Option<&mut Sealer> {
        let session = self.table.iter_mut().find(|session| session.id == id)?;
        Some(match &mut session.link {
            Link::Channel(channel) => channel.sealer(),
            Link::Sender(sender) => &mut sender.sealer,
        })
    }

    /// Whether it is not known to have ended.
    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.table.iter().any(|session| session.id == id)
    }

    /// These sessions have ended at the server.
    pub(crate) fn ended(&mut self, timers: &mut Timers, ended: impl Fn(SessionId) -> bool) {
        self.table.retain(|session| {
            let gone = session.is_over() && ended(session.id);
            if gone {
                timers.cancel(Timer::Former(session.id));
            }
            !gone
        });
    }

    /// These sources and, if it was shut as lost, the one that was present are lost: these users may still act under them.
    pub(crate) fn lose(&mut self, timers: &mut Timers, users: &Users, lost: impl Fn(SessionId) -> bool) {
        for session in self.table.iter_mut().filter(|session| !session.is_present() && lost(session.id)) {
            if matches!(session.state, SessionState::Source(_) | SessionState::Lost) {
                session.lose(users.clone());
            }
        }
        while self.table.iter().filter(|session| session.is_over()).count() > FORMER_MAX
            && let Some(oldest) = self.table.iter().position(Session::is_over)
        {
            timers.cancel(Timer::Former(self.table.remove(oldest).id));
        }
    }

    /// This agent may be a copy of one that goes on under the same numbers: nothing more is sent in any session but the present one.
    pub(crate) fn abandon(&mut self, timers: &mut Timers) {
        //= docs/sealed.md#ended-sessions-clones-key-log
        //# A side that notices that it may be a copy MUST send nothing more in its sessions, not even END_SESSION, and open others.
        for session in self.table.iter_mut().filter(|session| !session.is_present()) {
            session.state = SessionState::Abandoned;
            timers.cancel(Timer::Former(session.id));
        }
    }

    /// The server was told of these sessions: of those that were abandoned it needs to know no more.
    pub(crate) fn told(&mut self, told: impl Fn(SessionId) -> bool) {
        self.table.retain(|session| !matches!(session.state, SessionState::Abandoned) || !told(session.id));
    }

    /// A session is forgotten, whatever it is.
    pub(crate) fn forget(&mut self, timers: &mut Timers, id: SessionId) {
        timers.cancel(Timer::Former(id));
        self.table.retain(|session| session.id != id);
    }

    /// A local user whose lock was lost has stopped.
    pub(crate) fn has_stopped(&mut self, holder: HolderId) {
        for session in &mut self.table {
            session.users.remove(&holder);
        }
    }

    /// Looks for lost sessions of which nothing can be used any more: they are surrendered now.
    pub(crate) fn surrender(&mut self, now: Instant, timers: &mut Timers) -> Vec<SessionId> {
        let Self { table, outcomes } = self;
        let mut surrendered = Vec::new();
        for session in table.iter_mut().filter(|session| matches!(session.state, SessionState::Lost)) {
            //= wire-spec.md#11-3-failure-and-ending
            //# Surrender: an agent MUST say so only when its caches are dropped, its holders have stopped or their instants passed, and all
            //# I/O under its locks has ended.
            let until = session.shown_until.filter(|until| !session.users.is_empty() && !now.lease_over(*until));
            match until {
                Some(until) => timers.set(Timer::Former(session.id), until, Question::LeaseOver),
                // The end of a session is the end of what the server knows of its mutations.
                None if outcomes.keys().any(|(of, _)| *of == session.id) => {}
                None => {
                    session.state = SessionState::Ending(Ending { reason: EndReason::Surrender, due: true, tries: 0 });
                    surrendered.push(session.id);
                }
            }
        }
        surrendered
    }

    /// Nobody used the session when it ended here: the server is asked to end it, whether this agent surrenders or not.
    pub(crate) fn end(&mut self, id: SessionId) {
        if let Some(session) = self.table.iter_mut().find(|session| session.id == id) {
            session.state = SessionState::Ending(Ending { reason: EndReason::Close, due: true, tries: 0 });
        }
    }

    /// The answer to END_SESSION is overdue, or the last instant shown has passed (which is looked after once in each turn).
    pub(crate) fn timed_out(&mut self, id: SessionId) {
        let session = self.table.iter_mut().find(|session| session.id == id);
        if let Some(Session { state: SessionState::Ending(ending), .. }) = session {
            ending.due = ending.tries < TRIES_MAX;
        }
    }

    /// Whether an END_SESSION is due.
    pub(crate) fn has_end_due(&self) -> bool {
        self.table.iter().any(|session| matches!(session.state, SessionState::Ending(Ending { due: true, .. })))
    }

    /// Makes the datagram of the first END_SESSION that is due.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Path> {
        for session in &mut self.table {
            let Session { id, state: SessionState::Ending(ending), link: Link::Sender(sender), .. } = session else { continue };
            if !core::mem::replace(&mut ending.due, false) {
                continue;
            }
            let packet = sender.counter.take()?;
            let header = Header { from_server: false, session: *id, packet };
            let mut packer = Packer::of_form(buf, header, DATAGRAM_MIN, sender.sealer.form());
            packer.push(&EndSession { serial: sender.serial, reason: ending.reason }.into());
            packer.finish();
            sender.sealer.seal(cx.cipher, cx.now.uptime(), buf);
            cx.timers.set(Timer::Former(*id), cx.now.plus(sender.rtt.backoff(ending.tries, cx.rng)), Question::Waited);
            ending.tries += 1;
            return Some(sender.path);
        }
        None
    }

    /// Whether a datagram of a former session tells of its end, which was asked for: all that is heard in it.
    pub(crate) fn hears_end(&self, id: SessionId, mut messages: Messages<'_>) -> bool {
        let session = self.table.iter().find(|session| session.id == id);
        let Some(Session { state: SessionState::Ending(Ending { due: false, .. }), link: Link::Sender(sender), .. }) = session else {
            return false;
        };
        messages.any(|message| match message {
            Message::Ended(ended) => sender.counter.has_dealt(ended.echo),
            Message::Nack(nack) => nack.reason == NackReason::Ended && sender.counter.has_dealt(nack.echo),
            _ => false,
        })
    }

    /// What CONFIRM says of the present session, which is verified if there is one, and of the former ones.
    pub(crate) fn claims(&self) -> Vec<FormerClaim> {
        let claim = |session: &Session| match session.state {
            SessionState::Open | SessionState::Closing => Claim::Continuing,
            SessionState::Source(_) => Claim::Reclaiming,
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST name a session lost or surrendered only after a NACK of it, after OPENED of another one, after it closed it, or when
            //# it may be a copy.
            SessionState::Lost | SessionState::Abandoned => Claim::Lost,
            SessionState::Ending(_) => Claim::Surrendered,
        };
        // Where not all can be named, those from which something can be reclaimed come first, and of them those that hold locks.
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent that has a session MUST name it first in CONFIRM, as continuing.
        let rank = |session: &Session| match &session.state {
            SessionState::Open | SessionState::Closing => 0,
            SessionState::Source(source) if source.has_unnamed() => 1,
            SessionState::Source(_) => 2,
            SessionState::Lost | SessionState::Ending(_) | SessionState::Abandoned => 3,
        };
        let newest_first = self.table.iter().rev().filter(|session| session.source().is_none());
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The agent MUST name in CONFIRM each former session that it does not know to have ended: lost, reclaiming or surrendered.
        let mut named: Vec<&Session> = self.table.iter().filter(|session| session.source().is_some()).chain(newest_first).collect();
        named.sort_by_key(|session| rank(session));
        named.truncate(FORMER_MAX);
        named.into_iter().map(|session| FormerClaim { session: session.id, claim: claim(session) }).collect()
    }
}

/// Outcomes of mutations.
impl Sessions {
    /// It is to be asked what became of a mutation.
    pub(crate) fn await_outcome(&mut self, id: SessionId, nonce: u64, call: (TaskId, u32)) {
        self.outcomes.insert((id, nonce), call);
    }

    /// It is known, or nobody wants to know any more. Gives the call.
    pub(crate) fn close_outcome(&mut self, id: SessionId, nonce: u64) -> Option<(TaskId, u32)> {
        self.outcomes.remove(&(id, nonce))
    }

    pub(crate) fn is_outcome_open(&self, id: SessionId, nonce: u64) -> bool {
        self.outcomes.contains_key(&(id, nonce))
    }

    /// All that are not known, with the calls that they were.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = ((SessionId, u64), (TaskId, u32))> {
        self.outcomes.iter().map(|(of, call)| (*of, *call))
    }

    /// Whether the outcome of a mutation of this session is awaited.
    pub(crate) fn is_asked_about(&self, id: SessionId) -> bool {
        self.outcomes.keys().any(|(of, _)| *of == id)
    }
}

/// Sources of a reclaim.
impl Sessions {
    /// The sessions that are reclaimed from, oldest first.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (SessionId, &Source)> {
        self.table.iter().filter_map(|session| session.source().map(|source| (session.id, source)))
    }

    /// The same, to be changed.
    pub(crate) fn sources_mut(&mut self) -> impl Iterator<Item = (SessionId, &mut Source)> {
        self.table.iter_mut().filter_map(|session| match &mut session.state {
            SessionState::Source(source) => Some((session.id, source)),
            _ => None,
        })
    }

    /// One of them.
    pub(crate) fn source_mut(&mut self, id: SessionId) -> Option<&mut Source> {
        self.sources_mut().find(|source| source.0 == id).map(|source| source.1)
    }

    /// The session is not the one any more in which their ends were said. Where one was, it may have taken effect.
    pub(crate) fn reopen_sources(&mut self) {
        for (_, source) in self.sources_mut() {
            source.may_have_ended |= core::mem::take(&mut source.completion) != Completion::Open;
        }
    }

    /// A source could not be reclaimed any more: its files go with it.
    pub(crate) fn source_lost(&mut self, id: SessionId) {
        if let Some(session) = self.table.iter_mut().find(|session| session.id == id) {
            session.ephemerals.clear();
        }
    }

    /// The server knows a source no more. If its end was said, that is taken to be why, and its files to be bound to the session in which it
    /// was: said and never received, while the source ended with the grace, it looks the same.
    pub(crate) fn source_ended(&mut self, id: SessionId) {
        let ended = |session: &&mut Session| session.id == id && session.source().is_some_and(|source| source.may_have_ended);
        let moved = self.table.iter_mut().find(ended).map(|session| core::mem::take(&mut session.ephemerals));
        self.move_ephemerals(moved.unwrap_or_default());
    }

    /// All of them, which have ended: their locks belong to the present session.
    pub(crate) fn take_sources(&mut self) -> Vec<(SessionId, Source)> {
        let mut sources = Vec::new();
        let mut moved = BTreeSet::new();
        for mut session in self.table.extract_if(.., |session| session.source().is_some()) {
            moved.append(&mut session.ephemerals);
            if let SessionState::Source(source) = session.state {
                sources.push((session.id, source));
            }
        }
        self.move_ephemerals(moved);
        sources
    }
}

/// Ephemeral files of this agent: each goes with the session to which the server has bound it.
impl Sessions {
    /// How many there are.
    pub(crate) fn ephemerals(&self) -> usize {
        self.table.iter().map(|session| session.ephemerals.len()).sum()
    }

    /// Whether it is one of them.
    pub(crate) fn owns_ephemeral(&self, object: ObjectId) -> bool {
        self.table.iter().any(|session| session.ephemerals.contains(&object))
    }

    /// A mutation that was asked in a session was acknowledged. `makes` says whether an item of it, if it was a batch, makes an ephemeral
    /// file: the answer of a batch tells no attributes.
    pub(crate) fn note_ephemerals(&mut self, id: SessionId, reply: &Reply<'_>, makes: impl Fn(usize) -> bool) {
        if let Reply::Batched(batched) = reply {
            for (at, item) in batched.items.iter().enumerate() {
                if item.version == 0 {
                    self.ephemeral_gone(item.object);
                } else if makes(at) {
                    self.ephemeral_made(id, item.object);
                }
            }
        }
        let Reply::Changed(changed) = reply else { return };
        for effect in changed.effects.iter().filter(|effect| effect.attr.is_ephemeral() && !effect.attr.is_lease()) {
            if effect.attr.nlink == 0 {
                self.ephemeral_gone(effect.attr.object);
            } else if effect.before == 0 {
                self.ephemeral_made(id, effect.attr.object);
            }
        }
    }

    fn ephemeral_made(&mut self, id: SessionId, object: ObjectId) {
        let is_kept = |session: &&mut Session| session.id == id && matches!(session.state, SessionState::Open | SessionState::Source(_));
        if let Some(session) = self.table.iter_mut().find(is_kept) {
            session.ephemerals.insert(object);
        }
    }

    /// Those of sources that have ended are bound to the newest session.
    fn move_ephemerals(&mut self, mut moved: BTreeSet<ObjectId>) {
        if let Some(session) = self.table.last_mut() {
            session.ephemerals.append(&mut moved);
        }
    }

    /// It is gone.
    pub(crate) fn ephemeral_gone(&mut self, object: ObjectId) {
        for session in &mut self.table {
            session.ephemerals.remove(&object);
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// How every session stands, oldest first.
    pub(crate) fn states(&self) -> Vec<(SessionId, &'static str)> {
        let name = |session: &Session| match &session.state {
            SessionState::Open => "open",
            SessionState::Closing => "closing",
            SessionState::Source(_) => "source",
            SessionState::Lost => "lost",
            SessionState::Ending(_) => "ending",
            SessionState::Abandoned => "abandoned",
        };
        self.table.iter().map(|session| (session.id, name(session))).collect()
    }
}
