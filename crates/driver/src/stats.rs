//! Counters of the driver: what came, what went, and the name of everything that was dropped.
//!
//! Decides the names under which the driver's drops and errors are counted; a datagram never vanishes here
//! without one. Written by the event loop's thread and by no other, read by anyone: status lines, `cistern status`, tests.
//! Invariant: counters only grow. What the protocol drops is counted by the machine, not here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the live counters and their snapshot from one list, so that a counter cannot miss in either.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// The live counters of one event loop, shared as `Arc<Stats>`.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(pub(crate) $name: Counter,)+
        }

        /// The counters at one moment (each exact, the set not taken at a single instant).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Stats {
            /// Reads all counters; cheap, from any thread.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)+ }
            }
        }

        impl Counts {
            /// Every counter by name, in the order of their definition, for status output.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Turns of the loop; an idle loop makes none.
    turns,
    /// Datagrams given to the machine.
    datagrams_in,
    /// Bytes of UDP payload given to the machine.
    bytes_in,
    /// Receive calls that brought something; `datagrams_in` divided by this is the batch size.
    receive_batches,
    /// Dropped: larger than the machine's largest datagram.
    dropped_too_long,
    /// Dropped: from port 0, to which no answer can go.
    dropped_from_port_zero,
    /// Dropped: sent to a multicast or broadcast address, from which no answer can come.
    dropped_not_unicast,
    /// Dropped by the kernel: the socket's receive buffer was full. Noticed within a second or with the next datagram after that.
    receive_overflows,
    /// Receive calls that failed otherwise than by ICMP or for want of data.
    receive_errors,
    /// ICMP: host, net or port unreachable.
    icmp_unreachable,
    /// ICMP: the datagram was too big for the path.
    icmp_too_big,
    /// Any other error that the network reported for something sent.
    icmp_other,
    /// Datagrams handed to the system.
    datagrams_out,
    /// Bytes of UDP payload handed to the system.
    bytes_out,
    /// Send calls that handed over several datagrams at once.
    segmented_sends,
    /// Send calls refused for want of room; the datagrams were held until the socket was writable again.
    send_would_block,
    /// Dropped: held back for want of room for too long.
    dropped_held_too_long,
    /// Dropped: no socket of this loop can reach the path's address family or local address.
    dropped_no_port,
    /// Dropped: larger than the interface takes unfragmented.
    dropped_send_too_big,
    /// Dropped: forbidden by the system (packet filter, broadcast address).
    dropped_send_forbidden,
    /// Dropped: no route, or the other side's host or port is known to be unreachable.
    dropped_send_unreachable,
    /// Dropped: the system had no buffers, or the interface's queue was full.
    dropped_send_no_buffers,
    /// Dropped: any other error of the send call.
    dropped_send_other,
}

/// One counter; relaxed, for nothing is ordered by it. Only one thread writes it, so it needs no locked instruction to add.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: usize) {
        // usize is at most 64 bits on every system that this crate builds for.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more as u64), Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_every_counter_once_with_its_value() {
        let stats = Stats::default();
        stats.bytes_in.add(7);
        let entries = stats.read().entries();
        assert!(entries.contains(&("bytes_in", 7)));
        let mut names: Vec<_> = entries.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), entries.len());
    }
}
