//! The same answers to many peers, by one send call for each and by one `sendmmsg` for all.
//!
//! Decides the ways: the driver's own call (`quinn-udp`, one `sendmsg` for each peer), a bare `sendto` for each, and a `sendmmsg` for all,
//! round by round in turn. Counted is the CPU time of the sending thread, in which the kernel brings the datagrams to the receivers' queues,
//! too. Place: a workload of its own. Invariant: every datagram finds room; the receivers are emptied between batches, outside of what is
//! counted. Leaves to others: what the driver does with the result (docs/performance.md).

use crate::cases::Plan;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg, sendto};
use nix::time::{ClockId, clock_gettime};
use quinn_udp::{Transmit, UdpSocketState};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// Peers, and datagrams of a batch: as many as the driver's outbox holds.
const PEERS: usize = 32;
/// Bytes of a datagram: about those of the answer to GETATTR.
const BYTES: usize = 128;

/// How long a datagram may take on loopback, in seconds.
const SILENCE_S: u64 = 10;

/// How a batch leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendWay {
    Driver,
    Each,
    Together,
}

impl SendWay {
    const ALL: [Self; 3] = [Self::Driver, Self::Each, Self::Together];

    const fn name(self) -> &'static str {
        match self {
            Self::Driver => "32 peers, a send of quinn-udp each, as the driver does",
            Self::Each => "32 peers, a sendto each",
            Self::Together => "32 peers, one sendmmsg",
        }
    }
}

/// Measures all ways in turn.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut sender = Sender::new()?;
    let mut ns: [Vec<f64>; 3] = Default::default();
    for round in 0..=plan.rounds {
        progress.say(&format!("sends, round {round}"));
        for (way, ns) in SendWay::ALL.into_iter().zip(&mut ns) {
            let each = sender.round(way, plan.span)?;
            // The first does not count.
            if round > 0 {
                ns.push(each);
            }
        }
    }
    let mut section = Section::new(
        "sends",
        "one answer to each of 32 peers: CPU of the sender for a datagram, the kernel's way to the receivers included",
    );
    let spread = |values: Vec<f64>| Spread::of(values).expect("the command line lets no plan without rounds through");
    let driver = ns[0].clone();
    for (way, ns) in SendWay::ALL.into_iter().zip(ns) {
        let over = ns.iter().zip(&driver).map(|(ns, driver)| ns / driver).collect();
        section.rows.push(Row::new(way.name()).with("ns", "ns/datagram", spread(ns)).with(
            "over_driver",
            "beside the driver's",
            spread(over),
        ));
    }
    Ok(section)
}

/// One socket that sends, and those that it sends to.
struct Sender {
    socket: UdpSocket,
    state: UdpSocketState,
    receivers: Vec<UdpSocket>,
    addresses: Vec<SocketAddr>,
    names: Vec<Option<SockaddrIn>>,
    headers: MultiHeaders<SockaddrIn>,
}

impl Sender {
    fn new() -> Result<Self, Trouble> {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let at = Trouble::at("opening sockets");
        let build = || -> io::Result<Self> {
            let socket = open()?;
            let state = UdpSocketState::new((&socket).into())?;
            let receivers = (0..PEERS).map(|_| open()).collect::<io::Result<Vec<_>>>()?;
            let addresses = receivers.iter().map(UdpSocket::local_addr).collect::<io::Result<Vec<_>>>()?;
            let name = |address: &SocketAddr| SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port());
            let names = addresses.iter().map(|address| Some(SockaddrIn::from(name(address)))).collect();
            Ok(Self { socket, state, receivers, addresses, names, headers: MultiHeaders::preallocate(PEERS, None) })
        };
        build().map_err(at)
    }

    /// Sends batches for so long; gives the nanoseconds of CPU for a datagram.
    fn round(&mut self, way: SendWay, span: Duration) -> Result<f64, Trouble> {
        let (begin, mut cpu, mut datagrams) = (Instant::now(), Duration::ZERO, 0_u32);
        while begin.elapsed() < span || datagrams == 0 {
            let before = thread_cpu()?;
            self.batch(way).map_err(Trouble::at("sending to 32 peers"))?;
            cpu += thread_cpu()?.saturating_sub(before);
            datagrams += u32::try_from(PEERS).unwrap_or(u32::MAX);
            self.empty()?;
        }
        Ok(cpu.as_secs_f64() * 1e9 / f64::from(datagrams))
    }

    fn batch(&mut self, way: SendWay) -> io::Result<()> {
        let (contents, fd) = ([0xA5; BYTES], self.socket.as_raw_fd());
        match way {
            SendWay::Driver => {
                for destination in &self.addresses {
                    let transmit = Transmit { destination: *destination, ecn: None, contents: &contents, segment_size: None, src_ip: None };
                    self.state.try_send((&self.socket).into(), &transmit)?;
                }
            }
            SendWay::Each => {
                for name in self.names.iter().flatten() {
                    sendto(fd, &contents, name, MsgFlags::empty())?;
                }
            }
            SendWay::Together => {
                let slices = [[IoSlice::new(&contents)]; PEERS];
                let sent = sendmmsg(fd, &mut self.headers, &slices, &self.names, [], MsgFlags::empty())?.count();
                if sent < PEERS {
                    return Err(Errno::EAGAIN.into());
                }
            }
        }
        Ok(())
    }

    /// Takes what every receiver has been sent.
    fn empty(&self) -> Result<(), Trouble> {
        let (mut buffer, begin) = ([0; BYTES], Instant::now());
        for receiver in &self.receivers {
            while let Err(error) = receiver.recv(&mut buffer) {
                if error.kind() != io::ErrorKind::WouldBlock {
                    return Err(Trouble::at("receiving what was sent")(error));
                }
                if begin.elapsed() >= Duration::from_secs(SILENCE_S) {
                    return Err(Trouble::Silence { while_doing: "receiving what was sent", seconds: SILENCE_S });
                }
                // The kernel may bring it a little later.
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

fn thread_cpu() -> Result<Duration, Trouble> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|errno| Trouble::at("reading the CPU time of the thread")(errno))?;
    Ok(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_brings_one_datagram_to_each_peer() {
        let mut sender = Sender::new().unwrap();
        for way in SendWay::ALL {
            sender.batch(way).unwrap();
            sender.empty().unwrap();
            let mut buffer = [0; BYTES];
            let more = sender.receivers.iter().filter(|receiver| receiver.recv(&mut buffer).is_ok()).count();
            assert_eq!(more, 0, "{way:?}");
        }
    }

    #[test]
    fn round_counts_cpu_for_a_datagram() {
        let mut sender = Sender::new().unwrap();
        for way in SendWay::ALL {
            assert!(sender.round(way, Duration::ZERO).unwrap() > 0.0, "{way:?}");
        }
    }
}
