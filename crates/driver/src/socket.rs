//! One UDP socket: opened, sized, never fragmenting, and able to say which of its addresses was asked.
//!
//! Decides socket options and which socket serves a path. First and last step of the walk: `turn` receives
//! through it, `tx_batch` sends through it. Kernel facilities (batched receive, joined and segmented datagrams,
//! destination address, DF, the error queue) come from `quinn-udp`; nothing here is unsafe.
//! Invariants: a datagram is answered from the address that was asked (`wire-spec.md` section 3.7); IPv6 sockets carry
//! IPv6 only; an error that the network reports for one peer is counted and stops nothing.
//! Leaves to `turn`: when to receive; to `tx_batch`: what waits while a socket has no room.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};

use cistern_link::Path;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use quinn_udp::{BATCH_SIZE, Transmit, TransportErrorPayload, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::receive_pool::ReceivePool;
use crate::stats::Stats;

/// Most entries of a socket's error queue that are read at one time, so that a flood of ICMP cannot hold the loop.
const ERRORS_PER_DRAIN: usize = 64;

/// How the sockets of a driver are sized.
#[derive(Clone, Copy, Debug)]
pub struct PortOptions {
    /// Wanted receive buffer (SO_RCVBUF), in bytes; the system may give less (`net.core.rmem_max`), which is logged.
    pub receive_buffer_bytes: usize,
    /// Wanted send buffer (SO_SNDBUF), in bytes; the system may give less (`net.core.wmem_max`).
    pub send_buffer_bytes: usize,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self {
            // A burst of some 2,000 small datagrams while the loop is in one turn (the kernel counts about
            // 0.8 to 2.3 KiB of memory for each).
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 1 << 20,
        }
    }
}

/// Why a socket could not be opened; says which address and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another socket has the address and port.
    #[error("cannot open UDP {address}: the address is in use; end the program that has it, or choose another port")]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address is none of this machine's.
    #[error("cannot open UDP {address}: no interface of this machine has that address; use one of its own, or 0.0.0.0 or [::] for all")]
    NotLocal {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system forbids it.
    #[error(
        "cannot open UDP {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE, so choose a higher port or give that capability"
    )]
    Forbidden {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The machine does not have the address family.
    #[error(
        "cannot open UDP {address}: this machine has no {}; use an address of the other family",
        family_name(*address)
    )]
    NoFamily {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Any other failure.
    #[error("cannot open UDP {address}: {step} failed: {source}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// Which step failed.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What came of one send call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Handed to the system.
    Done,
    /// No room: try again when the socket is writable.
    Blocked,
    /// Several datagrams at once were refused; each may go by itself.
    Refused,
    /// A single datagram was refused; it is dropped and counted.
    Dropped,
}

/// An open UDP socket of an event loop.
pub struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    /// Set from a refused send until the socket is writable again.
    blocked: bool,
    /// Whether writability is asked of the poll now. It is not otherwise: the kernel reports it after every
    /// datagram that leaves, which would wake an idle loop once for each.
    watches_writable: bool,
    batch: BatchSize,
}

/// How many buffers the next receive call offers at least: in a turn first as many as the last turn needed, then four times as many each
/// time.
///
/// Preparing a buffer costs as much whether or not something comes, and most turns bring one datagram and then nothing.
#[derive(Clone, Copy, Debug)]
struct BatchSize {
    offer: usize,
    /// Filled since the socket was found empty last.
    filled: usize,
}

impl BatchSize {
    const NEW: Self = Self { offer: 1, filled: 0 };

    /// A call has filled so many; 0: the socket was empty.
    fn came(&mut self, filled: usize) {
        if filled == 0 {
            *self = Self { offer: self.filled.clamp(1, BATCH_SIZE), filled: 0 };
        } else {
            *self = Self { offer: (self.offer * 4).min(BATCH_SIZE), filled: self.filled + filled };
        }
    }
}

impl UdpPort {
    /// Opens a socket at `address`; port 0 lets the system choose. Called at start, by server and agent.
    pub fn open(address: SocketAddr, options: &PortOptions) -> Result<Self, OpenError> {
        let at = |step| move |source| OpenError::from_io(address, step, source);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(at("socket"))?;
        if address.is_ipv6() {
            socket.set_only_v6(true).map_err(at("IPV6_V6ONLY"))?;
        }
        size_buffers(&socket, address, options).map_err(at("sizing the buffers"))?;
        socket.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
        socket.bind(&address.into()).map_err(at("bind"))?;
        let socket = UdpSocket::from_std(socket.into());
        let state = UdpSocketState::new((&socket).into()).map_err(at("setting UDP options"))?;
        if state.may_fragment() {
            log::warn!("{address}: this system cannot forbid fragmentation of datagrams");
        }
        state.enable_transport_errors((&socket).into()).map_err(at("IP_RECVERR"))?;
        let address = socket.local_addr().map_err(at("getsockname"))?;
        Ok(Self { socket, state, address, blocked: false, watches_writable: false, batch: BatchSize::NEW })
    }

    /// The address and port that the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The number by which the kernel lists the socket; `None` if it does not tell.
    pub(crate) fn inode(&self) -> Option<u64> {
        nix::sys::stat::fstat(&self.socket).ok().map(|stat| stat.st_ino)
    }

    fn is_wildcard(&self) -> bool {
        self.address.ip().is_unspecified()
    }

    fn same_family(&self, other: SocketAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
    }

    /// Whether a path, which names no local port, could belong to either of two sockets.
    pub(crate) fn ambiguous_with(&self, other: &Self) -> bool {
        self.same_family(other.address) && (self.is_wildcard() || other.is_wildcard() || self.address.ip() == other.address.ip())
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Asks the poll for writability while the socket is blocked, and only then.
    pub(crate) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if self.blocked != self.watches_writable {
            let interest = if self.blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            registry.reregister(&mut self.socket, token, interest)?;
            self.watches_writable = self.blocked;
        }
        Ok(())
    }

    /// The socket is, or may be, writable again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Receives one batch into the pool; gives the number of filled buffers.
    pub(crate) fn receive(&mut self, pool: &mut ReceivePool) -> io::Result<usize> {
        let received = pool.fill(&self.socket, &self.state, self.batch.offer);
        match &received {
            Ok(filled) => self.batch.came(*filled),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.batch.came(0),
            Err(_) => {}
        }
        received
    }

    /// Most datagrams that one send call takes.
    pub(crate) fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends one datagram, or several of `segment` bytes each (the last may be shorter), and counts what happened.
    pub(crate) fn send(&mut self, path: &Path, contents: &[u8], segment: Option<usize>, stats: &Stats) -> Sent {
        if self.blocked {
            return Sent::Blocked;
        }
        let transmit = Transmit {
            destination: path.remote,
            ecn: None,
            contents,
            segment_size: segment,
            // A socket bound to one address sends from it anyway.
            src_ip: path.local.filter(|_| self.is_wildcard()),
        };
        let mut result = self.state.try_send((&self.socket).into(), &transmit);
        // The system may report on this call what the network said about an earlier datagram, perhaps to another
        // peer; this one was then not sent.
        if result.as_ref().is_err_and(is_network_report) && self.drain_errors(stats) > 0 {
            result = self.state.try_send((&self.socket).into(), &transmit);
        }
        let error = match result {
            Ok(()) => {
                count_sent(contents, segment, stats);
                return Sent::Done;
            }
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::WouldBlock {
            stats.send_would_block.one();
            self.blocked = true;
            return Sent::Blocked;
        }
        self.drain_errors(stats);
        if segment.is_some() {
            log::debug!("{}: segmented send refused: {error}", self.address);
            return Sent::Refused;
        }
        log::trace!("{}: send to {} failed: {error}", self.address, path.remote);
        count_send_error(&error, stats);
        Sent::Dropped
    }

    /// Reads and counts what the network reported (ICMP) about datagrams sent; gives how many reports there were.
    pub(crate) fn drain_errors(&self, stats: &Stats) -> usize {
        for read in 0..ERRORS_PER_DRAIN {
            match self.state.recv_transport_error((&self.socket).into()) {
                Ok(Some(report)) => {
                    log::trace!("{}: network report {report:?}", self.address);
                    match report.payload {
                        TransportErrorPayload::Unreachable => stats.icmp_unreachable.one(),
                        TransportErrorPayload::TooBig { .. } => stats.icmp_too_big.one(),
                        _ => stats.icmp_other.one(),
                    }
                }
                Ok(None) | Err(_) => return read,
            }
        }
        ERRORS_PER_DRAIN
    }
}

/// The socket by which a path leaves: the one bound to its local address, else one bound to all addresses, else,
/// if the path leaves the choice open, any of the right family.
pub(crate) fn route(ports: &[UdpPort], path: &Path) -> Option<usize> {
    let find = |fits: &dyn Fn(&UdpPort) -> bool| ports.iter().position(|port| port.same_family(path.remote) && fits(port));
    match path.local {
        Some(local) => find(&|port| port.address.ip() == local).or_else(|| find(&UdpPort::is_wildcard)),
        None => find(&UdpPort::is_wildcard).or_else(|| find(&|_| true)),
    }
}

/// Whether answers can be sent from the address that a datagram was sent to.
pub(crate) fn is_unicast(asked: IpAddr) -> bool {
    match asked {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_multicast(),
    }
}

/// Whether an error of a socket call is what the network said about some datagram sent before.
pub(crate) fn is_network_report(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::PermissionDenied
    ) || quinn_udp::is_msg_size_err(error)
        || matches!(error.raw_os_error(), Some(errno) if REPORTED.contains(&errno))
}

/// Errors that ICMP turns into and that have no `ErrorKind`: EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET, EOPNOTSUPP.
const REPORTED: [i32; 5] = [
    nix::errno::Errno::EPROTO as i32,
    nix::errno::Errno::ENOPROTOOPT as i32,
    nix::errno::Errno::EHOSTDOWN as i32,
    nix::errno::Errno::ENONET as i32,
    nix::errno::Errno::EOPNOTSUPP as i32,
];

fn count_sent(contents: &[u8], segment: Option<usize>, stats: &Stats) {
    let datagrams = segment.map_or(1, |segment| contents.len().div_ceil(segment.max(1)));
    stats.datagrams_out.add(datagrams);
    stats.bytes_out.add(contents.len());
    if datagrams > 1 {
        stats.segmented_sends.one();
    }
}

fn count_send_error(error: &io::Error, stats: &Stats) {
    use io::ErrorKind as Kind;
    let counter = match error.kind() {
        _ if quinn_udp::is_msg_size_err(error) => &stats.dropped_send_too_big,
        Kind::PermissionDenied => &stats.dropped_send_forbidden,
        Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown | Kind::AddrNotAvailable => {
            &stats.dropped_send_unreachable
        }
        Kind::OutOfMemory => &stats.dropped_send_no_buffers,
        _ if error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => &stats.dropped_send_no_buffers,
        _ => &stats.dropped_send_other,
    };
    counter.one();
}

fn size_buffers(socket: &Socket, address: SocketAddr, options: &PortOptions) -> io::Result<()> {
    socket.set_recv_buffer_size(options.receive_buffer_bytes)?;
    socket.set_send_buffer_size(options.send_buffer_bytes)?;
    // The kernel reports twice what was asked, for its own bookkeeping.
    let got = socket.recv_buffer_size()? / 2;
    if got < options.receive_buffer_bytes {
        log::info!(
            "{address}: receive buffer of {got} bytes, {} wanted; raise net.core.rmem_max to lose less in bursts",
            options.receive_buffer_bytes
        );
    }
    Ok(())
}

fn family_name(address: SocketAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

impl OpenError {
    fn from_io(address: SocketAddr, step: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { address },
            io::ErrorKind::PermissionDenied => Self::Forbidden { address },
            _ if source.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32) => Self::NoFamily { address },
            _ => Self::Other { address, step, source },
        }
    }
}
