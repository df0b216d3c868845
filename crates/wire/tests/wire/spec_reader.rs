//! A reader of messages that was made from nothing but the formats of `wire-spec.md`: the proof that they are enough.
//!
//! It gives, for each leaf field, its bytes and its value, in the notation of section 12.

use crate::spec_text::{FieldRow, Spec};
use std::fmt::Write as _;

/// The leaves of what was read and its value in words.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The bytes of each leaf field, in hex.
    pub(crate) groups: Vec<String>,
    /// `field: value` of each leaf field.
    pub(crate) leaves: Vec<String>,
    /// The whole value.
    pub(crate) value: String,
}

/// Reads bodies by the tables of a specification.
pub(crate) struct SpecReader<'s, 'b> {
    spec: &'s Spec,
    rest: &'b [u8],
    reading: Reading,
}

/// Size of a type: its least, and whether it is fixed. Known from section 4 and the tables of section 5.
pub(crate) fn size(spec: &Spec, ty: &str) -> (usize, bool) {
    match ty {
        "u8" | "bool" => (1, true),
        "u16" | "Status" => (2, true),
        "u32" | "Realm" => (4, true),
        "u64" | "i64" | "SessionId" | "Handle" | "ObjectId" | "Generation" => (8, true),
        "16 bytes" | "AgentId" | "StoreId" => (16, true),
        "32 bytes" => (32, true),
        "bytes8" | "Reply" | "Item" => (1, false),
        "bytes16" => (2, false),
        _ if ty.starts_with("list of ") => (2, false),
        _ if ty.starts_with("optional ") => (1, false),
        _ if spec.codes.contains_key(ty) => (1, true),
        _ => {
            let structure = spec.structures.get(ty).unwrap_or_else(|| panic!("the specification does not say what \"{ty}\" is"));
            let sizes = structure.fields.iter().map(|field| size(spec, &field.ty));
            sizes.fold((0, true), |sum, field| (sum.0 + field.0, sum.1 && field.1))
        }
    }
}

/// Reads a message with its header; panics if the tables do not lead to its last byte.
pub(crate) fn read_message(spec: &Spec, bytes: &[u8]) -> Reading {
    let (name, entry) = spec.messages.iter().find(|(_, entry)| entry.code == bytes[0]).expect("the kind is in the specification");
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    assert_eq!((bytes[1], length), (0, bytes.len() - 4), "{name}: message header");
    let mut reader = SpecReader { spec, rest: &bytes[4..], reading: Reading::default() };
    reader.reading.groups.push(hex(&bytes[..4]));
    let value = reader.fields(name, &entry.fields);
    assert_eq!(reader.rest, b"", "{name}: the tables end before the message does");
    Reading { value, ..reader.reading }
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

impl<'b> SpecReader<'_, 'b> {
    fn take(&mut self, n: usize) -> &'b [u8] {
        let (head, tail) = self.rest.split_at_checked(n).expect("the tables go on after the message has ended");
        self.rest = tail;
        self.reading.groups.push(hex(head));
        head
    }

    fn number(&mut self, n: usize) -> u64 {
        self.take(n).iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn fields(&mut self, name: &str, fields: &[FieldRow]) -> String {
        let mut values = Vec::new();
        for field in fields {
            let leaves = self.reading.leaves.len();
            let value = self.value(&field.ty);
            let leaf = format!("{}: {value}", field.name);
            if leaves == self.reading.leaves.len() && is_leaf(&field.ty) {
                self.reading.leaves.push(leaf.clone());
            }
            values.push(leaf);
        }
        if values.is_empty() { name.to_owned() } else { format!("{name} {{ {} }}", values.join(", ")) }
    }

    fn value(&mut self, ty: &str) -> String {
        match ty {
            "u8" => self.number(1).to_string(),
            "u16" => self.number(2).to_string(),
            "u32" | "Realm" => self.number(4).to_string(),
            "u64" | "Generation" => self.number(8).to_string(),
            "i64" => self.number(8).cast_signed().to_string(),
            "bool" => ["false", "true"][usize::try_from(self.number(1)).expect("one byte")].to_owned(),
            "SessionId" | "Handle" => hex(self.take(8)),
            "ObjectId" => format!("#{}", self.number(8)),
            "16 bytes" | "AgentId" | "StoreId" => hex(self.take(16)),
            "32 bytes" => hex(self.take(32)),
            "Status" => self.status(),
            "bytes8" => self.string(1),
            "bytes16" => self.string(2),
            "Reply" => self.reply(),
            "Item" => self.item(),
            _ => self.compound(ty),
        }
    }

    fn compound(&mut self, ty: &str) -> String {
        if let Some(item) = ty.strip_prefix("list of ") {
            let count = self.number(2);
            let items: Vec<String> = (0..count).map(|_| self.value(item)).collect();
            return format!("[{}]", items.join(", "));
        }
        if let Some(item) = ty.strip_prefix("optional ") {
            return if self.number(1) == 0 { "none".to_owned() } else { self.value(item) };
        }
        let spec = self.spec;
        if let Some(codes) = spec.codes.get(ty) {
            let value = self.number(1);
            let code = codes.iter().find(|code| u64::from(code.0) == value);
            return code.unwrap_or_else(|| panic!("{value} is no {ty}")).1.clone();
        }
        let structure = spec.structures.get(ty).unwrap_or_else(|| panic!("the specification does not say what \"{ty}\" is"));
        self.fields(ty, &structure.fields)
    }

    fn status(&mut self) -> String {
        let value = self.number(2);
        let name = self.spec.statuses.iter().find(|status| u64::from(status.0) == value).map_or("?", |status| &status.1);
        format!("{name}({value})")
    }

    fn string(&mut self, prefix: usize) -> String {
        let len = self.number(prefix);
        if len == 0 {
            return "\"\"".to_owned();
        }
        format!("\"{}\"", self.take(usize::try_from(len).expect("two bytes")).escape_ascii())
    }

    fn reply(&mut self) -> String {
        let code = self.number(1);
        let spec = self.spec;
        let (name, entry) =
            spec.replies.iter().find(|(_, entry)| u64::from(entry.code) == code).expect("the reply is in the specification");
        self.fields(name, &entry.fields)
    }

    /// An item of a batch: a mutation between its ask and its terms.
    fn item(&mut self) -> String {
        let code = self.number(1);
        let spec = self.spec;
        let (name, entry) =
            spec.messages.iter().find(|(_, entry)| u64::from(entry.code) == code).expect("the kind is in the specification");
        let inner = entry.fields.iter().filter(|field| !["Ask", "Terms"].contains(&field.ty.as_str())).cloned().collect::<Vec<_>>();
        self.fields(name, &inner)
    }
}

/// Whether a type has one value, which the crate prints in the same way.
fn is_leaf(ty: &str) -> bool {
    !(ty == "Reply"
        || ty == "Item"
        || matches!(ty, "16 bytes" | "32 bytes")
        || ty.starts_with("list of ")
        || ty.starts_with("optional ")
        || ty.len() > 3 && ty.ends_with("Id") && ty == "LockId")
}
