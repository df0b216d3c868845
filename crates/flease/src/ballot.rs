//! Ballots: the number of an attempt, which also names a tenure.

/// A process of the group, by its place in the list of members.
pub type Member = u8;

/// The number of one attempt. No two attempts of any processes have the same, over restarts too: a process never uses a round twice,
/// and its boot nonce is new with each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Counts up; the larger round wins.
    pub round: u64,
    /// Who attempts.
    pub member: Member,
    /// The boot nonce of that process.
    pub nonce: u64,
}

impl Ballot {
    /// Below every ballot in use.
    pub const NONE: Self = Self { round: 0, member: 0, nonce: 0 };

    /// Whether both are of one process between two of its restarts.
    #[must_use]
    pub const fn same_process(self, other: Self) -> bool {
        self.member == other.member && self.nonce == other.nonce
    }
}

/// A set of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberSet(u16);

impl MemberSet {
    /// All at the first `places` of a list.
    #[must_use]
    pub const fn first(places: u8) -> Self {
        Self((1 << places) - 1)
    }

    /// One member alone.
    #[must_use]
    pub const fn one(member: Member) -> Self {
        Self(1 << member)
    }

    /// Adds a member.
    pub const fn insert(&mut self, member: Member) {
        self.0 |= 1 << member;
    }

    /// Whether it is among them.
    #[must_use]
    pub const fn contains(self, member: Member) -> bool {
        self.0 & 1 << member != 0
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    pub const fn count(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// In the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Member> {
        (0..16).filter(move |member| self.contains(*member))
    }
}
