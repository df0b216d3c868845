//! Watches as applications hold them.
//!
//! Decides: what a watcher is told, and that one which does not look keeps only the newest event of each kind for each file.

use crate::error::Error;
use crate::events::{Event, Events, Mailbox};
use crate::hub::Inner;
use crate::metadata::{FileId, Version};
use cistern_agent::api::{self, WatchId};
use cistern_wire::ObjectId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a watcher is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The file has this version, and every change from now on is told as long as nothing else is said. Whoever knows another version
    /// looks again: while nothing was certain it has changed.
    Current(Version),
    /// It has changed, and has this version now.
    Changed(Version),
    /// Changes may be missed from now on: the lease is over, or the session. The agent goes on trying.
    Uncertain(FileId),
    /// It is gone; nothing more is told of it.
    Removed(FileId),
}

impl WatchEvent {
    /// Which file.
    #[must_use]
    pub const fn file(&self) -> FileId {
        match self {
            Self::Current(version) | Self::Changed(version) => version.file,
            Self::Uncertain(file) | Self::Removed(file) => *file,
        }
    }

    pub(crate) fn of(object: ObjectId, what: api::WatchEvent) -> Self {
        let file = FileId::of(object);
        match what {
            api::WatchEvent::Certain { version } => Self::Current(Version::of(object, version)),
            api::WatchEvent::Changed { version } => Self::Changed(Version::of(object, version)),
            api::WatchEvent::Uncertain => Self::Uncertain(file),
            api::WatchEvent::Gone => Self::Removed(file),
        }
    }
}

impl Event for WatchEvent {
    fn replaces(self, older: Self) -> bool {
        self.file() == older.file() && std::mem::discriminant(&self) == std::mem::discriminant(&older)
    }

    fn is_last(self) -> bool {
        matches!(self, Self::Removed(_))
    }
}

/// Watches any number of files. Dropping it ends its watches.
///
/// The first event of a file is [`WatchEvent::Current`]. As long as nothing is said after that, nothing has changed: the agent renews its
/// lease while there are watches, and says [`WatchEvent::Uncertain`] when that is over. A change is told by the version that the file has
/// then, and not by what has changed: look again. A watch of a directory tells of its names, not of what happens in its files.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<Inner>,
    mailbox: Arc<Mailbox<WatchEvent>>,
    watches: BTreeMap<FileId, WatchId>,
}

impl Watcher {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, mailbox: Arc::new(Mailbox::new(0)), watches: BTreeMap::new() }
    }

    /// Watches one more file from now on. One that is watched already stays so.
    ///
    /// # Errors
    /// [`Overloaded`](crate::ErrorKind::Overloaded) at the agent's bound. That there is no such file is told as [`WatchEvent::Removed`].
    pub fn watch(&mut self, file: FileId) -> Result<(), Error> {
        let known = self.watches.get(&file).copied();
        let watch = self.inner.watch(file, known, &self.mailbox)?;
        self.watches.insert(file, watch);
        Ok(())
    }

    /// Watches a file no more; events of it that were not looked at are gone.
    pub fn unwatch(&mut self, file: FileId) {
        if let Some(watch) = self.watches.remove(&file)
            && let Some(is_source) = self.inner.unwatch(watch)
        {
            self.mailbox.remove_source(is_source, |event| event.file() == file);
        }
    }

    /// What becomes of the files. It ends when all of them are gone. In a forked child nothing is certain.
    #[must_use]
    pub fn events(&self) -> Events<'_, WatchEvent> {
        let in_child = self.watches.keys().next().map(|file| WatchEvent::Uncertain(*file));
        Events::new(&self.inner.home, &self.mailbox, in_child)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for (_, watch) in std::mem::take(&mut self.watches) {
            self.inner.unwatch(watch);
        }
    }
}
