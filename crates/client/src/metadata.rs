//! What the library says of files: own types, so that no program depends on how a message is laid out.

use bytes::Bytes;
use cistern_agent::api::{self, Listed};
use cistern_wire::{self as wire, Attr, Expect, Mode, ObjectId, ObjectKind, RowState};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file, directory or symbolic link, whatever its names are; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FileId {
    pub(crate) const fn of(object: ObjectId) -> Self {
        Self(object.0)
    }

    pub(crate) const fn object(self) -> ObjectId {
        ObjectId(self.0)
    }
}

/// One file as it was: its number grows with each change of contents, entries or attributes. A change can be made to depend on it
/// ([`Op::if_version`](crate::Op::if_version)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Which file.
    pub file: FileId,
    /// Its version; 0: the file is gone.
    pub number: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Version {
    pub(crate) const fn of(object: ObjectId, number: u64) -> Self {
        Self { file: FileId::of(object), number }
    }

    pub(crate) const fn expected(self) -> Expect {
        Expect { object: self.file.object(), version: self.number }
    }
}

/// A fencing token: larger than every one that any holder of its lock was shown before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl FileType {
    /// `file`, `directory` or `symlink`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => ObjectKind::File.name(),
            Self::Directory => ObjectKind::Directory.name(),
            Self::Symlink => ObjectKind::Symlink.name(),
        }
    }

    const fn of(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::File => Self::File,
            ObjectKind::Directory => Self::Directory,
            ObjectKind::Symlink => Self::Symlink,
        }
    }
}

/// A file's attributes at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// Which file.
    #[must_use]
    pub fn id(&self) -> FileId {
        FileId::of(self.0.object)
    }

    /// The version, on which a change can be made to depend.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.0.object, self.0.version)
    }

    /// What it is.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::of(self.0.kind)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Bytes of contents, entries of a directory, or bytes of a link's target.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub const fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission bits, 0 to 0o7777. They are kept, and not enforced.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.0.mode.into()
    }

    /// Owner.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    #[must_use]
    pub const fn gid(&self) -> u32 {
        self.0.gid
    }

    /// How many names it has.
    #[must_use]
    pub const fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// When its contents were changed last.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime_ns)
    }

    /// When it was read last, as somebody has set it: reading does not change it.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime_ns)
    }

    /// When anything of it was changed last.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        time(self.0.ctime_ns)
    }

    /// Whether it goes when the session of the agent that made it ends, or a named lease.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.0.is_ephemeral()
    }

    /// Whether it is the file of a named lease.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.0.is_lease()
    }

    /// The realm to which it belongs; of a directory that begins one, that one. 1 is the whole tree's.
    #[must_use]
    pub const fn realm(&self) -> u32 {
        self.0.realm.0
    }

    /// Of an ephemeral file, the public name of the session that made it; of one of a named lease, the number of the lease as 16 digits.
    #[must_use]
    pub fn made_by(&self) -> Option<String> {
        self.is_ephemeral().then(|| self.0.owner.to_string())
    }
}

fn time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}

/// Nanoseconds since 1970, the nearest that can be kept.
pub(crate) fn nanos(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(span) => i64::try_from(span.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// Contents of a file, all of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The bytes asked for.
    pub bytes: Bytes,
    /// The file's attributes at that version.
    pub metadata: Metadata,
}

/// A directory, all of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Directory {
    /// Its attributes at that version.
    pub metadata: Metadata,
    /// Its entries, in byte order of their names.
    pub entries: Vec<DirEntry>,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name.
    pub file_name: OsString,
    /// What it names.
    pub id: FileId,
    /// What that is.
    pub file_type: FileType,
    /// Its attributes, when they were asked for.
    pub metadata: Option<Metadata>,
}

impl DirEntry {
    pub(crate) fn of(listed: Listed) -> Self {
        let Listed { name, object, kind, attr } = listed;
        let (id, file_type) = (FileId::of(object), FileType::of(kind));
        Self { file_name: OsString::from_vec(name.to_vec()), id, file_type, metadata: attr.map(Metadata) }
    }
}

/// The value of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Xattr {
    /// The file's version that has it.
    pub version: Version,
    /// The value.
    pub value: Bytes,
}

/// The names of all extended attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XattrNames {
    /// The file's version that has them.
    pub version: Version,
    /// The names, in byte order.
    pub names: Vec<OsString>,
}

/// A holder of an advisory lock, or one who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The locked file.
    pub file: FileId,
    /// A path of it; empty where the locks of one file were asked for.
    pub path: PathBuf,
    /// Whether it has the lock; otherwise it waits.
    pub is_holder: bool,
    /// Whether the lock is shared with other shared holders.
    pub is_shared: bool,
    /// Of a holder: its agent's grant, from which the tokens of the agent's users begin.
    pub token: Token,
    /// The agent's label.
    pub label: OsString,
    /// The public name of the agent's session: the same for all that it holds and waits for.
    pub session: String,
    /// For how long it has held or waited.
    pub since: Duration,
    /// How the server stands with that session.
    pub standing: Standing,
    /// When it ends at the latest if the agent is gone; `None`: not known.
    pub ends_within: Option<Duration>,
}

/// How the server stands with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// Its agent answers, as far as the server has had to know.
    Good,
    /// A message to its agent was not answered; the session ends when its lease is over, unless the agent is heard before.
    TimingOut,
    /// It was evicted, or superseded by its agent's next start, and ends when its lease is over.
    Evicted,
}

impl LockInfo {
    pub(crate) fn of(row: api::LockInfo) -> Self {
        Self {
            file: FileId::of(row.object),
            path: OsString::from_vec(row.place.to_vec()).into(),
            is_holder: row.state == RowState::Holds,
            is_shared: row.mode == Mode::Shared,
            token: Token(row.generation.0),
            label: OsString::from_vec(row.label.to_vec()),
            session: row.handle.to_string(),
            since: Duration::from_millis(row.since_ms),
            standing: match row.standing {
                wire::Standing::Good => Standing::Good,
                wire::Standing::TimingOut => Standing::TimingOut,
                wire::Standing::Evicted => Standing::Evicted,
            },
            ends_within: (row.bound_ms > 0).then(|| Duration::from_millis(row.bound_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_come_back_as_they_were_set() {
        for ns in [0, 1, -1, 1_500_000_000_000_000_001, -1_500_000_000_000_000_001, i64::MAX, -i64::MAX] {
            assert_eq!(nanos(time(ns)), ns);
        }
    }
}
