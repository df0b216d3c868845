//! The way of log lines to standard error, by a thread of its own.
//!
//! Decides what happens when nobody reads standard error: so many bytes of lines wait, and what comes beyond them is left out and counted.
//! Invariants: logging never waits for the reader; lines keep their order; where lines are missing, a line says how many.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of lines that wait: some thousands of lines.
const WAITING_MAX: usize = 1 << 20;
/// How long a reader that takes nothing now is left alone, where standard error does not block.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes log lines, one with each write, and never blocks. Clones are the same queue.
#[derive(Clone, Debug, Default)]
pub struct LogQueue(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    bell: Condvar,
    /// Rung when everything is written.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// How many lines found no room after those.
    left_out: u64,
    started: bool,
    /// Whether the thread is writing.
    busy: bool,
}

impl LogQueue {
    /// Waits until every line is written, but no longer than `within`; whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        let end = Instant::now() + within;
        let mut state = self.0.lock();
        while state.busy || state.waits() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.idle.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Adds a line; `start` begins the thread with the first one: most commands have nothing to log.
    fn add(&self, line: &[u8], start: impl FnOnce(Arc<Queue>) -> io::Result<()>) {
        let mut state = self.0.lock();
        if state.lines.len() + line.len() > WAITING_MAX {
            state.left_out += 1;
        } else {
            state.lines.extend_from_slice(line);
        }
        if !state.started {
            // Without a thread the line waits for the next one's try.
            state.started = start(Arc::clone(&self.0)).is_ok();
        }
        self.0.bell.notify_one();
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.add(line, |shared| {
            let run = move || shared.write_to(io::stderr());
            thread::Builder::new().name("cistern-log".to_owned()).spawn(run).map(drop)
        });
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    const fn waits(&self) -> bool {
        !self.lines.is_empty() || self.left_out > 0
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines for as long as the process lives.
    fn write_to(&self, mut out: impl Write) {
        let mut state = self.lock();
        loop {
            if !state.waits() {
                state.busy = false;
                self.idle.notify_all();
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.busy = true;
            let mut lines = std::mem::take(&mut state.lines);
            let left_out = std::mem::take(&mut state.left_out);
            drop(state);
            if left_out > 0 {
                lines
                    .extend_from_slice(format!("({left_out} lines of the log are missing here: standard error was not read)\n").as_bytes());
            }
            write_all(&mut out, &lines);
            state = self.lock();
        }
    }
}

/// Writes all of it, however long the reader takes; where the reader is gone, nothing can be done.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return,
            Ok(count) => bytes = &bytes[count..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_reader_that_does_not_read_keeps_nobody_and_hears_later_how_many_lines_are_missing() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let queue = LogQueue::default();
        let line = [&[b'x'; 1_023][..], b"\n"].concat();
        let all = 10 * WAITING_MAX / line.len();
        for _ in 0..all {
            let writer = writer.try_clone().unwrap();
            queue.add(&line, |shared| thread::Builder::new().spawn(move || shared.write_to(writer)).map(drop));
        }
        assert!(!queue.flush(Duration::from_millis(10)), "nobody has read");
        drop(writer);
        reader.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut text, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
        let missing = |text: &[u8]| -> usize {
            let text = String::from_utf8_lossy(text);
            let counts = text.lines().filter_map(|line| line.strip_prefix('(')?.split(' ').next()?.parse::<usize>().ok());
            counts.sum()
        };
        while text.iter().filter(|byte| **byte == b'x').count() / 1_023 + missing(&text) < all {
            let count = reader.read(&mut chunk).unwrap();
            text.extend_from_slice(&chunk[..count]);
        }
        assert!(missing(&text) > 0 && text.len() > WAITING_MAX / 2);
        assert!(queue.flush(Duration::from_secs(30)));
    }
}
