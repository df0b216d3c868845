//! Names by which the parts speak of things that others keep.

use cistern_wire::SessionId;

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

/// Number of a mutation: chosen by the caller, larger for each one that arrives, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);
