//! What was asked for, out of an answer.

use super::{
    Attributes, Done, EntryRow, Failure, GroupReport, Hold, KeptLease, Lease, LeaseFileRow, LockRow, NewLease, RealmRow, Report, Response,
};
use crate::execute::EXIT_SOFTWARE;
use crate::text::{Blob, Text};

/// Takes what was asked for out of an answer.
macro_rules! answers {
    ($($name:ident -> $type:ty: $answer:pat => $value:expr;)+) => {
        impl Response {
            $(pub(crate) fn $name(self) -> Result<$type, Failure> {
                match self {
                    $answer => Ok($value),
                    other => Err(other.unexpected()),
                }
            })+
        }
    };
}

answers! {
    attributes -> Attributes: Self::Attr(attr) => attr;
    listing -> Vec<EntryRow>: Self::Listing(rows) => rows;
    data -> (Attributes, Blob): Self::Data { attr, data } => (attr, data);
    link -> Text: Self::Link(target) => target;
    locks -> Vec<LockRow>: Self::Locks(rows) => rows;
    realms -> Vec<RealmRow>: Self::Realms(rows) => rows;
    new_lease -> NewLease: Self::NewLease(made) => made;
    kept_lease -> KeptLease: Self::KeptLease(kept) => kept;
    leases -> Vec<LeaseFileRow>: Self::Leases(rows) => rows;
    server -> Report: Self::Server(report) => report;
    pong -> u64: Self::Pong { round_trip_us } => round_trip_us;
    lease -> Lease: Self::Lease(lease) => lease;
    xattr -> (Done, Blob): Self::Xattr { object, version, value } => (Done { object, version }, value);
    xattrs -> (Done, Vec<Text>): Self::Xattrs { object, version, names } => (Done { object, version }, names);
    batched -> Vec<Done>: Self::Batched(done) => done;
    locked -> (u64, u64): Self::Locked { hold, token, .. } => (hold, token);
    hold -> Hold: Self::Hold(hold) => hold;
    entered -> (u64, u64): Self::Entered { hold, round } => (hold, round);
    joined -> u64: Self::Joined { object } => object;
    group -> GroupReport: Self::Group(report) => *report;
}

impl Response {
    /// It answers something else: this program and the agent are of different versions.
    pub(crate) fn unexpected(&self) -> Failure {
        Failure::new("INTERNAL", EXIT_SOFTWARE, format!("the agent answered something else than was asked: {self:?}"))
    }
}
