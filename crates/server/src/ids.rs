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

/// Number of a task since the server started. Numbers grow in order of arrival: among the mutations in line it is a place, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

impl TaskId {
    /// Of what is answered at once.
    pub(crate) const NONE: Self = Self(0);
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
