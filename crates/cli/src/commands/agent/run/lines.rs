//! What a program has written, cut into lines.
//!
//! Decides: that of a line which is too long nothing is kept, and that the next one is read.
//! Leaves to others: what lines mean (`local`), when bytes are read (`desk`).

use crate::local::LINE_MAX;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Line(Vec<u8>),
    TooLong,
}

/// Bytes of which no request was made yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    buffer: Vec<u8>,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
    /// The line whose end has not come is too long already.
    too_long: bool,
}

impl LineBuffer {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are kept.
    pub(super) const fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The next line; `None`: its end has not come.
    pub(super) fn line(&mut self) -> Option<Cut> {
        let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.too_long |= self.buffer.len() > LINE_MAX;
            if self.too_long || self.buffer.is_empty() {
                // Nothing to keep: neither the line nor the memory that an earlier one took.
                self.buffer = Vec::new();
            }
            self.searched = self.buffer.len();
            return None;
        };
        let line: Vec<u8> = self.buffer.drain(..=self.searched + at).collect();
        self.searched = 0;
        let too_long = std::mem::take(&mut self.too_long) || line.len() > LINE_MAX + 1;
        Some(if too_long { Cut::TooLong } else { Cut::Line(line) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_not_kept_and_the_next_one_is_read() {
        let mut inbox = LineBuffer::default();
        for _ in 0..LINE_MAX / 1_000 + 1 {
            inbox.take(&[b'x'; 1_000]);
            assert_eq!(inbox.line(), None);
        }
        assert_eq!(inbox.len(), 0);
        inbox.take(b"y\n{}\nz");
        assert_eq!([inbox.line(), inbox.line(), inbox.line()], [Some(Cut::TooLong), Some(Cut::Line(b"{}\n".to_vec())), None]);
        inbox.take(b"\n");
        assert_eq!(inbox.line(), Some(Cut::Line(b"z\n".to_vec())));
    }
}
