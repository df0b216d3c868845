//! Any bytes at all, and any sound message at any time: nothing is changed by the first, nothing is broken by the second.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Output, Submitted, Wait};
use crate::config::{Config, IdlePolicy};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::{Machine, Path, Rng};
use cistern_wire::{Alive, Direction, Generation, Header, Keep, Message, Mode, Packer, SessionId, samples};
use core::time::Duration;
use proptest::prelude::*;

/// All that users can see of the agent.
fn state(script: &mut Script) -> String {
    let now = script.now();
    let mut view = script.agent.view(now);
    view.datagrams_in = 0;
    format!("{view:?} {:?} {:?}", script.events(), script.agent.wake_after(now))
}

fn busy() -> Script {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.hold(7, 2, 40, 16);
    script.cache(9, 3, 80);
    script.start(stat(10));
    script.turn();
    script
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_change_nothing(all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut script = busy();
        let before = state(&mut script);
        for bytes in &all {
            script.deliver(bytes);
        }
        script.drops = all.len() as u64;
        prop_assert_eq!(before, state(&mut script));
        prop_assert_eq!(script.agent.drops().total(), all.len() as u64);
    }

    #[test]
    fn damaged_datagrams_change_nothing(sample: prop::sample::Index, flips in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)) {
        let mut script = busy();
        let before = state(&mut script);
        let mut bytes = Vec::new();
        let all = samples();
        let header = Header { from_server: true, session: SESSION, packet: 50 };
        let mut packer = Packer::new(&mut bytes, header, 8_952);
        packer.push(sample.get(&all));
        packer.finish();
        let sound = bytes.clone();
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        prop_assume!(bytes != sound);
        script.deliver(&bytes);
        script.drops = 1;
        prop_assert_eq!(before, state(&mut script));
    }

    #[test]
    fn any_sound_message_at_any_time_breaks_nothing(seed: [u8; 32]) {
        let mut rng = Rng::from_seed(seed);
        let mut world = World::new(&mut rng);
        for _ in 0..300 {
            world.step(&mut rng);
        }
    }

    #[test]
    fn the_same_seed_and_the_same_calls_give_the_same_bytes(seed: [u8; 32]) {
        let run = || {
            let mut rng = Rng::from_seed(seed);
            let mut world = World::new(&mut rng);
            (0..120).for_each(|_| world.step(&mut rng));
            world.transcript
        };
        prop_assert_eq!(run(), run());
    }
}

/// An agent, users who want everything, and a server that says anything.
struct World {
    script: Script,
    transcript: Vec<u8>,
    packet: u64,
    /// The largest token shown for each object, and who holds it how.
    tokens: BTreeMap<u64, u64>,
    holders: BTreeMap<crate::api::HolderId, (u64, Mode)>,
    lost: BTreeSet<crate::api::HolderId>,
    sent: Vec<Sent>,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let idle = [IdlePolicy::Eager, IdlePolicy::Lazy, IdlePolicy::Auto][below(rng, 3)];
        let config = Config { idle, idle_after: Duration::from_secs(1), give_up_after: Duration::from_secs(3), ..Config::default() };
        Self {
            script: Script::open(config),
            transcript: Vec::new(),
            packet: 100,
            tokens: BTreeMap::new(),
            holders: BTreeMap::new(),
            lost: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(10) {
            0..3 => self.user(rng),
            3..5 => self.answer(rng),
            5..7 => self.notice(rng),
            7 => self.anything(rng),
            8 => self.script.sleep(rng.below(700)),
            _ => self.script.sleep(rng.below(40)),
        }
        let sent = self.script.turn();
        for sent in &sent {
            self.transcript.extend_from_slice(&sent.bytes);
        }
        self.sent.extend(sent);
        let keep = self.sent.len().saturating_sub(30);
        self.sent.drain(..keep);
        let events = self.script.events();
        events.into_iter().for_each(|event| self.heard(event));
        self.script.drops = self.script.agent.drops().total();
        self.judge();
    }

    fn user(&mut self, rng: &mut Rng) {
        let object = 5 + rng.below(3);
        let mode = if rng.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
        let wait = [Wait::Try, Wait::Forever, Wait::AtMost(Duration::from_millis(300))][below(rng, 3)];
        let now = self.script.now();
        let command = match rng.below(4) {
            0 => stat(object),
            1 => match self.holders.keys().next() {
                Some(&holder) => Command::Unlock { holder },
                None => Command::Ping,
            },
            _ => lock(object, mode, wait),
        };
        if let Command::Unlock { holder } = &command {
            self.holders.remove(holder);
        }
        match self.script.agent.submit(now, command) {
            Submitted::Now(Ok(Output::Locked(locked))) => self.locked(locked),
            Submitted::Later(op) if rng.below(8) == 0 => self.script.agent.cancel(now, op),
            _ => {}
        }
    }

    fn locked(&mut self, locked: crate::api::Locked) {
        let id = locked.object.0;
        let last = self.tokens.insert(id, locked.token);
        assert!(last.is_none_or(|last| last < locked.token), "tokens of an object grow (R73): {last:?}, {}", locked.token);
        let others = self.holders.values().filter(|(object, _)| *object == id);
        others.for_each(|(_, mode)| assert!(mode.compatible(locked.mode), "local holders are compatible"));
        self.holders.insert(locked.holder, (id, locked.mode));
        assert!(
            self.script.agent.holder_view(self.script.now(), locked.holder).is_none_or(|view| view.certain),
            "shown with a lease (R75)"
        );
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Done { result: Ok(Output::Locked(locked)), .. } => self.locked(locked),
            Event::Lock { holder, what: LockEvent::Lost, .. } => {
                self.holders.remove(&holder);
                assert!(self.lost.insert(holder), "lost once");
            }
            Event::Lock { holder, .. } => assert!(!self.lost.contains(&holder), "nothing is told of what is lost"),
            _ => {}
        }
    }

    /// A server that answers something it was sent, perhaps late or again.
    fn answer(&mut self, rng: &mut Rng) {
        if self.sent.is_empty() {
            return;
        }
        let which = below(rng, self.sent.len());
        let bytes = self.sent[which].bytes.clone();
        let datagram = cistern_wire::Datagram::at_server(&bytes).unwrap();
        let (echo, session) = (datagram.header.packet, datagram.header.session);
        for message in datagram.messages() {
            let generation = self.generation(rng);
            let reply = match message {
                Message::Hello(hello) if hello.cookie.0.is_empty() => {
                    let cookie = cistern_wire::Bytes8(b"cookie");
                    cistern_wire::Challenge { handshake: hello.handshake, echo, cookie }.into()
                }
                Message::Hello(hello) => {
                    let session = SessionId(1 + rng.below(u64::MAX));
                    cistern_wire::Welcome { session, ..welcome(&hello, echo) }.into()
                }
                Message::Lock(m) if rng.below(3) == 0 => queued(m.ask.nonce, echo, m.object.0),
                Message::Lock(m) => granted(m.ask.nonce, echo, m.object.0, m.mode, generation, 4),
                Message::ExtendRun(m) => granted(m.ask.nonce, echo, m.lock.object.0, Mode::Exclusive, generation, 4),
                Message::GetAttr(m) => stated(m.ask.nonce, echo, attr(m.object.0, generation), generation),
                Message::KeepAlive(m) => Alive { serial: m.serial, echo }.into(),
                Message::Release(m) => {
                    let items: Vec<_> = m.items.iter().map(|i| released_item(i, generation)).collect();
                    self.say(session, &[released(m.serial, echo, &items)]);
                    continue;
                }
                Message::ReleaseAll(m) => released(m.serial, echo, &[]),
                Message::Cancel(m) => {
                    let outcome = cistern_wire::CancelOutcome::ALL[below(rng, 3)];
                    let granted = outcome == cistern_wire::CancelOutcome::Granted;
                    let generation = Generation(if granted { generation } else { 0 });
                    cistern_wire::Cancelled { serial: m.serial, echo, nonce: m.nonce, outcome, generation }.into()
                }
                _ => continue,
            };
            self.say(session, &[reply]);
        }
    }

    /// Generations grow, as a server's do.
    fn generation(&mut self, rng: &mut Rng) -> u64 {
        self.packet += 8 + rng.below(4);
        self.packet * 16
    }

    fn notice(&mut self, rng: &mut Rng) {
        let Some(session) = self.script.agent.view(self.script.now()).session else { return };
        let object = 5 + rng.below(3);
        let lock = if rng.below(2) == 0 { cached(object) } else { super::script::object(object) };
        let generation = Generation(self.packet * 16 - rng.below(3) * 128);
        let seq = 1 + rng.below(20);
        let keep = if rng.below(2) == 0 { Keep::Nothing } else { Keep::Shared };
        let message: Message<'_> = match rng.below(3) {
            0 => {
                let generation = Generation(self.generation(rng));
                let nonce = 1 + rng.below(20);
                cistern_wire::Grant { seq, nonce, lock: super::script::object(object), mode: Mode::Exclusive, generation, run: 4 }.into()
            }
            _ => cistern_wire::Demand { seq, lock, generation, keep }.into(),
        };
        self.say(session, &[message]);
    }

    /// Any message that a server may send, with any contents but grants: those would be of a counter that goes back.
    fn anything(&mut self, rng: &mut Rng) {
        let Some(session) = self.script.agent.view(self.script.now()).session else { return };
        let all = samples();
        let sample = &all[below(rng, all.len())];
        let server = sample.kind().direction() != Direction::Agent;
        let grants = matches!(sample, Message::Grant(_) | Message::Ack(_) | Message::Cancelled(_) | Message::Released(_));
        if server && !grants && sample.kind() != cistern_wire::Kind::Hint {
            self.say(session, &[*sample]);
        }
    }

    fn say(&mut self, session: SessionId, messages: &[Message<'_>]) {
        self.packet += 1;
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: true, session, packet: self.packet }, 8_952);
        messages.iter().for_each(|message| {
            packer.push(message);
        });
        packer.finish();
        let now = self.script.now();
        self.script.agent.handle_datagram(now, Path::to(server(1)), &bytes);
    }

    /// What always holds.
    fn judge(&mut self) {
        let now = self.script.now();
        let view = self.script.agent.view(now);
        assert_eq!(view.holders, self.holders.len() as u64, "each hold is known to its user");
        assert!(view.session.is_some() || view.holders == 0 && view.cache_locks == 0, "nothing is held without a session");
        assert!(self.script.agent.wake_after(now).is_none_or(|span| !span.is_zero()), "the agent does not spin");
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

fn released_item(item: cistern_wire::ReleaseItem, generation: u64) -> cistern_wire::ReleasedItem {
    let now = if item.keep == Keep::Shared { Generation(generation) } else { Generation(0) };
    cistern_wire::ReleasedItem { lock: item.lock, generation: item.generation, keep: item.keep, now }
}
