//! The store on a real disk: what it promises, over every way in which it can end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod copies;
mod crash;
mod damage;
mod kills;
mod promises;
mod room;
mod world;
