//! What a sans-I/O protocol machine needs from the world: UDP sockets, the two lease clocks, a seed, and the mio event loop that turns it.
//!
//! Decides when each call of the [`Machine`](cistern_link::Machine) contract is made, and nothing about the protocol: a datagram enters in
//! [`UdpPort`], is handed to the machine in `turn`, and what the machine wants to send leaves by `tx_batch`. The server and the client
//! agent run on the same loop: the server owns its machine and adds its store and its control socket as [`Services`]; the agent shares its
//! machine with the application's threads and is woken by a [`Handle`].

pub mod address;
pub mod clock;
pub mod control;
pub mod entropy;
pub mod event_loop;
mod log_queue;
mod log_repeats;
mod overflow;
mod receive_pool;
mod seal_workers;
pub mod services;
pub mod socket;
mod sources;
mod stamps;
pub mod stats;
pub mod tap;
mod turn;
mod tx_batch;

pub use address::{Address, AddressError, DEFAULT_PORT};
/// Files for their owner alone.
pub use cistern_capture::private;
/// The tap that writes a capture file.
pub use cistern_capture::{Recorded, Recorder};
pub use clock::{Clock, ClockError};
pub use control::{ClientError, ConnectionId, ControlClient, ControlError, ControlHandler, ControlLimits, ControlServer, Response};
pub use entropy::{EntropyError, seed};
pub use event_loop::{Ended, EventLoop, Handle, LoopError, LoopOptions, Owned, Owner, Poisoned};
pub use log_queue::LogQueue;
pub use log_repeats::{AUDIT, LogRepeats};
/// What [`Services`] register their sources with.
pub use mio::{Registry, Token};
pub use seal_workers::SealWorkers;
pub use services::{NoServices, Services};
pub use socket::{OpenError, PortOptions, UdpPort};
pub use sources::Sources;
pub use stamps::stamp;
pub use stats::{Counts, Stats};
pub use tap::Tap;
