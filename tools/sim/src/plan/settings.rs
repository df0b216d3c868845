//! Settings of the cores as a plan has them, and the configurations that they stand for.
//!
//! Decides which settings of server and agent a run varies; all others keep their defaults. Invariant: what is drawn passes the
//! cores' own checks, which tests of `plan` insist on.
//! Leaves to others: the values (`draw`), their meaning (the cores).

use cistern_agent::config::{IdlePolicy, Phases};
use cistern_seal::session::Limits;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The server's settings, in microseconds, bytes and counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is documented at the setting of the same name of the server")]
pub struct ServerSettings {
    pub lease_us: u64,
    pub lease_min_us: u64,
    pub lease_max_us: u64,
    pub delta_ppm: u32,
    pub epsilon_us: u64,
    pub delivery_timeout_us: u64,
    pub probe_period_us: u64,
    pub compliance_time_us: u64,
    pub surrender: bool,
    pub rescue: bool,
    pub last_heard: bool,
    pub new_cluster: bool,
    pub window: u16,
    pub max_datagram: u16,
    pub sessions_max: u32,
    pub opening_max: u32,
    pub tombstones_max: u32,
    pub notices_in_flight: u16,
    pub freed_per_turn: u32,
    pub hint_interval_us: u64,
    pub locks_max: usize,
    pub locks_per_session: usize,
    pub waiters_per_object: usize,
    pub waiters_per_session: usize,
    pub mutations_per_object: usize,
    pub demands_outstanding: usize,
    pub token_run: u32,
    pub objects_max: u64,
    pub work_slice_us: u64,
    pub queued_bytes: usize,
}

/// What bounds the use of a key in a sealed run, in counts and microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is documented at the limit of the same name")]
pub struct SealedSettings {
    pub packets: u64,
    pub failed_soft: u64,
    pub failed: u64,
    pub age_us: u64,
    pub apart_us: u64,
    pub old_kept_us: u64,
}

impl Default for SealedSettings {
    /// The bounds of the specification: no run reaches them.
    fn default() -> Self {
        let Limits { packets, failed_soft, failed, age, apart, old_kept } = Limits::DEFAULT;
        let us = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self { packets, failed_soft, failed, age_us: us(age), apart_us: us(apart), old_kept_us: us(old_kept) }
    }
}

impl SealedSettings {
    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        let us = Duration::from_micros;
        let (age, apart, old_kept) = (us(self.age_us), us(self.apart_us), us(self.old_kept_us));
        Limits { packets: self.packets, failed_soft: self.failed_soft, failed: self.failed, age, apart, old_kept }
    }
}

impl ServerSettings {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> cistern_server::Config {
        let us = Duration::from_micros;
        let mut config = cistern_server::Config::for_lease(us(self.lease_us));
        (config.lease_min, config.lease_max) = (us(self.lease_min_us), us(self.lease_max_us));
        config.delta_ppm = self.delta_ppm;
        config.epsilon = us(self.epsilon_us);
        config.delivery_timeout = us(self.delivery_timeout_us);
        config.probe_period = us(self.probe_period_us);
        config.compliance_time = us(self.compliance_time_us);
        config.surrender = self.surrender;
        config.rescue = self.rescue;
        config.last_heard = self.last_heard;
        config.new_cluster = self.new_cluster;
        config.window = self.window;
        config.max_datagram = self.max_datagram;
        config.sessions_max = self.sessions_max;
        config.opening_max = self.opening_max;
        config.tombstones_max = self.tombstones_max;
        config.notices_in_flight = self.notices_in_flight;
        config.freed_per_turn = self.freed_per_turn;
        config.hint_interval = us(self.hint_interval_us);
        config.locks.locks_max = self.locks_max;
        config.locks.locks_per_session = self.locks_per_session;
        config.locks.waiters_per_object = self.waiters_per_object;
        config.locks.waiters_per_session = self.waiters_per_session;
        config.locks.mutations_per_object = self.mutations_per_object;
        config.locks.demands_outstanding = self.demands_outstanding;
        config.locks.run = self.token_run;
        config.namespace.objects_max = self.objects_max;
        config.work.slice = us(self.work_slice_us);
        config.work.queued_bytes = self.queued_bytes;
        config
    }

    /// T, in nanoseconds.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        nanos(self.config().wait())
    }

    /// T of the longest lease that an agent may ask for, in nanoseconds.
    #[must_use]
    pub fn longest_wait_ns(&self) -> u64 {
        let config = self.config();
        nanos(config.wait_for(config.longest_lease()))
    }

    /// The longest probe period of a session, in nanoseconds.
    #[must_use]
    pub fn longest_probe_ns(&self) -> u64 {
        let config = self.config();
        nanos(config.probe_period_for(config.longest_lease()))
    }

    /// τ, in nanoseconds.
    #[must_use]
    pub const fn lease_ns(&self) -> u64 {
        self.lease_us * 1_000
    }
}

/// An agent's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is documented at the setting of the same name of the agent")]
pub struct AgentSettings {
    pub lease_us: u64,
    pub idle: Idle,
    pub idle_after_us: u64,
    pub opportunistic: bool,
    pub window: u16,
    pub max_datagram: u16,
    pub give_up_after_us: u64,
    pub close_within_us: u64,
    pub surrender: bool,
    pub commands_max: usize,
    pub cache_objects: usize,
    pub cache_bytes: usize,
    pub advisory_max: usize,
    pub sent_max: usize,
    pub valid_ppm: u32,
}

/// What an agent does with a lease that nothing renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is documented at the agent's policy of the same name")]
pub enum Idle {
    Eager,
    Lazy,
    Auto,
}

impl AgentSettings {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> cistern_agent::config::Config {
        let us = Duration::from_micros;
        cistern_agent::config::Config {
            lease: us(self.lease_us),
            phases: Phases { valid_ppm: self.valid_ppm, ..Phases::default() },
            idle: match self.idle {
                Idle::Eager => IdlePolicy::Eager,
                Idle::Lazy => IdlePolicy::Lazy,
                Idle::Auto => IdlePolicy::Auto,
            },
            idle_after: us(self.idle_after_us),
            opportunistic: self.opportunistic,
            lease_max: Duration::from_secs(3_600),
            window: self.window,
            max_datagram: self.max_datagram,
            give_up_after: us(self.give_up_after_us),
            close_within: us(self.close_within_us),
            surrender: self.surrender,
            commands_max: self.commands_max,
            cache: cistern_agent::CacheLimits { objects: self.cache_objects, bytes: self.cache_bytes },
            advisory_max: self.advisory_max,
            sent_max: self.sent_max,
            // Nobody sleeps here.
            spin: Duration::ZERO,
        }
    }
}

/// A span in whole nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
