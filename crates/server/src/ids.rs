//! Names by which the parts speak of things that others keep.

use cistern_wire::{Attr, ObjectId, Realm, SessionId};
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// A session in the table; finds nothing once that session is gone: it names a place and an id, so that one kept in a timer or a queue never
/// finds the session that came after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey {
    pub(crate) place: u32,
    pub(crate) id: SessionId,
}

impl SessionKey {
    /// Of no session: the server's own operations.
    pub(crate) const SERVER: Self = Self { place: u32::MAX, id: SessionId(0) };

    /// The session's id.
    pub(crate) const fn id(self) -> SessionId {
        self.id
    }

    #[cfg(test)]
    pub(crate) const fn for_test(n: u32) -> Self {
        Self { place: n, id: SessionId(n as u64) }
    }
}

/// With what a file goes that is not to stay for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// A session.
    Session(SessionId),
    /// A named lease.
    Lease(ObjectId),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Lease(lease) => write!(f, "named lease {lease}"),
        }
    }
}

/// Number of a task since the server started. Numbers grow in order of arrival: among the mutations in line it is a place, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

impl TaskId {
    /// Of what is answered at once.
    pub(crate) const NONE: Self = Self(0);
    /// Above all.
    pub(crate) const MAX: Self = Self(u64::MAX);
}

/// An object and its realm, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) object: ObjectId,
    pub(crate) realm: Realm,
}

impl From<&Attr> for Located {
    fn from(attr: &Attr) -> Self {
        Self { object: attr.object, realm: attr.realm }
    }
}

/// A session in the lock table, from [`crate::locks::LockTable::open`] until its last lock was taken away after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockSlot(pub(crate) u32);

impl LockSlot {
    /// Of a session that the lock table does not know: it holds nothing and is granted nothing.
    pub(crate) const NONE: Self = Self(u32::MAX);
    /// Of the server's own mutations: there from the start, for ever.
    pub(crate) const SERVER: Self = Self(0);
}

/// Who acts: whose key it is. Never used again after its key was withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(pub u32);

impl PrincipalId {
    /// Everybody who needs no key, where the server asks for none; and the server itself. It may do everything.
    pub const ANYBODY: Self = Self(0);
}

/// An invite: the number in its line, which names it when a host joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InviteId(pub u64);

impl fmt::Display for InviteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Who wants to join, by which invite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner {
    pub(crate) invite: InviteId,
    pub(crate) key: [u8; 32],
}

/// What a principal may do in one realm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// To look, watch, and keep what was seen in a cache.
    pub const READ: Self = Self(1);
    /// To change.
    pub const WRITE: Self = Self(2);
    /// To take advisory locks.
    pub const LOCK: Self = Self(4);
    /// To begin realms, and to move, replace and remove the directory of the realm itself.
    pub const OWN: Self = Self(8);
    /// To walk through directories to where it may do something; follows from rights in a realm within.
    pub const PASS: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);
    /// Their letters, as people write them.
    const LETTERS: [(char, Self); 4] = [('r', Self::READ), ('w', Self::WRITE), ('l', Self::LOCK), ('o', Self::OWN)];

    /// Whether these contain all of `need`.
    #[inline]
    #[must_use]
    pub const fn has(self, need: Self) -> bool {
        self.0 & need.0 == need.0
    }

    /// Whether these are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// These but not those.
    #[must_use]
    pub const fn without(self, less: Self) -> Self {
        Self(self.0 & !less.0)
    }

    /// As records have them.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Those that a record has; `None`: there are no such ones.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Those of letters out of `rwlo`, each once at most; `None`: something else, or nothing.
    #[must_use]
    pub fn from_letters(letters: &str) -> Option<Self> {
        let mut all = Self::NONE;
        for letter in letters.chars() {
            let (_, right) = Self::LETTERS.into_iter().find(|(known, _)| *known == letter)?;
            if all.has(right) {
                return None;
            }
            all = all.with(right);
        }
        Some(all).filter(|all| !all.is_empty())
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::LETTERS.iter().filter(|(_, right)| self.has(*right)).try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

/// Whose a session is where something is shared: whose key it was opened with, wherever from; in clear who has an IPv4 address, or an IPv6
/// /64, which is what one host is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// The server itself, which shares with nobody.
    Server,
    /// Who has the key of a principal.
    Key(PrincipalId),
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Owner {
    /// Who has the address from which a session is opened in clear, or asked for before a key is known.
    pub(crate) fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.octets()),
            IpAddr::V6(ip) => Self::V6(ip.octets().first_chunk().copied().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Key(_) => "key",
            Self::V4(_) | Self::V6(_) => "host",
        })
    }
}

/// An owner's flow in the scheduler, as long as it has sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(pub(crate) u32);

impl FlowId {
    /// Of a session that is not open: nothing of it is executed.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_an_address_or_a_64() {
        let of = |address: &str| Owner::of(SocketAddr::new(address.parse().unwrap(), 1));
        assert_eq!(of("10.1.2.3"), of("::ffff:10.1.2.3"));
        assert_ne!(of("127.0.0.1"), of("127.0.0.2"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    }
}
