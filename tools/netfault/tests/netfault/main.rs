//! The fault proxy: its language, the fates that it decides, real sockets, the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod fates;
mod language;
mod passing;
mod program;
