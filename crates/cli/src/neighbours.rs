//! The locks that the programs of one agent hold, so that the programs of an agent are to each other as to programs of other agents.
//!
//! Decides: that a name is not taken from a file that another program of the same agent has locked, unless forced (section 11.4). The
//! server cannot tell these programs apart: to it their locks are of one session. A lock that is granted while such a change is on its way
//! is as one that was granted after it: its holder is told that the file is not at its path.
//! Leaves to others: locks of other agents (the server), who the holder is (`holder`).

use crate::execute::{EXIT_FAILED, Waits};
use crate::local::{Failure, Item, Request, Rule};
use crate::text::Text;
use cistern_client::{Client, FileId, Guard, LockState};
use cistern_wire::Status;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The locks of all programs of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours(Arc<Mutex<Vec<Weak<Guard>>>>);

impl Neighbours {
    /// Takes note of a lock as long as its guard lives.
    pub(crate) fn add(&self, guard: &Arc<Guard>) {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|guard| guard.strong_count() > 0);
        guards.push(Arc::downgrade(guard));
    }

    /// Whether a program whose locks are `own` would take a name from a file that another one has locked; which of the paths that is.
    fn lock_at<'p, W: Waits>(&self, client: &Client, waits: &mut W, own: &[Arc<Guard>], paths: &[&'p Text]) -> Option<&'p Text> {
        // Upgraded here and looked at without the mutex: giving a lock back and looking at one ask the agent.
        let guards = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let others: Vec<_> =
            guards.iter().filter_map(Weak::upgrade).filter(|guard| own.iter().all(|own| !Arc::ptr_eq(own, guard))).collect();
        if others.is_empty() {
            return None;
        }
        let locked = |file: FileId| others.iter().any(|guard| guard.file() == file && guard.state() != LockState::Lost);
        // What cannot be looked at the change will fail by, too.
        paths.iter().find(|path| waits.wait(client.symlink_metadata(path.as_os())).is_ok_and(|there| locked(there.id()))).copied()
    }

    /// Refuses a change that the server would refuse to another agent for the locks of this one's other programs.
    pub(crate) fn check<W: Waits>(&self, client: &Client, waits: &mut W, own: &[Arc<Guard>], request: &Request) -> Result<(), Failure> {
        let busy = |path: &Text| Failure::status(path, Status::EBUSY);
        match request {
            Request::Unlink { path, force: false } | Request::Rmdir { path } => self.lock_at(client, waits, own, &[path]).map(busy),
            Request::Rename { from, to, rule, force: false } => self.lock_at(client, waits, own, &taken(from, to, *rule)).map(busy),
            Request::Batch { items, .. } => {
                let mut refused = |item: &Item| match item {
                    Item::Unlink { path, force: false } | Item::Rmdir { path } => self.lock_at(client, waits, own, &[path]).is_some(),
                    Item::Rename { from, to, rule, force: false } => self.lock_at(client, waits, own, &taken(from, to, *rule)).is_some(),
                    _ => false,
                };
                let item = items.iter().position(&mut refused).and_then(|item| u16::try_from(item).ok());
                item.map(|item| {
                    let message = format!("the batch: item {} of the batch: {}; nothing was changed", item + 1, Status::EBUSY);
                    Failure { item: Some(item), ..Failure::new(Status::EBUSY.name(), EXIT_FAILED, message) }
                })
            }
            _ => None,
        }
        .map_or(Ok(()), Err)
    }
}

/// The paths of a rename from which it takes what is there.
fn taken<'p>(from: &'p Text, to: &'p Text, rule: Rule) -> Vec<&'p Text> {
    match rule {
        Rule::NoReplace => vec![from],
        Rule::Replace | Rule::Exchange => vec![from, to],
    }
}
