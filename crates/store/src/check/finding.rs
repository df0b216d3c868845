//! What a check of the store can find, where, and in which words.
//!
//! Decides: the kinds of faults and their names, how a place in the store is written for people and for scripts. Place in the walk:
//! none; it is what a [`Report`](super::Report) lists. Nothing of it is on the wire.
//! Invariant: every finding names one kind of fault and one place; the names are for scripts and stay.
//! Leaves to others: finding them (`walk`, `tree`), paths (`places`).

use cistern_server::store::Key;
use std::fmt;

/// How grave a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Space is taken by what nobody can reach; answers are right.
    Waste,
    /// A server on this store would give a wrong answer, or one day do something wrong; no contents are lost.
    Wrong,
    /// Names or contents are lost, or cannot be reached.
    Loss,
}

impl Severity {
    /// Its name, for scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waste => "waste",
            Self::Wrong => "wrong",
            Self::Loss => "loss",
        }
    }
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident $severity:ident $text:literal),* $(,)?) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($(#[$doc])* $name),* }

        impl Fault {
            /// Every kind of fault, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name, for scripts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// How grave it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity),* }
            }
        }
    };
}

faults! {
    /// A key does not come after the one before it: the engine's own order is broken.
    Order Loss "order",
    /// Bytes that are no key of this version.
    UnknownKey Loss "unknown_key",
    /// A record that does not parse to its last byte.
    BadRecord Loss "bad_record",
    /// There is no root directory, or what has its id is none.
    BadRoot Loss "bad_root",
    /// An attribute of an object has a value that no operation gives it.
    BadAttribute Wrong "bad_attribute",
    /// A name that no directory can have.
    BadName Wrong "bad_name",
    /// An entry in a directory that does not exist.
    OrphanEntry Waste "orphan_entry",
    /// An entry that names an object that does not exist.
    DanglingEntry Loss "dangling_entry",
    /// An entry says of its object that it is of another kind than it is.
    WrongKind Wrong "wrong_kind",
    /// An object that no directory names.
    LostObject Loss "lost_object",
    /// The number of links is not that of the names (of a directory: two, and one for each subdirectory).
    WrongLinks Wrong "wrong_links",
    /// A directory that has several names.
    NamedTwice Wrong "named_twice",
    /// A directory whose record says that it is elsewhere.
    WrongParent Wrong "wrong_parent",
    /// Directories that are below themselves.
    DirectoryLoop Loss "directory_loop",
    /// The size of a directory is not the number of its entries.
    WrongEntryCount Wrong "wrong_entry_count",
    /// A block of contents of an object that does not exist or has none.
    OrphanBlock Waste "orphan_block",
    /// A block beyond the size of its file.
    BlockBeyondEnd Waste "block_beyond_end",
    /// A block that is empty, or longer than a block or its file.
    BadBlock Loss "bad_block",
    /// The target of a symbolic link is missing, or not of the length that the link has.
    BadTarget Loss "bad_target",
    /// Extended attributes of an object that does not exist.
    OrphanXattrs Waste "orphan_xattrs",
    /// Extended attributes that are missing, or not as many as the object's record says, or beyond what an object can have.
    BadXattrs Loss "bad_xattrs",
    /// The record of an ephemeral file that does not exist, or is none of that session.
    OrphanEphemeral Waste "orphan_ephemeral",
    /// An ephemeral file without its record: nothing would remove it; or one that is a directory or has several names.
    BadEphemeral Wrong "bad_ephemeral",
    /// The record of a realm that nothing begins, or that is within none.
    BadRealm Wrong "bad_realm",
    /// An object that is in another realm than its directory, or in one that does not exist.
    WrongRealm Wrong "wrong_realm",
    /// The use of a realm is not that of what is in it, or that of a principal is not that of what it made.
    WrongUse Wrong "wrong_use",
    /// The record of a principal that has rights which no principal has, or a name or a key that another one has.
    BadPrincipal Wrong "bad_principal",
    /// The record of an invite that has a use which nobody has.
    BadInvite Wrong "bad_invite",
    /// A counter that is missing, or contradicts what it counts.
    WrongCounter Wrong "wrong_counter",
    /// The record of a session has a value that no session has.
    BadSession Wrong "bad_session",
    /// An outcome of a session that does not exist.
    OrphanOutcome Waste "orphan_outcome",
    /// An outcome outside of its session's window, in the place of another, or that no agent could read.
    BadOutcome Wrong "bad_outcome",
}

/// Where something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The store as a whole.
    Store,
    /// A record.
    Key(Key),
    /// Bytes in the place of a key.
    Raw(Box<[u8]>),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of which kind.
    pub fault: Fault,
    /// Where.
    pub place: Place,
    /// A path of the object or entry there, if the directories above it could be read; a file's is one that it has or had. Any bytes.
    pub path: Option<Vec<u8>>,
    /// What was found and what should be, for people.
    pub what: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("the store"),
            Self::Raw(bytes) => {
                f.write_str("key ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Key(Key::Counter(counter)) => write!(f, "counter {counter:?}"),
            Self::Key(Key::Session(session)) => write!(f, "session {session}"),
            Self::Key(Key::Outcome(session, slot)) => write!(f, "session {session}, outcome {slot}"),
            Self::Key(Key::Realm(realm)) => write!(f, "realm {realm}"),
            Self::Key(Key::Principal(principal)) => write!(f, "principal {}", principal.0),
            Self::Key(Key::Account(principal)) => write!(f, "account of principal {}", principal.0),
            Self::Key(Key::Invite(invite)) => write!(f, "invite {invite}"),
            Self::Key(Key::StartKey(start)) => write!(f, "key of start {start}"),
            Self::Key(Key::Object(object)) => write!(f, "object {object}"),
            Self::Key(Key::Entry(dir, name)) => write!(f, "directory {dir}, entry \"{}\"", name.escape_ascii()),
            Self::Key(Key::Block(object, n)) => write!(f, "object {object}, block {n}"),
            Self::Key(Key::Xattrs(object)) => write!(f, "object {object}, extended attributes"),
            Self::Key(Key::Lease(lease)) => write!(f, "object {lease}, named lease"),
            Self::Key(Key::Ephemeral(maker, object)) => write!(f, "object {object}, ephemeral, made under the handle {maker}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.fault.name())?;
        if let Some(path) = &self.path {
            write!(f, "{} ", path.escape_ascii())?;
        }
        write!(f, "({}): {}", self.place, self.what)
    }
}
