//! What local users are told beside the ends of their commands: holders of the lease that covers their locks, watchers of changes.

mod holders;
mod watches;

pub(crate) use holders::HoldersTold;
pub(crate) use watches::{WatchEffect, Watches};
