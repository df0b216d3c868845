//! I1, exclusion by name: whoever locked a file by its path has the file at that path.
//!
//! Decides from the batches that the server hands to its store: no name is taken from an object on which a session has an advisory lock,
//! unless a mutation of that session is in the same batch, or of one that forces. Implements section 11.4.
//! Invariant: a lock that was given back, as far as the server has heard, protects nothing.
//! Leaves to others: what a name names (`truth`), who holds what (`locks`).

use super::case::{Case, Verdict, violated};
use super::{Facts, Family};
use crate::observe::Seen;
use cistern_server::store::{Batch, Key};
use cistern_wire::{LockClass, LockId, Message, ObjectId, SessionId};
use std::collections::BTreeSet;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Sessions that have asked for something by force.
    force: BTreeSet<SessionId>,
}

impl Family for Places {
    fn name(&self) -> &'static str {
        "places"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        if let Some(packet) = case.received_by_server() {
            let forces = |message: &Message<'_>| match message {
                Message::Unlink(unlink) => unlink.force,
                Message::Rename(rename) => rename.force,
                _ => false,
            };
            self.force.extend(packet.messages.iter().any(forces).then(|| packet.session()));
        }
        match case.seen {
            Seen::Persisted { batch } => self.taken(case, facts, batch),
            _ => Ok(()),
        }
    }
}

impl Places {
    fn taken(&self, case: &Case<'_>, facts: &Facts, batch: &Batch) -> Verdict {
        let outcome = |key: &Key| if let Key::Outcome(session, _) = key { Some(*session) } else { None };
        let by: BTreeSet<SessionId> = batch.writes.iter().filter_map(|(key, _)| outcome(key)).collect();
        if by.iter().any(|session| self.force.contains(session)) {
            return Ok(());
        }
        for (key, _) in &batch.writes {
            let Key::Entry(dir, name) = key else { continue };
            let Some(object) = lost(facts, *dir, name) else { continue };
            let lock = LockId { object, class: LockClass::Advisory };
            let living = |session| facts.sessions.get(session).is_some_and(|session| !session.is_over(case.server_now()));
            let mut holders = facts.locks.holders(lock).filter(|hold| living(hold.session) && !by.contains(&hold.session));
            if let Some(hold) = holders.next() {
                let what = format!(
                    "{object} loses its name {:?} in {dir} by {by:?}, while session {} has its advisory lock ({}, generation {})",
                    String::from_utf8_lossy(name),
                    hold.session,
                    hold.mode,
                    hold.generation
                );
                return violated("I1", "name-taken-from-a-holder", what);
            }
        }
        Ok(())
    }
}

/// What a name named before the newest change of it, if it names something else now.
fn lost(facts: &Facts, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
    let [.., before, now] = facts.truth.names(dir, name) else { return None };
    before.object.filter(|object| now.object != Some(*object))
}
