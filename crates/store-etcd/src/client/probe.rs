//! Whether the store is there, and which servers share it, asked again and again by each of them.
//!
//! Decides nothing: each answer is a linearizable read of the store's identity, so a majority of etcd's members has had its part in it.
//! Leaves to others: what follows from an answer, or from none (`cistern_group`).

use super::{error, io_error, members, runtime};
use crate::reason::Reason;
use crate::record::{Identity, ServerList};
use crate::target::Target;
use cistern_store::{OpenError, Problem};
use std::thread::Builder;
use std::time::Duration;
use tokio::time::sleep;

/// Asks etcd for the store, and `tell`s what it says, as long as that gives true: from a thread of its own, which pauses for `period` between
/// an answer and the next question.
///
/// # Errors
/// A file of the credentials cannot be read, or the system has no thread to spare.
pub fn probe(
    target: &Target,
    period: Duration,
    tell: impl Fn(Result<Option<ServerList>, OpenError>) -> bool + Send + 'static,
) -> Result<(), OpenError> {
    let (members, runtime) = (members(target)?, runtime().map_err(|e| io_error(target, &e))?);
    let (of, key) = (target.clone(), target.keys.identity());
    let run = async move {
        let mut tries = 0;
        loop {
            let answer = match members.value(&key, tries).await {
                Ok((value, header)) => {
                    tries = 0;
                    identity(value.as_deref(), header.cluster).map_err(|reason| error(&of, &reason))
                }
                Err(what) => {
                    tries = tries.saturating_add(1);
                    Err(OpenError { problem: Problem::Io, dir: super::name(&of), what })
                }
            };
            if !tell(answer) {
                return;
            }
            sleep(period).await;
        }
    };
    let thread = Builder::new().name("store-probe".to_owned()).spawn(move || runtime.block_on(run));
    thread.map(drop).map_err(|e| io_error(target, &e))
}

/// The servers that share the store, if what was found is the identity of one that was written in this cluster.
fn identity(value: Option<&[u8]>, cluster: u64) -> Result<Option<ServerList>, Reason> {
    let found = Identity::from_bytes(value.ok_or(Reason::Missing)?).map_err(Reason::Foreign)?;
    if found.cluster == cluster { Ok(found.servers) } else { Err(Reason::Restored) }
}
