//! One place in flight: the request that stands in it, what answers it, and what it asks next.
//!
//! Decides the kinds of work: GETATTR, LOOKUP, SETATTR, READ or WRITE over and over, CREATE of one new file after the other, and LOCK (try) and
//! RELEASE in turn, each with a file of its own, so that no request ever waits for another. Place: `traffic` has one for each request in flight.
//! Invariant: a LOCK that is refused or anything but the one right reply is an error, never an exchange.

use crate::agent::Agent;
use crate::trouble::Trouble;
use cistern_wire::limits::ROOT;
use cistern_wire::{
    Ask, Bytes8, Bytes16, Create, Generation, GetAttr, Keep, List, Lock, LockClass, LockId, LockWait, Lookup, Message, Mode, ObjectId,
    Read, Release, ReleaseItem, Reply, SessionId, SetAttr, SetMask, Terms, Want, Write,
};
use std::time::{Duration, Instant};

/// Bytes of a write: what the peers are asked to write, too.
pub(crate) const WRITTEN: usize = 128;

/// What a slot asks next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The attributes of an object, without a cache lock.
    GetAttr(ObjectId),
    /// A name in the root directory, without a cache lock; the object is what it must name.
    Lookup(u32, ObjectId),
    /// The permission bits of a file, and its times; durable before it is answered.
    SetAttr(ObjectId),
    /// The contents of a file, without a cache lock.
    Read(ObjectId),
    /// `WRITTEN` bytes at the beginning of a file; durable before it is answered.
    Write(ObjectId),
    /// A new file in the root directory, the u32-th of the place of that number; durable before it is answered.
    Create(u32, u32),
    /// An exclusive advisory lock on a file, if it is free.
    Lock(ObjectId),
    /// That lock, given back.
    Release(ObjectId, Generation),
}

/// What a slot waits for: the key by which what comes finds its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    /// The answer to a session's request of that nonce.
    Nonce(u64, u64),
    /// The answer to a session's control message of that serial.
    Serial(u64, u64),
    /// A session's datagram of that packet number, echoed.
    Packet(u64, u64),
}

impl Awaited {
    /// What `message` answers.
    pub(crate) const fn answered_by(session: SessionId, message: &Message<'_>) -> Option<Self> {
        match message {
            Message::Ack(ack) => Some(Self::Nonce(session.0, ack.nonce)),
            Message::Pending(pending) => Some(Self::Nonce(session.0, pending.nonce)),
            Message::Released(released) => Some(Self::Serial(session.0, released.serial)),
            _ => None,
        }
    }
}

/// What a message of the server meant to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The answer.
    Answer,
    /// Word that the answer comes later.
    Later,
    /// An answer, but not the right one.
    Wrong,
}

/// One place in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    step: Step,
    awaited: Option<Awaited>,
    session: SessionId,
    packet: u64,
    first_sent: Instant,
    /// When the request should have been sent, if that is not when it was.
    intended: Option<Instant>,
    last_sent: Option<Instant>,
    /// When the LOCK was sent that the next RELEASE gives back.
    locked_from: Option<Instant>,
    /// The agent that asked, by its place among the agents of the load.
    pub(crate) agent: usize,
    /// The request, encoded.
    pub(crate) message: Vec<u8>,
}

impl Slot {
    /// An empty place that asks `step` first.
    pub(crate) fn new(step: Step) -> Self {
        let (session, first_sent) = (SessionId(0), Instant::now());
        Self {
            step,
            awaited: None,
            session,
            packet: 0,
            first_sent,
            intended: None,
            last_sent: None,
            locked_from: None,
            agent: 0,
            message: Vec::new(),
        }
    }

    /// Whether a request stands in it.
    pub(crate) const fn in_flight(&self) -> bool {
        self.awaited.is_some()
    }

    /// What answers the request that stands in it.
    pub(crate) const fn awaited(&self) -> Option<Awaited> {
        self.awaited
    }

    /// What the echo returns of it; once it was sent.
    pub(crate) const fn echo(&self) -> Awaited {
        Awaited::Packet(self.session.0, self.packet)
    }

    /// What it asks next.
    pub(crate) const fn step(&self) -> Step {
        self.step
    }

    /// From now on it asks that; nothing is in flight.
    pub(crate) const fn ask_next(&mut self, step: Step) {
        self.step = step;
    }

    /// Makes the next request, asked by the agent numbered `by`; false while that one's window is full.
    pub(crate) fn begin(&mut self, by: usize, agent: &mut Agent) -> bool {
        let lock = |object| LockId { object, class: LockClass::Advisory };
        let (release, name, names);
        let message = match self.step {
            Step::GetAttr(object) => agent.ask().map(|ask| Message::from(GetAttr { ask, object, want: Want::Nothing })),
            Step::Lookup(number, _) => {
                name = file_name(number);
                names = [Bytes8(name.as_bytes())];
                let names = List::of(&names);
                agent.ask().map(|ask| Message::from(Lookup { ask, start: ObjectId(ROOT), want: Want::Nothing, names }))
            }
            Step::SetAttr(object) => agent.ask().map(|ask| Message::from(set_attr(ask, object))),
            Step::Read(object) => agent.ask().map(|ask| Message::from(read(ask, object))),
            Step::Write(object) => agent.ask().map(|ask| Message::from(write(ask, object))),
            Step::Create(place, number) => {
                name = format!("{place}-{number}");
                agent.ask().map(|ask| Message::from(create(ask, name.as_bytes())))
            }
            Step::Lock(object) => agent.ask().map(|ask| Message::from(Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Try })),
            Step::Release(object, generation) => {
                release = [ReleaseItem { lock: lock(object), generation, keep: Keep::Nothing }];
                Some(Message::from(Release { serial: agent.next_serial(), items: List::of(&release) }))
            }
        };
        let Some(message) = message else {
            return false;
        };
        self.awaited = match (&message, message.ask()) {
            (Message::Release(release), _) => Some(Awaited::Serial(agent.session().0, release.serial)),
            (_, ask) => ask.map(|ask| Awaited::Nonce(agent.session().0, ask.nonce)),
        };
        self.message.clear();
        message.encode(&mut self.message);
        (self.agent, self.session, self.last_sent) = (by, agent.session(), None);
        true
    }

    /// The request just begun should have been sent then: what it waited since counts.
    pub(crate) const fn intend(&mut self, at: Instant) {
        self.intended = Some(at);
    }

    /// Takes note of a transmission.
    pub(crate) fn sent(&mut self, packet: u64, now: Instant) {
        self.packet = packet;
        if self.last_sent.is_none() {
            self.first_sent = self.intended.take().unwrap_or(now);
        }
        self.last_sent = Some(now);
    }

    /// Whether the last transmission was `after` ago and brought no answer.
    pub(crate) fn is_overdue(&self, now: Instant, after: Duration) -> bool {
        self.in_flight() && self.last_sent.is_some_and(|sent| now.saturating_duration_since(sent) >= after)
    }

    /// Goes on as if the server had answered; the generation is as large as a server's.
    pub(crate) const fn echoed(&mut self) {
        self.step = match self.step {
            same @ (Step::GetAttr(_) | Step::Lookup(..) | Step::SetAttr(_) | Step::Read(_) | Step::Write(_)) => same,
            Step::Create(place, number) => Step::Create(place, number.wrapping_add(1)),
            Step::Lock(object) => Step::Release(object, Generation(1)),
            Step::Release(object, _) => Step::Lock(object),
        };
    }

    /// What `message`, which answers what this slot awaits, means to it.
    pub(crate) fn take(&mut self, message: &Message<'_>) -> Taken {
        match message {
            Message::Ack(ack) => self.take_reply(&ack.reply),
            Message::Released(_) => {
                if let Step::Release(object, _) = self.step {
                    self.step = Step::Lock(object);
                }
                Taken::Answer
            }
            Message::Pending(_) => Taken::Later,
            _ => Taken::Wrong,
        }
    }

    fn take_reply(&mut self, reply: &Reply<'_>) -> Taken {
        match (self.step, reply) {
            (Step::GetAttr(object), Reply::Stated(stated)) if stated.attr.object == object => Taken::Answer,
            (Step::Lookup(_, object), Reply::Walked(found)) if found.steps.iter().last().is_some_and(|seen| seen.attr.object == object) => {
                Taken::Answer
            }
            (Step::Read(object), Reply::Data(data)) if data.attr.object == object => Taken::Answer,
            (Step::Create(place, number), Reply::Changed(_)) => {
                self.step = Step::Create(place, number.wrapping_add(1));
                Taken::Answer
            }
            (Step::SetAttr(object) | Step::Write(object), Reply::Changed(changed))
                if changed.effects.iter().any(|effect| effect.attr.object == object) =>
            {
                Taken::Answer
            }
            (Step::Lock(object), Reply::Granted(granted)) if granted.lock.object == object => {
                self.step = Step::Release(object, granted.generation);
                Taken::Answer
            }
            _ => Taken::Wrong,
        }
    }

    /// Whether the server may say this although no slot awaits it: the repeated answer to what was repeated, HELLO and CONFIRM among it.
    pub(crate) const fn may_come(message: &Message<'_>) -> bool {
        matches!(
            message,
            Message::Ack(_) | Message::Released(_) | Message::Pending(_) | Message::Challenge(_) | Message::Welcome(_) | Message::Opened(_)
        )
    }

    /// What is wrong with an answer.
    pub(crate) fn wrong(&self, message: &Message<'_>) -> Trouble {
        let (while_doing, expected) = match self.step {
            Step::GetAttr(_) => ("asking for attributes", "STATED"),
            Step::Lookup(..) => ("looking a name up", "WALKED"),
            Step::SetAttr(_) => ("setting attributes", "CHANGED"),
            Step::Read(_) => ("reading", "DATA"),
            Step::Write(_) => ("writing", "CHANGED"),
            Step::Create(..) => ("making a file", "CHANGED"),
            Step::Lock(_) => ("asking for a free lock", "GRANTED"),
            Step::Release(..) => ("giving a lock back", "RELEASED"),
        };
        Trouble::Answer { while_doing, expected, got: format!("{message:?}") }
    }

    /// After an answer and before the exchange is ended: how long LOCK and RELEASE took together, if it was the latter's.
    pub(crate) fn pair(&mut self, now: Instant) -> Option<Duration> {
        match self.step {
            // Taking an answer has made the next step of it.
            Step::Release(..) => {
                self.locked_from = Some(self.first_sent);
                None
            }
            Step::Lock(_) => self.locked_from.take().map(|from| now.saturating_duration_since(from)),
            _ => None,
        }
    }

    /// Ends the exchange: the place is free; gives how long it took.
    pub(crate) fn end(&mut self, agent: &mut Agent, now: Instant) -> Duration {
        if let Some(Awaited::Nonce(_, nonce)) = self.awaited.take() {
            agent.answered(nonce);
        }
        now.saturating_duration_since(self.first_sent)
    }
}

/// What the file that is looked up by this number is called.
pub(crate) fn file_name(number: u32) -> String {
    format!("bench-{number}")
}

fn create(ask: Ask, name: &[u8]) -> Create<'_> {
    let (name, terms) = (Bytes8(name), Terms::NONE);
    Create { ask, dir: ObjectId(ROOT), name, exclusive: true, mode: 0o600, uid: 0, gid: 0, ephemeral: false, terms }
}

fn read(ask: Ask, object: ObjectId) -> Read {
    Read { ask, object, offset: 0, length: 1 << 20, version: 0, want: Want::Nothing }
}

/// WRITE of `WRITTEN` bytes at the beginning of a file.
pub(crate) fn write(ask: Ask, object: ObjectId) -> Write<'static> {
    Write { ask, object, offset: 0, truncate: false, stage: 0, data: Bytes16(&[0xA5; WRITTEN]), terms: Terms::NONE }
}

fn set_attr(ask: Ask, object: ObjectId) -> SetAttr<'static> {
    let mask = SetMask { bits: SetMask::MODE | SetMask::MTIME_NOW };
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_testkit::session::WireSession;
    use cistern_wire::{Ack, Datagram, Done, Granted, Released};

    const FILE: ObjectId = ObjectId(9);

    fn agent() -> Agent {
        Agent::new(WireSession::plain(SessionId(5), 64), 0)
    }

    fn granted(generation: u64) -> Reply<'static> {
        let lock = LockId { object: FILE, class: LockClass::Advisory };
        Reply::Granted(Granted { lock, mode: Mode::Exclusive, generation: Generation(generation), run: 1 })
    }

    fn ack(reply: Reply<'_>) -> Message<'_> {
        Message::from(Ack { nonce: 1, echo: 1, reply })
    }

    #[test]
    fn lock_and_release_take_turns_and_the_release_names_the_grant() {
        let (mut agent, mut slot) = (agent(), Slot::new(Step::Lock(FILE)));
        assert!(slot.begin(0, &mut agent));
        assert_eq!(slot.awaited(), Awaited::answered_by(SessionId(5), &ack(granted(77))));
        assert_ne!(slot.awaited(), Awaited::answered_by(SessionId(6), &ack(granted(77))), "another session's");
        assert_eq!(slot.take(&ack(granted(77))), Taken::Answer);
        slot.end(&mut agent, Instant::now());
        assert!(!slot.in_flight());
        assert!(slot.begin(0, &mut agent));
        let mut datagram = Vec::new();
        agent.pack(&slot.message, &mut datagram);
        let datagram = Datagram::at_server(&datagram).unwrap();
        let Some(Message::Release(release)) = datagram.messages().next() else { panic!("a release follows a grant") };
        assert_eq!(release.items.iter().next().unwrap().generation, Generation(77));
        let answer = Message::from(Released { serial: 2, echo: 2, items: List::of(&[]) });
        assert_eq!(slot.awaited(), Awaited::answered_by(SessionId(5), &answer));
        assert_eq!(slot.take(&answer), Taken::Answer);
        assert_eq!(slot.step, Step::Lock(FILE));
    }

    #[test]
    fn any_other_reply_is_an_error_and_no_exchange() {
        let (mut agent, mut slot) = (agent(), Slot::new(Step::Lock(FILE)));
        slot.begin(0, &mut agent);
        let message = ack(Reply::Done(Done {}));
        assert_eq!(slot.take(&message), Taken::Wrong);
        let text = slot.wrong(&message).to_string();
        assert!(text.starts_with("asking for a free lock: expected GRANTED, got"), "{text}");
    }

    #[test]
    fn latency_of_a_request_sent_late_counts_from_when_it_should_have_been_sent() {
        let (mut agent, mut slot) = (agent(), Slot::new(Step::GetAttr(FILE)));
        let (start, ms) = (Instant::now(), Duration::from_millis);
        slot.begin(0, &mut agent);
        slot.intend(start);
        slot.sent(1, start + ms(40));
        assert_eq!(slot.end(&mut agent, start + ms(41)), ms(41));
        slot.begin(0, &mut agent);
        slot.sent(2, start + ms(50));
        assert_eq!(slot.end(&mut agent, start + ms(51)), ms(1), "an intention is of one request");
    }

    #[test]
    fn lock_and_release_take_together_from_the_request_of_the_one_to_the_answer_of_the_other() {
        let (mut agent, mut slot) = (agent(), Slot::new(Step::Lock(FILE)));
        let (start, ms) = (Instant::now(), Duration::from_millis);
        slot.begin(0, &mut agent);
        slot.sent(1, start);
        slot.take(&ack(granted(77)));
        assert_eq!(slot.pair(start + ms(1)), None);
        slot.end(&mut agent, start + ms(1));
        slot.begin(0, &mut agent);
        slot.sent(2, start + ms(5));
        slot.take(&Message::from(Released { serial: 2, echo: 2, items: List::of(&[]) }));
        assert_eq!(slot.pair(start + ms(7)), Some(ms(7)));
        assert_eq!(slot.end(&mut agent, start + ms(7)), ms(2));
    }

    #[test]
    fn latency_counts_from_the_first_transmission_of_a_request_sent_twice() {
        let (mut agent, mut slot) = (agent(), Slot::new(Step::GetAttr(FILE)));
        slot.begin(0, &mut agent);
        let start = Instant::now();
        let ms = Duration::from_millis;
        slot.sent(1, start);
        assert!(!slot.is_overdue(start + ms(99), ms(100)));
        assert!(slot.is_overdue(start + ms(100), ms(100)));
        slot.sent(2, start + ms(100));
        assert_eq!(slot.echo(), Awaited::Packet(5, 2));
        assert_eq!(slot.end(&mut agent, start + ms(130)), ms(130));
    }
}
