//! BATCH: several mutations, executed whole or not at all.
//!
//! Decides: its layout; that an item is the code of a mutation and that mutation's own fields; and the numbers by which an item names an
//! object that an item before it makes. Implements `wire-spec.md` sections 5.4 and 6.2.
//! Invariant: an item has neither nonce nor locks of its own: decoded, its `ask` and `terms` are `NONE`.
//! Leaves to others: what the items do (`server::namespace`).

use crate::attr::SetAttr;
use crate::content::Write;
use crate::field::{Fault, Field, List, Malformed, Reader, Writer};
use crate::ids::{Ask, ObjectId, Terms};
use crate::lease::{Attach, MakeLease};
use crate::limits::MADE_BASE;
use crate::names::{Create, Link, Mkdir, Rename, Rmdir, Symlink, Unlink};
use crate::realm::{MakeRealm, SetQuota};
use crate::registry::{Kind, Message};
use crate::shape::{Case, Shape};
use crate::xattr::{RemoveXattr, SetXattr};

/// A mutation as an item of a batch: its own fields alone.
pub(crate) trait Part<'a>: Sized {
    /// What stands on the wire for it.
    const PART: &'static Shape;

    /// Reads the fields.
    fn get_part(r: &mut Reader<'a>) -> Result<Self, Malformed>;

    /// Appends the fields.
    fn put_part(&self, w: &mut Writer);
}

macro_rules! items {
    ($($name:ident),* $(,)?) => {
        /// One mutation of a batch; its `ask` and `terms` are `NONE`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant's structure is documented where it is declared")]
        pub enum Item<'a> { $($name($name<'a>)),* }

        impl<'a> Item<'a> {
            /// The kinds that can be items, in order of code.
            pub const KINDS: &'static [Kind] = &[$(Kind::$name),*];

            /// What a mutation does, without its request; `None`: the message is none, or one of several items.
            #[must_use]
            pub fn of(message: &Message<'a>) -> Option<Self> {
                match *message {
                    $(Message::$name(part) => Some(part.into()),)*
                    _ => None,
                }
            }

            /// A request that does the same alone; its `ask` is `NONE`.
            #[must_use]
            pub fn under(self, terms: Terms<'a>) -> Message<'a> {
                match self { $(Self::$name(part) => Message::$name($name { terms, ..part })),* }
            }

            /// The kind of the request that does the same alone.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name),* }
            }
        }

        impl<'a> Field<'a> for Item<'a> {
            const TYPE: &'static str = "Item";
            const SHAPE: &'static Shape = &Shape::Union {
                ty: "Item",
                words: &[$((Kind::$name.code() as u64, Kind::$name.name())),*],
                cases: &[$(Case {
                    code: Kind::$name.code(),
                    name: Kind::$name.name(),
                    field: Kind::$name.field(),
                    shape: <$name<'a> as Part<'a>>::PART,
                }),*],
            };
            fn get(r: &mut Reader<'a>) -> Result<Self, Malformed> {
                match Kind::of(u8::get(r)?) {
                    $(Some(Kind::$name) => $name::get_part(r).map(Self::$name),)*
                    _ => Err(Malformed::new(Fault::BadValue).within("Item", "kind")),
                }
            }
            fn put(&self, w: &mut Writer) {
                self.kind().code().put(w);
                match self { $(Self::$name(part) => part.put_part(w)),* }
            }
        }

        $( impl<'a> From<$name<'a>> for Item<'a> {
            fn from(part: $name<'a>) -> Self {
                Self::$name($name { ask: Ask::NONE, terms: Terms::NONE, ..part })
            }
        } )*
    };
}

items!(SetAttr, Create, Mkdir, Symlink, Link, Unlink, Rmdir, Rename, MakeRealm, SetQuota, MakeLease, Attach, Write, SetXattr, RemoveXattr);

body! {
    /// Agent to server: several mutations in order, as one.
    pub struct Batch<'a> {
        /// The request.
        pub ask: Ask,
        /// The mutations.
        pub items: List<'a, Item<'a>>,
        /// Locks, guard and expectations of all of them.
        pub terms: Terms<'a>,
    }
}

impl ObjectId {
    /// How an item of a batch names the object that the item with this index, before it, makes or opens.
    #[must_use]
    pub const fn made_by(item: u8) -> Self {
        Self(MADE_BASE + item as u64)
    }

    /// The index of the item that makes the object, if this is such a number.
    #[must_use]
    pub const fn maker(self) -> Option<usize> {
        // The base ends in a byte of zeros.
        let [.., item] = self.0.to_be_bytes();
        if self.0 >= MADE_BASE { Some(item as usize) } else { None }
    }
}
