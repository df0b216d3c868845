//! An agent, and the connections by which local programs ask it.

use crate::{CISTERN, Daemon, Place, Server, ask, base64, connect};
use serde_json::{Value, json};
use std::io::BufReader;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// One connection to an agent: what is locked on it belongs to it.
pub struct Line {
    stream: BufReader<UnixStream>,
    /// Of the request sent last.
    id: u64,
}

impl Line {
    /// A connection to the agent whose socket this is.
    pub fn open(socket: &Path) -> Self {
        let mut line = Self { stream: connect(socket), id: 0 };
        line.ok(json!({ "op": "hello", "api": 1 }));
        line
    }

    /// Asks; the answer, or the error.
    pub fn ask(&mut self, request: &Value) -> Result<Value, Value> {
        self.id += 1;
        let mut request = request.clone();
        request["id"] = self.id.into();
        ask(&mut self.stream, &request)
    }

    /// Asks, and panics on an error.
    pub fn ok(&mut self, request: Value) -> Value {
        self.ask(&request).unwrap_or_else(|e| panic!("{}: {e}", request.to_string().chars().take(200).collect::<String>()))
    }

    /// Takes an exclusive lock; gives its hold and its token.
    pub fn lock(&mut self, path: &str) -> (u64, u64) {
        let locked = self.ok(json!({ "op": "lock", "path": path, "wait_ms": 20_000 }));
        (locked["locked"]["hold"].as_u64().unwrap(), locked["locked"]["token"].as_u64().unwrap())
    }

    /// Gives a hold back.
    pub fn unlock(&mut self, hold: u64) {
        self.ok(json!({ "op": "unlock", "hold": hold }));
    }

    /// The state of a hold, in its word.
    pub fn hold(&mut self, hold: u64) -> String {
        self.ok(json!({ "op": "hold", "hold": hold }))["hold"]["state"].as_str().unwrap().to_owned()
    }

    /// Makes a file with these contents.
    pub fn put(&mut self, path: &str, text: &str) {
        self.ok(json!({ "op": "put", "path": path, "data": text }));
    }

    /// Contents of a file, in base64.
    pub fn read(&mut self, path: &str) -> Result<String, Value> {
        let data = self.ask(&json!({ "op": "read", "path": path }))?;
        let data = &data["data"]["data"];
        Ok(data.as_str().map_or_else(|| data["b64"].as_str().unwrap().to_owned(), |text| base64(text.as_bytes())))
    }
}

/// An agent process, and a connection to it.
pub struct Agent {
    /// The process.
    pub process: Daemon,
    socket: PathBuf,
    line: Line,
}

impl Agent {
    /// An agent that renews as long as it holds anything.
    pub fn start(server: &Server, label: &str) -> Self {
        Self::with(server, server.address, label, &["--idle", "eager"])
    }

    /// An agent that reaches the server by another address.
    pub fn by(server: &Server, address: SocketAddr, label: &str) -> Self {
        Self::with(server, address, label, &["--idle", "eager"])
    }

    /// An agent with options of its own.
    pub fn with(server: &Server, address: SocketAddr, label: &str, args: &[&str]) -> Self {
        Self::at(&Place::default(), server, &[address], label, args)
    }

    /// An agent in some network, which reaches the server by the addresses given.
    pub fn at(place: &Place, server: &Server, addresses: &[SocketAddr], label: &str, args: &[&str]) -> Self {
        let state = server.dir.path().join(label);
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(",");
        let mut all = vec!["agent", "run", "--json", "--state", state.to_str().unwrap(), "--label", label, "--server", &addresses];
        all.extend(args);
        let keys = server.key_options(label);
        all.extend(keys.iter().map(String::as_str));
        let capture = server.captures.switch(&format!("agent-{label}"));
        all.extend(capture.iter().map(String::as_str));
        let process = Daemon::start(place, CISTERN, &all);
        let socket: PathBuf = process.ready["socket"].as_str().unwrap().into();
        let line = Line::open(&socket);
        Self { process, socket, line }
    }

    /// One more connection.
    pub fn line(&self) -> Line {
        Line::open(&self.socket)
    }

    /// Where its socket is.
    pub fn socket(&self) -> &str {
        self.socket.to_str().unwrap()
    }

    /// What it says of its lease.
    pub fn lease(&mut self) -> Value {
        self.line.ok(json!({ "op": "lease" }))["lease"].take()
    }

    /// A number of its lease.
    pub fn count(&mut self, name: &str) -> u64 {
        let lease = self.lease();
        lease[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {lease}"))
    }
}

impl std::ops::Deref for Agent {
    type Target = Line;
    fn deref(&self) -> &Line {
        &self.line
    }
}

impl std::ops::DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Line {
        &mut self.line
    }
}
