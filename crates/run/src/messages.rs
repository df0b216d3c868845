//! The lines that the caller's process and the guardian write to each other through two pipes.
//!
//! Decides their text: *orders* go to the guardian, *reports* come back, one line each, fields separated by single
//! spaces, numbers in decimal. A line is written by one `write` of less than PIPE_BUF (4,096 bytes), so that lines of
//! several threads do not mix. Both ends are always the same executable (the guardian is a re-exec of it), so there is no
//! version to negotiate. Invariant: what does not parse is an error value, never a guess.
//! Leaves to `guardian` and `running` what the lines lead to, and to `inherit` how the pipes get there.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::time::Duration;

use crate::at::{At, Until};
use crate::exit::{Reason, Status};

/// A process of the command's tree that was killed and is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its process id.
    pub pid: i32,
    /// Its name, with characters other than letters, digits and `._-/:` replaced by `?`.
    pub name: String,
    /// Its state as in `/proc/PID/stat`: `D` is uninterruptible sleep.
    pub state: char,
    /// Whether the kernel refused the signal (a process of another user, such as one started by `sudo`).
    pub denied: bool,
}

/// Caller's process to guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lock is certain until these instants; the newest counts, also when it is earlier than the one before.
    Until(Until),
    /// The lock is not certain any more: stop now.
    Uncertain,
    /// The lock is lost: kill now.
    Lost,
    /// Pass this signal on to the command.
    Signal(i32),
}

/// Guardian to caller's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The guardian will not work here, and why; nothing was started.
    Refused(String),
    /// The command runs, as this process.
    Started(i32),
    /// The command could not be executed: the error number.
    Failed(i32),
    /// The command ended.
    Ended(Status),
    /// SIGTERM was sent to the whole tree.
    Stopping(Reason),
    /// SIGKILL was sent to the whole tree.
    Killing(Reason),
    /// The guardian was late by so much, and the lease had been renewed meanwhile.
    StoodStill(Duration),
    /// These are still there some time after SIGKILL; the guardian goes on trying.
    Survivors(Vec<Survivor>),
    /// Nothing that the command started is left, since this instant at the latest.
    Gone(At),
}

/// Most survivors that one report names; what matters is that there are some, and the line has to fit PIPE_BUF.
pub(crate) const SURVIVORS_MAX: usize = 32;

/// Longest line that is read; longer means that the other end is not what it should be.
const LINE_MAX: usize = 64 * 1024;

impl Order {
    pub(crate) fn line(self) -> String {
        match self {
            Order::Until(Until { suspect_at, kill_at, until }) => format!(
                "until {} {} {} {} {} {}\n",
                suspect_at.raw_ns, suspect_at.boot_ns, kill_at.raw_ns, kill_at.boot_ns, until.raw_ns, until.boot_ns
            ),
            Order::Uncertain => "uncertain\n".to_owned(),
            Order::Lost => "lost\n".to_owned(),
            Order::Signal(signal) => format!("signal {signal}\n"),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Order> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "until" => {
                let mut numbers = rest.split(' ').map(|n| n.parse::<u64>().ok());
                let mut at = || Some(At { raw_ns: numbers.next()??, boot_ns: numbers.next()?? });
                let parsed = Until { suspect_at: at()?, kill_at: at()?, until: at()? };
                numbers.next().is_none().then_some(Order::Until(parsed.ordered()))
            }
            "uncertain" if rest.is_empty() => Some(Order::Uncertain),
            "lost" if rest.is_empty() => Some(Order::Lost),
            "signal" => rest.parse().ok().map(Order::Signal),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn line(&self) -> String {
        match self {
            Report::Refused(why) => format!("refused {}\n", why.replace('\n', " ")),
            Report::Started(pid) => format!("started {pid}\n"),
            Report::Failed(errno) => format!("failed {errno}\n"),
            Report::Ended(Status::Exited(code)) => format!("exited {code}\n"),
            Report::Ended(Status::Signalled(signal)) => format!("signalled {signal}\n"),
            Report::Stopping(reason) => format!("stopping {}\n", word_of(*reason)),
            Report::Killing(reason) => format!("killing {}\n", word_of(*reason)),
            Report::StoodStill(late) => format!("late {}\n", late.as_millis()),
            Report::Survivors(list) => {
                let mut line = "survivors".to_owned();
                for survivor in list.iter().take(SURVIVORS_MAX) {
                    let Survivor { pid, name, state, denied } = survivor;
                    let denied = u8::from(*denied);
                    // Writing to a String cannot fail.
                    let _ = write!(line, " {pid},{state},{denied},{}", plain(name));
                }
                line.push('\n');
                line
            }
            Report::Gone(at) => format!("gone {} {}\n", at.raw_ns, at.boot_ns),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Report> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "refused" => Some(Report::Refused(rest.to_owned())),
            "started" => rest.parse().ok().map(Report::Started),
            "failed" => rest.parse().ok().map(Report::Failed),
            "exited" => rest.parse().ok().map(|code| Report::Ended(Status::Exited(code))),
            "signalled" => rest.parse().ok().map(|signal| Report::Ended(Status::Signalled(signal))),
            "stopping" => reason_of(rest).map(Report::Stopping),
            "killing" => reason_of(rest).map(Report::Killing),
            "late" => rest.parse().ok().map(|ms| Report::StoodStill(Duration::from_millis(ms))),
            "survivors" => rest.split(' ').filter(|s| !s.is_empty()).map(survivor).collect::<Option<_>>().map(Report::Survivors),
            "gone" => {
                let (raw, boot) = rest.split_once(' ')?;
                Some(Report::Gone(At { raw_ns: raw.parse().ok()?, boot_ns: boot.parse().ok()? }))
            }
            _ => None,
        }
    }
}

const REASONS: [(Reason, &str); 6] = [
    (Reason::NotRenewed, "not-renewed"),
    (Reason::Uncertain, "uncertain"),
    (Reason::Lost, "lost"),
    (Reason::HolderGone, "holder-gone"),
    (Reason::LeftBehind, "left-behind"),
    (Reason::GuardianGone, "guardian-gone"),
];

fn word_of(reason: Reason) -> &'static str {
    REASONS.iter().find(|(r, _)| *r == reason).map_or("unknown", |(_, word)| word)
}

fn reason_of(word: &str) -> Option<Reason> {
    REASONS.iter().find(|(_, w)| *w == word).map(|(reason, _)| *reason)
}

fn survivor(field: &str) -> Option<Survivor> {
    let mut parts = field.splitn(4, ',');
    let pid = parts.next()?.parse().ok()?;
    let state = parts.next()?.parse().ok()?;
    let denied = parts.next()? == "1";
    Some(Survivor { pid, name: parts.next()?.to_owned(), state, denied })
}

/// A process chooses its own name, so it may hold anything, line breaks included.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-/:".contains(c) { c } else { '?' }).collect()
}

/// Writes a line whole or not at all: it fits PIPE_BUF, and the pipe is non-blocking, so a full pipe is an error, not a wait.
pub(crate) fn send(mut pipe: impl Write, line: &str) -> io::Result<()> {
    pipe.write_all(line.as_bytes())
}

/// Collects what a non-blocking pipe gives into lines.
pub(crate) struct Lines<R> {
    pipe: R,
    pending: Vec<u8>,
    ended: bool,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(pipe: R) -> Self {
        Lines { pipe, pending: Vec::new(), ended: false }
    }

    /// The pipe itself, to poll.
    pub(crate) fn pipe(&self) -> &R {
        &self.pipe
    }

    /// Whether the other end has been closed and every whole line been given.
    pub(crate) fn ended(&self) -> bool {
        self.ended && !self.pending.contains(&b'\n')
    }

    /// The next whole line without its line break; `None` if there is none now.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut chunk = [0; 4096];
            if self.ended || self.pending.len() > LINE_MAX {
                self.ended = true;
                return None;
            }
            match self.pipe.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(count) => self.pending.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => self.ended = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_reads_back_as_it_was_written() {
        let at = |n| At { raw_ns: n, boot_ns: u64::MAX - 100 + n };
        let until = Until { suspect_at: at(1), kill_at: at(2), until: at(3) };
        for order in [Order::Until(until), Order::Uncertain, Order::Lost, Order::Signal(15)] {
            assert_eq!(Order::parse(order.line().trim_end()), Some(order));
        }
    }

    #[test]
    fn every_report_reads_back_as_it_was_written() {
        let stuck = Survivor { pid: 12, name: "cp".into(), state: 'D', denied: false };
        let foreign = Survivor { pid: 13, name: "sudo".into(), state: 'S', denied: true };
        let mut reports = vec![
            Report::Refused("no /proc here".into()),
            Report::Started(77),
            Report::Failed(2),
            Report::Ended(Status::Exited(255)),
            Report::Ended(Status::Signalled(64)),
            Report::Survivors(vec![stuck, foreign]),
            Report::Survivors(Vec::new()),
            Report::StoodStill(Duration::from_millis(1234)),
            Report::Gone(At { raw_ns: 5, boot_ns: u64::MAX }),
        ];
        for (reason, _) in REASONS {
            reports.push(Report::Stopping(reason));
            reports.push(Report::Killing(reason));
        }
        for report in reports {
            assert_eq!(Report::parse(report.line().trim_end()), Some(report));
        }
    }

    #[test]
    fn what_does_not_parse_is_refused() {
        for line in ["", "until", "until 1 2 3 4 5", "until 1 2 3 4 5 6 7", "until 1 2 3 4 5 x", "lost now", "signal", "signal x", "stop"] {
            assert_eq!(Order::parse(line), None, "{line}");
        }
        for line in ["", "started", "exited 256", "stopping", "stopping tea", "survivors 1,D", "gone", "gone 1"] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_longest_list_of_survivors_fits_one_atomic_write_and_a_hostile_name_stays_on_its_line() {
        let hostile = Survivor { pid: i32::MAX, name: "a b\nc,d,e,fghij".into(), state: 'D', denied: true };
        let line = Report::Survivors(vec![hostile; 100]).line();
        assert!(line.len() < 4096);
        let Some(Report::Survivors(list)) = Report::parse(line.trim_end()) else { panic!("{line}") };
        assert_eq!(list.len(), SURVIVORS_MAX);
        assert_eq!(list[0].name, "a?b?c?d?e?fghij");
    }

    #[test]
    fn lines_are_put_together_from_pieces_and_a_torn_last_line_is_dropped() {
        let mut lines = Lines::new(&b"lost\nsignal 1\nunti"[..]);
        assert_eq!(lines.next_line().as_deref(), Some("lost"));
        assert!(!lines.ended());
        assert_eq!(lines.next_line().as_deref(), Some("signal 1"));
        assert_eq!(lines.next_line(), None);
        assert!(lines.ended());
    }
}
