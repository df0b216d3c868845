//! The record that says what a store directory is.
//!
//! Decides: its text, one fact a line, closed by a checksum, so that a person can read it and a flipped byte is seen. Place in the walk:
//! read before anything else of a store. Invariant: a record is of this version, or named as another version's, foreign or damaged; never guessed. The
//! line `copy` is there only in a copy: no server may go on from it, for its tokens and ids were given out by another (sections 11.4 and
//! 11.7).
//! Leaves to others: the directory around it (`place`).
//!
//! ```text
//! cistern store
//! format 2
//! engine fjall-3
//! store 0123456789abcdef0123456789abcdef
//! copy
//! crc32 89abcdef
//! ```

use cistern_wire::StoreId;

/// The version of the store's format that this version writes and reads: files, keys and records together.
pub(crate) const FORMAT: u32 = 2;
/// The engine and the version of its files.
pub(crate) const ENGINE: &str = "fjall-3";
/// First line.
const MAGIC: &str = "cistern store";
/// Last line of a copy's record before the checksum.
const COPY: &str = "copy\n";
/// A record is far shorter; more is not read.
pub(crate) const LEN_MAX: usize = 4_096;

/// Why bytes are no record of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not begin as a record does.
    Foreign,
    /// A whole record of another version.
    Version(u32),
    /// It is not what was written.
    Damaged(&'static str),
}

/// What a record says of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The store's id.
    pub(crate) id: StoreId,
    /// Whether it is a copy, which no server may go on from.
    pub(crate) copy: bool,
}

/// The text of a store's record.
pub(crate) fn to_text(Record { id, copy }: Record) -> String {
    let mark = if copy { COPY } else { "" };
    let body = format!("{MAGIC}\nformat {FORMAT}\nengine {ENGINE}\nstore {id}\n{mark}");
    let crc = crc32fast::hash(body.as_bytes());
    format!("{body}crc32 {crc:08x}\n")
}

/// Reads a record.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Record, Unreadable> {
    let damaged = Unreadable::Damaged;
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    if !text.starts_with(MAGIC) {
        // A record with a flipped byte in its first line still has its last.
        return Err(if sealed_body(text).is_some() || text.contains("\ncrc32 ") { damaged("its first line") } else { Unreadable::Foreign });
    }
    let body = sealed_body(text).ok_or(damaged("its checksum does not fit"))?;
    let mut lines = body.lines().skip(1);
    let mut value = |name| lines.next().and_then(|line| line.strip_prefix(name));
    let format: u32 = value("format ").and_then(|n| n.parse().ok()).ok_or(damaged("it has no format"))?;
    if format != FORMAT {
        return Err(Unreadable::Version(format));
    }
    if value("engine ") != Some(ENGINE) {
        return Err(damaged("it names another engine"));
    }
    let id = value("store ").and_then(store_id).ok_or(damaged("it has no store id"))?;
    Ok(Record { id, copy: body.ends_with(&format!("\n{COPY}")) })
}

/// All before the checksum, if the checksum fits and nothing follows it.
fn sealed_body(text: &str) -> Option<&str> {
    let at = text.rfind("crc32 ")?;
    let (body, last) = text.split_at(at);
    (last == format!("crc32 {:08x}\n", crc32fast::hash(body.as_bytes()))).then_some(body)
}

fn store_id(text: &str) -> Option<StoreId> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in id.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(StoreId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: StoreId = StoreId(*b"0123456789abcdef");

    #[test]
    fn a_record_comes_back_from_its_text() {
        for copy in [false, true] {
            let record = Record { id: ID, copy };
            assert_eq!(from_bytes(to_text(record).as_bytes()), Ok(record));
        }
    }

    #[test]
    fn a_record_of_a_later_format_is_told_from_a_damaged_one() {
        let body = "cistern store\nformat 7\nanything else\n";
        let text = format!("{body}crc32 {:08x}\n", crc32fast::hash(body.as_bytes()));
        assert_eq!(from_bytes(text.as_bytes()), Err(Unreadable::Version(7)));
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_seen() {
        let text = to_text(Record { id: ID, copy: true }).into_bytes();
        for len in 0..text.len() {
            assert!(from_bytes(&text[..len]).is_err(), "{len} bytes");
        }
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                assert!(matches!(from_bytes(&flipped), Err(Unreadable::Damaged(_))), "byte {at} bit {bit}");
            }
        }
        assert_eq!(from_bytes(b"#!/bin/sh\n"), Err(Unreadable::Foreign));
    }
}
