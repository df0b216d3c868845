//! What can be set of an agent: every period and every bound, in one place, with the relations that they must keep.
//!
//! Decides the defaults. Implements `wire-spec.md` sections 8 and 11.1 (phases). Invariant: no agent is made of a configuration that does not
//! pass [`Config::check`], so no other file checks a setting again; every table of the agent has its bound here. Fractions are parts per
//! million, so that no instant depends on how a float is rounded.

use alloc::format;
use cistern_link::setting::{counts, spans, table};
use cistern_wire::limits::{DATAGRAM_DEFAULT, DATAGRAM_MAX, DATAGRAM_MIN, WINDOW_MAX};
use core::time::Duration;

pub use cistern_link::ConfigError;

/// Where the phases of the lease end, in parts per million of τ (`wire-spec.md` section 11.1); increasing, below 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// End of *valid*: from here on a lease that is worth it is renewed on purpose.
    pub valid_ppm: u32,
    /// End of *renewing*: from here on nothing new starts under the lease.
    pub renewing_ppm: u32,
    /// End of *suspect*: from here on only what is owed to external storage is written.
    pub suspect_ppm: u32,
    /// End of *flush*; the rest up to τ is guard, in which nothing is done.
    pub flush_ppm: u32,
}

impl Default for Phases {
    /// 0.60, 0.80, 0.88 and 0.97 of τ (`wire-spec.md` section 11.1).
    fn default() -> Self {
        Self { valid_ppm: 600_000, renewing_ppm: 800_000, suspect_ppm: 880_000, flush_ppm: 970_000 }
    }
}

/// What an agent does with a lease that nothing has renewed by the end of *valid*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Renews it as long as it holds any lock.
    Eager,
    /// Renews it only while something is in use: a local holder, a wait, a command. Otherwise lets it lapse: what is held stays, and
    /// the next answer of the server makes it usable again.
    Lazy,
    /// Renews it while something is in use or was used lately; otherwise ends the session, and with it all that is held, and goes silent.
    #[default]
    Auto,
}

/// Bounds of an agent's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most objects whose state is kept; each of them needs a cache lock, so the server's bound on locks is one of this, too.
    pub objects: usize,
    /// Most bytes of names, contents and attributes, as the cache counts them.
    pub bytes: usize,
}

impl Default for CacheLimits {
    /// 65,536 objects in 64 MiB: 1 KiB an object on average, small beside what a host has.
    fn default() -> Self {
        Self { objects: 65_536, bytes: 64 << 20 }
    }
}

/// Every period and bound of an agent. Sizes are in bytes, counts are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The lease period that the agent asks for; the server gives what its bounds allow. Zero: what the server gives to whoever asks for
    /// none; else 100 ms to [`Self::lease_max`].
    pub lease: Duration,
    /// Where the phases of the lease end.
    pub phases: Phases,
    /// What happens to the lease of an idle agent.
    pub idle: IdlePolicy,
    /// With [`IdlePolicy::Auto`], how long after its last use what is held counts as worth keeping; at most 1 h.
    pub idle_after: Duration,
    /// Whether the ACK of an ordinary request renews the lease, as that of a keep-alive does. Off, the lease is renewed by keep-alives
    /// alone: the agent takes it to be shorter than the server has to respect it, which is always safe, and costs a keep-alive for
    /// every 0.6 τ, however much else is asked.
    pub opportunistic: bool,
    /// Longest lease that the agent believes in; 100 ms to 1 h. A server that offers a longer one gets no session, so that a false
    /// one can make the agent go on for no longer than this.
    pub lease_max: Duration,
    /// Most requests outstanding that the agent asks for, W; 1 to 4,096. The server may allow fewer.
    pub window: u16,
    /// Largest datagram that the agent takes and makes; 548 to 8,952. The server may allow less.
    pub max_datagram: u16,
    /// How long a command may run before it ends without an answer; 100 ms to 1 day. A queued lock request has its own limit.
    pub give_up_after: Duration,
    /// How long the end of a session is waited for when the agent closes; at most 1 h. After that the server ends it by itself.
    pub close_within: Duration,
    /// Whether the agent tells the server when nothing of a session that it lost can be used any more, so that the session's locks
    /// need not wait for T. Off where users of its locks act on after they were told that the lock is lost or the lease over.
    pub surrender: bool,
    /// Most commands that run at once, waiting lock requests included; 1 to 4,096.
    pub commands_max: usize,
    /// Bounds of the cache; each cached object needs a cache lock.
    pub cache: CacheLimits,
    /// Most objects of which the agent holds an advisory lock or waits for one.
    pub advisory_max: usize,
    /// Most transmissions whose send times are remembered, 24 bytes each; an answer to one that was forgotten renews nothing.
    pub sent_max: usize,
    /// For how long after a datagram the driver looks for the next one before it sleeps: what it burns a core for is the time that
    /// waking takes. Zero to 1 s.
    pub spin: Duration,
}

impl Default for Config {
    /// `give_up_after` is longer than the 12.8 s that a change may wait, with the server's defaults, for an agent that receipts a
    /// demand, does not comply, and is timed out: compliance time, Td' and T.
    fn default() -> Self {
        Self {
            lease: Duration::ZERO,
            phases: Phases::default(),
            idle: IdlePolicy::default(),
            idle_after: Duration::from_secs(30),
            opportunistic: true,
            lease_max: Duration::from_secs(60),
            window: 64,
            max_datagram: DEFAULT_DATAGRAM,
            give_up_after: Duration::from_secs(15),
            close_within: Duration::from_secs(2),
            surrender: true,
            commands_max: 4_096,
            cache: CacheLimits::default(),
            advisory_max: 65_536,
            sent_max: cistern_link::SentLog::DEFAULT_MAX,
            spin: Duration::ZERO,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "1,232 fits")]
const DEFAULT_DATAGRAM: u16 = DATAGRAM_DEFAULT as u16;

/// Shortest lease that an agent asks for or takes: what is shorter would make it send without a pause.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);

impl Config {
    /// Checks every setting and every relation between settings.
    ///
    /// # Errors
    /// The first setting that cannot be used, with what it must keep; whoever wrote the configuration is at fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.lease.is_zero() {
            spans("lease", self.lease, LEASE_MIN, HOUR, "100 ms to lease-max, or 0 for what the server gives")?;
        }
        let Phases { valid_ppm, renewing_ppm, suspect_ppm, flush_ppm } = self.phases;
        counts("phase-valid", valid_ppm, 1, (renewing_ppm.max(1) - 1).into(), "above 0 and below phase-renewing")?;
        counts("phase-renewing", renewing_ppm, 1, (suspect_ppm.max(1) - 1).into(), "below phase-suspect")?;
        counts("phase-suspect", suspect_ppm, 1, (flush_ppm.max(1) - 1).into(), "below phase-flush")?;
        counts("phase-flush", flush_ppm, 1, 999_999, "below 1")?;
        spans("idle-after", self.idle_after, Duration::ZERO, HOUR, "at most 1 h")?;
        spans("lease-max", self.lease_max, Duration::from_millis(100), HOUR, "100 ms to 1 h")?;
        // A server that gave what was asked for would get no session.
        if self.lease > self.lease_max {
            let rule = format!("at most lease-max, which is {:?}: ask for less, or raise that of this agent", self.lease_max);
            return Err(ConfigError { setting: "lease", value: format!("{:?}", self.lease), rule: rule.into() });
        }
        counts("window", self.window, 1, WINDOW_MAX.into(), "1 to 4,096 requests")?;
        counts("max-datagram", self.max_datagram, DATAGRAM_MIN as u64, DATAGRAM_MAX as u64, "548 to 8,952 bytes")?;
        spans("timeout", self.give_up_after, Duration::from_millis(100), DAY, "100 ms to one day")?;
        spans("close-within", self.close_within, Duration::ZERO, HOUR, "at most 1 h")?;
        table("commands-max", self.commands_max, 1, 4_096, "1 to 4,096")?;
        table("cache-objects", self.cache.objects, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        table("cache-bytes", self.cache.bytes, 4_096, usize::MAX, "at least 4,096 bytes")?;
        table("advisory-max", self.advisory_max, 1, COUNT_MAX, "1 to 4,294,967,295")?;
        table("sent-max", self.sent_max, 64, 1 << 24, "64 to 16,777,216")?;
        spans("spin", self.spin, Duration::ZERO, Duration::from_secs(1), "at most 1 s")
    }
}

/// Most entries of any table.
const COUNT_MAX: usize = u32::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn defaults_keep_their_own_relations() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn each_relation_is_checked() {
        let base = Config::default;
        let phases = Phases::default();
        let bad = [
            ("lease", Config { lease: Duration::from_millis(99), ..base() }),
            ("lease", Config { lease: DAY, ..base() }),
            ("lease", Config { lease: Duration::from_secs(61), ..base() }),
            ("phase-valid", Config { phases: Phases { valid_ppm: 800_000, ..phases }, ..base() }),
            ("phase-valid", Config { phases: Phases { valid_ppm: 0, ..phases }, ..base() }),
            ("phase-renewing", Config { phases: Phases { renewing_ppm: 880_000, ..phases }, ..base() }),
            ("phase-suspect", Config { phases: Phases { suspect_ppm: 990_000, ..phases }, ..base() }),
            ("phase-flush", Config { phases: Phases { flush_ppm: 1_000_000, ..phases }, ..base() }),
            ("idle-after", Config { idle_after: DAY, ..base() }),
            ("window", Config { window: 0, ..base() }),
            ("max-datagram", Config { max_datagram: 547, ..base() }),
            ("timeout", Config { give_up_after: Duration::ZERO, ..base() }),
            ("close-within", Config { close_within: DAY, ..base() }),
            ("commands-max", Config { commands_max: 4_097, ..base() }),
            ("cache-objects", Config { cache: CacheLimits { objects: 0, bytes: 1 << 20 }, ..base() }),
            ("cache-bytes", Config { cache: CacheLimits { objects: 1, bytes: 0 }, ..base() }),
            ("advisory-max", Config { advisory_max: 0, ..base() }),
            ("sent-max", Config { sent_max: 1, ..base() }),
            ("spin", Config { spin: HOUR, ..base() }),
        ];
        for (setting, config) in bad {
            assert_eq!(config.check().unwrap_err().setting, setting);
        }
    }

    #[test]
    fn refusal_says_which_setting_its_value_and_what_is_allowed() {
        let error = Config { window: 0, ..Config::default() }.check().unwrap_err();
        assert_eq!(error.to_string(), "window is 0; it must be 1 to 4,096 requests");
    }

    #[test]
    fn lease_that_the_agent_would_not_believe_in_is_refused_with_both_settings() {
        let lease = Duration::from_secs(90);
        let error = Config { lease, ..Config::default() }.check().unwrap_err().to_string();
        assert!(error.starts_with("lease is 90s; it must be at most lease-max, which is 60s"), "{error}");
        assert_eq!(Config { lease, lease_max: lease, ..Config::default() }.check(), Ok(()));
    }
}
