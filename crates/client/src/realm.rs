//! What the library says of realms.

use crate::metadata::FileId;
use cistern_agent::api;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A realm: the directory that begins it, and all below but the realms that begin there. No file moves from one into another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Realm {
    /// Its number; 1 is the whole tree's.
    pub number: u32,
    /// The realm around it.
    pub parent: Option<u32>,
    /// The directory that begins it.
    pub root: FileId,
    /// A path of that, as far as the server has told.
    pub path: PathBuf,
    /// Files, directories and symbolic links in it and in the realms within it.
    pub objects: u64,
    /// Most of them, if there is a quota.
    pub objects_max: Option<u64>,
    /// Bytes of contents and extended attributes in it and in the realms within it.
    pub bytes: u64,
    /// Most of them, if there is a quota.
    pub bytes_max: Option<u64>,
}

impl Realm {
    pub(crate) fn of(info: api::RealmInfo) -> Self {
        let some = |number: u64| (number > 0).then_some(number);
        Self {
            number: info.realm.0,
            parent: (info.parent.0 > 0).then_some(info.parent.0),
            root: FileId::of(info.root),
            path: OsString::from_vec(info.place.to_vec()).into(),
            objects: info.objects,
            objects_max: some(info.objects_max),
            bytes: info.bytes,
            bytes_max: some(info.bytes_max),
        }
    }
}
