//! Settings of a client, and how it starts: names resolved, sockets opened, a thread that turns the agent.
//!
//! Decides: defaults that suit an application, and that `connect` tells at once when no server answers.

use crate::client::Client;
use crate::error::{Cause, Error};
use crate::forked::Home;
use crate::hub::{AgentServices, Hub, Inner, SharedHub, UntilOver};
use crate::identity::Identity;
use crate::key_source::{CurrentKey, KeySource};
use crate::roster::RosterKeeper;
use crate::vm_generation::VmGeneration;
use cistern_agent::config::Config;
use cistern_agent::{Agent, Keys};
use cistern_driver::{Address, Clock, DEFAULT_PORT, EventLoop, LoopOptions, PortOptions, Sources, Tap, UdpPort};
use cistern_seal::log::Logged;
use cistern_seal::work::KeyHolder;
use cistern_seal::{Cipher, Entropy, KeySink, PublicKey, SecretKey};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

/// Settings of a new client.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before `connect` or `start`"]
pub struct Builder {
    servers: Vec<String>,
    label: Option<String>,
    state_dir: Option<PathBuf>,
    lease: Option<Duration>,
    config: Config,
    tap: Option<Arc<dyn Tap>>,
    keys: Option<(SecretKey, PublicKey)>,
    key_source: Option<Arc<dyn KeySource>>,
    rosters: Option<Arc<dyn RosterKeeper>>,
    insecure: bool,
    key_log: Option<KeySink>,
}

impl Builder {
    /// Adds an address of the server, as [`Address`] reads it: `host`, `host:port`, `[v6]:port`; several are tried in turn.
    pub fn server(mut self, address: impl Into<String>) -> Self {
        self.servers.push(address.into());
        self
    }

    /// What people see of this agent in listings; by default the host's name and the process id.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Keeps the agent's identity in a directory that no other process uses; otherwise it is fresh and used once.
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(dir.into());
        self
    }

    /// The lease period that the agent asks for, 100 ms to 1 h, instead of that in [`Self::config`]; by default the server's own. The
    /// server gives the nearest within its bounds: [`LeaseView::lease`](crate::LeaseView::lease) shows it when the session is open.
    ///
    /// A short one lets others have this agent's locks soon when it is gone. A long one lets it keep them over an outage or a restart of
    /// the server; where it is longer than the server's own, the agent caches nothing, and each of its locks is recorded before it is
    /// given. Above 1 min, raise [`Config::lease_max`] as well.
    pub fn lease(mut self, period: Duration) -> Self {
        self.lease = Some(period);
        self
    }

    /// All further settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Speaks sealed: the agent proves that it has the key `own`, which an operator of the server has admitted, and takes part only with who
    /// proves to have the key `server`. It never speaks in clear then, whatever else is set.
    pub fn key(mut self, own: SecretKey, server: PublicKey) -> Self {
        self.keys = Some((own, server));
        self
    }

    /// Follows the key of [`Self::key`] when it is rotated: each handshake uses what `source` gives then. Without a source the agent keeps its key for
    /// life, which its server takes for 24 h after a rotation.
    pub fn key_source(mut self, source: Arc<dyn KeySource>) -> Self {
        self.key_source = Some(source);
        self
    }

    /// Follows the cluster's servers: the agent fetches a newer roster when its server has one, and uses the keys and addresses that `keeper`
    /// takes from it at its next handshake. Without a keeper it knows the key of [`Self::key`] alone.
    pub fn rosters(mut self, keeper: Arc<dyn RosterKeeper>) -> Self {
        self.rosters = Some(keeper);
        self
    }

    /// Speaks in clear, with whoever answers, if there is no [`key`](Self::key): in a network in which every host is trusted. Without either the client
    /// does not start. `CISTERN_INSECURE=1` in the environment says the same.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Tells `sink` the keys of each sealed session, as lines of a key log: whoever has them reads captures of the session.
    pub fn key_log(mut self, sink: KeySink) -> Self {
        self.key_log = Some(sink);
        self
    }

    /// Shows every datagram that the agent sends or receives to `tap`: a [`Recorder`](crate::Recorder), to have a capture file.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Starts the agent and opens a session.
    ///
    /// # Errors
    /// As [`Builder::start`], and [`Unreachable`](crate::ErrorKind::Unreachable) or [`Refused`](crate::ErrorKind::Refused) when there is no
    /// session to be had.
    pub fn connect(self) -> Result<Client, Error> {
        let client = self.start()?;
        client.ping().wait()?;
        Ok(client)
    }

    /// Starts the agent; it opens a session when the first operation needs one.
    ///
    /// # Errors
    /// [`Configuration`](crate::ErrorKind::Configuration), [`Unreachable`](crate::ErrorKind::Unreachable) for a host that cannot be found, or
    /// [`Internal`](crate::ErrorKind::Internal).
    pub fn start(mut self) -> Result<Client, Error> {
        if self.servers.is_empty() {
            return Err(Cause::NoServer.into());
        }
        if self.keys.is_none() && !self.insecure && !told_insecure() {
            return Err(Cause::NoKey.into());
        }
        let addresses = resolve(&self.servers)?;
        let identity = match &self.state_dir {
            Some(dir) => Identity::durable(dir)?,
            None => Identity::fresh()?,
        };
        let label = self.label.take().unwrap_or_else(default_label);
        self.config.lease = self.lease.unwrap_or(self.config.lease);
        let clock = Clock::new().map_err(Error::start)?;
        let seed = cistern_driver::seed().map_err(Error::start)?;
        let give_up_after = self.config.give_up_after;
        let agent = identity.shown(self.keys.as_ref().map(|(own, _)| own.public()));
        let name = format!("agent {label}/{}", agent.incarnation);
        let core_identity = cistern_agent::Identity {
            agent: identity.agent,
            incarnation: identity.incarnation,
            boot: identity.boot,
            label: label.into_bytes(),
        };
        let servers = self.servers.join(", ");
        let ports = open_ports(&addresses)?;
        let sources = Sources::of(addresses.clone());
        if let Err(error) = &sources {
            log::debug!("{name}: the system does not tell when addresses change: {error}");
        }
        let spin = self.config.spin;
        let core = Agent::new(self.config, core_identity, *seed, addresses).map_err(|e| Cause::Settings(e.into()))?;
        let mut core = match self.keys {
            Some((own, server)) => {
                let holder = CurrentKey { holder: KeyHolder::new(own, ephemeral), source: self.key_source };
                let keys = match self.key_log {
                    Some(sink) => Keys::new(Logged::new(holder, sink), server),
                    None => Keys::new(holder, server),
                };
                let of_roster = self.rosters.as_ref().map_or_else(Vec::new, |keeper| keeper.keys());
                core.sealed(keys.with_servers(&of_roster), Cipher::default())
            }
            None => core,
        };
        if let Some(keeper) = &self.rosters {
            core.know_roster(clock.now(), keeper.version());
        }
        let hub = Arc::new(Mutex::new(Hub::new(core, clock.clone(), name.clone(), servers.clone(), give_up_after)));
        let services = AgentServices {
            sources: sources.ok(),
            generation: VmGeneration::here(),
            rosters: self.rosters,
            hub: Arc::downgrade(&hub),
            handle: None,
            judging: Weak::new(),
        };
        let options = LoopOptions { name: name.clone(), tap: self.tap, spin, ..LoopOptions::default() };
        let mut event_loop = EventLoop::new(ports, SharedHub(Arc::clone(&hub)), services, clock.clone(), options).map_err(Error::start)?;
        let (handle, stats) = (event_loop.handle(), event_loop.stats());
        let until_over = UntilOver(Arc::clone(&hub));
        std::thread::Builder::new()
            .name("cistern-agent".to_owned())
            .spawn(move || {
                // Held for the life of the agent: no other process may be the same agent meanwhile.
                let _identity = identity;
                let _until_over = until_over;
                if let Err(error) = event_loop.run() {
                    log::error!("{name}: {error}");
                }
            })
            .map_err(Error::start)?;
        let user = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let inner = Inner { home: Home::here(), hub, clock, handle, servers, agent, user, give_up_after, stats };
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// Whether the environment allows what is not sealed.
fn told_insecure() -> bool {
    std::env::var_os("CISTERN_INSECURE").is_some_and(|value| value == "1")
}

/// For one handshake.
fn ephemeral() -> Entropy {
    //= docs/sealed.md#the-handshake
    //# An ephemeral key MUST be drawn from the system's random source for its handshake.
    Entropy::from_bytes(fresh_seed())
}

/// The system's random source was there at the start; an agent must not go on without it.
pub(crate) fn fresh_seed() -> Zeroizing<[u8; 32]> {
    cistern_driver::seed().expect("the system's random source does not go away")
}

fn resolve(names: &[String]) -> Result<Vec<SocketAddr>, Error> {
    let mut addresses = Vec::new();
    for name in names {
        addresses.extend(name.parse::<Address>().and_then(|address| address.resolve(Some(DEFAULT_PORT)))?);
    }
    Ok(addresses)
}

/// One socket for each family that the server has addresses of.
fn open_ports(addresses: &[SocketAddr]) -> Result<Vec<UdpPort>, Error> {
    let mut ports = Vec::new();
    let any = [(Ipv4Addr::UNSPECIFIED, 0).into(), SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
    for local in any {
        if addresses.iter().any(|address| address.is_ipv4() == local.is_ipv4()) {
            ports.push(UdpPort::open(local, &PortOptions::default()).map_err(Error::start)?);
        }
    }
    Ok(ports)
}

fn default_label() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "host".to_owned());
    let mut label = format!("{host}:{}", std::process::id());
    if label.len() > cistern_wire::limits::LABEL_MAX {
        // Keep the end: it tells processes of one host apart.
        label = label.chars().rev().take(cistern_wire::limits::LABEL_MAX).collect::<Vec<_>>().into_iter().rev().collect();
    }
    label
}
