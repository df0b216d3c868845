//! An opened object: operations on it by its number.
//!
//! Decides: that an open file goes on to mean the same object when its name moves. There is nothing to close: an open file holds
//! nothing at the server. Leaves to others: everything else.

use crate::call::Call;
use crate::client::{Client, Contents, as_attr, as_contents};
use crate::guard::{Guard, LockRequest};
use bytes::Bytes;
use cistern_agent::api::{AttrChange, Command, Target};
use cistern_wire::{Attr, ObjectId};

/// An opened object.
#[derive(Clone, Debug)]
pub struct File {
    client: Client,
    object: ObjectId,
}

impl File {
    pub(crate) const fn new(client: Client, object: ObjectId) -> Self {
        Self { client, object }
    }

    /// The object's number.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        self.object
    }

    fn name(&self) -> String {
        format!("object {}", self.object)
    }

    /// Its attributes.
    pub fn stat(&self) -> Call<Attr> {
        let command = Command::Stat { target: Target::Object(self.object), follow: true };
        self.client.inner().submit(|| self.name(), command, as_attr)
    }

    /// At most `length` bytes from `offset` on; `None`: to the end.
    pub fn read(&self, offset: u64, length: Option<u64>) -> Call<Contents> {
        let command = Command::Read { target: Target::Object(self.object), offset, length };
        self.client.inner().submit(|| self.name(), command, as_contents)
    }

    /// An advisory lock on it, whatever its name is by now; quicker to have again than by a path, for there is none to walk.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.client.clone(), Target::Object(self.object))
    }

    /// Writes at `offset`; under `guard`, only if that lock is still current at the server.
    pub fn write(&self, offset: u64, data: impl Into<Bytes>, guard: Option<&Guard>) -> Call<Attr> {
        let command = Command::Write {
            target: Target::Object(self.object),
            offset,
            data: data.into(),
            truncate: false,
            guard: guard.map(Guard::guard),
        };
        self.client.inner().submit(|| self.name(), command, as_attr)
    }

    /// Sets attributes; under `guard`, only if that lock is still current at the server.
    pub fn set_attr(&self, change: AttrChange, guard: Option<&Guard>) -> Call<Attr> {
        let command = Command::SetAttr { target: Target::Object(self.object), follow: true, change, guard: guard.map(Guard::guard) };
        self.client.inner().submit(|| self.name(), command, as_attr)
    }
}
