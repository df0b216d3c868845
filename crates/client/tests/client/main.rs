//! The library over a real server in this process: calls that are waited for and awaited, locks and their events, what is dropped
//! half done, and the end.

mod awaiting;
mod calls;
mod ends;
mod locks;
mod tasks;
mod world;
