//! A bench for judges: hand-made happenings on true clocks, with an empty disk and no cores.
//!
//! Decides nothing; only tests use it. Each step shows a happening to the facts and to one family, in the court's order.
//! Units: milliseconds, from [`T0`] on every clock.

use super::case::{Case, Verdict};
use super::{Facts, Family};
use crate::clock::{NodeClock, Rates};
use crate::disk::Disk;
use crate::observe::{AgentSight, Node, Seen, Sight, True, UserOp, Violation};
use bytes::Bytes;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Locked, OpError, Output};
use cistern_link::Instant;
use cistern_server::store::{Batch, Key};
use cistern_wire::limits::VERSION;
use cistern_wire::{
    Attr, Bytes8, Confirm, Datagram, Field as _, Generation, Handle, Header, Hello, List, Message, Mode, ObjectId, ObjectKind, Opened,
    Packer, SessionId, StoreId, Welcome,
};
use std::net::SocketAddr;

/// What all clocks read when a bench begins, in milliseconds.
pub(super) const T0: u64 = 1_000;
/// Lease period of every session, in milliseconds.
pub(super) const TAU: u64 = 1_000;
/// δ of 1 % and ε of 1 ms: T = 1,011 ms.
pub(super) const T: u64 = 1_011;
const MS: u64 = 1_000_000;

/// The bench.
pub(super) struct Bench {
    pub(super) facts: Facts,
    pub(super) now: True,
    pub(super) clocks: Vec<NodeClock>,
    pub(super) server_clock: NodeClock,
    pub(super) disk: Disk,
    pub(super) config: cistern_server::Config,
    pub(super) healed_at: Option<True>,
    next_op: u64,
    next_batch: u64,
}

/// Address of an agent, and of the server.
pub(super) fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(n).unwrap()], 7))
}

pub(super) const SERVER: usize = 200;

/// Insists on a violation.
#[track_caller]
pub(super) fn fired(verdict: Verdict, invariant: &str, check: &str) {
    let violation: Violation = verdict.expect_err("the judge said nothing");
    assert_eq!((violation.invariant, violation.check), (invariant, check), "{violation}");
}

/// A datagram.
pub(super) fn datagram(from_server: bool, session: u64, packet: u64, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { from_server, session: SessionId(session), packet };
    let mut packer = Packer::new(&mut bytes, header, 8_000);
    assert!(messages.iter().all(|message| packer.push(message)));
    packer.finish();
    assert!(Datagram::seen(&bytes).is_ok());
    bytes
}

impl Bench {
    pub(super) fn new(agents: usize) -> Self {
        let clock = NodeClock::new(Instant::new(T0 * MS, T0 * MS), Rates::TRUE);
        let mut bench = Self {
            facts: Facts::new(agents),
            now: True(0),
            clocks: vec![clock.clone(); agents],
            server_clock: clock,
            disk: Disk::default(),
            config: cistern_server::Config { lease: std::time::Duration::from_millis(TAU), ..cistern_server::Config::default() },
            healed_at: None,
            next_op: 1,
            next_batch: 1,
        };
        for agent in 0..agents {
            bench.facts.sessions.agents[agent].start = 1;
            bench.facts.sessions.agents[agent].up = true;
        }
        bench.facts.sessions.server_up = true;
        bench
    }

    /// Time passes, in milliseconds.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now.0 += ms * MS;
    }

    /// A reading of every clock `ms` after the beginning.
    pub(super) fn instant(&self, ms: u64) -> Instant {
        Instant::new((T0 + ms) * MS, (T0 + ms) * MS)
    }

    pub(super) fn sight<R>(&self, look: impl FnOnce(&Sight<'_>) -> R) -> R {
        let agent = |(n, clock)| AgentSight { core: None, clock, address: address(n), paused: false };
        look(&Sight {
            now: self.now,
            agents: self.clocks.iter().enumerate().map(agent).collect(),
            server: None,
            server_clock: &self.server_clock,
            server_address: address(SERVER),
            server_paused: false,
            disk: &self.disk,
            server_config: &self.config,
            healed_at: self.healed_at,
            fence_only: false,
        })
    }

    /// Shows a happening.
    pub(super) fn show(&mut self, family: &mut dyn Family, seen: &Seen<'_>) -> Verdict {
        let mut facts = std::mem::replace(&mut self.facts, Facts::new(0));
        let verdict = self.sight(|sight| {
            let case = Case::new(sight, seen);
            facts.learn(&case);
            let verdict = family.look(&case, &facts);
            facts.digest(&case);
            verdict
        });
        self.facts = facts;
        verdict
    }

    pub(super) fn finish(&mut self, family: &mut dyn Family) -> Verdict {
        let facts = self.facts.clone();
        self.sight(|sight| family.end(sight, &facts))
    }
}

/// Datagrams.
impl Bench {
    pub(super) fn server_sends(&mut self, f: &mut dyn Family, session: u64, packet: u64, messages: &[Message<'_>]) -> Verdict {
        let bytes = datagram(true, session, packet, messages);
        self.show(f, &Seen::Sent { from: Node::Server, to: address(0), bytes: &bytes })
    }

    pub(super) fn server_gets(&mut self, f: &mut dyn Family, session: u64, packet: u64, messages: &[Message<'_>]) -> Verdict {
        let bytes = datagram(false, session, packet, messages);
        self.show(f, &Seen::Received { by: Node::Server, from: address(0), bytes: &bytes })
    }

    pub(super) fn agent_sends(&mut self, f: &mut dyn Family, agent: usize, session: u64, packet: u64, messages: &[Message<'_>]) -> Verdict {
        let bytes = datagram(false, session, packet, messages);
        self.show(f, &Seen::Sent { from: Node::Agent(agent), to: address(SERVER), bytes: &bytes })
    }

    pub(super) fn agent_gets(&mut self, f: &mut dyn Family, agent: usize, session: u64, packet: u64, messages: &[Message<'_>]) -> Verdict {
        let bytes = datagram(true, session, packet, messages);
        self.show(f, &Seen::Received { by: Node::Agent(agent), from: address(SERVER), bytes: &bytes })
    }

    pub(super) fn garbage_to_agent(&mut self, f: &mut dyn Family, agent: usize) -> Verdict {
        self.show(f, &Seen::Received { by: Node::Agent(agent), from: address(SERVER), bytes: b"garbage" })
    }

    /// A session is opened all the way, now, by an agent: HELLO packet 1, WELCOME; CONFIRM packet 1, OPENED; its record is durable.
    pub(super) fn open(&mut self, f: &mut dyn Family, agent: usize, session: u64) -> Verdict {
        let hello = hello(agent, session);
        self.agent_sends(f, agent, 0, 1, &[hello])?;
        self.server_gets(f, 0, 1, &[hello])?;
        let welcome = welcome(session, 1);
        self.server_sends(f, 0, 1, &[welcome])?;
        self.agent_gets(f, agent, 0, 1, &[welcome])?;
        self.agent_sends(f, agent, session, 1, &[confirm()])?;
        self.server_gets(f, session, 1, &[confirm()])?;
        self.record(f, session, true)?;
        self.facts.sessions.standing.insert(SessionId(session), "good");
        self.server_sends(f, session, 1, &[opened(1)])?;
        self.facts.sessions.agents[agent].view.session = Some(SessionId(session));
        self.facts.sessions.agents[agent].view.valid_until =
            Some(self.clocks[agent].at(self.now).plus(std::time::Duration::from_millis(TAU)));
        self.agent_gets(f, agent, session, 1, &[opened(1)])
    }

    /// A session's record, or its end, becomes durable.
    pub(super) fn record(&mut self, f: &mut dyn Family, session: u64, open: bool) -> Verdict {
        self.persist(f, vec![(Key::Session(SessionId(session)), open.then(|| Bytes::from_static(b"record")))])
    }

    /// A batch is handed to the store and becomes durable.
    pub(super) fn persist(&mut self, f: &mut dyn Family, writes: Vec<(Key, Option<Bytes>)>) -> Verdict {
        let id = self.write(f, writes)?;
        self.sync(f, id)
    }

    /// A batch is handed to the store.
    pub(super) fn write(&mut self, f: &mut dyn Family, writes: Vec<(Key, Option<Bytes>)>) -> Result<u64, Violation> {
        let batch = Batch { id: self.next_batch, writes };
        self.next_batch += 1;
        self.disk.write(batch.clone());
        self.show(f, &Seen::Persisted { batch: &batch })?;
        Ok(batch.id)
    }

    /// A value is on the disk, whoever put it there.
    pub(super) fn put(&mut self, key: Key, value: Bytes) {
        self.disk.write(Batch { id: 0, writes: vec![(key, Some(value))] });
        self.disk.sync();
    }

    /// A batch becomes durable.
    pub(super) fn sync(&mut self, f: &mut dyn Family, batch: u64) -> Verdict {
        self.disk.sync();
        self.show(f, &Seen::Durable { batch })
    }
}

/// The HELLO of a handshake whose number is that of its session.
pub(super) fn hello(agent: usize, session: u64) -> Message<'static> {
    Message::from(Hello {
        first_packet: 1 << 40,
        label: Bytes8(b"bench"),
        cookie: Bytes8(b"cookie"),
        ..Hello::new(cistern_wire::AgentId([u8::try_from(agent).unwrap() + 1; 16]), session)
    })
}

/// A WELCOME by server incarnation 1.
pub(super) fn welcome(session: u64, echo: u64) -> Message<'static> {
    welcome_by(session, echo, 1)
}

/// A WELCOME by a server incarnation.
pub(super) fn welcome_by(session: u64, echo: u64, incarnation: u64) -> Message<'static> {
    Message::from(Welcome {
        handshake: session,
        echo,
        version: VERSION,
        session: SessionId(session),
        handle: Handle(session),
        store: StoreId([9; 16]),
        epoch: 0,
        server_incarnation: incarnation,
        features: 0,
        lease_us: TAU * 1_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 500_000,
        window: 64,
        max_datagram: 1_232,
        first_packet: 1 << 40,
    })
}

/// OPENED, without a word about former sessions.
pub(super) fn opened(echo: u64) -> Message<'static> {
    Opened { serial: 1, echo, former: List::default(), resume: [0; 32], roster: 0 }.into()
}

/// CONFIRM, without a word about former sessions.
pub(super) fn confirm() -> Message<'static> {
    Confirm { serial: 1, former: List::default() }.into()
}

/// Users.
impl Bench {
    /// A command is given; gives its number.
    pub(super) fn submit(&mut self, f: &mut dyn Family, agent: usize, command: &Command) -> Result<UserOp, Violation> {
        let op = UserOp(self.next_op);
        self.next_op += 1;
        self.show(f, &Seen::Submitted { agent, op, command })?;
        Ok(op)
    }

    /// A command ends.
    pub(super) fn end(&mut self, f: &mut dyn Family, agent: usize, op: UserOp, result: Result<Output, OpError>) -> Verdict {
        self.show(f, &Seen::Ended { agent, op, result: Some(&result) })
    }

    /// A user gets a lock of object 7; `until` is what its machine's clocks read in milliseconds when it is over.
    pub(super) fn locked(&mut self, f: &mut dyn Family, agent: usize, holder: u64, mode: Mode, token: u64, until: u64) -> Verdict {
        let locked = Locked {
            holder: HolderId(holder),
            object: ObjectId(7),
            mode,
            generation: Generation(token),
            token,
            valid_until: Instant::new(until * MS, until * MS),
        };
        let op = UserOp(1_000_000 + token);
        self.show(f, &Seen::Ended { agent, op, result: Some(&Ok(Output::Locked(locked))) })
    }

    pub(super) fn unlock(&mut self, f: &mut dyn Family, agent: usize, holder: u64) -> Verdict {
        self.submit(f, agent, &Command::Unlock { holder: HolderId(holder) }).map(|_| ())
    }

    pub(super) fn lost(&mut self, f: &mut dyn Family, agent: usize, holder: u64) -> Verdict {
        let event = Event::Lock { holder: HolderId(holder), object: ObjectId(7), what: LockEvent::Lost };
        self.show(f, &Seen::Told { agent, event: &event })
    }
}

/// Attributes of an object at a version.
pub(super) fn attr(object: u64, version: u64) -> Attr {
    Attr { object: ObjectId(object), version, mode: 0o644, ..Attr::FILE }
}

/// The store's record of a file.
pub(super) fn object_record(version: u64, size: u64) -> Bytes {
    let mut w = vec![1];
    version.put(&mut w);
    ObjectKind::File.put(&mut w);
    w.extend_from_slice(&[0; 14]);
    size.put(&mut w);
    w.extend_from_slice(&[0; 33]);
    w.into()
}

/// The store's record of a name.
pub(super) fn entry_record(object: u64) -> Bytes {
    let mut w = vec![1];
    ObjectId(object).put(&mut w);
    ObjectKind::File.put(&mut w);
    w.into()
}

/// The store's record of a number.
pub(super) fn counter_record(value: u64) -> Bytes {
    let mut w = vec![1];
    value.put(&mut w);
    w.into()
}
