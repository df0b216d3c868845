//! Where this host's datagrams leave from: whether that has changed, as the kernel tells of its addresses and routes (rtnetlink).
//!
//! Decides when an agent is told that it has moved: the address that the system picks for a datagram to one of its servers is another than
//! before. A guest of the loop ([`Services`](crate::Services) of the agent's driver), which wakes only when the kernel says something.
//! Invariant: nothing depends on it; where the kernel tells nothing (an older one, a sandbox), the agent is found with its next keep-alive.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

/// RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE of linux/rtnetlink.h.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// Most messages of the kernel that are taken at a time: a router's routes may change faster than they are read.
const MESSAGES: usize = 64;

/// The addresses from which datagrams to some servers leave.
#[derive(Debug)]
pub struct Sources {
    kernel: OwnedFd,
    servers: Vec<SocketAddr>,
    known: Vec<Option<IpAddr>>,
}

impl Sources {
    /// Asks the kernel to tell of changes from now on. Called once, when an agent's driver is made.
    ///
    /// # Errors
    /// The system gives no socket for that.
    pub fn of(servers: Vec<SocketAddr>) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(kernel.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        let known = sources(&servers);
        Ok(Self { kernel, servers, known })
    }

    /// Registers with the poll of a loop.
    ///
    /// # Errors
    /// Those of the poll.
    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.kernel.as_raw_fd()), token, Interest::READABLE)
    }

    /// Takes what the kernel has said; whether datagrams to a server leave from another address than when this was asked last.
    pub fn changed(&mut self) -> bool {
        let mut message = [0; 4_096];
        // What it says in detail does not matter, nor whether some of it was dropped (ENOBUFS) for want of room. What is left after so
        // many is about the past, too: the look below comes after it, and what is said later wakes the loop again.
        for _ in 0..MESSAGES {
            if !matches!(recv(self.kernel.as_raw_fd(), &mut message, MsgFlags::empty()), Ok(1..) | Err(Errno::EINTR | Errno::ENOBUFS)) {
                break;
            }
        }
        let now = sources(&self.servers);
        let changed = now != self.known;
        self.known = now;
        changed
    }
}

fn sources(servers: &[SocketAddr]) -> Vec<Option<IpAddr>> {
    servers.iter().map(|server| source(*server).ok()).collect()
}

/// The address that the system picks for a datagram to `server`; none is sent.
pub(crate) fn source(server: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(server)?;
    Ok(probe.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_while_nothing_changes() {
        let server = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut sources = Sources::of(vec![server]).unwrap();
        assert_eq!(sources.known, [Some(Ipv4Addr::LOCALHOST.into())]);
        assert!(!sources.changed());
        sources.known = vec![Some([127, 0, 0, 2].into())];
        assert!(sources.changed() && !sources.changed());
    }
}
