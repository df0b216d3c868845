//! Extended attributes, batches, and changes that depend on versions.
//!
//! Decides: names and shapes of these operations; that a batch is put together like a list of calls. Leaves to others: what is staged and
//! how items name each other's objects (the agent), the simple operations (`client`).

use crate::call::Call;
use crate::client::{Client, as_attr, as_unit, path_bytes, unexpected};
use crate::error::Error;
use crate::guard::Guard;
use crate::hub::{Done, Inner};
use bytes::Bytes;
use cistern_agent::api::{AttrChange, Command, Output, Ownership, Target};
use cistern_wire::{Attr, Expect, ItemResult, ObjectId, RenameRule, XattrRule};
use std::ffi::OsStr;
use std::sync::Arc;

/// The value of an extended attribute, all of one version of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrValue {
    /// The object.
    pub object: ObjectId,
    /// The object's version.
    pub version: u64,
    /// The value.
    pub value: Bytes,
}

/// Names of all extended attributes of an object, of one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrList {
    /// The object.
    pub object: ObjectId,
    /// The object's version.
    pub version: u64,
    /// The names, in byte order.
    pub names: Vec<Bytes>,
}

fn as_results(_: &Arc<Inner>, done: Done) -> Result<Vec<ItemResult>, Error> {
    match done {
        Done::Output(Output::Batched(results)) => Ok(results),
        _ => unexpected(),
    }
}

fn at(path: Bytes) -> Target {
    Target::Path(path)
}

impl Client {
    /// The value of an extended attribute; symbolic links are followed.
    pub fn get_xattr(&self, path: impl AsRef<OsStr>, name: impl Into<Bytes>) -> Call<XattrValue> {
        let command = |path| Command::GetXattr { target: at(path), follow: true, name: name.into() };
        self.on_path(path, command, |_, done| match done {
            Done::Output(Output::Xattr { object, version, value }) => Ok(XattrValue { object, version, value }),
            _ => unexpected(),
        })
    }

    /// Names of all extended attributes; symbolic links are followed.
    pub fn list_xattr(&self, path: impl AsRef<OsStr>) -> Call<XattrList> {
        self.on_path(
            path,
            |path| Command::ListXattr { target: at(path), follow: true },
            |_, done| match done {
                Done::Output(Output::XattrNames { object, version, names }) => Ok(XattrList { object, version, names }),
                _ => unexpected(),
            },
        )
    }

    /// Sets an extended attribute (name of 1 to 255 bytes, value of at most 64 KiB); symbolic links are followed.
    pub fn set_xattr(&self, path: impl AsRef<OsStr>, name: impl Into<Bytes>, value: impl Into<Bytes>, rule: XattrRule) -> Call<Attr> {
        self.on_path(path, |path| set_xattr(path, name.into(), value.into(), rule), as_attr)
    }

    /// Takes an extended attribute away; symbolic links are followed.
    pub fn remove_xattr(&self, path: impl AsRef<OsStr>, name: impl Into<Bytes>) -> Call<Attr> {
        self.on_path(path, |path| remove_xattr(path, name.into()), as_attr)
    }

    /// Does all that a batch says, or nothing of it; what each item was about, in order.
    pub fn batch(&self, batch: Batch) -> Call<Vec<ItemResult>> {
        self.inner().submit(|| "the batch".to_owned(), batch.command(), as_results)
    }

    /// For changes that are made only while objects have the versions expected (compare and set): otherwise they fail with
    /// VERSION_CHANGED, and change nothing. At most 8; version 0: there must be no such object.
    #[must_use]
    pub fn expecting(&self, expect: impl Into<Vec<Expect>>) -> Expecting {
        Expecting { client: self.clone(), expect: expect.into() }
    }
}

/// Changes that depend on versions: made by [`Client::expecting`].
#[derive(Clone, Debug)]
pub struct Expecting {
    client: Client,
    expect: Vec<Expect>,
}

impl Expecting {
    fn on_path<T>(
        &self,
        path: impl AsRef<OsStr>,
        command: impl FnOnce(Bytes) -> Command,
        finish: fn(&Arc<Inner>, Done) -> Result<T, Error>,
    ) -> Call<T> {
        let path = path.as_ref();
        let command = Command::Expecting { expect: self.expect.clone(), command: Box::new(command(path_bytes(path))) };
        self.client.inner().submit(|| path.to_string_lossy().into_owned(), command, finish)
    }

    /// As [`Client::put`].
    pub fn put(&self, path: impl AsRef<OsStr>, data: impl Into<Bytes>, owner: Ownership) -> Call<Attr> {
        self.on_path(path, |path| Command::Put { path, data: data.into(), owner, guard: None }, as_attr)
    }

    /// Replaces the contents of a file known by its number, wherever its name has gone since.
    pub fn replace(&self, object: ObjectId, data: impl Into<Bytes>) -> Call<Attr> {
        let write = Command::Write { target: Target::Object(object), offset: 0, data: data.into(), truncate: true, guard: None };
        let command = Command::Expecting { expect: self.expect.clone(), command: Box::new(write) };
        self.client.inner().submit(|| format!("object {object}"), command, as_attr)
    }

    /// As [`Client::set_attr`].
    pub fn set_attr(&self, path: impl AsRef<OsStr>, change: AttrChange) -> Call<Attr> {
        self.on_path(path, |path| set_attr(path, change), as_attr)
    }

    /// As [`Client::set_xattr`].
    pub fn set_xattr(&self, path: impl AsRef<OsStr>, name: impl Into<Bytes>, value: impl Into<Bytes>, rule: XattrRule) -> Call<Attr> {
        self.on_path(path, |path| set_xattr(path, name.into(), value.into(), rule), as_attr)
    }

    /// As [`Client::remove_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<OsStr>, name: impl Into<Bytes>) -> Call<Attr> {
        self.on_path(path, |path| remove_xattr(path, name.into()), as_attr)
    }

    /// As [`Client::unlink`].
    pub fn unlink(&self, path: impl AsRef<OsStr>, force: bool) -> Call<()> {
        self.on_path(path, |path| Command::Unlink { path, force }, as_unit)
    }

    /// As [`Client::rename`].
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>, rule: RenameRule, force: bool) -> Call<()> {
        let to = path_bytes(to);
        self.on_path(from, |from| Command::Rename { from, to, rule, force }, as_unit)
    }

    /// As [`Client::batch`].
    pub fn batch(&self, batch: Batch) -> Call<Vec<ItemResult>> {
        let command = Command::Expecting { expect: self.expect.clone(), command: Box::new(batch.command()) };
        self.client.inner().submit(|| "the batch".to_owned(), command, as_results)
    }
}

/// Several changes that are made as one: all of them, in order, or none. At most 16.
///
/// A path means what it meant before the batch, unless an item before has made that very name: then it means what was made.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    items: Vec<Command>,
    guard: Option<cistern_agent::api::Guard>,
}

impl Batch {
    /// A batch of nothing, to be added to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many items it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn with(mut self, item: Command) -> Self {
        self.items.push(item);
        self
    }

    fn command(self) -> Command {
        Command::Batch { items: self.items, guard: self.guard }
    }

    /// All of it only if `guard` is still current at the server.
    #[must_use]
    pub fn guarded(mut self, guard: &Guard) -> Self {
        self.guard = Some(guard.guard());
        self
    }

    /// As [`Client::create`], but a symbolic link is not followed (EEXIST).
    #[must_use]
    pub fn create(self, path: impl AsRef<OsStr>, exclusive: bool, owner: Ownership) -> Self {
        self.with(Command::Create { path: path_bytes(path), exclusive, ephemeral: false, owner })
    }

    /// As [`Client::create_ephemeral`].
    #[must_use]
    pub fn create_ephemeral(self, path: impl AsRef<OsStr>, owner: Ownership) -> Self {
        self.with(Command::Create { path: path_bytes(path), exclusive: true, ephemeral: true, owner })
    }

    /// As [`Client::mkdir`].
    #[must_use]
    pub fn mkdir(self, path: impl AsRef<OsStr>, owner: Ownership) -> Self {
        self.with(Command::Mkdir { path: path_bytes(path), owner })
    }

    /// As [`Client::symlink`].
    #[must_use]
    pub fn symlink(self, target: impl AsRef<OsStr>, path: impl AsRef<OsStr>, owner: Ownership) -> Self {
        self.with(Command::Symlink { path: path_bytes(path), points_to: path_bytes(target), owner })
    }

    /// As [`Client::link`].
    #[must_use]
    pub fn link(self, existing: impl AsRef<OsStr>, path: impl AsRef<OsStr>) -> Self {
        self.with(Command::Link { existing: path_bytes(existing), path: path_bytes(path) })
    }

    /// As [`Client::unlink`].
    #[must_use]
    pub fn unlink(self, path: impl AsRef<OsStr>, force: bool) -> Self {
        self.with(Command::Unlink { path: path_bytes(path), force })
    }

    /// As [`Client::rmdir`].
    #[must_use]
    pub fn rmdir(self, path: impl AsRef<OsStr>) -> Self {
        self.with(Command::Rmdir { path: path_bytes(path) })
    }

    /// As [`Client::rename`].
    #[must_use]
    pub fn rename(self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>, rule: RenameRule, force: bool) -> Self {
        self.with(Command::Rename { from: path_bytes(from), to: path_bytes(to), rule, force })
    }

    /// As [`Client::set_attr`].
    #[must_use]
    pub fn set_attr(self, path: impl AsRef<OsStr>, change: AttrChange) -> Self {
        self.with(set_attr(path_bytes(path), change))
    }

    /// Writes into a file that exists, or that an item before makes; with `truncate`, what was after the bytes is cut off.
    #[must_use]
    pub fn write(self, path: impl AsRef<OsStr>, offset: u64, data: impl Into<Bytes>, truncate: bool) -> Self {
        self.with(Command::Write { target: at(path_bytes(path)), offset, data: data.into(), truncate, guard: None })
    }

    /// As [`Client::set_xattr`].
    #[must_use]
    pub fn set_xattr(self, path: impl AsRef<OsStr>, name: impl Into<Bytes>, value: impl Into<Bytes>, rule: XattrRule) -> Self {
        self.with(set_xattr(path_bytes(path), name.into(), value.into(), rule))
    }

    /// As [`Client::remove_xattr`].
    #[must_use]
    pub fn remove_xattr(self, path: impl AsRef<OsStr>, name: impl Into<Bytes>) -> Self {
        self.with(remove_xattr(path_bytes(path), name.into()))
    }
}

fn set_attr(path: Bytes, change: AttrChange) -> Command {
    Command::SetAttr { target: at(path), follow: true, change, guard: None }
}

fn set_xattr(path: Bytes, name: Bytes, value: Bytes, rule: XattrRule) -> Command {
    Command::SetXattr { target: at(path), follow: true, name, value, rule, guard: None }
}

fn remove_xattr(path: Bytes, name: Bytes) -> Command {
    Command::RemoveXattr { target: at(path), follow: true, name, guard: None }
}
