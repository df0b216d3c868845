//! Bytes of a capture on their way in: a window over a source that may be a file, a pipe, or a file that still grows.
//!
//! Decides how much is kept: what was asked for and not yet consumed, and what one read brought beyond it. Invariants: an end of the
//! source is never final; asking again reads again, nothing that was read is lost by an error in between,
//! and each byte is moved about once, whatever is asked for.
//! Leaves to others: what the bytes are (`classic`, `blocks`).

use std::io::{self, Read};

/// Bytes taken by one read at most.
const CHUNK: usize = 64 << 10;

/// A source and the bytes of it that are not consumed yet.
#[derive(Debug)]
pub(crate) struct Feed<R> {
    source: R,
    /// Room for bytes; what was read is `start..end` of it.
    buffer: Vec<u8>,
    /// Where in `buffer` the window begins.
    start: usize,
    /// Where in `buffer` the window ends.
    end: usize,
    /// Where in the source the window begins.
    offset: u64,
}

impl<R: Read> Feed<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), start: 0, end: 0, offset: 0 }
    }

    /// Reads until the window holds `count` bytes; false if the source has no more now.
    ///
    /// A wish that the source cannot fulfil costs one read, whatever its size.
    pub(crate) fn want(&mut self, count: usize) -> io::Result<bool> {
        while self.window().len() < count {
            self.make_room();
            let room = &mut self.buffer[self.end..self.end + CHUNK];
            let read = loop {
                match self.source.read(room) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            if read == 0 {
                return Ok(false);
            }
            self.end += read;
        }
        Ok(true)
    }

    /// Makes room for a chunk. The window moves only once as much was consumed as it holds, so that each byte is moved about once.
    fn make_room(&mut self) {
        if self.buffer.len() - self.end >= CHUNK {
            return;
        }
        if self.start >= self.window().len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = self.end + CHUNK;
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
    }
}

impl<R> Feed<R> {
    /// What was read and not consumed.
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where in the source the window begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The first `count` bytes of the window are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.window().len());
        self.start += count;
        self.offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives its pieces one by one; an empty piece is an end for now.
    struct Pieces(VecDeque<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.pop_front().unwrap_or_default();
            out[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn an_end_is_not_final_and_loses_nothing() {
        let mut feed = Feed::new(Pieces(VecDeque::from([&b"ab"[..], b"", b"c", b"def"])));
        assert!(!feed.want(3).unwrap());
        assert_eq!(feed.window(), b"ab");
        feed.consume(1);
        assert!(feed.want(4).unwrap());
        assert_eq!((feed.window(), feed.offset()), (&b"bcdef"[..], 1));
    }
}
