//! Revoked keys: a set that only grows, and the lines of its log, which no restore of a store takes back.
//!
//! Decides: that two such sets unite, each key with its earliest time; that a line which was cut off by a crash was never answered and
//! counts for nothing, and that any other line that cannot be read is damage, for a key that is overlooked is a thief's.

use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

/// Revoked keys, each with the seconds since 1970 at which it was revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    keys: BTreeMap<PublicKey, u64>,
}

/// A line of the log that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is damaged: each is a time in seconds since 1970 and a public key of an agent")]
pub struct DamagedLine {
    /// From 1 on.
    pub line: usize,
}

impl Revocations {
    /// Reads a log. Gives also how many bytes of it are whole lines: what follows was cut off and is to be cut away before more is appended.
    ///
    /// # Errors
    /// A whole line cannot be read.
    pub fn read_log(log: &str) -> Result<(Self, usize), DamagedLine> {
        let whole = log.rfind('\n').map_or(0, |at| at + 1);
        let mut read = Self::default();
        for (n, line) in log[..whole].lines().enumerate() {
            let (key, at_s) = read_line(line).ok_or(DamagedLine { line: n + 1 })?;
            read.insert(key, at_s);
        }
        Ok((read, whole))
    }

    /// The line of one key, with its line end.
    #[must_use]
    pub fn log_line(key: &PublicKey, at_s: u64) -> String {
        format!("{at_s} {}\n", key.to_text(Role::Agent))
    }

    /// All of it as a log.
    #[must_use]
    pub fn to_log(&self) -> String {
        self.iter().fold(String::new(), |mut log, (key, at_s)| {
            let _ = write!(log, "{}", Self::log_line(key, at_s));
            log
        })
    }

    /// Adds a key; it keeps the earlier time if it is in already. Whether it is new.
    pub fn insert(&mut self, key: PublicKey, at_s: u64) -> bool {
        match self.keys.entry(key) {
            Entry::Vacant(place) => {
                place.insert(at_s);
                true
            }
            Entry::Occupied(mut known) => {
                let earlier = at_s.min(*known.get());
                known.insert(earlier);
                false
            }
        }
    }

    /// Adds all keys of another set.
    pub fn unite(&mut self, other: &Self) {
        for (key, at_s) in other.iter() {
            self.insert(*key, at_s);
        }
    }

    /// Whether a key is revoked.
    #[must_use]
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.keys.contains_key(key)
    }

    /// All keys with their times.
    pub fn iter(&self) -> impl Iterator<Item = (&PublicKey, u64)> {
        self.keys.iter().map(|(key, at_s)| (key, *at_s))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn read_line(line: &str) -> Option<(PublicKey, u64)> {
    let (at_s, key) = line.split_once(' ')?;
    let read = (PublicKey::from_text(key, Role::Agent).ok()?, at_s.parse().ok()?);
    // Exactly as it is written: what was changed by hand may have been changed in more.
    (Revocations::log_line(&read.0, read.1).trim_ascii_end() == line).then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::tests::key;
    use proptest::prelude::*;

    #[test]
    fn a_log_is_read_up_to_what_a_crash_cut_off() {
        let (first, second) = (Revocations::log_line(&key(1), 10), Revocations::log_line(&key(2), 20));
        let log = format!("{first}{second}");
        for end in 0..=log.len() {
            let (read, whole) = Revocations::read_log(&log[..end]).unwrap();
            let lines = usize::from(end >= first.len()) + usize::from(end == log.len());
            assert_eq!((read.len(), whole), (lines, [0, first.len(), log.len()][lines]), "{end}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_damage() {
        let whole = Revocations::log_line(&key(1), 10);
        for wrong in ["\n", "10\n", "x cistern-agent-1.AAAA\n", &whole.replace("10 ", "10  "), &whole.to_uppercase()] {
            let damaged = Revocations::read_log(&format!("{whole}{wrong}{whole}"));
            assert_eq!(damaged, Err(DamagedLine { line: 2 }), "{wrong:?}");
        }
    }

    #[test]
    fn a_union_forgets_nothing_and_keeps_the_earlier_time() {
        let (mut log, mut store) = (Revocations::default(), Revocations::default());
        assert!(log.insert(key(1), 10) && log.insert(key(2), 20) && !log.insert(key(2), 19));
        store.insert(key(2), 30);
        store.insert(key(3), 5);
        store.unite(&log);
        assert_eq!(store.iter().map(|(key, at)| (key.as_bytes()[0], at)).collect::<Vec<_>>(), [(1, 10), (2, 19), (3, 5)]);
        assert_eq!(Revocations::read_log(&store.to_log()).unwrap().0, store);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", keys in prop::collection::vec((any::<u8>(), any::<u64>()), 0..5)) {
            let _ = Revocations::read_log(&text);
            let mut set = Revocations::default();
            for (n, at) in keys {
                set.insert(key(n), at);
            }
            // Whatever is at the end without a line end changes nothing.
            let text = text.replace('\n', " ");
            prop_assert_eq!(Revocations::read_log(&format!("{}{text}", set.to_log())), Ok((set.clone(), set.to_log().len())));
        }
    }
}
