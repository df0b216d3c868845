//! A capture written by a thread of its own, for callers that must not wait for a disk.
//!
//! Decides what happens when the disk is slower than the datagrams: so many bytes wait in memory, and what comes beyond them is left out
//! and counted. Invariants: recording never waits for the file; the file holds whole records in the order in which they were recorded;
//! what is recorded reaches the file as soon as the file takes it, so that a killed program leaves nearly all of it.
//! Leaves to others: the bytes (`record`), which datagrams there are (`cistern-driver`'s tap, the fault proxy).

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::writer::CreateError;
use crate::{private, record};

/// Most bytes that wait for the file: a second of 60,000 small datagrams, and of what a disk may take to be awake again.
const WAITING_MAX: usize = 8 << 20;

/// How long the end waits for a file that takes nothing: a pipe that nobody reads, a file server that is away.
const END_TIME: Duration = Duration::from_secs(2);

/// Writes a capture in the background; shared by all threads that have something to record.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: PathBuf,
}

/// What became of the datagrams of a [`Recorder`].
#[derive(Debug)]
pub struct Recorded {
    /// How many were handed to the file.
    pub written: u64,
    /// How many are missing: the file was too slow, or failed.
    pub left_out: u64,
    /// Why the file failed, if it did; nothing was written from then on.
    pub failure: Option<io::Error>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
    /// Rung when the file has taken something, and when the thread ends.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Records that wait for the file.
    waiting: Vec<u8>,
    /// How many there are.
    count: u64,
    written: u64,
    left_out: u64,
    failure: Option<io::Error>,
    ended: bool,
    /// Records that the thread is handing to the file.
    in_hand: u64,
    /// Whether the thread has ended.
    over: bool,
}

impl Recorder {
    /// Makes the file at `path`, in place of one that is there, writes the header, and starts the thread. The file is for its owner alone
    /// ([`private::create`]): whoever reads the datagrams of a session can forge some.
    ///
    /// # Errors
    /// [`CreateError`], which names the file: whoever chose the path is at fault.
    pub fn create(path: &Path) -> Result<Self, CreateError> {
        let failed = |source| CreateError::new(path, source);
        let file = private::create(path).map_err(failed)?;
        Self::start(file, path).map_err(failed)
    }

    fn start(mut out: impl Write + Send + 'static, path: &Path) -> io::Result<Self> {
        out.write_all(&record::header())?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("cistern-capture".to_owned()).spawn(move || theirs.write_to(out))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), path: path.to_owned() })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a datagram, as [`Writer::write`](crate::Writer::write) does, without waiting for the file.
    pub fn record(&self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let mut state = self.shared.lock();
        let room = state.waiting.len() + payload.len() <= WAITING_MAX && state.failure.is_none() && !state.ended;
        if room && record::add(&mut state.waiting, at, from, to, payload).is_ok() {
            state.count += 1;
            // While more than one waits, the thread has not come to look yet.
            if state.count == 1 {
                self.shared.bell.notify_one();
            }
        } else {
            state.left_out += 1;
        }
    }

    /// Waits until everything is in the file and ends the thread; what is recorded later is left out, and so is what waits for a file that
    /// takes nothing for two seconds.
    pub fn finish(&self) -> Recorded {
        let mut state = self.shared.lock();
        state.ended = true;
        self.shared.bell.notify_one();
        while !state.over {
            let before = state.written;
            let (now, wait) = self.shared.taken.wait_timeout(state, END_TIME).unwrap_or_else(PoisonError::into_inner);
            state = now;
            if wait.timed_out() && !state.over && state.written == before {
                let left_out = state.left_out + state.count + state.in_hand;
                // The thread is left to the file that it waits for: nothing else needs it.
                return Recorded { written: state.written, left_out, failure: Some(io::ErrorKind::TimedOut.into()) };
            }
        }
        let recorded = Recorded { written: state.written, left_out: state.left_out, failure: state.failure.take() };
        drop(state);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It panics only if a writer does, and then has written what it has.
            let _ = thread.join();
        }
        recorded
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// The state is whole between any two statements, so a thread that panicked has not spoilt it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits, all of it at a time, until the end.
    fn write_to(&self, out: impl Write) {
        let over = Over(self);
        over.0.write_all_to(out);
    }

    fn write_all_to(&self, mut out: impl Write) {
        let mut taken = Vec::new();
        loop {
            let mut state = self.lock();
            while state.waiting.is_empty() {
                if state.ended {
                    return;
                }
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            taken.clear();
            std::mem::swap(&mut taken, &mut state.waiting);
            let count = std::mem::take(&mut state.count);
            state.in_hand = count;
            drop(state);
            let written = out.write_all(&taken).and_then(|()| out.flush());
            let mut state = self.lock();
            state.in_hand = 0;
            self.taken.notify_all();
            match written {
                Ok(()) => state.written += count,
                Err(error) => {
                    state.left_out += count + std::mem::take(&mut state.count);
                    state.waiting = Vec::new();
                    state.failure = Some(error);
                    return;
                }
            }
        }
    }
}

/// Tells that the thread has ended, however it did.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.taken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const AT: Duration = Duration::from_secs(1);

    fn address() -> SocketAddr {
        ([127, 0, 0, 1], 7_311).into()
    }

    /// Tells each write, and waits for leave to make it.
    struct Slow {
        begun: Sender<usize>,
        leave: Receiver<io::Result<()>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(bytes.len()).ok();
            self.leave.recv().unwrap_or(Ok(()))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A recorder whose file stands still in its first write, and how it is let go on.
    fn stalled() -> (Recorder, Receiver<usize>, Sender<io::Result<()>>) {
        let ((begun, began), (let_go, leave)) = (channel(), channel());
        let_go.send(Ok(())).unwrap();
        let recorder = Recorder::start(Slow { begun, leave }, Path::new("slow")).unwrap();
        began.recv().unwrap();
        recorder.record(AT, address(), address(), b"the first");
        began.recv().unwrap();
        (recorder, began, let_go)
    }

    #[test]
    fn a_file_that_stands_still_costs_bounded_memory_and_what_is_left_out_is_counted() {
        let (recorder, _began, let_go) = stalled();
        let payload = vec![0; 60_000];
        let more = 2 * WAITING_MAX / payload.len();
        for _ in 0..more {
            recorder.record(AT, address(), address(), &payload);
        }
        assert!(recorder.shared.lock().waiting.len() <= WAITING_MAX + 1_000);
        drop(let_go);
        let recorded = recorder.finish();
        assert_eq!(recorded.written + recorded.left_out, 1 + more as u64);
        assert!(recorded.written > 100 && recorded.left_out > 100 && recorded.failure.is_none(), "{recorded:?}");
    }

    #[test]
    fn a_file_that_fails_is_told_and_takes_nothing_more() {
        let (recorder, _began, let_go) = stalled();
        recorder.record(AT, address(), address(), b"the second");
        let_go.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        let thread = recorder.thread.lock().unwrap().take().unwrap();
        thread.join().unwrap();
        recorder.record(AT, address(), address(), b"the third");
        let recorded = recorder.finish();
        assert_eq!((recorded.written, recorded.left_out), (0, 3));
        assert_eq!(recorded.failure.map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn the_end_does_not_wait_for_a_file_that_takes_nothing() {
        let (recorder, _began, _let_go) = stalled();
        recorder.record(AT, address(), address(), b"the second");
        let recorded = recorder.finish();
        assert_eq!((recorded.written, recorded.left_out), (0, 2));
        assert_eq!(recorded.failure.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_new_capture_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (path, outside) = (dir.path().join("own.pcap"), dir.path().join("outside"));
        // Also where anybody may read and write one that is there.
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        Recorder::create(&path).unwrap().finish();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, &path).unwrap();
        assert!(Recorder::create(&path).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
    }

    #[test]
    fn what_is_recorded_after_the_end_or_is_too_large_is_counted_as_left_out() {
        let recorder = Recorder::start(io::sink(), Path::new("sink")).unwrap();
        recorder.record(AT, address(), address(), &[0; 70_000]);
        recorder.record(AT, address(), address(), b"good");
        assert_eq!(recorder.finish().written, 1);
        recorder.record(AT, address(), address(), b"late");
        assert_eq!(recorder.finish().left_out, 2);
    }
}
