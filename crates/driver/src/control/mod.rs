//! The control socket: a Unix socket in a state directory over which programs of the same user speak line JSON.
//!
//! Decides which connections there are, their bounds, and when they end. It stands beside the walk, as a guest of
//! the same mio loop ([`Services`](crate::Services)), and never blocks it. What a line means is the application's:
//! it is called with each line and answers at once, later, or with many lines (a live view) by the connection's id.
//! Invariants: every line, buffer and the number of connections is bounded; a consumer that does not read is
//! dropped, and so delays nobody; only the owner of the state directory can connect (mode 0600).
//! `listen` makes the socket file, `connection` buffers, `client` is the other end.

mod client;
mod connection;
mod listen;
mod places;

use std::io;
use std::path::Path;

use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};

use connection::{Connection, Read};

pub use client::{ClientError, ControlClient};
pub use listen::{ControlError, SocketFile, listen};
pub use places::{GAVE_WAY, Places};

/// What a connection is told that gives up its place because all others await an answer, too.
const WAITED_LONGEST: &str = "closed this connection for another one: all await an answer, and it has done so longest";

/// What each bound of a control socket is.
#[derive(Clone, Copy, Debug)]
pub struct ControlLimits {
    /// Most connections at a time. For a further one that was idle longest is told so and closed; if each awaits an answer, the one that
    /// has awaited it longest.
    pub connections_max: usize,
    /// Longest line that is taken, in bytes without its end.
    pub line_max: usize,
    /// Most bytes that wait for a connection to read them; with more, the connection is dropped.
    pub output_max: usize,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self { connections_max: 64, line_max: 1 << 20, output_max: 16 << 20 }
    }
}

/// Names one connection for as long as the server lives; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    serial: u64,
    slot: usize,
}

/// What the application answers to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// This line, at once. It must hold no line end; the server adds it.
    Line(String),
    /// Nothing now: lines come by [`ControlServer::push`], once or as long as the connection lives.
    Later,
    /// This line, and then the connection is closed.
    Last(String),
}

/// The application behind a control socket. Any `FnMut(ConnectionId, &str) -> Response` is one.
pub trait ControlHandler {
    /// A line has come, without its end. Called within [`ControlServer::on_ready`].
    fn line(&mut self, connection: ConnectionId, line: &str) -> Response;

    /// The connection is gone; pushes to it would do nothing. Not called for one that
    /// [`push`](ControlServer::push) reported gone or that [`close`](ControlServer::close) ended.
    fn closed(&mut self, connection: ConnectionId) {
        let _ = connection;
    }
}

impl<F: FnMut(ConnectionId, &str) -> Response> ControlHandler for F {
    fn line(&mut self, connection: ConnectionId, line: &str) -> Response {
        self(connection, line)
    }
}

/// A listening control socket and its connections.
pub struct ControlServer {
    listener: UnixListener,
    file: SocketFile,
    limits: ControlLimits,
    slots: Vec<Option<Connection>>,
    next_serial: u64,
    places: Places<ConnectionId>,
    first_token: usize,
    registry: Option<Registry>,
}

impl ControlServer {
    /// Makes the socket file at `path` with mode 0600 and listens on it. A file that a dead process left is replaced
    /// (only if nobody answers there); the caller holds the lock of the state directory. The file goes with the value.
    pub fn bind(path: &Path, limits: ControlLimits) -> Result<Self, ControlError> {
        let (listener, file) = listen(path, None)?;
        Ok(Self {
            listener: UnixListener::from_std(listener),
            file,
            limits,
            slots: (0..limits.connections_max).map(|_| None).collect(),
            next_serial: 0,
            places: Places::new(limits.connections_max),
            first_token: 0,
            registry: None,
        })
    }

    /// The path of the socket file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// How many tokens this server uses, from the first on that [`register`](Self::register) is given.
    #[must_use]
    pub fn token_count(&self) -> usize {
        1 + self.limits.connections_max
    }

    /// Registers with a poll under `first_token` and the [`token_count`](Self::token_count) − 1 after it.
    pub fn register(&mut self, registry: &Registry, first_token: usize) -> io::Result<()> {
        registry.register(&mut self.listener, Token(first_token), Interest::READABLE)?;
        self.first_token = first_token;
        self.registry = Some(registry.try_clone()?);
        Ok(())
    }

    /// Whether a ready token is this server's.
    #[must_use]
    pub fn owns(&self, token: Token) -> bool {
        (self.first_token..self.first_token + self.token_count()).contains(&token.0)
    }

    /// Serves a ready token: accepts, reads, calls the handler with each line, writes. Does nothing for a token that
    /// is not this server's.
    pub fn on_ready(&mut self, token: Token, handler: &mut impl ControlHandler) {
        if !self.owns(token) {
            return;
        }
        match token.0 - self.first_token {
            0 => self.accept(handler),
            number => {
                let slot = number - 1;
                self.serve(slot, handler);
                // A place is free again, or accepting had failed for want of descriptors: whoever waits gets in.
                if self.slots[slot].is_none() {
                    self.accept(handler);
                }
            }
        }
    }

    /// Sends a line (without line end) to a connection; false if it is gone, or is dropped now because it does not
    /// read what it is sent.
    pub fn push(&mut self, connection: ConnectionId, line: &str) -> bool {
        let Some(target) = self.find(connection) else {
            return false;
        };
        target.answered();
        let awaits = target.awaits_an_answer();
        let alive = target.queue(line) && target.flush();
        if alive {
            self.places.used(connection, awaits);
        } else {
            self.remove(connection.slot);
        }
        alive
    }

    /// Closes a connection once it has read what was sent to it.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(target) = self.find(connection) {
            target.finish();
            if !target.flush() {
                self.remove(connection.slot);
            }
        }
    }

    /// The process at the other end of a connection, as the kernel knows it.
    pub fn pid(&mut self, connection: ConnectionId) -> Option<i32> {
        let stream = self.find(connection)?.stream();
        getsockopt(stream, sockopt::PeerCredentials).ok().map(|peer| peer.pid())
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.places.taken()
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(id.slot)?.as_mut().filter(|connection| connection.id() == id)
    }

    fn accept(&mut self, handler: &mut impl ControlHandler) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.make_room(handler);
                    self.admit(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::warn!("control socket {}: cannot accept a connection: {error}", self.path().display());
                    return;
                }
            }
        }
    }

    /// Closes the connection that was used longest ago, if all places are taken: whoever comes now may be the operator. One that awaits an
    /// answer goes only if all do.
    fn make_room(&mut self, handler: &mut impl ControlHandler) {
        if !self.places.is_full() {
            return;
        }
        let idle = self.places.idle_longest();
        let Some(id) = idle.or_else(|| self.places.kept_longest()) else { return };
        let why = if idle.is_some() { GAVE_WAY } else { WAITED_LONGEST };
        log::warn!("control socket {}: {why} ({} are open)", self.path().display(), self.connections());
        if let Some(connection) = self.find(id) {
            connection::refuse(connection.stream(), &format!("the server has {why}"));
        }
        self.remove(id.slot);
        handler.closed(id);
    }

    fn admit(&mut self, mut stream: UnixStream) {
        let free = self.slots.iter().position(Option::is_none);
        // Only a socket that is to take none has no place now.
        let (Some(slot), Some(registry)) = (free, &self.registry) else { return };
        let token = Token(self.first_token + 1 + slot);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = registry.register(&mut stream, token, interest) {
            log::warn!("control socket: cannot watch a connection: {error}");
            return;
        }
        let id = ConnectionId { serial: self.next_serial, slot };
        self.next_serial += 1;
        self.places.enter(id);
        self.slots[slot] = Some(Connection::new(stream, id, self.limits));
    }

    fn serve(&mut self, slot: usize, handler: &mut impl ControlHandler) {
        let Some(connection) = &mut self.slots[slot] else {
            return;
        };
        let id = connection.id();
        let mut used = false;
        let read = connection.read_lines(|line| {
            used = true;
            handler.line(id, line)
        });
        // The poll reports more than lines: that answers were read, say.
        if used {
            self.places.used(id, connection.awaits_an_answer());
        }
        let alive = match read {
            Read::Open => connection.flush(),
            // Other sources get their turn; the poll reports this one again at once.
            Read::More => connection.flush() && self.rearm(slot),
            Read::Broken => false,
        };
        if !alive {
            self.remove(slot);
            handler.closed(id);
        }
    }

    /// Makes the poll report a connection again that was not read until it would block.
    fn rearm(&mut self, slot: usize) -> bool {
        let token = Token(self.first_token + 1 + slot);
        let interest = Interest::READABLE | Interest::WRITABLE;
        match (&self.registry, &mut self.slots[slot]) {
            (Some(registry), Some(connection)) => registry.reregister(connection.stream(), token, interest).is_ok(),
            _ => false,
        }
    }

    fn remove(&mut self, slot: usize) {
        let Some(mut connection) = self.slots[slot].take() else { return };
        self.places.leave(connection.id());
        if let Some(registry) = &self.registry {
            // Fails only if the poll does not know it any more; closing it forgets it in any case.
            if let Err(error) = registry.deregister(connection.stream()) {
                log::debug!("control socket: {error}");
            }
        }
    }
}
