//! etcd, one member, by its gRPC client.
//!
//! Decides its command line (defaults, ports of its own, no gateway) and its operations: the lock service under one lease, put, and get,
//! which is linearizable. Source: etcd's documentation of its configuration flags and of the v3 API. Place: a peer.

use super::asked::{self, Asked, KeptAlive};
use super::failover::{self, FailoverService};
use super::idle::{self, Sessions, TTL};
use super::process::{Process, directory, free_port, program};
use super::{Ask, MANY, Service, ServiceRound};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use etcd_client::{Client, Error, LockOptions};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Seconds of the lease that locks are under; longer than any run.
const TTL_S: i64 = 3_600;

/// etcd and a client of it.
struct Etcd {
    client: Rc<EtcdKeys>,
    runtime: Runtime,
    process: Process,
}

/// Keys that are there, and a lease that locks are under.
pub(super) struct EtcdKeys {
    client: Client,
    lease: i64,
}

impl EtcdKeys {
    /// Puts the keys into the etcd at this address.
    pub(super) async fn connect(url: String) -> Result<Self, Error> {
        let mut client = Client::connect([url], None).await?;
        let lease = client.lease_grant(TTL_S, None).await?.id();
        for key in 0..MANY {
            client.put(format!("key-{key}"), vec![0; WRITTEN], None).await?;
        }
        Ok(Self { client, lease })
    }
}

/// A running etcd and where it is asked; the inner error says why it is skipped.
fn started(dir: &Path) -> Result<Result<(Process, String), String>, Trouble> {
    let Some(program) = program("etcd") else {
        return Ok(Err("etcd is not installed (Debian: apt-get install etcd-server): skipped.".to_owned()));
    };
    let (dir, clients, peers) = (directory(dir)?, free_port()?, free_port()?);
    let (clients_url, peers_url) = (format!("http://{clients}"), format!("http://{peers}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(dir.path().join("data"));
    command.args(["--name", "bench", "--log-level", "error", "--initial-cluster", &format!("bench={peers_url}")]);
    command.args(["--listen-client-urls", &clients_url, "--advertise-client-urls", &clients_url]);
    command.args(["--listen-peer-urls", &peers_url, "--initial-advertise-peer-urls", &peers_url]);
    Ok(Ok((Process::start(command, dir, clients)?, clients_url)))
}

/// Starts it; the inner error says why it is skipped.
pub(crate) fn start(dir: &Path) -> Result<Result<Box<dyn Service>, String>, Trouble> {
    let (process, clients_url) = match started(dir)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let runtime = asked::runtime()?;
    let opened = runtime.block_on(EtcdKeys::connect(clients_url));
    let client = Rc::new(opened.map_err(Trouble::starting("connecting to etcd"))?);
    Ok(Ok(Box::new(Etcd { client, runtime, process })))
}

impl Asked for EtcdKeys {
    async fn ask(&self, ask: Ask, key: usize) -> Result<(), String> {
        let mut client = self.client.clone();
        let done = match ask {
            Ask::Lock => match client.lock(format!("lock-{key}"), Some(LockOptions::new().with_lease(self.lease))).await {
                Ok(locked) => client.unlock(locked.key()).await.map(|_| ()),
                Err(error) => Err(error),
            },
            Ask::Write => client.put(format!("key-{key}"), vec![1; WRITTEN], None).await.map(|_| ()),
            Ask::Read => client.get(format!("key-{key}"), None).await.map(|_| ()),
        };
        done.map_err(|error| error.to_string())
    }
}

impl Service for Etcd {
    fn name(&self) -> String {
        "etcd".to_owned()
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble> {
        let before = self.process.cpu_ns()?;
        let round = asked::round(&self.runtime, &self.client, ask, in_flight, span)?;
        Ok(ServiceRound { cpu_ns: self.process.cpu_ns()? - before, ..round })
    }
}

/// Leases that are kept alive, all by one connection.
struct Leases {
    kept: KeptAlive,
    client: Client,
    process: Process,
}

/// Starts it for leases that are only kept alive; the inner error says why it is skipped.
pub(crate) fn sessions(dir: &Path) -> Result<idle::Started, Trouble> {
    let (process, url) = match started(dir)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let kept = KeptAlive::new()?;
    let client = kept.runtime.block_on(Client::connect([url], None)).map_err(Trouble::starting("connecting to etcd"))?;
    Ok(Ok(Box::new(Leases { kept, client, process })))
}

impl Sessions for Leases {
    fn name(&self) -> String {
        "etcd".to_owned()
    }

    fn open(&mut self, wanted: usize, within: Duration) -> Result<usize, Trouble> {
        let client = &self.client;
        self.kept.open(wanted, within, || {
            let mut client = client.clone();
            async move {
                let seconds = i64::try_from(TTL.as_secs()).unwrap_or(i64::MAX);
                let lease = client.lease_grant(seconds, None).await?.id();
                let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
                Ok::<_, Error>(async move {
                    loop {
                        tokio::time::sleep(TTL / 3).await;
                        if keeper.keep_alive().await.is_err() || !matches!(answers.message().await, Ok(Some(_))) {
                            return;
                        }
                    }
                })
            }
        })
    }

    fn keep(&mut self, span: Duration) -> Result<(), Trouble> {
        self.kept.keep(span)
    }

    fn used(&self) -> Result<(u64, u64), Trouble> {
        self.process.used()
    }
}

/// A lock whose holder's lease is as short as etcd lets.
struct EtcdExpiry {
    url: String,
    runtime: Runtime,
    waiter: Client,
    // Ended last: the clients are connected to it.
    _process: Process,
}

/// Starts it for failovers; the inner error says why it is skipped.
pub(crate) fn failover(dir: &Path) -> Result<failover::Started, Trouble> {
    let (process, url) = match started(dir)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let runtime = asked::runtime()?;
    let waiter = runtime.block_on(Client::connect([url.clone()], None)).map_err(Trouble::starting("connecting to etcd"))?;
    Ok(Ok(Box::new(EtcdExpiry { url, runtime, waiter, _process: process })))
}

impl FailoverService for EtcdExpiry {
    fn name(&self) -> String {
        "etcd, its shortest TTL".to_owned()
    }

    fn round(&mut self) -> Result<Duration, Trouble> {
        const LOCK: &str = "failover";
        let wrong = |error: Error| Trouble::starting("a failover of etcd")(error);
        // Turned no more from the end of this on: the holder is silent, and its connection open.
        let holder = asked::runtime()?;
        let _held = holder
            .block_on(async {
                let mut client = Client::connect([self.url.clone()], None).await?;
                let lease = client.lease_grant(1, None).await?.id();
                client.lock(LOCK, Some(LockOptions::new().with_lease(lease))).await?;
                let keeping = client.lease_keep_alive(lease).await?;
                Ok::<_, Error>((client, keeping))
            })
            .map_err(wrong)?;
        let begin = Instant::now();
        self.runtime
            .block_on(async {
                let lease = self.waiter.lease_grant(TTL_S, None).await?.id();
                let locked = self.waiter.lock(LOCK, Some(LockOptions::new().with_lease(lease))).await?;
                let took = begin.elapsed();
                self.waiter.unlock(locked.key()).await?;
                Ok::<_, Error>(took)
            })
            .map_err(wrong)
    }
}
