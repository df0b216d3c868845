//! `cisternd`: the metadata server as a process.
//!
//! Decides: what is checked before anything is opened (where the store is to be, who could reach an unauthenticated server), the
//! order in which things are opened, and what the loop's guests are: the store and the control socket.
//! Place in the walk: around it; `cistern_driver::EventLoop` turns the server. Implements `wire-spec.md` section 11.8 (plain mode).
//! Invariant: one server to a state directory, for the life of the process (section 11.7); a store that failed ends the process before
//! anything more is sent.
//! Leaves to others: the protocol (`cistern-server`), what the control socket answers (`server_control`).

mod alone;
mod announcement;
mod backups;
mod group;
mod guests;
mod in_force;
mod kept;
mod listening;
mod operators;
mod revoked;
mod sealing;
mod state;

use super::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::group::GroupList;
use crate::local::Failure;
use crate::metrics::Port;
use crate::{capture, key_log, logging, on_etcd, places, settings, signals};
use announcement::Announcement;
use backups::Backups;
use cistern_client::{Address, DEFAULT_PORT};
use cistern_driver::{Clock, ControlLimits, ControlServer, Ended, EventLoop, Handle, Owned, Services, seed};
use cistern_link::Machine;
use cistern_seal::key::Role;
use cistern_text::{duration, size};
use cistern_wire::StoreId;
use clap::Args;
use group::{Member, Stop};
use guests::ServerGuests;
use in_force::InForce;
use kept::{Bell, Kept};
use listening::{open_ports, resolved};
use operators::Operators;
use revoked::RevokedLog;
use sealing::{KeysInForce, read_keys_of};
use state::StateDir;
use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SERVE_HELP: &str = "\
Examples:
  cisternd init                                             makes store and keys, once; see its --help
  cisternd                                                  serves them
  cisternd --listen 10.0.0.1:7311                           for other hosts, which join (cistern join --help)
  cisternd --insecure                                       in clear, in a network in which every host is trusted
  cisternd --volatile --new-cluster --insecure              to try it out: everything in memory
  cisternd --group a,b,c --store etcd://a:2379,b:2379,c:2379/cistern      one of three servers, of which one serves
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
    /// Address to listen on (host, host:port, [v6]:port), with all addresses of a name; repeatable. Default: 127.0.0.1:7311; with --group the
    /// member's own
    #[arg(long, short = 'l', value_name = "ADDRESS")]
    pub(crate) listen: Vec<Address>,
    /// Directory of the store, on a local file system, or etcd://HOST:PORT,.../PREFIX (docs/store-etcd.md); else CISTERN_STORE names it, else
    /// it is where `cisternd init` makes it
    #[arg(long, value_name = "STORE", conflicts_with = "volatile")]
    pub(crate) store: Option<PathBuf>,
    /// With a store on etcd: the servers that share it, in the same order on each of them (host:port,...), or a file with one a line. One serves,
    /// the others take over from it; once one has served, the list in the store counts, which `cistern admin add-server` changes (docs/group.md)
    #[arg(long, value_parser = GroupList::of_servers, value_name = "MEMBERS", conflicts_with = "volatile")]
    pub(crate) group: Option<GroupList>,
    /// Which of them this is, as the list names it; else the one with an address of this host
    #[arg(long, value_name = "MEMBER", requires = "group")]
    pub(crate) me: Option<Address>,
    /// Length of the lease by which a server of a group serves; the same on each of them. A server that stands still for so long is replaced
    #[arg(long, value_parser = duration, default_value = "500ms", value_name = "DURATION", requires = "group")]
    pub(crate) group_lease: Duration,
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
    /// Directory in which `cistern admin backup NAME` makes backups when it is asked for over the network, by an operator's key: new ones, 64 at most.
    /// Without it there are none over the network
    #[arg(long, value_name = "DIR", conflicts_with = "volatile")]
    pub(crate) backups: Option<PathBuf>,
    /// Keep when each agent's key was heard last, in memory and to the minute, and show it in `cistern admin agents`
    #[arg(long)]
    pub(crate) last_seen: bool,
    /// Serve a page to look at on http://ADDRESS/, and metrics in the Prometheus text format on http://ADDRESS/metrics (host:port, [v6]:port; a
    /// port alone is one of 127.0.0.1)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<Address>,
    /// Name files, hosts and agents on that page; otherwise it numbers them. Whoever reaches the port sees it: on loopback every user of this host
    #[arg(long, requires = "http")]
    pub(crate) http_names: bool,
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
        let args = self.clone().with_store(env::var_os("CISTERN_STORE"))?;
        refuse_group(&args)?;
        serve(&args)
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

/// Services of a loop that turns a server's machine.
trait ServedBy {
    fn guests(&mut self) -> &mut ServerGuests;
}

/// Runs a server until it is asked to end.
fn serve(args: &Serve) -> Result<(), Failure> {
    capture::start(args.pcap.as_deref())?;
    let member = args.group.as_ref().map(|list| Member::of(list, args)).transpose()?;
    let listen = match (&member, &args.listen[..]) {
        (Some(member), []) => vec![vec![member.address()?]],
        (None, []) => vec![vec![SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))]],
        (_, listen) => resolved(listen)?,
    };
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
    let http = args.http.as_ref().map(|address| listen_for_http(address, args.http_names)).transpose()?;
    let bell = Bell::default();
    let guests = ServerGuests {
        operators: Operators::new(control, Backups::new(bell.clone(), args.backups.as_deref())?),
        bell: bell.clone(),
        revoked,
        in_force,
        config,
        keys: keys.as_ref().map(|keys| KeysInForce::new(state.path(), keys)),
        key_log: key_log::open(args.key_log.as_deref())?,
        clock: Clock::new().map_err(|e| internal(&e))?,
        stats: Arc::default(),
        publisher: None,
        announcement: Some(Announcement {
            json: args.json,
            listen: Vec::new(),
            http: http.as_ref().map(Port::address),
            control: state.socket().to_path_buf(),
            key: keys.as_ref().and_then(|keys| keys.keys.first()).map(|key| key.public().to_text(Role::Server)),
            group: member.as_ref().map(Member::named),
        }),
        failure: None,
    };
    let Some(member) = member else {
        let fresh = seed().map_err(|e| internal(&e))?;
        let store = Kept::open(args, fresh.first_chunk().map_or(StoreId([0; 16]), |id| StoreId(*id)), &bell)?;
        return run(alone::set_up(guests, ports, store, keys.as_ref())?, http, Handle::stop);
    };
    let stop = Stop::default();
    let event_loop = group::set_up(args, member, guests, ports, keys.as_ref(), state.path(), &stop)?;
    run(event_loop, http, move |handle| stop.ask(handle))
}

/// Turns a loop until it ends; `end` is what a signal does.
fn run<M, S>(mut event_loop: EventLoop<Owned<M>, S>, http: Option<Port>, end: impl FnOnce(&Handle) + Send + 'static) -> Result<(), Failure>
where
    M: Machine,
    S: Services<M> + ServedBy,
{
    let (handle, stats, listen) = (event_loop.handle(), event_loop.stats(), event_loop.local_addrs().collect());
    let guests = event_loop.services_mut().guests();
    guests.stats = stats;
    guests.publisher = http.map(|port| port.serve(handle.clone())).transpose()?;
    if let Some(announcement) = &mut guests.announcement {
        announcement.listen = listen;
    }
    let (in_force, keys, again) = (Arc::clone(&guests.in_force), guests.keys.clone(), handle.clone());
    signals::at_end_or_reload(
        move || end(&handle),
        move || {
            in_force.reload();
            keys.iter().for_each(|keys| keys.reload());
            again.wake();
        },
    )?;
    match event_loop.run() {
        Ok(Ended::Stopped) => Ok(()),
        Ok(Ended::ByServices) => event_loop.services_mut().guests().failure.take().map_or(Ok(()), Err),
        Err(e) => Err(internal(&e)),
    }
}

fn internal(error: &dyn std::error::Error) -> Failure {
    Failure::new("INTERNAL", EXIT_SOFTWARE, error.to_string())
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

/// A group shares a store, and only that on etcd can be shared.
fn refuse_group(args: &Serve) -> Result<(), Failure> {
    match (&args.group, &args.store) {
        (Some(_), Some(store)) if on_etcd::is_named(store) => on_etcd::is_built(store),
        (Some(_), _) => {
            Err(Failure::usage("--group is for servers that share a store on etcd: name it by --store etcd://HOST:PORT,.../PREFIX"))
        }
        (None, _) => Ok(()),
    }
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

/// Without `named` nothing at this port names an agent, a host or a file, but anybody who reaches it can look.
fn listen_for_http(address: &Address, named: bool) -> Result<Port, Failure> {
    let addresses = address.resolve(None).map_err(|e| Failure::usage(format!("--http {e}")))?;
    if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        let what = if named { ", which names files, hosts and agents (--http-names)," } else { "" };
        log::warn!(
            "the page{what} and metrics on {open} are open to everybody who can reach it: let only your monitoring through to that port"
        );
    }
    Port::listen(&addresses, address.host(), named)
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
    fn a_store_has_room_for_its_journals() {
        assert_eq!((store_limit("256M"), store_limit("255M").is_err()), (Ok(256 << 20), true));
        assert_eq!((store_reserve("192M"), store_reserve("191M").is_err()), (Ok(192 << 20), true));
    }
}
