//! The library over a real server in this process: calls that are waited for and awaited, locks and their events, what is dropped
//! half done, and the end.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod awaiting;
mod calls;
mod ends;
mod forked;
mod locks;
mod recipes;
mod tasks;
mod watches;
mod world;
