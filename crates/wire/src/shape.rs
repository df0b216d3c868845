//! What a field looks like, as a value: the self-description of the wire format.
//!
//! Decides: the vocabulary in which formats describe themselves (`Shape`), how a value is shown to people (`Shown`), and the name that
//! each field has in captures. Every `Field` has its shape from the declaration that makes its decoder and encoder, so that whoever
//! prints, dissects or generates knows all messages without knowing their Rust types. Implements `wire-spec.md` section 4.
//! Invariant: a shape accepts what its decoder accepts (`tree` walks by shapes, and a test holds the two against each other).
//! Leaves to others: walking (`tree`), printing (inspector), generating (dissector).

use crate::Field;

/// What stands on the wire for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number in network byte order.
    Number {
        /// Name of the type in the specification.
        ty: &'static str,
        /// Width in bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it is in two's complement.
        signed: bool,
        /// How it is shown unless its field says otherwise.
        shown: Shown,
    },
    /// A byte that is 0 or 1.
    Bool,
    /// A byte that is one of these codes.
    Code {
        /// Name of the type in the specification.
        ty: &'static str,
        /// Every value and its word, in order of value.
        words: &'static [(u64, &'static str)],
    },
    /// So many bytes as they are.
    Fixed {
        /// Name of the type in the specification.
        ty: &'static str,
        /// How many.
        bytes: u8,
    },
    /// A length, then so many bytes.
    Bytes {
        /// Name of the type in the specification.
        ty: &'static str,
        /// Width of the length, in bytes: 1 or 2.
        prefix: u8,
        /// How they are shown unless their field says otherwise.
        shown: Shown,
    },
    /// A bool, then the value if it is true.
    Optional(&'static Self),
    /// A `u16` count, then so many items.
    List(&'static Self),
    /// Fields in order.
    Structure {
        /// Name of the type in the specification.
        ty: &'static str,
        /// The fields.
        fields: &'static [FieldInfo],
    },
    /// A byte that says which structure follows, then that structure.
    Union {
        /// Name of the type in the specification.
        ty: &'static str,
        /// Every code and its name.
        words: &'static [(u64, &'static str)],
        /// The structures.
        cases: &'static [Case],
    },
}

impl Shape {
    /// How a leaf of this shape is shown unless its field says otherwise.
    #[must_use]
    pub const fn shown(&self) -> Shown {
        match self {
            Self::Number { shown, .. } | Self::Bytes { shown, .. } => *shown,
            Self::Code { words, .. } => Shown::Words(words),
            Self::Fixed { .. } => Shown::Bytes,
            Self::Optional(inner) | Self::List(inner) => inner.shown(),
            Self::Bool | Self::Structure { .. } | Self::Union { .. } => Shown::Decimal,
        }
    }
}

impl Shape {
    /// Where the first number of an object stands in a value that begins at `at`; of a list, that of its first item. `Err`: not behind
    /// fields of fixed length only; then with the place where the value ends, if that is always the same.
    pub(crate) const fn object_at(&self, at: usize) -> Result<usize, Option<usize>> {
        match self {
            Self::Number { shown: Shown::Object, .. } => Ok(at),
            Self::Number { bytes, .. } | Self::Fixed { bytes, .. } => Err(Some(at + *bytes as usize)),
            Self::Bool | Self::Code { .. } => Err(Some(at + 1)),
            Self::List(item) => match item.object_at(at + 2) {
                Ok(at) => Ok(at),
                Err(_) => Err(None),
            },
            Self::Structure { fields, .. } => {
                let (mut at, mut field) = (at, 0);
                while field < fields.len() {
                    match fields[field].shape.object_at(at) {
                        Err(Some(end)) => at = end,
                        found => return found,
                    }
                    field += 1;
                }
                Err(Some(at))
            }
            Self::Bytes { .. } | Self::Optional(_) | Self::Union { .. } => Err(None),
        }
    }
}

/// One structure of a [`Shape::Union`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The byte that announces it.
    pub code: u8,
    /// Its name in the specification, as in `LOCK_REFUSED`.
    pub name: &'static str,
    /// Its name in captures: the same in lower case.
    pub field: &'static str,
    /// What follows the byte.
    pub shape: &'static Shape,
}

/// How a value is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A number, decimal.
    Decimal,
    /// A number, hexadecimal with all its digits.
    Hex,
    /// A number, octal: permission bits.
    Octal,
    /// The number of an object, decimal behind a `#`.
    Object,
    /// A span of time in microseconds.
    Micros,
    /// A span of time in milliseconds.
    Millis,
    /// A time in nanoseconds since 1970.
    Time,
    /// A number of which some values have words.
    Words(&'static [(u64, &'static str)]),
    /// A number whose bits have names.
    Bits(&'static [(u64, &'static str)]),
    /// Bytes that are text, by convention UTF-8.
    Text,
    /// Bytes, hexadecimal.
    Bytes,
}

impl Shown {
    /// By the unit in the field's name, if it has one; otherwise as `shape` says.
    const fn by_name(name: &str, shape: &Shape) -> Self {
        if !matches!(shape, Shape::Number { .. }) {
            shape.shown()
        } else if ends_with(name, "_us") {
            Self::Micros
        } else if ends_with(name, "_ms") {
            Self::Millis
        } else if ends_with(name, "_ns") {
            Self::Time
        } else {
            shape.shown()
        }
    }
}

/// One field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// The field's name.
    pub name: &'static str,
    /// Its type, as in `wire-spec.md` section 4.
    pub ty: &'static str,
    /// Of a list or an option, the type of what it holds; else empty.
    pub item: &'static str,
    /// What stands on the wire for it.
    pub shape: &'static Shape,
    /// How its value, or that of each leaf that it holds directly, is shown.
    pub shown: Shown,
    /// What it means, in the words of its declaration.
    pub doc: &'static str,
}

impl FieldInfo {
    /// The field `name` of type `T`.
    pub(crate) const fn of<'a, T: Field<'a>>(name: &'static str, doc: &'static str) -> Self {
        Self { name, ty: T::TYPE, item: T::ITEM, shape: T::SHAPE, shown: Shown::by_name(name, T::SHAPE), doc: doc.trim_ascii_start() }
    }

    /// The same field, shown in another way.
    pub(crate) const fn shown_as(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }
}

const fn ends_with(text: &str, end: &str) -> bool {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    let Some(skip) = text.len().checked_sub(end.len()) else { return false };
    let mut at = 0;
    while at < end.len() {
        if text[skip + at] != end[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The bytes of a name of the specification in lower case, for its name in captures.
pub(crate) const fn lower<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = name.as_bytes()[at].to_ascii_lowercase();
        at += 1;
    }
    bytes
}

/// A name of the specification in lower case, as a constant.
macro_rules! lower {
    ($text:literal) => {{
        const BYTES: [u8; $text.len()] = crate::shape::lower($text);
        match core::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => $text,
        }
    }};
}
