//! Datagrams on their way from the machine to the sockets: one batch, refilled when it has left.
//!
//! Decides what is sent together and what waits when a socket has no room. Last step of the walk before the send
//! call. Datagrams of one size that go one path in a row leave by one call (GSO), at the price of one copy.
//! Invariants: the clock is read before the machine is asked for a batch, so before its send calls (section 11.1); at most one
//! batch waits, in order for each socket; nothing waits longer than [`HOLD_MAX`], so a stuck interface never holds
//! up the others. Leaves to `socket`: the system calls and their errors; to `turn`: when to fill and flush.

use std::time::Duration;

use cistern_link::{Instant, Machine, Path};

use crate::socket::Sent;

/// Most datagrams in a batch: as many as one receive call brings, so a batch of requests is answered in one.
pub(crate) const BATCH: usize = 32;

/// Most bytes in one segmented send: below the largest UDP payload over IPv4 (65,507) and IPv6.
const SEGMENTED_BYTES: usize = 65_000;

/// How long a datagram waits for a socket to become writable before it is dropped. A queue on a working interface
/// moves within milliseconds; what is a second old has been sent again by the protocol.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(1);

/// What the batch sends through; the loop's sockets, or a test's script.
pub(crate) trait Carrier {
    /// Most datagrams that one call takes at this socket.
    fn segments(&self, port: usize) -> usize;
    /// Sends one datagram, or several of `segment` bytes each.
    fn send(&mut self, port: usize, path: &Path, contents: &[u8], segment: Option<usize>) -> Sent;
}

/// How a filling of the batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The machine has nothing more to send.
    MachineEmpty,
    /// The batch is full; the machine may have more.
    Full,
}

/// One batch of datagrams with their paths and sockets.
pub(crate) struct TxBatch {
    slots: Vec<Slot>,
    used: usize,
    /// When the oldest datagram that waits was first refused.
    held_since: Option<Instant>,
    /// Where a segmented send is put together.
    joined: Vec<u8>,
}

struct Slot {
    path: Path,
    port: usize,
    bytes: Vec<u8>,
}

impl TxBatch {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::with_capacity(BATCH), used: 0, held_since: None, joined: Vec::new() }
    }

    /// Whether datagrams wait for a socket.
    pub(crate) fn is_held(&self) -> bool {
        self.used > 0
    }

    /// Whether so much waits that the machine cannot be asked for more.
    pub(crate) fn is_full(&self) -> bool {
        self.used == BATCH
    }

    /// Takes datagrams from the machine until it has none or the batch is full; `now` was read just before. `route` gives the socket
    /// for a path; what has none is dropped (and counted by `route`).
    pub(crate) fn fill<M: Machine>(&mut self, machine: &mut M, now: Instant, mut route: impl FnMut(&Path) -> Option<usize>) -> Filled {
        // Counted by attempts, so that a machine with many unroutable datagrams cannot hold the loop here.
        for _ in self.used..BATCH {
            if self.used == self.slots.len() {
                self.slots.push(Slot::unused());
            }
            let slot = &mut self.slots[self.used];
            //= wire-spec.md#11-1-lease
            //# The agent MUST read the clock for a send time before it hands the transmission to the network.
            // One reading serves a batch: what is sent first is sent no sooner after it than if each had its own, for nothing is sent
            // before the batch is full.
            let Some(path) = machine.poll_transmit(now, &mut slot.bytes) else {
                return Filled::MachineEmpty;
            };
            if let Some(port) = route(&path) {
                slot.path = path;
                slot.port = port;
                self.used += 1;
            }
        }
        Filled::Full
    }

    /// Sends what is in the batch; what a blocked socket refuses stays, in order. `now` is asked only if something is refused.
    pub(crate) fn flush(&mut self, now: impl FnOnce() -> Instant, carrier: &mut impl Carrier) {
        let before = self.used;
        let mut kept = 0;
        let mut at = 0;
        // Datagrams before this index go one by one: sending them together was refused.
        let mut singly_until = 0;
        while at < before {
            let limit = if at < singly_until { 1 } else { carrier.segments(self.slots[at].port) };
            let end = self.run_end(at, limit);
            match self.send_run(at, end, carrier) {
                Sent::Done | Sent::Dropped => at = end,
                Sent::Refused => singly_until = end,
                Sent::Blocked => {
                    for index in at..end {
                        self.slots.swap(kept, index);
                        kept += 1;
                    }
                    at = end;
                }
            }
        }
        self.used = kept;
        if kept == 0 {
            self.held_since = None;
        } else if kept < before || self.held_since.is_none() {
            self.held_since = Some(now());
        }
    }

    /// Drops what has waited for [`HOLD_MAX`]; gives how many datagrams that were.
    pub(crate) fn drop_overdue(&mut self, now: Instant) -> usize {
        let overdue = self.held_since.is_some_and(|since| now.since(since) >= HOLD_MAX);
        if !overdue {
            return 0;
        }
        self.held_since = None;
        std::mem::take(&mut self.used)
    }

    /// The end of the run from `start` that can leave by one call: one path, one size, the last may be shorter.
    fn run_end(&self, start: usize, limit: usize) -> usize {
        let first = &self.slots[start];
        let size = first.bytes.len();
        let mut end = start + 1;
        let mut total = size;
        while end < self.used && end - start < limit && size > 0 {
            let next = &self.slots[end];
            let bytes = next.bytes.len();
            total += bytes;
            if next.port != first.port || next.path != first.path || bytes > size || bytes == 0 || total > SEGMENTED_BYTES {
                break;
            }
            end += 1;
            if bytes < size {
                break;
            }
        }
        end
    }

    fn send_run(&mut self, start: usize, end: usize, carrier: &mut impl Carrier) -> Sent {
        let first = &self.slots[start];
        if end - start == 1 {
            return carrier.send(first.port, &first.path, &first.bytes, None);
        }
        self.joined.clear();
        for slot in &self.slots[start..end] {
            self.joined.extend_from_slice(&slot.bytes);
        }
        let segment = Some(first.bytes.len());
        carrier.send(first.port, &first.path, &self.joined, segment)
    }
}

impl Slot {
    fn unused() -> Self {
        Self { path: Path::to(std::net::SocketAddr::from(([0, 0, 0, 0], 0))), port: 0, bytes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::net::SocketAddr;

    /// Gives a list of datagrams, each to a port of 127.0.0.1.
    struct Queue(VecDeque<(u16, Vec<u8>)>);

    impl Machine for Queue {
        fn handle_datagram(&mut self, _: Instant, _: Path, _: &[u8]) {}
        fn handle_drained(&mut self, _: Instant) {}
        fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Path> {
            let (port, bytes) = self.0.pop_front()?;
            buf.clear();
            buf.extend_from_slice(&bytes);
            Some(to(port))
        }
        fn wake_after(&mut self, _: Instant) -> Option<Duration> {
            None
        }
        fn max_datagram(&self) -> usize {
            1_232
        }
    }

    /// Writes down what is sent; some sockets are blocked, some refuse segmented sends.
    #[derive(Default)]
    struct Script {
        blocked: BTreeSet<usize>,
        refuses_segments: bool,
        sent: Vec<(usize, Vec<u8>, Option<usize>)>,
    }

    impl Carrier for Script {
        fn segments(&self, _: usize) -> usize {
            64
        }
        fn send(&mut self, port: usize, _: &Path, bytes: &[u8], segment: Option<usize>) -> Sent {
            if self.blocked.contains(&port) {
                return Sent::Blocked;
            }
            if segment.is_some() && self.refuses_segments {
                return Sent::Refused;
            }
            self.sent.push((port, bytes.to_vec(), segment));
            Sent::Done
        }
    }

    fn to(port: u16) -> Path {
        Path::to(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Remote ports 0 to 9 leave by the socket of that number; others have none.
    fn by_remote_port(path: &Path) -> Option<usize> {
        Some(usize::from(path.remote.port())).filter(|port| *port < 10)
    }

    fn filled(datagrams: &[(u16, &[u8])]) -> TxBatch {
        let mut tx_batch = TxBatch::new();
        let mut machine = Queue(datagrams.iter().map(|(p, b)| (*p, b.to_vec())).collect());
        let end = tx_batch.fill(&mut machine, START, by_remote_port);
        assert_eq!(end, Filled::MachineEmpty);
        tx_batch
    }

    const START: Instant = Instant::new(1, 1);

    #[test]
    fn datagrams_of_one_size_and_path_leave_by_one_call_and_a_shorter_one_ends_it() {
        let mut tx_batch = filled(&[(1, b"aa"), (1, b"bb"), (1, b"c"), (1, b"dd"), (2, b"ee")]);
        let mut script = Script::default();
        tx_batch.flush(|| START, &mut script);
        assert_eq!(script.sent, [(1, b"aabbc".to_vec(), Some(2)), (1, b"dd".to_vec(), None), (2, b"ee".to_vec(), None)]);
        assert!(!tx_batch.is_held());
    }

    #[test]
    fn refused_segments_go_one_by_one() {
        let mut tx_batch = filled(&[(1, b"aa"), (1, b"bb"), (2, b"cc")]);
        let mut script = Script { refuses_segments: true, ..Script::default() };
        tx_batch.flush(|| START, &mut script);
        let sent: Vec<_> = script.sent.iter().map(|(_, bytes, _)| &bytes[..]).collect();
        assert_eq!(sent, [b"aa", b"bb", b"cc"]);
    }

    #[test]
    fn blocked_socket_holds_its_datagrams_in_order_and_no_others() {
        let mut tx_batch = filled(&[(1, b"a"), (2, b"b"), (1, b"cc"), (2, b"d")]);
        let mut script = Script { blocked: BTreeSet::from([1]), ..Script::default() };
        tx_batch.flush(|| START, &mut script);
        assert_eq!(script.sent.len(), 2);
        assert!(tx_batch.is_held());
        script.blocked.clear();
        tx_batch.flush(|| START, &mut script);
        let sent: Vec<_> = script.sent.iter().map(|(_, bytes, _)| &bytes[..]).collect();
        assert_eq!(sent, [&b"b"[..], b"d", b"a", b"cc"]);
        assert!(!tx_batch.is_held());
    }

    #[test]
    fn held_datagrams_are_dropped_after_the_bound_and_not_before() {
        let mut tx_batch = filled(&[(1, b"a"), (1, b"b")]);
        let mut script = Script { blocked: BTreeSet::from([1]), ..Script::default() };
        tx_batch.flush(|| START, &mut script);
        let almost = START.plus(HOLD_MAX - Duration::from_nanos(1));
        tx_batch.flush(|| almost, &mut script);
        assert_eq!(tx_batch.drop_overdue(almost), 0, "a vain try is no progress");
        assert_eq!(tx_batch.drop_overdue(START.plus(HOLD_MAX)), 2);
        assert!(!tx_batch.is_held());
    }

    #[test]
    fn full_batch_waits_and_the_machine_is_asked_no_further() {
        let mut tx_batch = TxBatch::new();
        let mut machine = Queue((0..40).map(|_| (1, b"x".to_vec())).collect());
        let end = tx_batch.fill(&mut machine, START, by_remote_port);
        assert_eq!(end, Filled::Full);
        let mut script = Script { blocked: BTreeSet::from([1]), ..Script::default() };
        tx_batch.flush(|| START, &mut script);
        assert!(tx_batch.is_full());
        tx_batch.fill(&mut machine, START, by_remote_port);
        assert_eq!(machine.0.len(), 40 - BATCH);
    }

    #[test]
    fn datagram_without_a_socket_takes_no_room() {
        let mut tx_batch = filled(&[(99, b"lost"), (1, b"a")]);
        let mut script = Script::default();
        tx_batch.flush(|| START, &mut script);
        assert_eq!(script.sent, [(1, b"a".to_vec(), None)]);
    }
}
