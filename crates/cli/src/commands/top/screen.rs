//! The terminal while `cistern top` has it.
//!
//! Decides: that the screen is one of its own, which gives back what was there; that keys are read one by one, and that Ctrl-Z, which would leave the
//! shell in that screen, does nothing. Invariant: however the command ends short of SIGKILL, the terminal is as it was: by `Drop`, and signals
//! only ask for an end.
//! Leaves to others: what is drawn (`board`).

use crate::local::Failure;
use crate::show;
use crate::signals::{End, wait_for};
use nix::poll::{PollFd, PollFlags};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal, Read, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use terminal_size::{Height, Width};

/// Own screen, without cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// A terminal that does not tell its size.
const USUAL: (usize, usize) = (80, 24);
/// Ends the command, as Ctrl-C does, which is a signal.
const QUIT: [u8; 2] = [b'q', b'Q'];

/// A terminal that was taken.
pub(super) struct Screen {
    before: Termios,
    has_keys: bool,
}

impl Screen {
    /// Whether both ends are a terminal that can move its cursor.
    pub(super) fn is_possible() -> bool {
        stdin().is_terminal() && stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    /// Takes the terminal until this value is dropped.
    ///
    /// # Errors
    /// It cannot be set.
    pub(super) fn take() -> Result<Self, Failure> {
        let failed = |e| Failure::failed(format!("cannot set the terminal: {e}; --once prints without a screen"));
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut keys = before.clone();
        keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        keys.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        keys.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        // `_POSIX_VDISABLE` is 0 on Linux.
        keys.control_chars[SpecialCharacterIndices::VSUSP as usize] = 0;
        tcsetattr(stdin(), SetArg::TCSADRAIN, &keys).map_err(failed)?;
        let screen = Self { before, has_keys: true };
        show::bytes(ENTER)?;
        Ok(screen)
    }

    /// Draws the lines that `lines` gives for a width and a height.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&self, lines: impl FnOnce(usize, usize) -> Vec<String>) -> Result<(), Failure> {
        let (width, height) = size();
        let mut text = String::from("\x1b[H");
        let lines = lines(width, height);
        for (n, line) in lines.iter().take(height).enumerate() {
            // No line end after the last row, which would scroll. The terminal itself adds the carriage return.
            text.push_str(if n == 0 { "" } else { "\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        show::bytes(text.as_bytes())
    }

    /// Waits for the next look; whether the user or a signal wants the end. Draws again when the size has changed.
    ///
    /// # Errors
    /// As [`Self::draw`].
    pub(super) fn wait(&mut self, end: &End, span: Duration, lines: impl Fn(usize, usize) -> Vec<String>) -> Result<bool, Failure> {
        let until = Instant::now() + span.min(Duration::from_secs(86_400));
        let mut drawn = size();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(end.is_asked());
            }
            let terminal = stdin();
            let mut fds = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            if self.has_keys {
                fds.push(PollFd::new(terminal.as_fd(), PollFlags::POLLIN));
            }
            wait_for(&mut fds, Some(left.min(RESIZED_WITHIN)));
            let is_ready = |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::any).unwrap_or(false);
            let (asked, typed) = (is_ready(fds.first()), is_ready(fds.get(1)));
            if asked || typed && self.is_quit() {
                return Ok(true);
            }
            if size() != drawn {
                drawn = size();
                self.draw(&lines)?;
            }
        }
    }

    fn is_quit(&mut self) -> bool {
        let mut typed = [0; 64];
        match stdin().read(&mut typed) {
            Ok(0) | Err(_) => {
                self.has_keys = false;
                false
            }
            Ok(count) => typed[..count].iter().any(|key| QUIT.contains(key)),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs neither.
        let _ = show::bytes(LEAVE);
        let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// How soon another size of the terminal is seen.
const RESIZED_WITHIN: Duration = Duration::from_millis(250);

fn size() -> (usize, usize) {
    terminal_size::terminal_size_of(stdout()).map_or(USUAL, |(Width(w), Height(h))| (usize::from(w), usize::from(h)))
}
