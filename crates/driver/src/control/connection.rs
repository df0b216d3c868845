//! One connection of a control socket: bytes in, lines out to the handler; lines in, bytes out.
//!
//! Decides how lines are cut from what was read and what waits to be written. Invariants: at most one unfinished
//! line of `line_max` bytes and `output_max` bytes of output are kept; no call blocks; lines are handled in order.
//! Leaves to the server: which connections there are, and their registration with the poll.

use std::io::{self, Read as _, Write as _};

use mio::net::UnixStream;

use super::{ConnectionId, ControlLimits, Response};

/// Most bytes read at one event, so that one client cannot hold the loop.
const READ_PER_EVENT: usize = 256 << 10;

const CHUNK: usize = 16 << 10;

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Nothing more to read now, or nothing more will be read.
    Open,
    /// There may be more to read.
    More,
    /// The connection failed.
    Broken,
}

pub(super) struct Connection {
    stream: UnixStream,
    id: ConnectionId,
    limits: ControlLimits,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    output: Vec<u8>,
    /// How much of `output` is written.
    written: usize,
    /// Nothing more is read; the connection ends when its output is written.
    finishing: bool,
    /// Lines that were read whose answers come later.
    awaits: usize,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, id: ConnectionId, limits: ControlLimits) -> Self {
        Self { stream, id, limits, partial: Vec::new(), output: Vec::new(), written: 0, finishing: false, awaits: 0 }
    }

    /// Whether a line of it is worked on.
    pub(super) const fn awaits_an_answer(&self) -> bool {
        self.awaits > 0
    }

    /// Something that it awaited has come.
    pub(super) const fn answered(&mut self) {
        self.awaits = self.awaits.saturating_sub(1);
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(super) fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    /// Reads what has come and gives each complete line to `handle`, whose answers are queued.
    pub(super) fn read_lines(&mut self, mut handle: impl FnMut(&str) -> Response) -> Read {
        let mut chunk = [0; CHUNK];
        let mut total = 0;
        while !self.finishing {
            if total >= READ_PER_EVENT {
                return Read::More;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    // The client has closed or will write no more. What it has been sent, it may still read.
                    self.finish();
                }
                Ok(count) => {
                    total += count;
                    if !self.take(&chunk[..count], &mut handle) {
                        return Read::Broken;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Read::Open,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Read::Broken,
            }
        }
        Read::Open
    }

    /// Cuts lines from new bytes; false if the connection does not read its answers and must be dropped.
    fn take(&mut self, mut bytes: &[u8], handle: &mut impl FnMut(&str) -> Response) -> bool {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.partial);
            if !self.line(&line, handle) {
                return false;
            }
            if self.finishing {
                return true;
            }
        }
        self.partial.extend_from_slice(bytes);
        self.partial.len() <= self.limits.line_max || self.refuse_length()
    }

    fn line(&mut self, line: &[u8], handle: &mut impl FnMut(&str) -> Response) -> bool {
        if line.len() > self.limits.line_max {
            return self.refuse_length();
        }
        let response = match std::str::from_utf8(line) {
            Ok(line) => handle(line.strip_suffix('\r').unwrap_or(line)),
            Err(_) => Response::Line(error_line("the line is not UTF-8")),
        };
        match response {
            Response::Line(answer) => self.queue(&answer),
            Response::Later => {
                self.awaits += 1;
                true
            }
            Response::Last(answer) => {
                self.finishing = true;
                self.queue(&answer)
            }
        }
    }

    fn refuse_length(&mut self) -> bool {
        self.finish();
        let reason = format!("the line is longer than {} bytes", self.limits.line_max);
        self.queue(&error_line(&reason))
    }

    /// Puts a line behind what waits to be written; false if too much waits.
    #[must_use]
    pub(super) fn queue(&mut self, line: &str) -> bool {
        debug_assert!(!line.contains('\n'), "a line holds no line end");
        let waiting = self.output.len() - self.written;
        if waiting + line.len() + 1 > self.limits.output_max {
            log::warn!("control socket: dropped a connection that does not read: {waiting} bytes wait, {} more came", line.len() + 1);
            return false;
        }
        self.output.drain(..self.written);
        self.written = 0;
        self.output.extend_from_slice(line.as_bytes());
        self.output.push(b'\n');
        true
    }

    /// Reads no more, and ends when everything is written.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
        self.partial = Vec::new();
    }

    /// Writes what the socket takes; false when the connection is at its end or broken.
    #[must_use]
    pub(super) fn flush(&mut self) -> bool {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return false,
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.output.clear();
        self.written = 0;
        !self.finishing
    }
}

/// Tells a client why it is not served; what the socket does not take at once is lost with the connection.
pub(super) fn refuse(stream: &mut UnixStream, reason: &str) {
    let line = format!("{}\n", error_line(reason));
    if let Err(error) = stream.write_all(line.as_bytes()) {
        log::debug!("control socket: {error}");
    }
}

/// An error as every program that speaks line JSON to a control socket can read it. `reason` needs no escapes.
fn error_line(reason: &str) -> String {
    format!("{{\"error\":\"{reason}\"}}")
}
