//! Who and what: identifiers, lock names and modes, and the two structures with which requests begin and mutations end.
//!
//! Decides: their sizes and codes. Implements `wire-spec.md` section 5.
//! Leaves to others: how numbers are chosen (agent and server).

use crate::field::{Field, List, Malformed, Reader, Writer};
use crate::shape::Shape;
use core::fmt;

number! {
    /// An agent incarnation's standing with one server incarnation: a random number, 0 only in handshakes.
    SessionId u64 8 "{:016x}" Hex,
    /// The public name of a session: a random number that says who is who to other agents and proves nothing. 0 names nobody.
    Handle u64 8 "{:016x}" Hex,
    /// A file, directory or symbolic link; never used again after it is gone. 0 names nothing, 1 is the root directory.
    ObjectId u64 8 "#{}" Object,
    /// One grant of a lock: increases over all grants of the store; 0 means no grant. Also the first fencing token of its run.
    Generation u64 8 "{}" Decimal,
    /// A realm: the directory that begins it and all below, but for the realms that begin there. 1 is that of the whole tree, 0 names none;
    /// never used again after it is gone.
    Realm u32 4 "{}" Decimal,
}

macro_rules! identities {
    ($($(#[$meta:meta])* $name:ident),*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 16]);

        impl Field<'_> for $name {
            const TYPE: &'static str = stringify!($name);
            const SHAPE: &'static Shape = &Shape::Fixed { ty: stringify!($name), bytes: 16 };
            const LEN: usize = 16;
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                <[u8; 16]>::get(r).map(Self)
            }
            #[inline]
            fn put(&self, w: &mut Writer) {
                self.0.put(w);
            }
            #[inline]
            fn place(&self, to: &mut [u8]) {
                self.0.place(to);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )* };
}

identities!(
    /// An agent's identity, durable on its host: 128 random bits.
    AgentId,
    /// A store's identity, made when the store is made: 128 random bits. All zero: none known.
    StoreId
);

codes! {
    /// What a lock protects.
    pub enum LockClass {
        /// Cached names, attributes and contents of an object; always preemptible.
        Cache = 1 "cache",
        /// What applications ask for; given back when its user ends.
        Advisory = 2 "advisory",
    }
}

codes! {
    /// Lock mode.
    pub enum Mode {
        /// Compatible with other shared holders.
        Shared = 1 "shared",
        /// Compatible with nobody.
        Exclusive = 2 "exclusive",
    }
}

impl Mode {
    /// Whether two agents may hold these modes of one lock at once.
    #[must_use]
    pub const fn compatible(self, other: Self) -> bool {
        matches!((self, other), (Self::Shared, Self::Shared))
    }
}

codes! {
    /// Which cache lock the sender would like with the answer.
    pub enum Want {
        /// None: the answer will not be cached.
        Nothing = 0 "nothing",
        /// A shared cache lock.
        Shared = 1 "shared",
        /// An exclusive cache lock.
        Exclusive = 2 "exclusive",
    }
}

impl Want {
    /// The mode asked for, if any.
    #[must_use]
    pub const fn mode(self) -> Option<Mode> {
        match self {
            Self::Nothing => None,
            Self::Shared => Some(Mode::Shared),
            Self::Exclusive => Some(Mode::Exclusive),
        }
    }
}

body! {
    /// The name of a lock: an object and what about it is locked.
    #[derive(PartialOrd, Ord, Hash)]
    pub struct LockId {
        /// The object.
        pub object: ObjectId,
        /// What the lock protects.
        pub class: LockClass,
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.object, self.class)
    }
}

body! {
    /// With what every request begins (`wire-spec.md` section 5.3).
    pub struct Ask {
        /// The request's at-most-once identifier: sequential in its session, from 1.
        pub nonce: u64,
        /// Distance down to the floor: the lowest nonce still awaited is `nonce - back`.
        pub back: u16,
        /// Largest answer datagram, in bytes, that the sender believes its path carries.
        pub limit: u16,
    }
}

impl Ask {
    /// Of something that is no request by itself.
    pub const NONE: Self = Self { nonce: 0, back: 0, limit: 0 };

    /// The lowest nonce that the agent still waits for.
    #[must_use]
    pub const fn floor(&self) -> u64 {
        self.nonce.saturating_sub(self.back as u64)
    }
}

body! {
    /// A cache lock that the requester holds and has suspended for this mutation (section 11.4).
    pub struct Held {
        /// The object whose cache lock it is.
        pub object: ObjectId,
        /// The generation held.
        pub generation: Generation,
    }
}

body! {
    /// A version that an object must have, or the mutation fails and changes nothing.
    pub struct Expect {
        /// The object; it need not be affected.
        pub object: ObjectId,
        /// Its version; 0: it must not exist.
        pub version: u64,
    }
}

body! {
    /// With what every mutation ends: what the requester would like to hold, what it holds, under which guard it acts, what it expects.
    pub struct Terms<'a> {
        /// Which cache lock on the affected objects the requester would like.
        pub want: Want,
        /// Object of the advisory lock that guards the mutation; 0: no guard.
        pub guard_object: ObjectId,
        /// Generation of that lock: the mutation fails when it is not current (section 11.4).
        pub guard_generation: Generation,
        /// The requester's own cache locks, suspended until it knows the outcome.
        pub held: List<'a, Held>,
        /// Versions on which the mutation depends.
        pub expect: List<'a, Expect>,
    }
}

impl Terms<'_> {
    /// Asks for nothing, holds nothing, no guard, expects nothing.
    pub const NONE: Terms<'static> = Terms {
        want: Want::Nothing,
        guard_object: ObjectId(0),
        guard_generation: Generation(0),
        held: List::of(&[]),
        expect: List::of(&[]),
    };
}

impl Realm {
    /// The realm of the root directory, around all others.
    pub const TREE: Self = Self(1);
}
