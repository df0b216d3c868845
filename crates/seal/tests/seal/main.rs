//! Handshakes, records, generations and cookies, and the vectors that a second implementation can be made from.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod cookies;
mod exchange;
mod generations;
mod handshakes;
mod spec_vectors;
mod vectors;
mod work;
