//! Arbitrary scripts: agents that do anything, a disk that stalls, time that passes. What must hold whatever happens: no assertion of
//! the server fails, generations only grow, no agent that failed is renewed, and when all sessions have ended nothing is left.

use super::exclusion::Exclusion;
use super::world::{Got, LIMIT, Peer, ROOT, World, cache_lock, create, lock, ms};
use crate::Config;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Ask, Bytes8, Bytes16, Cancel, Claim, EndReason, EndSession, Generation, GetAttr, Keep, KeepAlive, List, ListLocks, Lock, LockId,
    LockWait, Lookup, Message, Mode, ObjectId, Receipt, ReceiptAnswer, Release, ReleaseItem, Reply, ServerStatus, SessionId, SetAttr,
    SetMask, Stage, Terms, Unlink, Want, Write,
};
use core::cell::Cell;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const PEERS: usize = 4;

/// One step of a script; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// A peer asks something; the number chooses what.
    Ask {
        peer: usize,
        what: u8,
        which: usize,
    },
    /// It sends its last datagram once more, under a new packet number.
    Again {
        peer: usize,
        back: usize,
    },
    /// It gives back a lock that it was granted, or says something to a notice.
    GiveBack {
        peer: usize,
        which: usize,
        keep: bool,
    },
    Receipt {
        peer: usize,
        which: usize,
        answer: u8,
    },
    /// It receipts everything that it was sent lately, in one datagram, and perhaps asks something in it.
    ReceiptAll {
        peer: usize,
        alive: bool,
    },
    Cancel {
        peer: usize,
        nonce: u64,
    },
    KeepAlive {
        peer: usize,
    },
    Open {
        peer: usize,
        incarnation: bool,
    },
    End {
        peer: usize,
        surrender: bool,
    },
    Evict {
        peer: usize,
    },
    Pass {
        ms: u64,
    },
    Stall {
        on: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let peer = 0..PEERS;
    prop_oneof![
        12 => (peer.clone(), any::<u8>(), any::<usize>()).prop_map(|(peer, what, which)| Step::Ask { peer, what, which }),
        4 => (peer.clone(), 0usize..4).prop_map(|(peer, back)| Step::Again { peer, back }),
        4 => (peer.clone(), any::<usize>(), any::<bool>()).prop_map(|(peer, which, keep)| Step::GiveBack { peer, which, keep }),
        6 => (peer.clone(), any::<usize>(), any::<u8>()).prop_map(|(peer, which, answer)| Step::Receipt { peer, which, answer }),
        2 => (peer.clone(), 1u64..40).prop_map(|(peer, nonce)| Step::Cancel { peer, nonce }),
        2 => peer.clone().prop_map(|peer| Step::KeepAlive { peer }),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, incarnation)| Step::Open { peer, incarnation }),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, surrender)| Step::End { peer, surrender }),
        1 => peer.prop_map(|peer| Step::Evict { peer }),
        6 => (0u64..900).prop_map(|ms| Step::Pass { ms }),
        1 => any::<bool>().prop_map(|on| Step::Stall { on }),
    ]
}

/// A step of a script in which everybody wants one lock, and hears and says too little in time.
fn quarrel() -> impl Strategy<Value = Step> {
    let peer = 0..PEERS;
    prop_oneof![
        6 => (peer.clone(), 6u8..7).prop_map(|(peer, what)| Step::Ask { peer, what, which: 0 }),
        4 => (peer.clone(), any::<usize>()).prop_map(|(peer, which)| Step::GiveBack { peer, which, keep: false }),
        6 => (peer.clone(), any::<bool>()).prop_map(|(peer, alive)| Step::ReceiptAll { peer, alive }),
        3 => peer.clone().prop_map(|peer| Step::KeepAlive { peer }),
        1 => peer.clone().prop_map(|peer| Step::Open { peer, incarnation: false }),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, surrender)| Step::End { peer, surrender }),
        1 => peer.prop_map(|peer| Step::Evict { peer }),
        14 => (0u64..500).prop_map(|ms| Step::Pass { ms }),
    ]
}

/// A peer and what it has seen.
struct Actor {
    peer: Peer,
    /// Requests sent in the present session.
    sent: Vec<Vec<u8>>,
    grants: Vec<(LockId, Generation)>,
    notices: Vec<u64>,
    /// What the notices were about that can be disowned.
    named: BTreeMap<u64, (LockId, Generation)>,
    /// Whether a NACK was seen: then nothing of this session may renew any more.
    nacked: Option<SessionId>,
}

struct Theatre {
    world: World,
    actors: Vec<Actor>,
    objects: Vec<ObjectId>,
    /// Newest generation seen of each lock.
    newest: BTreeMap<LockId, Generation>,
    names: u32,
    exclusion: Exclusion,
}

impl Theatre {
    fn new([surrender, rescue, last_heard]: [bool; 3]) -> Self {
        let config = Config { volatile: true, surrender, rescue, last_heard, window: 8, compliance_time: ms(900), ..Config::default() };
        let mut world = World::with(config);
        let actors = (1..=PEERS).map(|n| {
            let peer = world.open(u8::try_from(n).unwrap());
            Actor { peer, sent: Vec::new(), grants: Vec::new(), notices: Vec::new(), named: BTreeMap::new(), nacked: None }
        });
        let actors: Vec<Actor> = actors.collect();
        let mut exclusion = Exclusion::new(Config::default().lease);
        actors.iter().for_each(|actor| exclusion.opened(actor.peer.session, world.now));
        Self { world, actors, objects: Vec::from([ROOT]), newest: BTreeMap::new(), names: 0, exclusion }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Ask { peer, what, which } => self.ask(peer, what, which),
            Step::Again { peer, back } => self.again(peer, back),
            Step::GiveBack { peer, which, keep } => self.give_back(peer, which, keep),
            Step::Receipt { peer, which, answer } => {
                let notices = &self.actors[peer].notices;
                let seq = if notices.is_empty() { 1 } else { notices[which % notices.len()] };
                let answer = ReceiptAnswer::ALL[usize::from(answer) % ReceiptAnswer::ALL.len()];
                if answer == ReceiptAnswer::NotHeld
                    && let Some((lock, generation)) = self.actors[peer].named.get(&seq)
                {
                    self.exclusion.gave_back(self.actors[peer].peer.session, *lock, *generation);
                }
                self.post(peer, Receipt { seq, answer }.into());
            }
            Step::ReceiptAll { peer, alive } => {
                let serial = self.serial(peer);
                let notices = self.actors[peer].notices.iter().rev().take(8);
                let mut said: Vec<Message<'_>> = notices.map(|seq| Receipt { seq: *seq, answer: ReceiptAnswer::InUse }.into()).collect();
                if alive {
                    said.insert(0, KeepAlive { serial, clock_us: 0 }.into());
                }
                if !said.is_empty() {
                    self.post_all(peer, &said);
                }
            }
            Step::Cancel { peer, nonce } => {
                let serial = self.serial(peer);
                self.post(peer, Cancel { serial, nonce }.into());
            }
            Step::KeepAlive { peer } => {
                let serial = self.serial(peer);
                self.post(peer, KeepAlive { serial, clock_us: 0 }.into());
            }
            Step::Open { peer, incarnation } => self.open(peer, incarnation),
            Step::End { peer, surrender } => {
                self.exclusion.over(self.actors[peer].peer.session);
                let (serial, reason) = (self.serial(peer), if surrender { EndReason::Surrender } else { EndReason::Close });
                self.post(peer, EndSession { serial, reason }.into());
            }
            Step::Evict { peer } => {
                self.world.server.evict(self.world.now, self.actors[peer].peer.agent);
                self.world.turn();
            }
            Step::Pass { ms: span } => self.world.pass(ms(span)),
            Step::Stall { on } => {
                self.world.stalled = on;
                self.world.turn();
            }
        }
        self.look();
    }

    fn serial(&mut self, peer: usize) -> u64 {
        self.actors[peer].peer.serial()
    }

    fn post(&mut self, peer: usize, message: Message<'_>) {
        self.post_all(peer, &[message]);
    }

    fn post_all(&mut self, peer: usize, messages: &[Message<'_>]) {
        let peer = &mut self.actors[peer].peer;
        self.exclusion.sent(peer.session, peer.packet + 1, self.world.now);
        self.world.send(peer, messages);
    }

    fn ask(&mut self, peer: usize, what: u8, which: usize) {
        let object = self.objects[which % self.objects.len()];
        let nonce = self.actors[peer].peer.ask().nonce;
        // The floor stays up to six nonces behind, so that older requests may be asked again.
        let ask = Ask { nonce, back: u16::try_from((nonce - 1).min(which as u64 % 7)).unwrap(), limit: LIMIT };
        let want = Want::ALL[which % Want::ALL.len()];
        let terms = Terms { want, ..Terms::NONE };
        self.names += u32::from(what % 14 == 2);
        let fresh = format!("f{}", self.names);
        let name = Bytes8(if self.names == 0 { b"none" } else { fresh.as_bytes() });
        let (mode, names) = (SetMask { bits: SetMask::MODE }, [name]);
        let message: Message<'_> = match what % 14 {
            0 | 1 => GetAttr { ask, object, want }.into(),
            2 => create(ask, &fresh, want).into(),
            3 => SetAttr { ask, object, mask: mode, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms }.into(),
            4 => Write { ask, object, offset: 0, truncate: false, stage: 0, data: Bytes16(b"contents"), terms }.into(),
            5 => Unlink { ask, dir: ROOT, name, force: which.is_multiple_of(2), terms }.into(),
            6..=8 => lock(ask, object, LockWait::Queue).into(),
            9 => lock(ask, object, LockWait::Try).into(),
            10 => Lookup { ask, start: ROOT, want, names: List::of(&names) }.into(),
            11 => ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true }.into(),
            12 => Lock { mode: Mode::Shared, ..lock(ask, object, LockWait::Try) }.into(),
            _ if which.is_multiple_of(2) => Stage { ask, stage: 1, total: 8, offset: 0, data: Bytes16(b"contents") }.into(),
            _ => ServerStatus { ask }.into(),
        };
        self.actors[peer].sent.push(message.to_bytes());
        self.post(peer, message);
    }

    fn again(&mut self, peer: usize, back: usize) {
        let sent = &self.actors[peer].sent;
        let Some(bytes) = sent.len().checked_sub(back + 1).map(|at| sent[at].clone()) else { return };
        let message = Message::decode(cistern_wire::Kind::of(bytes[0]).unwrap(), &bytes[4..]).unwrap();
        self.post(peer, message);
    }

    fn give_back(&mut self, peer: usize, which: usize, keep: bool) {
        let grants = &self.actors[peer].grants;
        if grants.is_empty() {
            return;
        }
        let (lock, generation) = grants[which % grants.len()];
        self.exclusion.gave_back(self.actors[peer].peer.session, lock, generation);
        let items = [ReleaseItem { lock, generation, keep: if keep { Keep::Shared } else { Keep::Nothing } }];
        let serial = self.serial(peer);
        self.post(peer, Release { serial, items: List::of(&items) }.into());
    }

    fn open(&mut self, peer: usize, incarnation: bool) {
        if self.world.stalled {
            return;
        }
        self.look();
        let actor = &mut self.actors[peer];
        actor.peer.incarnation += u64::from(incarnation);
        let before = actor.peer.session;
        self.world.offer(&mut actor.peer);
        let former = [(before, Claim::Lost)];
        self.world.confirm(&mut actor.peer, if before.0 == 0 { &[] } else { &former });
        let got = self.world.got(&actor.peer);
        if got.iter().any(|got| matches!(got.message(), Message::Opened(_))) {
            self.exclusion.opened(actor.peer.session, self.world.now);
            (actor.sent, actor.grants, actor.notices, actor.named) = Default::default();
        }
    }

    /// Takes in what was sent to each peer, in the order in which it was sent: who holds what is judged at those instants.
    fn look(&mut self) {
        let mut all = Vec::new();
        for n in 0..PEERS {
            all.extend(self.world.got(&self.actors[n].peer).into_iter().map(|got| (n, got)));
        }
        all.sort_by_key(|(_, got)| got.at.boot_ns);
        for (n, got) in all {
            self.take(n, &got);
        }
    }

    fn take(&mut self, n: usize, got: &Got) {
        let message = got.message();
        self.exclusion.got(got);
        let actor = &mut self.actors[n];
        if let Message::Nack(_) | Message::Ended(_) = message {
            actor.nacked = Some(got.session);
        }
        assert!(!message.kind().renews() || actor.nacked != Some(got.session), "renewed after a NACK: {message:?}");
        if got.session != actor.peer.session {
            return;
        }
        match message {
            Message::Demand(demand) => {
                actor.notices.push(demand.seq);
                actor.named.insert(demand.seq, (demand.lock, demand.generation));
            }
            Message::WaitOver(over) => actor.notices.push(over.seq),
            Message::Probe(probe) => actor.notices.push(probe.seq),
            Message::Grant(grant) => {
                actor.notices.push(grant.seq);
                actor.named.insert(grant.seq, (grant.lock, grant.generation));
                actor.grants.push((grant.lock, grant.generation));
                self.granted(grant.lock, grant.generation);
            }
            Message::Ack(ack) => match ack.reply {
                Reply::Granted(granted) => {
                    actor.grants.push((granted.lock, granted.generation));
                    self.granted(granted.lock, granted.generation);
                }
                Reply::Stated(stated) if stated.grant.generation.0 != 0 => {
                    actor.grants.push((cache_lock(stated.attr.object), stated.grant.generation));
                }
                Reply::Changed(changed) => {
                    for effect in changed.effects {
                        if effect.before == 0 {
                            self.objects.push(effect.attr.object);
                        }
                        if effect.grant.generation.0 != 0 {
                            actor.grants.push((cache_lock(effect.attr.object), effect.grant.generation));
                        }
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// A grant of an advisory lock was shown for the first time, or once more.
    fn granted(&mut self, lock: LockId, generation: Generation) {
        let newest = self.newest.entry(lock).or_default();
        *newest = generation.max(*newest);
    }

    /// All sessions end; nothing may be left of them.
    fn end(mut self) -> [u64; 3] {
        let stats = self.world.server.stats();
        let seen = [stats.rescues, stats.steals, self.exclusion.passed];
        self.world.stalled = false;
        self.world.turn();
        for n in 0..PEERS {
            self.world.server.evict(self.world.now, self.actors[n].peer.agent);
        }
        self.world.pass(ms(5_000));
        self.look();
        let status = self.world.server.status(self.world.now);
        assert_eq!((status.sessions, status.timing_out, status.locks, status.waiting), (0, 0, 0, 0), "{status:?}");
        assert_eq!((status.parked, status.held, self.world.server.lease_timers(), self.world.server.listening()), (0, 0, 0, 0));
        self.world.pass(ms(60_000));
        assert_eq!(self.world.server.wake_after(self.world.now), None, "an empty server has no timer");
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_agents_do_the_server_keeps_its_invariants(steps in proptest::collection::vec(step(), 1..120), switches: [bool; 3]) {
        let mut stage = Theatre::new(switches);
        for step in &steps {
            stage.run(step);
        }
        stage.end();
    }
}

/// Agents that want one lock, and often receipt its demands too late: they fail, are rescued, lose it, give it up, and never do two of
/// them have a valid lease on it, with each switch on and off.
#[test]
fn whoever_fails_and_comes_back_no_two_may_use_one_lock() {
    let (rescues, steals, passed) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let add = |cell: &Cell<u64>, more| cell.set(cell.get() + more);
    let script = (proptest::collection::vec(quarrel(), 20..160), any::<[bool; 3]>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 128, ..ProptestConfig::default() });
    let found = runner.run(&script, |(steps, switches)| {
        let mut stage = Theatre::new(switches);
        steps.iter().for_each(|step| stage.run(step));
        let seen = stage.end();
        assert!(switches[1] || seen[0] == 0, "rescued although that is switched off");
        add(&rescues, seen[0]);
        add(&steals, seen[1]);
        add(&passed, seen[2]);
        Ok(())
    });
    assert!(found.is_ok(), "{}", found.unwrap_err());
    let seen = [rescues.get(), steals.get(), passed.get()];
    assert!(seen.iter().all(|count| *count > 10), "rescues, steals, locks that passed on: {seen:?}");
}
