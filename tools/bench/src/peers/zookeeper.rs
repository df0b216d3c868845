//! ZooKeeper, one server, by its client.
//!
//! Decides its configuration (defaults, one port, no administration server) and its operations: the lock recipe of its documentation (an
//! ephemeral sequential node, a look at the children, the node's removal), a write, and a read of the session, which may be behind
//! another session's write. Source: ZooKeeper's "Recipes and Solutions" and administrator's guide. Place: a peer.

use super::asked::{self, Asked};
use super::process::{Process, directory, free_port, program};
use super::{Ask, MANY, Round, Service};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// Where Debian puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";

/// ZooKeeper and a client of it.
struct ZooKeeper {
    client: Rc<Nodes>,
    runtime: Runtime,
    process: Process,
}

struct Nodes {
    client: Client,
}

/// Starts it; the inner error says why it is skipped.
pub(crate) fn start(dir: &Path) -> Result<Result<Box<dyn Service>, String>, Trouble> {
    let (Some(java), true) = (program("java"), Path::new(JAR).is_file()) else {
        return Ok(Err("ZooKeeper is not installed (Debian: apt-get install zookeeper): skipped.".to_owned()));
    };
    let (dir, listens) = (directory(dir)?, free_port()?);
    let config = dir.path().join("zoo.cfg");
    let text = format!(
        "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress={}\nadmin.enableServer=false\nmaxClientCnxns=0\n",
        dir.path().join("data").display(),
        listens.port(),
        listens.ip(),
    );
    fs::write(&config, text).map_err(Trouble::at("writing ZooKeeper's configuration"))?;
    let mut command = Command::new(java);
    command.args(["-cp", JAR, MAIN]).arg(config).current_dir(dir.path());
    let process = Process::start(command, dir, listens)?;
    let runtime = asked::runtime()?;
    let opened = runtime.block_on(async {
        let client = Client::connect(&listens.to_string()).await?;
        let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for key in 0..MANY {
            client.create(&format!("/lock-{key}"), b"", &lasting).await?;
            client.create(&format!("/key-{key}"), &[0; WRITTEN], &lasting).await?;
        }
        Ok::<_, Error>(Nodes { client })
    });
    let client = Rc::new(opened.map_err(Trouble::starting("connecting to ZooKeeper"))?);
    Ok(Ok(Box::new(ZooKeeper { client, runtime, process })))
}

impl Nodes {
    async fn lock(&self, key: usize) -> Result<(), Error> {
        let dir = format!("/lock-{key}");
        let own = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let prefix = format!("{dir}/n-");
        let (_, sequence) = self.client.create(&prefix, b"", &own).await?;
        // Held by whoever has the lowest number: nobody else wants this lock.
        let waiting = self.client.list_children(&dir).await?;
        debug_assert_eq!(waiting.len(), 1);
        self.client.delete(&format!("{prefix}{sequence}"), None).await
    }
}

impl Asked for Nodes {
    async fn ask(&self, ask: Ask, key: usize) -> Result<(), String> {
        let done = match ask {
            Ask::Lock => self.lock(key).await,
            Ask::Write => self.client.set_data(&format!("/key-{key}"), &[1; WRITTEN], None).await.map(|_| ()),
            Ask::Read => self.client.get_data(&format!("/key-{key}")).await.map(|_| ()),
        };
        done.map_err(|error| error.to_string())
    }
}

impl Service for ZooKeeper {
    fn name(&self) -> String {
        "ZooKeeper".to_owned()
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<Round, Trouble> {
        let before = self.process.cpu_ns()?;
        let round = asked::round(&self.runtime, &self.client, ask, in_flight, span)?;
        Ok(Round { cpu_ns: self.process.cpu_ns()? - before, ..round })
    }
}
