//! An interface as a source of bytes: packets from the kernel, as the capture that `cistern-capture` reads.
//!
//! Decides: which packets are taken (of the interface, or of all; on loopback each once) and how they look as bytes: a pcap with Linux
//! cooked headers, so that live traffic and files go the same way from here on. Packets come without link headers (`SOCK_DGRAM`) and
//! with the kernel's time; those that it dropped because nobody took them are counted. Leaves to others: everything about IP (`cistern-capture`), waiting (`Inputs::wait`).
//! Link type and header: LINKTYPE_LINUX_SLL of the tcpdump project's list of link types.

use super::source::Flow;
use crate::failure::{EXIT_IO, EXIT_NO_INPUT, EXIT_PERMISSION, Failure};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All interfaces.
const ANY: &str = "any";
/// The largest packet there is.
const PACKET: usize = 65_536;
/// Bytes that the kernel may keep for us while we show what we have; more than its default, so that bursts are not lost.
const KEPT: usize = 8 << 20;
/// The kernel's word for packets that leave (PACKET_OUTGOING of packet(7)).
const OUTGOING: u8 = 4;
/// ARPHRD_LOOPBACK of the kernel's if_arp.h.
const LOOPBACK: u16 = 772;
const LINUX_SLL: u32 = 113;
/// pcap with nanoseconds, little-endian.
const MAGIC: u32 = 0xA1B2_3C4D;

/// A capturing socket.
#[derive(Debug)]
pub(super) struct Live {
    socket: OwnedFd,
    /// The interface, unless it is all of them.
    index: Option<usize>,
    packet: Vec<u8>,
    /// Packets that the kernel has dropped, as the newest one taken says.
    dropped: Rc<Cell<u32>>,
    /// What was captured and not read yet.
    bytes: VecDeque<u8>,
}

impl Live {
    /// Begins to capture.
    ///
    /// # Errors
    /// If there is no such interface, or no right.
    pub(super) fn open(interface: &str) -> Result<(Self, Flow), Failure> {
        let failed = |what: &str, e: Errno| Failure::new(EXIT_IO, format!("cannot capture on {interface}: {what}: {}", e.desc()));
        let address = if interface == ANY { None } else { Some(find(interface)?) };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).map_err(|e| match e {
            Errno::EPERM | Errno::EACCES => Failure::new(
                EXIT_PERMISSION,
                format!(
                    "no right to capture on {interface}: run as root, or give this program the right: setcap cap_net_raw+ep \
                     /path/to/cistern-dump"
                ),
            ),
            Errno::EAFNOSUPPORT => Failure::new(EXIT_PERMISSION, "this kernel or this sandbox has no packet sockets: capture elsewhere"),
            e => failed("no packet socket", e),
        })?;
        if let Some(address) = &address {
            // The address names no protocol; then the kernel keeps the socket's own.
            bind(socket.as_raw_fd(), address).map_err(|e| failed("cannot bind to it", e))?;
        }
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| failed("no times from the kernel", e))?;
        setsockopt(&socket, sockopt::RxqOvfl, &1).map_err(|e| failed("no count of what it drops", e))?;
        // Without the right to more than the system's limit the kernel gives that limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &KEPT).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &KEPT).map_err(|e| failed("no buffer", e))?;
        }
        let fd = socket.as_fd().try_clone_to_owned().map_err(|e| Failure::new(EXIT_IO, format!("cannot capture on {interface}: {e}")))?;
        let mut bytes = VecDeque::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(u32::MAX.to_le_bytes());
        bytes.extend(LINUX_SLL.to_le_bytes());
        let dropped = Rc::new(Cell::new(0));
        let index = address.map(|address| address.ifindex());
        let live = Self { socket, index, packet: vec![0; PACKET], dropped: Rc::clone(&dropped), bytes };
        Ok((live, Flow::new(Rc::new(Cell::new(false)), Some(fd)).with_drops(dropped)))
    }

    /// Takes the next packet in; false if there is none.
    fn receive(&mut self) -> io::Result<bool> {
        let mut control = nix::cmsg_space!(TimeSpec, u32);
        let mut buffers = [IoSliceMut::new(&mut self.packet)];
        let received = match recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut buffers, Some(&mut control), MsgFlags::MSG_TRUNC) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            // The interface went down; it may come back.
            Err(Errno::ENETDOWN) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let mut stamp = None;
        for control in received.cmsgs().ok().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampns(time) => stamp = Some(Duration::from(time)),
                ControlMessageOwned::RxqOvfl(dropped) => self.dropped.set(dropped),
                _ => {}
            }
        }
        let Some(address) = received.address else { return Ok(true) };
        // Before the socket was bound it took packets of all interfaces; and on loopback every packet leaves and arrives.
        let other = self.index.is_some_and(|index| index != address.ifindex());
        if other || (address.pkttype() == OUTGOING && address.hatype() == LOOPBACK) {
            return Ok(true);
        }
        let at = stamp.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let original = received.bytes;
        let length = original.min(PACKET);
        let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        const COOKED: usize = 16;
        for word in [word(at.as_secs()), word(at.subsec_nanos().into()), word((COOKED + length) as u64), word((COOKED + original) as u64)] {
            self.bytes.extend(word);
        }
        self.bytes.extend(u16::from(address.pkttype()).to_be_bytes());
        self.bytes.extend(address.hatype().to_be_bytes());
        self.bytes.extend([0; 10]);
        // As it is in the kernel's address: in network byte order already.
        self.bytes.extend(address.protocol().to_ne_bytes());
        self.bytes.extend(&self.packet[..length]);
        Ok(true)
    }
}

impl Read for Live {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.bytes.len() < buffer.len() && self.receive()? {}
        self.bytes.read(buffer)
    }
}

/// The address of an interface.
fn find(interface: &str) -> Result<LinkAddr, Failure> {
    let all = getifaddrs().map_err(|e| Failure::new(EXIT_IO, format!("cannot list the interfaces: {}", e.desc())))?;
    let mut links: BTreeMap<String, LinkAddr> = BTreeMap::new();
    for entry in all {
        if let Some(link) = entry.address.as_ref().and_then(|address| address.as_link_addr()) {
            links.insert(entry.interface_name, *link);
        }
    }
    links.get(interface).copied().ok_or_else(|| {
        let names: Vec<_> = links.keys().map(String::as_str).chain([ANY]).collect();
        Failure::new(EXIT_NO_INPUT, format!("there is no interface {interface:?}; there are {}", names.join(", ")))
    })
}
