//! How single fields are read and written: numbers, byte strings, lists, options; and the error that names what was wrong.
//!
//! Decides: network byte order, length prefixes, and that a list on the wire is validated whole when it is decoded, then read
//! in place. Place in the walk: called by every message's decode and encode. Implements `wire-spec.md` section 4.
//! Invariant: decoding allocates nothing and reads no byte outside the body it was given.
//! Leaves to others: the order of fields (each message's own file).

use crate::shape::{Shape, Shown};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// What was wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The body ended inside the field.
    Truncated,
    /// Bytes were left after the last field.
    Trailing,
    /// The value is not one that the format allows.
    BadValue,
    /// A byte string or list is longer than its limit.
    TooLong,
}

/// A body that does not parse: names the message and the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the innermost structure being read.
    pub part: &'static str,
    /// Name of the field in it.
    pub field: &'static str,
    /// What was wrong.
    pub fault: Fault,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Truncated => "ends early",
            Fault::Trailing => "is followed by bytes that belong to nothing",
            Fault::BadValue => "has a value that the format does not allow",
            Fault::TooLong => "is longer than its limit",
        };
        write!(f, "{}.{} {what}", self.part, self.field)
    }
}

impl core::error::Error for Malformed {}

impl Malformed {
    /// A fault not yet placed; `within` names the field on the way out of the nested readers.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self { part: "", field: "", fault }
    }

    /// Names the structure and field, unless an inner reader has done so already.
    #[must_use]
    pub fn within(self, part: &'static str, field: &'static str) -> Self {
        if self.part.is_empty() { Self { part, field, ..self } } else { self }
    }
}

/// Reads fields from the front of a body.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `body`.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `n` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Malformed::new(Fault::Truncated))?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes.
    #[inline]
    fn take_chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk().ok_or(Malformed::new(Fault::Truncated))?;
        self.rest = tail;
        Ok(head)
    }

    /// Reads one field.
    ///
    /// # Errors
    /// Those of the field's type.
    #[inline]
    pub fn get<T: Field<'a>>(&mut self) -> Result<T, Malformed> {
        T::get(self)
    }
}

/// Where encoded fields go: a growing buffer of the caller.
pub type Writer = Vec<u8>;

/// Something that has one place in a body.
pub trait Field<'a>: Sized {
    /// Name of the type in layout tables (`u64`, `LockId`, `list`, ...).
    const TYPE: &'static str;

    /// Name of the type of what a list or an option holds; empty for all others.
    const ITEM: &'static str = "";

    /// What stands on the wire for it.
    const SHAPE: &'static Shape;

    /// Bytes that each value takes; 0: not all take the same.
    const LEN: usize = 0;

    /// Fewest bytes that a value takes.
    const MIN_LEN: usize = Self::LEN;

    /// Reads the value.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a value of this type; the sender is at fault.
    fn get(r: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Passes over the value: as [`Self::get`], but nothing is made of it.
    ///
    /// # Errors
    /// Those of [`Self::get`].
    #[inline]
    fn skip(r: &mut Reader<'a>) -> Result<(), Malformed> {
        Self::get(r).map(drop)
    }

    /// Whether `bytes`, which are [`Self::LEN`] long, are a value; for types that have a length. Any bytes are, unless a type says more.
    #[inline]
    fn is_value(bytes: &[u8]) -> bool {
        debug_assert_eq!(bytes.len(), Self::LEN, "{} has another length", Self::TYPE);
        true
    }

    /// Appends the value.
    fn put(&self, w: &mut Writer);

    /// The value of a field of a structure that is a plain `u64`, by the field's name.
    #[must_use]
    fn number(&self, _field: &str) -> Option<u64> {
        None
    }

    /// Writes the value over `to`, which is [`Self::LEN`] bytes long; for types that have one.
    fn place(&self, to: &mut [u8]) {
        debug_assert!(to.is_empty(), "{} has no length of its own", Self::TYPE);
    }
}

/// A structure whose values are all of one length, and not longer than this, is encoded at once.
pub(crate) const PLACED_MAX: usize = 128;

/// The length of all fields of a structure together, if each has one.
pub(crate) const fn len_of_all(lens: &[usize]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < lens.len() {
        if lens[at] == 0 {
            return 0;
        }
        sum += lens[at];
        at += 1;
    }
    sum
}

/// The least length of all fields of a structure together.
pub(crate) const fn sum(lens: &[usize]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < lens.len() {
        sum += lens[at];
        at += 1;
    }
    sum
}

/// A value that is a plain `u64`.
pub(crate) fn plain<'a, T: Field<'a>>(value: &T) -> Option<u64> {
    let mut bytes = [0; 8];
    (T::TYPE == u64::TYPE).then(|| {
        value.place(&mut bytes);
        u64::from_be_bytes(bytes)
    })
}

macro_rules! integers {
    ($($ty:ident $bytes:literal $signed:literal),*) => { $(
        impl Field<'_> for $ty {
            const TYPE: &'static str = stringify!($ty);
            const SHAPE: &'static Shape =
                &Shape::Number { ty: stringify!($ty), bytes: $bytes, signed: $signed, shown: Shown::Decimal };
            const LEN: usize = $bytes;
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                r.take_chunk().map(|bytes| Self::from_be_bytes(*bytes))
            }
            #[inline]
            fn skip(r: &mut Reader<'_>) -> Result<(), Malformed> {
                r.take_chunk::<$bytes>().map(drop)
            }
            #[inline]
            fn put(&self, w: &mut Writer) {
                w.extend_from_slice(&self.to_be_bytes());
            }
            #[inline]
            fn place(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_be_bytes());
            }
        }
    )* };
}

integers!(
    u8 1 false,
    u16 2 false,
    u32 4 false,
    u64 8 false,
    i64 8 true
);

impl Field<'_> for bool {
    const TYPE: &'static str = "bool";
    const SHAPE: &'static Shape = &Shape::Bool;
    const LEN: usize = 1;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::get(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::new(Fault::BadValue)),
        }
    }
    #[inline]
    fn is_value(bytes: &[u8]) -> bool {
        matches!(bytes, [0 | 1])
    }
    #[inline]
    fn put(&self, w: &mut Writer) {
        w.push(u8::from(*self));
    }
    #[inline]
    fn place(&self, to: &mut [u8]) {
        u8::from(*self).place(to);
    }
}

macro_rules! fixed {
    ($($bytes:literal $text:literal),*) => { $(
        impl Field<'_> for [u8; $bytes] {
            const TYPE: &'static str = $text;
            const SHAPE: &'static Shape = &Shape::Fixed { ty: $text, bytes: $bytes };
            const LEN: usize = $bytes;
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                r.take_chunk().copied()
            }
            #[inline]
            fn put(&self, w: &mut Writer) {
                w.extend_from_slice(self);
            }
            #[inline]
            fn place(&self, to: &mut [u8]) {
                to.copy_from_slice(self);
            }
        }
    )* };
}

fixed!(
    8 "8 bytes",
    16 "16 bytes",
    24 "24 bytes",
    32 "32 bytes",
    48 "48 bytes",
    184 "184 bytes",
    208 "208 bytes",
    216 "216 bytes"
);

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const TYPE: &'static str = "optional";
    const ITEM: &'static str = T::TYPE;
    const SHAPE: &'static Shape = &Shape::Optional(T::SHAPE);
    const MIN_LEN: usize = 1;
    fn get(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        if bool::get(r)? { T::get(r).map(Some) } else { Ok(None) }
    }
    fn put(&self, w: &mut Writer) {
        self.is_some().put(w);
        if let Some(value) = self {
            value.put(w);
        }
    }
}

macro_rules! byte_strings {
    ($($(#[$doc:meta])* $name:ident($len:ident, $prefix:literal, $text:literal, $shown:ident)),*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name<'a>(pub &'a [u8]);

        impl<'a> Field<'a> for $name<'a> {
            const TYPE: &'static str = $text;
            const SHAPE: &'static Shape = &Shape::Bytes { ty: $text, prefix: $prefix, shown: Shown::$shown };
            const MIN_LEN: usize = $prefix;
            #[inline]
            fn get(r: &mut Reader<'a>) -> Result<Self, Malformed> {
                let len = $len::get(r)?;
                r.take(usize::from(len)).map(Self)
            }
            fn put(&self, w: &mut Writer) {
                // Longer strings are refused where they enter the system; cutting here keeps the encoder total.
                let len = $len::try_from(self.0.len()).unwrap_or($len::MAX);
                len.put(w);
                w.extend_from_slice(&self.0[..usize::from(len)]);
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }

        impl<'a> From<&'a [u8]> for $name<'a> {
            fn from(bytes: &'a [u8]) -> Self {
                Self(bytes)
            }
        }
    )* };
}

byte_strings!(
    /// A byte string of up to 255 bytes: a name, a label, a cookie.
    Bytes8(u8, 1, "bytes8", Text),
    /// A byte string of up to 65,535 bytes: file contents, a link's target.
    Bytes16(u16, 2, "bytes16", Bytes)
);

/// A counted list: borrowed from the wire when decoded, from a slice when made to be sent.
///
/// On the wire: a `u16` count, then the items.
pub struct List<'a, T> {
    source: Source<'a, T>,
}

enum Source<'a, T> {
    Wire { bytes: &'a [u8], count: u16 },
    Values(&'a [T]),
}

// By hand: a borrowed list is a pair of words, whatever its items are.
impl<T> Clone for Source<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Source<'_, T> {}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<'a, T: Field<'a> + Clone> List<'a, T> {
    /// A list of the given values, at most 65,535 of them.
    #[must_use]
    pub const fn of(values: &'a [T]) -> Self {
        Self { source: Source::Values(values) }
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.source {
            Source::Wire { count, .. } => usize::from(count),
            Source::Values(values) => values.len().min(usize::from(u16::MAX)),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    #[must_use]
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter { source: self.source, left: self.len(), item: PhantomData }
    }
}

impl<'a, T: Field<'a> + Clone> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;
    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Field<'a> + Clone> Default for List<'a, T> {
    fn default() -> Self {
        Self::of(&[])
    }
}

/// Iterator over a [`List`].
#[derive(Clone)]
pub struct ListIter<'a, T> {
    source: Source<'a, T>,
    left: usize,
    item: PhantomData<T>,
}

impl<'a, T: Field<'a> + Clone> Iterator for ListIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Wire { bytes, .. } => {
                // The list was validated whole when it was decoded, so this cannot fail on bytes from the wire.
                let mut r = Reader::new(bytes);
                let item = T::get(&mut r).ok()?;
                *bytes = r.rest();
                Some(item)
            }
            Source::Values(values) => {
                let (first, rest) = values.split_first()?;
                *values = rest;
                Some(first.clone())
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: Field<'a> + Clone> Field<'a> for List<'a, T> {
    const TYPE: &'static str = "list";
    const ITEM: &'static str = T::TYPE;
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE);
    const MIN_LEN: usize = 2;

    fn get(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = u16::get(r)?;
        let start = r.rest();
        for _ in 0..count {
            T::skip(r)?;
        }
        let used = start.len() - r.rest().len();
        Ok(Self { source: Source::Wire { bytes: &start[..used], count } })
    }

    fn put(&self, w: &mut Writer) {
        match self.source {
            // What was decoded is encoded by the same bytes.
            Source::Wire { bytes, count } => {
                count.put(w);
                w.extend_from_slice(bytes);
            }
            Source::Values(values) => {
                let count = u16::try_from(values.len()).unwrap_or(u16::MAX);
                count.put(w);
                values.iter().take(usize::from(count)).for_each(|item| item.put(w));
            }
        }
    }
}

impl<'a, T: Field<'a> + Clone + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Clone + Eq> Eq for List<'a, T> {}

impl<'a, T: Field<'a> + Clone + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
