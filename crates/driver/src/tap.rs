//! Every datagram of a loop as it passed the socket, for a capture.
//!
//! Decides what a capture of one process is: what its sockets received, whatever became of it afterwards, and what the system took to send;
//! each with its time (`stamps`, read after the receive call, before the send call) and the addresses of both ends. A socket bound to all
//! addresses has the one that the datagram was sent to, or that the route to the peer has. Invariant: without a tap nothing is read, looked
//! up or copied for it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cistern_capture::Recorder;
use cistern_link::Path;

use crate::sources::source;

/// Sees every datagram of an event loop; called by the loop's thread, so it must not wait for anything.
pub trait Tap: fmt::Debug + Send + Sync {
    /// A datagram was received, or handed to the system. `at` is the time since 1970-01-01 UTC ([`stamp`](crate::stamp)).
    fn datagram(&self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]);
}

impl Tap for Recorder {
    fn datagram(&self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        self.record(at, from, to, payload);
    }
}

/// How long the address of a route is believed: routes change when a machine moves.
const ROUTE_TIME: Duration = Duration::from_secs(1);

/// Most routes that are remembered.
const ROUTES_MAX: usize = 64;

/// A tap with what it needs to name the local end.
#[derive(Debug)]
pub(crate) struct Tapped {
    tap: Arc<dyn Tap>,
    routes: Vec<Route>,
}

#[derive(Debug)]
struct Route {
    to: SocketAddr,
    from: IpAddr,
    found: Instant,
}

impl Tapped {
    pub(crate) const fn new(tap: Arc<dyn Tap>) -> Self {
        Self { tap, routes: Vec::new() }
    }

    /// A datagram came in by the socket bound to `bound`.
    pub(crate) fn received(&mut self, at: Duration, bound: SocketAddr, path: &Path, datagram: &[u8]) {
        let local = self.local(bound, path);
        self.tap.datagram(at, path.remote, local, datagram);
    }

    /// The system took `contents`: one datagram, or several of `segment` bytes each.
    pub(crate) fn sent(&mut self, at: Duration, bound: SocketAddr, path: &Path, contents: &[u8], segment: Option<usize>) {
        let local = self.local(bound, path);
        let size = segment.unwrap_or(contents.len()).max(1);
        if contents.is_empty() {
            self.tap.datagram(at, local, path.remote, contents);
        }
        for datagram in contents.chunks(size) {
            self.tap.datagram(at, local, path.remote, datagram);
        }
    }

    fn local(&mut self, bound: SocketAddr, path: &Path) -> SocketAddr {
        let ip = if bound.ip().is_unspecified() { path.local.unwrap_or_else(|| self.route(path.remote)) } else { bound.ip() };
        SocketAddr::new(ip, bound.port())
    }

    /// The address from which the system would send to `to`; the unspecified one if it has no route.
    fn route(&mut self, to: SocketAddr) -> IpAddr {
        let known = self.routes.iter().position(|route| route.to == to);
        if let Some(known) = known {
            if self.routes[known].found.elapsed() < ROUTE_TIME {
                return self.routes[known].from;
            }
            self.routes.swap_remove(known);
        }
        let from = source(to).unwrap_or_else(|_| if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() });
        if self.routes.len() >= ROUTES_MAX {
            self.routes.clear();
        }
        self.routes.push(Route { to, from, found: Instant::now() });
        from
    }
}
