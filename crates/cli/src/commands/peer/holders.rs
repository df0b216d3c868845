//! The local programs of a member: which of them waits for a resource, and which holds it.
//!
//! Decides: that a resource is wanted while a local program wants it; that one program has it at a time, each under a tenure of its own, so
//! that each has a larger token than the one before; and that a resource whose program is gone is kept until the last instant that this
//! program was told. Invariant: RELEASE is sent only when nobody can still act under the tenure: after an unlock, or after that instant.
//! Leaves to others: the socket (`daemon`), who owns (`cistern_flease`).

use crate::commands::lock::TRY_TIME;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, TokenBasis};
use crate::text::Text;
use cistern_driver::ConnectionId;
use cistern_flease::{Ballot, NotTaken, Ownership, Peer};
use cistern_link::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Holders {
    resources: BTreeMap<Vec<u8>, Resource>,
    /// The resource of each hold.
    holds: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

#[derive(Debug, Default)]
struct Resource {
    holder: Option<LocalHolder>,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct LocalHolder {
    connection: ConnectionId,
    hold: u64,
    /// That it is lost is told.
    events: bool,
    tenure: Ballot,
    since: Instant,
    /// The last instant until which the program was told that it holds.
    told: Option<Instant>,
    /// The program is gone.
    is_gone: bool,
}

/// A lock request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockRequest {
    pub(super) connection: ConnectionId,
    pub(super) id: u64,
    /// That the lock is lost is told by an event.
    pub(super) events: bool,
}

#[derive(Debug)]
struct Waiter {
    request: LockRequest,
    /// Waits no longer.
    until: Option<Instant>,
    /// Does not wait for another owner.
    is_try: bool,
}

/// A hold that a program is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) request: LockRequest,
    pub(super) hold: u64,
    pub(super) token: u64,
    pub(super) basis: TokenBasis,
}

impl Holders {
    /// A program wants a resource. It is told later: [`Self::acquired`], [`Self::held`], [`Self::overdue`].
    ///
    /// # Errors
    /// It cannot have it, or not at once.
    pub(super) fn ask(
        &mut self,
        peer: &mut Peer,
        now: Instant,
        request: LockRequest,
        name: &[u8],
        wait_ms: Option<u64>,
    ) -> Result<(), Failure> {
        let is_try = wait_ms == Some(0);
        let is_taken = self.resources.get(name).is_some_and(|resource| resource.holder.is_some() || !resource.waiters.is_empty());
        if is_try && is_taken {
            return Err(in_use(name));
        }
        peer.acquire(now, name).map_err(|why| match why {
            NotTaken::Name => Failure::usage("the name of a lock has 1 to 200 bytes"),
            NotTaken::Full => {
                Failure::new("BUSY", EXIT_FAILED, "this member knows of as many resources as it can; some are to be released")
            }
        })?;
        let wait = if is_try { Some(TRY_TIME) } else { wait_ms.map(Duration::from_millis) };
        let waiter = Waiter { request, until: wait.map(|wait| now.plus(wait)), is_try };
        self.resources.entry(name.to_vec()).or_default().waiters.push_back(waiter);
        Ok(())
    }

    /// This member owns a resource from now on: the first who waits for it has it; without any it is released.
    pub(super) fn acquired(&mut self, peer: &mut Peer, now: Instant, name: &[u8], ownership: &Ownership) -> Option<Granted> {
        let resource = self.resources.get_mut(name).filter(|resource| resource.holder.is_none());
        let Some((resource, waiter)) = resource.and_then(|resource| resource.waiters.pop_front().map(|waiter| (resource, waiter))) else {
            self.settle(peer, now, name);
            return None;
        };
        self.next += 1;
        let request = waiter.request;
        let LockRequest { connection, events, .. } = request;
        let hold = self.next;
        resource.holder = Some(LocalHolder { connection, hold, events, tenure: ownership.tenure, since: now, told: None, is_gone: false });
        self.holds.insert(hold, name.to_vec());
        let basis = match ownership.is_token_remembered {
            _ if peer.group().durable_tokens => TokenBasis::Durable,
            true => TokenBasis::Remembered,
            false => TokenBasis::Clock,
        };
        Some(Granted { request, hold, token: ownership.token, basis })
    }

    /// Another member owns a resource: who does not wait for that is told so.
    pub(super) fn held(&mut self, peer: &mut Peer, now: Instant, name: &[u8]) -> Vec<(LockRequest, Failure)> {
        let Some(resource) = self.resources.get_mut(name) else { return Vec::new() };
        let mut told = Vec::new();
        resource.waiters.retain(|waiter| {
            if waiter.is_try {
                told.push((waiter.request, in_use(name)));
            }
            !waiter.is_try
        });
        self.settle(peer, now, name);
        told
    }

    /// The lease of a tenure ended: whoever held it under that tenure has lost it for good. The hold that is to be told so.
    pub(super) fn lost(&mut self, peer: &mut Peer, now: Instant, name: &[u8], tenure: Ballot) -> Option<(ConnectionId, u64)> {
        let resource = self.resources.get_mut(name);
        let lost = resource.and_then(|resource| resource.holder.take_if(|holder| holder.tenure == tenure));
        if let Some(holder) = &lost {
            self.holds.remove(&holder.hold);
        }
        self.settle(peer, now, name);
        lost.filter(|holder| holder.events && !holder.is_gone).map(|holder| (holder.connection, holder.hold))
    }

    /// A program waits for a lock no more; false: it did not, or has it.
    pub(super) fn cancel(&mut self, peer: &mut Peer, now: Instant, connection: ConnectionId, id: u64) -> bool {
        let is_it = |waiter: &Waiter| waiter.request.connection == connection && waiter.request.id == id;
        let waits = |resource: &Resource| resource.waiters.iter().position(is_it);
        let Some((name, at)) = self.resources.iter().find_map(|(name, resource)| Some((name.clone(), waits(resource)?))) else {
            return false;
        };
        if let Some(resource) = self.resources.get_mut(&name) {
            resource.waiters.remove(at);
        }
        self.settle(peer, now, &name);
        true
    }

    /// Until when a hold is certain; the program may act until then. `None`: it is lost.
    pub(super) fn look(&mut self, peer: &Peer, now: Instant, connection: ConnectionId, hold: u64) -> Option<Instant> {
        let name = self.holds.get(&hold)?;
        let holder = self.resources.get_mut(name)?.holder.as_mut()?;
        let owned = peer.owned(now, name).filter(|owned| owned.tenure == holder.tenure && holder.connection == connection)?;
        holder.told = Some(owned.until);
        Some(owned.until)
    }

    /// A program gives a hold back: nothing that acts under it is left. False: it had none of that number.
    pub(super) fn unlock(&mut self, peer: &mut Peer, now: Instant, connection: ConnectionId, hold: u64) -> bool {
        let Some(name) = self.holds.get(&hold).cloned() else { return false };
        let is_of = |holder: &LocalHolder| holder.connection == connection;
        if !self.resources.get(&name).and_then(|resource| resource.holder.as_ref()).is_some_and(is_of) {
            return false;
        }
        self.release(peer, now, &name);
        true
    }

    /// A program is gone, or is about to be told so by the end of its connection.
    pub(super) fn gone(&mut self, peer: &mut Peer, now: Instant, connection: ConnectionId) {
        self.forget(peer, now, |of| of == connection);
    }

    /// Every program is about to be told that its connection ends.
    pub(super) fn all_gone(&mut self, peer: &mut Peer, now: Instant) {
        self.forget(peer, now, |_| true);
    }

    fn forget(&mut self, peer: &mut Peer, now: Instant, is_of: impl Fn(ConnectionId) -> bool) {
        for resource in self.resources.values_mut() {
            resource.waiters.retain(|waiter| !is_of(waiter.request.connection));
            if let Some(holder) = resource.holder.as_mut().filter(|holder| is_of(holder.connection)) {
                holder.is_gone = true;
            }
        }
        let names: Vec<_> = self.resources.keys().cloned().collect();
        for name in names {
            self.settle(peer, now, &name);
        }
    }

    /// Ends what has waited long enough, and releases what was kept for programs that are gone.
    pub(super) fn overdue(&mut self, peer: &mut Peer, now: Instant) -> Vec<(LockRequest, Failure)> {
        if self.wake_after(now) != Some(Duration::ZERO) {
            return Vec::new();
        }
        let mut told = Vec::new();
        for (name, resource) in &mut self.resources {
            resource.waiters.retain(|waiter| {
                let is_over = waiter.until.is_some_and(|until| now.lease_over(until));
                if is_over {
                    let what = format!("{}: the lock was not granted within the time allowed", Text(name.clone()));
                    told.push((waiter.request, Failure::new("TIMED_OUT", EXIT_FAILED, what)));
                }
                !is_over
            });
        }
        let names: Vec<_> = self.resources.keys().cloned().collect();
        for name in names {
            self.settle(peer, now, &name);
        }
        told
    }

    /// How long until [`Self::overdue`] has something to do.
    pub(super) fn wake_after(&self, now: Instant) -> Option<Duration> {
        let of = |resource: &Resource| {
            let kept = resource.holder.as_ref().filter(|holder| holder.is_gone).and_then(|holder| holder.told);
            let kept = kept.map(|told| now.until_waited(told));
            let waits = resource.waiters.iter().filter_map(|waiter| waiter.until).map(|until| now.until_lease_over(until));
            waits.chain(kept).min()
        };
        self.resources.values().filter_map(of).min()
    }

    /// Whether no program has or wants anything.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Since when a local program holds a resource, and how many wait for it.
    pub(super) fn of(&self, name: &[u8]) -> (Option<Instant>, usize) {
        let Some(resource) = self.resources.get(name) else { return (None, 0) };
        (resource.holder.as_ref().map(|holder| holder.since), resource.waiters.len())
    }

    /// The resources that local programs have or want.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.resources.keys().map(|name| &name[..])
    }

    /// Releases a resource that nobody here has any more, or that nobody here wants.
    fn settle(&mut self, peer: &mut Peer, now: Instant, name: &[u8]) {
        let Some(resource) = self.resources.get(name) else {
            peer.release(now, name, None);
            return;
        };
        match &resource.holder {
            Some(holder) if holder.is_gone && holder.told.is_none_or(|told| now.waited(told)) => self.release(peer, now, name),
            None if resource.waiters.is_empty() => self.release(peer, now, name),
            _ => {}
        }
    }

    fn release(&mut self, peer: &mut Peer, now: Instant, name: &[u8]) {
        peer.release(now, name, None);
        let Some(resource) = self.resources.get_mut(name) else { return };
        if let Some(holder) = resource.holder.take() {
            self.holds.remove(&holder.hold);
        }
        if resource.waiters.is_empty() {
            self.resources.remove(name);
        } else {
            // What was known a moment ago is known still.
            let _ = peer.acquire(now, name);
        }
    }
}

fn in_use(name: &[u8]) -> Failure {
    Failure::new("EAGAIN", EXIT_FAILED, format!("{}: the lock is in use", Text(name.to_vec())))
}
