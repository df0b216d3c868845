//! What a command under a lock can rely on, shown with real processes.
//!
//! `run-probe` plays the process that holds the lock; `world` starts it and finds what is left of its tree. Claims
//! about time compare instants on the lease's clocks that the probe wrote down beforehand, with seconds to spare; none
//! is about speed. Every process is ended by its own number.

mod ending;
mod killing;
mod signals;
mod terminal;
mod world;
