//! etcd, one member, by its gRPC client.
//!
//! Decides its command line (defaults, ports of its own, no gateway) and its operations: the lock service under one lease, put, and get,
//! which is linearizable. Source: etcd's documentation of its configuration flags and of the v3 API. Place: a peer.

use super::asked::{self, Asked};
use super::process::{Process, directory, free_port, program};
use super::{Ask, MANY, Round, Service};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use etcd_client::{Client, Error, LockOptions};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Seconds of the lease that locks are under; longer than any run.
const TTL_S: i64 = 3_600;

/// etcd and a client of it.
struct Etcd {
    client: Rc<Keys>,
    runtime: Runtime,
    process: Process,
}

struct Keys {
    client: Client,
    lease: i64,
}

/// Starts it; the inner error says why it is skipped.
pub(crate) fn start(dir: &Path) -> Result<Result<Box<dyn Service>, String>, Trouble> {
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
    let process = Process::start(command, dir, clients)?;
    let runtime = asked::runtime()?;
    let opened = runtime.block_on(async {
        let mut client = Client::connect([clients_url], None).await?;
        let lease = client.lease_grant(TTL_S, None).await?.id();
        for key in 0..MANY {
            client.put(format!("key-{key}"), vec![0; WRITTEN], None).await?;
        }
        Ok::<_, Error>(Keys { client, lease })
    });
    let client = Rc::new(opened.map_err(Trouble::starting("connecting to etcd"))?);
    Ok(Ok(Box::new(Etcd { client, runtime, process })))
}

impl Asked for Keys {
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

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<Round, Trouble> {
        let before = self.process.cpu_ns()?;
        let round = asked::round(&self.runtime, &self.client, ask, in_flight, span)?;
        Ok(Round { cpu_ns: self.process.cpu_ns()? - before, ..round })
    }
}
