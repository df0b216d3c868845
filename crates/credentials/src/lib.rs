//! Keys, trust and revocations on disk.
//!
//! Decides: what each file has in it and under which conditions it is believed. What has a secret is its owner's or root's alone, is no
//! symbolic link, is written whole and durably, and is never overwritten; its text is wiped from memory. Errors name the file, what is wrong and
//! what to do, and never repeat what is in it.
//! Leaves to others: values and their texts (`cistern-trust`, `cistern-seal`), how such files are opened ([`cistern_capture::private`]).
//!
//! | file | has |
//! |---|---|
//! | `host.key`, `server.key`, `server.next.key`, `cluster.key` | a secret key: one line |
//! | `cluster.toml` | the cluster's public key and its roster |
//! | `operator.pub` | the public key of the first operator |
//! | `revoked.log` | revoked keys, one a line; append-only |
//! | a key log | what tools need to read sealed datagrams; append-only |

mod cluster_file;
mod error;
mod initial;
mod joining;
mod key_file;
mod key_log_file;
mod places;
mod revoked_file;
mod server_keys;

pub use cluster_file::{parse_cluster, read_cluster, replace_cluster, write_cluster};
pub use error::{CredentialError, Problem};
pub use initial::{Initial, MadeCluster};
pub use joining::{Asked, JoinRefusal, NotJoined, join};
pub use key_file::{make_cluster_key, make_key, read_cluster_key, read_key};
pub use key_log_file::KeyLogFile;
pub use places::{Found, NextKey, Place, Places, make_directory};
pub use revoked_file::RevokedFile;
pub use server_keys::{Rotation, ServerKeys};

/// Name of the file with the key of a host or application.
pub const HOST_KEY: &str = "host.key";
/// Name of the file with the key of a server.
pub const SERVER_KEY: &str = "server.key";
/// Name of the file with the key that follows a server's.
pub const NEXT_KEY: &str = "server.next.key";
/// Name of the file with the secret key of a cluster.
pub const CLUSTER_KEY: &str = "cluster.key";
/// Name of the file with the public key and the roster of a cluster.
pub const CLUSTER_FILE: &str = "cluster.toml";
/// Name of the file with the public key of the first operator, in the server's state directory.
pub const OPERATOR_FILE: &str = "operator.pub";
/// Name of the file with revoked keys.
pub const REVOKED_LOG: &str = "revoked.log";
