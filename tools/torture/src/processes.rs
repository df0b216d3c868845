//! The processes of a campaign: started, asked, killed; nothing of them is left behind.
//!
//! Decides: command lines. Leaves to others: when (`campaign`).

use crate::worker;
use cistern_driver::ControlClient;
use cistern_testkit::{self as testkit, PATIENCE, Process, without_settings};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The lease of a campaign: short, so that steals and graces are.
const LEASE: &str = "500ms";

/// Where everything of a campaign is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Records, logs, state directories, the store.
    pub(crate) dir: PathBuf,
    /// The server's program.
    pub(crate) cisternd: PathBuf,
    /// Where the servers' captures go, if they are wanted.
    pub(crate) captures: Option<PathBuf>,
    /// The name of the store, if it is not in that directory.
    pub(crate) on_etcd: Option<String>,
    /// The network in which workers are.
    pub(crate) network: testkit::Place,
}

impl Place {
    /// The store.
    pub(crate) fn store(&self) -> PathBuf {
        self.on_etcd.as_ref().map_or_else(|| self.dir.join("store"), PathBuf::from)
    }

    /// What servers say.
    pub(crate) fn server_log(&self) -> PathBuf {
        self.dir.join("log-server")
    }

    fn log(&self, name: &str) -> Result<File, String> {
        let path = self.dir.join(format!("log-{name}"));
        OpenOptions::new().create(true).append(true).open(&path).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Makes the store of the campaign.
pub(crate) fn create_store(place: &Place) -> Result<(), String> {
    let mut init = Command::new(&place.cisternd);
    init.args(["init", "--new-cluster"]).arg(place.store());
    init.arg("--state").arg(place.dir.join("keys")).arg("--credentials").arg(place.dir.join("keys"));
    without_settings(&mut init);
    let made = init.stdout(Stdio::null()).status().map_err(|e| format!("{}: {e}", place.cisternd.display()))?;
    if made.success() { Ok(()) } else { Err(format!("`cisternd init` ended with {made}")) }
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    /// Where it listens.
    pub(crate) address: String,
    control: PathBuf,
}

impl Server {
    /// Starts one on the store of the campaign, the `number`-th from 1 on; `address` may have port 0.
    pub(crate) fn start(place: &Place, address: &str, number: u64) -> Result<Self, String> {
        if number == 1 && !place.store().exists() {
            create_store(place)?;
        }
        let mut command = Command::new(&place.cisternd);
        if let Some(captures) = &place.captures {
            command.arg("--pcap").arg(captures.join(format!("server-{number}.pcap")));
        }
        Self::try_start(place, address, command)?
            .map_err(|code| format!("the server did not start ({code:?}): see {}", place.server_log().display()))
    }

    /// Starts one by a command that ends with the name of its program; its exit status if it ends before it is ready.
    pub(crate) fn try_start(place: &Place, address: &str, mut command: Command) -> Result<Result<Self, Option<i32>>, String> {
        command.arg("--store").arg(place.store()).arg("--state").arg(place.dir.join("server"));
        command.args(["--listen", address, "--lease", LEASE, "--json", "--insecure"]);
        without_settings(&mut command);
        let mut process = spawn(place, &mut command, Stdio::piped(), place.log("server")?)?;
        let Some(line) = process.line() else { return wait(&mut process).map(Err) };
        let ready: Value = serde_json::from_str(&line).map_err(|_| format!("not what a server says when it is ready: {line}"))?;
        let text =
            |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| format!("not what a server says when it is ready: {line}"));
        Ok(Ok(Self { process, address: text(&ready["listen"][0])?, control: text(&ready["control"])?.into() }))
    }

    /// The id of one of its threads.
    pub(crate) fn thread(&self, name: &str) -> Option<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?;
        let mut tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
        let task = tasks.find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name))?;
        task.file_name()?.to_str()?.parse().ok()
    }

    /// Its exit status, when it has ended; `None` if it goes on for so long.
    pub(crate) fn ended_within(&mut self, most: Duration) -> Option<Option<i32>> {
        self.process.ended_within(most).map(|status| status.code())
    }

    /// Kills it, at once.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    /// Asks it to end, and waits.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.process.signal(Signal::SIGTERM);
        match wait(&mut self.process)? {
            Some(0) => Ok(()),
            code => Err(format!("the server ended with {code:?} when it was asked to end")),
        }
    }

    /// Its figures, by its control socket.
    pub(crate) fn status(&self) -> Result<Value, String> {
        let asked = ControlClient::connect(&self.control, PATIENCE)
            .and_then(|mut socket| socket.request(&json!({ "op": "status" }).to_string(), PATIENCE));
        let line = asked.map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
        Ok(answer["ok"].take())
    }

    /// Whether it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().is_none()
    }
}

/// An agent with its users.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
}

impl Worker {
    /// Starts one; an earlier one of the same number is gone.
    pub(crate) fn start(place: &Place, server: &str, agent: u8, users: u8, seed: u64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.arg("worker").arg("--dir").arg(&place.dir).args(["--server", server]);
        command.args(["--agent", &agent.to_string(), "--users", &users.to_string(), "--seed", &seed.to_string()]);
        without_settings(&mut command);
        Ok(Self { process: spawn(place, &mut command, Stdio::null(), place.log(&format!("w{agent}"))?)? })
    }

    /// Kills it, at once.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    /// The exit status of one that has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<Option<i32>> {
        self.process.try_wait().map(|status| status.code())
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> Result<Option<i32>, String> {
        wait(&mut self.process)
    }
}

/// Checks the stopped store; what was found, and nothing if it is sound.
pub(crate) fn check(place: &Place) -> Result<Vec<String>, String> {
    let mut command = Command::new(&place.cisternd);
    command.arg("check").arg(place.store()).arg("--json");
    without_settings(&mut command);
    let output = place.network.run(|| command.stdin(Stdio::null()).output()).map_err(|e| format!("{}: {e}", place.cisternd.display()))?;
    let said = || format!("{} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| format!("`cisternd check` said no JSON: {}", said()))?;
    let findings: Vec<String> = report["findings"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    match output.status.code() {
        Some(0) if findings.is_empty() => Ok(findings),
        Some(1) if !findings.is_empty() => Ok(findings),
        code => Err(format!("`cisternd check` ended with {code:?}: {}", said())),
    }
}

fn spawn(place: &Place, command: &mut Command, out: Stdio, log: File) -> Result<Process, String> {
    Process::spawn_at(&place.network, command.stdin(Stdio::null()).stdout(out).stderr(log))
        .map_err(|e| format!("{}: {e}; --programs names another directory", Path::new(command.get_program()).display()))
}

fn wait(process: &mut Process) -> Result<Option<i32>, String> {
    process.ended_within(PATIENCE).map(|status| status.code()).ok_or_else(|| "a process that was to end did not".to_owned())
}

/// How many bytes each user has written to its records: it works as long as that grows.
pub(crate) fn written(place: &Place, agents: u8, users: u8) -> Vec<u64> {
    let names = (0..agents).flat_map(|agent| (0..users).map(move |user| worker::user_name(agent, user)));
    names.map(|name| std::fs::metadata(worker::records_of(&place.dir, &name)).map_or(0, |data| data.len())).collect()
}
