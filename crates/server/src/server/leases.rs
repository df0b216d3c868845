//! Named leases: what the machine does for the part `leases`.
//!
//! Decides who may keep one and attach to one; that the end of one is written by the batch that ends it, with what can go at once, and that the
//! rest is removed later, as what a session left; that each has its whole time again after a start. Implements `wire-spec.md` section 11.11.
//! Leaves to others: removals (`presence`).

use crate::config::PresenceLimits;
use crate::ids::Bound;
use crate::leases::NamedLeases;
use crate::namespace::{Applied, Mutation};
use crate::presence::Ephemerals;
use crate::principals::{PrincipalId, Rights};
use crate::requests::{Blocked, Call};
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::answers::{Repeatable, millis};
use crate::server::durability::OnDurable;
use crate::server::execute::{Run, Stop};
use crate::store::{LeaseRecord, ReadError, Seen};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_seal::lease::verifies_lease;
use cistern_wire::{Ack, Bytes16, Field as _, Item, KeepLease, LeaseKept, LeaseRow, LeaseRows, List, ListLeases, ObjectId, Reply, Status};
use core::time::Duration;
use log::{debug, info};

/// What a LEASE_ROWS reply has besides its rows.
const ROWS_AROUND: usize = Reply::KIND_LEN + LeaseRows::MIN_LEN;

/// Most leases that end in one turn.
const ENDS_MAX: usize = 128;

/// Most rows that are looked at for one page.
const LOOKED_AT_MAX: usize = 4_096;

/// What a mutation has done to named leases.
#[derive(Debug, Default)]
pub(crate) struct LeaseChanges {
    made: Vec<(ObjectId, LeaseRecord)>,
    ended: Vec<ObjectId>,
}

impl LeaseChanges {
    pub(crate) fn of(applied: &Applied<'_>) -> Self {
        Self { made: applied.leases().collect(), ended: applied.leases_gone().collect() }
    }
}

/// Whether the leases that a mutation names may be used so: their secrets are right, and there is room; if not, why and by which of its items.
pub(crate) fn check_leases(
    mutation: &Mutation<'_>,
    leases: &NamedLeases,
    ephemerals: &Ephemerals,
    who: PrincipalId,
    limits: PresenceLimits,
) -> Result<(), Stop> {
    let (mut made, mut attached): (usize, Vec<ObjectId>) = (0, Vec::new());
    for (item, index) in mutation.items().zip(0..) {
        let fails = |status| Stop::Failed { status, item: mutation.is_batch().then_some(index) };
        match item {
            Item::MakeLease(_) => made += 1,
            Item::Attach(m) => {
                let verifier = match m.lease.maker().map(|maker| mutation.items().nth(maker)) {
                    Some(Some(Item::MakeLease(maker))) => Some(maker.verifier),
                    Some(_) => None,
                    None => leases.get(m.lease).map(|record| record.verifier),
                };
                //= wire-spec.md#11-11-named-leases
                //# A named lease that has ended MUST NOT come back: KEEP_LEASE and ATTACH fail from then on, also if the server was restarted.
                let verifier = verifier.ok_or_else(|| fails(Status::ESTALE))?;
                //= wire-spec.md#11-11-named-leases
                //# KEEP_LEASE and ATTACH with another secret MUST fail with EACCES, and change nothing.
                if !verifies_lease(&m.secret, &verifier) && !bugs::is(Bug::N7) {
                    return Err(fails(Status::EACCES));
                }
                if ephemerals.bound(m.object) != Some(Bound::Lease(m.lease)) {
                    attached.push(m.lease);
                }
            }
            _ => {}
        }
    }
    let too_many = || leases.limit(who, made, limits.leases_max).or_else(|| ephemerals.limit(Bound::Lease(ObjectId(0)), who, made, limits));
    let limited = if made > 0 { too_many() } else { None };
    let full = |lease: &ObjectId| {
        let more = attached.iter().filter(|other| *other == lease).count();
        ephemerals.limit(Bound::Lease(*lease), who, more, limits)
    };
    match limited.or_else(|| attached.iter().find_map(full)) {
        Some(limited) => Err(limited.into()),
        None => Ok(()),
    }
}

impl Server {
    /// A mutation has made named leases, or has taken the files of some away; by the open batch.
    pub(crate) fn leases_changed(&mut self, changes: LeaseChanges) {
        let LeaseChanges { made, ended } = changes;
        for (lease, record) in made {
            self.store.view(&Seen::default()).put_lease(lease, Some(record));
            self.leases.add(lease, record);
            self.begin_lease(lease);
        }
        for lease in ended {
            // The time of one whose file is still there may have been over before.
            if self.leases.get(lease).is_some() {
                debug!("{}: the named lease {lease} is revoked", self.who);
                self.stats.leases_revoked += 1;
                self.end_lease(lease);
            }
        }
    }

    /// KEEP_LEASE.
    pub(crate) fn keep_lease(&mut self, call: Call, m: &KeepLease, seen: &Seen) -> Run {
        let asker = self.principals.asker(call.who);
        let attr = *self.namespace.permitted(&self.store.view(seen), m.lease, asker, Rights::WRITE)?;
        let Some(LeaseRecord { ttl_ms, verifier, .. }) = self.leases.get(m.lease).copied() else {
            //= wire-spec.md#11-11-named-leases
            //# A named lease that has ended MUST NOT come back: KEEP_LEASE and ATTACH fail from then on, also if the server was restarted.
            return Err(if attr.is_lease() { Status::ESTALE } else { Status::EINVAL }.into());
        };
        //= wire-spec.md#11-11-named-leases
        //# KEEP_LEASE and ATTACH with another secret MUST fail with EACCES, and change nothing.
        if !verifies_lease(&m.secret, &verifier) && !bugs::is(Bug::N7) {
            return Err(Status::EACCES.into());
        }
        if !bugs::is(Bug::N3) {
            self.begin_lease(m.lease);
        }
        self.answer_with(&Reply::LeaseKept(LeaseKept { ttl_ms }), Repeatable::Changes)
    }

    /// The time of a lease begins anew; in grace all begin at its end.
    fn begin_lease(&mut self, lease: ObjectId) {
        //= wire-spec.md#11-11-named-leases
        //# The server MUST NOT end a named lease by time before that wait has passed since the newest MKLEASE or KEEP_LEASE of it was executed.
        if let Some(record) = self.leases.get(lease)
            && !self.in_grace()
        {
            let ttl = Duration::from_millis(record.ttl_ms.into());
            let wait = match () {
                () if bugs::is(Bug::N2) => ttl,
                () if bugs::is(Bug::N8) => 2 * ttl,
                () => self.config.wait_for(ttl),
            };
            self.leases.run_until(lease, self.now.plus(wait));
        }
    }

    /// Each lease that the store had has its whole time from now on: the server serves, or its grace is over.
    pub(crate) fn begin_leases(&mut self) {
        //= wire-spec.md#11-11-named-leases
        //# A server that has started MUST give each named lease its whole time again, from when it serves, and at the end of grace once more.
        let all: Vec<ObjectId> = self.leases.after(ObjectId(0)).collect();
        for lease in all {
            self.begin_lease(lease);
            if bugs::is(Bug::N4) {
                self.leases.run_until(lease, self.now);
            }
        }
    }

    /// The leases whose time is over, now that the socket was found empty.
    pub(crate) fn run_named_leases(&mut self) {
        //= wire-spec.md#11-11-named-leases
        //# The server MUST end a named lease when its wait has passed, once its receive queue is empty and no grace lasts.
        for _ in 0..ENDS_MAX {
            let Some(lease) = self.leases.due(self.now) else { return };
            info!("{}: the named lease {lease} has run out", self.who);
            self.stats.leases_run_out += 1;
            self.end_lease(lease);
        }
    }

    /// A lease ends, by the open batch; what cannot go with that goes when it is durable.
    fn end_lease(&mut self, lease: ObjectId) {
        self.leases.end(lease);
        if !bugs::is(Bug::N5) {
            self.store.view(&Seen::default()).put_lease(lease, None);
        }
        //= wire-spec.md#11-11-named-leases
        //# The server MUST NOT remove a file on account of a named lease by a transaction before the one that ends the lease.
        self.remove_with_end(Bound::Lease(lease));
        let batch = self.store.open_batch();
        self.after_commit(batch, OnDurable::LeaseEnded(lease));
    }

    /// LIST_LEASES.
    pub(crate) fn list_leases(&mut self, call: Call, m: &ListLeases, seen: &Seen) -> Run {
        let room = usize::from(call.limit) - Ack::around(self.form()) - ROWS_AROUND;
        let (objects, mut end) = self.visible_leases(call, m, room / LeaseRow::MIN_LEN, seen)?;
        let places = self.namespace.places_of(&self.store.view(seen), objects.iter().copied(), call.progress.gives_up())?;
        let mut left = room;
        let rows: Vec<LeaseRow<'_>> = objects.iter().zip(&places).map(|(object, place)| self.lease_row(*object, m.lease, place)).collect();
        let shown = rows.iter().take_while(|row| {
            let rest = left.checked_sub(LeaseRow::MIN_LEN + row.place.0.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        let shown = shown.count();
        end &= shown == rows.len();
        let reply = Reply::LeaseRows(LeaseRows { end, rows: List::of(&rows[..shown]) });
        self.answer_with(&reply, Repeatable::Reads)
    }

    fn lease_row<'p>(&self, object: ObjectId, lease: ObjectId, place: &'p [u8]) -> LeaseRow<'p> {
        let lease = if lease.0 == 0 { object } else { lease };
        let ttl_ms = self.leases.get(lease).map_or(0, |record| record.ttl_ms);
        // By its clock the holder's time is up sooner: what the server waits longer is not the lease's.
        let left = self.leases.left(lease, self.now).map_or(ttl_ms, |left| u32::try_from(millis(left)).unwrap_or(u32::MAX).min(ttl_ms));
        let files = u32::try_from(self.ephemerals.count_of(Bound::Lease(lease))).unwrap_or(u32::MAX);
        LeaseRow { object, lease, ttl_ms, left_ms: left, files, place: Bytes16(place) }
    }

    /// What LIST_LEASES lists, as far as the asker may read it: at most `most`, and whether there are no more.
    fn visible_leases(&mut self, call: Call, m: &ListLeases, most: usize, seen: &Seen) -> Result<(Vec<ObjectId>, bool), Stop> {
        let asker = self.principals.asker(call.who);
        let view = self.store.view(seen);
        let listed: Vec<ObjectId> = if m.lease.0 == 0 {
            self.leases.after(m.after).take(LOOKED_AT_MAX).collect()
        } else {
            let attr = self.namespace.permitted(&view, m.lease, asker, Rights::READ)?;
            if self.leases.get(m.lease).is_none() {
                return Err(if attr.is_lease() { Status::ESTALE } else { Status::EINVAL }.into());
            }
            self.ephemerals.of(Bound::Lease(m.lease)).filter(|object| *object > m.after).collect()
        };
        let (mut visible, mut missing, mut looked_at) = (Vec::new(), Vec::new(), 0);
        for object in &listed {
            if visible.len() == most {
                break;
            }
            looked_at += 1;
            match self.namespace.permitted(&view, *object, asker, Rights::READ) {
                Ok(_) => visible.push(*object),
                Err(ReadError::NotCached(queries)) => missing.extend(queries),
                Err(ReadError::Failed(_)) => {}
            }
        }
        self.scheduler.charge(call.flow, prices::rows(looked_at));
        if !missing.is_empty() && !call.progress.gives_up() {
            return Err(Blocked::Load(missing).into());
        }
        let end = looked_at == listed.len() && listed.len() < LOOKED_AT_MAX;
        if visible.is_empty() && !end { Err(Status::E2BIG.into()) } else { Ok((visible, end)) }
    }
}
