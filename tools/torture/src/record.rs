//! The lines that workers write: what they are about to do, and what came of it.
//!
//! Decides: the text of a record, one line each, and that it is written by one call, so that a line of a worker that is killed is
//! there whole or cut at its end. Invariant: what is about to be done is written before it is asked for, an answer only after it came.
//! Leaves to others: what follows from it (`judge`).

use crate::life::{Answer, Op, State};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An operation on a file is about to be asked for.
    Begin(u64, Op),
    /// It was answered.
    End(u64, Answer),
    /// The file was looked at.
    Seen(u64, State),
    /// Under a lock that was certain: lock, token, the counter as it was read. In the file that all workers share.
    Held(u8, u64, u64),
    /// The lock was still certain after that line was written: lock, token, and the number of the beat; 0: `Held`.
    Certain(u8, u64, u64),
    /// The holder goes on, under a lock that was certain: lock, token, and the number of the beat, from 1 on.
    Beat(u8, u64, u64),
    /// A counter was raised to this under a lock with this token, and that was answered: lock, token, new value.
    Raised(u8, u64, u64),
    /// A tally is about to be set to this by compare-and-set: tally, new value, and the version that it was read in. Shared, too.
    Trying(u8, u64, u64),
    /// That was answered as done.
    Stepped(u8, u64, u64),
    /// A tally is about to be read: tally, by whom, and 0.
    Looking(u8, u64, u64),
    /// It was read: tally, by whom, value.
    Looked(u8, u64, u64),
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(life, op) => write!(f, "begin {life} {op}"),
            Self::End(life, answer) => write!(f, "end {life} {answer}"),
            Self::Seen(life, state) => write!(f, "seen {life} {} {}", state.names, state.contents),
            Self::Held(lock, token, value) => write!(f, "held {lock} {token} {value}"),
            Self::Certain(lock, token, beat) => write!(f, "certain {lock} {token} {beat}"),
            Self::Beat(lock, token, beat) => write!(f, "beat {lock} {token} {beat}"),
            Self::Trying(tally, value, version) => write!(f, "trying {tally} {value} {version}"),
            Self::Stepped(tally, value, version) => write!(f, "stepped {tally} {value} {version}"),
            Self::Looking(tally, who, _) => write!(f, "looking {tally} {who} 0"),
            Self::Looked(tally, who, value) => write!(f, "looked {tally} {who} {value}"),
            Self::Raised(lock, token, value) => write!(f, "raised {lock} {token} {value}"),
        }
    }
}

impl Record {
    /// Reads a line; `None`: it is none.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let (first, rest) = rest.split_once(' ')?;
        let two = || {
            let (a, b) = rest.split_once(' ')?;
            Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?))
        };
        Some(match kind {
            "begin" => Self::Begin(first.parse().ok()?, rest.parse().ok()?),
            "end" => Self::End(first.parse().ok()?, rest.parse().ok()?),
            "seen" => {
                let (names, contents) = two()?;
                Self::Seen(first.parse().ok()?, State { names: u8::try_from(names).ok()?, contents: u32::try_from(contents).ok()? })
            }
            "held" => two().and_then(|(token, value)| Some(Self::Held(first.parse().ok()?, token, value)))?,
            "certain" => two().and_then(|(token, beat)| Some(Self::Certain(first.parse().ok()?, token, beat)))?,
            "beat" => two().and_then(|(token, beat)| Some(Self::Beat(first.parse().ok()?, token, beat)))?,
            "looking" => two().and_then(|(who, zero)| Some(Self::Looking(first.parse().ok()?, who, zero)))?,
            "looked" => two().and_then(|(who, value)| Some(Self::Looked(first.parse().ok()?, who, value)))?,
            "trying" => two().and_then(|(value, version)| Some(Self::Trying(first.parse().ok()?, value, version)))?,
            "stepped" => two().and_then(|(value, version)| Some(Self::Stepped(first.parse().ok()?, value, version)))?,
            "raised" => two().and_then(|(token, value)| Some(Self::Raised(first.parse().ok()?, token, value)))?,
            _ => return None,
        })
    }

    /// All records of a file. A last line without an end was cut by a kill: it says nothing.
    pub(crate) fn read_all(path: &Path) -> io::Result<Vec<Self>> {
        let text = std::fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line: &str| Self::parse(line).ok_or_else(|| io::Error::other(format!("{}: no record: {line:?}", path.display())));
        whole.lines().map(parse).collect()
    }
}

/// A file of records, appended to.
#[derive(Debug)]
pub(crate) struct Records(File);

impl Records {
    /// Opens the file, or makes it. What a kill has cut is ended first, and stays unread.
    pub(crate) fn append_to(path: &Path) -> io::Result<Self> {
        let text = std::fs::read(path).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
        }
        Self::append_shared(path)
    }

    /// Opens a file to which others append, too.
    pub(crate) fn append_shared(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, record: Record) -> io::Result<()> {
        self.0.write_all(format!("{record}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_lines_and_a_cut_one_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let all = [
            Record::Begin(3, Op::Rename(0, 2)),
            Record::End(3, Answer::Unknown),
            Record::Seen(3, State { names: 4, contents: 9 }),
            Record::Held(1, 77, 5),
            Record::Certain(1, 77, 0),
            Record::Beat(1, 77, 3),
            Record::Looking(0, 258, 0),
            Record::Looked(0, 258, 4),
            Record::Raised(1, 77, 6),
            Record::Trying(0, 5, 9),
            Record::Stepped(0, 5, 9),
        ];
        let mut records = Records::append_to(&path).unwrap();
        all.iter().for_each(|record| records.write(*record).unwrap());
        assert_eq!(Record::read_all(&path).unwrap(), all);
        std::fs::write(&path, format!("{}\nend 3 do", all[0])).unwrap();
        assert_eq!(Record::read_all(&path).unwrap(), all[..1]);
        Records::append_to(&path).unwrap().write(all[1]).unwrap();
        assert_eq!(Record::read_all(&path).unwrap(), all[..2]);
        std::fs::write(&path, "end 3 maybe\n").unwrap();
        assert!(Record::read_all(&path).is_err());
    }
}
