//! A model checker that drives the real registers of the synchronised mode: three processes, every schedule within bounds.
//!
//! As the checker of the default mode, but for time: each clock ticks by itself, as long as no two differ by more than ε. What is judged is what an
//! outsider sees: two processes of which each owns the resource by its own clock.

use cistern_flease::{Cx, Group, MemberSet, Message, Outbox, Register, Terms};
use cistern_link::Instant;
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;

const PROCESSES: usize = 3;
/// How far a search goes. Spans are in ticks, one of which is a microsecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockBounds {
    pub(crate) lease: u64,
    pub(crate) epsilon: u64,
    pub(crate) attempts: [u8; PROCESSES],
    pub(crate) restarts: u8,
    pub(crate) releases: u8,
    /// No clock goes beyond this.
    pub(crate) ticks: u64,
    pub(crate) states_max: usize,
}

impl ClockBounds {
    pub(crate) const SMALL: Self =
        Self { lease: 3, epsilon: 1, attempts: [1, 1, 0], restarts: 0, releases: 0, ticks: 6, states_max: 20_000_000 };

    fn terms(&self) -> Terms {
        let (lease, epsilon) = (Duration::from_micros(self.lease), Duration::from_micros(self.epsilon));
        Terms { lease, drift_ppm: 0, epsilon, synchronised: true }
    }
}

/// A step of a schedule.
#[derive(Clone, Copy)]
enum Move {
    Tick(usize),
    Attempt(usize),
    Release(usize),
    Restart(usize),
    Deliver(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Letter {
    from: u8,
    nonce: u64,
    to: u8,
    message: Message,
}

#[derive(Clone, Debug)]
struct Site {
    me: u8,
    register: Register,
    nonce: u64,
    /// The clock at the restart, which has to be waited out; 0: at the beginning nobody has anything to remember.
    started: u64,
    clock: u64,
    attempts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Instantaneous {
    sites: [u32; PROCESSES],
    /// The number of the set of messages that are on their way.
    sent: u32,
    restarts: u8,
    releases: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SiteStep {
    Tick,
    Attempt,
    Release,
    Restart,
    Get(u16),
}

/// What a search came to.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) is_complete: bool,
    /// The shortest schedule to two owners, in words.
    pub(crate) schedule: Option<Vec<String>>,
    /// States with an owner: without any, the search shows nothing.
    pub(crate) owned: usize,
}

/// Where the clocks begin: late enough that no interval is the first.
const BEGIN: u64 = 20;

pub(crate) fn search(bounds: &ClockBounds) -> Found {
    let mut group = World {
        bounds,
        sites: Vec::new(),
        numbers: FxHashMap::default(),
        sent: Vec::new(),
        sets: Vec::new(),
        set_numbers: FxHashMap::default(),
        stepped: FxHashMap::default(),
    };
    let first = group.first();
    let mut seen = FxHashSet::from_iter([first]);
    let mut steps: Vec<(u32, Move)> = Vec::new();
    let mut level = vec![(first, u32::MAX)];
    let mut found = Found { states: 1, is_complete: true, schedule: None, owned: 0 };
    while !level.is_empty() {
        let mut next = Vec::new();
        for (state, from) in level {
            for step in group.moves(&state) {
                let after = group.take(state, step);
                if after == state || !seen.insert(after) {
                    continue;
                }
                steps.push((from, step));
                let number = u32::try_from(steps.len() - 1).unwrap();
                let owners = group.owners(&after);
                found.owned += usize::from(owners > 0);
                if owners > 1 {
                    return Found { states: seen.len(), schedule: Some(group.told(&steps, number)), ..found };
                }
                next.push((after, number));
            }
        }
        found.states = seen.len();
        if seen.len() > bounds.states_max {
            return Found { is_complete: false, ..found };
        }
        level = next;
    }
    found
}

struct World<'a> {
    bounds: &'a ClockBounds,
    sites: Vec<Site>,
    numbers: FxHashMap<String, u32>,
    sent: Vec<Letter>,
    /// Sets of messages, in order.
    sets: Vec<Vec<u16>>,
    set_numbers: FxHashMap<Vec<u16>, u32>,
    stepped: FxHashMap<(u32, SiteStep), (u32, Vec<u16>)>,
}

impl World<'_> {
    fn first(&mut self) -> Instantaneous {
        let sites = std::array::from_fn(|p| {
            let me = u8::try_from(p).unwrap();
            self.number(Site { me, register: Register::default(), nonce: 1, started: 0, clock: BEGIN, attempts: 0 })
        });
        Instantaneous { sites, sent: self.set(Vec::new()), restarts: 0, releases: 0 }
    }

    fn number(&mut self, site: Site) -> u32 {
        let next = u32::try_from(self.sites.len()).unwrap();
        let number = *self.numbers.entry(format!("{site:?}")).or_insert(next);
        if number == next {
            self.sites.push(site);
        }
        number
    }

    fn site(&self, state: &Instantaneous, p: usize) -> &Site {
        &self.sites[state.sites[p] as usize]
    }

    fn owners(&self, state: &Instantaneous) -> usize {
        (0..PROCESSES)
            .filter(|p| {
                let site = self.site(state, *p);
                site.register.owned_by_clock(site.clock).is_some()
            })
            .count()
    }

    fn moves(&self, state: &Instantaneous) -> Vec<Move> {
        let bounds = self.bounds;
        let wait = u64::try_from(bounds.terms().restart_wait().as_micros()).unwrap();
        let takes_part = |p: usize| {
            let site = self.site(state, p);
            site.started == 0 || site.clock >= site.started + wait
        };
        let slowest = (0..PROCESSES).map(|p| self.site(state, p).clock).min().unwrap();
        let mut moves = Vec::new();
        for p in 0..PROCESSES {
            let site = self.site(state, p);
            if site.clock < BEGIN + bounds.ticks && site.clock < slowest + bounds.epsilon.max(1) {
                moves.push(Move::Tick(p));
            }
            if site.attempts < bounds.attempts[p] && takes_part(p) {
                moves.push(Move::Attempt(p));
            }
            if state.releases < bounds.releases && site.attempts > 0 {
                moves.push(Move::Release(p));
            }
            if state.restarts < bounds.restarts {
                moves.push(Move::Restart(p));
            }
        }
        let on_their_way = self.sets[state.sent as usize].iter().map(|id| usize::from(*id));
        moves.extend(on_their_way.filter(|id| takes_part(self.sent[*id].to.into())).map(Move::Deliver));
        moves
    }

    fn take(&mut self, mut state: Instantaneous, step: Move) -> Instantaneous {
        match step {
            // Clocks that do not differ tick together.
            Move::Tick(_) if self.bounds.epsilon == 0 => (0..PROCESSES).for_each(|p| self.step(&mut state, p, SiteStep::Tick)),
            Move::Tick(p) => self.step(&mut state, p, SiteStep::Tick),
            Move::Attempt(p) => self.step(&mut state, p, SiteStep::Attempt),
            Move::Release(p) => {
                state.releases += 1;
                self.step(&mut state, p, SiteStep::Release);
            }
            Move::Restart(p) => {
                state.restarts += 1;
                self.step(&mut state, p, SiteStep::Restart);
            }
            Move::Deliver(id) => {
                let to = usize::from(self.sent[id].to);
                self.step(&mut state, to, SiteStep::Get(u16::try_from(id).unwrap()));
            }
        }
        state
    }

    fn step(&mut self, state: &mut Instantaneous, p: usize, step: SiteStep) {
        let key = (state.sites[p], step);
        if !self.stepped.contains_key(&key) {
            let stepped = self.carry_out(key.0, step);
            self.stepped.insert(key, stepped);
        }
        let (after, sent) = &self.stepped[&key];
        state.sites[p] = *after;
        let known = &self.sets[state.sent as usize];
        if sent.iter().any(|id| known.binary_search(id).is_err()) {
            let mut set: Vec<u16> = known.iter().chain(sent).copied().collect();
            set.sort_unstable();
            set.dedup();
            state.sent = self.set(set);
        }
    }

    fn carry_out(&mut self, id: u32, step: SiteStep) -> (u32, Vec<u16>) {
        let mut site = self.sites[id as usize].clone();
        let (me, nonce) = (site.me, site.nonce);
        let group = Group {
            terms: self.bounds.terms(),
            places: 3,
            members: MemberSet::first(3),
            me,
            nonce,
            renew_by_write: false,
            durable_tokens: false,
        };
        let cx = Cx {
            group: &group,
            now: Instant::new(0, 0),
            rto: Duration::ZERO,
            random: 0,
            least_token: 0,
            token_max: u64::MAX,
            clock_us: site.clock,
        };
        let mut out = Outbox::new();
        match step {
            SiteStep::Tick => site.clock += 1,
            SiteStep::Attempt => {
                site.attempts += 1;
                site.register.want(&cx);
                site.register.attempt(&cx, &mut out);
            }
            SiteStep::Release => site.register.release(&cx, &mut out),
            SiteStep::Restart => site = Site { register: Register::default(), nonce: nonce + 1, started: site.clock, ..site },
            SiteStep::Get(id) => {
                let Letter { from, nonce, message, .. } = self.sent[usize::from(id)];
                site.register.receive(&cx, from, nonce, message, &mut out);
            }
        }
        let mut sent = Vec::new();
        for (to, message) in out {
            sent.extend(to.iter().map(|to| self.letter(Letter { from: me, nonce, to, message })));
        }
        (self.number(site), sent)
    }

    fn set(&mut self, set: Vec<u16>) -> u32 {
        let next = u32::try_from(self.sets.len()).unwrap();
        let number = *self.set_numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }

    fn letter(&mut self, letter: Letter) -> u16 {
        let id = self.sent.iter().position(|known| *known == letter).unwrap_or_else(|| {
            self.sent.push(letter);
            self.sent.len() - 1
        });
        u16::try_from(id).unwrap()
    }

    fn told(&self, steps: &[(u32, Move)], last: u32) -> Vec<String> {
        let mut told = Vec::new();
        let mut at = last;
        while let Some((before, step)) = steps.get(at as usize) {
            told.push(match *step {
                Move::Tick(p) => format!("the clock of {p} ticks"),
                Move::Attempt(p) => format!("{p} begins an attempt"),
                Move::Release(p) => format!("{p} releases"),
                Move::Restart(p) => format!("{p} restarts"),
                Move::Deliver(id) => {
                    let Letter { from, to, message, .. } = self.sent[id];
                    format!("{to} gets of {from}: {message:?}")
                }
            });
            at = *before;
        }
        told.reverse();
        told
    }
}
