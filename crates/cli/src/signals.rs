//! How long-running commands learn that they should end: SIGINT, SIGTERM, SIGHUP.
//!
//! Decides: that the first such signal asks for a clean end and a second one ends the process at once, so that a clean end that hangs
//! can always be cut short. A signal that was ignored when the process started stays ignored (`nohup`, background jobs of scripts).
//! Place in the walk: beside it; a thread of its own waits for the signals, so no other thread needs to expect them. Another one reloads: a
//! settings file that cannot be read for now keeps nobody from ending the process.
//! Leaves to others: what a clean end is (`serve`, `agent::run`, `member`); signals for a command under a lock (`cistern-run`).

use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::{emulate_default_handler, signal_name};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Calls `act`, in a thread of its own, when the process is first asked to end.
///
/// # Errors
/// When the system gives no thread or no handler; without it the process could only be killed.
pub(crate) fn at_end(act: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    catch(|_| act(), None).map(drop)
}

/// As [`at_end`] for a daemon, whose terminal is none of its concern: after a SIGHUP `reload` is called, in a thread of its own.
///
/// # Errors
/// As [`at_end`].
pub(crate) fn at_end_or_reload(act: impl FnOnce() + Send + 'static, reload: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let reload = reloader(reload)?;
    catch(|_| act(), Some(reload)).map(drop)
}

/// A thread that reloads as often as it is told to. What is told while one waits is done with that one.
fn reloader(mut reload: impl FnMut() + Send + 'static) -> Result<SyncSender<()>, Failure> {
    let (tell, told) = sync_channel(1);
    let serve = move || told.iter().for_each(|()| reload());
    std::thread::Builder::new().name("cistern-reload".to_owned()).spawn(serve).map_err(|e| broken(&e))?;
    Ok(tell)
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new("INTERNAL", EXIT_SOFTWARE, format!("cannot wait for signals: {error}"))
}

/// As [`at_end`], but `act` is told the signal, and `reload` of SIGHUP, if it is given; closing the handle leaves the signals to somebody else.
fn catch(act: impl FnOnce(i32) + Send + 'static, reload: Option<SyncSender<()>>) -> Result<Handle, Failure> {
    let ignored = cistern_run::ignored_from_start();
    let reloads = reload.is_some();
    let caught = |signal: &i32| (reloads && *signal == SIGHUP) || !ignored.contains(signal);
    let wanted: Vec<_> = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(caught).collect();
    let mut signals = Signals::new(wanted).map_err(|e| broken(&e))?;
    let handle = signals.handle();
    let wait = move || {
        let mut act = Some(act);
        for signal in signals.forever() {
            if signal == SIGHUP
                && let Some(reload) = &reload
            {
                // One that waits already reads what is there then.
                let _ = reload.try_send(());
                continue;
            }
            match act.take() {
                Some(act) => {
                    log::info!("cistern: asked to end by {}", signal_name(signal).unwrap_or("a signal"));
                    act(signal);
                }
                // Asked again: the clean end takes too long for somebody.
                None => {
                    crate::logging::flush();
                    if let Err(e) = emulate_default_handler(signal) {
                        log::error!("cannot end at once: {e}");
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("cistern-signals".to_owned()).spawn(wait).map_err(|e| broken(&e))?;
    Ok(handle)
}

/// The signals that ask a process to end, for as long as it has nothing that ends with it.
pub(crate) struct Caught {
    end: End,
    handle: Handle,
    /// The signal that came; 0: none yet.
    signal: Arc<AtomicI32>,
}

impl Caught {
    /// Catches the signals until [`Self::release`].
    ///
    /// # Errors
    /// As [`at_end`].
    pub(crate) fn catch() -> Result<Self, Failure> {
        let (end, asker) = End::pair()?;
        let signal = Arc::new(AtomicI32::new(0));
        let noted = Arc::clone(&signal);
        let act = move |signal| {
            noted.store(signal, Ordering::Release);
            drop(asker);
        };
        let handle = catch(act, None)?;
        Ok(Self { end, handle, signal })
    }

    /// Comes with the first signal.
    pub(crate) const fn end(&self) -> &End {
        &self.end
    }

    /// The signal that has come.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Leaves the signals to somebody else; where nobody catches them they are ignored from now on.
    pub(crate) fn release(&self) {
        self.handle.close();
    }
}

/// Ends this process as the signal would have ended it, so that a shell sees that.
pub(crate) fn end_by(signal: i32) -> Failure {
    let failed = emulate_default_handler(signal).err().map_or_else(String::new, |e| format!("cannot end by signal {signal}: {e}"));
    Failure::new("SIGNAL", 128u8.saturating_add(u8::try_from(signal).unwrap_or(0)), failed)
}

/// Whether the process has been asked to end, for any number of threads; readable (at its end) from then on.
#[derive(Debug)]
pub(crate) struct End {
    asked: UnixStream,
}

impl End {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// As [`at_end`].
    pub(crate) fn catch() -> Result<Self, Failure> {
        let (end, asker) = Self::pair()?;
        at_end(move || drop(asker))?;
        Ok(end)
    }

    /// As [`Self::catch`] for a daemon, as [`at_end_or_reload`].
    ///
    /// # Errors
    /// As [`at_end`].
    pub(crate) fn catch_or_reload(reload: impl FnMut() + Send + 'static) -> Result<Self, Failure> {
        let (end, asker) = Self::pair()?;
        at_end_or_reload(move || drop(asker), reload)?;
        Ok(end)
    }

    /// An end that comes when the other value is dropped.
    pub(crate) fn pair() -> Result<(Self, UnixStream), Failure> {
        let (asked, asker) =
            UnixStream::pair().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("no pair of sockets to be had: {e}")))?;
        Ok((Self { asked }, asker))
    }

    /// Whether the process has been asked to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits until the process is asked to end, at most for `span`; whether it has been.
    pub(crate) fn wait(&self, span: Duration) -> bool {
        let mut fds = [PollFd::new(self.asked.as_fd(), PollFlags::POLLIN)];
        wait_for(&mut fds, Some(span));
        fds[0].any().unwrap_or(false)
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }
}

/// Waits until something is to be seen on one of the descriptors, at most for `span`; signals do not cut it short.
pub(crate) fn wait_for(fds: &mut [PollFd<'_>], span: Option<Duration>) {
    // A span beyond the end of the clock is as good as none.
    let until = span.and_then(|span| Instant::now().checked_add(span));
    loop {
        // Rounded up to whole milliseconds, so that the last one is not spent in a busy loop.
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1_000));
        let timeout = left.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX));
        match poll(fds, timeout) {
            Err(Errno::EINTR) => {}
            Ok(0) if left != Some(0) => {}
            Ok(_) => return,
            // For want of kernel memory; nothing else can go wrong with a right call. Callers look and wait again.
            Err(e) => {
                log::warn!("cannot wait for sockets: {e}");
                std::thread::sleep(Duration::from_millis(10));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_seen_by_everybody_and_for_good() {
        let (end, asker) = End::pair().unwrap();
        assert!(!end.is_asked());
        assert!(!end.wait(Duration::from_millis(5)));
        drop(asker);
        for _ in 0..2 {
            assert!(end.is_asked());
            assert!(end.wait(Duration::from_secs(60)));
        }
    }
}
