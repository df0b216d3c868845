//! A capture, read frame by frame: which format it is, and one datagram after the other.
//!
//! Decides what is an error (a source that fails, or that is no capture) and what is only counted (everything that a capture may hold).
//! Invariant: whatever the bytes are, reading ends, and all datagrams that are whole are given in the order of the file, up to its first
//! damage.
//! Leaves to others: the formats (`classic`, `blocks`), frames (`frame`), counting (`tally`).

use std::io::{self, Read};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::Datagram;
use crate::blocks::Blocks;
use crate::classic::{self, Classic};
use crate::feed::Feed;
use crate::frame::Frame;
use crate::tally::{Skip, Tally};

/// Why a capture could not be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source is something else.
    #[error("this is no capture file (pcap or pcapng): {0}")]
    NotACapture(String),
    /// The source failed.
    #[error("reading the capture failed: {0}")]
    Io(#[from] io::Error),
}

/// What comes next in a [`Feed`].
pub(crate) enum Next {
    /// A frame; it is not consumed yet.
    Frame(Found),
    /// Nothing whole, now.
    Dry,
    /// Bytes that cannot be of this format: where the next frame begins is not known.
    Damaged,
}

/// A frame found in the window of a [`Feed`].
pub(crate) struct Found {
    /// The link type, or why there is none.
    pub(crate) link: Result<u16, Skip>,
    /// When it was captured.
    pub(crate) at: Duration,
    /// How long it was on the wire.
    pub(crate) original: usize,
    /// Where in the window it is.
    pub(crate) frame: Range<usize>,
    /// How many bytes of the window are done with when it has been looked at.
    pub(crate) used: usize,
}

impl Found {
    /// What counts as a frame and is none.
    pub(crate) const fn nothing(why: Skip, used: usize) -> Self {
        Self { link: Err(why), at: Duration::ZERO, original: 0, frame: 0..0, used }
    }
}

#[derive(Debug)]
enum Format {
    Unknown,
    Classic(Classic),
    Blocks(Blocks),
}

/// Reads the datagrams of a capture, from anything that gives bytes: a file, a pipe, a file that grows.
///
/// It buffers by itself. At the end of the source [`next_datagram`](Self::next_datagram) gives `None`; called again later it goes on
/// with what has come meanwhile, unless the capture is damaged ([`Tally::damaged_at`]). As an iterator it ends after the first error.
#[derive(Debug)]
pub struct Reader<R> {
    feed: Feed<R>,
    format: Format,
    tally: Tally,
    failed: bool,
}

impl<R: Read> Reader<R> {
    /// A reader of `source`; nothing is read yet.
    pub fn new(source: R) -> Self {
        Self { feed: Feed::new(source), format: Format::Unknown, tally: Tally::default(), failed: false }
    }

    /// The next datagram, or `None` at the end of what there is now; blocks as the source does.
    ///
    /// # Errors
    /// [`ReadError::NotACapture`] as soon as the first bytes say so, and again at every call; [`ReadError::Io`] if the source fails,
    /// after which a further call goes on where this one stopped.
    pub fn next_datagram(&mut self) -> Result<Option<Datagram>, ReadError> {
        let found = self.find();
        self.tally.unfinished_bytes = if self.tally.damaged_at.is_some() { 0 } else { self.feed.window().len() as u64 };
        found
    }

    /// What was read so far, and what of it could not be.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    fn find(&mut self) -> Result<Option<Datagram>, ReadError> {
        while self.tally.damaged_at.is_none() {
            let next = match &mut self.format {
                Format::Unknown => match self.recognise()? {
                    true => continue,
                    false => return Ok(None),
                },
                Format::Classic(classic) => classic.next(&mut self.feed)?,
                Format::Blocks(blocks) => blocks.next(&mut self.feed)?,
            };
            match next {
                Next::Dry => return Ok(None),
                Next::Damaged => self.tally.damaged_at = Some(self.feed.offset()),
                Next::Frame(found) => {
                    let datagram = self.look(&found);
                    self.feed.consume(found.used);
                    if datagram.is_some() {
                        return Ok(datagram);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Finds out the format; false if too little has come to know it.
    fn recognise(&mut self) -> Result<bool, ReadError> {
        if !self.feed.want(4)? {
            return Ok(false);
        }
        let window = self.feed.window();
        let magic = window.first_chunk().copied().unwrap_or_default();
        if Blocks::begins(magic) {
            self.format = Format::Blocks(Blocks::default());
            return Ok(true);
        }
        if !Classic::begins(magic) {
            return Err(ReadError::NotACapture(what_it_is(window)));
        }
        if !self.feed.want(classic::HEADER)? {
            return Ok(false);
        }
        let header = &self.feed.window()[..classic::HEADER];
        self.format = Format::Classic(Classic::new(header).ok_or_else(|| ReadError::NotACapture(what_it_is(header)))?);
        self.feed.consume(classic::HEADER);
        Ok(true)
    }

    /// Takes a frame apart and counts it.
    fn look(&mut self, found: &Found) -> Option<Datagram> {
        self.tally.frames += 1;
        let bytes = &self.feed.window()[found.frame.clone()];
        match found.link.and_then(|link| Frame { link, bytes, original: found.original }.datagram()) {
            Ok((from, to, payload)) => {
                self.tally.datagrams += 1;
                Some(Datagram { number: self.tally.frames, at: found.at, from, to, payload: Bytes::copy_from_slice(payload) })
            }
            Err(why) => {
                self.tally.skip(why);
                None
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Datagram, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_datagram().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// What a file that is no capture may be, by its first bytes.
fn what_it_is(start: &[u8]) -> String {
    let start = &start[..start.len().min(8)];
    match start {
        [0x1F, 0x8B, ..] => "it is compressed with gzip; unpack it first, or give it through `zcat FILE |`".to_owned(),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "it is compressed with zstd; unpack it first, or give it through `zstdcat FILE |`".to_owned(),
        [0xFD, b'7', b'z', b'X', ..] => "it is compressed with xz; unpack it first, or give it through `xzcat FILE |`".to_owned(),
        [0x34, 0xCD, 0xB2, 0xA1, ..] => "it is of an old variant of pcap (magic a1b2cd34); convert it with `editcap -F pcap`".to_owned(),
        [b's', b'n', b'o', b'o', b'p', ..] => "it is a snoop file; convert it with `editcap -F pcap`".to_owned(),
        _ => format!("it begins with {}", start.escape_ascii()),
    }
}
