//! Settings that a running server takes up: bounds on load.
//!
//! Decides: which settings may change while sessions are open. Invariant: no law of leases, no size of a table and nothing that an agent
//! was told depends on one of them. Leaves to others: reading settings, and telling which were not taken up (the driver's program).

use crate::config::Config;
use crate::rate::Rate;
use crate::server::Server;
use cistern_link::Instant;
use core::time::Duration;

/// The settings that [`Server::adopt_limits`] takes up, by the names of [`Config::check`].
pub const LIVE: [&str; 8] = [
    "sessions-max",
    "network-sessions-max",
    "opening-max",
    "challenges-per-second",
    "hint-interval",
    "notices-in-flight",
    "answer-bytes-max",
    "freed-per-turn",
];

impl Server {
    /// Takes up the bounds on load of `config`, which has passed [`Config::check`]; everything else stays as it was.
    pub fn adopt_limits(&mut self, now: Instant, config: &Config) {
        self.config.sessions_max = config.sessions_max;
        self.config.network_sessions_max = config.network_sessions_max;
        self.config.opening_max = config.opening_max;
        self.config.notices_in_flight = config.notices_in_flight;
        self.config.answer_bytes_max = config.answer_bytes_max;
        self.config.freed_per_turn = config.freed_per_turn;
        if self.config.challenges_per_second != config.challenges_per_second {
            self.config.challenges_per_second = config.challenges_per_second;
            self.challenges = challenges(now, config);
        }
        if self.config.hint_interval != config.hint_interval {
            self.config.hint_interval = config.hint_interval;
            self.hints = Rate::new(now, config.hint_interval, 1);
        }
    }
}

/// How often the server answers addresses that have not proven themselves.
pub(crate) fn challenges(now: Instant, config: &Config) -> Rate {
    Rate::new(now, Duration::from_secs(1) / config.challenges_per_second, config.challenges_per_second.div_ceil(100))
}
