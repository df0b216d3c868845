//! Hosts: what surrounds a core on its machine: its process, its socket, its clocks.
//!
//! Decides what a machine keeps while its process stands still or is gone: a standing process keeps what its socket holds, a dead one
//! nothing. Invariant: a core is given its inputs in the order in which they arrived, with clock readings of its own machine only.
//! Leaves to others: when turns are taken and in which order (`world::turns`), the cores' construction (`agent`, `server`).

mod agent;
mod server;

pub use agent::AgentHost;
pub use server::{ADDRESS, ServerHost, Work};

use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// No time at which anything is planned.
pub const NEVER: u64 = u64::MAX;

/// A process and its socket.
#[derive(Debug)]
pub struct Process {
    /// How often it was started.
    pub starts: u64,
    /// Datagrams that were not taken from the socket: who sent them, and their bytes.
    pub inbox: VecDeque<(SocketAddr, Bytes)>,
    /// Most datagrams that the socket holds.
    pub inbox_max: usize,
    /// When its next turn is planned.
    pub wake: u64,
    /// Whether it was held up in the middle of a turn, and has still to send.
    pub mid_turn: bool,
    /// How many faults make it stand still.
    pub paused: u32,
    /// How many faults keep it from running.
    pub down: u32,
    /// When it died last.
    pub died_at: u64,
}

impl Process {
    /// A process that was never started.
    #[must_use]
    pub const fn new(inbox_max: usize) -> Self {
        Self { starts: 0, inbox: VecDeque::new(), inbox_max, wake: NEVER, mid_turn: false, paused: 0, down: 0, died_at: 0 }
    }

    /// A datagram arrives; false if there is no room for it.
    pub fn arrive(&mut self, from: SocketAddr, bytes: Bytes) -> bool {
        let room = self.inbox.len() < self.inbox_max;
        if room {
            self.inbox.push_back((from, bytes));
        }
        room
    }

    /// Whether it stands still: by a fault, or held up in the middle of a turn.
    #[must_use]
    pub const fn stands(&self) -> bool {
        self.paused > 0 || self.mid_turn
    }

    /// It died, and with it what its socket held.
    pub fn died(&mut self, now: u64) {
        self.inbox.clear();
        self.wake = NEVER;
        self.mid_turn = false;
        self.died_at = now;
    }
}
