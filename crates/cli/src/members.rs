//! Ephemeral files of local programs, each of which goes with the program although it belongs to the agent's session.
//!
//! Decides: that a file comes with its contents, as one change; that one which this agent made without having heard so is taken for the
//! program that asks for it again, and removed when that program has gone; and that a file is removed only as long as its name leads to it.
//! Invariant: of the programs of one agent only one at a time makes or has the file of a path, or has perhaps made it.
//! Leaves to others: when a program has gone (`agent::run`), the end of files with the session (the server).

use crate::execute::{User, Waits, under};
use crate::local::Failure;
use crate::text::{Blob, Text};
use cistern_client::{Client, ErrorKind, FileId, Guard, Metadata};
use cistern_wire::Status;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The paths at which programs of an agent have, or are making, ephemeral files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<ClaimTable>>);

#[derive(Debug, Default)]
struct ClaimTable {
    last: u64,
    /// Of each path the number of the claim, and the file once it is made.
    claims: BTreeMap<Vec<u8>, (u64, Option<FileId>)>,
}

/// One program's place in them; given back when dropped.
#[derive(Debug)]
struct Claim {
    claims: Claims,
    path: Text,
    number: u64,
}

impl Claims {
    fn table(&self) -> MutexGuard<'_, ClaimTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: another program has the file, or may have. One whose file went with a session of before has it no more.
    fn claim(&self, client: &Client, path: &Text) -> Option<Claim> {
        let mut table = self.table();
        if let Some((_, file)) = table.claims.get(&path.0)
            && file.is_none_or(|file| client.owns_ephemeral(file).unwrap_or(true))
        {
            return None;
        }
        table.last += 1;
        let number = table.last;
        table.claims.insert(path.0.clone(), (number, None));
        Some(Claim { claims: self.clone(), path: path.clone(), number })
    }
}

impl Claim {
    /// This is the file.
    fn made(&self, made: FileId) {
        if let Some((number, file)) = self.claims.table().claims.get_mut(&self.path.0)
            && *number == self.number
        {
            *file = Some(made);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.claims.table();
        if table.claims.get(&self.path.0).is_some_and(|(number, _)| *number == self.number) {
            table.claims.remove(&self.path.0);
        }
    }
}

/// The ephemeral files of one program.
#[derive(Debug, Default)]
pub(crate) struct Members {
    claims: Claims,
    files: BTreeMap<FileId, Claim>,
    /// Where this program has perhaps made a file: it was not told.
    perhaps: Vec<Claim>,
}

impl Members {
    /// Of one more program of an agent.
    pub(crate) fn of(claims: Claims) -> Self {
        Self { claims, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.perhaps.is_empty()
    }

    /// Makes a file, which belongs to `user`; under the lock of `guard`, if there is one.
    pub(crate) fn join<W: Waits>(
        &mut self,
        client: &Client,
        waits: &mut W,
        (path, data, mode): (&Text, Blob, u16),
        (user, guard): (User, Option<&Guard>),
    ) -> Result<FileId, Failure> {
        // Whoever asks again has lost the file that it had.
        self.files.retain(|_, claim| claim.path != *path);
        let exists = || Failure::status(path, Status::EEXIST);
        let before = self.perhaps.iter().position(|claim| claim.path == *path);
        let mut perhaps = before.is_some();
        let claim = before.map(|at| self.perhaps.swap_remove(at)).or_else(|| self.claims.claim(client, path)).ok_or_else(exists)?;
        let make = client.create_new(path.as_os()).ephemeral().contents(data.0.clone());
        let make = make.mode(mode.into()).owner(user.uid, user.gid);
        let made = match waits.wait(under(make, guard)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match adopt(client, waits, (path, data), guard) {
                Ok(found) => found.ok_or_else(exists),
                Err(failure) => {
                    perhaps = true;
                    Err(failure)
                }
            },
            Err(error) => {
                perhaps |= error.kind() == ErrorKind::OutcomeUnknown;
                Err(error.into())
            }
            Ok(made) => Ok(made.file),
        };
        match made {
            Ok(object) => {
                claim.made(object);
                self.files.insert(object, claim);
            }
            Err(_) if perhaps => self.perhaps.push(claim),
            Err(_) => {}
        }
        made
    }

    /// Removes one of the files.
    pub(crate) fn leave<W: Waits>(&mut self, client: &Client, waits: &mut W, object: FileId) -> Result<(), Failure> {
        let Some(claim) = self.files.get(&object) else {
            return Err(Failure::failed(format!("{object} is no ephemeral file of this connection")));
        };
        remove(client, waits, &claim.path, object)?;
        self.files.remove(&object);
        Ok(())
    }

    /// Removes all of them.
    pub(crate) fn leave_all<W: Waits>(&mut self, client: &Client, waits: &mut W) -> Result<(), Failure> {
        while let Some(object) = self.files.keys().next().copied() {
            self.leave(client, waits, object)?;
        }
        while let Some(claim) = self.perhaps.last() {
            leave_perhaps(client, waits, &claim.path)?;
            self.perhaps.pop();
        }
        Ok(())
    }
}

/// The ephemeral file that is there, if this agent's session made it.
fn own_at<W: Waits>(client: &Client, waits: &mut W, path: &Text) -> Result<Option<Metadata>, Failure> {
    match waits.wait(client.symlink_metadata(path.as_os())) {
        Ok(there) => Ok((there.is_ephemeral() && client.owns_ephemeral(there.id())?).then_some(there)),
        // Nor is there one where its directory is gone.
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes a file that is there already, if this agent's session made it and no program has it: its making was given up before the answer came.
fn adopt<W: Waits>(client: &Client, waits: &mut W, (path, data): (&Text, Blob), guard: Option<&Guard>) -> Result<Option<FileId>, Failure> {
    let Some(there) = own_at(client, waits, path)? else { return Ok(None) };
    if there.len() != 0 || !data.0.is_empty() {
        waits.wait(under(client.write(path.as_os(), data.0).if_version(there.version()), guard))?;
    }
    Ok(Some(there.id()))
}

/// Removes a file that was perhaps made.
fn leave_perhaps<W: Waits>(client: &Client, waits: &mut W, path: &Text) -> Result<(), Failure> {
    // Asked before the look: what was settled by then is seen by it.
    let settled = client.unsettled()? == 0;
    if let Some(object) = own_at(client, waits, path)?.map(|there| there.id()) {
        return remove(client, waits, path, object);
    }
    if settled { Ok(()) } else { Err(Failure::failed(format!("{path}: it is not known yet whether it was made"))) }
}

/// Takes the file's name away, unless it leads to something else by now.
fn remove<W: Waits>(client: &Client, waits: &mut W, path: &Text, object: FileId) -> Result<(), Failure> {
    loop {
        let there = match waits.wait(client.symlink_metadata(path.as_os())) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if there.id() != object {
            return Ok(());
        }
        match waits.wait(client.remove_file(path.as_os()).even_if_locked().if_version(there.version())) {
            // It has changed since: its version is looked at again.
            Err(error) if error.kind() == ErrorKind::VersionChanged => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return Ok(other?),
        }
    }
}
