//! Random operations against a naive model, which knows only what agents could know: what was granted, and what they gave back.
//!
//! After every operation: no two sessions hold conflicting locks; every generation is larger than all before; the table holds what
//! the model holds; nobody stands before one who was served; whoever could go on was told; whoever is waited for was told. At
//! the end everybody complies, and then nobody waits any more.

use super::super::{CancelResult, LockAccess, LockDecision, LockLimits, LockOutcome, LockTable, Tokens, Turn};
use super::located;
use crate::ids::{LockSlot, Owner, PrincipalId, SessionKey, TaskId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Generation, Held, Keep, LockClass, LockId, LockWait, Mode, ObjectId, ReleaseItem, Want};
use core::time::Duration;
use proptest::prelude::*;
use proptest::sample::Index;

const SESSIONS: u8 = 4;
const OBJECTS: u64 = 3;

#[derive(Clone, Debug)]
enum Move {
    Grant { session: u8, object: u64, want: Want },
    Enter { session: u8, objects: u8, held: bool },
    EnterAgain { which: Index, objects: u8 },
    Leave(Index),
    Lock { session: u8, object: u64, mode: Mode, wait: LockWait },
    Cancel(Index),
    Release { which: Index, keep: Keep, old: bool },
    Disowned { which: Index },
    Park(u8),
    Unpark(u8),
    End(u8),
    Free(u8),
    Reclaim(usize),
    Tokens,
    Pass(u64),
    Gone(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    let session = 0..SESSIONS;
    let object = 0..OBJECTS;
    let want = prop_oneof![Just(Want::Shared), Just(Want::Exclusive)];
    let mode = prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)];
    let wait = prop_oneof![1 => Just(LockWait::Try), 4 => Just(LockWait::Queue)];
    let keep = prop_oneof![2 => Just(Keep::Nothing), 1 => Just(Keep::Shared)];
    prop_oneof![
        6 => (session.clone(), object.clone(), want).prop_map(|(session, object, want)| Move::Grant { session, object, want }),
        4 => (session.clone(), 0..8u8, any::<bool>()).prop_map(|(session, objects, held)| Move::Enter { session, objects, held }),
        2 => (any::<Index>(), 0..8u8).prop_map(|(which, objects)| Move::EnterAgain { which, objects }),
        4 => any::<Index>().prop_map(Move::Leave),
        8 => (session.clone(), object.clone(), mode, wait)
            .prop_map(|(session, object, mode, wait)| Move::Lock { session, object, mode, wait }),
        2 => any::<Index>().prop_map(Move::Cancel),
        8 => (any::<Index>(), keep, prop::bool::weighted(0.2)).prop_map(|(which, keep, old)| Move::Release { which, keep, old }),
        1 => any::<Index>().prop_map(|which| Move::Disowned { which }),
        1 => session.clone().prop_map(Move::Park),
        2 => session.clone().prop_map(Move::Unpark),
        1 => session.clone().prop_map(Move::End),
        1 => session.prop_map(Move::Free),
        2 => (0..4usize).prop_map(Move::Reclaim),
        2 => Just(Move::Tokens),
        1 => (0..40u64).prop_map(Move::Pass),
        1 => object.prop_map(Move::Gone),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Good,
    Parked,
    Ended,
}

#[derive(Clone, Debug)]
struct Mutation {
    session: LockSlot,
    objects: BTreeSet<ObjectId>,
    held: Vec<Held>,
    ready: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    session: LockSlot,
    nonce: u64,
    mode: Mode,
}

struct Model {
    table: LockTable,
    now: Instant,
    names: Vec<LockSlot>,
    standing: BTreeMap<LockSlot, Standing>,
    held: BTreeMap<(LockSlot, LockId), (Generation, Mode)>,
    /// The newest demand of each lock.
    demanded: BTreeMap<(LockSlot, LockId), (Generation, Keep)>,
    mutations: BTreeMap<TaskId, Mutation>,
    lines: BTreeMap<ObjectId, Vec<Waiting>>,
    newest: u64,
    next: u64,
    tokens: bool,
    swept: bool,
}

const fn lock(object: ObjectId, class: LockClass) -> LockId {
    LockId { object, class }
}

impl Model {
    fn new() -> Self {
        // Nothing is hot, or the model would have to know.
        let limits = LockLimits { hot_below: Duration::ZERO, ..LockLimits::default() };
        let mut model = Self {
            table: LockTable::new(limits, Tokens::new(0, 0)),
            now: Instant::new(0, 0),
            names: Vec::new(),
            standing: BTreeMap::new(),
            held: BTreeMap::new(),
            demanded: BTreeMap::new(),
            mutations: BTreeMap::new(),
            lines: BTreeMap::new(),
            newest: 0,
            next: 100,
            tokens: false,
            swept: true,
        };
        for _ in 0..SESSIONS {
            let session = model.open();
            model.names.push(session);
        }
        model
    }

    fn open(&mut self) -> LockSlot {
        let key = SessionKey::for_test(self.table.table.sessions.next_name());
        let session = self.table.open(key, Owner::Server, PrincipalId::ANYBODY, true);
        assert_eq!(session, slot_of(key), "decisions name the key, everything else the slot");
        self.standing.insert(session, Standing::Good);
        session
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn good(&self, session: LockSlot) -> bool {
        self.standing.get(&session) == Some(&Standing::Good)
    }

    fn grew(&mut self, generation: Generation, run: u32) {
        assert!(generation.0 > self.newest, "generation {generation} is not larger than {}", self.newest);
        self.newest = generation.0 + u64::from(run) - 1;
    }

    fn granted(&mut self, session: LockSlot, lock: LockId, generation: Generation, mode: Mode, run: u32) {
        assert!(self.good(session), "granted to a session that is not in good standing");
        self.grew(generation, run);
        self.held.insert((session, lock), (generation, mode));
    }

    fn run(&mut self, step: &Move) {
        match step {
            Move::Grant { session, object, want } => {
                let (session, object) = (self.names[usize::from(*session)], ObjectId(*object));
                let grant = self.table.cache_grant(self.now, session, located(object), *want);
                if let Some(mode) = grant.mode.mode() {
                    let waited = |mutation: &Mutation| mutation.objects.contains(&object) && self.good(mutation.session);
                    assert!(!self.mutations.values().any(waited), "granted past a mutation");
                    self.granted(session, lock(object, LockClass::Cache), grant.generation, mode, 1);
                }
            }
            Move::Enter { session, objects, held } => {
                let session = self.names[usize::from(*session)];
                let task = TaskId(self.fresh());
                self.enter(task, session, *objects, *held);
            }
            Move::EnterAgain { which, objects } => {
                if let Some((task, mutation)) = pick(&self.mutations, which) {
                    self.enter(task, mutation.session, *objects, true);
                }
            }
            Move::Leave(which) => {
                let ready: BTreeMap<_, _> = self.mutations.iter().filter(|(_, m)| m.ready).map(|(t, m)| (*t, m.clone())).collect();
                if let Some((task, _)) = pick(&ready, which) {
                    self.table.leave(task);
                    self.mutations.remove(&task);
                }
            }
            Move::Lock { session, object, mode, wait } => self.lock(self.names[usize::from(*session)], ObjectId(*object), *mode, *wait),
            Move::Cancel(which) => self.cancel(which),
            Move::Release { which, keep, old } => self.release(which, *keep, *old),
            Move::Disowned { which } => {
                if let Some(((session, lock), (generation, _))) = pick(&self.held, which) {
                    self.table.on_not_held(self.now, session, lock, generation);
                    self.held.remove(&(session, lock));
                }
            }
            Move::Gone(object) => {
                self.table.object_gone(self.now, ObjectId(*object));
            }
            Move::Reclaim(budget) => self.swept = !self.table.sweep(self.now, *budget) || self.swept,
            Move::Tokens => {
                if let Some(up_to) = self.table.tokens_wanted() {
                    self.table.tokens_durable(self.now, up_to);
                    self.tokens = true;
                }
            }
            Move::Pass(ms) => self.now = self.now.plus(Duration::from_millis(*ms)),
            Move::Park(_) | Move::Unpark(_) | Move::End(_) | Move::Free(_) => self.standing(step),
        }
    }

    fn standing(&mut self, step: &Move) {
        let (Move::Park(n) | Move::Unpark(n) | Move::End(n) | Move::Free(n)) = step else { return };
        let session = self.names[usize::from(*n)];
        match (step, self.standing[&session]) {
            (Move::Park(_), Standing::Good) => {
                self.table.set_access(self.now, session, LockAccess::Suspended);
                self.standing.insert(session, Standing::Parked);
                self.mutations.values_mut().filter(|mutation| mutation.session == session).for_each(|mutation| mutation.ready = false);
            }
            (Move::Unpark(_), Standing::Parked) => {
                self.table.set_access(self.now, session, LockAccess::Active);
                self.standing.insert(session, Standing::Good);
            }
            (Move::End(_), Standing::Good | Standing::Parked) => {
                self.table.set_access(self.now, session, LockAccess::Ended);
                self.standing.insert(session, Standing::Ended);
                self.mutations.retain(|_, mutation| mutation.session != session);
                self.lines.values_mut().for_each(|line| line.retain(|waiting| waiting.session != session));
            }
            (Move::Free(_), Standing::Ended) => {
                self.table.set_access(self.now, session, LockAccess::Freed);
                self.standing.remove(&session);
                self.held.retain(|(of, _), _| *of != session);
                self.swept = false;
                self.names[usize::from(*n)] = self.open();
            }
            _ => {}
        }
    }

    fn enter(&mut self, task: TaskId, session: LockSlot, mask: u8, held: bool) {
        if !self.good(session) {
            return;
        }
        let objects: BTreeSet<_> = (0..OBJECTS).filter(|n| mask & (1 << n) != 0).map(ObjectId).collect();
        let list: Vec<_> = objects.iter().copied().collect();
        let named = list.iter().filter(|_| held).filter_map(|object| {
            let (generation, _) = self.held.get(&(session, lock(*object, LockClass::Cache)))?;
            Some(Held { object: *object, generation: *generation })
        });
        let held: Vec<_> = named.collect();
        let turn = self.table.enter(self.now, task, session, &list, held.iter().copied());
        assert_ne!(turn, Turn::Busy);
        self.mutations.insert(task, Mutation { session, objects, held, ready: false });
        if turn == Turn::Ready {
            self.ready(task);
        }
    }

    fn ready(&mut self, task: TaskId) {
        assert!(self.may_go_on(task), "{task:?} is ready too early");
        self.mutations.get_mut(&task).expect("it entered").ready = true;
    }

    /// Whether it is a mutation's turn: first in line, nothing in the way.
    fn may_go_on(&self, task: TaskId) -> bool {
        let mutation = &self.mutations[&task];
        let meets = |other: &Mutation| !other.objects.is_disjoint(&mutation.objects);
        let before = self.mutations.range(..task).any(|(_, other)| self.good(other.session) && meets(other));
        let after = self.mutations.range(task..).skip(1).any(|(_, other)| other.ready && meets(other));
        self.good(mutation.session) && !before && !after && !self.held.iter().any(|(key, hold)| in_the_way(mutation, key, hold))
    }

    fn lock(&mut self, session: LockSlot, object: ObjectId, mode: Mode, wait: LockWait) {
        let nonce = self.fresh();
        let lock = lock(object, LockClass::Advisory);
        match self.table.lock(self.now, session, nonce, located(object), mode, wait) {
            LockOutcome::Granted { mode: held, generation, run } => {
                let line = self.lines.get(&object).map(Vec::as_slice).unwrap_or_default();
                let upgrade = mode == Mode::Exclusive && self.held.contains_key(&(session, lock));
                assert!(upgrade || !line.iter().any(|waiting| self.good(waiting.session)), "granted past one who waits");
                self.granted_in(session, lock, mode, generation, run);
                assert_eq!(self.held[&(session, lock)].1, held);
            }
            LockOutcome::Queued { .. } => {
                let upgrade = mode == Mode::Exclusive && matches!(self.held.get(&(session, lock)), Some((_, Mode::Shared)));
                let line = self.lines.entry(object).or_default();
                line.insert(if upgrade { 0 } else { line.len() }, Waiting { session, nonce, mode });
            }
            LockOutcome::Refused { holder } => assert_ne!(slot_of(holder.session), session),
            // Nobody else is there to be named while a lock that stands no more waits to be swept.
            LockOutcome::Busy => assert!(!self.good(session) || !self.tokens || !self.swept),
            LockOutcome::Limited(limited) => panic!("far below every bound: {limited:?}"),
            LockOutcome::Deadlock => {}
        }
    }

    /// An advisory grant: a session that holds more already keeps that.
    fn granted_in(&mut self, session: LockSlot, lock: LockId, mode: Mode, generation: Generation, run: u32) {
        let mode = match self.held.get(&(session, lock)) {
            Some((_, Mode::Exclusive)) => Mode::Exclusive,
            _ => mode,
        };
        self.granted(session, lock, generation, mode, run);
    }

    fn cancel(&mut self, which: &Index) {
        let all: Vec<Waiting> = self.lines.values().flatten().copied().collect();
        if all.is_empty() {
            return;
        }
        let Waiting { session, nonce, .. } = all[which.index(all.len())];
        assert!(matches!(self.table.cancel(self.now, session, nonce), CancelResult::Cancelled(_)));
        self.lines.values_mut().for_each(|line| line.retain(|waiting| waiting.nonce != nonce));
    }

    fn release(&mut self, which: &Index, keep: Keep, old: bool) {
        let Some(((session, lock), (current, _))) = pick(&self.held, which) else { return };
        let generation = if old { Generation(current.0 - 1) } else { current };
        let known = self.table.held(session, lock);
        let released = self.table.release(self.now, session, ReleaseItem { lock, generation, keep });
        if old {
            // A repeated downgrade may be answered with what is held; nothing else happens.
            assert!(released.now == Generation(0) || Some(released.now) == known);
            assert_eq!(self.table.held(session, lock), known);
        } else if released.keep == Keep::Shared {
            let run = if lock.class == LockClass::Advisory { 1_024 } else { 1 };
            self.grew(released.now, run);
            self.held.insert((session, lock), (released.now, Mode::Shared));
        } else {
            assert!(keep == Keep::Nothing || !self.tokens);
            self.held.remove(&(session, lock));
        }
    }

    fn take_actions(&mut self) -> Vec<LockDecision> {
        let mut decisions = Vec::new();
        while let Some(action) = self.table.poll_decision() {
            decisions.push(action);
            match action {
                LockDecision::Demand { session, lock, generation, keep } => {
                    let session = slot_of(session);
                    assert!(self.good(session), "demanded from a session that cannot hear it");
                    assert_eq!(self.held.get(&(session, lock)).map(|held| held.0), Some(generation));
                    let before = self.demanded.insert((session, lock), (generation, keep));
                    assert!(before.is_none_or(|(old, kept)| old < generation || (kept, keep) == (Keep::Shared, Keep::Nothing)), "twice");
                }
                LockDecision::Grant { session, nonce, lock, mode, generation, run } => {
                    let session = slot_of(session);
                    let place = self.serve(lock.object, nonce);
                    let wanted = place.expect("it waited").mode;
                    self.granted_in(session, lock, wanted, generation, run);
                    assert_eq!(self.held[&(session, lock)].1, mode);
                }
                LockDecision::WaitOver { nonce, .. } => {
                    self.lines.values_mut().for_each(|line| line.retain(|waiting| waiting.nonce != nonce));
                }
                LockDecision::DemandDelayed { .. } => {}
                // Whoever is in good standing answers.
                LockDecision::Probe { session } => {
                    let session = slot_of(session);
                    assert!(self.good(session), "asked one that is not to be granted anything");
                    self.table.heard_of(self.now, session);
                }
                LockDecision::Turn { task } => self.ready(task),
            }
        }
        decisions
    }

    /// Takes a request out of its line; insists that nobody who counts stood before it.
    fn serve(&mut self, object: ObjectId, nonce: u64) -> Option<Waiting> {
        let line = self.lines.get(&object)?;
        let place = line.iter().position(|waiting| waiting.nonce == nonce)?;
        // Shared requests may be granted in any order, but before no exclusive one that asked earlier.
        let shared = |waiting: &Waiting| waiting.mode == Mode::Shared;
        let passed = |waiting: &&Waiting| self.good(waiting.session) && !(shared(waiting) && shared(&line[place]));
        assert_eq!(line[..place].iter().filter(passed).count(), 0, "served out of order");
        Some(self.lines.get_mut(&object)?.remove(place))
    }

    fn check(&self) {
        let holds: Vec<_> = self.held.iter().collect();
        for ((session, lock), (generation, mode)) in &holds {
            assert_eq!(self.table.held(*session, *lock), Some(*generation), "{lock} of {session:?}");
            let conflict = holds.iter().find(|((other, of), (_, theirs))| of == lock && other != session && !mode.compatible(*theirs));
            assert!(conflict.is_none(), "{lock} of {session:?} against {conflict:?}");
        }
        for session in &self.names {
            for n in 0..OBJECTS {
                for class in [LockClass::Cache, LockClass::Advisory] {
                    let key = (*session, lock(ObjectId(n), class));
                    assert_eq!(self.table.held(key.0, key.1), self.held.get(&key).map(|held| held.0));
                }
            }
        }
        let waiting: usize = self.lines.values().map(Vec::len).sum();
        assert_eq!((self.table.counts().waiters, self.table.counts().mutations), (waiting, self.mutations.len()));
        // Locks that stand no more let others come when they are swept.
        if self.swept && self.tokens {
            self.check_nobody_forgotten();
        }
    }

    fn check_nobody_forgotten(&self) {
        for (task, mutation) in self.mutations.iter().filter(|(_, mutation)| self.good(mutation.session)) {
            assert!(mutation.ready || !self.may_go_on(*task), "{task:?} was not told");
            for (key, hold) in self.held.iter().filter(|(key, hold)| in_the_way(mutation, key, hold)) {
                self.check_demanded(*key, hold.0, Keep::Nothing);
            }
        }
        for (object, line) in &self.lines {
            for (place, waiting) in line.iter().filter(|waiting| self.good(waiting.session)).enumerate() {
                let lock = lock(*object, LockClass::Advisory);
                let blocks = |key: &(LockSlot, LockId), hold: &(Generation, Mode)| {
                    key.1 == lock && key.0 != waiting.session && !hold.1.compatible(waiting.mode)
                };
                let mut blocked = false;
                for (key, hold) in self.held.iter().filter(|(key, hold)| blocks(key, hold)) {
                    blocked = true;
                    self.check_demanded(*key, hold.0, if waiting.mode == Mode::Shared { Keep::Shared } else { Keep::Nothing });
                }
                assert!(blocked || place > 0, "the first in line of {object} was not told");
            }
        }
    }

    /// section 11.3: somebody waits for this hold.
    fn check_demanded(&self, key: (LockSlot, LockId), generation: Generation, keep: Keep) {
        if self.good(key.0) {
            let demanded = self.demanded.get(&key).filter(|demanded| demanded.0 == generation);
            assert!(demanded.is_some_and(|demanded| demanded.1 <= keep), "{key:?} is waited for and was not told: {demanded:?}");
            assert!(self.table.is_waited_for(key.0));
        }
    }

    /// Everybody comes back and does what it is told: nobody may be left waiting.
    fn wind_up(&mut self) {
        let back = (0..SESSIONS).flat_map(|n| [Move::Unpark(n), Move::Free(n)]);
        for step in core::iter::once(Move::Tokens).chain(back) {
            self.run(&step);
            self.take_actions();
        }
        while self.table.sweep(self.now, 100) {}
        self.swept = true;
        loop {
            self.take_actions();
            self.check();
            let ready: Vec<_> = self.mutations.iter().filter(|(_, mutation)| mutation.ready).map(|(task, _)| *task).collect();
            let asked: Vec<_> = self.demanded.iter().filter(|(key, (g, _))| self.held.get(key).is_some_and(|held| held.0 == *g)).collect();
            let asked: Vec<_> = asked.into_iter().map(|(key, (generation, _))| (*key, *generation)).collect();
            if ready.is_empty() && asked.is_empty() {
                break;
            }
            for task in ready {
                self.table.leave(task);
                self.mutations.remove(&task);
            }
            for ((session, lock), generation) in asked {
                self.table.release(self.now, session, ReleaseItem { lock, generation, keep: Keep::Nothing });
                self.held.remove(&(session, lock));
            }
        }
        let counts = self.table.counts();
        assert_eq!((counts.waiters, counts.mutations, counts.demands_outstanding), (0, 0, 0));
        assert_eq!(counts.held, self.held.len());
    }
}

const fn slot_of(key: SessionKey) -> LockSlot {
    LockSlot(key.place)
}

fn in_the_way(mutation: &Mutation, (session, lock): &(LockSlot, LockId), (generation, _): &(Generation, Mode)) -> bool {
    let suspended = *session == mutation.session && mutation.held.contains(&Held { object: lock.object, generation: *generation });
    lock.class == LockClass::Cache && mutation.objects.contains(&lock.object) && !suspended
}

fn pick<K: Ord + Clone, V: Clone>(map: &BTreeMap<K, V>, which: &Index) -> Option<(K, V)> {
    let (key, value) = map.iter().nth(which.index(map.len().max(1)))?;
    Some((key.clone(), value.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_order_of_events_breaks_exclusion_order_or_progress(moves in proptest::collection::vec(any_move(), 1..100)) {
        let mut model = Model::new();
        for step in &moves {
            model.run(step);
            model.take_actions();
            model.check();
        }
        model.wind_up();
    }
}
