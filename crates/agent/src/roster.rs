//! The server's roster, part by part: which part is asked for next, and when all of one version is there.
//!
//! Decides: that parts of two versions are never put together, and that a server which does not go on is not asked in a circle.
//! Leaves to others: whether the roster is believed (whoever takes the bytes), and sending ([`Joiner`](crate::Joiner), `transport`).

use alloc::vec::Vec;
use cistern_wire::RosterPart;

/// A roster as far as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RosterParts {
    version: u32,
    bytes: Vec<u8>,
}

/// What follows from a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// The next part is to be asked for, from this offset on.
    Next(u16),
    /// That was the last one.
    Whole,
    /// It is none that was asked for.
    Stray,
}

impl RosterParts {
    /// Where the next part begins.
    pub(crate) fn offset(&self) -> u16 {
        self.bytes.len().try_into().unwrap_or(u16::MAX)
    }

    /// What is there.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Takes a part.
    pub(crate) fn take(&mut self, part: &RosterPart<'_>) -> Collected {
        if part.version != self.version {
            *self = Self { version: part.version, bytes: Vec::new() };
            if part.offset != 0 {
                return Collected::Next(0);
            }
        }
        if part.offset != self.offset() {
            return Collected::Stray;
        }
        self.bytes.extend_from_slice(part.part.0);
        match usize::from(part.length) <= self.bytes.len() {
            true => Collected::Whole,
            // It would be asked for again, and again.
            false if part.part.0.is_empty() => Collected::Stray,
            false => Collected::Next(self.offset()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::Bytes16;

    fn part(version: u32, offset: u16, part: &'static [u8]) -> RosterPart<'static> {
        RosterPart { serial: 1, echo: 1, version, length: 6, offset, part: Bytes16(part) }
    }

    #[test]
    fn parts_of_one_version_make_a_roster_and_nothing_is_asked_in_a_circle() {
        let mut parts = RosterParts::default();
        assert_eq!(parts.take(&part(4, 0, b"abc")), Collected::Next(3));
        assert_eq!(parts.take(&part(4, 0, b"abc")), Collected::Stray, "it came before");
        assert_eq!(parts.take(&part(4, 3, b"")), Collected::Stray, "nothing follows");
        assert_eq!(parts.take(&part(5, 3, b"DEF")), Collected::Next(0), "of another one, which begins anew");
        assert_eq!(parts.take(&part(5, 0, b"ABC")), Collected::Next(3));
        assert_eq!(parts.take(&part(5, 3, b"DEF")), Collected::Whole);
        assert_eq!(parts.into_bytes(), b"ABCDEF");
        assert_eq!(RosterParts::default().take(&RosterPart { length: 0, ..part(0, 0, b"") }), Collected::Whole, "there is none");
    }
}
