//! Keys and revocations on disk.
//!
//! Decides: what each file has in it and under which conditions it is believed. What has a secret is its owner's or root's alone, is no
//! symbolic link, is written whole and durably, and is never overwritten; its text is wiped from memory. Errors name the file, what is wrong and
//! what to do, and never repeat what is in it.
//! Leaves to others: values and their texts (`cistern-trust`, `cistern-seal`), how such files are opened ([`cistern_capture::private`]).
//!
//! | file | has |
//! |---|---|
//! | `host.key`, `server.key` | a secret key: one line |
//! | `revoked.log` | revoked keys, one a line; append-only |

mod error;
mod key_file;
mod places;
mod revoked_file;

pub use error::{CredentialError, Problem};
pub use key_file::{make_key, read_key};
pub use places::{Found, Place, Places, make_directory};
pub use revoked_file::RevokedFile;

/// Name of the file with the key of a host or application.
pub const HOST_KEY: &str = "host.key";
/// Name of the file with the key of a server.
pub const SERVER_KEY: &str = "server.key";
/// Name of the file with revoked keys.
pub const REVOKED_LOG: &str = "revoked.log";
