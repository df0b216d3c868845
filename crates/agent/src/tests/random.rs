//! Any bytes at all, and any sound message at any time: nothing is changed by the first, nothing is broken by the second.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Output, Submitted, Wait};
use crate::config::{Config, IdlePolicy};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine, Path, Rng};
use cistern_wire::{
    Ack, Alive, Claim, Direction, FormerFate, Generation, Header, Keep, List, Message, Mode, Packer, Reply, SessionFate, SessionId, samples,
};
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
    /// Until when each hold was shown to be certain, at the latest.
    shown: BTreeMap<crate::api::HolderId, Instant>,
    /// Holds that were lost with a session, or not reclaimed from it, whose users have not said that they stopped.
    acting: BTreeMap<crate::api::HolderId, SessionId>,
    sent: Vec<Sent>,
    before: Option<(Option<SessionId>, Option<Instant>)>,
    /// How often the server was restarted, a reclaim was completed, a session surrendered.
    counts: [u32; 3],
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
            shown: BTreeMap::new(),
            acting: BTreeMap::new(),
            sent: Vec::new(),
            before: None,
            counts: [0; 3],
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(11) {
            0..3 => self.user(rng),
            3..5 => self.answer(rng),
            5..7 => self.notice(rng),
            7 => self.anything(rng),
            8 => self.script.sleep(rng.below(700)),
            9 => self.trouble(rng),
            _ if self.script.agent.view(self.script.now()).reclaiming.is_some() => self.answer(rng),
            _ => self.script.sleep(rng.below(40)),
        }
        let sent = self.script.turn();
        for sent in &sent {
            self.transcript.extend_from_slice(&sent.bytes);
            self.said(sent);
        }
        self.sent.extend(sent);
        let keep = self.sent.len().saturating_sub(30);
        self.sent.drain(..keep);
        let events = self.script.events();
        let over = events.iter().find_map(|event| match event {
            Event::SessionEnded { session, .. } => Some(*session),
            _ => None,
        });
        let left = over.or(self.script.agent.view(self.script.now()).reclaiming);
        events.into_iter().for_each(|event| self.heard(event, left));
        self.script.drops = self.script.agent.drops().total();
        self.judge();
    }

    fn user(&mut self, rng: &mut Rng) {
        let object = 5 + rng.below(3);
        let mode = if rng.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
        let wait = [Wait::Try, Wait::Forever, Wait::AtMost(Duration::from_millis(300))][below(rng, 3)];
        let now = self.script.now();
        if rng.below(8) == 0
            && let Some((holder, _)) = self.acting.pop_first()
        {
            // Whoever was told that his lock is lost says that he has stopped.
            assert!(matches!(self.script.agent.submit(now, Command::Unlock { holder }), Submitted::Now(Err(_))));
        }
        let command = match rng.below(5) {
            0 => stat(object),
            4 => {
                let owner = crate::api::Ownership { mode: 0o755, uid: 0, gid: 0 };
                Command::Mkdir { path: bytes::Bytes::from_static(b"/d"), owner }
            }
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
        assert!(last.is_none_or(|last| last < locked.token), "tokens of an object grow (section 11.4): {last:?}, {}", locked.token);
        let others = self.holders.values().filter(|(object, _)| *object == id);
        others.for_each(|(_, mode)| assert!(mode.compatible(locked.mode), "local holders are compatible"));
        self.holders.insert(locked.holder, (id, locked.mode));
        self.show(locked.holder, locked.valid_until);
        assert!(
            self.script.agent.holder_view(self.script.now(), locked.holder).is_none_or(|view| view.certain),
            "shown with a lease (section 11.4)"
        );
    }

    fn show(&mut self, holder: crate::api::HolderId, until: Instant) {
        let shown = self.shown.entry(holder).or_insert(until);
        *shown = shown.max(until);
    }

    /// What the agent says that nobody may act on any more, and who then does.
    fn said(&mut self, sent: &Sent) {
        let now = self.script.now();
        let over = |world: &mut Self, session: SessionId| {
            let acting = world.acting.iter().filter(|(_, left)| **left == session);
            acting.for_each(|(holder, _)| {
                let until = world.shown[holder];
                assert!(now.lease_over(until), "{holder:?} may act until {until:?} under {session} (sections 11.3 and 11.7)");
            });
        };
        for message in sent.datagram().messages() {
            match message {
                Message::EndSession(_) => {
                    over(self, sent.datagram().header.session);
                    self.counts[2] += 1;
                }
                Message::ReclaimComplete(complete) => over(self, complete.from),
                Message::Hello(_) => {}
                Message::Confirm(confirm) => {
                    let claims = confirm.former.iter().filter(|claim| claim.claim == Claim::Surrendered);
                    claims.for_each(|claim| over(self, claim.session));
                }
                Message::Reclaim(_) | Message::Outcome(_) | Message::Receipt(_) | Message::KeepAlive(_) => {}
                Message::Release(_) | Message::Cancel(_) | Message::PathResponse(_) => {}
                other => {
                    let first = other.ask().is_some_and(|ask| self.sent.iter().all(|sent| !has_nonce(sent, ask.nonce)));
                    let reclaiming = self.script.agent.view(now).reclaiming;
                    assert!(!first || reclaiming.is_none(), "nothing else is asked in a reclaim: {other:?}");
                }
            }
        }
    }

    /// The network or the server fails: a hint, or a NACK.
    fn trouble(&mut self, rng: &mut Rng) {
        let Some(session) = self.script.agent.view(self.script.now()).session else { return };
        let Some(sent) = self.sent.iter().rev().find(|sent| sent.datagram().header.session == session) else { return };
        let echo = sent.packet();
        let message: Message<'_> = if rng.below(12) == 0 {
            let fate = cistern_wire::Fate::Unknown;
            cistern_wire::Nack { nonce: 0, echo, reason: cistern_wire::NackReason::TimingOut, fate }.into()
        } else {
            cistern_wire::Hint { echo, detail: cistern_wire::Bytes8(b"") }.into()
        };
        self.say(session, &[message]);
    }

    fn heard(&mut self, event: Event, left: Option<SessionId>) {
        match event {
            Event::Done { result: Ok(Output::Locked(locked)), .. } => self.locked(locked),
            Event::Lock { holder, what: LockEvent::Lost, .. } => {
                self.holders.remove(&holder);
                assert!(self.lost.insert(holder), "lost once");
                if let Some(left) = left {
                    self.acting.insert(holder, left);
                }
            }
            Event::Lock { holder, what, .. } => {
                assert!(!self.lost.contains(&holder), "nothing is told of what is lost");
                if let LockEvent::Certain { valid_until } | LockEvent::Suspect { valid_until } = what {
                    self.show(holder, valid_until);
                }
            }
            Event::SessionReclaimed { .. } => self.counts[1] += 1,
            _ => {}
        }
    }

    /// A server that answers something it was sent, perhaps late or again.
    fn answer(&mut self, rng: &mut Rng) {
        if self.sent.is_empty() {
            return;
        }
        // The newest as often as any.
        let which = if rng.below(2) == 0 { self.sent.len() - 1 } else { below(rng, self.sent.len()) };
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
                    self.say(SessionId(0), &[cistern_wire::Welcome { session, ..welcome(&hello, echo) }.into()]);
                    continue;
                }
                Message::Confirm(confirm) => {
                    let continued = confirm.former.iter().find(|former| former.claim == Claim::Continuing);
                    if let Some(goes_on) = continued.filter(|_| rng.below(4) == 0) {
                        self.say(session, &[cistern_wire::Known { serial: 1, echo, session: goes_on.session }.into()]);
                        continue;
                    }
                    let fates: Vec<_> = confirm.former.iter().map(|former| fate_of(former, rng)).collect();
                    self.counts[0] += u32::from(fates.iter().any(|told| told.fate == SessionFate::Reclaimable));
                    self.say(session, &[opened(echo, &fates)]);
                    continue;
                }
                Message::Reclaim(m) => {
                    let items: Vec<_> = m.items.iter().map(|item| reclaimed_item(item, rng)).collect();
                    let reply = Reply::Reclaimed(cistern_wire::Reclaimed { items: List::of(&items) });
                    self.say(session, &[Ack { nonce: m.ask.nonce, echo, reply }.into()]);
                    continue;
                }
                Message::ReclaimComplete(m) => {
                    let busy = Reply::Failed(cistern_wire::Failed { status: cistern_wire::Status::BUSY, retry_ms: 20 });
                    let reply = if rng.below(4) == 0 { busy } else { Reply::Done(cistern_wire::Done {}) };
                    Ack { nonce: m.ask.nonce, echo, reply }.into()
                }
                Message::Outcome(m) => {
                    let fate = cistern_wire::Fate::ALL[below(rng, 3)];
                    let told = cistern_wire::OutcomeTold { fate, reply: cistern_wire::Bytes16(b"") };
                    Ack { nonce: m.ask.nonce, echo, reply: Reply::OutcomeTold(told) }.into()
                }
                Message::EndSession(m) => cistern_wire::Ended { serial: m.serial, echo }.into(),
                Message::Mkdir(m) if rng.below(2) == 0 => {
                    let reply = Reply::Failed(cistern_wire::Failed { status: cistern_wire::Status::EEXIST, retry_ms: 0 });
                    Ack { nonce: m.ask.nonce, echo, reply }.into()
                }
                Message::Lock(m) if rng.below(3) == 0 => queued(m.ask.nonce, echo, m.object.0),
                Message::Lock(m) => granted(m.ask.nonce, echo, m.object.0, m.mode, generation, 4),
                Message::GetAttr(m) => stated(m.ask.nonce, echo, attr(m.object.0, generation), generation),
                Message::KeepAlive(m) => Alive { serial: m.serial, echo }.into(),
                Message::Release(m) => {
                    let items: Vec<_> = m.items.iter().map(|i| released_item(i, generation)).collect();
                    self.say(session, &[released(m.serial, echo, &items)]);
                    continue;
                }
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
        // A NACK ends everything, so it comes more seldom.
        let grants = grants || matches!(sample, Message::Nack(_)) && rng.below(8) > 0;
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
        let holders: Vec<_> = self.holders.keys().copied().collect();
        for holder in holders {
            let seen = self.script.agent.holder_view(now, holder).expect("it is held");
            self.show(holder, seen.valid_until);
        }
        if let Some((reclaiming, until)) = self.before
            && reclaiming.is_some()
            && view.reclaiming.is_some()
        {
            assert_eq!(view.valid_until, until, "no answer in the new session moves the end of the old lease (section 11.7)");
        }
        self.before = Some((view.reclaiming, view.valid_until));
        assert!(view.session.is_some() || view.holders == 0 && view.cache_locks == 0, "nothing is held without a session");
        assert!(self.script.agent.wake_after(now).is_none_or(|span| !span.is_zero()), "the agent does not spin");
    }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

fn has_nonce(sent: &Sent, nonce: u64) -> bool {
    sent.messages().iter().any(|message| message.ask().is_some_and(|ask| ask.nonce == nonce))
}

fn fate_of(former: cistern_wire::FormerClaim, rng: &mut Rng) -> FormerFate {
    let fate = match former.claim {
        Claim::Reclaiming | Claim::Continuing if rng.below(4) > 0 => SessionFate::Reclaimable,
        _ => [SessionFate::TimingOut, SessionFate::Ended][below(rng, 2)],
    };
    FormerFate { session: former.session, fate }
}

fn reclaimed_item(item: cistern_wire::ReclaimItem, rng: &mut Rng) -> cistern_wire::ReclaimedItem {
    let status = if rng.below(5) == 0 { cistern_wire::Status::NOT_HELD } else { cistern_wire::Status::OK };
    let version = item.version + rng.below(2);
    cistern_wire::ReclaimedItem { lock: item.lock, generation: item.generation, status, version }
}

fn released_item(item: cistern_wire::ReleaseItem, generation: u64) -> cistern_wire::ReleasedItem {
    let now = if item.keep == Keep::Shared { Generation(generation) } else { Generation(0) };
    cistern_wire::ReleasedItem { lock: item.lock, generation: item.generation, keep: item.keep, now }
}
