//! What an operator can set: every period and every bound of the server, in one place, with the relations that they must keep.
//!
//! Decides the defaults and T = τ(1+δ)+ε, in integers, rounded up (section 11.1). Place in the walk: read everywhere, changed nowhere.
//! Implements `wire-spec.md` section 8. Invariant: a server is only made from a configuration that passed [`Config::check`], so no
//! other file checks a setting again; every table of the server has its bound here.
//! Leaves to others: how settings are written in files and on command lines (`cistern-cli`), limits of the format (`wire::limits`).

#[cfg(test)]
mod tests;

use cistern_link::DeliveryClock;
use cistern_link::bugs::{self, Bug};
use cistern_link::rtt::RTO_MIN;
use cistern_link::setting::{counts, spans, table};
use cistern_wire::limits::{CONTENT_MAX, DATAGRAM_DEFAULT, DATAGRAM_MAX, DATAGRAM_MIN, WINDOW_MAX};
use core::time::Duration;

pub use cistern_link::ConfigError;

/// Shortest lease period: below it the 20 ms of a loop's scheduling would be a fifth of the lease.
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// Longest lease period: a server waits as long for a silent agent, and again after a restart.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);
/// Shortest lease period that a session may ask for, if nothing else is set.
const LEASE_MIN_DEFAULT: Duration = Duration::from_millis(500);
/// Longest lease period that a session may ask for, if nothing else is set.
const LEASE_MAX_DEFAULT: Duration = Duration::from_secs(60);
/// A delivery timeout that follows a lease period is not shorter: room for a notice, two repetitions and the stutter of a busy machine.
const DELIVERY_TIMEOUT_LEAST: Duration = Duration::from_millis(100);
/// Smallest δ, in parts per million: oscillators drift by up to 100 ppm, three tenths of a percent leave room for bad ones (section 11.1).
pub const DELTA_PPM_MIN: u32 = 3_000;
/// Largest δ, in parts per million: with 1 the server waits twice the lease.
pub const DELTA_PPM_MAX: u32 = 1_000_000;
/// Retransmission timeouts are at most this part of τ, so that a healed network is noticed long before a lease ends (section 11.2).
pub const RTO_CAP_DIVISOR: u32 = 8;
/// Least number of transmissions, each given its RTO, before a delivery counts as failed (section 11.3).
pub const TRANSMISSIONS_MIN: u32 = 3;

/// Every period and bound of a server. Sizes are in bytes, counts are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Lease period τ of a session that asks for none; 100 ms to 1 h. A session with a longer one is *long*: its locks are recorded, and
    /// it caches nothing.
    pub lease: Duration,
    /// Shortest lease period that a session may ask for; 100 ms to `lease`.
    pub lease_min: Duration,
    /// Longest lease period that a session may ask for; `lease` to 1 h. A volatile server gives none above `lease`, whatever this says.
    pub lease_max: Duration,
    /// Bound δ on the relative rate of any two clocks, in parts per million; 3,000 to 1,000,000.
    pub delta_ppm: u32,
    /// Slack ε that lengthens the server's timer; at least 1 µs (granularity and read error of a clock), below τ.
    pub epsilon: Duration,
    /// Delivery timeout Td, from the first transmission of a notice; at least three RTO floors, at most 1 h.
    pub delivery_timeout: Duration,
    /// How long a session that somebody waits for may go without an unreceipted notice; at least the RTO floor.
    pub probe_period: Duration,
    /// How long an agent may keep a cache lock after it receipted the demand for it; at least Td.
    pub compliance_time: Duration,
    /// Whether an agent's word that nothing of its failed session can be used again ends the wait (section 11.3). On: without it everybody
    /// waits out T for locks that nobody can use, and an agent that lies could as well ignore the end of its lease. A session in good
    /// standing may always be closed, by the same promise.
    pub surrender: bool,
    /// Whether an empty store is the beginning of a new cluster, so that no agent can hold a lock of it and nothing is waited for (section
    /// 11.7).
    pub new_cluster: bool,
    /// Whether a failed session is taken back when what was missing comes before any NACK was produced and before the wait is over
    /// (section 11.3). On: nothing was lost, nobody was given anything, and a later failure starts a full new wait.
    pub rescue: bool,
    /// Whether the wait of a failed session counts from the last answer that could have renewed its lease (section 11.3), so that the locks
    /// of an agent long silent are free at once. Off: it is as safe as the wait from D as long as all clocks keep going, but an agent whose
    /// machine was paused longer than the others believed in then has no T after D in which a NACK could reach it (section 11.1).
    pub last_heard: bool,
    /// Whether it is kept, in memory and to the minute, when each principal was heard last, for operators. Nothing else depends on it.
    pub last_seen: bool,
    /// Whether the store forgets everything when the server ends; told to agents in WELCOME.
    pub volatile: bool,
    /// Which principal the sessions are of that are opened without a key, by its number; 0: none, and they may do everything.
    pub plain_principal: u32,

    /// Most requests that an agent may have outstanding, W; 1 to 4,096.
    pub window: u16,
    /// Largest datagram sent or taken; 548 to 8,952.
    pub max_datagram: u16,
    /// Most sessions, those that are ending included.
    pub sessions_max: u32,
    /// Most sessions opened from one network (an IPv4 /24, an IPv6 /64), this computer's own addresses excepted; in the sealed mode those of
    /// one key instead.
    pub network_sessions_max: u32,
    /// Most half-open sessions; the oldest gives way to a new one.
    pub opening_max: u32,
    /// Most ended sessions remembered, so that their agents are told so; the oldest is forgotten first.
    pub tombstones_max: u32,
    /// How long a cookie is good for; at least 1 s.
    pub cookie_life: Duration,
    /// Most CHALLENGE and REFUSE answers in a second (a hundredth of it at once).
    pub challenges_per_second: u32,
    /// Least time between two hints to senders without a session, on average: some may be sent at once (section 11.6).
    pub hint_interval: Duration,
    /// Most notices of one session that are unreceipted on the way; the others wait their turn.
    pub notices_in_flight: u16,
    /// Most bytes of answers of one session that wait to be sent; an answer beyond it is shed and counted (section 11.2).
    pub answer_bytes_max: u32,
    /// Most locks of an ended session that are freed in one turn of the loop.
    pub freed_per_turn: u32,

    /// Bounds of the lock table.
    pub locks: LockLimits,
    /// Bounds of watches and of ephemeral files.
    pub presence: PresenceLimits,
    /// Bounds of the namespace.
    pub namespace: NamespaceLimits,
    /// Bounds of contents that are staged.
    pub stages: StageLimits,
    /// Bounds of what is kept in memory of the store.
    pub cache: CacheLimits,
    /// How requests share the server.
    pub work: WorkLimits,
    /// For how long after a datagram the driver looks for the next one before it sleeps: what it burns a core for is the time that
    /// waking takes. Zero to 1 s.
    pub spin: Duration,
}

impl Default for Config {
    /// For agents on one network and a server of ordinary size; `docs/settings.md` has them all.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(2),
            lease_min: LEASE_MIN_DEFAULT,
            lease_max: LEASE_MAX_DEFAULT,
            delta_ppm: 10_000,
            epsilon: Duration::from_millis(1),
            delivery_timeout: Duration::from_millis(500),
            probe_period: Duration::from_secs(1),
            compliance_time: Duration::from_secs(4),
            new_cluster: false,
            surrender: true,
            rescue: true,
            last_heard: false,
            last_seen: false,
            volatile: false,
            plain_principal: 0,
            window: 64,
            max_datagram: DEFAULT_DATAGRAM,
            sessions_max: 10_000,
            // Half of them: a site has room for 20 agents on each of 254 hosts, and who has one network leaves room for all others.
            network_sessions_max: 5_000,
            opening_max: 4_096,
            tombstones_max: 1_024,
            cookie_life: Duration::from_secs(10),
            challenges_per_second: 20_000,
            hint_interval: Duration::from_millis(20),
            notices_in_flight: 64,
            answer_bytes_max: 1 << 20,
            freed_per_turn: 1_024,
            locks: LockLimits::default(),
            presence: PresenceLimits::default(),
            namespace: NamespaceLimits::default(),
            stages: StageLimits::default(),
            cache: CacheLimits::default(),
            work: WorkLimits::default(),
            spin: Duration::ZERO,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "1,232 fits")]
const DEFAULT_DATAGRAM: u16 = DATAGRAM_DEFAULT as u16;

impl Config {
    /// The defaults for another lease period: what is a part of τ follows it (the probe period is τ/2, the compliance time 2τ, Td is τ/4 but not below 100 ms),
    /// and so do the bounds of what a session may ask for.
    #[must_use]
    pub fn for_lease(lease: Duration) -> Self {
        let delivery_timeout = (lease / 4).max(DELIVERY_TIMEOUT_LEAST);
        let stages = StageLimits::default();
        Self {
            lease,
            lease_min: LEASE_MIN_DEFAULT.min(lease),
            lease_max: LEASE_MAX_DEFAULT.max(lease),
            delivery_timeout,
            probe_period: (lease / 2).max(RTO_MIN),
            compliance_time: (lease * 2).max(delivery_timeout),
            stages: StageLimits { idle: stages.idle.max(lease), ..stages },
            ..Self::default()
        }
    }

    /// T = τ(1+δ)+ε: how long the server waits from D before it takes a session's locks; rounded up to whole nanoseconds.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.wait_for(self.lease)
    }

    /// The lease period of a session that asks for `asked`; zero: for none.
    #[must_use]
    pub fn lease_for(&self, asked: Duration) -> Duration {
        if asked.is_zero() { self.lease } else { asked.clamp(self.lease_min, self.longest_lease()) }
    }

    /// The longest lease period that this server gives. What is granted under one above its own has to be recorded first, so a volatile
    /// server gives none such.
    #[must_use]
    pub const fn longest_lease(&self) -> Duration {
        if self.volatile { self.lease } else { self.lease_max }
    }

    /// Td of a session with this lease period: shorter in the same ratio where that is shorter than the server's own, so that failover is,
    /// too, but not below 100 ms. It is not longer for a longer one: nobody is served by a failure found late.
    #[must_use]
    pub fn delivery_timeout_for(&self, lease: Duration) -> Duration {
        if lease >= self.lease {
            return self.delivery_timeout;
        }
        self.scaled(self.delivery_timeout, lease).max(DELIVERY_TIMEOUT_LEAST.min(self.delivery_timeout))
    }

    /// The probe period of a session with this lease period: longer or shorter in the same ratio as that.
    #[must_use]
    pub fn probe_period_for(&self, lease: Duration) -> Duration {
        self.scaled(self.probe_period, lease).max(RTO_MIN.min(self.probe_period))
    }

    /// A period of the server's own lease, for another one.
    fn scaled(&self, period: Duration, lease: Duration) -> Duration {
        let ns = period.as_nanos() * lease.as_nanos() / self.lease.as_nanos().max(1);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// T for another lease period: that of a session, or one that an earlier start of the server has promised.
    #[must_use]
    pub fn wait_for(&self, lease: Duration) -> Duration {
        if bugs::is(Bug::M3) {
            return lease;
        } else if bugs::is(Bug::M3b) {
            return lease + self.epsilon;
        }
        let lease_ns = lease.as_nanos();
        //= wire-spec.md#11-1-lease
        //# The server MUST round T up, and add an ε no smaller than the granularity and the read error of its clock.
        let margin_ns = (lease_ns * u128::from(self.delta_ppm)).div_ceil(1_000_000);
        // LEASE_MAX twice is below 2^43 ns, so this conversion never saturates for a checked configuration.
        let wait = Duration::from_nanos(u64::try_from(lease_ns + margin_ns).unwrap_or(u64::MAX)) + self.epsilon;
        if bugs::is(Bug::M3c) {
            return wait - Duration::from_nanos(u64::from(wait.subsec_nanos()) % 10_000_000);
        }
        wait
    }

    /// Td', the longest time from the first transmission of a notice to its receipt or to D: Td, or three RTOs where they are longer.
    #[must_use]
    pub fn failure_found_within(&self) -> Duration {
        self.failure_found_within_for(self.lease)
    }

    /// As [`Self::failure_found_within`], for a session with this lease period.
    #[must_use]
    pub fn failure_found_within_for(&self, lease: Duration) -> Duration {
        self.delivery_timeout_for(lease).max(self.rto_cap_for(lease) * TRANSMISSIONS_MIN)
    }

    /// How long others wait at most, on this server's clock, for an advisory lock of a session with this lease period, from when they
    /// asked for it, if its holder is gone: the probe period, until the failure is found, and T. A commit comes on top.
    #[must_use]
    pub fn failover_bound(&self, lease: Duration) -> Duration {
        self.probe_period_for(lease) + self.failure_found_within_for(lease) + self.wait_for(lease)
    }

    /// How long somebody waits at most, on this server's clock, behind holders that do not give back what is asked of them: the first, and
    /// `queue` others that fail each in its turn. Those that fail at the same time count as one, for waiters are probed, too (section
    /// 11.4).
    ///
    /// max(probe period, compliance time) + Td + T for each; `wire-spec.md` section 11.3 derives it. Commits of the store come on top, and
    /// the grace of a restart; an advisory lock that a living user holds is not bounded by anything but its user, or an operator.
    #[must_use]
    pub fn liveness_bound(&self, queue: u32) -> Duration {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The bound on the wait behind holders that have failed MUST be documented as a formula.
        let each = self.probe_period.max(self.compliance_time) + self.failure_found_within() + self.wait();
        each.saturating_mul(queue.saturating_add(1))
    }

    /// How long after the death of its owner an ephemeral file that somebody watches is removed, at most, on this server's clock: the
    /// probe period, until the failure of the probe is found, and T. The commits of the end and of the removal come on top, and whatever
    /// cache lock is in the removal's way.
    #[must_use]
    pub fn detection_bound(&self) -> Duration {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The time in which a dead owner is noticed MUST be documented as the sum of probe period, Td, T, ε and a commit.
        self.failover_bound(self.lease)
    }

    /// The longest retransmission timeout, τ/8.
    #[must_use]
    pub fn rto_cap(&self) -> Duration {
        self.lease / RTO_CAP_DIVISOR
    }

    /// The longest retransmission timeout of the notices of a session with this lease period: an eighth of it, but not longer than for the
    /// server's own, for those who wait gain nothing by it.
    #[must_use]
    pub fn rto_cap_for(&self, lease: Duration) -> Duration {
        lease.min(self.lease) / RTO_CAP_DIVISOR
    }

    /// The shortest retransmission timeout: 20 ms, or τ/8 where that is shorter.
    #[must_use]
    pub fn rto_floor(&self) -> Duration {
        RTO_MIN.min(self.rto_cap())
    }

    /// How much of one stall counts as listening: no longer than the shortest RTO, so that a stall never passes for one.
    pub(crate) fn loop_slack(&self) -> Duration {
        DeliveryClock::DEFAULT_SLACK.min(self.rto_floor())
    }

    /// Checks every setting and every relation between settings.
    ///
    /// # Errors
    /// The first setting that cannot be used, with what it must keep; whoever wrote the configuration is at fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_lease()?;
        self.check_delivery()?;
        self.check_sessions()?;
        self.check_tables()
    }

    fn check_lease(&self) -> Result<(), ConfigError> {
        spans("lease", self.lease, LEASE_MIN, LEASE_MAX, "100 ms to 1 h")?;
        spans("lease-min", self.lease_min, LEASE_MIN, self.lease, "100 ms to the lease period")?;
        spans("lease-max", self.lease_max, self.lease, LEASE_MAX, "the lease period to 1 h")?;
        counts("delta", self.delta_ppm, DELTA_PPM_MIN.into(), DELTA_PPM_MAX.into(), "0.003 to 1 (3,000 to 1,000,000 ppm)")?;
        spans("epsilon", self.epsilon, Duration::from_micros(1), self.lease, "1 µs to the lease period")
    }

    fn check_delivery(&self) -> Result<(), ConfigError> {
        let three = self.rto_floor() * TRANSMISSIONS_MIN;
        let rule = "three retransmission timeouts (60 ms, or 3/8 of a lease below 160 ms) to 1 h";
        spans("delivery-timeout", self.delivery_timeout, three, LEASE_MAX, rule)?;
        spans("probe-period", self.probe_period, self.rto_floor(), LEASE_MAX, "20 ms (1/8 of a lease below 160 ms) to 1 h")?;
        let rule = "the delivery timeout to one day";
        spans("compliance-time", self.compliance_time, self.delivery_timeout, Duration::from_secs(86_400), rule)
    }

    fn check_sessions(&self) -> Result<(), ConfigError> {
        counts("window", self.window, 1, WINDOW_MAX.into(), "1 to 4,096 requests")?;
        let (least, most) = (DATAGRAM_MIN as u64, DATAGRAM_MAX as u64);
        counts("max-datagram", u64::from(self.max_datagram), least, most, "548 to 8,952 bytes")?;
        counts("sessions-max", self.sessions_max, 1, 1 << 24, "1 to 16,777,216")?;
        counts("network-sessions-max", self.network_sessions_max, 1, 1 << 24, "1 to 16,777,216")?;
        counts("opening-max", self.opening_max, 1, 1 << 24, "1 to 16,777,216")?;
        counts("tombstones-max", self.tombstones_max, 1, 1 << 24, "1 to 16,777,216")?;
        spans("cookie-life", self.cookie_life, Duration::from_secs(1), LEASE_MAX, "1 s to 1 h")?;
        counts("challenges-per-second", self.challenges_per_second, 1, 1_000_000_000, "1 to 1,000,000,000")?;
        spans("hint-interval", self.hint_interval, Duration::from_millis(1), LEASE_MAX, "1 ms to 1 h")?;
        counts("notices-in-flight", u32::from(self.notices_in_flight), 1, 4_096, "1 to 4,096")?;
        let rule = "one datagram (8,952) to 1 GiB";
        counts("answer-bytes-max", u64::from(self.answer_bytes_max), most, 1 << 30, rule)?;
        counts("freed-per-turn", self.freed_per_turn, 1, u32::MAX.into(), "at least 1")
    }

    fn check_tables(&self) -> Result<(), ConfigError> {
        let LockLimits { locks_max, locks_per_session, waiters_per_object, waiters_per_session, .. } = self.locks;
        table("locks-max", locks_max, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        table("locks-per-session", locks_per_session, 1, locks_max, "1 to locks-max")?;
        table("waiters-per-object", waiters_per_object, 1, COUNT_MAX, "at least 1")?;
        table("waiters-per-session", waiters_per_session, 1, COUNT_MAX, "at least 1")?;
        table("mutations-per-object", self.locks.mutations_per_object, 1, COUNT_MAX, "at least 1")?;
        table("demands-outstanding", self.locks.demands_outstanding, 1, COUNT_MAX, "at least 1")?;
        counts("token-run", self.locks.run, 1, 1 << 20, "1 to 1,048,576 tokens")?;
        let PresenceLimits { watches_max, watches_per_session, ephemerals_max, ephemerals_per_session, leases_max } = self.presence;
        table("watches-max", watches_max, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        table("watches-per-session", watches_per_session, 1, watches_max, "1 to watches-max")?;
        table("ephemerals-max", ephemerals_max, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        table("ephemerals-per-session", ephemerals_per_session, 1, ephemerals_max, "1 to ephemerals-max")?;
        table("named-leases-max", leases_max, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        counts("objects-max", self.namespace.objects_max, 1, u64::MAX, "at least 1")?;
        table("stages-per-session", self.stages.stages_per_session, 1, 4_096, "1 to 4,096")?;
        let (each, all) = (self.stages.bytes_per_session, self.stages.bytes_total);
        table("stage-bytes-per-session", each, CONTENT_MAX, all, "1 MiB (one file's contents) to stage-bytes-total")?;
        spans("stage-idle", self.stages.idle, self.lease, Duration::from_secs(86_400), "the lease period to one day")?;
        table("cache-bytes", self.cache.bytes_max, 8 << 20, usize::MAX, "at least 8 MiB")?;
        let rule = "1 µs to 100 ms";
        spans("work-slice", self.work.slice, Duration::from_micros(1), Duration::from_millis(100), rule)?;
        table("queued-bytes-max", self.work.queued_bytes, 1 << 10, usize::MAX, "at least 1 KiB")?;
        spans("spin", self.spin, Duration::ZERO, Duration::from_secs(1), "at most 1 s")
    }
}

/// Most entries of any table.
const COUNT_MAX: usize = u32::MAX as usize;

/// A span in microseconds, rounded up.
pub(crate) fn micros_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Bounds of the lock table. One that is reached is answered LIMITED, or by an answer without a grant; nothing is forgotten to meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLimits {
    /// Most locks held, of both classes, by all sessions together; below 2^32 - 1.
    pub locks_max: usize,
    /// Most locks held by one session.
    pub locks_per_session: usize,
    /// Most lock requests that wait for one object.
    pub waiters_per_object: usize,
    /// Most lock requests of one session that wait.
    pub waiters_per_session: usize,
    /// Most mutations that wait for one object.
    pub mutations_per_object: usize,
    /// Most demands of cache locks sent and not complied with; further ones wait. Advisory locks may be in use for long and do not
    /// count.
    pub demands_outstanding: usize,
    /// Tokens in the run of an advisory grant; at least 1.
    pub run: u32,
    /// A cache lock demanded sooner than this after its grant was hardly of use (section 11.4).
    pub hot_below: Duration,
    /// For how long an object gets no cache locks when that happened twice in a row; doubled each further time, six times at most.
    pub cooling: Duration,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self {
            locks_max: 1_000_000,
            locks_per_session: 100_000,
            waiters_per_object: 64,
            waiters_per_session: 256,
            mutations_per_object: 1_024,
            demands_outstanding: 4_096,
            run: 1_024,
            // A few round trips: a lock that lives shorter spares its agent less than its demand costs.
            hot_below: Duration::from_millis(50),
            cooling: Duration::from_millis(10),
        }
    }
}

/// Bounds of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Most objects.
    pub objects_max: u64,
    /// Most bytes of contents: the sum of the sizes of files and symbolic links, and of the values of extended attributes.
    pub bytes_max: u64,
    /// Most names of a file, and most subdirectories of a directory.
    pub links_max: u32,
    /// Most realms within that of the tree.
    pub realms_max: usize,
}

impl Default for NamespaceLimits {
    /// 10,000,000 objects, 64 GiB, 65,000 links, 10,000 realms.
    fn default() -> Self {
        Self { objects_max: 10_000_000, bytes_max: 64 << 30, links_max: 65_000, realms_max: 10_000 }
    }
}

/// Bounds of staged contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLimits {
    /// Most bytes staged by one session; at least the largest contents of a file.
    pub bytes_per_session: usize,
    /// Most bytes staged by all sessions; at least `bytes_per_session`.
    pub bytes_total: usize,
    /// Most stages of one session.
    pub stages_per_session: usize,
    /// For how long a stage is kept after its last piece.
    pub idle: Duration,
}

impl Default for StageLimits {
    /// 4 MiB and 8 stages a session, 256 MiB in all, 30 s: four files of the largest size in the making per agent, for 64 agents at once.
    fn default() -> Self {
        Self { bytes_per_session: 4 * CONTENT_MAX, bytes_total: 256 * CONTENT_MAX, stages_per_session: 8, idle: Duration::from_secs(30) }
    }
}

/// Bounds of watches, of ephemeral files and of named leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceLimits {
    /// Most watches of all sessions together.
    pub watches_max: usize,
    /// Most watches of one session.
    pub watches_per_session: usize,
    /// Most ephemeral files.
    pub ephemerals_max: usize,
    /// Most ephemeral files of one session, or of one named lease, its own among them.
    pub ephemerals_per_session: usize,
    /// Most named leases.
    pub leases_max: usize,
}

impl Default for PresenceLimits {
    /// 1,000,000 watches, 4,096 a session; 100,000 ephemeral files, 1,024 a session or lease; 50,000 named leases.
    fn default() -> Self {
        Self {
            watches_max: 1_000_000,
            watches_per_session: 4_096,
            ephemerals_max: 100_000,
            ephemerals_per_session: 1_024,
            leases_max: 50_000,
        }
    }
}

/// Bounds of what is kept in memory of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most bytes kept, at least 8 MiB: what the largest operations need at once fits several times. Values that are not durable
    /// yet are kept whatever the bound says.
    pub bytes_max: usize,
}

impl Default for CacheLimits {
    /// 1 GiB.
    fn default() -> Self {
        Self { bytes_max: 1 << 30 }
    }
}

/// How requests share the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkLimits {
    /// For how long requests are executed, as they are charged, before the socket is looked at again; 1 µs to 100 ms. A tenth of it is what one
    /// owner may take before others have their turns.
    pub slice: Duration,
    /// Most bytes of requests that wait for their turn.
    pub queued_bytes: usize,
}

impl Default for WorkLimits {
    /// 1 ms: a full batch of small requests is executed as it comes, and a keep-alive behind them is answered long before anybody's
    /// retransmission timeout. 64 MiB.
    fn default() -> Self {
        Self { slice: Duration::from_millis(1), queued_bytes: 64 << 20 }
    }
}
