//! Advisory locks in the agent: its grants, their local holders, and the local users who wait.
//!
//! Decides: which local user gets a lock when, with which token (R73), when the agent asks the server, and when a grant goes back.
//! Local users are served in order; one request per object is outstanding at most, and none while a release is unanswered (R64).
//! Implements `wire-spec.md` section 11.4. Place in the walk: `ops` hands a `Lock` command over when its path is resolved; demands
//! and grants come from `notices`; what is to be sent is taken by `poll`.
//! Invariants: no local grant unless an operation may start under the lease (R17, R19, R75); none after a demand (R69); each hold has a
//! larger token than the one before; every wait ends exactly once.
//! Leaves to others: sending, the lease itself, what users do.
//!
//! ```text
//!  object:   no grant ──ask──▶ asked ──ACK/GRANT──▶ granted ──demand──▶ demanded ──last user ends──▶ releasing ──answered──▶ no grant
//! ```

use crate::api::{Event, HolderId, LockEvent, Locked, OpError, OpId, Output, Wait};
use crate::lease::Lease;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::{Instant, Question, TimerQueue};
use cistern_wire::{Generation, Keep, LockClass, LockId, LockWait, Mode, ObjectId, ReceiptAnswer, ReleaseItem, Status};
use core::time::Duration;

/// Something to be sent for an advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// LOCK.
    Ask { object: ObjectId, mode: Mode, wait: LockWait },
    /// RELEASE.
    Release(ReleaseItem),
    /// CANCEL of a queued LOCK.
    Cancel { nonce: u64 },
    /// EXTEND_RUN.
    Extend { lock: LockId, generation: Generation },
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    mode: Mode,
    generation: Generation,
    /// The token that the next local holder gets.
    next_token: u64,
    /// The first token beyond the run.
    run_end: u64,
    demanded: bool,
    extending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    /// LOCK is to be sent or was sent.
    Sent,
    /// It was answered QUEUED.
    Queued { nonce: u64, cancelling: bool },
    /// Later: the server has reached a limit.
    Later,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    mode: Mode,
    told: Told,
}

/// What a holder was last told of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Certain,
    Suspect,
    Uncertain,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    op: OpId,
    mode: Mode,
    wait: Wait,
}

#[derive(Debug)]
struct Entry {
    grant: Option<Granted>,
    holders: BTreeMap<HolderId, Holder>,
    waiters: VecDeque<Waiter>,
    asked: Asked,
    /// Demands up to this generation came while a grant was awaited.
    awaited_demand: Generation,
    /// A release is not answered yet.
    releasing: Option<Generation>,
}

impl Entry {
    const fn new() -> Self {
        Self {
            grant: None,
            holders: BTreeMap::new(),
            waiters: VecDeque::new(),
            asked: Asked::No,
            awaited_demand: Generation(0),
            releasing: None,
        }
    }

    fn idle(&self) -> bool {
        self.grant.is_none() && self.holders.is_empty() && self.waiters.is_empty() && self.asked == Asked::No && self.releasing.is_none()
    }
}

/// Advisory locks, local holders and waiters.
#[derive(Debug)]
pub(crate) struct Local {
    entries: BTreeMap<ObjectId, Entry>,
    /// On what each hold is.
    objects: BTreeMap<HolderId, ObjectId>,
    /// For what each waiting command waits.
    ops: BTreeMap<OpId, ObjectId>,
    /// Which queued request is for which object.
    queued: BTreeMap<u64, ObjectId>,
    timers: TimerQueue<Timer>,
    wishes: VecDeque<Wish>,
    next_holder: u64,
    granted: usize,
    /// How certain the lease was at the last look.
    seen: Told,
}

/// Why the local locks wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A user has waited as long as it would.
    Wait(OpId),
    /// The server may be asked again.
    Again(ObjectId),
}

impl Default for Local {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            objects: BTreeMap::new(),
            ops: BTreeMap::new(),
            queued: BTreeMap::new(),
            timers: TimerQueue::new(),
            wishes: VecDeque::new(),
            next_holder: 0,
            granted: 0,
            seen: Told::Uncertain,
        }
    }
}

/// What a function here needs to look at and to tell.
pub(crate) struct Hall<'a> {
    pub(crate) now: Instant,
    pub(crate) lease: &'a Lease,
    pub(crate) events: &'a mut VecDeque<Event>,
}

impl Hall<'_> {
    fn done(&mut self, op: OpId, result: Result<Output, OpError>) {
        self.events.push_back(Event::Done { op, result });
    }
}

impl Local {
    /// A local user wants a lock.
    pub(crate) fn request(&mut self, hall: &mut Hall<'_>, op: OpId, object: ObjectId, mode: Mode, wait: Wait) {
        if let Wait::AtMost(span) = wait {
            self.timers.set(Timer::Wait(op), hall.now.plus(span), Question::LeaseOver);
        }
        let entry = self.entries.entry(object).or_insert_with(Entry::new);
        entry.waiters.push_back(Waiter { op, mode, wait });
        self.ops.insert(op, object);
        self.step(hall, object);
    }

    /// A local user gives its lock up. False: it holds none of that number.
    pub(crate) fn unlock(&mut self, hall: &mut Hall<'_>, holder: HolderId) -> bool {
        let Some(object) = self.objects.remove(&holder) else { return false };
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.holders.remove(&holder);
        }
        self.step(hall, object);
        true
    }

    /// A waiting command is over: cancelled, or its time is up.
    pub(crate) fn stop_waiting(&mut self, hall: &mut Hall<'_>, op: OpId, error: OpError) -> bool {
        let Some(object) = self.ops.get(&op).copied() else { return false };
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.waiters.retain(|waiter| waiter.op != op);
        }
        self.end_wait(hall, op, Err(error));
        self.step(hall, object);
        true
    }

    fn end_wait(&mut self, hall: &mut Hall<'_>, op: OpId, result: Result<Output, OpError>) {
        self.ops.remove(&op);
        self.timers.cancel(Timer::Wait(op));
        hall.done(op, result);
    }

    /// LOCK was answered GRANTED, or a GRANT came; the caller has checked that it is not disowned (R65).
    pub(crate) fn granted_now(&mut self, hall: &mut Hall<'_>, object: ObjectId, mode: Mode, generation: Generation, run: u32) {
        let entry = self.entries.entry(object).or_insert_with(Entry::new);
        not_queued(&mut self.queued, entry);
        if entry.grant.is_some_and(|grant| grant.generation >= generation) {
            return self.step(hall, object);
        }
        self.granted += usize::from(entry.grant.is_none());
        let demanded = generation <= entry.awaited_demand;
        let run_end = generation.0.saturating_add(u64::from(run));
        entry.grant = Some(Granted { mode, generation, next_token: generation.0, run_end, demanded: false, extending: false });
        if demanded {
            // A user who waits gets the lock first; then it goes back (R65, R69).
            self.serve_one(hall, object);
            if let Some(grant) = self.entries.get_mut(&object).and_then(|entry| entry.grant.as_mut()) {
                grant.demanded = true;
            }
        }
        self.step(hall, object);
    }

    /// EXTEND_RUN was answered: another run for the grant that is kept.
    pub(crate) fn extended(&mut self, hall: &mut Hall<'_>, object: ObjectId, generation: Generation, run: u32) {
        if let Some(grant) = self.entries.get_mut(&object).and_then(|entry| entry.grant.as_mut())
            && generation > grant.generation
        {
            grant.generation = generation;
            grant.next_token = generation.0;
            grant.run_end = generation.0.saturating_add(u64::from(run));
            grant.extending = false;
        }
        self.step(hall, object);
    }

    /// A grant came that must not be installed: it is asked for anew if somebody waits.
    pub(crate) fn refused_grant(&mut self, hall: &mut Hall<'_>, object: ObjectId) {
        if let Some(entry) = self.entries.get_mut(&object) {
            not_queued(&mut self.queued, entry);
        }
        self.step(hall, object);
    }

    /// LOCK was answered LOCK_REFUSED: it only tried.
    pub(crate) fn lock_refused(&mut self, hall: &mut Hall<'_>, object: ObjectId) {
        self.fail_front(hall, object, OpError::Status(Status::EAGAIN), |waiter| waiter.wait == Wait::Try);
    }

    /// LOCK failed, or its wait ended without a grant.
    pub(crate) fn lock_failed(&mut self, hall: &mut Hall<'_>, object: ObjectId, status: Status, retry_ms: u32) {
        if matches!(status, Status::BUSY | Status::IN_GRACE) && retry_ms > 0 {
            if let Some(entry) = self.entries.get_mut(&object) {
                entry.asked = Asked::Later;
                self.timers.set(Timer::Again(object), hall.now.plus(Duration::from_millis(retry_ms.into())), Question::Waited);
            }
            return;
        }
        self.fail_front(hall, object, OpError::Status(status), |_| true);
    }

    fn fail_front(&mut self, hall: &mut Hall<'_>, object: ObjectId, error: OpError, which: impl Fn(&Waiter) -> bool) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        not_queued(&mut self.queued, entry);
        if entry.waiters.front().is_some_and(which)
            && let Some(waiter) = entry.waiters.pop_front()
        {
            self.end_wait(hall, waiter.op, Err(error));
        }
        self.step(hall, object);
    }

    /// LOCK was answered QUEUED.
    pub(crate) fn queued(&mut self, hall: &mut Hall<'_>, object: ObjectId, nonce: u64) {
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.asked = Asked::Queued { nonce, cancelling: false };
            self.queued.insert(nonce, object);
        }
        self.step(hall, object);
    }

    /// The object for which a queued request waits.
    pub(crate) fn queued_object(&self, nonce: u64) -> Option<ObjectId> {
        self.queued.get(&nonce).copied()
    }

    /// CANCEL was answered, and nothing was granted.
    pub(crate) fn cancelled(&mut self, hall: &mut Hall<'_>, nonce: u64) {
        if let Some(object) = self.queued_object(nonce) {
            self.refused_grant(hall, object);
        }
    }

    /// A demand: what the application says to it (R65, R69). Whether the lock has to be disowned up to that generation.
    pub(crate) fn demand(&mut self, hall: &mut Hall<'_>, object: ObjectId, generation: Generation) -> (ReceiptAnswer, bool) {
        let Some(entry) = self.entries.get_mut(&object) else { return (ReceiptAnswer::NotHeld, true) };
        match &mut entry.grant {
            Some(grant) if grant.generation <= generation => {
                grant.demanded = true;
                let answer = if entry.holders.is_empty() { ReceiptAnswer::Received } else { ReceiptAnswer::InUse };
                self.step(hall, object);
                (answer, false)
            }
            Some(_) => (ReceiptAnswer::NotHeld, false),
            None if entry.releasing.is_some_and(|released| generation <= released) => (ReceiptAnswer::NotHeld, true),
            None if entry.asked != Asked::No && !entry.waiters.is_empty() => {
                entry.awaited_demand = entry.awaited_demand.max(generation);
                (ReceiptAnswer::Awaited, false)
            }
            None => (ReceiptAnswer::NotHeld, true),
        }
    }

    /// RELEASE was answered for a generation.
    pub(crate) fn released(&mut self, hall: &mut Hall<'_>, object: ObjectId, generation: Generation) {
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.releasing == Some(generation)
        {
            entry.releasing = None;
        }
        self.step(hall, object);
    }

    /// Gives back every grant that no local user holds and none waits for.
    pub(crate) fn give_back_unused(&mut self) {
        for (object, entry) in &mut self.entries {
            if entry.holders.is_empty() && entry.waiters.is_empty() {
                give_back(entry, *object, &mut self.wishes, &mut self.granted);
            }
        }
    }

    /// The lease has moved on, or time has passed: users are told, and those who could not be served for want of a lease are.
    pub(crate) fn look_at_lease(&mut self, hall: &mut Hall<'_>) {
        let told = how_certain(hall);
        if told == self.seen {
            return;
        }
        self.seen = told;
        if self.objects.is_empty() && self.ops.is_empty() {
            return;
        }
        let objects: Vec<_> = self.entries.keys().copied().collect();
        for object in objects {
            self.tell(hall, object);
            self.step(hall, object);
        }
    }

    /// Waits whose time is up end, and what could not be asked before is asked.
    pub(crate) fn handle_time(&mut self, hall: &mut Hall<'_>) {
        while let Some(timer) = self.timers.due(hall.now) {
            match timer {
                Timer::Wait(op) => {
                    self.stop_waiting(hall, op, OpError::TimedOut);
                }
                Timer::Again(object) => self.refused_grant(hall, object),
            }
        }
    }

    /// When `handle_time` has something to do.
    pub(crate) fn wake_after(&self, now: Instant) -> Option<Duration> {
        self.timers.wake_after(now).map(|(span, _)| span)
    }

    /// The session is over: every holder has lost its lock for good (R46), every wait goes on in the next session.
    pub(crate) fn session_ended(&mut self, events: &mut VecDeque<Event>) {
        for (holder, object) in core::mem::take(&mut self.objects) {
            events.push_back(Event::Lock { holder, object, what: LockEvent::Lost });
        }
        self.wishes.clear();
        self.queued.clear();
        self.granted = 0;
        self.seen = Told::Uncertain;
        self.entries.retain(|object, entry| {
            let waiters = core::mem::take(&mut entry.waiters);
            *entry = Entry::new();
            entry.waiters = waiters;
            ask(entry, *object, &mut self.wishes);
            !entry.idle()
        });
    }

    /// The agent is closing: every wait ends.
    pub(crate) fn close(&mut self, events: &mut VecDeque<Event>) {
        self.session_ended(events);
        self.wishes.clear();
        self.ops.clear();
        self.timers = TimerQueue::new();
        for (_, entry) in core::mem::take(&mut self.entries) {
            for waiter in entry.waiters {
                events.push_back(Event::Done { op: waiter.op, result: Err(OpError::Closed) });
            }
        }
    }

    /// Something to send.
    pub(crate) fn poll(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    /// Whether there is a hold of this number.
    pub(crate) fn is_holder(&self, holder: HolderId) -> bool {
        self.objects.contains_key(&holder)
    }

    /// Whether a grant of an object's lock is awaited.
    pub(crate) fn awaits(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.asked != Asked::No)
    }

    /// Advisory locks that the agent holds.
    pub(crate) const fn granted(&self) -> usize {
        self.granted
    }

    /// Local users who hold one.
    pub(crate) fn holders(&self) -> usize {
        self.objects.len()
    }

    /// Local users who wait for one.
    pub(crate) fn waiting(&self) -> usize {
        self.ops.len()
    }

    /// Whether a command waits for a lock, and may do so for as long as other agents hold it.
    pub(crate) fn waits(&self, op: OpId) -> bool {
        let its = |waiter: &&Waiter| waiter.op == op;
        let waiter = self.ops.get(&op).and_then(|object| self.entries.get(object)).and_then(|entry| entry.waiters.iter().find(its));
        waiter.is_some_and(|waiter| waiter.wait != Wait::Try)
    }

    /// Whether a command waits for a lock.
    pub(crate) fn is_waiting(&self, op: OpId) -> bool {
        self.ops.contains_key(&op)
    }

    /// The commands that wait.
    pub(crate) fn all_waiting(&self) -> Vec<OpId> {
        self.ops.keys().copied().collect()
    }

    /// Whether a grant is held under exactly this generation.
    pub(crate) fn holds(&self, object: ObjectId, generation: Generation) -> bool {
        self.entries.get(&object).and_then(|entry| entry.grant).is_some_and(|grant| grant.generation == generation)
    }

    /// Serves whom it can, and says what is to be sent: the whole decision about one object, made anew after every change.
    fn step(&mut self, hall: &mut Hall<'_>, object: ObjectId) {
        while self.serve_one(hall, object) {}
        let Some(entry) = self.entries.get_mut(&object) else { return };
        let unusable = |grant: &Granted| {
            let stronger = entry.waiters.front().is_some_and(|waiter| waiter.mode == Mode::Exclusive && grant.mode == Mode::Shared);
            grant.demanded || stronger
        };
        if entry.holders.is_empty() && entry.grant.as_ref().is_some_and(unusable) {
            // An upgrade gives the shared grant up first: two agents that upgrade at once cannot wait for each other (R66).
            give_back(entry, object, &mut self.wishes, &mut self.granted);
        }
        if let Some(grant) = &mut entry.grant
            && !grant.extending
            && !grant.demanded
            && grant.run_end.saturating_sub(grant.next_token) <= TOKENS_LOW
        {
            grant.extending = true;
            let lock = LockId { object, class: LockClass::Advisory };
            self.wishes.push_back(Wish::Extend { lock, generation: grant.generation });
        }
        ask(entry, object, &mut self.wishes);
        if entry.idle() {
            self.entries.remove(&object);
        }
    }

    /// Gives the first waiter the lock, if the agent may (R17, R19, R69).
    fn serve_one(&mut self, hall: &mut Hall<'_>, object: ObjectId) -> bool {
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        let Some(waiter) = entry.waiters.front().copied() else { return false };
        let conflict = entry.holders.values().any(|holder| !holder.mode.compatible(waiter.mode));
        if conflict && waiter.wait == Wait::Try {
            entry.waiters.pop_front();
            self.end_wait(hall, waiter.op, Err(OpError::Status(Status::EAGAIN)));
            return true;
        }
        let Some(grant) = &mut entry.grant else { return false };
        let covers = grant.mode == Mode::Exclusive || waiter.mode == Mode::Shared;
        let ready = !grant.demanded && covers && !conflict && grant.next_token < grant.run_end && hall.lease.starts(hall.now);
        let Some(valid_until) = hall.lease.expiry().filter(|_| ready) else { return false };
        let token = grant.next_token;
        let generation = grant.generation;
        grant.next_token += 1;
        entry.waiters.pop_front();
        self.next_holder += 1;
        let holder = HolderId(self.next_holder);
        entry.holders.insert(holder, Holder { mode: waiter.mode, told: Told::Certain });
        self.objects.insert(holder, object);
        let locked = Locked { holder, object, mode: waiter.mode, generation, token, valid_until };
        self.end_wait(hall, waiter.op, Ok(Output::Locked(locked)));
        true
    }

    fn tell(&mut self, hall: &mut Hall<'_>, object: ObjectId) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        let told = how_certain(hall);
        let what = match (told, hall.lease.expiry()) {
            (Told::Certain, Some(valid_until)) => LockEvent::Certain { valid_until },
            (Told::Suspect, Some(valid_until)) => LockEvent::Suspect { valid_until },
            _ => LockEvent::Uncertain,
        };
        for (holder, state) in &mut entry.holders {
            if state.told != told {
                state.told = told;
                hall.events.push_back(Event::Lock { holder: *holder, object, what });
            }
        }
    }
}

/// What holders are told at this instant.
fn how_certain(hall: &Hall<'_>) -> Told {
    match () {
        () if hall.lease.starts(hall.now) => Told::Certain,
        () if hall.lease.usable(hall.now) => Told::Suspect,
        () => Told::Uncertain,
    }
}

/// The request for an object's lock is answered for good.
fn not_queued(queued: &mut BTreeMap<u64, ObjectId>, entry: &mut Entry) {
    if let Asked::Queued { nonce, .. } = entry.asked {
        queued.remove(&nonce);
    }
    entry.asked = Asked::No;
}

/// When fewer tokens than this are left of a run, another is asked for.
const TOKENS_LOW: u64 = 16;

/// Asks the server if somebody waits, nothing is asked yet and no release is on its way; ends a wait in line that nobody needs.
fn ask(entry: &mut Entry, object: ObjectId, wishes: &mut VecDeque<Wish>) {
    match (entry.waiters.front(), entry.asked) {
        (Some(waiter), Asked::No) if entry.grant.is_none() && entry.releasing.is_none() => {
            let wait = if waiter.wait == Wait::Try { LockWait::Try } else { LockWait::Queue };
            wishes.push_back(Wish::Ask { object, mode: waiter.mode, wait });
            entry.asked = Asked::Sent;
            entry.awaited_demand = Generation(0);
        }
        (None, Asked::Queued { nonce, cancelling: false }) => {
            wishes.push_back(Wish::Cancel { nonce });
            entry.asked = Asked::Queued { nonce, cancelling: true };
        }
        (None, Asked::Later) => entry.asked = Asked::No,
        _ => {}
    }
}

fn give_back(entry: &mut Entry, object: ObjectId, wishes: &mut VecDeque<Wish>, granted: &mut usize) {
    if let Some(grant) = entry.grant.take() {
        *granted -= 1;
        entry.releasing = Some(grant.generation);
        let lock = LockId { object, class: LockClass::Advisory };
        wishes.push_back(Wish::Release(ReleaseItem { lock, generation: grant.generation, keep: Keep::Nothing }));
    }
}
