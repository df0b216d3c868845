//! `cistern agent run`: one agent for all programs of a computer, asked through a Unix socket.
//!
//! Decides: how many may connect (who: `peers`), and the order of a clean end: no new connections;
//! every program told, by the end of its connection, that its locks are going; then, once nobody can still act under a lock that
//! it was shown, the session closed (section 11.3). Place in the walk: the host's end of `local`; `backend` is the other one.
//! Invariant: a lock taken on a connection is given back when the connection ends, and no later.
//! Leaves to others: one connection (`connection`), what a request does (`execute`), the identity (`cistern_client`).

mod connection;
mod desk;
mod front;
mod lines;
mod peers;

pub(crate) use connection::shares_clocks;

use crate::commands::{OWN_AGENT, Run};
use crate::contact::{self, Contact, Wanted};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_UNAVAILABLE, Programs};
use crate::local::{Failure, Said};
use crate::options::Options;
use crate::places::{Daemon, make_above};
use crate::settings::{self, SettingRow, tell_changes};
use crate::signals::{End, wait_for};
use crate::{logging, service_manager, show};
use cistern_client::{Address, Client, IdlePolicy};
use cistern_driver::control::{GAVE_WAY, Places};
use clap::{Args, ValueEnum};
use front::Front;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, send};
use peers::Peers;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const AGENT_HELP: &str = "\
On SIGHUP (`systemctl reload`) the agent reads the settings file again and applies the log filter. Other changed settings are logged, and take effect at \
the next start: its session was opened with the old ones.

Examples:
  cistern agent run
  cistern agent run --state /var/lib/cistern/agent --socket-group cistern";

/// Run the host's agent: one cache and one lease for all programs of this computer
#[derive(Args, Debug)]
#[command(after_help = AGENT_HELP)]
pub(crate) struct RunAgent {
    /// State directory: the agent's identity, and its control socket. Default: /var/lib/cistern/agent for root; for others
    /// $XDG_STATE_HOME/cistern/agent (else ~/.local/state), with the socket in $XDG_RUNTIME_DIR/cistern/agent.sock
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Display name of this agent
    #[arg(long)]
    label: Option<String>,
    /// Also serve members of this group (name or number): the socket gets mode 0660, its directory 0710, and that group
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// What an idle agent does with its lease
    #[arg(long, value_enum)]
    idle: Option<Idle>,
    /// Serve the same calls by HTTP and JSON on this address of loopback, for curl and scripts (docs/api.md); a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    http: Option<Address>,
    /// File with the token that such requests must show, made at the first start. Default: http.token in the state directory
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token: Option<PathBuf>,
}

/// What an idle agent does (wire-spec section 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Renews while it holds any lock
    Eager,
    /// Lets the lease lapse unless something is in use
    Lazy,
    /// Renews while the cache is used, then ends the session
    Auto,
}

/// Most connections at a time, each of which has a thread and three descriptors, of the 1,024 that a process usually may have.
const CONNECTIONS_MAX: usize = 256;

/// How long a program has to take each part of an answer before it counts as stuck.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// Pause after a connection could not be accepted for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Run for RunAgent {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OWN_AGENT
    }

    fn is_daemon(&self) -> bool {
        true
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        run(self, ctx.options())
    }
}

/// Runs the host's agent until it is asked to end.
fn run(args: &RunAgent, options: &Options) -> Result<(), Failure> {
    let named = args.state.as_deref();
    let (state, socket) = (Daemon::Agent.state(named)?, Daemon::Agent.socket(named)?);
    let peers = Peers::of(args.socket_group.as_deref())?;
    let wanted = Wanted { label: args.label.clone(), state: Some(&state), idle: args.idle.map(IdlePolicy::from) };
    let contact = contact::start(options, wanted)?;
    let (client, close_within) = (contact.client.clone(), contact.close_within);
    make_above(&socket)?;
    peers.open_directory(&socket)?;
    let (listener, file) =
        cistern_driver::control::listen(&socket, peers.group()).map_err(|e| Failure::new("CONTROL", EXIT_FAILED, e.to_string()))?;
    let settings = settings::load(options.config.as_deref())?;
    logging::adopt(&settings.log_filter());
    let (reread, mut rows) = (options.clone(), settings.effective(options)?);
    let end = Arc::new(End::catch_or_reload(move || reload(&reread, &mut rows))?);
    let token = args.http_token.clone().unwrap_or_else(|| state.join("http.token"));
    let front = args.http.as_ref().map(|address| Front::listen(address, &token, &socket)).transpose()?;
    announce(args, options.json, &client, &socket, front.as_ref().and_then(Front::address).map(|address| (address, token.as_path())))?;
    front.map(Front::serve).transpose()?;
    greet(contact);
    let rooms = Arc::new(Rooms::default());
    let served = Served { client: client.clone(), peers, programs: Programs::default() };
    receive(&listener, &served, &rooms, &end);
    // Programs that start from now on find no agent, rather than one that does not answer.
    drop((listener, file));
    // Every instant until which a lock was shown as certain lies at most one lease period ahead.
    let longest = client.lease().map_or(Duration::ZERO, |view| view.lease);
    if !rooms.wait_until_empty(longest + ACCEPT_PAUSE) {
        log::warn!("programs that hold locks have not ended their connections; nothing that they were shown is certain any more");
    }
    if let Err(error) = contact::close(&client, close_within) {
        log::warn!("the session was not closed, and ends by its lease: {error}");
    }
    Ok(())
}

/// What connections are served with.
struct Served {
    client: Client,
    peers: Peers,
    programs: Programs,
}

impl From<Idle> for IdlePolicy {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Eager => Self::Eager,
            Idle::Lazy => Self::Lazy,
            Idle::Auto => Self::Auto,
        }
    }
}

fn announce(args: &RunAgent, json: bool, client: &Client, socket: &Path, http: Option<(SocketAddr, &Path)>) -> Result<(), Failure> {
    service_manager::ready();
    let identity = client.identity();
    if json {
        // A path that is not UTF-8 is shown as well as JSON can; who chose it knows it.
        let socket = socket.to_string_lossy();
        let mut ready =
            json!({ "ready": true, "socket": socket, "agent": format!("{:032x}", identity.agent), "incarnation": identity.incarnation });
        if let Some((address, token)) = http {
            (ready["http"], ready["http_token"]) = (json!(address), json!(token.to_string_lossy()));
        }
        return show::json(&ready);
    }
    if let Some((address, token)) = http {
        log::info!("the same by HTTP at http://{address}/v1/call, for who can read {}", token.display());
    }
    let whom = args.socket_group.as_ref().map_or_else(|| "this user".to_owned(), |group| format!("this user and of group {group}"));
    log::info!("agent {identity}: serves programs of {whom} on {}", socket.display());
    Ok(())
}

/// Reads the settings file again. Of an agent only the log can change while its session is open.
fn reload(options: &Options, in_force: &mut [SettingRow]) {
    let read = settings::load(options.config.as_deref()).and_then(|settings| Ok((settings.effective(options)?, settings)));
    match read {
        Ok((mut rows, settings)) => {
            // The server's settings are another program's.
            rows.retain(|row| !row.setting.starts_with("server."));
            tell_changes("agent", in_force, &rows);
            logging::adopt(&settings.log_filter());
            in_force.iter_mut().filter(|row| row.live).for_each(|old| {
                if let Some(row) = rows.iter().find(|row| row.setting == old.setting) {
                    old.clone_from(row);
                }
            });
        }
        Err(failure) => log::error!("agent: SIGHUP: {}; the settings stay as they were", failure.message),
    }
}

/// Opens the session at once, so that a wrong address or a server that is down is told now and not to the first program.
fn greet(contact: Contact) {
    let hello = move || {
        // Why there is no session the client logs itself, now and later.
        let _ = contact.wait(contact.client.ping(), |refused| log::warn!("{refused}"));
    };
    // Without the thread nothing but that word is missing.
    if let Err(error) = std::thread::Builder::new().name("cistern-hello".to_owned()).spawn(hello) {
        log::debug!("no thread for the first handshake: {error}");
    }
}

/// Takes connections until the agent is asked to end.
fn receive(listener: &UnixListener, served: &Served, rooms: &Arc<Rooms>, end: &Arc<End>) {
    // Programs that were refused still have to read why; the oldest of them are forgotten first.
    let mut refused = VecDeque::new();
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        wait_for(&mut fds, None);
        if end.is_asked() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(stream) = admit(stream, served, rooms, end) {
                    refused.push_back(stream);
                    while refused.len() > CONNECTIONS_MAX {
                        refused.pop_front();
                    }
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(e) => {
                log::warn!("cannot accept a connection: {e}");
                end.wait(ACCEPT_PAUSE);
            }
        }
    }
}

/// Tells a program why it is not served, without waiting for it.
fn tell(stream: &UnixStream, why: &str) {
    let failure = Failure::new("BUSY", EXIT_UNAVAILABLE, format!("the agent {why}"));
    let line = serde_json::to_string(&Said::answer(None, Err(failure))).unwrap_or_default() + "\n";
    // Where it does not fit the socket's buffer the end of the connection says enough.
    let _ = send(stream.as_raw_fd(), line.as_bytes(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

/// Gives a connection a thread of its own; or tells why it cannot have one, and gives it back.
fn admit(stream: UnixStream, served: &Served, rooms: &Arc<Rooms>, end: &Arc<End>) -> Option<Arc<UnixStream>> {
    let stream = Arc::new(stream);
    let refuse = |stream: Arc<UnixStream>, why: String| {
        // Told aloud once for each time that it begins: a program that tries again and again is not to fill the log.
        let level = if rooms.begin_refusing() { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "refused a connection: the agent {why}");
        tell(&stream, &why);
        Some(stream)
    };
    let user = match served.peers.admit(&stream) {
        Ok(user) => user,
        Err(why) => return refuse(stream, why),
    };
    if let Err(e) = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(WRITE_TIME))) {
        return refuse(stream, format!("cannot serve one more connection: {e}"));
    }
    let Some(room) = rooms.enter(&stream) else {
        return refuse(stream, format!("serves {CONNECTIONS_MAX} connections already, the most it does, and each is in use; end one"));
    };
    let kept = Arc::clone(&stream);
    let (client, programs, end) = (served.client.clone(), served.programs.clone(), Arc::clone(end));
    let serve = move || {
        connection::serve(client, &stream, (user, programs), &room, &end);
    };
    match std::thread::Builder::new().name("cistern-local".to_owned()).spawn(serve) {
        Ok(_) => None,
        Err(e) => refuse(kept, format!("has no thread for one more connection: {e}")),
    }
}

/// The connections.
#[derive(Debug)]
struct Rooms {
    taken: Mutex<Taken>,
    left: Condvar,
    /// A connection was refused, and none admitted since.
    refusing: AtomicBool,
}

#[derive(Debug)]
struct Taken {
    places: Places<u64>,
    /// Of those that have a place.
    streams: BTreeMap<u64, Arc<UnixStream>>,
    next: u64,
    /// Threads that serve a connection, also one that has given its place up.
    serving: usize,
}

/// One connection's place, given back when dropped, also by a panic.
struct Room {
    rooms: Arc<Rooms>,
    number: u64,
}

impl Default for Rooms {
    fn default() -> Self {
        let taken = Taken { places: Places::new(CONNECTIONS_MAX), streams: BTreeMap::new(), next: 0, serving: 0 };
        Self { taken: Mutex::new(taken), left: Condvar::new(), refusing: AtomicBool::new(false) }
    }
}

impl Rooms {
    /// Takes a place, if need be that of the connection that was idle longest and holds nothing.
    fn enter(self: &Arc<Self>, stream: &Arc<UnixStream>) -> Option<Room> {
        let mut taken = self.taken();
        if taken.places.is_full() {
            let idle = taken.places.idle_longest()?;
            taken.places.leave(idle);
            if let Some(stream) = taken.streams.remove(&idle) {
                log::info!("closed the connection that was idle longest, {CONNECTIONS_MAX} are open");
                tell(&stream, &format!("has {GAVE_WAY}"));
                // Its thread reads the end.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        let number = taken.next;
        taken.next += 1;
        taken.serving += 1;
        taken.places.enter(number);
        taken.streams.insert(number, Arc::clone(stream));
        self.refusing.store(false, Ordering::Relaxed);
        Some(Room { rooms: Arc::clone(self), number })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a connection is refused; whether it is the first one.
    fn begin_refusing(&self) -> bool {
        !self.refusing.swap(true, Ordering::Relaxed)
    }

    /// Whether all have left within `span`.
    fn wait_until_empty(&self, span: Duration) -> bool {
        let (taken, _) =
            self.left.wait_timeout_while(self.taken(), span, |taken| taken.serving > 0).unwrap_or_else(PoisonError::into_inner);
        taken.serving == 0
    }
}

impl Room {
    /// A request has come, or is answered; whether the connection must be `kept` until the next use. False: it has given its place up.
    fn used(&self, kept: bool) -> bool {
        self.rooms.taken().places.used(self.number, kept)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = self.rooms.taken();
        taken.serving -= 1;
        taken.places.leave(self.number);
        taken.streams.remove(&self.number);
        self.rooms.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_connections_and_no_more_and_places_come_back() {
        let rooms = Arc::new(Rooms::default());
        let stream = Arc::new(UnixStream::pair().unwrap().0);
        let mut taken: Vec<_> = (0..CONNECTIONS_MAX).map(|_| rooms.enter(&stream).unwrap()).collect();
        assert!(taken.iter().all(|room| room.used(true)));
        assert!(rooms.enter(&stream).is_none());
        assert!(!rooms.wait_until_empty(Duration::from_millis(1)));
        taken.pop();
        assert!(rooms.enter(&stream).is_some());
        taken.clear();
        assert!(rooms.wait_until_empty(Duration::from_secs(60)));
    }

    #[test]
    fn the_connection_that_was_idle_longest_and_holds_nothing_gives_its_place_up() {
        let rooms = Arc::new(Rooms::default());
        let (mut program, stream) = UnixStream::pair().unwrap();
        let rest = Arc::new(UnixStream::pair().unwrap().0);
        let (holds, idle) = (rooms.enter(&rest).unwrap(), rooms.enter(&Arc::new(stream)).unwrap());
        holds.used(true);
        let _others: Vec<_> = (2..CONNECTIONS_MAX).map(|_| rooms.enter(&rest).unwrap()).collect();
        let operator = rooms.enter(&rest).unwrap();
        assert!(!idle.used(true) && holds.used(true) && operator.used(false));
        let mut told = String::new();
        io::Read::read_to_string(&mut program, &mut told).unwrap();
        assert!(told.contains("BUSY") && told.contains("idle longest"), "{told}");
        drop(idle);
        assert!(holds.used(true), "the thread's end is nobody else's");
    }

    #[test]
    fn a_refusal_is_told_aloud_once_until_somebody_is_admitted() {
        let rooms = Arc::new(Rooms::default());
        assert_eq!([rooms.begin_refusing(), rooms.begin_refusing()], [true, false]);
        assert!(rooms.enter(&Arc::new(UnixStream::pair().unwrap().0)).is_some());
        assert!(rooms.begin_refusing());
    }
}
