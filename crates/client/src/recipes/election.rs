//! A leader among candidates, whom others can see.
//!
//! Decides: that the holder of the lock on `lock` leads, and that it says who it is in `leader`, an ephemeral file which it alone can make:
//! each change of it is made under the lock's token. So one who was overtaken cannot name itself, and who is gone is not named for long.

use super::{make_dir, unless};
use crate::client::Client;
use crate::error::{Cause, Error, ErrorKind};
use crate::guard::Guard;
use crate::metadata::{FileId, Token, Version};
use crate::steps::{Steps, block_on};
use crate::watcher::{WatchEvent, Watcher};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// An election; made by [`Client::election`].
///
/// At most one leader acts at a time as far as it checks its guard ([`Guard::is_valid`]) or its token is checked ([`Guard::token`]): one that is cut off
/// is overtaken when its lease is over. Candidates lead in the order in which they asked.
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    dir: PathBuf,
}

/// The leader's part of an election. Dropping it ends the leadership.
#[derive(Debug)]
pub struct Leadership {
    client: Client,
    guard: Guard,
    file: PathBuf,
    named: Version,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it says of itself.
    pub value: Bytes,
    /// Its fencing token: larger than that of every earlier leader.
    pub token: Token,
    /// The file in which it says so; it goes with the leader.
    pub file: FileId,
}

/// What an observer learns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// Somebody else leads now, or says something else.
    Leader(Leader),
    /// Nobody leads.
    Nobody,
    /// It is not known any more: the observer is cut off, and its lease is over.
    Unknown,
}

/// Follows an election; made by [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    election: Election,
    watcher: Watcher,
    directory: FileId,
    told: Option<Observed>,
    /// Something has changed that could not be read.
    unread: bool,
}

impl Client {
    /// An election in a directory of its own, which is made if it is missing.
    #[must_use]
    pub fn election(&self, dir: impl AsRef<Path>) -> Election {
        Election { client: self.clone(), dir: dir.as_ref().to_owned() }
    }
}

impl Election {
    /// Leads as soon as nobody before it does. `value` is what others are told: an address, a name.
    pub fn campaign(&self, value: impl Into<Bytes>) -> Steps<Leadership> {
        let (election, value) = (self.clone(), value.into());
        Steps::new(async move { election.lead(value).await })
    }

    /// Who leads, as far as the server knows; `None`: nobody.
    pub fn leader(&self) -> Steps<Option<Leader>> {
        let election = self.clone();
        Steps::new(async move { election.look().await })
    }

    /// Follows who leads. The first that it learns is who leads now.
    pub fn observe(&self) -> Steps<Observer> {
        let election = self.clone();
        Steps::new(async move {
            let directory = election.client.metadata(&election.dir).await?.id();
            let mut watcher = election.client.watcher();
            watcher.watch(directory)?;
            Ok(Observer { election, watcher, directory, told: None, unread: false })
        })
    }

    async fn lead(self, value: Bytes) -> Result<Leadership, Error> {
        let (lock, file) = (self.dir.join("lock"), self.dir.join("leader"));
        loop {
            let guard = match self.client.lock(&lock).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    make_dir(&self.client, &self.dir).await?;
                    self.client.create(&lock).await?;
                    continue;
                }
                guard => guard?,
            };
            match self.name(&guard, &file, &value).await {
                Ok(named) => return Ok(Leadership { client: self.client, guard, file, named }),
                // It was overtaken meanwhile, and nobody was told of it.
                Err(error) if error.kind() == ErrorKind::StaleGuard => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the file that names the leader.
    async fn name(&self, guard: &Guard, file: &Path, value: &Bytes) -> Result<Version, Error> {
        // That of the leader before is there where its session has not ended, or is just ending.
        let removed = self.client.remove_file(file).even_if_locked().guarded_by(guard).await;
        unless(removed, ErrorKind::NotFound)?;
        self.client.create_new(file).ephemeral().contents(named(guard.token(), value)).guarded_by(guard).await
    }

    async fn look(&self) -> Result<Option<Leader>, Error> {
        match self.client.read(self.dir.join("leader")).await {
            Ok(contents) => {
                let (token, value) = split(&contents.bytes);
                Ok(Some(Leader { value, token, file: contents.metadata.id() }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The contents of the file: the token in decimal, a space, the value.
fn named(token: Token, value: &Bytes) -> Bytes {
    [token.to_string().as_bytes(), b" ", value].concat().into()
}

fn split(contents: &Bytes) -> (Token, Bytes) {
    let at = contents.iter().position(|byte| *byte == b' ').unwrap_or(contents.len());
    let token = std::str::from_utf8(&contents[..at]).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (Token(token), contents.slice((at + 1).min(contents.len())..))
}

impl Leadership {
    /// The lock: valid as long as this one leads. Its token is what others can check.
    #[must_use]
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Says something else to those who ask who leads.
    ///
    /// # Errors
    /// The operation fails with [`StaleGuard`](ErrorKind::StaleGuard) or [`VersionChanged`](ErrorKind::VersionChanged) when it leads no more.
    pub async fn proclaim(&mut self, value: impl Into<Bytes>) -> Result<(), Error> {
        let contents = named(self.guard.token(), &value.into());
        self.named = self.client.write(&self.file, contents).if_version(self.named).guarded_by(&self.guard).await?.version();
        Ok(())
    }

    /// As [`proclaim`](Self::proclaim), blocking.
    ///
    /// # Errors
    /// As there.
    pub fn proclaim_and_wait(&mut self, value: impl Into<Bytes>) -> Result<(), Error> {
        block_on(self.proclaim(value))
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        // Where this does not arrive the next leader removes it, or the end of the session.
        self.client.remove_file(&self.file).even_if_locked().if_version(self.named).start().detach();
    }
}

impl Observer {
    /// What is different from what it has told last.
    ///
    /// # Errors
    /// Why that cannot be read; it can be asked again.
    pub async fn next(&mut self) -> Result<Observed, Error> {
        loop {
            let event = if self.unread { None } else { Some(self.watcher.events().next().await.ok_or(Cause::Closed)?) };
            let now = match event {
                Some(WatchEvent::Uncertain(_)) => Observed::Unknown,
                Some(WatchEvent::Removed(file)) if file == self.directory => {
                    let (path, why) = (self.election.dir.clone(), "the directory of the election was removed".to_owned());
                    return Err(Cause::Recipe { path, why }.into());
                }
                event => {
                    if let Some(WatchEvent::Removed(file)) = event {
                        self.watcher.unwatch(file);
                    }
                    self.look().await?
                }
            };
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
        }
    }

    async fn look(&mut self) -> Result<Observed, Error> {
        self.unread = true;
        let now = match self.election.look().await? {
            Some(leader) => {
                // Whoever watches it learns soon that its maker is gone.
                self.watcher.watch(leader.file)?;
                Observed::Leader(leader)
            }
            None => Observed::Nobody,
        };
        self.unread = false;
        Ok(now)
    }

    /// As [`next`](Self::next), blocking.
    ///
    /// # Errors
    /// As there.
    pub fn wait_next(&mut self) -> Result<Observed, Error> {
        block_on(self.next())
    }
}
