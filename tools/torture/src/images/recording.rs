//! A recording: a server with its store under load, and everything that it does to its files.
//!
//! Decides the load: the workers of the torture all the while, so that what is in memory becomes tables and tables are merged again and
//! again; then so many contents that a journal is full, the next is begun and the old one goes; then a restart. Invariant: what was
//! recorded is compared with the files that are really there, bit for bit, after each program.
//! Leaves to others: the calls (`strace`, `replay`), the programs (`serving`).

use super::known::Known;
use super::replay::{CALLS, Replay};
use crate::processes::{Place, Worker};
use crate::worker;
use cistern_client::Client;
use cistern_testkit::{PATIENCE, Process, without_settings};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Agents, and users of each.
const AGENTS: u8 = 2;
const USERS: u8 = 3;
/// A journal is full after 64,000,000 bytes; so many files of the largest size are more.
const FILES: usize = 63;
const FILE_LEN: usize = 1 << 20;

/// What was recorded.
pub(super) struct Recording {
    pub(super) replay: Replay,
    pub(super) known: Known,
}

/// Starts a program of this one under strace; it ends with its standard input, strace with it.
fn recorded(log: &Path, out: Stdio, args: &[&std::ffi::OsStr]) -> Result<Process, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("strace");
    // Longer than anything that is written at once.
    command.args(["-f", "--seccomp-bpf", "-qq", "-s", "16777216", "-e", "signal=none", "-e", &format!("trace={CALLS}"), "-o"]).arg(log);
    command.arg(program).args(args).stdin(Stdio::piped()).stdout(out);
    without_settings(&mut command);
    Process::spawn(&mut command).map_err(|e| format!("strace: {e}; it is what records the store (on Debian: apt-get install strace)"))
}

/// Closes its standard input, and waits until it has ended well.
fn end(mut recorded: Process) -> Result<(), String> {
    recorded.end_input();
    match recorded.ended_within(PATIENCE) {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("what was recorded ended with {status}")),
        None => Err("what was recorded did not end".to_owned()),
    }
}

/// Records a server in `dir`; each phase of the load takes so long.
pub(super) fn record(dir: &Path, phase: Duration, seed: u64, tell: &dyn Fn(&str)) -> Result<Recording, String> {
    let area = dir.join("area");
    fs::create_dir(&area).map_err(|e| format!("{}: {e}", area.display()))?;
    let mut replay = Replay::new(&area);
    let place = Place { dir: dir.to_owned(), ..Place::default() };
    tell("recording a server under load");
    let (server, address) = serve(dir, &area, "127.0.0.1:0", 1)?;
    let workers = (0..AGENTS)
        .map(|agent| Worker::start(&place, &address, agent, USERS, seed.wrapping_add(u64::from(agent))))
        .collect::<Result<Vec<_>, _>>()?;
    thread::sleep(phase);
    fill(&address)?;
    thread::sleep(phase / 2);
    end(server)?;
    tell("reading the record, and comparing");
    replay.take(&dir.join("log-1"))?;
    replay.compare()?;
    tell("recording it again, after a restart");
    let (server, _) = serve(dir, &area, &address, 2)?;
    thread::sleep(phase);
    fs::write(worker::stop_file(dir), "").map_err(|e| e.to_string())?;
    for worker in workers {
        if worker.wait()? != Some(0) {
            return Err(format!("a worker has found something: see {}", dir.display()));
        }
    }
    end(server)?;
    replay.take(&dir.join("log-2"))?;
    replay.compare()?;
    let known = Known::read(&dir.join("batches")).map_err(|e| format!("reading the batches: {e}"))?;
    Ok(Recording { replay, known })
}

fn serve(dir: &Path, area: &Path, listen: &str, number: u8) -> Result<(Process, String), String> {
    let (store, batches, log) = (area.join(super::judge::STORE), dir.join("batches"), dir.join(format!("log-{number}")));
    let args = ["recorded-server", "--store"].map(std::ffi::OsStr::new);
    let args = [&args[..], &[store.as_os_str(), "--batches".as_ref(), batches.as_os_str(), "--listen".as_ref(), listen.as_ref()]].concat();
    let server = recorded(&log, Stdio::piped(), &args)?;
    // What it promises before it says where it listens stands in the log, too.
    while let Some(line) = server.line() {
        if line.parse::<std::net::SocketAddr>().is_ok() {
            return Ok((server, line));
        }
    }
    Err("the recorded server did not start; its own words stand above".to_owned())
}

/// Fills a journal.
fn fill(address: &str) -> Result<(), String> {
    let client = Client::builder().insecure().server(address).label("filler").connect().map_err(|e| e.to_string())?;
    for _ in 0..FILES {
        client.write("/filler", vec![0; FILE_LEN]).wait().map_err(|e| format!("filling a journal: {e}"))?;
    }
    Ok(())
}

/// Records the opening of a store in `area`, which `replay` knows.
pub(super) fn record_opening(mut replay: Replay, area: &Path, log: &Path, extra: u64) -> Result<Replay, String> {
    let (store, extra) = (area.join(super::judge::STORE), extra.to_string());
    let args = ["recorded-opening".as_ref(), "--store".as_ref(), store.as_os_str(), "--extra".as_ref(), extra.as_ref()];
    end(recorded(log, Stdio::null(), &args)?)?;
    replay.take(log)?;
    replay.compare()?;
    Ok(replay)
}
