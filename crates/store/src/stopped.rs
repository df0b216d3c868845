//! A store that no server runs on: what an operator's commands see of it.
//!
//! Decides: how all keys are gone through, how a store is copied, how it is made smaller. Place in the walk: beside it.
//! Invariant: a [`StoppedStore`] holds the same lock as a server, so neither ever sees the other's half-done work; a copy is whole or
//! nothing, and marked, so that no server goes on from it before a restore has made a store of its own of it (section 11.7).
//! Leaves to others: what keys and values mean (`cistern_server::store`), what is wrong with them (`cisternd check`).

use crate::engine::{Engine, Frozen, MEMTABLE, Writes};
use crate::error::{OpenError, Problem};
use crate::place::{Making, Purpose, StoreDirectory};
use crate::space::Frugal;
use crate::spare::{Spare, make_way};
use crate::witness::Witness;
use bytes::Bytes;
use cistern_server::store::Key;
use cistern_wire::StoreId;
use std::io;
use std::path::Path;

/// Memory for blocks: everything is read once.
const CACHE: u64 = 16 << 20;

/// A store opened by an operator's command.
pub struct StoppedStore {
    // Before `place`: the files are closed before the lock is given up.
    engine: Engine,
    number: u64,
    witness: Witness,
    place: StoreDirectory,
}

impl std::fmt::Debug for StoppedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoppedStore").field("dir", &self.place.dir()).finish_non_exhaustive()
    }
}

impl StoppedStore {
    /// Opens the store in a directory.
    ///
    /// # Errors
    /// [`OpenError`]: as for a server, but that a copy is accepted; nothing was changed then.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::of(Self::take(dir, Making::Never)?)
    }

    /// Makes an empty store in a directory that is missing or empty; `id` must be a random one, or that of the store that it replaces.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is not empty, or cannot be written.
    pub fn create(dir: &Path, id: StoreId) -> Result<Self, OpenError> {
        let place = Self::take(dir, Making::New(id))?;
        if place.is_new() { Self::of(place) } else { Err(there_is_one(dir)) }
    }

    fn take(dir: &Path, making: Making) -> Result<StoreDirectory, OpenError> {
        StoreDirectory::take(dir, making, Purpose::Work, |data| Engine::make(data, MEMTABLE))
    }

    fn of(place: StoreDirectory) -> Result<Self, OpenError> {
        let dir = place.dir();
        make_way(dir);
        let (engine, number) = Engine::open(&place, CACHE)?;
        let witness = Witness::open(dir).and_then(|witness| witness.saw(number).map(|()| witness));
        let witness = witness.map_err(|e| OpenError::io(dir, "writing `witness`", &e))?;
        Ok(Self { engine, number, witness, place })
    }

    /// The store's id.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.place.id()
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The value of a key, as bytes.
    ///
    /// # Errors
    /// What cannot be read, in words.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, String> {
        self.engine.get(key)
    }

    /// All keys and values, as bytes, in the order of the keys; every block of every table is checked on the way. After an error
    /// nothing follows.
    pub fn iter(&self) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), String>> + use<> {
        self.engine.snapshot().iter()
    }

    /// Writes (`None`: deletes) keys, whole or not at all; durable when this returns.
    ///
    /// # Errors
    /// What failed, in words; the store must not be written again by this value.
    pub fn write(&mut self, writes: impl IntoIterator<Item = (Vec<u8>, Option<Bytes>)>) -> Result<(), String> {
        let mut all = Writes::default();
        writes.into_iter().for_each(|(key, value)| all.put(&key, value));
        self.engine.commit(all, self.number + 1)?;
        self.number += 1;
        self.witness.saw(self.number).map_err(|e| format!("writing `witness`: {e}"))
    }

    /// Rewrites all tables without what was deleted or replaced, and empties the journals, and gives up the space taken in advance. Needs as much space again while it runs.
    ///
    /// # Errors
    /// What failed, in words; nothing is lost.
    pub fn compact(&self) -> Result<(), String> {
        self.engine.compact()?;
        // The next server takes it again.
        Spare::new(self.dir(), 0).give_up();
        match self.engine.reopen()? {
            true => Ok(()),
            false => Err("it is being read at the same time".to_owned()),
        }
    }

    /// Makes of a copy a store that a server may serve; durable when this returns. Only after what ends its sessions and raises its
    /// epoch was written.
    ///
    /// # Errors
    /// What failed, in words; it is still a copy then.
    pub fn release(&self) -> Result<(), String> {
        self.place.unmark().map_err(|e| format!("writing `format`: {e}"))
    }

    /// Writes all of it as a copy with the same id into a directory that is missing or empty; durable when this returns. Gives how
    /// many keys it has.
    ///
    /// # Errors
    /// [`OpenError`]: the directory is not empty or cannot be written, or this store cannot be read; what was written is removed then.
    pub fn copy_to(&self, dir: &Path) -> Result<u64, OpenError> {
        // No server needs the space.
        copy(&Entries::of(&self.engine), self.id(), self.dir(), dir, 0)
    }
}

/// All keys and values that a store had at one moment.
pub struct Entries {
    frozen: Frozen,
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl Entries {
    pub(crate) fn of(engine: &Engine) -> Self {
        Self { frozen: engine.snapshot() }
    }
}

fn there_is_one(dir: &Path) -> OpenError {
    OpenError::new(Problem::Foreign, dir, "there is a store already; name a directory that is empty or missing")
}

/// Makes a copy of these entries without what is of one store alone, as long as `reserve` bytes stay free if it is on the file system of what it is of.
pub(crate) fn copy(entries: &Entries, id: StoreId, from: &Path, to: &Path, reserve: u64) -> Result<u64, OpenError> {
    let mut count = 0;
    let fill = |data: &Path| {
        let mut frugal = Frugal::new(from, to, reserve).map_err(|e| OpenError::io(to, "looking at its file system", &e))?;
        let copied = entries.frozen.iter().filter(|entry| entry.as_ref().map_or(true, |(key, _)| Key::is_copied(key)));
        let frugally = copied.map(|entry| {
            let (key, value) = entry?;
            frugal.spend(to, key.len() + value.len())?;
            count += 1;
            Ok((key, value))
        });
        Engine::make_with(data, MEMTABLE, frugally)
            .map_err(|what| OpenError::new(Problem::Io, to, format!("copying {} into it: {what}", from.display())))
    };
    let place = StoreDirectory::take(to, Making::New(id), Purpose::Copy, fill)?;
    if !place.is_new() {
        return Err(there_is_one(to));
    }
    let witness = Witness::open(to).and_then(|witness| witness.saw(1));
    witness.map_err(|e: io::Error| OpenError::io(to, "writing `witness`", &e))?;
    drop(place);
    Ok(count)
}
