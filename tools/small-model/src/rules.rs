//! The numbers and switches of one exploration: how long a lease is, how fast clocks run, what is built, what is planted.
//!
//! Decides what τ, δ and T are in ticks, and the bounds. A tick of real time is a tick of an agent's clock (the slowest that δ
//! allows) and `server_rate` ticks of the server's (the fastest). With `server_rate = 1 + delta` the bound on clocks is just met,
//! which is the worst case: a slower server only steals later, and it may do that in the model anyhow. Section 11.1 of the spec.
//! Everything else reads these numbers and decides none of them.

use crate::bugs::Bug;
use serde::Serialize;

/// Longest lease period, in ticks, that the state has room for.
pub const TAU_MAX: u8 = 6;

/// What is explored, and within which bounds.
#[derive(Clone, Debug, Serialize)]
pub struct Rules {
    /// Lease period τ, in ticks of an agent's clock; 1 to [`TAU_MAX`].
    pub tau: u8,
    /// δ as a whole number: the server waits τ(1 + δ) ticks of its clock.
    pub delta: u8,
    /// Ticks of the server's clock in one tick of real time. Above `1 + delta` the assumption on clocks is broken.
    pub server_rate: u8,
    /// Lock requests that each agent may make; `None` is any number. Keep-alives and retransmissions are not counted.
    pub requests: Option<u8>,
    /// Ticks of real time explored; `None` is all of time.
    pub horizon: Option<u8>,
    /// Late rescue (section 11.3).
    pub rescue: bool,
    /// Surrender (section 11.3).
    pub surrender: bool,
    /// Last-heard (section 11.3).
    pub last_heard: bool,
    /// Explore one of several schedules that cannot differ in what they break (`canon`, `network`).
    pub reduce: bool,
    /// The deliberate bug in place, if any.
    pub bug: Option<Bug>,
}

impl Rules {
    /// T = τ(1 + δ), in ticks of the server's clock.
    pub fn wait(&self) -> u8 {
        self.tau * (1 + self.delta)
    }

    /// Is this the bug in place?
    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// What an answer that echoes a transmission of this age leaves of the lease, in ticks, when it arrives.
    pub fn credit(&self, age: u8) -> u8 {
        if self.has(Bug::LeaseFromReceipt) { self.tau } else { self.tau.saturating_sub(age) }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            tau: 2,
            delta: 1,
            server_rate: 2,
            requests: None,
            horizon: None,
            rescue: false,
            surrender: false,
            last_heard: false,
            reduce: true,
            bug: None,
        }
    }
}
