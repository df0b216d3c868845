//! Result codes of operations.
//!
//! Decides: their numbers and names. Those below 1,024 are Linux errno values with their POSIX meaning, the rest are the
//! protocol's own. Implements `wire-spec.md` section 9.
//! Invariant: an unknown code survives as a value, so that an older agent can pass on a newer server's word.
//! Leaves to others: when each is given.

use crate::field::{Field, Malformed, Reader, Writer};
use crate::shape::{Shape, Shown};
use core::fmt;

/// The result of an operation; 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $errno:literal $text:literal),* $(,)?) => {
        impl Status {
            $( $(#[$doc])* pub const $name: Self = Self($code); )*

            /// Every code that this version knows, with its symbolic name.
            pub const WORDS: &'static [(u64, &'static str)] = &[$(($code, $errno)),*];

            /// Every code that this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The symbolic name, or "?" for a code of a newer version.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 { $($code => $errno,)* _ => "?" }
            }

            /// What it says to a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 { $($code => $text,)* _ => "a result code of a newer version" }
            }
        }
    };
}

statuses! {
    /// Success.
    OK = 0 "OK" "success",
    /// The caller may not do this.
    EPERM = 1 "EPERM" "operation not permitted",
    /// No such object or name.
    ENOENT = 2 "ENOENT" "no such file or directory",
    /// The store failed.
    EIO = 5 "EIO" "the store failed",
    /// Too many items, or more than fits.
    E2BIG = 7 "E2BIG" "too much for one request",
    /// An agent's word to its user: the lock that it tried is held by somebody else.
    EAGAIN = 11 "EAGAIN" "the lock is held by somebody else",
    /// The rights in the realm do not suffice (section 11.9).
    EACCES = 13 "EACCES" "permission denied",
    /// The object is in use: an advisory lock protects it (section 11.4).
    EBUSY = 16 "EBUSY" "the object is in use",
    /// The name exists.
    EEXIST = 17 "EEXIST" "file exists",
    /// A name would lead from one realm into another (section 11.9).
    EXDEV = 18 "EXDEV" "the two are in different realms",
    /// Not a directory.
    ENOTDIR = 20 "ENOTDIR" "not a directory",
    /// Is a directory.
    EISDIR = 21 "EISDIR" "is a directory",
    /// A field has a value that the operation does not take.
    EINVAL = 22 "EINVAL" "invalid argument",
    /// Larger than the largest contents.
    EFBIG = 27 "EFBIG" "file too large",
    /// A bound on stored objects or bytes is reached.
    ENOSPC = 28 "ENOSPC" "no space left",
    /// Too many links.
    EMLINK = 31 "EMLINK" "too many links",
    /// The name of an extended attribute is empty.
    ERANGE = 34 "ERANGE" "the name of an attribute is empty or too long",
    /// Waiting would never end: two upgrades of one lock wait for each other (section 11.4).
    EDEADLK = 35 "EDEADLK" "resource deadlock avoided",
    /// A name is too long.
    ENAMETOOLONG = 36 "ENAMETOOLONG" "file name too long",
    /// A directory is not empty.
    ENOTEMPTY = 39 "ENOTEMPTY" "directory not empty",
    /// An agent's word to its user: the path leads through too many symbolic links.
    ELOOP = 40 "ELOOP" "too many levels of symbolic links",
    /// There is no such extended attribute.
    ENODATA = 61 "ENODATA" "no such attribute",
    /// An agent's word to its user: the server's answer is none to what was asked.
    EPROTO = 71 "EPROTO" "the server's answer does not fit the request",
    /// The object named by id is gone.
    ESTALE = 116 "ESTALE" "stale object",
    /// A quota of a realm is reached (section 11.9).
    EDQUOT = 122 "EDQUOT" "a quota is used up",
    /// The request or its wait was cancelled, or its grant came back unseen.
    ECANCELED = 125 "ECANCELED" "operation cancelled",
    /// A bound of the server is reached; try again after the hint.
    BUSY = 1024 "BUSY" "the server has reached a limit",
    /// The server restarted and waits for former holders; try again after the hint.
    IN_GRACE = 1025 "IN_GRACE" "the server is in grace after a restart",
    /// The guard's generation is not current (section 11.4).
    STALE_GUARD = 1026 "STALE_GUARD" "the guarding lock is no longer held under that token",
    /// The object has another version than was expected, or than the pages read before (section 11.5).
    VERSION_CHANGED = 1027 "VERSION_CHANGED" "the object has another version than expected",
    /// The server does not do this operation.
    UNSUPPORTED = 1028 "UNSUPPORTED" "the server does not support the operation",
    /// The nonce was used before with another request.
    NONCE_REUSED = 1029 "NONCE_REUSED" "a nonce was used for two requests",
    /// The staged pieces of a write are not all there (section 11.5).
    NOT_STAGED = 1030 "NOT_STAGED" "the staged contents are incomplete or were dropped",
    /// The generation named is not the one held.
    NOT_HELD = 1031 "NOT_HELD" "the lock is not held under that generation",
}

impl Status {
    /// Whether the operation succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

impl Field<'_> for Status {
    const TYPE: &'static str = "Status";
    const SHAPE: &'static Shape = &Shape::Number { ty: "Status", bytes: 2, signed: false, shown: Shown::Words(Self::WORDS) };
    const LEN: usize = 2;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        u16::get(r).map(Self)
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

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
