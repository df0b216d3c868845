//! One process of a group: instances by the name of their resource, their timers, and datagrams.
//!
//! The driver turns it as it turns a [`cistern_link::Machine`], but members stand for addresses: it knows where each member is, and
//! checks that a datagram came from there. Invariant: nothing is asked or answered before the restart wait is over on both clocks.

use crate::ballot::{Member, MemberSet};
use crate::datagram::{Datagram, DropReason, Header, Mismatch};
use crate::instance::{Change, Cx, Outbox};
use crate::message::{COUNT_MAX, Message, NAME_MAX};
use crate::proposer::Ownership;
use crate::resource::Resource;
use crate::terms::{Group, MEMBERS_MAX, Terms};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use cistern_link::setting::counts;
use cistern_link::{ConfigError, Instant, Question, Rng, RoundTrip, TimerQueue};
use core::time::Duration;

/// Tokens for each millisecond of the wall clock.
const TOKENS_PER_MS: u64 = 256;

/// Tokens that are reserved on disk at a time: an hour of the wall clock, so that the disk is written twice an hour.
const RESERVATION: u64 = 3_600 * 1_000 * TOKENS_PER_MS;

/// What a member is told of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The spans; the same at every member.
    pub terms: Terms,
    /// The number of the list of members.
    pub list_number: u32,
    /// The members by name, in the same order everywhere.
    pub members: Vec<Vec<u8>>,
    /// Which of them this is.
    pub me: Member,
    /// Whether an owner renews by WRITE alone: half the messages.
    pub renew_by_write: bool,
    /// Most resources that are known at once.
    pub resources_max: usize,
    /// Of members that keep tokens on disk: up to where this one has reserved them before it started; 0 the first time.
    pub reserved: Option<u64>,
}

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        self.terms.check()?;
        counts("members", self.members.len() as u64, 1, MEMBERS_MAX.into(), "1 to 15")?;
        counts("me", self.me, 0, (self.members.len() as u64).saturating_sub(1), "the place of a member in the list")?;
        counts("resources-max", self.resources_max as u64, 1, 1 << 24, "1 to 16,777,216")?;
        let distinct: BTreeSet<&Vec<u8>> = self.members.iter().collect();
        let is_named = self.members.iter().all(|name| (1..=NAME_MAX).contains(&name.len()));
        match is_named && distinct.len() == self.members.len() {
            true => Ok(()),
            false => Err(ConfigError {
                setting: "members",
                value: format!("{} names", self.members.len()),
                rule: "different names of 1 to 200 bytes".into(),
            }),
        }
    }
}

/// What the driver tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The resource is owned; each use asks [`Peer::owned`] first.
    Acquired {
        /// The resource.
        name: Vec<u8>,
        /// Token, and until when it is certain if nothing renews it.
        ownership: Ownership,
    },
    /// The lease ended before it was renewed. The resource stays wanted.
    Lost {
        /// The resource.
        name: Vec<u8>,
        /// What it was.
        ownership: Ownership,
    },
    /// A member is configured otherwise: nothing of it is believed. Told once for each difference.
    Refused {
        /// Which.
        member: Member,
        /// What differs.
        mismatch: Mismatch,
    },
    /// Not owned yet: another owner's records stand in the way. It is tried again.
    Held {
        /// The resource.
        name: Vec<u8>,
    },
    /// Two processes act as this member at once.
    Cloned {
        /// Which.
        member: Member,
    },
}

/// Why a resource cannot be wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// Its name is empty, or longer than 200 bytes.
    Name,
    /// As many resources as the configuration allows are in use.
    Full,
}

/// Since when a member takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It takes part.
    Yes,
    /// It waits this long at least.
    In(Duration),
}

/// Where the list of members is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListOrigin {
    /// The configuration.
    Configured,
    /// It is not known, or has not this member in it: it takes no part.
    Awaited,
    /// What the group shares: [`Peer::set_list`].
    Learned,
}

#[derive(Debug)]
struct Slot {
    name: Vec<u8>,
    instance: Resource,
    /// When it last took part in anything.
    touched: Instant,
}

/// Boot nonces that a member was seen with: the one in use and the one before; 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Nonces {
    present: u64,
    former: u64,
}

/// One process of a group.
#[derive(Debug)]
pub struct Peer {
    header: Header,
    names: Vec<Vec<u8>>,
    list_origin: ListOrigin,
    resources_max: usize,
    rng: Rng,
    takes_part_at: Instant,
    has_started: bool,
    /// The wall clock in microseconds, and when it was told.
    wall: (u64, Instant),
    /// Up to where tokens are reserved on disk; above it none is taken on record. All of them, where none is kept there.
    reserved: u64,
    /// The floor of resources of which nothing is known: what was reserved before the start.
    token_floor: u64,
    /// The highest token that was asked for.
    token_asked: u64,
    round_trip: RoundTrip,
    ids: BTreeMap<Vec<u8>, u32>,
    slots: Vec<Slot>,
    swept: Instant,
    /// The highest round of instances that were forgotten: no ballot is used twice.
    round_floor: u64,
    timers: TimerQueue<u32>,
    outgoing: Vec<VecDeque<(u32, Message)>>,
    events: VecDeque<Event>,
    told: BTreeSet<(Member, Mismatch)>,
    nonces: [Nonces; MEMBERS_MAX as usize],
    cloned: MemberSet,
    /// When each other member said last that it hears what the group shares.
    hears: [Option<Instant>; MEMBERS_MAX as usize],
}

impl Peer {
    /// A member that starts now, and takes part after the restart wait; the seed is one that nobody has used before.
    ///
    /// # Errors
    /// The configuration is outside its bounds.
    pub fn new(config: &Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let mut rng = Rng::from_seed(seed);
        let places = u8::try_from(config.members.len()).unwrap_or(MEMBERS_MAX);
        let nonce = rng.nonzero_u64().get();
        let group = Group {
            terms: config.terms,
            places,
            members: MemberSet::first(places),
            me: config.me,
            nonce,
            renew_by_write: config.renew_by_write,
            durable_tokens: config.reserved.is_some(),
        };
        let list_hash = Header::hash_of(&config.members);
        Ok(Self {
            header: Header { list_number: config.list_number, list_hash, group, hears: false },
            names: config.members.clone(),
            list_origin: ListOrigin::Configured,
            resources_max: config.resources_max,
            rng,
            takes_part_at: now.plus(config.terms.restart_wait()),
            has_started: false,
            wall: (0, now),
            reserved: config.reserved.unwrap_or(u64::MAX),
            token_floor: config.reserved.unwrap_or(0),
            token_asked: 0,
            round_trip: RoundTrip::new(config.terms.lease / 8),
            ids: BTreeMap::new(),
            slots: Vec::new(),
            swept: now,
            round_floor: 0,
            timers: TimerQueue::new(),
            outgoing: (0..places).map(|_| VecDeque::new()).collect(),
            events: VecDeque::new(),
            told: BTreeSet::new(),
            nonces: [Nonces::default(); _],
            cloned: MemberSet::default(),
            hears: [None; _],
        })
    }

    /// Tells the wall clock, in microseconds since 1970: tokens that nobody remembers begin above it. In the default mode nothing else rests on
    /// it; in the synchronised mode everything does, and the driver tells it at least once a second.
    pub fn set_wall_clock(&mut self, now: Instant, wall_us: u64) {
        self.wall = (wall_us, now);
    }

    /// Up to where tokens are to be reserved on disk; the driver makes that durable and calls [`Self::set_reserved`]. `None`: they are, or
    /// this group keeps none there.
    #[must_use]
    pub fn reservation_due(&self, now: Instant) -> Option<u64> {
        let needed = self.token_asked.max(self.least_token(now)).max(self.token_floor);
        (self.header.group.durable_tokens && self.reserved < needed + RESERVATION / 2).then(|| (needed + RESERVATION).min(COUNT_MAX))
    }

    /// Says that tokens up to this one are reserved on disk: a later start begins above it.
    pub fn set_reserved(&mut self, reserved: u64) {
        self.reserved = self.reserved.max(reserved);
    }

    fn least_token(&self, now: Instant) -> u64 {
        (self.clock_us(now) / 1_000).saturating_mul(TOKENS_PER_MS)
    }

    fn clock_us(&self, now: Instant) -> u64 {
        let (wall_us, at) = self.wall;
        wall_us.saturating_add(u64::try_from(now.since(at).as_micros()).unwrap_or(0))
    }

    /// Takes no part until the list of members is told by [`Self::set_list`] or [`Self::keep_list`]; what it promised it remembers.
    pub fn await_list(&mut self, now: Instant) {
        self.list_origin = ListOrigin::Awaited;
        self.change(now, Resource::leave);
    }

    /// The configured list counts, if it was awaited and no other one was ever told.
    pub fn keep_list(&mut self) {
        if self.list_origin == ListOrigin::Awaited && self.list_number() == 0 {
            self.list_origin = ListOrigin::Learned;
        }
    }

    /// Another list counts from now on: names by place, an empty one where nobody is any more. A member is at one place in all lists, this one at `me`.
    /// The caller keeps the order: a list differs from the one before by one member, and is made by an owner whose ownership
    /// [`Self::is_agreed`] under that. Promises and records are kept, so that a majority of either list finds what one of the other has agreed to.
    pub fn set_list(&mut self, now: Instant, number: u32, names: &[Vec<u8>], me: Member) {
        let is_moved = me != self.header.group.me;
        self.names = names.to_vec();
        let group = &mut self.header.group;
        group.places = u8::try_from(names.len()).unwrap_or(MEMBERS_MAX);
        group.members = MemberSet::default();
        (0..group.places).zip(names).filter(|(_, name)| !name.is_empty()).for_each(|(place, _)| group.members.insert(place));
        group.me = me;
        (self.header.list_number, self.header.list_hash) = (number, Header::hash_of(names));
        self.list_origin = ListOrigin::Learned;
        // Of whoever was at a place before.
        (self.nonces, self.cloned, self.hears) = ([Nonces::default(); _], MemberSet::default(), [None; _]);
        self.told.clear();
        self.outgoing = names.iter().map(|_| VecDeque::new()).collect();
        self.change(now, if is_moved { Resource::leave } else { Resource::change_list });
    }

    /// Draws the consequences of another list for each resource.
    fn change(&mut self, now: Instant, change: fn(&mut Resource)) {
        self.outgoing.iter_mut().for_each(VecDeque::clear);
        for id in (0..).take(self.slots.len()) {
            self.step(id, now, |instance, _, _| {
                change(instance);
                None
            });
        }
    }

    /// The members' names by place, an empty one where nobody is any more.
    #[must_use]
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Whether a resource is owned, and was granted or renewed by a majority of the list that counts now.
    #[must_use]
    pub fn is_agreed(&self, now: Instant, name: &[u8]) -> bool {
        self.ids.get(name).is_some_and(|id| self.slots[*id as usize].instance.is_agreed(now))
    }

    /// Whether it knows its list, and is in it.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.list_origin != ListOrigin::Awaited
    }

    /// Whether the restart wait is over.
    #[must_use]
    pub fn started(&self, now: Instant) -> Started {
        match self.has_started || now.waited(self.takes_part_at) {
            true => Started::Yes,
            false => Started::In(now.until_waited(self.takes_part_at)),
        }
    }

    /// Wants a resource: acquires it as soon as it can, and renews it until [`Self::release`].
    ///
    /// # Errors
    /// Says why not.
    pub fn acquire(&mut self, now: Instant, name: &[u8]) -> Result<(), NotTaken> {
        let id = self.slot_of(now, name)?;
        self.step(id, now, |instance, cx, _| {
            instance.want(cx);
            None
        });
        Ok(())
    }

    /// Stops wanting a resource. The caller has stopped using it: another may own it at once. `successor` is wished to be next.
    pub fn release(&mut self, now: Instant, name: &[u8], successor: Option<Member>) {
        if let Some(&id) = self.ids.get(name) {
            self.step(id, now, |instance, cx, out| {
                instance.release(cx, successor, out);
                None
            });
        }
    }

    /// The ownership of a resource, if it is certain now: to be asked before each use, with a clock that was just read.
    #[must_use]
    pub fn owned(&self, now: Instant, name: &[u8]) -> Option<Ownership> {
        self.slots[*self.ids.get(name)? as usize].instance.owned(now)
    }

    /// Who owns a resource, and for how long yet if nothing renews that, as far as this member knows: information, never a decision.
    #[must_use]
    pub fn owner(&self, now: Instant, name: &[u8]) -> Option<(Member, Duration)> {
        self.slots[*self.ids.get(name)? as usize].instance.owner(now, self.clock_us(now))
    }

    /// The resources that somebody owns, as far as this member knows.
    pub fn owned_names(&self, now: Instant) -> impl Iterator<Item = &[u8]> {
        self.ids
            .iter()
            .filter(move |(_, id)| self.slots[**id as usize].instance.owner(now, self.clock_us(now)).is_some())
            .map(|(name, _)| &name[..])
    }

    /// Whether others are still being told of a release.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.slots.iter().any(|slot| slot.instance.is_leaving())
    }

    /// Says in every datagram from now on whether this member hears what the group shares beside its leases; at first it does not.
    pub const fn set_hears(&mut self, hears: bool) {
        self.header.hears = hears;
    }

    /// Whether another member has said within this span that it does.
    #[must_use]
    pub fn another_hears(&self, now: Instant, within: Duration) -> bool {
        self.hears.iter().flatten().any(|at| !now.waited(at.plus(within)))
    }

    /// The group, and this member's place in it.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.header.group
    }

    /// The number of the list of members.
    #[must_use]
    pub const fn list_number(&self) -> u32 {
        self.header.list_number
    }

    /// How many resources it knows of, and how many of them it owns now.
    #[must_use]
    pub fn resources(&self, now: Instant) -> (usize, usize) {
        (self.ids.len(), self.slots.iter().filter(|slot| slot.instance.owned(now).is_some()).count())
    }

    /// Takes a datagram from the address of `from`; `now` is read after the receive call returned.
    ///
    /// # Errors
    /// Says why it changed nothing.
    pub fn handle_datagram(&mut self, now: Instant, from: Member, datagram: &[u8]) -> Result<(), DropReason> {
        let decoded = Datagram::decode(datagram, &self.header, from);
        if let Err(DropReason::Mismatch(mismatch)) = decoded
            && from < self.header.group.places
            // Who learns its list hears of another one before or after others do.
            && (mismatch != Mismatch::ListNumber || self.list_origin == ListOrigin::Configured)
            && self.told.insert((from, mismatch))
        {
            self.events.push_back(Event::Refused { member: from, mismatch });
        }
        let Datagram { nonce, hears, messages } = decoded?;
        self.note_nonce(from, nonce);
        if hears {
            self.hears[usize::from(from)] = Some(now);
        }
        //= docs/flease.md#rules
        //# A member that starts MUST NOT ask or answer before W has passed on both clocks: after a crash, a clean stop, a first start
        //# alike.
        if self.started(now) != Started::Yes || !self.is_listed() {
            return Err(DropReason::Waiting);
        }
        for (name, message) in messages {
            let Ok(id) = self.slot_of(now, name) else { continue };
            self.token_asked = self.token_asked.max(message.token().unwrap_or(0));
            if let Some(sent) = message.answered().and_then(|ballot| self.slots[id as usize].instance.sent_once(ballot)) {
                self.round_trip.sample(now.since(sent));
            }
            self.step(id, now, |instance, cx, out| instance.receive(cx, from, nonce, message, out));
        }
        Ok(())
    }

    /// Says that the socket was found empty: the only place where timers run.
    pub fn handle_drained(&mut self, now: Instant) {
        //= docs/flease.md#rules
        //# A member that starts MUST NOT ask or answer before W has passed on both clocks: after a crash, a clean stop, a first start
        //# alike.
        if self.started(now) != Started::Yes || !self.is_listed() {
            return;
        }
        self.has_started = true;
        while let Some(id) = self.timers.due(now) {
            self.step(id, now, Resource::due);
        }
    }

    /// Clears `buf`, fills it with the next datagram, and says to whom; `None` when there is nothing more.
    pub fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Member> {
        let to = self.outgoing.iter().position(|queue| !queue.is_empty())?;
        let member = Member::try_from(to).expect("members are few");
        let slots = &self.slots;
        let named = self.outgoing[to].iter().map(|(id, message)| (&slots[*id as usize].name[..], *message));
        let count = Datagram::encode(buf, &self.header, member, named);
        self.outgoing[to].drain(..count);
        Some(member)
    }

    /// How long the driver may sleep if nothing comes; `None`: for ever.
    #[must_use]
    pub fn wake_after(&self, now: Instant) -> Option<Duration> {
        match self.started(now) {
            Started::In(span) => Some(span),
            Started::Yes if !self.is_listed() => None,
            Started::Yes => self.timers.wake_after(now).map(|(span, _)| span),
        }
    }

    /// What the user is to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A resource of which nothing is known.
    fn resource(&self) -> Resource {
        Resource::above(self.header.group.terms.synchronised, self.round_floor, self.token_floor)
    }

    /// Finds or makes the instance of a resource.
    fn slot_of(&mut self, now: Instant, name: &[u8]) -> Result<u32, NotTaken> {
        if let Some(&id) = self.ids.get(name) {
            return Ok(id);
        }
        if !(1..=NAME_MAX).contains(&name.len()) {
            return Err(NotTaken::Name);
        }
        let slot = Slot { name: name.to_vec(), instance: self.resource(), touched: now };
        let id = match self.slots.len() < self.resources_max {
            true => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
            false => {
                let id = self.forgettable(now).ok_or(NotTaken::Full)?;
                self.ids.remove(&self.slots[id].name);
                self.round_floor = self.round_floor.max(self.slots[id].instance.round());
                self.slots[id] = Slot { instance: self.resource(), ..slot };
                id
            }
        };
        let id = u32::try_from(id).map_err(|_| NotTaken::Full)?;
        self.ids.insert(name.to_vec(), id);
        Ok(id)
    }

    /// An instance that may be forgotten: it took part in nothing for the restart wait, as if it had started anew then.
    fn forgettable(&mut self, now: Instant) -> Option<usize> {
        let wait = self.header.group.terms.restart_wait();
        // What is still to be sent names instances by their place.
        if !now.waited(self.swept) || self.outgoing.iter().any(|queue| !queue.is_empty()) {
            return None;
        }
        let is_idle = |slot: &Slot| now.waited(slot.touched.plus(wait)) && !slot.instance.is_busy();
        let found = self.slots.iter().position(is_idle);
        if found.is_none() {
            self.swept = now.plus(wait / 8);
        }
        found
    }

    /// Carries out one step of an instance, with what it sends, tells and waits for.
    fn step(&mut self, id: u32, now: Instant, step: impl FnOnce(&mut Resource, &Cx<'_>, &mut Outbox) -> Option<Change>) {
        let cx = Cx {
            group: &self.header.group,
            now,
            rto: self.round_trip.rto(),
            random: self.rng.next_u64(),
            least_token: self.least_token(now),
            token_max: self.reserved,
            clock_us: self.clock_us(now),
        };
        let mut out = Outbox::new();
        let slot = &mut self.slots[id as usize];
        slot.touched = slot.touched.max(now);
        let change = step(&mut slot.instance, &cx, &mut out);
        for (to, message) in out {
            self.token_asked = self.token_asked.max(message.token().unwrap_or(0));
            to.iter().for_each(|member| self.outgoing[usize::from(member)].push_back((id, message)));
        }
        match change {
            Some(Change::Acquired(ownership)) => self.events.push_back(Event::Acquired { name: slot.name.clone(), ownership }),
            Some(Change::Lapsed(ownership)) => self.events.push_back(Event::Lost { name: slot.name.clone(), ownership }),
            Some(Change::Held) => self.events.push_back(Event::Held { name: slot.name.clone() }),
            None => {}
        }
        match slot.instance.deadline(now) {
            Some(at) => self.timers.set(id, at, Question::LeaseOver),
            None => {
                self.timers.cancel(id);
            }
        }
    }

    /// Keeps the boot nonces that a member is seen with.
    fn note_nonce(&mut self, from: Member, nonce: u64) {
        let seen = &mut self.nonces[usize::from(from)];
        if nonce == seen.present {
            return;
        }
        if nonce == seen.former && !self.cloned.contains(from) {
            self.cloned.insert(from);
            self.events.push_back(Event::Cloned { member: from });
        }
        *seen = Nonces { present: nonce, former: seen.present };
    }
}
