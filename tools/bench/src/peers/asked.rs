//! Closed loops over clients that are asynchronous.
//!
//! Decides that all that is in flight is asked by tasks of one thread, each asking again when it was answered, as our generator does.
//! Place: below `etcd` and `zookeeper`. Leaves to others: one operation (each peer).

use super::{Ask, Round, histogram};
use crate::trouble::Trouble;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// One operation of a peer.
pub(crate) trait Asked: 'static {
    /// Does it, on the key of that number.
    fn ask(&self, ask: Ask, key: usize) -> impl Future<Output = Result<(), String>>;
}

/// A runtime of one thread.
pub(crate) fn runtime() -> Result<Runtime, Trouble> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Trouble::at("starting the runtime of a client"))
}

/// Asks for `span`, with so many in flight.
pub(crate) fn round<A: Asked>(runtime: &Runtime, client: &Rc<A>, ask: Ask, in_flight: usize, span: Duration) -> Result<Round, Trouble> {
    let begin = Instant::now();
    let tasks = LocalSet::new();
    let loops: Vec<_> = (0..in_flight)
        .map(|key| {
            let client = Rc::clone(client);
            tasks.spawn_local(async move {
                let mut took = Vec::new();
                while begin.elapsed() < span {
                    let from = Instant::now();
                    client.ask(ask, key).await?;
                    took.push(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
                Ok::<_, String>(took)
            })
        })
        .collect();
    let mut took_ns = histogram();
    let wrong = |got: String| Trouble::Answer { while_doing: "asking a peer", expected: "success", got };
    tasks.block_on(runtime, async {
        for one in loops {
            let took = one.await.map_err(|error| wrong(error.to_string()))?.map_err(wrong)?;
            took.into_iter().for_each(|ns| took_ns.saturating_record(ns));
        }
        Ok::<_, Trouble>(())
    })?;
    Ok(Round { operations: took_ns.len(), elapsed: begin.elapsed(), took_ns, cpu_ns: 0 })
}
