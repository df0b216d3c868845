//! What people call a host.

use crate::read::{self, BAD_VALUE};
use cistern_wire::limits::LABEL_MAX;
use cistern_wire::{Bytes8, Field as _, Malformed, Reader, Writer, is_printable};
use std::fmt;
use std::str::FromStr;

/// The name of a principal: 1 to 64 bytes, printable, without blanks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        read::text(r)?.parse().map_err(|_| BAD_VALUE)
    }

    pub(crate) fn put(&self, w: &mut Writer) {
        Bytes8(self.0.as_bytes()).put(w);
    }
}

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {LABEL_MAX} bytes, without blanks and control characters, and does not begin with a dash")]
pub struct NoName;

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let fits = (1..=LABEL_MAX).contains(&text.len()) && !text.starts_with('-');
        let fair = text.chars().all(|c| is_printable(c) && !c.is_whitespace());
        if fits && fair { Ok(Self(text.to_owned())) } else { Err(NoName) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        assert_eq!("web-1".parse::<Name>().unwrap().to_string(), "web-1");
        assert!("λ".repeat(32).parse::<Name>().is_ok());
        for wrong in ["", "-x", "a b", "a\u{202e}", "a\n", &"λ".repeat(33)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong:?}");
        }
    }
}
