//! `cisternd`: the metadata server as a process.
//!
//! Decides: what is checked before anything is opened (where the store is to be, who could reach an unauthenticated server), the
//! order in which things are opened, and what the loop's guests are: the store and the control socket.
//! Place in the walk: around it; `cistern_driver::EventLoop` turns the server. Implements `wire-spec.md` section 11.8 (plain mode).
//! Invariant: one server to a state directory, for the life of the process (section 11.7); a store that failed ends the process before
//! anything more is sent.
//! Leaves to others: the protocol (`cistern-server`), what the control socket answers (`server_control`).

mod backups;
mod in_force;
mod kept;
mod operators;
mod revoked;
mod sealing;
mod state;

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_IN_USE, EXIT_SOFTWARE, EXIT_STORE};
use crate::local::Failure;
use crate::metrics::{Port, Publisher, Snapshot};
use crate::{capture, key_log, logging, places, settings, show, signals};
use cistern_client::{Address, DEFAULT_PORT};
use cistern_credentials::ServerKeys;
use cistern_driver::seed;
use cistern_driver::{
    Clock, ControlLimits, ControlServer, Ended, EventLoop, Handle, LoopOptions, Owned, PortOptions, Services, Stats, UdpPort,
};
use cistern_driver::{OpenError, Registry, Token};
use cistern_link::Instant;
use cistern_seal::KeySink;
use cistern_seal::key::Role;
use cistern_server::{Config, Server};
use cistern_text::{duration, size};
use cistern_wire::StoreId;
use clap::Args;
use in_force::InForce;
use kept::{Bell, Kept};
use operators::{Around, Operators};
use revoked::RevokedLog;
use sealing::{Sealing, read_keys_of};
use serde_json::json;
use state::StateDir;
use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the server is told the wall clock anew, as far as it is awake: it may be set, and files have times.
const WALL_CLOCK_PERIOD: Duration = Duration::from_secs(60);

pub(crate) const SERVE_HELP: &str = "\
Examples:
  cisternd init                                             makes store and keys, once; see its --help
  cisternd                                                  serves them
  cisternd --listen 10.0.0.1:7311                           for other hosts, which join (cistern join --help)
  cisternd --insecure                                       in clear, in a network in which every host is trusted
  cisternd --volatile --new-cluster --insecure              to try it out: everything in memory
  cisternd --store DIR --pcap server.pcap                   with every datagram in a capture file, for cistern-dump

CISTERN_LOG=LEVEL says what is logged to standard error: off, error, warn, info (the default), debug, trace; also by crate: \
CISTERN_LOG=warn,cistern_server=debug

Exit status:
  0   ended by a signal
  1   cannot serve: an address or a control socket cannot be used
  2   wrong usage or settings
  65  --store: the store is damaged, or the directory is a backup or something else
  66  --store: there is no store
  70  a defect of cistern itself
  74  the store could not be read or written; nothing acknowledged is lost
  75  --store: another process has the store, or has taken it (etcd)
  76  --store: a newer version of cistern has written the store
  77  --store: no permission to read and write the store, or unreliable file locks on its file system";

// No doc comment: it would become the help of `cisternd`.
#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    /// Address to listen on (host, host:port, [v6]:port), with all addresses of a name; repeatable
    #[arg(long, short = 'l', value_name = "ADDRESS", default_values_t = [Address::from(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))])]
    pub(crate) listen: Vec<Address>,
    /// Directory of the store, on a local file system, or etcd://HOST:PORT,.../PREFIX (docs/store-etcd.md); else CISTERN_STORE names it, else
    /// it is where `cisternd init` makes it
    #[arg(long, value_name = "STORE", conflicts_with = "volatile")]
    pub(crate) store: Option<PathBuf>,
    /// Keep everything in memory: the store is empty after each start
    #[arg(long)]
    pub(crate) volatile: bool,
    /// With --volatile: grant locks at once, since no agent holds locks of an earlier server. Otherwise the server first waits for the
    /// longest lease
    #[arg(long)]
    pub(crate) new_cluster: bool,
    /// Disk quota of the store, at least 256M: above it only reads, locks and removals are served, until 1/32 of it is free again
    #[arg(long, value_parser = store_limit, value_name = "SIZE", conflicts_with = "volatile")]
    pub(crate) store_limit: Option<u64>,
    /// Free space to keep on the store's file system, at least 192M: below it only reads, locks and removals are served, until 1/8 more
    /// is free
    #[arg(long, value_parser = store_reserve, default_value = "256M", value_name = "SIZE")]
    pub(crate) store_reserve: u64,
    /// Speak in clear, with everybody who can send datagrams to the server, although it may have a key
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Append the keys of sealed sessions to a file of this user's alone: whoever has it reads captures of them (cistern-dump --key-log)
    #[arg(long, value_name = "FILE")]
    pub(crate) key_log: Option<PathBuf>,
    /// State directory: the control socket. Default: /var/lib/cistern/server for root; for others $XDG_STATE_HOME/cistern/server
    /// (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/server.sock
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Settings file (TOML); else ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml, if there is one
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Lease period τ of agents that request none
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease: Option<Duration>,
    /// Shortest lease period that an agent may request
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease_min: Option<Duration>,
    /// Longest lease period that an agent may request
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) lease_max: Option<Duration>,
    /// Bound δ on the relative rate of any two clocks
    #[arg(long, value_name = "FRACTION")]
    pub(crate) delta: Option<f64>,
    /// Delivery timeout Td
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) delivery_timeout: Option<Duration>,
    /// Most sessions
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_sessions: Option<u32>,
    /// Keep when each agent's key was heard last, in memory and to the minute, and show it in `cistern admin agents`
    #[arg(long)]
    pub(crate) last_seen: bool,
    /// Serve metrics in the Prometheus text format at http://ADDRESS/metrics (host:port, [v6]:port; a port alone is one of 127.0.0.1)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<Address>,
    /// Print one line of JSON with the addresses when ready
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

fn store_limit(text: &str) -> Result<u64, String> {
    size(text)?
        .checked_sub(256 << 20)
        .map(|more| more + (256 << 20))
        .ok_or_else(|| "must be at least 256M: journals alone may take half of that".to_owned())
}

/// What the engine may need for a while when the last commit has found no room: tables of what is in memory, and merging the newest ones.
const RESERVE_MIN: u64 = 192 << 20;

fn store_reserve(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= RESERVE_MIN {
        return Ok(bytes);
    }
    Err("must be at least 192M: the store needs as much for a while to write what it has taken in, and fails without it".to_owned())
}

impl Run for Serve {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn is_daemon(&self) -> bool {
        true
    }

    fn run(&self, _: &mut Ctx) -> Result<(), Failure> {
        refuse_no_choice(self)?;
        serve(&self.clone().with_store(env::var_os("CISTERN_STORE"))?)
    }
}

impl Serve {
    /// With the store that the environment names, or the one that `cisternd init` made, if no flag says where the store is to be. To clap a variable
    /// is as good as a flag: it would conflict with --volatile.
    fn with_store(self, named: Option<OsString>) -> Result<Self, Failure> {
        if self.volatile || self.store.is_some() {
            return Ok(self);
        }
        if let Some(named) = named.filter(|dir| !dir.is_empty()) {
            return Ok(Self { store: Some(named.into()), ..self });
        }
        let made = places::store(None)?;
        if !made.exists() {
            return Err(Failure::usage(format!(
                "there is no store in {}: `cisternd init` makes it, and keys; --store DIR names another one, --volatile keeps everything in memory",
                made.display()
            )));
        }
        Ok(Self { store: Some(made), ..self })
    }
}

/// Runs a server until it is asked to end.
fn serve(args: &Serve) -> Result<(), Failure> {
    capture::start(args.pcap.as_deref())?;
    let listen = resolved(&args.listen)?;
    let settings = settings::load(args.config.as_deref())?;
    let config = settings.server_config(args)?;
    logging::adopt(&settings.log_filter());
    let in_force = InForce::new(args, &settings, &config);
    let state = StateDir::hold(args.state.as_deref())?;
    let keys = read_keys_of(state.path(), args.insecure)?;
    refuse_without_key(args, &listen, keys.is_some(), state.path())?;
    let revoked = RevokedLog::open(state.path(), keys.is_some() || !args.volatile)?;
    let ports = open_ports(&listen)?;
    let control = ControlServer::bind(state.socket(), ControlLimits::default()).map_err(|e| failed("CONTROL", &e))?;
    let metrics = args.metrics.as_ref().map(listen_for_metrics).transpose()?;
    let bell = Bell::default();
    let fresh = seed().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
    let store = Kept::open(args, fresh.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id)), &bell)?;
    let key_log = key_log::open(args.key_log.as_deref())?;
    let public = keys.as_ref().and_then(|keys| keys.keys.first()).map(|key| key.public().to_text(Role::Server));
    let mut event_loop = set_up(config, ports, control, store, bell, revoked, (keys.as_ref(), state.path(), key_log.as_ref()))?;
    event_loop.services_mut().in_force = Arc::clone(&in_force);
    let keys_in_force = event_loop.services_mut().sealing.as_ref().map(Sealing::in_force);
    let handle = event_loop.handle();
    let metrics_address = metrics.as_ref().map(Port::address);
    event_loop.services_mut().metrics = metrics.map(|port| port.serve(handle.clone())).transpose()?;
    let again = handle.clone();
    signals::at_end_or_reload(
        move || handle.stop(),
        move || {
            in_force.reload();
            keys_in_force.iter().for_each(|keys| keys.reload());
            again.wake();
        },
    )?;
    let listen = event_loop.local_addrs().collect();
    event_loop.services_mut().announcement =
        Some(Announcement { json: args.json, listen, metrics: metrics_address, control: state.socket().to_path_buf(), key: public });
    match event_loop.run() {
        Ok(Ended::Stopped) => Ok(()),
        Ok(Ended::ByServices) => event_loop.services_mut().failure.take().map_or(Ok(()), Err),
        Err(e) => Err(Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string())),
    }
}

fn failed(code: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(code, EXIT_FAILED, error.to_string())
}

fn refuse_no_choice(args: &Serve) -> Result<(), Failure> {
    if args.new_cluster && !args.volatile {
        return Err(Failure::usage("--new-cluster is for --volatile; a store in a directory is told so by `cisternd init --new-cluster`"));
    }
    Ok(())
}

/// The addresses of each name to listen on.
fn resolved(listen: &[Address]) -> Result<Vec<Vec<SocketAddr>>, Failure> {
    let of = |address: &Address| address.resolve(Some(DEFAULT_PORT)).map_err(|e| Failure::usage(format!("--listen {e}")));
    listen.iter().map(of).collect()
}

/// Without a key anybody who can send datagrams to the server can take part, on loopback every user of the host.
fn refuse_without_key(args: &Serve, listen: &[Vec<SocketAddr>], sealed: bool, state: &Path) -> Result<(), Failure> {
    if sealed {
        return Ok(());
    }
    if !args.insecure {
        return Err(Failure::usage(format!(
            "there is no key in {}: run `cisternd init`, which makes it; or give --insecure, with which everybody who can send datagrams to the server \
             takes part",
            state.display()
        )));
    }
    if let Some(open) = listen.iter().flatten().find(|address| !address.ip().is_loopback()) {
        log::warn!("{open}: without a key, and therefore open to everybody who can send datagrams to it (--insecure)");
    }
    Ok(())
}

/// Metrics name no agent and no file, but anybody who reaches the port can ask for them.
fn listen_for_metrics(address: &Address) -> Result<Port, Failure> {
    let addresses = address.resolve(None).map_err(|e| Failure::usage(format!("--metrics {e}")))?;
    if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        log::warn!("metrics on {open} are open to everybody who can reach it: let only your monitoring through to that port");
    }
    Port::listen(&addresses)
}

/// A socket for each address; of a name that has several, those that this computer can have are enough.
fn open_ports(listen: &[Vec<SocketAddr>]) -> Result<Vec<UdpPort>, Failure> {
    let mut ports = Vec::new();
    let mut named = HashSet::new();
    for addresses in listen {
        let (mut opened, mut lacking) = (false, None);
        for address in addresses {
            // Named twice is meant once; with port 0 every one is another.
            if address.port() != 0 && !named.insert(*address) {
                opened = true;
                continue;
            }
            match UdpPort::open(*address, &PortOptions::default()) {
                Ok(port) => {
                    opened = true;
                    ports.push(port);
                }
                // `localhost` where there is no IPv6, say.
                Err(e @ (OpenError::NotLocal { .. } | OpenError::NoFamily { .. })) => lacking = lacking.or(Some(e)),
                Err(e) => return Err(failed("ADDRESS", &e)),
            }
        }
        if let Some(e) = lacking {
            if !opened {
                return Err(failed("ADDRESS", &e));
            }
            log::info!("{e}; the name's other addresses are listened on");
        }
    }
    Ok(ports)
}

type ServerLoop = EventLoop<Owned<Server>, ServerServices>;

fn set_up(
    config: Config,
    ports: Vec<UdpPort>,
    control: ControlServer,
    (store, id): (Kept, StoreId),
    bell: Bell,
    revoked: RevokedLog,
    (keys, state, key_log): (Option<&ServerKeys>, &Path, Option<&KeySink>),
) -> Result<ServerLoop, Failure> {
    let internal = |e: &dyn std::error::Error| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string());
    let clock = Clock::new().map_err(|e| internal(&e))?;
    //= wire-spec.md#11-7-restart-and-recovery
    //# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no earlier
    //# process could send.
    let now = clock.now();
    let name = format!("server {:.8}", id.to_string());
    let options = LoopOptions { name, tap: capture::tap(), spin: config.spin, ..LoopOptions::default() };
    let mut server =
        Server::new(now, wall_clock(), id, config, seed().map_err(|e| internal(&e))?).map_err(|e| Failure::usage(e.to_string()))?;
    revoked.tell(&mut server, now);
    let (sealing, server) = match keys {
        Some(keys) => Sealing::start(keys, state, key_log, server, &bell, now).map(|(sealing, server)| (Some(sealing), server))?,
        None => (None, server),
    };
    let operators = Operators::new(control, bell.clone());
    let daemon = ServerServices {
        store,
        bell,
        operators,
        revoked,
        sealing,
        stats: Arc::default(),
        metrics: None,
        wall_clock_told: now,
        in_force: Arc::default(),
        clock: clock.clone(),
        announcement: None,
        failure: None,
    };
    let mut event_loop = EventLoop::new(ports, Owned(server), daemon, clock, options).map_err(|e| failed("ADDRESS", &e))?;
    event_loop.services_mut().stats = event_loop.stats();
    Ok(event_loop)
}

/// Nanoseconds since 1970.
fn wall_clock() -> i64 {
    let since = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(span) => since(span),
        Err(before) => -since(before.duration()),
    }
}

/// Where the server is found; told when it answers, so that whoever waits for that is not dropped as `starting`.
struct Announcement {
    json: bool,
    listen: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    control: PathBuf,
    /// The public key of a server that speaks sealed.
    key: Option<String>,
}

impl Announcement {
    fn tell(self) -> Result<(), Failure> {
        let Self { json, listen, metrics, control, key } = self;
        if json {
            // A path that is not UTF-8 is shown as well as JSON can; who chose it knows it.
            let control = control.to_string_lossy().into_owned();
            return show::json(&json!({ "ready": true, "listen": listen, "control": control, "metrics": metrics, "key": key }));
        }
        if let Some(metrics) = metrics {
            log::info!("metrics at http://{metrics}/metrics");
        }
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        match key {
            Some(key) => log::info!("sealed: this server has the key {key}, and speaks with agents that an operator admitted"),
            None => log::info!("in clear: nothing is encrypted, and no agent has to prove who it is"),
        }
        log::info!("listening on {}, control socket {}", listen.join(", "), control.display());
        Ok(())
    }
}

/// The guests of the server's loop: its store and its control socket.
struct ServerServices {
    store: Kept,
    bell: Bell,
    operators: Operators,
    revoked: RevokedLog,
    sealing: Option<Sealing>,
    stats: Arc<Stats>,
    metrics: Option<Publisher>,
    wall_clock_told: Instant,
    in_force: Arc<InForce>,
    clock: Clock,
    /// What is told once the server answers.
    announcement: Option<Announcement>,
    /// Why the loop was ended.
    failure: Option<Failure>,
}

impl Services<Server> for ServerServices {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        // Registered once, so it is empty.
        let _ = self.bell.set(handle.clone());
        self.operators.register(registry)
    }

    fn on_ready(&mut self, server: &mut Server, now: Instant, token: Token) {
        let Self { stats, store, in_force, operators, .. } = self;
        operators.on_ready(token, server, &Around { now, stats, store, in_force });
    }

    fn between_rounds(&mut self, server: &mut Server) {
        self.store.hand_over_early(server);
        if let Some(sealing) = &mut self.sealing {
            sealing.hand_over(server);
        }
    }

    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        if now.since(self.wall_clock_told) >= WALL_CLOCK_PERIOD {
            self.wall_clock_told = now;
            // What it showed at `now`: both are read here, and the turn may have taken its time since.
            let since = i64::try_from(self.clock.now().since(now).as_nanos()).unwrap_or(0);
            server.set_wall_clock(now, wall_clock() - since);
        }
        if let Some(config) = self.in_force.take() {
            server.adopt(now, &config);
        }
        if let Some(sealing) = &mut self.sealing {
            sealing.serve(server, now);
        }
        let Self { stats, store, in_force, operators, .. } = self;
        operators.take_lines(server, &Around { now, stats, store, in_force });
        self.store.serve(server, now);
        if let Err(failure) = self.revoked.unite_once(server) {
            self.failure = Some(failure);
            return ControlFlow::Break(());
        }
        self.operators.tell(server, now, &mut self.revoked);
        if let Some(metrics) = &self.metrics {
            metrics.publish(|| Snapshot { figures: server.figures(now), driver: self.stats.read(), store: self.store.stats() });
        }
        if let Some(why) = server.failure() {
            let (code, exit) = if self.store.was_superseded() { ("STORE_IN_USE", EXIT_IN_USE) } else { ("STORE", EXIT_STORE) };
            self.failure = Some(Failure::new(code, exit, why));
            return ControlFlow::Break(());
        }
        //= wire-spec.md#3-5-validation-and-drops
        //# A server that announces by whatever means that it is ready MUST answer from then on.
        if server.is_serving()
            && let Some(Err(failure)) = self.announcement.take().map(Announcement::tell)
        {
            self.failure = Some(failure);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Cisternd;
    use clap::Parser;

    fn refusal(flags: &[&str]) -> Option<String> {
        let args = Cisternd::try_parse_from(["cisternd"].iter().chain(flags)).unwrap().serve;
        refuse_no_choice(&args)
            .and_then(|()| refuse_without_key(&args, &resolved(&args.listen)?, false, Path::new("/state")))
            .err()
            .map(|failure| failure.message)
    }

    #[test]
    fn without_a_key_nothing_is_served_unless_told_otherwise() {
        for address in ["127.0.0.1:0", "[::1]:7311", "localhost", "4096", "0.0.0.0:7311", "10.0.0.1:7311"] {
            let flags = ["--volatile", "--listen", address];
            let told = refusal(&flags).unwrap();
            assert!(["/state", "cisternd init", "--insecure"].iter().all(|part| told.contains(part)), "{address}: {told}");
            assert_eq!(refusal(&[flags.as_slice(), &["--insecure"]].concat()), None, "{address}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_a_store_that_nobody_names_must_be_there() {
        assert!(Cisternd::try_parse_from(["cisternd", "--store", "/x", "--volatile"]).is_err());
        let store = |flags: &[&str], named: &str| {
            let serve = Cisternd::try_parse_from(["cisternd"].iter().chain(flags)).unwrap().serve;
            serve.with_store(Some(named.into())).unwrap().store
        };
        assert_eq!((store(&["--volatile"], "/e"), store(&["--store", "/x"], "/e")), (None, Some("/x".into())));
        assert_eq!(store(&[], "/e"), Some("/e".into()));
        assert!(refusal(&["--store", "/x", "--new-cluster"]).unwrap().contains("cisternd init"));
    }

    #[test]
    fn an_address_named_twice_is_opened_once() {
        let free = UdpPort::open(SocketAddr::from(([127, 0, 0, 1], 0)), &PortOptions::default()).unwrap().local_addr();
        assert_eq!(open_ports(&[vec![free], vec![free, free]]).unwrap().len(), 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(open_ports(&[vec![any], vec![any]]).unwrap().len(), 2);
    }

    #[test]
    fn of_a_name_those_addresses_are_enough_that_this_computer_has() {
        // Reserved for documentation (RFC 5737), so nobody's.
        let (here, elsewhere) = (SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([192, 0, 2, 1], 0)));
        assert_eq!(open_ports(&[vec![elsewhere, here]]).unwrap().len(), 1);
        assert!(open_ports(&[vec![here], vec![elsewhere]]).err().unwrap().message.contains("192.0.2.1"));
    }

    #[test]
    fn an_address_in_use_is_told_by_name() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let failure = open_ports(&[vec![address]]).err().unwrap();
        assert!(failure.message.contains(&address.to_string()) && failure.message.contains("in use"), "{}", failure.message);
    }

    #[test]
    fn a_store_has_room_for_its_journals() {
        assert_eq!((store_limit("256M"), store_limit("255M").is_err()), (Ok(256 << 20), true));
        assert_eq!((store_reserve("192M"), store_reserve("191M").is_err()), (Ok(192 << 20), true));
    }
}
