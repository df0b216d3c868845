//! Settings that a running server takes up: bounds on load.
//!
//! Decides: which settings may change while sessions are open. Invariant: no law of leases, no size of a table and nothing that an agent
//! was told depends on one of them. Leaves to others: reading settings, and telling which were not taken up (the driver's program).

use crate::config::Config;
use crate::server::Server;
use crate::transport::validation::Rate;
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
        self.step(now, |server| {
            server.config.sessions_max = config.sessions_max;
            server.config.network_sessions_max = config.network_sessions_max;
            server.config.opening_max = config.opening_max;
            server.config.notices_in_flight = config.notices_in_flight;
            server.config.answer_bytes_max = config.answer_bytes_max;
            server.config.freed_per_turn = config.freed_per_turn;
            if server.config.challenges_per_second != config.challenges_per_second {
                server.config.challenges_per_second = config.challenges_per_second;
                server.challenges = challenges(now, config);
            }
            if server.config.hint_interval != config.hint_interval {
                server.config.hint_interval = config.hint_interval;
                server.hints = Rate::new(now, config.hint_interval, 1);
            }
        });
    }
}

/// How often the server answers addresses that have not proven themselves.
pub(crate) fn challenges(now: Instant, config: &Config) -> Rate {
    Rate::new(now, Duration::from_secs(1) / config.challenges_per_second, config.challenges_per_second.div_ceil(100))
}
