//! The processes of the demonstration: a server, agent A behind a relay, agent B.
//!
//! Decides: that they are real processes of this program, started, asked and stopped as an operator would.
//! Invariant: none of them outlives the demonstration. Leaves to others: what they are asked (`acts`).

use super::relay::Relay;
use crate::backend::Line;
use crate::commands::init::loopback;
use crate::commands::key::random;
use crate::local::{Failure, Lease, Request, Response};
use cistern_credentials::{CLUSTER_KEY, HOST_KEY, Initial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process is given to end after SIGTERM.
const END_TIME: Duration = Duration::from_secs(3);

/// A process of this program that says when it is ready; it is stopped when this is dropped.
pub(crate) struct Player {
    child: Child,
    /// What it said.
    pub(crate) ready: Value,
}

impl Player {
    /// Starts one, with the keys in a directory as its user's; `files`: options that name files.
    fn start(args: &[&str], keys: &Path, files: &[(&str, Option<&Path>)]) -> Result<Self, Failure> {
        let broken = |what: String| Failure::failed(format!("`cistern {}` did not start: {what}", args.join(" ")));
        let program = std::env::current_exe().map_err(|e| broken(e.to_string()))?;
        let mut child = Command::new(program)
            .args(args)
            .args(files.iter().filter_map(|(flag, path)| Some([OsStr::new(flag), path.as_ref()?.as_os_str()])).flatten())
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_remove("CISTERN_SERVER")
            .env_remove("CISTERN_AGENT")
            // Neither the user's settings and keys nor the host's.
            .env("CISTERN_CONFIG", "/dev/null")
            .env("CISTERN_CREDENTIALS", keys)
            // The demonstration tells what happens; the processes' own logs are for whoever asks for them.
            .env("CISTERN_LOG", std::env::var("CISTERN_LOG").unwrap_or_else(|_| "error".to_owned()))
            .spawn()
            .map_err(|e| broken(e.to_string()))?;
        let mut line = String::new();
        let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let player = |ready| Self { child, ready };
        match (read, serde_json::from_str(&line)) {
            (Some(Ok(_)), Ok(ready)) => Ok(player(ready)),
            (read, _) => {
                player(Value::Null).stop();
                Err(broken(format!("it said {line:?} ({read:?}) instead of being ready")))
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    fn stop(&mut self) {
        // It may have ended already; then there is nothing to tell.
        let _ = kill(self.pid(), Signal::SIGTERM);
        let until = Instant::now() + END_TIME;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An agent process and a connection to it.
pub(crate) struct AgentPlayer {
    player: Player,
    socket: PathBuf,
    line: Line,
}

impl AgentPlayer {
    fn start(state: &Path, keys: &Path, server: SocketAddr, label: &str) -> Result<Self, Failure> {
        let (state, server) = (state.join(label).to_string_lossy().into_owned(), server.to_string());
        let args = ["agent", "run", "--state", &state, "--server", &server, "--label", label, "--idle", "eager"];
        let player = Player::start(&args, keys, &[])?;
        let socket = PathBuf::from(player.ready["socket"].as_str().unwrap_or_default());
        let line = Line::open(&socket)?;
        Ok(Self { player, socket, line })
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Response, Failure> {
        self.line.call(&request)
    }

    /// One more connection, for a request that blocks.
    pub(crate) fn connect(&self) -> Result<Line, Failure> {
        Line::open(&self.socket)
    }

    pub(crate) fn lease(&mut self) -> Result<Lease, Failure> {
        self.ask(Request::Lease)?.lease()
    }
}

/// The keys of a cluster, as `cisternd init` makes them: the server's, and one of an operator, as whom both agents are known.
fn make_keys(server: &Path, own: &Path) -> Result<(), Failure> {
    let initial =
        Initial { server: server.to_owned(), own: own.to_owned(), cluster_key: own.join(CLUSTER_KEY), addresses: vec![loopback()] };
    let random = || random().map_err(|e| Failure::failed(e.to_string()));
    Ok(initial.make([random()?, random()?, random()?]).map(drop)?)
}

/// Everybody.
pub(crate) struct Cast {
    pub(crate) a: AgentPlayer,
    pub(crate) b: AgentPlayer,
    pub(crate) relay: Relay,
    pub(crate) server: SocketAddr,
    /// As whom agents are known to it.
    pub(crate) key_file: PathBuf,
    control: PathBuf,
    server_player: Player,
    _state: tempfile::TempDir,
}

impl Cast {
    /// Makes a cluster's keys and starts everybody; the server writes what it sends and receives to `pcap`, and the keys of its sessions to `key_log`.
    pub(crate) fn start(lease: Duration, pcap: Option<&Path>, key_log: Option<&Path>) -> Result<Self, Failure> {
        let state = tempfile::tempdir().map_err(|e| Failure::failed(format!("no temporary directory: {e}")))?;
        let lease = format!("{}us", lease.as_micros());
        let (server, keys) = (state.path().join("server"), state.path().join("keys"));
        make_keys(&server, &keys)?;
        let dir = server.to_string_lossy();
        let args = ["serve", "--volatile", "--new-cluster", "--listen", "127.0.0.1:0", "--state", &dir, "--lease", &lease];
        let server_player = Player::start(&args, &keys, &[("--pcap", pcap), ("--key-log", key_log)])?;
        let said = |what: &str| Failure::failed(format!("the server did not say {what}: {}", server_player.ready));
        let server = server_player.ready["listen"][0].as_str().and_then(|s| s.parse().ok()).ok_or_else(|| said("where it listens"))?;
        let control = PathBuf::from(server_player.ready["control"].as_str().ok_or_else(|| said("where its control socket is"))?);
        let relay = Relay::start(server)?;
        let a = AgentPlayer::start(state.path(), &keys, relay.address, "A")?;
        let b = AgentPlayer::start(state.path(), &keys, server, "B")?;
        Ok(Self { a, b, relay, server, key_file: keys.join(HOST_KEY), control, server_player, _state: state })
    }

    pub(crate) fn pids(&self) -> String {
        format!("{}, {} and {}", self.server_player.pid(), self.a.player.pid(), self.b.player.pid())
    }

    /// What the server says of itself on its control socket.
    pub(crate) fn server_status(&self) -> Result<Value, Failure> {
        crate::server_control::ask(&self.control, &serde_json::json!({ "op": "status" }))
    }

    /// Ends all processes; the agents first, so that their sessions end cleanly.
    pub(crate) fn stop(&mut self) {
        self.a.player.stop();
        self.b.player.stop();
        self.server_player.stop();
    }
}
