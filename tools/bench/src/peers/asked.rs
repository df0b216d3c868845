//! Clients that are asynchronous: closed loops over one, and many sessions that are only kept alive.
//!
//! Decides that all that is in flight is asked by tasks of one thread, each asking again when it was answered, as our generator does.
//! Place: below `etcd` and `zookeeper`. Leaves to others: one operation (each peer).

use super::{Ask, ServiceRound, histogram};
use crate::trouble::Trouble;
use std::cell::Cell;
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
pub(crate) fn round<A: Asked>(
    runtime: &Runtime,
    client: &Rc<A>,
    ask: Ask,
    in_flight: usize,
    span: Duration,
) -> Result<ServiceRound, Trouble> {
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
    Ok(ServiceRound { operations: took_ns.len(), elapsed: begin.elapsed(), took_ns, cpu_ns: 0 })
}

/// Sessions opened at the same time.
const OPENING: usize = 64;
/// Between two looks at how many are open.
const LOOK: Duration = Duration::from_millis(1);

/// Sessions, each kept alive by a task of one thread as long as that is turned.
pub(crate) struct KeptAlive {
    tasks: LocalSet,
    pub(crate) runtime: Runtime,
}

impl KeptAlive {
    pub(crate) fn new() -> Result<Self, Trouble> {
        Ok(Self { tasks: LocalSet::new(), runtime: runtime()? })
    }

    /// Opens as many as it can in that time, at most `wanted`: `open` makes one and gives what keeps it alive. Gives how many; those that
    /// fail are none, and the first of them ends the opening.
    pub(crate) fn open<O, K, E>(&self, wanted: usize, within: Duration, open: impl Fn() -> O) -> Result<usize, Trouble>
    where
        O: Future<Output = Result<K, E>> + 'static,
        K: Future<Output = ()> + 'static,
        E: std::fmt::Display + 'static,
    {
        let (opened, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        self.tasks.block_on(&self.runtime, async {
            let (begin, mut begun) = (Instant::now(), 0);
            loop {
                let why: Option<String> = failed.take();
                let over = begin.elapsed() >= within || opened.get() == wanted;
                match why {
                    Some(why) if opened.get() == 0 => return Err(Trouble::starting("opening sessions of a peer")(why)),
                    Some(_) => return Ok(opened.get()),
                    None if over => return Ok(opened.get()),
                    None => {}
                }
                while begun < wanted && begun < opened.get() + OPENING {
                    begun += 1;
                    let (opened, failed, session) = (Rc::clone(&opened), Rc::clone(&failed), open());
                    self.tasks.spawn_local(async move {
                        match session.await {
                            Ok(keeping) => {
                                opened.set(opened.get() + 1);
                                keeping.await;
                            }
                            Err(error) => failed.set(Some(error.to_string())),
                        }
                    });
                }
                tokio::time::sleep(LOOK).await;
            }
        })
    }

    /// Keeps them alive for `span`.
    pub(crate) fn keep(&self, span: Duration) -> Result<(), Trouble> {
        // Made where the runtime is turned, for its timers are the runtime's.
        self.tasks.block_on(&self.runtime, async { tokio::time::sleep(span).await });
        Ok(())
    }
}
