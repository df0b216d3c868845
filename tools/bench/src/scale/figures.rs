//! The figures of `scale`: what each part found.
//!
//! Decides their names, which are those in JSON, and their units. Place: made by the parts in processes of their own, read and printed by
//! `scale`.

use serde::{Deserialize, Serialize};

/// Requests and memory with tables of one size.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) sessions: usize,
    pub(super) locks: usize,
    /// Memory of a session that has only been opened, and the most while they were opened.
    pub(super) session_bytes: u64,
    pub(super) session_bytes_peak: u64,
    /// Memory of a session whose agent has asked something.
    pub(super) session_bytes_asked: u64,
    /// Memory of a lock, and the most while they were taken.
    pub(super) lock_bytes: u64,
    pub(super) lock_bytes_peak: u64,
    /// CPU of a GETATTR, in nanoseconds, and how many times that with small tables.
    pub(super) getattr_ns: f64,
    pub(super) getattr_ratio: f64,
    /// CPU of a LOCK or RELEASE.
    pub(super) lock_ns: f64,
    pub(super) lock_ratio: f64,
    /// CPU of the longest turn while locks were taken, 64 in a turn.
    pub(super) longest_turn_filling_us: f64,
    /// Whether the core wants to be woken while all agents are silent, and its timers then.
    pub(super) idle_wakes: bool,
    pub(super) idle_timers: usize,
}

/// The theft of many locks of one session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steal {
    pub(super) locks: usize,
    /// CPU from the end of its lease to the last lock freed, without what others asked meanwhile, in milliseconds.
    pub(super) cpu_ms: f64,
    /// Turns of the core in that time, and the longest, in microseconds of CPU.
    pub(super) turns: usize,
    pub(super) longest_turn_us: f64,
    /// The longest turn without a theft, with the same requests.
    pub(super) longest_turn_before_us: f64,
    /// Requests of others in that time, all answered in the turn in which they came.
    pub(super) others_answered: usize,
    /// In which turn those had theirs who waited for the first and the last lock that was taken.
    pub(super) first_waiter_turn: usize,
    pub(super) last_waiter_turn: usize,
}

/// One way to find a session among many.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Find {
    pub(super) way: String,
    pub(super) sessions: usize,
    /// CPU of a look-up, in nanoseconds, and how many times that of the server's way.
    pub(super) ns: f64,
    pub(super) ratio: f64,
    /// Memory of a session beside the session itself.
    pub(super) bytes: u64,
    /// How long it took to take in the one that took longest: a table that grew.
    pub(super) slowest_insert_us: f64,
}

/// An agent with very many locks in use.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) locks: usize,
    /// Memory of a lock and its one local user at the agent.
    pub(super) lock_bytes: u64,
    /// CPU of the longest call while they were taken, 1,024 under way at a time.
    pub(super) longest_call_taking_us: f64,
    /// Their lease ends, is renewed after that, is another session's after a restart of the server, and is lost with the session.
    pub(super) ended: Telling,
    pub(super) revived: Telling,
    pub(super) reclaimed: Telling,
    pub(super) lost: Telling,
}

/// What it takes until all local users have been told something.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Telling {
    /// CPU of the longest call.
    pub(super) longest_call_us: f64,
    /// Turns of the agent's loop.
    pub(super) turns: usize,
}

/// The middle of some figures.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}
