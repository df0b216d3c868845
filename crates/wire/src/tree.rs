//! Reading a datagram by the shapes alone: a tree of named values, each with its place in the bytes.
//!
//! Decides: the nodes of the tree and their names. The names from the outermost node to a leaf, joined by dots, are the leaf's name in
//! captures, in the JSON of the inspector and in the fields of the dissector. Implements `wire-spec.md` sections 3 and 4.
//! Place in the walk: beside it; nothing that acts on a datagram comes here, inspectors do.
//! Invariant: the walk finds the same fault as the decoder or none where that finds none, and the leaves cover every byte exactly once.
//! Leaves to others: what is shown of it, and how.

use crate::datagram::{DropReason, Envelope, check_place};
use crate::field::{Fault, Field, Malformed, Reader};
use crate::header::{MessageHeader, RawHeader};
use crate::limits::{CHECKSUM_LEN, HEADER_LEN, MAGIC, MESSAGE_HEADER_LEN};
use crate::registry::Kind;
use crate::shape::{FieldInfo, Shape, Shown};
use alloc::vec::Vec;

/// What a leaf says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Not a leaf: the children say it.
    Parts,
    /// A number, or a code (also one that its type does not have).
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A bool.
    Bool(bool),
    /// Bytes, without their length.
    Bytes(&'a [u8]),
}

/// A field as it stands in the bytes.
///
/// Children by shape: a structure has its fields; a list `count` and its items; an option `present` and, if so, its value; a union
/// `kind` and the structure, under the name of its case; all others none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its part of the name in captures. Empty for an item of a list and the value of an option: they are named as what holds them.
    pub name: &'static str,
    /// What stands on the wire for it.
    pub shape: &'static Shape,
    /// How a leaf's value is shown.
    pub shown: Shown,
    /// Offset of its first byte.
    pub at: usize,
    /// Its bytes, length bytes included.
    pub len: usize,
    /// What it says.
    pub value: Value<'a>,
    /// What it is made of, in wire order.
    pub children: Vec<Self>,
}

impl<'a> Node<'a> {
    /// Calls `see` with every leaf and its name in captures, in wire order; `path` is the name of what holds this node.
    pub fn leaves<'n>(&'n self, path: &str, see: &mut impl FnMut(&str, &'n Self)) {
        let path = join(path, self.name);
        if self.value == Value::Parts {
            self.children.iter().for_each(|child| child.leaves(&path, see));
        } else {
            see(&path, self);
        }
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The word for its value, if it has one.
    #[must_use]
    pub fn word(&self) -> Option<&'static str> {
        match (self.shown, self.value) {
            (Shown::Words(words), Value::Unsigned(value)) => words.iter().find(|(code, _)| *code == value).map(|(_, word)| *word),
            _ => None,
        }
    }
}

/// A name and the name of what holds it, with a dot between them if neither is empty.
fn join(path: &str, name: &str) -> alloc::string::String {
    let mut joined = alloc::string::String::from(path);
    if !path.is_empty() && !name.is_empty() {
        joined.push('.');
    }
    joined.push_str(name);
    joined
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree<'a> {
    /// The body, named as its kind; what could not be read is a last child `undecoded`.
    pub node: Node<'a>,
    /// Why it does not parse, the same as [`crate::Message::decode`] says.
    pub malformed: Option<Malformed>,
}

impl<'a> Tree<'a> {
    /// Reads the body of a message of `kind` that begins at offset `at` of whatever the offsets of the nodes shall count in.
    #[must_use]
    pub fn of(kind: Kind, body: &'a [u8], at: usize) -> Self {
        let mut walk = Walk { r: Reader::new(body), end: at + body.len() };
        let (shape, mut children) = (kind.shape(), Vec::new());
        let mut malformed = walk.fields(shape, &mut children).err();
        if malformed.is_none() && !walk.r.rest().is_empty() {
            malformed = Some(Malformed::new(Fault::Trailing).within(kind.name(), "end"));
        }
        children.extend(walk.rest());
        let (name, shown, len) = (kind.field(), Shown::Decimal, body.len());
        let node = Node { name, shape, shown, at, len, value: Value::Parts, children };
        Self { node, malformed }
    }
}

/// One message of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageTree<'a> {
    /// Its kind, if it is known.
    pub kind: Option<Kind>,
    /// Its header's fields, and behind them its body, named as its kind.
    pub node: Node<'a>,
    /// Why the datagram must be dropped because of it.
    pub reason: Option<DropReason>,
}

/// A datagram, sound or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramTree<'a> {
    /// The fields of the header; nothing if it does not begin like a datagram of this protocol.
    pub header: Vec<Node<'a>>,
    /// The messages, as far as they can be told apart.
    pub messages: Vec<MessageTree<'a>>,
    /// What could not be read, if anything, and the checksum.
    pub tail: Vec<Node<'a>>,
    /// Why a receiver would drop it, the same as [`crate::Datagram::seen`] says; `None`: it is sound.
    pub reason: Option<DropReason>,
}

impl<'a> DatagramTree<'a> {
    /// Reads a datagram; offsets count from its first byte. What follows a fault is read as far as it makes sense.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        let mut tree = Self { header: Vec::new(), messages: Vec::new(), tail: Vec::new(), reason: Envelope::read(bytes).err() };
        let mut walk = Walk { r: Reader::new(bytes), end: bytes.len() };
        let foreign = matches!(tree.reason, Some(DropReason::TooShort | DropReason::BadMagic));
        let raw = RawHeader::get(&mut Reader::new(bytes)).ok().filter(|raw| !foreign && raw.magic == MAGIC);
        let Some(raw) = raw else {
            tree.tail.extend(walk.rest());
            return tree;
        };
        // Cannot fail: the header has just been read.
        let _read = walk.fields(RawHeader::SHAPE, &mut tree.header);
        if matches!(tree.reason, Some(DropReason::UnknownVersion(_) | DropReason::UnknownForm(_))) {
            tree.tail.extend(walk.rest());
            return tree;
        }
        let sealed_at = bytes.len() - CHECKSUM_LEN;
        let mut messages = Walk { r: Reader::new(&bytes[HEADER_LEN..sealed_at]), end: sealed_at };
        while let Some(message) = messages.message(&raw) {
            tree.reason = tree.reason.or(message.reason);
            tree.messages.push(message);
        }
        if !messages.r.rest().is_empty() {
            tree.reason = tree.reason.or(Some(DropReason::BadLength));
            tree.tail.extend(messages.rest());
        } else if tree.messages.is_empty() {
            tree.reason = tree.reason.or(Some(DropReason::Empty));
        }
        let mut checksum = Walk { r: Reader::new(&bytes[sealed_at..]), end: bytes.len() };
        // Cannot fail: these are the four bytes that it takes.
        let _read = checksum.value("checksum", u32::SHAPE, Shown::Hex, &mut tree.tail);
        tree
    }
}

/// A reader that knows where it is.
struct Walk<'a> {
    r: Reader<'a>,
    /// Offset of the end of what it reads.
    end: usize,
}

impl<'a> Walk<'a> {
    fn at(&self) -> usize {
        self.end - self.r.rest().len()
    }

    /// All that was not read, as a leaf, if there is any.
    fn rest(&mut self) -> Option<Node<'a>> {
        let rest = self.r.rest();
        (!rest.is_empty()).then(|| undecoded(rest, self.at()))
    }

    /// Reads the next message; `None` at the end, or where no message can be told from what is left.
    fn message(&mut self, header: &RawHeader) -> Option<MessageTree<'a>> {
        let at = self.at();
        let mut ahead = self.r;
        let head = MessageHeader::get(&mut ahead).ok()?;
        let body = ahead.take(usize::from(head.length));
        let kind = Kind::of(head.kind);
        if body.is_err() && kind.is_some() && head.reserved == 0 {
            return None;
        }
        let mut children = Vec::new();
        let _read = self.fields(MessageHeader::SHAPE, &mut children);
        let body = body.unwrap_or(self.r.rest());
        self.r = Reader::new(&self.r.rest()[body.len()..]);
        let body_at = at + MESSAGE_HEADER_LEN;
        let reason = match kind {
            None => {
                children.extend((!body.is_empty()).then(|| undecoded(body, body_at)));
                Some(DropReason::UnknownKind(head.kind))
            }
            Some(kind) => {
                let tree = Tree::of(kind, body, body_at);
                children.push(tree.node);
                let place = check_place(kind, &header.header()).err();
                let reserved = (head.reserved != 0).then_some(DropReason::ReservedBits);
                reserved.or(place).or(tree.malformed.map(DropReason::Malformed))
            }
        };
        let len = MESSAGE_HEADER_LEN + body.len();
        let node = Node { name: "", shape: MessageHeader::SHAPE, shown: Shown::Decimal, at, len, value: Value::Parts, children };
        Some(MessageTree { kind, node, reason })
    }

    /// Reads one value into `into`; on a fault, as much of it as there is, if there is anything.
    fn value(&mut self, name: &'static str, shape: &'static Shape, shown: Shown, into: &mut Vec<Node<'a>>) -> Result<(), Malformed> {
        let at = self.at();
        let mut children = Vec::new();
        let read = match shape {
            Shape::Structure { .. } => self.fields(shape, &mut children).map(|()| Value::Parts),
            Shape::Union { .. } => self.union(shape, &mut children).map(|()| Value::Parts),
            Shape::List(item) => self.list(item, shown, &mut children).map(|()| Value::Parts),
            Shape::Optional(inner) => self.optional(inner, shown, &mut children).map(|()| Value::Parts),
            _ => {
                let (value, fault) = self.leaf(shape)?;
                into.push(Node { name, shape, shown, at, len: self.at() - at, value, children });
                return fault.map_or(Ok(()), |fault| Err(Malformed::new(fault)));
            }
        };
        if read.is_ok() || !children.is_empty() {
            into.push(Node { name, shape, shown, at, len: self.at() - at, value: Value::Parts, children });
        }
        read.map(drop)
    }

    fn fields(&mut self, shape: &'static Shape, into: &mut Vec<Node<'a>>) -> Result<(), Malformed> {
        let Shape::Structure { ty, fields } = shape else { return Ok(()) };
        fields.iter().try_for_each(|FieldInfo { name, shape, shown, .. }| {
            self.value(name, shape, *shown, into).map_err(|malformed| malformed.within(ty, name))
        })
    }

    fn union(&mut self, shape: &'static Shape, into: &mut Vec<Node<'a>>) -> Result<(), Malformed> {
        let Shape::Union { ty, words, cases } = shape else { return Ok(()) };
        self.value("kind", u8::SHAPE, Shown::Words(words), into)?;
        let code = match into.last() {
            Some(Node { value: Value::Unsigned(code), .. }) => *code,
            _ => 0,
        };
        let case = cases.iter().find(|case| u64::from(case.code) == code);
        let case = case.ok_or(Malformed::new(Fault::BadValue).within(ty, "kind"))?;
        self.value(case.field, case.shape, Shown::Decimal, into)
    }

    fn list(&mut self, item: &'static Shape, shown: Shown, into: &mut Vec<Node<'a>>) -> Result<(), Malformed> {
        self.value("count", u16::SHAPE, Shown::Decimal, into)?;
        let count = match into.last() {
            Some(Node { value: Value::Unsigned(count), .. }) => *count,
            _ => 0,
        };
        (0..count).try_for_each(|_| self.value("", item, shown, into))
    }

    fn optional(&mut self, inner: &'static Shape, shown: Shown, into: &mut Vec<Node<'a>>) -> Result<(), Malformed> {
        self.value("present", bool::SHAPE, Shown::Decimal, into)?;
        if matches!(into.last(), Some(Node { value: Value::Bool(true), .. })) { self.value("", inner, shown, into) } else { Ok(()) }
    }

    /// Reads a value without parts, and says if it is one that its shape does not have.
    fn leaf(&mut self, shape: &'static Shape) -> Result<(Value<'a>, Option<Fault>), Malformed> {
        Ok(match shape {
            Shape::Number { bytes, signed: false, .. } => (Value::Unsigned(self.number(*bytes)?), None),
            Shape::Number { bytes, .. } => {
                let unused = 64 - 8 * u32::from(*bytes);
                (Value::Signed((self.number(*bytes)? << unused).cast_signed() >> unused), None)
            }
            Shape::Bool => match self.number(1)? {
                byte @ (0 | 1) => (Value::Bool(byte == 1), None),
                other => (Value::Unsigned(other), Some(Fault::BadValue)),
            },
            Shape::Code { words, .. } => {
                let code = self.number(1)?;
                let known = words.iter().any(|(value, _)| *value == code);
                (Value::Unsigned(code), (!known).then_some(Fault::BadValue))
            }
            Shape::Fixed { bytes, .. } => (Value::Bytes(self.r.take(usize::from(*bytes))?), None),
            Shape::Bytes { prefix, .. } => {
                // Like the decoder, a string that is cut short has no value; its length is then among what was not read.
                let before = self.r;
                let len = usize::try_from(self.number(*prefix)?).unwrap_or(usize::MAX);
                let bytes = self.r.take(len).inspect_err(|_| self.r = before)?;
                (Value::Bytes(bytes), None)
            }
            _ => (Value::Parts, None),
        })
    }

    /// Reads an unsigned number of so many bytes, at most 8.
    fn number(&mut self, bytes: u8) -> Result<u64, Malformed> {
        let bytes = self.r.take(usize::from(bytes))?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

/// A leaf of bytes that nothing explains.
fn undecoded(bytes: &[u8], at: usize) -> Node<'_> {
    const SHAPE: &Shape = &Shape::Bytes { ty: "undecoded", prefix: 0, shown: Shown::Bytes };
    Node { name: "undecoded", shape: SHAPE, shown: Shown::Bytes, at, len: bytes.len(), value: Value::Bytes(bytes), children: Vec::new() }
}
