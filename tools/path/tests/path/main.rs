//! Allocations on the path of a request, counted by a global allocator that counts: none at the server, none in an answer from cache.
//! And datagrams, counted likewise: what is asked and answered together travels together.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod agent;
mod client;
mod driver;
mod packing;
mod server;
