//! The life of one file: what it can be, given what was done to it and what was answered.
//!
//! Decides: the meaning of each operation on a file with up to three names, as a function; and what an answer, an answer that never
//! came, and a look at the file say of the states that are possible. Place: workers use it to go on, the judge to judge.
//! Invariant: an operation whose outcome is unknown was done once or not at all; so a file that is in none of the states that are
//! left shows a change that was lost, made twice, or made by halves.
//! Leaves to others: performing operations (`worker`), lines (`record`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One of the names of a file.
pub(crate) type Name = u8;
/// Names that a file can have.
pub(crate) const NAMES: Name = 3;

/// What a file is: the names it has, a bit for each, and which contents. Without a name there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) names: u8,
    pub(crate) contents: u32,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Made, exclusively: asked for under a name that it has, or when it has none. Another name would be another file's.
    Create(Name),
    /// One more name.
    Link(Name, Name),
    /// Another name, which must be free.
    Rename(Name, Name),
    /// One name less.
    Unlink(Name),
    /// New contents.
    Put(Name, u32),
}

/// What an operation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// There is no such name.
    NoEntry,
    /// The name exists.
    Exists,
    /// It was refused before it could have any effect.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl State {
    const fn has(self, name: Name) -> bool {
        self.names & (1 << name) != 0
    }

    /// What an operation does, and what it is answered.
    fn after(self, op: Op) -> (Answer, Self) {
        let with = |names| Self { names, contents: if names == 0 { 0 } else { self.contents } };
        let missing = |name| !self.has(name);
        match op {
            Op::Create(name) | Op::Link(_, name) | Op::Rename(_, name)
                if self.has(name) && !matches!(op, Op::Link(from, _) | Op::Rename(from, _) if missing(from)) =>
            {
                (Answer::Exists, self)
            }
            Op::Link(from, _) | Op::Rename(from, _) if missing(from) => (Answer::NoEntry, self),
            Op::Unlink(name) | Op::Put(name, _) if missing(name) => (Answer::NoEntry, self),
            Op::Create(name) | Op::Link(_, name) => (Answer::Done, with(self.names | 1 << name)),
            Op::Rename(from, to) => (Answer::Done, with(self.names & !(1 << from) | 1 << to)),
            Op::Unlink(name) => (Answer::Done, with(self.names & !(1 << name))),
            Op::Put(_, contents) => (Answer::Done, Self { contents, ..self }),
        }
    }
}

/// All states in which a file can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life(BTreeSet<State>);

impl Default for Life {
    fn default() -> Self {
        Self(BTreeSet::from([State::default()]))
    }
}

impl Life {
    /// An operation was answered.
    pub(crate) fn answered(&mut self, op: Op, answer: Answer) {
        let before = std::mem::take(&mut self.0);
        for state in before {
            let (says, after) = state.after(op);
            match answer {
                Answer::Refused => _ = self.0.insert(state),
                Answer::Unknown => self.0.extend([state, after]),
                said if said == says => _ = self.0.insert(after),
                _ => {}
            }
        }
    }

    /// The file was looked at.
    pub(crate) fn seen(&mut self, state: State) {
        self.0.retain(|possible| *possible == state);
    }

    /// Whether it can be in this state.
    pub(crate) fn can_be(&self, state: State) -> bool {
        self.0.contains(&state)
    }

    /// Whether it can be at all: if not, something promised was not kept.
    pub(crate) fn is_possible(&self) -> bool {
        !self.0.is_empty()
    }

    /// The state, if there is no doubt.
    pub(crate) fn certain(&self) -> Option<State> {
        if self.0.len() == 1 { self.0.first().copied() } else { None }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&if states.is_empty() { "nothing".to_owned() } else { states.join(" or ") })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: String = (0..NAMES).filter(|name| self.has(*name)).map(letter).collect();
        if names.is_empty() { f.write_str("no file") } else { write!(f, "[{names}] with contents {}", self.contents) }
    }
}

/// A name, as it stands in paths.
pub(crate) const fn letter(name: Name) -> char {
    (b'a' + name) as char
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Create(name) => write!(f, "create {name} 0"),
            Self::Link(from, to) => write!(f, "link {from} {to}"),
            Self::Rename(from, to) => write!(f, "rename {from} {to}"),
            Self::Unlink(name) => write!(f, "unlink {name} 0"),
            Self::Put(name, contents) => write!(f, "put {name} {contents}"),
        }
    }
}

impl FromStr for Op {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let (kind, name) = (words.next().ok_or(())?, words.next().and_then(|word| word.parse().ok()).ok_or(())?);
        let second: u32 = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let to = || u8::try_from(second).map_err(|_| ());
        Ok(match kind {
            "create" => Self::Create(name),
            "link" => Self::Link(name, to()?),
            "rename" => Self::Rename(name, to()?),
            "unlink" => Self::Unlink(name),
            "put" => Self::Put(name, second),
            _ => return Err(()),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::NoEntry => "enoent",
            Self::Exists => "eexist",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        })
    }
}

impl FromStr for Answer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Done, Self::NoEntry, Self::Exists, Self::Refused, Self::Unknown]
            .into_iter()
            .find(|answer| answer.to_string() == text)
            .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(history: &[(Op, Answer)]) -> Life {
        let mut life = Life::default();
        history.iter().for_each(|(op, answer)| life.answered(*op, *answer));
        life
    }

    const fn state(names: u8, contents: u32) -> State {
        State { names, contents }
    }

    #[test]
    fn answers_lead_to_one_state() {
        let life = life(&[
            (Op::Create(0), Answer::Done),
            (Op::Put(0, 7), Answer::Done),
            (Op::Link(0, 1), Answer::Done),
            (Op::Rename(1, 2), Answer::Done),
            (Op::Unlink(0), Answer::Done),
            (Op::Create(2), Answer::Exists),
            (Op::Unlink(1), Answer::NoEntry),
        ]);
        assert_eq!(life.certain(), Some(state(0b100, 7)));
    }

    #[test]
    fn an_unknown_outcome_leaves_both_states_and_a_look_decides() {
        let mut life = life(&[(Op::Create(0), Answer::Done), (Op::Rename(0, 1), Answer::Unknown)]);
        assert!(life.can_be(state(1, 0)) && life.can_be(state(2, 0)) && life.certain().is_none());
        life.seen(state(2, 0));
        assert_eq!(life.certain(), Some(state(2, 0)));
    }

    #[test]
    fn what_was_lost_or_done_twice_fits_no_state() {
        // Done, and then not there.
        let mut lost = life(&[(Op::Create(0), Answer::Done)]);
        lost.seen(state(0, 0));
        assert!(!lost.is_possible());
        // A second execution finds what the first has left.
        assert!(!life(&[(Op::Create(0), Answer::Exists)]).is_possible());
        assert!(!life(&[(Op::Create(0), Answer::Done), (Op::Rename(0, 1), Answer::NoEntry)]).is_possible());
        assert!(!life(&[(Op::Create(0), Answer::Done), (Op::Unlink(0), Answer::NoEntry)]).is_possible());
        // By halves: the new name is there, and the old one still.
        let mut half = life(&[(Op::Create(0), Answer::Done), (Op::Rename(0, 1), Answer::Unknown)]);
        half.seen(state(3, 0));
        assert!(!half.is_possible());
        // Refused, and yet done.
        let mut refused = life(&[(Op::Create(0), Answer::Refused)]);
        refused.seen(state(1, 0));
        assert!(!refused.is_possible());
    }

    #[test]
    fn operations_and_answers_come_back_from_their_text() {
        for op in [Op::Create(2), Op::Link(0, 1), Op::Rename(1, 2), Op::Unlink(1), Op::Put(0, 99)] {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
        for answer in [Answer::Done, Answer::NoEntry, Answer::Exists, Answer::Refused, Answer::Unknown] {
            assert_eq!(answer.to_string().parse(), Ok(answer));
        }
        assert!("put x".parse::<Op>().is_err() && "maybe".parse::<Answer>().is_err());
    }
}
