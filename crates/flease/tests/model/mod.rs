//! A model checker that drives the real instances: three processes, one resource, every schedule within bounds.
//!
//! A message that was sent stays: it is delivered now, later, again, in any order or never, which is loss, delay, reordering and
//! duplication at once. Clocks count whole ticks, each at a rate of its own; with δ = 1 the slowest counts 1 and the fastest 2. The search
//! is breadth first, so that the schedule that it finds is a shortest one. What a process does depends on itself alone: each of its states is kept
//! once, and each of its steps is carried out once.

use cistern_flease::{Ballot, Cx, Group, Header, Instance, MemberSet, Message, Outbox, Terms};
use cistern_link::Instant;
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;

/// Processes of the group; the first two want the resource.
const PROCESSES: usize = 3;
const RIVALS: usize = 2;

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The length of the lease, in ticks of its owner's clock.
    pub(crate) lease: u64,
    /// What each clock counts in a tick of true time.
    pub(crate) rates: [u64; PROCESSES],
    pub(crate) attempts: [u8; RIVALS],
    pub(crate) restarts: u8,
    pub(crate) releases: u8,
    pub(crate) ticks: u8,
    /// The members under each number: an owner whose ownership is agreed on under one may write the next, and each process learns of it when it will.
    pub(crate) lists: &'static [&'static [u8]],
    /// Whether owners renew by WRITE alone.
    pub(crate) renew_by_write: bool,
    /// Judge by each rule too, not only by what can be seen from outside.
    pub(crate) rules: bool,
    /// The search gives up here.
    pub(crate) states_max: usize,
}

impl Bounds {
    pub(crate) const SMALL: Self = Self {
        lease: 2,
        rates: [1, 2, 2],
        attempts: [1, 1],
        restarts: 0,
        releases: 0,
        ticks: 3,
        lists: &[&[0, 1, 2]],
        renew_by_write: false,
        rules: true,
        states_max: 3_000_000,
    };

    fn terms(&self) -> Terms {
        Terms { lease: Duration::from_nanos(self.lease), drift_ppm: 1_000_000, epsilon: Duration::ZERO, synchronised: false }
    }

    /// L(1+δ)+ε by itself: not asked of the code that is judged.
    fn wait(&self) -> u64 {
        2 * self.lease
    }
}

/// A step of a schedule.
#[derive(Clone, Copy)]
enum Action {
    Tick,
    Attempt(usize),
    Release(usize),
    Restart(usize),
    /// The next list is written.
    Write,
    Learn(usize),
    /// The message of this number.
    Deliver(usize),
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sent {
    from: u8,
    nonce: u64,
    list: u8,
    to: u8,
    message: Message,
}

#[derive(Clone, Debug)]
struct Process {
    me: u8,
    instance: Instance,
    nonce: u64,
    /// The number of the list that it knows.
    list: u8,
    started: u64,
    clock: u64,
    attempts: u8,
    /// When the newest attempt began.
    attempted: u64,
}

impl Process {
    fn now(&self) -> Instant {
        Instant::new(self.clock, self.clock)
    }
}

/// All processes' states by their numbers, and the messages that are on their way by theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    processes: [u32; PROCESSES],
    sent: [u64; SENT_MAX / 64],
    /// The number of the newest list.
    list: u8,
    restarts: u8,
    releases: u8,
    ticks: u8,
}

/// Most different messages of a search.
const SENT_MAX: usize = 512;

/// What a process does by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Tick,
    Attempt,
    Release,
    Restart,
    Learn(u8),
    Get(u16),
}

/// A process afterwards, and what it sent.
type Stepped = Result<(u32, Vec<u16>), &'static str>;

/// What a search came to.
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// Whether every state within the bounds was seen.
    pub(crate) is_complete: bool,
    /// What was violated, and the shortest schedule, in words.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
    /// States with an owner: without any, the search shows nothing.
    pub(crate) owned: usize,
}

/// Searches all schedules within the bounds.
pub(crate) fn search(bounds: &Bounds) -> Outcome {
    let mut world = World::new(bounds);
    let first = world.first();
    let mut seen = FxHashSet::from_iter([first]);
    let mut steps: Vec<(u32, Action)> = Vec::new();
    let mut level = vec![(first, u32::MAX)];
    let mut outcome = Outcome { states: 1, is_complete: true, violation: None, owned: 0 };
    while !level.is_empty() {
        let mut next = Vec::new();
        for (state, from) in level {
            for action in world.actions(&state) {
                let after = match world.take(state, action) {
                    Ok(after) => after,
                    Err(what) => {
                        let told = schedule(&steps, from, action).iter().map(|action| world.told(action)).collect();
                        return Outcome { violation: Some((what, told)), ..outcome };
                    }
                };
                if after != state && seen.insert(after) {
                    outcome.owned += usize::from(world.owners(&after) > 0);
                    steps.push((from, action));
                    next.push((after, u32::try_from(steps.len() - 1).unwrap()));
                }
            }
        }
        outcome.states = seen.len();
        if seen.len() > bounds.states_max {
            return Outcome { is_complete: false, ..outcome };
        }
        level = next;
    }
    outcome
}

/// The steps that led to `from`, and the last one.
fn schedule(steps: &[(u32, Action)], from: u32, last: Action) -> Vec<Action> {
    let mut schedule = vec![last];
    let mut at = from;
    while let Some((before, step)) = steps.get(at as usize) {
        schedule.push(*step);
        at = *before;
    }
    schedule.reverse();
    schedule
}

/// What was found of processes and messages so far.
struct World<'a> {
    bounds: &'a Bounds,
    wait: u64,
    processes: Vec<Process>,
    /// By everything that they are.
    numbers: FxHashMap<String, u32>,
    sent: Vec<Sent>,
    stepped: FxHashMap<(u32, Step), Stepped>,
}

impl<'a> World<'a> {
    fn new(bounds: &'a Bounds) -> Self {
        let wait = whole(bounds.terms().restart_wait());
        Self { bounds, wait, processes: Vec::new(), numbers: FxHashMap::default(), sent: Vec::new(), stepped: FxHashMap::default() }
    }

    /// All have waited, and nobody knows anything.
    fn first(&mut self) -> State {
        let clock = self.bounds.wait();
        let process = |p: usize| Process {
            me: u8::try_from(p).unwrap(),
            instance: Instance::default(),
            nonce: 1,
            list: 0,
            started: 0,
            clock,
            attempts: 0,
            attempted: 0,
        };
        let processes = std::array::from_fn(|p| self.number(process(p)));
        State { processes, sent: [0; _], list: 0, restarts: 0, releases: 0, ticks: 0 }
    }

    fn number(&mut self, process: Process) -> u32 {
        let next = u32::try_from(self.processes.len()).unwrap();
        let number = *self.numbers.entry(format!("{process:?}")).or_insert(next);
        if number == next {
            self.processes.push(process);
        }
        number
    }

    fn owners(&self, state: &State) -> usize {
        let owns = |id: &&u32| {
            let process = &self.processes[**id as usize];
            process.instance.owned(process.now()).is_some()
        };
        state.processes.iter().filter(owns).count()
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        if state.ticks < self.bounds.ticks {
            actions.push(Action::Tick);
        }
        let process = |p: usize| &self.processes[state.processes[p] as usize];
        let takes_part = |p: usize| {
            let is_member = self.bounds.lists[usize::from(process(p).list)].contains(&process(p).me);
            is_member && process(p).clock >= process(p).started + self.wait
        };
        for p in 0..RIVALS {
            if process(p).attempts < self.bounds.attempts[p] && takes_part(p) {
                actions.push(Action::Attempt(p));
            }
            if state.releases < self.bounds.releases && process(p).attempts > 0 {
                actions.push(Action::Release(p));
            }
        }
        let may_write = |p: usize| process(p).list == state.list && process(p).instance.is_agreed(process(p).now());
        if usize::from(state.list) + 1 < self.bounds.lists.len() && (0..PROCESSES).any(may_write) {
            actions.push(Action::Write);
        }
        actions.extend((0..PROCESSES).filter(|p| process(*p).list < state.list).map(Action::Learn));
        if state.restarts < self.bounds.restarts {
            actions.extend((0..PROCESSES).map(Action::Restart));
        }
        let on_their_way = (0..self.sent.len()).filter(|id| state.sent[id / 64] & 1 << (id % 64) != 0);
        actions.extend(on_their_way.filter(|id| takes_part(self.sent[*id].to.into())).map(Action::Deliver));
        actions
    }

    fn told(&self, action: &Action) -> String {
        match *action {
            Action::Tick => "a tick passes".to_owned(),
            Action::Attempt(p) => format!("{p} begins an attempt"),
            Action::Release(p) => format!("{p} releases"),
            Action::Restart(p) => format!("{p} restarts"),
            Action::Write => "the next list is written".to_owned(),
            Action::Learn(p) => format!("{p} learns the newest list"),
            Action::Deliver(id) => {
                let Sent { from, to, message, .. } = self.sent[id];
                format!("{to} gets of {from}: {message:?}")
            }
        }
    }

    fn take(&mut self, mut state: State, action: Action) -> Result<State, &'static str> {
        match action {
            Action::Tick => {
                state.ticks += 1;
                for p in 0..PROCESSES {
                    self.step(&mut state, p, Step::Tick)?;
                }
            }
            Action::Restart(p) => {
                state.restarts += 1;
                self.step(&mut state, p, Step::Restart)?;
            }
            Action::Write => state.list += 1,
            Action::Learn(p) => {
                let list = state.list;
                self.step(&mut state, p, Step::Learn(list))?;
            }
            Action::Attempt(p) => self.step(&mut state, p, Step::Attempt)?,
            Action::Release(p) => {
                state.releases += 1;
                self.step(&mut state, p, Step::Release)?;
            }
            Action::Deliver(id) => {
                let to = usize::from(self.sent[id].to);
                self.step(&mut state, to, Step::Get(u16::try_from(id).unwrap()))?;
            }
        }
        if self.owners(&state) > 1 { Err("two owners") } else { Ok(state) }
    }

    fn step(&mut self, state: &mut State, p: usize, step: Step) -> Result<(), &'static str> {
        let key = (state.processes[p], step);
        if !self.stepped.contains_key(&key) {
            let stepped = self.carry_out(p, key.0, step);
            self.stepped.insert(key, stepped);
        }
        let (after, sent) = self.stepped[&key].as_ref().map_err(|what| *what)?;
        state.processes[p] = *after;
        sent.iter().for_each(|id| state.sent[usize::from(*id) / 64] |= 1 << (id % 64));
        Ok(())
    }

    /// Carries out a step of one process.
    fn carry_out(&mut self, p: usize, number: u32, step: Step) -> Stepped {
        let mut process = self.processes[number as usize].clone();
        let bounds = self.bounds;
        let (me, nonce) = (process.me, process.nonce);
        let mut members = MemberSet::default();
        bounds.lists[usize::from(process.list)].iter().for_each(|member| members.insert(*member));
        let terms = bounds.terms();
        let group = Group { terms, places: 3, members, me, nonce, renew_by_write: bounds.renew_by_write, durable_tokens: false };
        let cx = Cx { group: &group, now: process.now(), rto: Duration::ZERO, random: 0, least_token: 0, token_max: u64::MAX, clock_us: 0 };
        let mut out = Outbox::new();
        match step {
            Step::Tick => process.clock += bounds.rates[p],
            Step::Restart => {
                process = Process { instance: Instance::default(), nonce: nonce + 1, started: process.clock, attempted: 0, ..process }
            }
            Step::Attempt => {
                process.attempts += 1;
                process.attempted = process.clock;
                process.instance.attempt(&cx, &mut out);
            }
            Step::Release => process.instance.release(&cx, None, &mut out),
            Step::Learn(list) => {
                process.list = list;
                process.instance.change_list();
            }
            Step::Get(id) => {
                let sent = self.sent[usize::from(id)];
                if !Header::is_heard(sent.list.into(), process.list.into()) {
                    return Ok((number, Vec::new()));
                }
                if bounds.rules && sent.list != process.list {
                    return Err("what was sent under another list was heard");
                }
                let before = process.instance.clone();
                process.instance.receive(&cx, sent.from, sent.nonce, sent.message, &mut out);
                if bounds.rules {
                    rules(bounds, &before, &process, sent, &out)?;
                }
            }
        }
        let mut sent = Vec::new();
        for (to, message) in out {
            let is_own = |ballot: Ballot| ballot.member == me && ballot.nonce == nonce;
            if let Message::Write { ballot, tenure, .. } = message
                && !(is_own(ballot) && is_own(tenure))
                && bounds.rules
            {
                return Err("the lease of another is written");
            }
            let list = process.list;
            sent.extend(to.iter().map(|to| self.message(Sent { from: me, nonce, list, to, message })));
        }
        Ok((self.number(process), sent))
    }

    fn message(&mut self, sent: Sent) -> u16 {
        let found = self.sent.iter().position(|known| *known == sent);
        let id = found.unwrap_or_else(|| {
            self.sent.push(sent);
            self.sent.len() - 1
        });
        assert!(id < SENT_MAX, "more messages than a state has room for");
        u16::try_from(id).unwrap()
    }
}

/// What must hold of each delivery, whether or not exclusion depends on it here.
fn rules(bounds: &Bounds, before: &Instance, process: &Process, sent: Sent, out: &Outbox) -> Result<(), &'static str> {
    let now = process.now();
    let after = &process.instance;
    let holds = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    holds(process.clock >= process.started + bounds.wait(), "took part before the restart wait was over")?;
    if let Some(record) = before.record(now) {
        let kept = after.record(now);
        match sent.message {
            Message::Release { tenure, .. } if tenure == record.tenure => {}
            Message::Release { .. } => holds(kept == Some(record), "a RELEASE freed the record of another tenure")?,
            // Who gives an attempt up frees what it wrote, its own record included.
            _ if out.iter().any(|(_, message)| matches!(message, Message::Release { tenure, .. } if *tenure == record.tenure)) => {}
            //= docs/flease.md#rules
            //= type=test
            //# A WRITE of another tenure MUST NOT replace the record.
            _ => holds(kept.is_some_and(|kept| kept.tenure == record.tenure), "a live record was replaced")?,
        }
        if let Message::Read { base, .. } = sent.message
            && base != Some(record.tenure)
        {
            //= docs/flease.md#rules
            //= type=test
            //# While a record lives, a READ that does not name its tenure is answered HELD, and MUST NOT raise the promise.
            holds(after.promised() == before.promised(), "a promise was raised under a live record")?;
        }
    }
    if let Message::Write { ballot, .. } = sent.message {
        let is_taken = out.iter().any(|(_, message)| matches!(message, Message::Taken { .. }));
        holds(!is_taken || ballot >= before.promised(), "a WRITE below the promise was taken")?;
        let record = after.record(now).filter(|record| record.ballot == ballot && before.record(now) != Some(*record));
        let ends = process.clock + bounds.wait();
        holds(record.is_none_or(|record| record.ends == Instant::new(ends, ends)), "a record does not last L(1+δ)+ε")?;
    }
    if let Message::Read { base, .. } = sent.message {
        for (_, answer) in out {
            if let Message::Own { tenure, .. } = answer {
                //= docs/flease.md#rules
                //= type=test
                //# OWN MUST count only for a renewal, of the tenure that was held when READ was sent and is still held when WRITE is sent.
                holds(base == Some(*tenure), "OWN for what the READ did not name")?;
            }
        }
    }
    if let Some(owned) = after.owned(now)
        && before.owned(now) != Some(owned)
    {
        holds(owned.until.raw_ns <= process.attempted + bounds.lease, "a lease counts from later than its first message")?;
        if let Message::Taken { transmission, .. } = sent.message
            && before.owned(now).is_none_or(|before| before.until != owned.until)
        {
            //= docs/flease.md#rules
            //= type=test
            //# TAKEN MUST echo the number of the transmission that is outstanding to count.
            holds(transmission == owned.transmission, "a lease counts from a transmission that nobody echoed")?;
        }
    }
    Ok(())
}

fn whole(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}
