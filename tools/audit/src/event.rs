//! What happens in a story: one event for each thing that a datagram does, with the frame that shows it and the frame it refers to.
//!
//! Decides the shape of what rules judge and of what pictures and listings are made from. Place in the walk: made by `story`, drained by
//! its caller after each datagram. Invariant: an event says what was seen, never what it means for a rule.
//! Leaves to others: words and drawing (the inspector), verdicts (the rules).

use cistern_wire::{
    AgentId, CancelOutcome, DropReason, EndReason, Fate, Generation, Keep, Kind, LockId, Mode, NackReason, ObjectId, ReceiptAnswer,
    ReplyKind, SessionFate, SessionId, Status, StoreId,
};
use std::net::SocketAddr;
use std::time::Duration;

/// A datagram as a capture has it.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// Number of the frame in the capture, from 1.
    pub frame: u64,
    /// When it was captured, since the Unix epoch or any other origin; rules use differences only.
    pub at: Duration,
    /// Who sent it, as its headers say.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// The UDP payload.
    pub payload: &'a [u8],
}

impl<'a> From<&'a cistern_capture::Datagram> for Passage<'a> {
    fn from(datagram: &'a cistern_capture::Datagram) -> Self {
        Self { frame: datagram.number, at: datagram.at, from: datagram.from, to: datagram.to, payload: &datagram.payload }
    }
}

/// Place of a host among the hosts of a story.
pub type HostId = usize;

/// Which part a host plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers.
    Server,
    /// It asks.
    Agent,
}

/// One end of the conversation: a column of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Which part it plays.
    pub role: Role,
    /// What to call it: an agent's label, else an address.
    pub name: String,
    /// The agent, if a HELLO has named it.
    pub agent: Option<AgentId>,
    /// The store, if it is a server and a WELCOME has named it.
    pub store: Option<StoreId>,
    /// Its addresses, in order of appearance.
    pub addresses: Vec<SocketAddr>,
}

/// Where the transmission is that an answer echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was seen before the answer and carried what is answered.
    Seen {
        /// Its frame.
        frame: u64,
        /// When it passed.
        at: Duration,
        /// Bytes of its datagram.
        length: usize,
    },
    /// It was seen and carried something else.
    Other {
        /// Its frame.
        frame: u64,
    },
    /// It was not seen before the answer.
    Unseen,
    /// It may have been seen and was forgotten.
    Forgotten,
}

/// What a renewing answer gives: the lease of its session from the send time of what it echoes.
///
/// Where the capture is not the agent's own, the send time lies between two bounds, and so does the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Frame of the transmission echoed.
    pub by: u64,
    /// The earliest that it can have been sent.
    pub from_earliest: Duration,
    /// When it passed here: it was sent then at the latest.
    pub from_latest: Duration,
    /// Until when the lease certainly lasts.
    pub certain_until: Duration,
    /// Until when it possibly lasts.
    pub possible_until: Duration,
    /// Whether it made the lease last longer: nothing that was sent later had been echoed before.
    pub moved: bool,
}

/// An answer to an agent's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its kind.
    pub kind: Kind,
    /// The nonce or the serial that it names; 0: none.
    pub number: u64,
    /// The packet number that it echoes; `None`: its kind echoes nothing.
    pub echo: Option<u64>,
    /// What it echoes.
    pub cause: Cause,
    /// What reply it carries.
    pub reply: Option<ReplyKind>,
    /// Why the operation failed, if it did.
    pub status: Option<Status>,
    /// The frame in which the same transmission was answered in this before.
    pub repeats: Option<u64>,
    /// The frame in which its request was answered before, with a reply or for good.
    pub before: Option<u64>,
    /// Whether the reply says something else than that answer did.
    pub differs: bool,
    /// What of the reply does not belong to its request.
    pub unfit: Option<&'static str>,
    /// The limit that the transmission answered has set, or the largest of all where none is echoed; 0: not known.
    pub limit: u16,
    /// The lease that it gives, if it renews and enough is known.
    pub renewal: Option<Renewal>,
}

/// How a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// In the answer to a request.
    Answer,
    /// As the effect of the session's own mutation.
    Effect,
    /// By a notice, after waiting.
    Notice,
    /// What a downgrade left.
    Downgrade {
        /// The generation that was given back for it.
        of: Generation,
    },
    /// Given back to its former holder after a restart.
    Reclaim,
}

/// A lock given to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lock.
    pub lock: LockId,
    /// Its mode.
    pub mode: Mode,
    /// The grant's number.
    pub generation: Generation,
    /// Tokens of its run; 0 for a cache lock.
    pub run: u32,
    /// Version of the object with which a cache lock came; 0 for an advisory lock.
    pub version: u64,
    /// How it was given.
    pub how: How,
    /// The request that it answers; 0: none is known.
    pub nonce: u64,
    /// Whether the session did not have it yet, nor had given it up.
    pub news: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A datagram that its receiver drops.
    Unreadable {
        /// Why.
        reason: DropReason,
    },
    /// The same datagram once more: the network or the capture has copied it.
    Copy {
        /// The frame that it is a copy of.
        of: u64,
    },
    /// A packet number was used for another datagram before.
    NumberTwice {
        /// The frame that had it.
        of: u64,
    },
    /// A HELLO.
    Hello {
        /// The handshake.
        handshake: u64,
        /// Who.
        agent: AgentId,
        /// Which start of it.
        incarnation: u64,
        /// Whether it carries a cookie.
        cookie: bool,
    },
    /// A session was offered, or its WELCOME was repeated.
    Welcome {
        /// The session.
        session: SessionId,
        /// The handshake.
        handshake: u64,
        /// The store.
        store: StoreId,
        /// Store epoch and server incarnation.
        incarnation: (u8, u64),
        /// Whether the session was offered before.
        again: bool,
    },
    /// A session is open.
    Opened {
        /// What became of former sessions.
        former: Vec<(SessionId, SessionFate)>,
    },
    /// A request, for the first time or again.
    Request {
        /// Its kind.
        kind: Kind,
        /// Its nonce.
        nonce: u64,
        /// Frame of its first transmission; its own, if it is the first.
        first: u64,
        /// Whether it says something else than under the same nonce before.
        changed: bool,
        /// How far below the nonce the floor is that it announces.
        back: u16,
        /// The highest floor that a transmission with a lower packet number has announced.
        floor_before: Option<u64>,
        /// Whether it was not seen before.
        news: bool,
    },
    /// A mutation names a cache lock as its session's own, suspended for it.
    Uses {
        /// The lock.
        lock: LockId,
        /// The generation.
        generation: Generation,
        /// Whether the session was seen to be given it; `None`: it may have been forgotten.
        given: Option<bool>,
        /// The other session that was seen to be given it.
        of: Option<SessionId>,
    },
    /// A control message, for the first time or again.
    Control {
        /// Its kind.
        kind: Kind,
        /// Its serial.
        serial: u64,
        /// Frame of its first transmission.
        first: u64,
        /// Whether it says something else than under the same serial before.
        changed: bool,
        /// Whether it was not seen before.
        news: bool,
    },
    /// A notice, for the first time or again.
    Notice {
        /// Its kind.
        kind: Kind,
        /// Its number.
        seq: u64,
        /// Frame of its first transmission.
        first: u64,
        /// How often it was sent, this time included.
        transmissions: u32,
        /// The lock that it is about, if it is about one.
        lock: Option<(LockId, Generation)>,
        /// The object that it is about; 0: none.
        object: ObjectId,
        /// The request that it ends the wait of, if it does.
        nonce: u64,
        /// Why that wait is over, if it ends without a grant.
        status: Option<Status>,
        /// Whether it says something else than under the same number before.
        changed: bool,
        /// The time since its transmission before, if there was one.
        gap: Option<Duration>,
    },
    /// An agent goes on sending long after a notice passed that it has not receipted; told once of each.
    Unreceipted {
        /// The notice.
        seq: u64,
        /// Frame of its first transmission.
        first: u64,
    },
    /// An agent's word to a notice.
    Receipt {
        /// The notice.
        seq: u64,
        /// The word.
        answer: ReceiptAnswer,
        /// Frame of the notice's first transmission, if it was seen.
        of: Option<u64>,
    },
    /// An answer.
    Answer(Answer),
    /// A lock was given.
    Granted(Grant),
    /// The tokens of a grant were given before, to another session or for another lock.
    Overlaps {
        /// The grant.
        generation: Generation,
        /// The earlier one.
        with: Generation,
        /// Whose it was.
        session: SessionId,
        /// The frame that gave it.
        frame: u64,
    },
    /// An agent gave a lock back, or a part of it.
    Released {
        /// The lock.
        lock: LockId,
        /// The generation given back.
        generation: Generation,
        /// What it keeps.
        keep: Keep,
        /// Whether the session was seen to be given that generation; `None`: it may have been forgotten.
        given: Option<bool>,
    },
    /// A mutation changed an object.
    Changed {
        /// The object.
        object: ObjectId,
        /// Its version before; 0: it did not exist.
        before: u64,
        /// Its version after.
        version: u64,
        /// Whether it is gone.
        gone: bool,
        /// The request.
        nonce: u64,
        /// The other request that was seen to make the same version: its session and nonce.
        by_other: Option<(SessionId, u64)>,
    },
    /// An answer shows an older version of an object than was shown before.
    Older {
        /// The object.
        object: ObjectId,
        /// The version.
        version: u64,
        /// The newer one.
        newer: u64,
        /// When the newer one was shown, and in which frame.
        shown: (Duration, u64),
        /// The request that asked.
        nonce: u64,
    },
    /// An ephemeral file is gone.
    Gone {
        /// The file.
        object: ObjectId,
        /// The session that it is bound to; `None`: that, or whether it is one, may have been forgotten.
        owner: Option<SessionId>,
        /// Whether a mutation is known that took it away.
        removed: bool,
        /// Whether a request without an answer may have.
        unanswered: bool,
    },
    /// A refusal: the session is timing out or has ended.
    Nack {
        /// The request; 0: a control message.
        nonce: u64,
        /// Why.
        reason: NackReason,
        /// What became of the request.
        fate: Fate,
        /// Whether it is the first of its session that was seen.
        first: bool,
        /// The frame in which the request was answered as executed, if it was.
        executed: Option<u64>,
    },
    /// A wait was cancelled, or came to its end before.
    Cancelled {
        /// The CANCEL that is answered.
        serial: u64,
        /// The request.
        nonce: u64,
        /// How.
        outcome: CancelOutcome,
        /// The grant that it names; 0: none.
        generation: Generation,
    },
    /// An agent gives its session up.
    GivesUp {
        /// The session.
        session: SessionId,
        /// Why; `None`: a CONFIRM says that it is surrendered, or its reclaim is complete.
        reason: Option<EndReason>,
    },
    /// A lock went to another session, or was passed over by a mutation, although its holder had not given it back: its session was stolen
    /// from, if its lease can be over.
    Passed {
        /// The session that held it.
        holder: SessionId,
        /// The lock.
        lock: LockId,
        /// The generation held.
        generation: Generation,
        /// The frame that gave it.
        since: u64,
        /// When it was passed.
        passed: Duration,
        /// Until when the holder's lease can possibly last; `None`: not known.
        possible_until: Option<Duration>,
        /// Whether a mutation passed it, and not a grant.
        by_mutation: bool,
    },
    /// A lock was given, or a mutation concerns it, and who held it may have been forgotten.
    PassedUnknown {
        /// The lock.
        lock: LockId,
    },
    /// A session was renewed by a receipt that is not T older than the passing of its locks to others.
    RenewedAfterSteal {
        /// The session.
        of: SessionId,
        /// Frame of the transmission whose receipt renews it.
        by: u64,
        /// When a lock of it was passed, and in which frame.
        stolen: (Duration, u64),
    },
    /// A server says that it does not know a session.
    Hint,
    /// The server was started anew.
    Restarted {
        /// Its store.
        store: StoreId,
        /// Epoch and incarnation before.
        before: (u8, u64),
        /// And now.
        now: (u8, u64),
    },
    /// An address is tried, or has answered.
    Path {
        /// The kind of message.
        kind: Kind,
        /// Its token.
        token: u64,
    },
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Frame of the datagram.
    pub frame: u64,
    /// When it passed.
    pub at: Duration,
    /// Who sent it.
    pub from: HostId,
    /// To whom.
    pub to: HostId,
    /// Whether it went to the server.
    pub up: bool,
    /// The session; 0 in handshakes.
    pub session: SessionId,
    /// The packet number.
    pub packet: u64,
    /// Bytes of the datagram.
    pub length: usize,
    /// What.
    pub what: What,
}

/// What a stretch of time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalKind {
    /// The session's lease lasts, for certain.
    Lease,
    /// It possibly lasts: the send time of what renewed it is not known more exactly.
    PossibleLease,
    /// The server refuses the session: from its first NACK on.
    TimingOut,
    /// The session has a lock.
    Hold {
        /// The lock.
        lock: LockId,
        /// Its mode.
        mode: Mode,
        /// The grant.
        generation: Generation,
    },
    /// The server waits for former holders after a start.
    Grace,
}

/// A stretch of time of a session, or of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// What it is.
    pub kind: IntervalKind,
    /// The session; 0: the server itself.
    pub session: SessionId,
    /// Whose column it belongs to.
    pub host: HostId,
    /// From when.
    pub from: Duration,
    /// Until when; `None`: its end was not seen.
    pub until: Option<Duration>,
    /// Frame that began it.
    pub begun_by: u64,
    /// Frame that ended it; `None`: time did, or nothing.
    pub ended_by: Option<u64>,
}
