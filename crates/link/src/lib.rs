//! What the client agent and the metadata server both need to speak over a network that loses, repeats,
//! delays and reorders, and to keep one lease by clocks that nobody adjusts.
//!
//! Decides nothing about sessions, locks or names: every file here is one small mechanism (a window, a
//! cache, an estimate, a queue) that `cistern-agent` and `cistern-server` put together. No sockets, no
//! clocks, no random source: time is an argument, randomness is a seed, and `no_std` makes the compiler
//! keep that rule.
//!
//! On the walk of a datagram this crate stands between decoding and dispatch on the way in (fresh,
//! duplicate, stale; executed before or not), and between the reply and encoding on the way out (window,
//! echo, packet number, send time).
//!
//! | file | question it answers | used by |
//! |---|---|---|
//! | [`time`] | is the lease over, has the server waited | both |
//! | [`machine`] | what does a driver turn, in which order | both, drivers |
//! | [`rng`] | what is random | both |
//! | [`packets`] | which number goes out, when was it sent | both; the log is the agent's |
//! | [`replay`] | has this packet arrived before | both |
//! | [`nonces`] | which requests are awaited | agent |
//! | [`reply_cache`] | was this request executed, what was the reply | server |
//! | [`index`] | where is one of millions kept | server |
//! | [`slab`] | where do millions of values of one size stand | server |
//! | [`reply_buffers`] | where are replies kept | server |
//! | [`rtt`] | how long to wait before asking again | both |
//! | [`congestion`] | how many may be unanswered | both |
//! | [`timers`] | which deadline is due, when to wake | both |
//! | [`delivery_clock`] | how long has this side listened in vain | server |
//! | [`bugs`] | which deliberate bug is on: none, outside of the simulator | both |

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod bugs;
pub mod congestion;
pub mod delivery_clock;
pub mod index;
pub mod machine;
pub mod nonces;
pub mod packets;
pub mod rate;
pub mod replay;
pub mod reply_buffers;
pub mod reply_cache;
pub mod rng;
pub mod rtt;
pub mod setting;
pub mod slab;
pub mod time;
pub mod timers;

pub use congestion::Window;
pub use delivery_clock::DeliveryClock;
pub use index::Index;
pub use machine::{Machine, Path};
pub use nonces::Nonces;
pub use packets::{FIRST_PACKET_MAX, PACKET_MAX, PacketCounter, SentLog, first_packet, is_first_packet};
pub use rate::Rate;
pub use replay::{Freshness, REPLAY_WINDOW, ReplayWindow};
pub use reply_buffers::{Kept, ReplyBuffers};
pub use reply_cache::{Admission, Fate, ReplyCache, Stored};
pub use rng::Rng;
pub use rtt::RoundTrip;
pub use setting::ConfigError;
pub use slab::Slab;
pub use time::Instant;
pub use timers::{Question, TimerQueue};
