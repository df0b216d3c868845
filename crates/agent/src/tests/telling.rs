//! Many holders, who are told in one pass, while the lease ends and lives again and locks come and go.

use super::script::*;
use crate::api::{Command, Event, HolderId, LockEvent, Locked, Output, Submitted, Wait};
use crate::config::Config;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::Rng;
use cistern_wire::{Alive, Fate, Message, Mode, Nack, NackReason};
use proptest::prelude::*;

/// An agent with locks on objects 100 and on, each for a local user.
fn holding(count: u64) -> (Script, Vec<Locked>) {
    let mut script = Script::open(Config::default());
    let locks = (0..count).map(|n| script.hold(100 + n, 2 + n, 1_000 + 20 * n, 16)).collect();
    (script, locks)
}

/// The last keep-alive among what was sent, as its answer.
fn alive(sent: &[Sent]) -> Option<Message<'static>> {
    sent.iter().rev().find_map(|sent| {
        let serial =
            sent.messages().iter().find_map(|message| if let Message::KeepAlive(keep) = message { Some(keep.serial) } else { None });
        serial.map(|serial| Alive { serial, echo: sent.packet() }.into())
    })
}

/// What each holder was told, in order.
fn told(script: &mut Script, by_holder: &mut BTreeMap<HolderId, Vec<LockEvent>>) {
    for event in script.events() {
        if let Event::Lock { holder, what, .. } = event {
            by_holder.entry(holder).or_default().push(what);
        }
    }
}

/// The lease is over, and the answer that revives it comes in the same datagram that finds that out: no turn lies between the two.
fn revived(script: &mut Script) -> BTreeMap<HolderId, Vec<LockEvent>> {
    let mut heard = BTreeMap::new();
    script.sleep(TAU_MS - 100);
    let sent = script.turn();
    told(script, &mut heard);
    let suspect = |news: &Vec<LockEvent>| matches!(news[..], [LockEvent::Suspect { .. }]);
    assert!(heard.values().all(suspect), "{heard:?}");
    heard.clear();
    script.sleep(100);
    script.say(&[alive(&sent).expect("a keep-alive")]);
    told(script, &mut heard);
    heard
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When a renewing answer revives the lease the agent MUST tell each holder that the lock is certain again, under the same token.
#[test]
fn each_holder_hears_uncertain_and_certain_though_the_lease_lives_again_in_the_call_that_finds_it_over() {
    let (mut script, locks) = holding(6);
    let heard = revived(&mut script);
    let valid_until = script.agent.view(script.now()).valid_until.unwrap();
    for held in &locks {
        assert_eq!(heard[&held.holder], [LockEvent::Uncertain, LockEvent::Certain { valid_until }], "{held:?}");
    }
}

#[test]
fn lock_that_was_granted_when_the_lease_lived_again_hears_nothing_of_its_end() {
    let (mut script, locks) = holding(6);
    script.submit(Command::Unlock { holder: locks[5].holder });
    let mut heard = revived(&mut script);
    let Submitted::Now(Ok(Output::Locked(late))) = script.submit(lock(105, Mode::Exclusive, Wait::Try)) else { panic!("not at once") };
    script.turn();
    told(&mut script, &mut heard);
    assert_eq!(heard.get(&late.holder), None, "{heard:?}");
    assert_eq!(heard.len(), 5, "{heard:?}");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
#[test]
fn lock_that_was_granted_between_two_ends_of_the_lease_hears_of_the_second() {
    let (mut script, locks) = holding(6);
    script.submit(Command::Unlock { holder: locks[0].holder });
    let mut heard = revived(&mut script);
    let Submitted::Now(Ok(Output::Locked(late))) = script.submit(lock(100, Mode::Exclusive, Wait::Try)) else { panic!("not at once") };
    script.sleep(TAU_MS);
    script.turn();
    told(&mut script, &mut heard);
    assert_eq!(heard[&late.holder], [LockEvent::Uncertain]);
    assert!(locks[1..].iter().all(|held| heard[&held.holder].last() == Some(&LockEvent::Uncertain)), "{heard:?}");
}

fn nacked(script: &mut Script) {
    script.start(Command::Ping);
    let echo = script.turn().last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
}

fn lost(script: &mut Script) -> Vec<u64> {
    let events = script.events().into_iter();
    events.filter_map(|event| if let Event::Lock { object, what: LockEvent::Lost, .. } = event { Some(object.0) } else { None }).collect()
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The agent MUST tell its users by name which locks they have lost when a session ends.
#[test]
fn holder_of_a_lost_lock_is_told_before_anybody_here_can_have_it_again() {
    let (mut script, _) = holding(8);
    script.start(lock(100, Mode::Exclusive, Wait::Forever));
    nacked(&mut script);
    assert_eq!(lost(&mut script), (100..108).collect::<Vec<_>>(), "each once, in the order of the grants");
    script.start(lock(101, Mode::Exclusive, Wait::Forever));
    script.turn();
    assert!(lost(&mut script).is_empty());
}

/// What is known of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    Certain,
    Suspect,
    Uncertain,
}

/// A holder as it should be told.
#[derive(Clone, Copy, Debug)]
struct Holder {
    knows: Knows,
    /// Its lease has ended, and it was not told.
    owed: bool,
}

struct World {
    script: Script,
    holders: BTreeMap<HolderId, (u64, Holder)>,
    sent: Vec<Message<'static>>,
}

/// Objects that the agent holds.
const OBJECTS: u64 = 7;

impl World {
    fn new() -> Self {
        let (script, locks) = holding(OBJECTS);
        let holder = Holder { knows: Knows::Certain, owed: false };
        let holders = locks.iter().map(|held| (held.holder, (held.object.0, holder))).collect();
        Self { script, holders, sent: Vec::new() }
    }

    /// What holds now.
    fn holds(&self, holder: HolderId) -> Knows {
        let now = self.script.now();
        let view = self.script.agent.holder_view(now, holder).expect("it is held");
        if !view.certain {
            Knows::Uncertain
        } else if now.lease_over(view.suspect_at) {
            Knows::Suspect
        } else {
            Knows::Certain
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(6) {
            0 => self.script.sleep(rng.below(900)),
            1 => self.script.sleep(rng.below(60)),
            2 => {
                // What was so before the answer came is told first.
                let answer = self.sent.pop();
                self.look();
                let sent = self.script.transmit();
                self.sent.extend(alive(&sent));
                self.hear();
                if let Some(answer) = answer {
                    self.script.say(&[answer]);
                }
            }
            3 => {
                let nth = usize::try_from(rng.below(OBJECTS)).unwrap();
                if let Some(holder) = self.holders.keys().nth(nth).copied() {
                    self.look();
                    self.holders.remove(&holder);
                    self.script.submit(Command::Unlock { holder });
                }
            }
            4 => {
                let object = 100 + rng.below(OBJECTS);
                self.look();
                if !self.holders.values().any(|held| held.0 == object) {
                    self.lock(object);
                }
            }
            _ => self.turn(),
        }
        self.look();
        self.hear();
    }

    fn lock(&mut self, object: u64) {
        match self.script.submit(lock(object, Mode::Exclusive, Wait::Forever)) {
            Submitted::Now(Ok(Output::Locked(locked))) => {
                self.holders.insert(locked.holder, (object, Holder { knows: Knows::Certain, owed: false }));
            }
            Submitted::Later(op) => self.script.agent.cancel(self.script.now(), op),
            Submitted::Now(other) => panic!("{other:?}"),
        }
    }

    fn turn(&mut self) {
        let sent = self.script.turn();
        self.sent.extend(alive(&sent));
    }

    /// Whoever holds a lock that is not certain is owed the news, unless it knows.
    fn look(&mut self) {
        for holder in self.holders.keys().copied().collect::<Vec<_>>() {
            let over = self.holds(holder) == Knows::Uncertain;
            let held = &mut self.holders.get_mut(&holder).unwrap().1;
            held.owed |= over && held.knows != Knows::Uncertain;
        }
    }

    fn hear(&mut self) {
        let mut told = BTreeMap::new();
        self::told(&mut self.script, &mut told);
        for (holder, news) in told {
            // What was told to somebody who gave the lock back in the same call is no matter.
            let Some((_, held)) = self.holders.get_mut(&holder) else { continue };
            for what in &news {
                let knows = match what {
                    LockEvent::Uncertain => Knows::Uncertain,
                    LockEvent::Certain { .. } => Knows::Certain,
                    LockEvent::Suspect { .. } => Knows::Suspect,
                    LockEvent::Lost => panic!("no session ends here"),
                };
                let told_again = held.owed && knows == Knows::Uncertain;
                assert!(
                    held.knows != knows && (told_again || !held.owed) && (told_again || knows != Knows::Uncertain),
                    "{held:?} {news:?}"
                );
                assert!(knows != Knows::Suspect || held.knows == Knows::Certain, "{held:?} {news:?}");
                *held = Holder { knows, owed: false };
            }
            let knows = held.knows;
            assert_eq!(knows, self.holds(holder), "what was told last holds: {news:?}");
        }
    }

    /// Nothing happens any more until all are told.
    fn settle(&mut self) {
        self.turn();
        self.look();
        self.hear();
        for (holder, (_, held)) in &self.holders {
            assert_eq!((held.knows, held.owed), (self.holds(*holder), false), "{holder:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn each_holder_hears_of_each_end_that_concerns_it_nothing_of_others_and_last_what_holds(seed: [u8; 32]) {
        let mut rng = Rng::from_seed(seed);
        let mut world = World::new();
        for _ in 0..80 {
            world.step(&mut rng);
        }
        world.settle();
        world.script.drops = world.script.agent.drops().total();
    }
}
