//! Kept replies and the memory they are in: what one session can no longer ask for is used for the next reply of any session.
//!
//! Decides how large the buffers are and how many wait for use, so that a request that is answered and forgotten needs no allocation.
//! Beside `reply_cache`, which says when a reply may go. Implements `wire-spec.md` section 11.2.
//! Invariant: a kept reply reads as the bytes that were kept, whatever was in its buffer before.
//! Leaves to the server: which replies are kept at all.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// Buffers are multiples of so many bytes: a reply wastes less than that, and few sizes are told apart.
const STEP: usize = 32;
/// How many sizes are used again: up to 160 bytes, so every reply to a read that is kept. Larger replies are those of mutations, whose
/// commit costs far more than an allocation.
const SIZES: usize = 5;
/// Most buffers of a size that wait for use; beyond that the memory of a burst is given back.
const WAITING_MAX: usize = 256;
/// Bytes in front of a reply: its length.
const LEN: usize = 2;

/// A reply in a buffer that may be longer.
pub struct Kept(Box<[u8]>);

impl Kept {
    /// Writes `reply` into a buffer that has room for it.
    fn write(mut buffer: Box<[u8]>, reply: &[u8]) -> Self {
        let len = u16::try_from(reply.len()).expect("a reply fits a datagram");
        buffer[..LEN].copy_from_slice(&len.to_ne_bytes());
        buffer[LEN..LEN + reply.len()].copy_from_slice(reply);
        Self(buffer)
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let len = usize::from(u16::from_ne_bytes([self.0[0], self.0[1]]));
        &self.0[LEN..LEN + len]
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::write(vec![0; self.0.len()].into(), self)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Kept {}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&&**self).finish()
    }
}

/// Buffers that wait for use, of all sessions of a server.
#[derive(Debug, Default)]
pub struct ReplyBuffers {
    by_size: [Vec<Box<[u8]>>; SIZES],
}

impl ReplyBuffers {
    /// Keeps `reply`, at most 65,535 bytes, in a buffer that waited for use, or in a new one.
    ///
    /// # Panics
    /// If the reply is longer: no datagram is.
    #[must_use]
    pub fn keep(&mut self, reply: &[u8]) -> Kept {
        let size = (LEN + reply.len()).next_multiple_of(STEP);
        let waiting = self.by_size.get_mut(size / STEP - 1).and_then(Vec::pop);
        Kept::write(waiting.unwrap_or_else(|| vec![0; size].into()), reply)
    }

    /// Takes the buffer of a reply that nobody can ask for any more.
    pub fn take_back(&mut self, kept: Kept) {
        let at = kept.0.len() / STEP - 1;
        if let Some(waiting) = self.by_size.get_mut(at).filter(|waiting| waiting.len() < WAITING_MAX) {
            waiting.push(kept.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(buffers: &ReplyBuffers) -> usize {
        buffers.by_size.iter().map(Vec::len).sum()
    }

    #[test]
    fn reply_of_any_length_reads_as_it_was_kept_also_in_a_used_buffer() {
        let mut buffers = ReplyBuffers::default();
        for len in (0..200).chain([8_952, 65_535]) {
            let dirty = buffers.keep(&vec![0xFF; len]);
            buffers.take_back(dirty);
            let reply: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            let kept = buffers.keep(&reply);
            assert_eq!(*kept, *reply);
            assert_eq!(kept.clone(), kept);
            buffers.take_back(kept);
        }
    }

    #[test]
    fn buffer_waits_for_a_reply_of_its_size_and_no_other() {
        let mut buffers = ReplyBuffers::default();
        let (small, large) = (buffers.keep(&[1; 30]), buffers.keep(&[2; 31]));
        assert_eq!((small.0.len(), large.0.len()), (32, 64));
        buffers.take_back(small);
        buffers.take_back(large);
        assert_eq!(waiting(&buffers), 2);
        let _in_use = (buffers.keep(&[3; 1]), buffers.keep(&[4; 1]));
        assert_eq!(waiting(&buffers), 1, "the larger one is left");
    }

    #[test]
    fn memory_of_a_burst_and_of_a_large_reply_is_given_back() {
        let mut buffers = ReplyBuffers::default();
        let burst: Vec<_> = (0..2 * WAITING_MAX).map(|_| buffers.keep(b"reply")).collect();
        burst.into_iter().for_each(|kept| buffers.take_back(kept));
        assert_eq!(waiting(&buffers), WAITING_MAX);
        let large = buffers.keep(&[5; 1_000]);
        buffers.take_back(large);
        assert_eq!(waiting(&buffers), WAITING_MAX);
    }
}
