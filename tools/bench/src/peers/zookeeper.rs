//! ZooKeeper, one server or an ensemble of three, by its client.
//!
//! Decides its configuration (defaults, ports of loopback, no administration server) and its operations: the lock recipe of its documentation (an
//! ephemeral sequential node, a look at the children, the node's removal), a write, and a read of the session, which may be behind
//! another session's write. Source: ZooKeeper's "Recipes and Solutions" and administrator's guide. Place: a peer.

use super::asked::{self, Asked, KeptAlive};
use super::failover::{self, FailoverService};
use super::idle::{self, Sessions, TTL};
use super::process::{Process, directory, free_port, program};
use super::{Ask, MANY, Service, ServiceRound};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// Where Debian puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const NONE: &str = "ZooKeeper is not installed (Debian: apt-get install zookeeper): skipped.";
/// How often a failover is tried.
const TRIES: u32 = 5;
/// The default tick, and the one for failovers; sessions live two of them at least.
const TICK_MS: u32 = 2_000;
const SHORT_TICK_MS: u32 = 200;
const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const ENSEMBLE_MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// Servers of an ensemble, and how long they may take to choose a leader.
const ENSEMBLE: usize = 3;
const ELECTION: Duration = Duration::from_secs(60);

/// ZooKeeper and a client of it.
struct ZooKeeper {
    client: Rc<Nodes>,
    listens: String,
    runtime: Runtime,
    processes: Vec<Process>,
}

struct Nodes {
    client: Client,
}

/// A running ZooKeeper with that tick and where it is asked; the inner error says why it is skipped.
fn started(dir: &Path, tick_ms: u32) -> Result<Result<(Process, String), String>, Trouble> {
    let (Some(java), true) = (program("java"), Path::new(JAR).is_file()) else {
        return Ok(Err(NONE.to_owned()));
    };
    let (dir, listens) = (directory(dir)?, free_port()?);
    let config = dir.path().join("zoo.cfg");
    let text = configuration(tick_ms, &dir.path().join("data"), listens);
    fs::write(&config, text).map_err(Trouble::at("writing ZooKeeper's configuration"))?;
    let mut command = Command::new(java);
    command.args(["-cp", JAR, MAIN]).arg(config).current_dir(dir.path());
    Ok(Ok((Process::start(command, dir, listens)?, listens.to_string())))
}

/// Starts it; the inner error says why it is skipped.
pub(crate) fn start(dir: &Path) -> Result<Result<Box<dyn Service>, String>, Trouble> {
    Ok(match started(dir, TICK_MS)? {
        Ok((process, listens)) => Ok(connected(vec![process], listens)?),
        Err(skipped) => Err(skipped),
    })
}

/// Starts an ensemble; the inner error says why it is skipped.
pub(crate) fn ensemble(dir: &Path) -> Result<Result<Box<dyn Service>, String>, Trouble> {
    Ok(match nodes(dir)? {
        Ok((processes, listen)) => Ok(connected(processes, listen.join(","))?),
        Err(skipped) => Err(skipped),
    })
}

/// The processes of an ensemble, and where each is asked.
type Nodes3 = (Vec<Process>, Vec<String>);

fn nodes(dir: &Path) -> Result<Result<Nodes3, String>, Trouble> {
    let (Some(java), true) = (program("java"), Path::new(JAR).is_file()) else {
        return Ok(Err(NONE.to_owned()));
    };
    let ports = (0..3 * ENSEMBLE).map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
    let servers: String = (1..)
        .zip(ports.chunks(3))
        .map(|(id, ports)| format!("server.{id}={}:{}:{}\n", ports[0].ip(), ports[0].port(), ports[1].port()))
        .collect();
    let mut processes = Vec::new();
    for (id, ports) in (1..).zip(ports.chunks(3)) {
        let (dir, listens) = (directory(dir)?, ports[2]);
        let data = dir.path().join("data");
        let writing = |at: &Path, text: &str| fs::write(at, text).map_err(Trouble::at("writing ZooKeeper's configuration"));
        fs::create_dir(&data).map_err(Trouble::at("making ZooKeeper's directory"))?;
        writing(&data.join("myid"), &format!("{id}\n"))?;
        writing(&dir.path().join("zoo.cfg"), &format!("{}initLimit=10\nsyncLimit=5\n{servers}", configuration(TICK_MS, &data, listens)))?;
        let mut command = Command::new(&java);
        command.args(["-cp", JAR, ENSEMBLE_MAIN]).arg(dir.path().join("zoo.cfg")).current_dir(dir.path());
        processes.push(Process::start(command, dir, listens)?);
    }
    Ok(Ok((processes, ports.chunks(3).map(|ports| ports[2].to_string()).collect())))
}

/// From the kill of an ensemble's leader until a lock is taken; the inner error says why it is skipped.
pub(super) fn leader_lost(dir: &Path, longest: Duration) -> Result<Result<Duration, String>, Trouble> {
    let (mut processes, listen) = match nodes(dir)? {
        Ok(nodes) => nodes,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let wrong = |error: Error| Trouble::starting("taking a lock of ZooKeeper")(error);
    let (runtime, all) = (asked::runtime()?, listen.join(","));
    let own = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let mut client = runtime.block_on(connect(&all)).map_err(wrong)?;
    runtime.block_on(client.create("/before", b"", &own)).map_err(wrong)?;
    let leader = listen.iter().position(|address| leads(address));
    let leader = leader.ok_or(Trouble::Start { step: "looking for ZooKeeper's leader", why: "nobody leads".to_owned() })?;
    drop(processes.remove(leader));
    let begin = Instant::now();
    runtime.block_on(async {
        while begin.elapsed() < longest {
            match client.create("/after", b"", &own).await {
                // By a copy of it that was not answered.
                Ok(_) | Err(Error::NodeExists) => return Ok(Ok(begin.elapsed())),
                Err(Error::SessionExpired | Error::ClientClosed) => client = connect(&all).await.map_err(wrong)?,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        Err(Trouble::Silence { while_doing: "waiting for a lock of ZooKeeper", seconds: longest.as_secs() })
    })
}

/// Whether the server that listens there says that it leads.
fn leads(address: &str) -> bool {
    let asked = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"srvr")?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map(|_| said)
    };
    asked().is_ok_and(|said| said.contains("Mode: leader"))
}

/// A client of these servers, as soon as they have a leader.
async fn connect(listens: &str) -> Result<Client, Error> {
    let begin = Instant::now();
    loop {
        match Client::connect(listens).await {
            Ok(client) => return Ok(client),
            Err(error) if begin.elapsed() > ELECTION => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// A client of these processes, and the nodes that it asks for.
fn connected(processes: Vec<Process>, listens: String) -> Result<Box<dyn Service>, Trouble> {
    let runtime = asked::runtime()?;
    let opened = runtime.block_on(async {
        let client = connect(&listens).await?;
        let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for key in 0..MANY {
            client.create(&format!("/lock-{key}"), b"", &lasting).await?;
            client.create(&format!("/key-{key}"), &[0; WRITTEN], &lasting).await?;
        }
        Ok::<_, Error>(Nodes { client })
    });
    let client = Rc::new(opened.map_err(Trouble::starting("connecting to ZooKeeper"))?);
    Ok(Box::new(ZooKeeper { client, listens, runtime, processes }))
}

fn configuration(tick_ms: u32, data: &Path, listens: SocketAddr) -> String {
    format!(
        "tickTime={tick_ms}\ndataDir={}\nclientPort={}\nclientPortAddress={}\nadmin.enableServer=false\nmaxClientCnxns=0\n",
        data.display(),
        listens.port(),
        listens.ip(),
    )
}

impl ZooKeeper {
    fn cpu_ns(&self) -> Result<u64, Trouble> {
        self.processes.iter().map(Process::cpu_ns).sum()
    }

    /// While others are asked nobody turns the client, and its session is over after some seconds: then it gets another.
    fn connect_anew(&mut self) -> Result<(), Trouble> {
        if self.runtime.block_on(self.client.client.check_stat("/key-0")).is_err() {
            let client = self.runtime.block_on(Client::connect(&self.listens)).map_err(Trouble::starting("connecting to ZooKeeper"))?;
            self.client = Rc::new(Nodes { client });
        }
        Ok(())
    }
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
        if self.processes.len() == 1 { "ZooKeeper".to_owned() } else { format!("ZooKeeper, {} servers", self.processes.len()) }
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble> {
        self.connect_anew()?;
        let before = self.cpu_ns()?;
        let round = asked::round(&self.runtime, &self.client, ask, in_flight, span)?;
        Ok(ServiceRound { cpu_ns: self.cpu_ns()? - before, ..round })
    }
}

/// Sessions that are kept alive, a connection each.
struct ZookeeperConnections {
    kept: KeptAlive,
    listens: String,
    process: Process,
}

/// Starts it for sessions that are only kept alive; the inner error says why it is skipped.
pub(crate) fn sessions(dir: &Path) -> Result<idle::Started, Trouble> {
    Ok(started(dir, TICK_MS)?.and_then(|(process, listens)| {
        let kept = KeptAlive::new().map_err(|error| error.to_string())?;
        Ok(Box::new(ZookeeperConnections { kept, listens, process }) as Box<dyn Sessions>)
    }))
}

impl Sessions for ZookeeperConnections {
    fn name(&self) -> String {
        "ZooKeeper".to_owned()
    }

    fn open(&mut self, wanted: usize, within: Duration) -> Result<usize, Trouble> {
        self.kept.open(wanted, within, || {
            let listens = self.listens.clone();
            async move {
                let client = Client::connector().with_session_timeout(TTL).connect(&listens).await?;
                // The client pings by itself as long as it is there.
                Ok::<_, Error>(async move {
                    let _client = client;
                    std::future::pending::<()>().await;
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

/// A lock whose holder's session is as short as the tick lets.
struct ZookeeperExpiry {
    listens: String,
    runtime: Runtime,
    waiter: Client,
    /// Tries up to now; each has a node of its own, for that of one that failed may still be there.
    tried: u32,
    // Ended last: the clients are connected to it.
    _process: Process,
}

/// Starts it for failovers; the inner error says why it is skipped.
pub(crate) fn failover(dir: &Path) -> Result<failover::Started, Trouble> {
    let (process, listens) = match started(dir, SHORT_TICK_MS)? {
        Ok(started) => started,
        Err(skipped) => return Ok(Err(skipped)),
    };
    let runtime = asked::runtime()?;
    let waiter = runtime.block_on(Client::connect(&listens)).map_err(Trouble::starting("connecting to ZooKeeper"))?;
    Ok(Ok(Box::new(ZookeeperExpiry { listens, runtime, waiter, tried: 0, _process: process })))
}

impl FailoverService for ZookeeperExpiry {
    fn name(&self) -> String {
        format!("ZooKeeper, tick {SHORT_TICK_MS} ms, session {} ms", 2 * SHORT_TICK_MS)
    }

    fn round(&mut self) -> Result<Duration, Trouble> {
        // On a busy machine so short a session may be over before its holder falls silent.
        let mut tries = 1;
        loop {
            match self.expire(&asked::runtime()?) {
                Ok(took) => return Ok(took),
                Err(error) if tries == TRIES => return Err(Trouble::starting("a failover of ZooKeeper")(error)),
                Err(_) => tries += 1,
            }
            let waiter = self.runtime.block_on(Client::connect(&self.listens));
            self.waiter = waiter.map_err(Trouble::starting("connecting to ZooKeeper"))?;
        }
    }
}

impl ZookeeperExpiry {
    /// One holder that falls silent.
    fn expire(&mut self, holder: &Runtime) -> Result<Duration, Error> {
        self.tried += 1;
        let lock = &format!("/failover-{}", self.tried);
        let own = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        // The holder is turned no more from the end of this on: it is silent, and its connection open.
        let _held = holder.block_on(async {
            let lives = Duration::from_millis(u64::from(2 * SHORT_TICK_MS));
            let client = Client::connector().with_session_timeout(lives).connect(&self.listens).await?;
            client.create(lock, b"", &own).await?;
            client.check_stat(lock).await?;
            Ok::<_, Error>(client)
        })?;
        let begin = Instant::now();
        self.runtime.block_on(async {
            let took = loop {
                let (held, watch) = self.waiter.check_and_watch_stat(lock).await?;
                if held.is_some() {
                    watch.changed().await;
                }
                match self.waiter.create(lock, b"", &own).await {
                    Ok(_) => break begin.elapsed(),
                    Err(Error::NodeExists) => {}
                    Err(error) => return Err(error),
                }
            };
            self.waiter.delete(lock, None).await?;
            Ok(took)
        })
    }
}
