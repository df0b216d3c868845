//! The start of the server: what the store must have told, and what must be durable, before anything is answered.
//!
//! Decides the server's incarnation and epoch, and whether it begins in grace: reads the counters, the root directory and the records
//! of all sessions that had not ended; then raises the incarnation, and serves when that is durable. A store that was restored
//! from a copy gets a new epoch and loses its sessions in the same batch. Place in the walk: before it.
//! Implements `wire-spec.md` section 11.7. Invariant: nothing is written before everything was read, and nothing is answered before
//! the first batch is durable; a wait that is owed stays owed over any number of crashes until its end is durable.
//! Leaves to others: what is done in grace (`recovery`).

use crate::config::micros_up;
use crate::locks::{LockTable, Tokens};
use crate::requests::{Blocked, Origin};
use crate::server::calls::Calls;
use crate::server::durability::OnDurable;
use crate::server::{Phase, Server};
use crate::sessions::grace::Grace;
use crate::sessions::session::Session;
use crate::sessions::standing::ReclaimState;
use crate::store::{
    self, Counter, FIRST_EPOCH, ID_BITS, Key, NEW_CLUSTER, REALM_BITS, RESTORED, ReadError, Seen, SessionRecord, WAIT_MAX_US,
};
use crate::tenure::Tenure;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::SessionId;
use core::time::Duration;
use log::{info, warn};

/// `Counter::Restored` while a wait without reclaim is owed.
const OWED: u64 = 2;

/// The counters with which the server starts.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    tokens: u64,
    incarnation: u64,
    epoch: u64,
    restored: u64,
    next_object: u64,
    next_realm: u64,
    wait_us: u64,
    clock_s: u64,
}

impl Server {
    /// As the elected server of a group: it may answer until either clock reaches `until`, and counts its grace from `won`, when its lease
    /// of the group was granted: no server before it could answer any more (section 11.10).
    #[must_use]
    pub fn elected(mut self, won: Instant, until: Instant) -> Self {
        //= wire-spec.md#11-10-groups-of-servers
        //# The grace of an elected server MUST begin when its lease of the group was granted, and not before.
        self.started = won;
        self.tenure = Tenure::until(until);
        self
    }

    /// The lease of the group was renewed: the server may answer until either clock reaches `until`. In vain if it was over before.
    pub fn renew_tenure(&mut self, now: Instant, until: Instant) {
        self.step(now, |server| server.tenure = Tenure::until(until));
    }

    /// The lease of the group is over: nothing of this core may reach anybody any more.
    pub(crate) fn lapse(&mut self) {
        if !self.is_over() && !bugs::is(Bug::C3) {
            warn!("{}: its lease of the group is over: it stops answering, and what it knew is dropped", self.who);
            //= wire-spec.md#11-10-groups-of-servers
            //# What serves after a lapse, be it the same server, MUST start as after a crash: with nothing in memory, and a whole grace.
            self.phase = Phase::Lapsed;
        }
    }

    /// Whether the lease of the group was over at some time: another core has to come after this one.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.phase == Phase::Lapsed
    }

    /// Whether it answers nothing any more.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Failed | Phase::Lapsed)
    }

    /// Reads what the server needs to start, or asks the store for it.
    pub(crate) fn boot(&mut self) {
        match self.read_start() {
            Ok(counters) => self.record_start(counters),
            Err(ReadError::NotCached(queries)) => {
                let id = self.tasks.next_id();
                self.suspend(id, Origin::Boot, Blocked::Load(queries));
            }
            Err(ReadError::Failed(status)) => self
                .cannot_start(&format!("the store's counters, sessions or root directory cannot be read: {status}; run `cisternd check`")),
        }
    }

    fn read_start(&mut self) -> Result<Counters, ReadError> {
        let mut counters = Counters::default();
        let mut missing = Vec::new();
        // What is not in memory is asked for together, with the next page of sessions and of ephemeral files.
        let mut need = |read: Result<(), ReadError>| match read {
            Err(ReadError::NotCached(queries)) => {
                missing.extend(queries);
                Ok(())
            }
            read => read,
        };
        let seen = Seen::default();
        let view = self.store.view(&seen);
        let wanted = [
            (Counter::Tokens, &mut counters.tokens),
            (Counter::Incarnation, &mut counters.incarnation),
            (Counter::Epoch, &mut counters.epoch),
            (Counter::Restored, &mut counters.restored),
            (Counter::NextObject, &mut counters.next_object),
            (Counter::Wait, &mut counters.wait_us),
            (Counter::Clock, &mut counters.clock_s),
        ];
        for (counter, value) in wanted {
            need(view.counter(counter).map(|known| *value = known))?;
        }
        if counters.restored == RESTORED {
            need(view.counter(Counter::NextRealm).map(|known| counters.next_realm = known))?;
        }
        need(self.store.know_realms())?;
        need(self.store.know_principals())?;
        need(self.store.know_accounts())?;
        need(self.store.know_invites())?;
        need(self.store.know_sessions())?;
        need(self.store.know_start_keys())?;
        need(self.store.know_ephemerals())?;
        need(self.store.know_leases())?;
        if !missing.is_empty() {
            return Err(ReadError::NotCached(missing));
        }
        // The root directory of a new store is made by the same run that finds it missing, so that comes last.
        self.namespace.boot(&mut self.store.view(&seen), self.wall.at(self.now))?;
        Ok(counters)
    }

    fn cannot_start(&mut self, why: &str) {
        self.phase = Phase::Failed;
        self.failure = Some(String::from(why));
    }

    /// Everything was read: writes what must be durable before the first answer.
    fn record_start(&mut self, counters: Counters) {
        let restored = counters.restored == RESTORED;
        let former = u8::try_from(counters.epoch).ok().map(|epoch| if epoch == 0 { FIRST_EPOCH } else { epoch });
        let Some(epoch) = former.and_then(|epoch| epoch.checked_add(u8::from(restored))) else {
            return self
                .cannot_start("the store was restored too often: its epochs are used up, and tokens could repeat; make a new store");
        };
        let empty = counters.incarnation == 0;
        // A wait that an earlier start has begun, and perhaps not ended, begins again.
        //= wire-spec.md#11-7-restart-and-recovery
        //# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
        let owed = match counters.restored {
            NEW_CLUSTER => false,
            0 => empty && !self.config.new_cluster,
            _ => true,
        };
        self.identity.epoch = epoch;
        self.identity.incarnation = counters.incarnation + 1;
        self.who = format!("server {:.8}/{}", format!("{}", self.identity.store), self.identity.incarnation);
        self.store.keep_realms();
        let principals = self.store.take_principals();
        self.principals.load(principals, |realm| self.store.realm_around(realm));
        self.unite_revoked();
        let invites = self.store.take_invites();
        self.invites.load(invites, counters.clock_s, self.now);
        let former_s = self.principals.iter().filter_map(|(_, record)| record.rotated).map(|rotated| rotated.until_s).max();
        self.invites.need_clock(former_s.unwrap_or_default());
        let mut sessions = self.store.take_sessions();
        // Without a session and without a wait that is owed no lease of before is valid.
        let stored = if owed || !sessions.is_empty() { Duration::from_micros(counters.wait_us.min(WAIT_MAX_US)) } else { Duration::ZERO };
        if restored {
            self.restore(&mut sessions, &counters);
        }
        self.load_start_keys(&sessions);
        self.store.take_leases().into_iter().for_each(|(lease, record)| self.leases.add(lease, record));
        let ephemerals = self.store.take_ephemerals();
        self.load_ephemerals(ephemerals, &sessions.iter().map(|(id, record)| (*id, record.principal)).collect());
        //= wire-spec.md#11-7-restart-and-recovery
        //# The server MUST have increased its incarnation durably before it answers its first datagram.
        if !bugs::is(Bug::M42) {
            self.store.set_counter(Counter::Incarnation, self.identity.incarnation);
        }
        self.store.set_counter(Counter::Epoch, u64::from(epoch));
        self.store.set_counter(Counter::Restored, if owed { OWED } else { 0 });
        //= wire-spec.md#11-1-lease
        //# The server MUST have stored the largest T that it promises before it promises it.
        self.store.set_counter(Counter::Wait, micros_up(stored.max(self.config.wait())));
        self.locks = LockTable::new(self.config.locks, Tokens::new(epoch, if bugs::is(Bug::M34) { 0 } else { counters.tokens }));
        if owed || !sessions.is_empty() {
            let again = bugs::is(Bug::C7) && self.tenure.is_limited() && counters.incarnation > 1;
            let began = if again { Instant::new(0, 0) } else { self.started };
            self.grace = Some(Grace::new(began, &self.config, stored, &sessions, owed));
        }
        if self.tenure.is_limited() {
            self.calls = Calls::to(&sessions);
        }
        for (id, record) in sessions {
            self.sessions.insert(Session::of_before(id, record, self.started));
        }
        self.phase = Phase::Recording;
        let batch = self.store.open_batch();
        self.after_commit(batch, OnDurable::Started);
    }

    /// Takes over the keys by which sessions of before can be resumed, and keeps the one of this start, which is durable before anything is
    /// answered.
    fn load_start_keys(&mut self, sessions: &[(SessionId, SessionRecord)]) {
        let keys = self.store.take_start_keys();
        for start in self.start_keys.load(keys, sessions.iter().map(|(id, record)| (*id, record.start))) {
            self.store.put(Key::StartKey(start), None);
        }
        if let Some(key) = self.start_keys.own() {
            //= docs/sealed.md#resumption
            //# The key of a start MUST be durable before the server answers, and as long as a session of that start can be resumed; it is
            //# deleted in the transaction that ends the last one.
            self.store.put(Key::StartKey(self.identity.incarnation), Some(Bytes::from_owner(store::start_key_to_bytes(key))));
        }
    }

    /// The store is a copy: what happened after it was made is not known, so no session goes on, and every number starts above all that
    /// may have been given out.
    fn restore(&mut self, sessions: &mut Vec<(SessionId, SessionRecord)>, counters: &Counters) {
        // One that was made for a lost one has nothing that could end; it is told of below.
        if counters.next_object != 0 {
            warn!(
                "{}: the store was restored from a copy: its {} sessions end, its epoch is {} from now on, and nothing is granted for {:?} at least",
                self.who,
                sessions.len(),
                self.identity.epoch,
                self.config.wait_for(self.config.longest_lease())
            );
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# A restore MUST end all sessions, raise the store epoch, and wait a grace without reclaim.
        for (id, record) in sessions.drain(..) {
            self.delete_session(id, record.window);
        }
        //= docs/sealed.md#joining-rosters
        //# A restored store MUST have no invites: those of the copy may have been spent or withdrawn since.
        let invites = self.invites.withdraw(|_| true);
        self.delete_invites(&invites);
        let epoch = u64::from(self.identity.epoch);
        self.store.set_counter(Counter::NextObject, counters.next_object.max(epoch << ID_BITS));
        // Principals have rights in realms by their numbers.
        self.store.set_counter(Counter::NextRealm, counters.next_realm.max(epoch << REALM_BITS));
    }

    /// The start is durable: from now on the server answers.
    pub(crate) fn started(&mut self) {
        self.phase = Phase::Serving;
        if let Some(grace) = &mut self.grace {
            grace.serving(self.now);
        }
        self.begin_leases();
        self.calls.begin(self.now);
        info!("{}: serves; lease {:?}, a silent agent's locks are taken after {:?}", self.who, self.config.lease, self.config.wait());
        if let Some(grace) = &self.grace {
            let reclaimable = self.sessions.recorded().filter(|(_, reclaim)| *reclaim == ReclaimState::Open).count();
            info!("{}: in grace {grace}; {reclaimable} sessions of before may reclaim their locks", self.who);
            if self.identity.incarnation == 1 {
                info!("{}: the store is empty; waits for the leases of a server that may have been before", self.who);
            }
        }
    }
}
