//! What tests and tools start and watch: processes, a server, agents, hosts of their own, and captures that are audited at the end.
//!
//! Everything started here is ended by who started it, by its id; every wait is bounded; nothing from the surroundings reaches a program
//! (settings, addresses, sockets). What is not as it must be panics, and says what was expected. No product links this crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod agent;
pub mod attack;
mod captures;
mod etcd;
mod group;
mod group_hosts;
mod local;
pub mod network;
pub mod numbers;
mod process;
mod server;
mod server_group;
pub mod session;

pub use agent::{Agent, Line};
pub use captures::Captures;
pub use etcd::Etcds;
pub use group::Group;
pub use group_hosts::GroupHosts;
pub use local::LocalServer;
pub use process::{CISTERN, CISTERND, Daemon, Place, Process, command, is_built_with_etcd, program, said, without_settings};
pub use server::Server;
pub use server_group::{GroupHolder, ServerGroup};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for anything: far above what it takes, so that only a defect reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until there is something; panics when [`PATIENCE`] ends.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Base64, for contents in JSON.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn connect(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn ask(stream: &mut BufReader<UnixStream>, request: &Value) -> Result<Value, Value> {
    writeln!(stream.get_mut(), "{request}").unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{request} was answered {line:?}: {e}"));
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(answer["error"].take()),
    }
}
