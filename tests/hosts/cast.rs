//! Who is on the hosts: the server, agents, and a job that one host at a time may run.
//!
//! Decides: how the job shows who runs it. It writes its host and its fencing token into one file that all hosts share, as a resource
//! would: what two hosts did at the same time stands there side by side.

use cistern_testkit::network::{Host, Network};
use cistern_testkit::{Agent, CISTERN, Line, PATIENCE, Server, command, eventually};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The server, on the host of that name and its IPv4 address.
pub(crate) fn server(network: &Network, args: &[&str]) -> Server {
    let host = network.host("server");
    Server::at(&host.place(), &[host.server()], args)
}

/// The agent of a host, which renews as long as it holds anything.
pub(crate) fn agent(server: &Server, host: &Host) -> Agent {
    agent_by(server, host, &[server.address])
}

/// The agent of a host, which reaches the server by the addresses given.
pub(crate) fn agent_by(server: &Server, host: &Host, addresses: &[SocketAddr]) -> Agent {
    Agent::at(&host.place(), server, addresses, host.name, &["--idle", "eager"])
}

/// Somebody at an agent who waits for the lock of /job.
pub(crate) fn waiter(agent: &Agent) -> JoinHandle<Granted> {
    let mut line = agent.line();
    thread::spawn(move || {
        let asked = Instant::now();
        let (hold, token) = line.lock("/job");
        Granted { line, hold, token, after: asked.elapsed(), raw_ns: raw_ns() }
    })
}

/// What a waiter got.
pub(crate) struct Granted {
    pub(crate) line: Line,
    pub(crate) hold: u64,
    pub(crate) token: u64,
    /// Since it was asked for.
    pub(crate) after: Duration,
    /// The lease clock after it was got.
    pub(crate) raw_ns: u64,
}

/// The clock of leases, which is one for all namespaces of a machine, in nanoseconds.
fn raw_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).unwrap();
    u64::try_from(Duration::from(now).as_nanos()).unwrap()
}

/// Until when a hold is certain, on the clock of leases, if it is certain.
pub(crate) fn certain_until(line: &mut Line, hold: u64) -> Option<u64> {
    line.ok(json!({ "op": "hold", "hold": hold }))["hold"]["until"]["clock_monotonic_raw_ns"].as_u64()
}

/// What is waited before the locks of a silent agent are another's: T, by what the server says of it.
pub(crate) fn timer(server: &Server) -> Duration {
    Duration::from_micros(server.count("timer_us"))
}

/// The file in which the job's runs show.
pub(crate) struct Trace {
    path: PathBuf,
}

impl Trace {
    pub(crate) fn new(server: &Server) -> Self {
        Self { path: server.dir.path().join("trace") }
    }

    /// Starts the job on a host, under the lock of /job: it goes on until it is ended.
    pub(crate) fn job(&self, server: &Server, host: &Host) -> Job {
        let script = format!("while :; do echo $0 $CISTERN_TOKEN >> {}; sleep 0.02; done", self.path.display());
        let capture = server.captures.of_agent(host.name);
        let mut command = command(CISTERN, &["lock", "--pcap", &capture, "/job", "--", "sh", "-c", &script, host.name]);
        command.env("CISTERN_SERVER", server.address.to_string()).stdout(Stdio::null()).stderr(Stdio::piped());
        Job { child: Some(host.place().run(|| command.spawn().unwrap())) }
    }

    /// Every line: the host and its token.
    pub(crate) fn lines(&self) -> Vec<(String, u64)> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let line = |line: &str| {
            let (host, token) = line.split_once(' ').unwrap();
            (host.to_owned(), token.parse().unwrap())
        };
        text.lines().map(line).collect()
    }

    /// Waits until the job runs on a host with a token larger than `above`; gives the token.
    pub(crate) fn runs_on(&self, host: &Host, above: u64) -> u64 {
        let runs = || self.lines().into_iter().find(|line| line.0 == host.name && line.1 > above).map(|line| line.1);
        eventually(&format!("the job runs on {}", host.name), runs)
    }

    /// Nobody wrote after somebody with a larger token had.
    pub(crate) fn is_in_order(&self) {
        let lines = self.lines();
        let late = lines.windows(2).find(|pair| pair[1].1 < pair[0].1);
        assert!(late.is_none(), "a host went on although another had the lock: {late:?}");
    }
}

/// A job under the lock.
pub(crate) struct Job {
    child: Option<Child>,
}

impl Job {
    /// Asks the job to end, and waits for it.
    pub(crate) fn end(mut self) {
        let child = self.child.as_mut().unwrap();
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        eventually("the job ends", || child.try_wait().unwrap());
    }

    /// Waits until it has ended by itself; gives its exit status and what it said.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut child = self.child.take().unwrap();
        let end = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                child.kill().unwrap();
                panic!("waited in vain until the job ends");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
