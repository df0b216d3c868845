//! The declarations from which formats are made: `body!` (a structure), `mutation!` (a request that changes the namespace, and can be an
//! item of a batch), `codes!` (a one-byte code), `number!` (a typed id).
//!
//! Decides: that a layout is declared once, as a Rust struct in wire order, and that its decoder, its encoder, its shape and the list
//! of its fields all come from that declaration. Implements `wire-spec.md` section 4.
//! Leaves to others: which structures exist.

/// Declares a structure whose fields stand on the wire in the order written, and makes its [`crate::Field`] and its field list.
/// `as` behind a field's type names a [`crate::Shown`] other than the one that comes with its type or with the unit in its name.
macro_rules! body {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $doc:literal])* pub $field:ident : $ty:ty $(as $shown:path)?),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[doc = $doc])* pub $field: $ty),* }
        body!(@impl [$name] $name { $([$($doc)*] $field: $ty [$($shown)?]),* });
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident<'a> {
        $($(#[doc = $doc:literal])* pub $field:ident : $ty:ty $(as $shown:path)?),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name<'a> { $($(#[doc = $doc])* pub $field: $ty),* }
        body!(@impl [$name<'a>] $name { $([$($doc)*] $field: $ty [$($shown)?]),* });
    };
    (@impl [$full:ty] $name:ident { $([$($doc:literal)*] $field:ident : $ty:ty [$($shown:path)?]),* }) => {
        impl<'a> crate::Field<'a> for $full {
            const TYPE: &'static str = stringify!($name);
            const SHAPE: &'static crate::Shape =
                &crate::Shape::Structure { ty: stringify!($name), fields: Self::FIELDS };
            const LEN: usize = crate::field::len_of_all(&[$(<$ty as crate::Field<'a>>::LEN),*]);
            const MIN_LEN: usize = crate::field::sum(&[$(<$ty as crate::Field<'a>>::MIN_LEN),*]);
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn get(r: &mut crate::Reader<'a>) -> Result<Self, crate::Malformed> {
                Ok(Self { $($field: r.get().map_err(|e: crate::Malformed| e.within(stringify!($name), stringify!($field)))?),* })
            }
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn skip(r: &mut crate::Reader<'a>) -> Result<(), crate::Malformed> {
                // Field by field where lengths differ, and to find the field at fault.
                if Self::LEN > 0
                    && let Some((value, rest)) = r.rest().split_at_checked(Self::LEN)
                    && Self::is_value(value)
                {
                    *r = crate::Reader::new(rest);
                    return Ok(());
                }
                $( <$ty as crate::Field<'a>>::skip(r).map_err(|e| e.within(stringify!($name), stringify!($field)))?; )*
                Ok(())
            }
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn is_value(bytes: &[u8]) -> bool {
                $( let (field, bytes) = bytes.split_at(<$ty as crate::Field<'a>>::LEN);
                if !<$ty as crate::Field<'a>>::is_value(field) {
                    return false;
                } )*
                true
            }
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn put(&self, w: &mut crate::Writer) {
                // At once, if it is not long: room in the buffer is then looked for once.
                match [0; crate::field::PLACED_MAX].get_mut(..Self::LEN) {
                    Some(bytes) if Self::LEN > 0 => {
                        self.place(bytes);
                        w.extend_from_slice(bytes);
                    }
                    _ => { $( self.$field.put(w); )* }
                }
            }
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn number(&self, field: &str) -> Option<u64> {
                $( if field == stringify!($field) {
                    return crate::field::plain(&self.$field);
                } )*
                None
            }
            #[inline]
            #[allow(unused_variables, reason = "a structure may have no fields")]
            fn place(&self, to: &mut [u8]) {
                $( let (field, to) = to.split_at_mut(<$ty as crate::Field<'a>>::LEN);
                crate::Field::place(&self.$field, field); )*
            }
        }
        impl<'a> $full {
            /// The fields in wire order.
            pub const FIELDS: &'static [crate::FieldInfo] =
                &[$( crate::FieldInfo::of::<$ty>(stringify!($field), concat!($($doc),*))$(.shown_as($shown))? ),*];
        }
    };
}

/// Declares a mutation by its own fields: as a request it stands between an [`Ask`](crate::Ask) and [`Terms`](crate::Terms), as an item of
/// a batch alone.
macro_rules! mutation {
    ($(#[$meta:meta])* pub struct $name:ident<'a> {
        $($(#[doc = $doc:literal])* pub $field:ident : $ty:ty $(as $shown:path)?),* $(,)?
    }) => {
        body! {
            $(#[$meta])*
            pub struct $name<'a> {
                /// The request; in an item of a batch [`Ask::NONE`](crate::Ask::NONE).
                pub ask: crate::Ask,
                $($(#[doc = $doc])* pub $field: $ty $(as $shown)?,)*
                /// Locks, guard and expectations; in an item of a batch [`Terms::NONE`](crate::Terms::NONE).
                pub terms: crate::Terms<'a>,
            }
        }
        impl<'a> crate::batch::Part<'a> for $name<'a> {
            const PART: &'static crate::Shape = &crate::Shape::Structure {
                ty: stringify!($name),
                fields: Self::FIELDS.split_at(Self::FIELDS.len() - 1).0.split_at(1).1,
            };
            fn get_part(r: &mut crate::Reader<'a>) -> Result<Self, crate::Malformed> {
                Ok(Self {
                    ask: crate::Ask::NONE,
                    $($field: r.get().map_err(|e: crate::Malformed| e.within(stringify!($name), stringify!($field)))?,)*
                    terms: crate::Terms::NONE,
                })
            }
            fn put_part(&self, w: &mut crate::Writer) {
                $( crate::Field::put(&self.$field, w); )*
            }
        }
    };
}

/// Declares a one-byte code: unknown values do not parse.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $code:literal $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* $variant = $code),* }

        impl $name {
            /// Every value, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for this value in logs, listings and the specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl crate::Field<'_> for $name {
            const TYPE: &'static str = stringify!($name);
            const SHAPE: &'static crate::Shape = &crate::Shape::Code { ty: stringify!($name), words: &[$(($code, $text)),*] };
            const LEN: usize = 1;
            #[inline]
            fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
                match u8::get(r)? {
                    $($code => Ok(Self::$variant),)*
                    _ => Err(crate::Malformed::new(crate::Fault::BadValue)),
                }
            }
            #[inline]
            fn is_value(bytes: &[u8]) -> bool {
                <Self as crate::Field<'_>>::get(&mut crate::Reader::new(bytes)).is_ok()
            }
            #[inline]
            fn put(&self, w: &mut crate::Writer) {
                (*self as u8).put(w);
            }
            #[inline]
            fn place(&self, to: &mut [u8]) {
                (*self as u8).place(to);
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// Declares a typed number, shown as its format string and its [`crate::Shown`] say.
macro_rules! number {
    ($($(#[$meta:meta])* $name:ident $int:ident $bytes:literal $format:literal $shown:ident),* $(,)?) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl crate::Field<'_> for $name {
            const TYPE: &'static str = stringify!($name);
            const SHAPE: &'static crate::Shape =
                &crate::Shape::Number { ty: stringify!($name), bytes: $bytes, signed: false, shown: crate::Shown::$shown };
            const LEN: usize = $bytes;
            #[inline]
            fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
                $int::get(r).map(Self)
            }
            #[inline]
            fn skip(r: &mut crate::Reader<'_>) -> Result<(), crate::Malformed> {
                $int::skip(r)
            }
            #[inline]
            fn put(&self, w: &mut crate::Writer) {
                self.0.put(w);
            }
            #[inline]
            fn place(&self, to: &mut [u8]) {
                self.0.place(to);
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, $format, self.0)
            }
        }
    )* };
}
