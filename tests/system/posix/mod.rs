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

use cistern_client::{Client, Error, Metadata};
use cistern_testkit::Server;
use cistern_wire::{RenameRule, Status};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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
        Err(error) => status(&error).unwrap_or_else(|| panic!("{error}")),
    }
}

/// The result code of the server or the agent, if that is what an operation failed with.
pub(crate) fn status(error: &Error) -> Option<Status> {
    Status::ALL.iter().copied().find(|status| status.name() == error.code())
}

/// A path of any bytes.
pub(super) fn os(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}

impl World {
    pub(super) fn start() -> Self {
        let server = Server::with(&["--lease", "2s"]);
        let connect = || Client::builder().insecure().server(server.address.to_string()).connect().unwrap();
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
    pub(super) fn file(&self, path: &str) -> Metadata {
        self.a.create_new(path).wait().unwrap();
        self.a.metadata(path).wait().unwrap()
    }

    #[track_caller]
    pub(super) fn dir(&self, path: &str) -> Metadata {
        self.a.create_dir(path).wait().unwrap()
    }

    #[track_caller]
    pub(super) fn put(&self, path: &str, data: &[u8]) -> Metadata {
        self.a.write(path, data.to_vec()).wait().unwrap()
    }

    /// Attributes as both see them; not followed.
    #[track_caller]
    pub(super) fn stat(&self, path: &str) -> Result<Metadata, Status> {
        let (a, b) = (self.a.symlink_metadata(path).wait(), self.b.symlink_metadata(path).wait());
        let (a, b) = (a.map_err(|e| code::<()>(Err(e))), b.map_err(|e| code::<()>(Err(e))));
        assert_eq!(a, b, "{path}: both see the same");
        a
    }

    #[track_caller]
    pub(super) fn links(&self, path: &str) -> u32 {
        self.stat(path).unwrap().nlink()
    }

    /// Contents as both see them.
    #[track_caller]
    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        let (a, b) = (self.a.read(path).wait().unwrap(), self.b.read(path).wait().unwrap());
        assert_eq!(a.bytes, b.bytes, "{path}: both read the same");
        a.bytes.to_vec()
    }

    /// Names in a directory, as both see them.
    #[track_caller]
    pub(super) fn list(&self, path: &str) -> Vec<Vec<u8>> {
        let names = |client: &Client| -> Vec<Vec<u8>> {
            client.read_dir(path).wait().unwrap().entries.iter().map(|entry| entry.file_name.as_bytes().to_vec()).collect()
        };
        let (a, b) = (names(&self.a), names(&self.b));
        assert_eq!(a, b, "{path}: both list the same");
        a
    }

    pub(super) fn rename(&self, from: &str, to: &str, rule: RenameRule) -> Status {
        let rename = self.a.rename(from, to);
        let rename = match rule {
            RenameRule::Replace => rename,
            RenameRule::NoReplace => rename.no_replace(),
            RenameRule::Exchange => rename.exchange(),
        };
        code(rename.wait())
    }

    pub(super) fn unlink(&self, path: &str) -> Status {
        code(self.a.remove_file(path).wait())
    }

    pub(super) fn rmdir(&self, path: &str) -> Status {
        code(self.a.remove_dir(path).wait())
    }
}
