//! What a lock without a server costs: messages, round trips and latency of one, and how many a core agrees on.
//!
//! Decides the loads, which are those of the paper: one acquisition and one renewal in groups of 3, 5 and 15; links of 0.2, 10, 50 and 100 ms; batches of
//! leases of 3 to 30 nodes in groups of 3, and by group size. Real members exchange real datagrams in one process; the network is simulated and
//! takes simulated time, the CPU is real. Leaves to others: members as processes, and ZooKeeper (`beside`).

mod beside;

use crate::cases::Plan;
use crate::figures::count;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_flease::{Config, Event, Peer, Terms};
use cistern_link::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::time::{Duration, Instant as Wall};

/// Leases that each node asks for at once in a batch.
const BATCH: usize = 1_000;

/// Measures single leases at several links, then batches; then real members beside ZooKeeper.
pub(crate) fn run(dir: &Path, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
    Ok(vec![simulated(progress)?, beside::run(dir, plan, progress)?])
}

fn simulated(progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("flease", "locks of a group without a server: real members, simulated links, batches on one core");
    for members in [3, 5, 15] {
        for by_write in [false, true] {
            for one_way_us in [100, 5_000, 25_000, 50_000] {
                progress.say(&format!("{members} members, a round trip of {} ms", count(2 * one_way_us) / 1e3));
                section.rows.push(single(members, by_write, one_way_us)?);
            }
        }
    }
    for (nodes, size) in [(3, 3), (6, 3), (9, 3), (15, 3), (30, 3), (30, 5), (30, 10), (30, 15)] {
        progress.say(&format!("{nodes} nodes in groups of {size}"));
        section.rows.push(batch(nodes, size)?);
    }
    Ok(section.note("Above 50 ms a round trip is longer than the first retransmission timeout: what is sent again is counted.").note(
        "CPU is of all members of all groups, on one core, without sockets: flat where a node costs the same however many there are.",
    ))
}

/// One acquisition, and the renewal that follows.
fn single(members: u8, by_write: bool, one_way_us: u64) -> Result<Row, Trouble> {
    let mut network = Network::new(1, members, by_write, one_way_us * 1_000)?;
    network.begin();
    let (at, sent) = (network.now_ns, network.sent);
    network.want(0, b"lock");
    network.run_while(|network| network.acquired == 0);
    let (acquired_ms, messages) = (count(network.now_ns - at) / 1e6, network.sent - sent);
    let until = network.until(b"lock");
    let sent = network.sent;
    network.run_while(|network| network.until(b"lock") == until);
    // Answers of the slower members are on their way.
    let end = network.now_ns + 2 * network.one_way_ns;
    network.run_while(|network| network.now_ns <= end);
    let by = if by_write { ", renewed by WRITE alone" } else { "" };
    Ok(Row::new(format!("{members} members, link {} ms{by}", count(2 * one_way_us) / 1e3))
        .with("acquire_ms", "acquired after ms", acquired_ms)
        .with("acquire_messages", "messages", messages)
        .with("renew_messages", "of a renewal", network.sent - sent))
}

/// All nodes ask for a batch at once, each in its own group: node i with the `size` - 1 that follow it.
fn batch(nodes: usize, size: u8) -> Result<Row, Trouble> {
    let mut network = Network::new(nodes, size, false, 100_000)?;
    network.begin();
    let sent = network.sent;
    let begun = Wall::now();
    for node in 0..nodes {
        for number in 0..BATCH {
            network.want(node, number.to_string().as_bytes());
        }
    }
    let all = nodes * BATCH;
    network.run_while(|network| network.acquired < all);
    let seconds = begun.elapsed().as_secs_f64();
    let rate = count(all as u64) / seconds;
    Ok(Row::new(format!("{nodes} nodes, groups of {size}"))
        .with("leases_s", "leases/s of one core", rate)
        .with("cpu_us_lease", "µs of CPU a lease", 1e6 / rate)
        .with("datagrams_lease", "datagrams a lease", count(network.sent - sent) / count(all as u64)))
}

/// A datagram that arrives, or a timer that is due.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: u64,
    /// Of several at once the one that was made first.
    number: u64,
    peer: usize,
    /// Who sent it, and its bytes.
    datagram: Option<(u8, Vec<u8>)>,
}

/// Groups of members, one for each node, and the links between them.
struct Network {
    now_ns: u64,
    one_way_ns: u64,
    size: usize,
    peers: Vec<Peer>,
    due: BinaryHeap<Reverse<Due>>,
    number: u64,
    sent: u64,
    acquired: usize,
}

impl Network {
    fn new(groups: usize, size: u8, renew_by_write: bool, one_way_ns: u64) -> Result<Self, Trouble> {
        let members: Vec<Vec<u8>> = (0..size).map(|member| vec![b'm', member]).collect();
        let mut peers = Vec::new();
        for group in 0..groups {
            for me in 0..size {
                let terms = Terms { lease: Duration::from_secs(2), ..Terms::default() };
                let config =
                    Config { terms, list_number: 1, members: members.clone(), me, renew_by_write, resources_max: 1 << 20, reserved: None };
                let mut seed = [me; 32];
                seed[..8].copy_from_slice(&(group as u64).to_be_bytes());
                peers.push(Peer::new(&config, seed, Instant::new(1, 1)).map_err(Trouble::starting("making a member"))?);
            }
        }
        let size = usize::from(size);
        Ok(Self { now_ns: 1, one_way_ns, size, peers, due: BinaryHeap::new(), number: 0, sent: 0, acquired: 0 })
    }

    const fn now(&self) -> Instant {
        Instant::new(self.now_ns, self.now_ns)
    }

    /// Lets every restart wait end.
    fn begin(&mut self) {
        self.now_ns += 3_000_000_000;
        (0..self.peers.len()).for_each(|peer| self.turn(peer));
    }

    /// The first member of a group wants a lock.
    fn want(&mut self, group: usize, name: &[u8]) {
        let (peer, now) = (group * self.size, self.now());
        // Names are short, and there is room.
        let _ = self.peers[peer].acquire(now, name);
        self.push(self.now_ns, peer, None);
    }

    fn until(&self, name: &[u8]) -> Option<Instant> {
        self.peers[0].owned(self.now(), name).map(|owned| owned.until)
    }

    fn push(&mut self, at: u64, peer: usize, datagram: Option<(u8, Vec<u8>)>) {
        self.number += 1;
        self.due.push(Reverse(Due { at_ns: at, number: self.number, peer, datagram }));
    }

    fn run_while(&mut self, goes_on: impl Fn(&Self) -> bool) {
        while goes_on(self)
            && let Some(Reverse(Due { at_ns, peer, datagram, .. })) = self.due.pop()
        {
            self.now_ns = self.now_ns.max(at_ns);
            if let Some((from, bytes)) = datagram {
                let now = self.now();
                // Nothing is lost or changed here.
                let _ = self.peers[peer].handle_datagram(now, from, &bytes);
            }
            self.turn(peer);
        }
    }

    fn turn(&mut self, peer: usize) {
        let now = self.now();
        let this = &mut self.peers[peer];
        this.handle_drained(now);
        let mut out = Vec::new();
        let mut bytes = Vec::new();
        while let Some(to) = this.poll_transmit(&mut bytes) {
            out.push((to, bytes.clone()));
        }
        while let Some(event) = this.poll_event() {
            self.acquired += usize::from(matches!(event, Event::Acquired { .. }));
        }
        let wake = this.wake_after(now);
        if let Some(span) = wake {
            self.push(self.now_ns + u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 2) + 1, peer, None);
        }
        let (first, me) = (peer / self.size * self.size, peer % self.size);
        for (to, bytes) in out {
            self.sent += 1;
            let from = u8::try_from(me).unwrap_or(u8::MAX);
            self.push(self.now_ns + self.one_way_ns, first + usize::from(to), Some((from, bytes)));
        }
    }
}
