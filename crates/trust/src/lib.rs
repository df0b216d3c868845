//! Who is trusted: the cluster's key, the roster of servers that it signs, invites, grants and revocations, as values and texts.
//!
//! No files, sockets, clocks or random source: time, entropy and addresses are arguments. Keys of hosts and servers are those of
//! [`cistern_seal`]; which file has what is decided by `cistern-credentials`.
//!
//! | file | question it answers |
//! |---|---|
//! | [`text`] | how is a value written, so that people can carry it and a slip is noticed |
//! | [`cluster`] | who vouches for servers |
//! | [`roster`] | which servers are there, and which list of them is the newer one |
//! | [`invite`] | what does a host need to join |
//! | [`name`] | what do people call it |
//! | [`admission`] | what does a host get that has joined |
//! | [`revocation`] | which keys are good no more |
//! | [`fingerprint`] | do two people look at the same text |

pub mod admission;
pub mod cluster;
pub mod fingerprint;
pub mod invite;
mod lease;
pub mod name;
mod read;
pub mod revocation;
pub mod roster;
pub mod text;

pub use admission::{Grant, GrantError, Request};
pub use cluster::{ClusterKey, ClusterSecret, NotSigned};
pub use fingerprint::Fingerprint;
pub use invite::{Invite, InviteId, InviteSecret};
pub use name::Name;
pub use revocation::Revocations;
pub use roster::{Offered, Pinned, Roster, RosterError, ServerAddress, ServerEntry, ServerState, SignedRoster};
pub use text::{TextError, TextForm};
