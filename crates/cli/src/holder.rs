//! Who has a lock: what a person is told beside "in use", and what the holder is told when its file's place has changed.
//!
//! Decides: the words. Whether a path still names the locked file is asked from the agent's cache now and then: the server asks the cache
//! back before it moves a directory, so only a look after such a change, or after others in these directories, costs messages. An agent
//! that has nothing cached (with a lease of its own that is longer than the server's) looks less often: each of its looks costs them.
//! Leaves to others: refusing (the server), the command under a lock (`lock`).

use crate::backend::Backend;
use crate::local::{Failure, Request, Response};
use crate::show;
use crate::text::Text;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// Time between two looks at the path of a lock; where nothing is cached it is a quarter of the lease period, if that is longer.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// Adds who holds the lock, and what to do, to a failure because of a lock on one of `paths`; another failure stays as it is.
pub(crate) fn named(backend: &mut Backend, failure: Failure, paths: &[&Text], force: &str) -> Failure {
    if failure.code != "EBUSY" {
        return failure;
    }
    let mut holder = None;
    for path in paths {
        if let Ok(Response::Locks(rows)) = backend.call(Request::Locks { path: Some((*path).clone()) }) {
            holder = holder.or(rows.into_iter().find(|row| row.state == "holds").map(|row| (*path, row)));
        }
    }
    let Some((path, row)) = holder else { return failure };
    let message = format!("{}: {path} is locked ({}) by {} for {}{force}", failure.message, row.mode, row.label, show::span(row.since_ms),);
    Failure { message, ..failure }
}

/// A watch on the path of a lock: a warning, as long as the value lives, when the path comes to name another object than the locked one.
pub(crate) struct PlaceWatch {
    ended: Arc<AtomicBool>,
}

impl PlaceWatch {
    /// Watches by this agent. Without it the lock is as good, so that a failure to begin is only logged.
    pub(crate) fn begin(agent: Result<Backend, Failure>, path: &Text, object: u64) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (path, over) = (path.clone(), Arc::clone(&ended));
        let begun = agent.and_then(|agent| {
            // It is not waited for at the end: a look may last as long as the server is silent.
            let thread = Builder::new().name("cistern-place".to_owned()).spawn(move || look(agent, &path, object, &over));
            thread.map_err(|e| Failure::failed(format!("no thread to be had: {e}")))
        });
        if let Err(failure) = begun {
            log::warn!("the path of the lock is not watched: {}", failure.message);
        }
        Self { ended }
    }
}

impl Drop for PlaceWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

fn look(mut agent: Backend, path: &Text, object: u64, over: &AtomicBool) {
    let (mut was_there, mut period) = (true, LOOK_PERIOD);
    while !over.load(Ordering::Acquire) {
        std::thread::sleep(period);
        let there = match agent.stat(path, true) {
            Ok(found) => found.object == object,
            Err(failure) if ["ENOENT", "ENOTDIR"].contains(&failure.code.as_str()) => false,
            // Where an agent has many connections, one that was idle gives way; as long as it has the lock it is there.
            Err(failure) if ["BUSY", "NO_AGENT"].contains(&failure.code.as_str()) => {
                agent = agent.again().unwrap_or(agent);
                continue;
            }
            // Not known; the lease says what the lock is worth.
            Err(_) => continue,
        };
        if was_there && !there {
            let words = moved(&mut agent, object);
            if !over.load(Ordering::Acquire) {
                show::error("cistern", &Failure::new("MOVED", 0, format!("warning: {path}: {words}")));
            }
        }
        was_there = there;
        period = match agent.call(Request::Lease) {
            Ok(Response::Lease(lease)) if lease.cache_locks == 0 => LOOK_PERIOD.max(Duration::from_millis(lease.lease_ms / 4)),
            _ => LOOK_PERIOD,
        };
    }
}

/// What a holder is told whose path names its file no more.
fn moved(agent: &mut Backend, object: u64) -> String {
    let rows = match agent.call(Request::Locks { path: None }) {
        Ok(Response::Locks(rows)) => rows,
        _ => Vec::new(),
    };
    let now = match rows.into_iter().find(|row| row.object == object && !row.path.0.is_empty()) {
        Some(row) => format!("the locked file is at {} now", row.path),
        None => "the locked file is not there any more".to_owned(),
    };
    format!("{now}: this lock goes on, and keeps nobody from locking another file at the old path")
}
