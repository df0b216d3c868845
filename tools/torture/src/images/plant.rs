//! Falsified records: what a faulty store would have done. Each must be found out, or the images show nothing.
//!
//! Decides which faults there are. Leaves to others: finding them.

use super::disk::{Naming, Node, Step, Thing};
use super::replay::Replay;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    /// Journals are never synced.
    JournalSync,
    /// What is in a transaction is promised before its sync.
    EarlyPromise,
    /// Tables are never synced.
    TableSync,
    /// Lists of tables are never synced.
    ListSync,
    /// Directories are never synced.
    NameSync,
    /// Journals are removed before what is in them is in tables.
    EarlyRemoval,
}

impl Plant {
    pub(super) const ALL: [Self; 6] =
        [Self::JournalSync, Self::EarlyPromise, Self::TableSync, Self::ListSync, Self::NameSync, Self::EarlyRemoval];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::JournalSync => "journals never synced",
            Self::EarlyPromise => "promises before the sync",
            Self::TableSync => "tables never synced",
            Self::ListSync => "lists of tables never synced",
            Self::NameSync => "directories never synced",
            Self::EarlyRemoval => "journals removed before they are in tables",
        }
    }

    /// What would have been recorded, and the steps between which it shows.
    pub(super) fn falsify(self, replay: &Replay) -> (Vec<Step>, (usize, usize)) {
        let lost = |node: Node| match self {
            Self::JournalSync => is_journal(&replay.names[node]),
            Self::TableSync => replay.names[node].contains("/tables/"),
            Self::ListSync => is_list(&replay.names[node]),
            Self::NameSync => matches!(replay.disk.things[node], Thing::Directory(_)),
            Self::EarlyPromise | Self::EarlyRemoval => false,
        };
        let mut steps = Vec::with_capacity(replay.steps.len());
        // The last one may be that of the transaction after: the promise is made by another thread.
        let (mut last_syncs, mut last_journal, mut focus) = ((0, 0), 0, None);
        for step in &replay.steps {
            match step {
                Step::Sync(node, _) if lost(*node) => continue,
                Step::Sync(node, _) if is_journal(&replay.names[*node]) => last_syncs = (last_syncs.1, steps.len()),
                Step::Promise(_) if self == Self::EarlyPromise => {
                    steps.insert(last_syncs.0, step.clone());
                    continue;
                }
                Step::Name(_, Naming::Add(name, _)) if is_journal(name) => last_journal = steps.len() + 1,
                Step::Name(_, Naming::Remove(name)) if self == Self::EarlyRemoval && is_journal(name) => {
                    focus.get_or_insert((last_journal, steps.len()));
                    steps.insert(last_journal, step.clone());
                    continue;
                }
                _ => {}
            }
            steps.push(step.clone());
        }
        let all = (0, steps.len());
        (steps, focus.unwrap_or(all))
    }
}

/// Whether it is a journal.
pub(super) fn is_journal(name: &str) -> bool {
    name.ends_with(".jnl")
}

/// Whether it is a list of tables.
pub(super) fn is_list(name: &str) -> bool {
    name.rsplit('/').next().and_then(|name| name.strip_prefix('v')).is_some_and(|number| number.parse::<u64>().is_ok())
}
