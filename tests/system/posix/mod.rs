//! What POSIX says of each operation and each errno, through the client crate: one agent does, another one with a cache of its own looks.
//!
//! Decides: the helpers. One server serves all cases of a family, each in a directory of its own.

mod attributes;
mod batches;
mod contents;
mod directories;
mod names;
mod renames;
mod xattrs;

use crate::world::Server;
use cistern_client::{Attr, Client, Error, ObjectKind, Ownership, RenameRule, Status};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Who owns what the cases make.
pub(super) const OWNER: Ownership = Ownership { mode: 0o644, uid: 1, gid: 2 };

/// A server and two agents of it.
pub(super) struct World {
    /// Does.
    pub(super) a: Client,
    /// Looks.
    pub(super) b: Client,
    _server: Server,
}

/// What is done with a world, in a directory.
pub(super) type Case = fn(&World, &str);

/// The result code of an operation; OK if it succeeded.
#[track_caller]
pub(super) fn code<T>(result: Result<T, Error>) -> Status {
    match result {
        Ok(_) => Status::OK,
        Err(error) => error.status().unwrap_or_else(|| panic!("{error}")),
    }
}

/// A path of any bytes.
pub(super) fn os(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}

impl World {
    pub(super) fn start() -> Self {
        let server = Server::with(&["--lease", "2s"]);
        let connect = || Client::builder().server(server.address.to_string()).connect().unwrap();
        Self { a: connect(), b: connect(), _server: server }
    }

    /// Runs cases, each in an empty directory of its own name, whose path it gets.
    pub(super) fn run(&self, cases: &[(&str, Case)]) {
        for (name, case) in cases {
            let dir = format!("/{name}");
            self.dir(&dir);
            case(self, &dir);
        }
    }

    #[track_caller]
    pub(super) fn file(&self, path: &str) -> Attr {
        self.a.create(path, true, OWNER).wait().unwrap()
    }

    #[track_caller]
    pub(super) fn dir(&self, path: &str) -> Attr {
        self.a.mkdir(path, Ownership { mode: 0o755, ..OWNER }).wait().unwrap()
    }

    #[track_caller]
    pub(super) fn put(&self, path: &str, data: &[u8]) -> Attr {
        self.a.put(path, data.to_vec(), OWNER).wait().unwrap()
    }

    /// Attributes as both see them; not followed.
    #[track_caller]
    pub(super) fn stat(&self, path: &str) -> Result<Attr, Status> {
        let (a, b) = (self.a.lstat(path).wait(), self.b.lstat(path).wait());
        let (a, b) = (a.map_err(|e| code::<()>(Err(e))), b.map_err(|e| code::<()>(Err(e))));
        assert_eq!(a, b, "{path}: both see the same");
        a
    }

    #[track_caller]
    pub(super) fn links(&self, path: &str) -> u32 {
        self.stat(path).unwrap().nlink
    }

    /// Contents as both see them.
    #[track_caller]
    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        let (a, b) = (self.a.read(path).wait().unwrap(), self.b.read(path).wait().unwrap());
        assert_eq!(a.data, b.data, "{path}: both read the same");
        a.data.to_vec()
    }

    /// Names in a directory, as both see them.
    #[track_caller]
    pub(super) fn list(&self, path: &str) -> Vec<Vec<u8>> {
        let names = |client: &Client| -> Vec<Vec<u8>> {
            client.list(path, false).wait().unwrap().entries.iter().map(|entry| entry.name.to_vec()).collect()
        };
        let (a, b) = (names(&self.a), names(&self.b));
        assert_eq!(a, b, "{path}: both list the same");
        a
    }

    pub(super) fn rename(&self, from: &str, to: &str, rule: RenameRule) -> Status {
        code(self.a.rename(from, to, rule, false).wait())
    }

    pub(super) fn unlink(&self, path: &str) -> Status {
        code(self.a.unlink(path, false).wait())
    }

    pub(super) fn rmdir(&self, path: &str) -> Status {
        code(self.a.rmdir(path).wait())
    }
}

/// Whether the kind is a directory's.
pub(super) fn is_dir(attr: &Attr) -> bool {
    attr.kind == ObjectKind::Directory
}
