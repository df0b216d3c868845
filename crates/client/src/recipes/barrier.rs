//! A meeting point of a fixed number of participants, who enter together and leave together.
//!
//! Decides: that a participant is an ephemeral file, named by the round and itself, so that one that is gone is not counted for long; that the file
//! `round` says which round is on and with whom it has begun, and changes once for all who wait for it; and that a round is over when none of its
//! participants is left, which those who wait find out by watching one of these each. Before it has begun the first participant watches all, and
//! every other one that which came before it: so nobody is counted who is gone, and a participant that comes wakes one.

use super::{make_dir, unique, unless};
use crate::client::Client;
use crate::error::{Cause, Error, ErrorKind};
use crate::metadata::{DirEntry, FileId, Version};
use crate::steps::Steps;
use crate::watcher::{WatchEvent, Watcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A barrier; made by [`Client::barrier`].
///
/// A round begins when so many participants have entered, and is over when all of them have left or are gone. Who comes meanwhile waits for the next.
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    dir: PathBuf,
    parties: usize,
}

/// A participant in a round that has begun. Dropping it leaves without waiting for the others.
#[derive(Debug)]
pub struct Entered {
    barrier: Barrier,
    round: u64,
    me: Option<Me>,
}

/// A participant's file.
#[derive(Debug)]
struct Me {
    client: Client,
    path: PathBuf,
    version: Version,
    /// It was removed, or went with its session.
    is_gone: bool,
}

/// What the file `round` says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    number: u64,
    /// The names of those with whom it has begun; empty: it has not.
    with: Vec<String>,
    /// Of the file, in which the next state is written only if this one is still there.
    version: Version,
}

impl Client {
    /// A barrier in a directory of its own, which is made if it is missing. All who use it name the same number of participants.
    #[must_use]
    pub fn barrier(&self, dir: impl AsRef<Path>, parties: usize) -> Barrier {
        Barrier { client: self.clone(), dir: dir.as_ref().to_owned(), parties }
    }
}

impl Barrier {
    /// Waits until all participants of a round are there. Dropped before that, it is none of them.
    pub fn enter(&self) -> Steps<Entered> {
        let barrier = self.clone();
        Steps::new(async move { barrier.join().await })
    }

    async fn join(self) -> Result<Entered, Error> {
        if self.parties == 0 {
            let why = "a barrier has one participant or more".to_owned();
            return Err(Cause::Recipe { path: self.dir, why }.into());
        }
        loop {
            let now = self.round().await?;
            if !now.with.is_empty() {
                // As if it had been in that round: so those who come late are not all woken by the same one.
                let place = format!("{}.{}", now.number, self.client.identity());
                self.wait_for_end(now.number, place.as_bytes()).await?;
                continue;
            }
            let me = self.make_me(now.number).await?;
            let mut watcher = self.watch(now.version.file)?;
            loop {
                let then = self.round().await?;
                if then.number == now.number && then.with.contains(&me.name()) {
                    return Ok(Entered { round: now.number, me: Some(me), barrier: self });
                }
                // Too late for this round: its file was not there when those who are in it were counted.
                if then.number != now.number || !then.with.is_empty() {
                    break;
                }
                let (dir, mut participants) = self.participants(now.number).await?;
                participants.sort_by_key(|entry| entry.id);
                // Else the session was lost, and with it the file.
                let Some(place) = participants.iter().position(|entry| entry.id == me.version.file) else { break };
                if participants.len() >= self.parties {
                    let with = participants.iter().take(self.parties).map(|entry| entry.file_name.to_string_lossy().into_owned());
                    self.write(&then, now.number, &with.collect::<Vec<_>>()).await?;
                    continue;
                }
                if place == 0 {
                    watcher.watch(dir)?;
                }
                for other in if place == 0 { &participants[1..] } else { &participants[place - 1..place] } {
                    watcher.watch(other.id)?;
                }
                if let WatchEvent::Removed(gone) = next(&watcher, &self.dir).await? {
                    watcher.unwatch(gone);
                }
            }
        }
    }

    /// The round that is on.
    async fn round(&self) -> Result<Round, Error> {
        let path = self.dir.join("round");
        let contents = match self.client.read(&path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_dir(&self.client, &self.dir).await?;
                unless(self.client.write(&path, "1\n").if_absent().await.map(drop), ErrorKind::AlreadyExists)?;
                self.client.read(&path).await?
            }
            contents => contents?,
        };
        let text = String::from_utf8_lossy(&contents.bytes);
        let mut words = text.split_whitespace();
        let wrong = || Error::from(Cause::Recipe { path: path.clone(), why: "it is not that of a barrier".to_owned() });
        let number = words.next().and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
        Ok(Round { number, with: words.map(str::to_owned).collect(), version: contents.metadata.version() })
    }

    /// Writes the next state, unless somebody else has.
    async fn write(&self, was: &Round, number: u64, with: &[String]) -> Result<(), Error> {
        let text = format!("{number}\n{}", with.iter().map(|name| format!("{name}\n")).collect::<String>());
        let written = self.client.write(self.dir.join("round"), text).if_version(was.version).await;
        unless(written.map(drop), ErrorKind::VersionChanged)
    }

    async fn make_me(&self, round: u64) -> Result<Me, Error> {
        let path = self.dir.join(format!("{round}.{}", unique(&self.client)));
        let version = self.client.create_new(&path).ephemeral().await?;
        Ok(Me { client: self.client.clone(), path, version, is_gone: false })
    }

    /// The directory, and who is in a round, in the order of their names.
    async fn participants(&self, round: u64) -> Result<(FileId, Vec<DirEntry>), Error> {
        let prefix = format!("{round}.");
        // With attributes: a look at an ephemeral file finds out whether its maker is gone.
        let listed = self.client.read_dir(&self.dir).with_metadata().await?;
        let is_in = |entry: &DirEntry| entry.file_name.as_bytes().starts_with(prefix.as_bytes());
        Ok((listed.metadata.id(), listed.entries.into_iter().filter(is_in).collect()))
    }

    fn watch(&self, file: FileId) -> Result<Watcher, Error> {
        let mut watcher = self.client.watcher();
        watcher.watch(file)?;
        Ok(watcher)
    }

    /// Waits until nobody is left in a round, watching the participant that comes after `name`: so each who waits is woken by another one.
    async fn wait_for_end(&self, round: u64, name: &[u8]) -> Result<(), Error> {
        loop {
            let now = self.round().await?;
            if now.number != round {
                return Ok(());
            }
            let (_, participants) = self.participants(round).await?;
            let after = participants.iter().find(|entry| entry.file_name.as_bytes() > name);
            let Some(other) = after.or_else(|| participants.first()) else {
                self.write(&now, round + 1, &[]).await?;
                return Ok(());
            };
            let mut watcher = self.watch(other.id)?;
            watcher.watch(now.version.file)?;
            loop {
                match next(&watcher, &self.dir).await? {
                    WatchEvent::Removed(_) => break,
                    WatchEvent::Current(version) | WatchEvent::Changed(version)
                        if version.file == now.version.file && version != now.version =>
                    {
                        break;
                    }
                    _ => {}
                }
            }
        }
    }
}

async fn next(watcher: &Watcher, dir: &Path) -> Result<WatchEvent, Error> {
    let gone = || Cause::Recipe { path: dir.to_owned(), why: "the directory of the barrier was removed".to_owned() };
    watcher.events().next().await.ok_or_else(|| gone().into())
}

impl Entered {
    /// Which round this is, from 1.
    #[must_use]
    pub const fn round(&self) -> u64 {
        self.round
    }

    /// Leaves, and waits until all others have left or are gone.
    pub fn leave(mut self) -> Steps<()> {
        let me = self.me.take();
        Steps::new(async move {
            let Self { barrier, round, .. } = &self;
            let Some(me) = me else { return Ok(()) };
            let name = me.path.file_name().map(OsStr::as_bytes).unwrap_or_default().to_vec();
            me.remove().await?;
            barrier.wait_for_end(*round, &name).await
        })
    }
}

impl Me {
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    async fn remove(mut self) -> Result<(), Error> {
        let removed = self.client.remove_file(&self.path).if_version(self.version).await;
        match removed {
            Err(error) if ![ErrorKind::NotFound, ErrorKind::VersionChanged].contains(&error.kind()) => Err(error),
            _ => {
                self.is_gone = true;
                Ok(())
            }
        }
    }
}

impl Drop for Me {
    fn drop(&mut self) {
        if !self.is_gone {
            // Where this does not arrive the end of the session removes it.
            self.client.remove_file(&self.path).if_version(self.version).start().detach();
        }
    }
}
