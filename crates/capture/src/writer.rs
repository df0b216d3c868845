//! Datagrams written as a capture file that tcpdump and Wireshark read.
//!
//! Decides when bytes leave. The IP and UDP headers of a file are made by this crate (they are not what was on the wire), with right
//! lengths and checksums. Invariant: records leave whole, so a file whose writer was killed ends at most in one cut record, and everything
//! flushed is readable at once. Leaves to others: the bytes (`record`), not waiting for a disk (`recorder`).

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{private, record};

/// Bytes gathered before they are written without being asked to.
const GATHERED: usize = 64 << 10;

/// Why a capture file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the capture file {}: {source}", path.display())]
pub struct CreateError {
    path: PathBuf,
    source: io::Error,
}

impl CreateError {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// Writes a capture.
///
/// What is written is gathered; [`flush`](Self::flush) it whenever there is a pause. It is flushed when it is dropped, too, but then
/// errors go unseen.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    gathered: Vec<u8>,
}

impl Writer<File> {
    /// Makes the file at `path`, in place of one that is there, and writes the header.
    ///
    /// # Errors
    /// [`CreateError`], which names the file: whoever chose the path is at fault.
    pub fn create(path: &Path) -> Result<Self, CreateError> {
        let failed = |source| CreateError::new(path, source);
        Self::new(private::create(path).map_err(failed)?).map_err(failed)
    }
}

impl<W: Write> Writer<W> {
    /// A capture written to `out`, which need not buffer; the header is written at once.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W) -> io::Result<Self> {
        let mut this = Self { out, gathered: record::header() };
        this.flush()?;
        Ok(this)
    }

    /// Adds a datagram. `at` counts from 1970-01-01 UTC and is written as far as the format goes (to 2106). If the addresses are of
    /// different families, both are written as IPv6, IPv4 ones mapped.
    ///
    /// # Errors
    /// Those of `out`; `InvalidInput` if the payload is larger than a UDP datagram can be, and then nothing is written.
    pub fn write(&mut self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        record::add(&mut self.gathered, at, from, to, payload)?;
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    /// Hands everything on: what was written so far can be read by others from now on.
    ///
    /// # Errors
    /// Those of `out`; what could not be written is forgotten, so that a full disk does not become full memory.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.gathered);
        self.gathered.clear();
        written?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        // Nobody is left to tell; who wants to know flushes first.
        let _ = self.flush();
    }
}
