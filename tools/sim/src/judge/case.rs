//! One happening as judges look at it: decoded once, for all of them.
//!
//! Decides whether a datagram is one that its receiver acts on, and which grants of locks it carries. Place in the walk: made by the
//! court for each [`Seen`], before anybody looks. Invariant: judges read datagrams with the wire crate alone, never with a core.
//! Leaves to others: what it means (`sessions`, `locks`, the families).

use crate::observe::{Node, Seen, Sight, Violation};
use cistern_link::Instant;
use cistern_wire::{Datagram, Generation, Given, Header, LockClass, LockId, Message, Mode, ObjectId, Reply, SessionId};

/// What a judge says: nothing, or what does not hold.
pub(super) type Verdict = Result<(), Violation>;

/// A violation in words.
pub(super) fn violated(invariant: &'static str, check: &'static str, what: String) -> Verdict {
    Err(Violation { invariant, check, what })
}

/// A datagram that decodes whole.
#[derive(Clone, Debug)]
pub(super) struct Packet<'a> {
    pub(super) header: Header,
    pub(super) messages: Vec<Message<'a>>,
}

/// A grant of a lock on its way to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granting {
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    pub(super) generation: Generation,
    /// Tokens in its run; 0 for a cache lock.
    pub(super) run: u32,
    /// Version of the object when it was granted; 0 for an advisory lock.
    pub(super) version: u64,
    /// Whether it came as the effect of a mutation.
    pub(super) by_mutation: bool,
}

/// One happening.
pub(super) struct Case<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) seen: &'a Seen<'a>,
    /// The datagram, if it is about one that its receiver (or, sent, anybody) can decode.
    pub(super) packet: Option<Packet<'a>>,
}

impl<'a> Case<'a> {
    pub(super) fn new(sight: &'a Sight<'a>, seen: &'a Seen<'a>) -> Self {
        let decoded = match seen {
            Seen::Sent { bytes, .. } | Seen::Exposed { bytes, .. } => Datagram::seen(bytes).ok(),
            Seen::Received { by: Node::Server, bytes, .. } | Seen::Forged { by: Node::Server, bytes, .. } => {
                Datagram::at_server(bytes).ok()
            }
            Seen::Received { by: Node::Agent(_), bytes, .. } | Seen::Forged { by: Node::Agent(_), bytes, .. } => {
                Datagram::at_agent(bytes).ok()
            }
            _ => None,
        };
        let packet = decoded.map(|datagram| Packet { header: datagram.header, messages: datagram.messages().collect() });
        Self { sight, seen, packet }
    }

    /// What the server sent, with where it went.
    pub(super) fn sent_by_server(&self) -> Option<&Packet<'a>> {
        self.packet.as_ref().filter(|_| matches!(self.seen, Seen::Sent { from: Node::Server, .. }))
    }

    /// What the server received and can act on.
    pub(super) fn received_by_server(&self) -> Option<&Packet<'a>> {
        self.packet.as_ref().filter(|_| matches!(self.seen, Seen::Received { by: Node::Server, .. }))
    }

    /// What an agent sent.
    pub(super) fn sent_by_agent(&self) -> Option<(usize, &Packet<'a>)> {
        match self.seen {
            Seen::Sent { from: Node::Agent(agent), .. } => self.packet.as_ref().map(|packet| (*agent, packet)),
            _ => None,
        }
    }

    /// What an agent received and can act on.
    pub(super) fn received_by_agent(&self) -> Option<(usize, &Packet<'a>)> {
        match self.seen {
            Seen::Received { by: Node::Agent(agent), .. } => self.packet.as_ref().map(|packet| (*agent, packet)),
            _ => None,
        }
    }

    /// What the server's clock reads now.
    pub(super) fn server_now(&self) -> Instant {
        self.sight.server_clock.at(self.sight.now)
    }

    /// What an agent's clock reads now.
    pub(super) fn agent_now(&self, agent: usize) -> Instant {
        self.sight.agents[agent].clock.at(self.sight.now)
    }
}

impl Packet<'_> {
    pub(super) const fn session(&self) -> SessionId {
        self.header.session
    }
}

/// The packet number that a renewing message echoes.
pub(super) fn echo_of(message: &Message<'_>) -> Option<u64> {
    message.number("echo").filter(|_| message.kind().renews())
}

/// Every new grant that a message carries; not what a reclaim gives back, nor what a downgrade leaves.
pub(super) fn grants_of(message: &Message<'_>) -> Vec<Granting> {
    let mut all = Vec::new();
    match message {
        Message::Ack(ack) => ack.reply.each_grant(|Given { lock, mode, generation, run, version }| {
            let by_mutation = matches!(ack.reply, Reply::Changed(_));
            all.push(Granting { lock, mode, generation, run, version, by_mutation });
        }),
        Message::Grant(grant) => {
            let (lock, mode, generation, run) = (grant.lock, grant.mode, grant.generation, grant.run);
            all.push(Granting { lock, mode, generation, run, version: 0, by_mutation: false });
        }
        _ => {}
    }
    all
}

/// The cache lock of an object.
pub(super) const fn cache_lock(object: ObjectId) -> LockId {
    LockId { object, class: LockClass::Cache }
}

/// A true time in words.
pub(super) fn at(time: crate::observe::True) -> String {
    format!("{}.{:06}s", time.0 / 1_000_000_000, time.0 % 1_000_000_000 / 1_000)
}

/// A reading of a machine's clocks in words.
pub(super) fn reading(instant: Instant) -> String {
    let one = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000);
    if instant.raw_ns == instant.boot_ns {
        return format!("{}s", one(instant.raw_ns));
    }
    format!("{}/{}s", one(instant.raw_ns), one(instant.boot_ns))
}

/// A span in whole nanoseconds.
pub(super) fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
