//! A queue of items that are worked on one by one, each by one taker at a time.
//!
//! Decides: that an item is a file, whose number, which the server gave it, is its place; that who works on it has the lock on it, so that it is
//! another's when the taker is gone, and is removed only under that lock; and that one taker at a time, the holder of the lock on `.take`, looks
//! for an item and waits for one, so that a new item wakes one.

use super::{make_dir, unique};
use crate::client::{Client, File};
use crate::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::metadata::{DirEntry, FileId, FileType, Version};
use crate::steps::Steps;
use crate::watcher::Watcher;
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::future::{Future, poll_fn};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;

/// Most items in work whose takers' ends are waited for at a time, the oldest first.
const AWAITED_MAX: usize = 256;

/// A queue; made by [`Client::queue`].
///
/// An item that was put is there until a taker says that it is done ([`QueueItem::done`]): it is delivered at least once, in the order in which the items were
/// put as far as takers do not work side by side. A taker that is gone or cut off loses its item when its lease is over, and the item is delivered again. Whoever wants an item at most once says that it
/// is done before the work.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    dir: PathBuf,
}

/// An item that was taken. Dropped before it is [`done`](Self::done), it goes back to its place in the queue.
#[derive(Debug)]
pub struct QueueItem {
    client: Client,
    guard: Guard,
    path: PathBuf,
    version: Version,
    data: Bytes,
}

impl Client {
    /// A queue in a directory of its own, which is made if it is missing.
    #[must_use]
    pub fn queue(&self, dir: impl AsRef<Path>) -> Queue {
        Queue { client: self.clone(), dir: dir.as_ref().to_owned() }
    }
}

impl Queue {
    /// Puts an item at the end; brings its name. At most 1 MiB.
    ///
    /// It is durable when this has ended. After [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) it was put once or not at all.
    pub fn put(&self, data: impl Into<Bytes>) -> Steps<OsString> {
        self.put_named(unique(&self.client), data)
    }

    /// Puts an item under a name, which does not begin with a dot. As long as an item of that name is in the queue it fails with
    /// [`AlreadyExists`](ErrorKind::AlreadyExists): whoever is not sure of a former attempt puts it again so.
    pub fn put_named(&self, name: impl AsRef<OsStr>, data: impl Into<Bytes>) -> Steps<OsString> {
        let (queue, name, data) = (self.clone(), name.as_ref().to_owned(), data.into());
        Steps::new(async move {
            let path = queue.dir.join(&name);
            let put = queue.client.write(&path, data.clone()).if_absent().await;
            match put {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    make_dir(&queue.client, &queue.dir).await?;
                    queue.client.write(&path, data).if_absent().await?;
                }
                put => drop(put?),
            }
            Ok(name)
        })
    }

    /// Takes the first item that nobody works on, and waits for one as long as it takes.
    pub fn take(&self) -> Steps<QueueItem> {
        let queue = self.clone();
        Steps::new(async move {
            // Whoever waits for the first place waits for no item.
            let _first = queue.gate().await?;
            let mut watcher = queue.client.watcher();
            watcher.watch(queue.client.metadata(&queue.dir).await?.id())?;
            loop {
                let (found, busy) = queue.look().await?;
                if let Some(item) = found {
                    return Ok(item);
                }
                if let Some(item) = queue.wait(&watcher, &busy).await? {
                    return Ok(item);
                }
            }
        })
    }

    /// Takes the first item that nobody works on, if there is one.
    pub fn try_take(&self) -> Steps<Option<QueueItem>> {
        let queue = self.clone();
        Steps::new(async move { Ok(queue.look().await?.0) })
    }

    /// The lock that makes its holder the first who waits.
    async fn gate(&self) -> Result<Guard, Error> {
        let path = self.dir.join(".take");
        match self.client.lock(&path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_dir(&self.client, &self.dir).await?;
                self.client.create(&path).await?;
                self.client.lock(&path).await
            }
            gate => gate,
        }
    }

    /// The first item that can be had, or those that others have.
    async fn look(&self) -> Result<(Option<QueueItem>, Vec<DirEntry>), Error> {
        let listed = match self.client.read_dir(&self.dir).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, Vec::new())),
            listed => listed?,
        };
        let is_item = |entry: &DirEntry| entry.file_type == FileType::File && !entry.file_name.as_bytes().starts_with(b".");
        let mut items: Vec<_> = listed.entries.into_iter().filter(is_item).collect();
        // A file has a larger number than those that were made before it.
        items.sort_by_key(|entry| entry.id);
        let mut busy = Vec::new();
        for entry in items {
            match self.file(entry.id).lock().try_once().await {
                Ok(guard) => {
                    if let Some(item) = self.open(&entry, guard).await? {
                        return Ok((Some(item), busy));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Locked => busy.push(entry),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((None, busy))
    }

    fn file(&self, id: FileId) -> File {
        File { client: self.client.clone(), id }
    }

    /// The item whose lock was granted; `None`: somebody else was done with it before.
    async fn open(&self, entry: &DirEntry, guard: Guard) -> Result<Option<QueueItem>, Error> {
        let path = self.dir.join(&entry.file_name);
        match self.client.read(&path).await {
            Ok(contents) if contents.metadata.id() == entry.id => {
                let (version, data) = (contents.metadata.version(), contents.bytes);
                Ok(Some(QueueItem { client: self.client.clone(), guard, path, version, data }))
            }
            Ok(_) => Ok(None),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until an item has come or gone, or one that was in work is given back: that one.
    async fn wait(&self, watcher: &Watcher, busy: &[DirEntry]) -> Result<Option<QueueItem>, Error> {
        let mut calls: Vec<_> = busy.iter().take(AWAITED_MAX).map(|entry| (entry, self.file(entry.id).lock().start())).collect();
        let mut events = watcher.events();
        let given_back = poll_fn(|cx| {
            for (entry, call) in &mut calls {
                if let Poll::Ready(ended) = Pin::new(call).poll(cx) {
                    return Poll::Ready(Some((*entry, ended)));
                }
            }
            events.poll_next(cx).map(|_| None)
        })
        .await;
        match given_back {
            Some((entry, Ok(guard))) => self.open(entry, guard).await,
            Some((_, Err(error))) if !is_gone(&error) => Err(error),
            _ => Ok(None),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

impl QueueItem {
    /// Its contents.
    #[must_use]
    pub const fn data(&self) -> &Bytes {
        &self.data
    }

    /// Its name in the queue.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Its version, for a removal by hand.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The lock on it: valid as long as nobody else can take the item. Its token orders those who have taken it.
    #[must_use]
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The lock alone: who has it removes the item, or gives it back.
    #[must_use]
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Removes it: nobody will take it any more. When the lock was lost it fails with [`StaleGuard`](ErrorKind::StaleGuard), and the item is delivered again.
    pub fn done(self) -> Steps<()> {
        Steps::new(async move {
            let Self { client, guard, path, version, .. } = self;
            client.remove_file(path).even_if_locked().if_version(version).guarded_by(&guard).await
        })
    }
}
