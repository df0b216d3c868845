//! The fixed memory that datagrams are received into, and their split into single datagrams.
//!
//! Decides how many buffers one receive call fills and how large they are. First step of the walk: the system
//! fills the pool, the pool gives (path, bytes) pairs that borrow from it; nothing is copied or allocated.
//! Invariant: a buffer takes the largest UDP datagram and the largest run of datagrams that the system joins
//! (GRO), so the kernel never truncates; what is too large for the machine is seen at its full length.
//! Leaves to `turn`: what is dropped, and the clock.

use std::array;
use std::io::{self, IoSliceMut};

use cistern_link::Path;
use mio::net::UdpSocket;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};

/// Largest IP datagram, and largest run of datagrams that the kernel joins for one receive (GRO).
const BUFFER_BYTES: usize = 65_536;

/// Distance between buffers: 20 cache lines more than a power of two, so that the starts of all buffers, where
/// small datagrams live, do not compete for the same cache sets.
const STRIDE: usize = BUFFER_BYTES + 20 * 64;

/// Receive buffers for one batch. Untouched pages cost no memory: 2 MiB of addresses, a few pages in use.
pub(crate) struct ReceivePool {
    memory: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl ReceivePool {
    pub(crate) fn new() -> Self {
        Self { memory: vec![0; STRIDE * BATCH_SIZE], meta: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// Offers at least `wanted` buffers of the pool, if it has so many, to one receive call; gives how many were filled.
    pub(crate) fn fill(&mut self, socket: &UdpSocket, state: &UdpSocketState, wanted: usize) -> io::Result<usize> {
        // Each buffer that is offered is prepared for the call, whether or not something comes.
        match wanted {
            0..=1 => self.fill_of::<1>(socket, state),
            2..=4 => self.fill_of::<4>(socket, state),
            5..=16 => self.fill_of::<16>(socket, state),
            _ => self.fill_of::<BATCH_SIZE>(socket, state),
        }
    }

    fn fill_of<const N: usize>(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> io::Result<usize> {
        let mut buffers = self.memory.chunks_mut(STRIDE);
        let mut slices: [IoSliceMut<'_>; N] =
            array::from_fn(|_| IoSliceMut::new(buffers.next().map_or(&mut [], |buffer| &mut buffer[..BUFFER_BYTES])));
        state.recv(socket.into(), &mut slices, &mut self.meta)
    }

    /// The datagrams of the first `filled` buffers, in the order of their arrival.
    pub(crate) fn datagrams(&self, filled: usize) -> impl Iterator<Item = (Path, &[u8])> {
        self.meta[..filled].iter().zip(self.memory.chunks(STRIDE)).flat_map(|(meta, buffer)| {
            let path = Path { remote: meta.addr, local: meta.dst_ip };
            split(&buffer[..meta.len], meta.stride).map(move |datagram| (path, datagram))
        })
    }
}

/// Single datagrams of `stride` bytes, the last one as long as what is left; an empty datagram is one too.
fn split(joined: &[u8], stride: usize) -> impl Iterator<Item = &[u8]> {
    let stride = stride.max(1);
    let count = joined.len().div_ceil(stride).max(1);
    (0..count).map(move |index| {
        let start = index * stride;
        &joined[start..joined.len().min(start + stride)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_datagrams_split_at_the_stride_and_the_last_may_be_shorter() {
        let pieces: Vec<_> = split(b"aabbc", 2).collect();
        assert_eq!(pieces, [&b"aa"[..], b"bb", b"c"]);
        assert_eq!(split(b"aabb", 2).count(), 2);
    }

    #[test]
    fn empty_datagram_is_one_datagram() {
        let pieces: Vec<_> = split(b"", 0).collect();
        assert_eq!(pieces, [b""]);
    }
}
