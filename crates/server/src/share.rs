//! Shares: how much of a table one owner may have.
//!
//! Decides the one rule by which every table is shared: nobody has more than four times what is free then, so whoever comes next finds room
//! however greedy the others are, and one who is alone may have four fifths (dynamic thresholds, as in switches: Choudhury and Hahne, 1998).
//! Leaves to others: what is counted.

use crate::ids::Owner;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use cistern_link::bugs::{self, Bug};
use cistern_link::slab::Slab;
use cistern_wire::{Limit, Limited, Realm, Whose};
use core::ops::{Index, IndexMut};
use hashbrown::HashMap;

/// How many times what is free one owner may have.
const FREE_TIMES: usize = 4;

/// When who was refused something may find room, in milliseconds.
pub(crate) const RETRY_MS: u32 = 100;

/// So much of something is in use, which is all that may be: only what is given back makes room.
pub(crate) fn used_up(limit: Limit, whose: Whose, used: usize, bound: usize) -> Limited {
    Limited { limit, whose, realm: Realm(0), used: used as u64, bound: bound as u64, retry_ms: 0 }
}

/// How much of something somebody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// So much.
    pub now: usize,
    /// How much may be as things are; 0: that is not counted for it.
    pub most: usize,
}

/// A table that owners share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// What it holds at most.
    pub(crate) capacity: usize,
    /// What every owner may have as long as there is room at all.
    pub(crate) reserve: usize,
}

impl Shared {
    /// Whether an owner that has `own` of the `used` may have `more`: nothing more it may always have.
    #[inline]
    pub(crate) fn admits(self, used: usize, own: usize, more: usize) -> bool {
        let own = if bugs::is(Bug::B1) { 0 } else { own };
        let free = self.capacity.saturating_sub(used);
        more == 0 || more <= free && own.saturating_add(more) <= self.share(free, more)
    }

    /// What an owner may have when of `free` places `more` are taken.
    const fn share(self, free: usize, more: usize) -> usize {
        let share = free.saturating_sub(more).saturating_mul(FREE_TIMES);
        if share > self.reserve { share } else { self.reserve }
    }

    /// How much of what an owner has, and how much it may have as things are.
    pub(crate) fn used(self, used: usize, own: usize) -> Used {
        let free = self.capacity.saturating_sub(used);
        let share = self.share(free, 0).min(own.saturating_add(free));
        Used { now: own, most: share.max(own) }
    }

    /// Why [`Self::admits`] does not: the table is full, and others may leave it, or the owner has its share.
    pub(crate) fn limited(self, limit: Limit, used: usize, own: usize, more: usize) -> Limited {
        let free = self.capacity.saturating_sub(used);
        if more > free {
            return Limited { retry_ms: RETRY_MS, ..used_up(limit, Whose::Server, used, self.capacity) };
        }
        // What is free may have become less since; nothing is taken away for that.
        used_up(limit, Whose::Host, own, self.share(free, more).max(own))
    }

    /// As [`Self::admits`]; what the owner has is counted only if it matters: not before four fifths are used.
    #[inline]
    pub(crate) fn admits_by(self, used: usize, more: usize, own: impl FnOnce() -> usize) -> bool {
        // Who has all that is used has the most.
        self.admits(used, used, more) || self.admits(used, own(), more)
    }
}

/// An owner has so much less; one that has nothing is not listed.
pub(crate) fn take<T: Ord>(by_owner: &mut BTreeMap<T, usize>, owner: T, less: usize) {
    if let Entry::Occupied(mut has) = by_owner.entry(owner) {
        *has.get_mut() -= less;
        if *has.get() == 0 {
            has.remove();
        }
    }
}

/// What a part keeps of each owner that has sessions.
#[derive(Debug)]
pub(crate) struct Owners<T> {
    by_owner: HashMap<Owner, u32>,
    members: Slab<Member<T>>,
    /// How many of them have no sessions.
    absent: usize,
}

#[derive(Debug)]
struct Member<T> {
    owner: Owner,
    sessions: u32,
    kept: T,
}

impl<T> Default for Owners<T> {
    fn default() -> Self {
        Self { by_owner: HashMap::default(), members: Slab::default(), absent: 0 }
    }
}

impl<T> Owners<T> {
    /// One more session of an owner, of which `new` is kept if it is the first.
    pub(crate) fn join(&mut self, owner: Owner, new: impl FnOnce() -> T) -> u32 {
        let members = &mut self.members;
        let absent = &mut self.absent;
        let at = *self.by_owner.entry(owner).or_insert_with(|| {
            *absent += 1;
            members.insert(Member { owner, sessions: 0, kept: new() })
        });
        self.keep(at);
        at
    }

    /// One more of the sessions, or of what else keeps an owner.
    pub(crate) fn keep(&mut self, at: u32) {
        let member = &mut self.members[at];
        self.absent -= usize::from(member.sessions == 0);
        member.sessions += 1;
    }

    /// One session less; whether it was the last. What is kept stays until [`Self::remove`].
    pub(crate) fn leave(&mut self, at: u32) -> bool {
        let member = &mut self.members[at];
        member.sessions -= 1;
        self.absent += usize::from(member.sessions == 0);
        member.sessions == 0
    }

    /// Forgets an owner, if it has no sessions.
    pub(crate) fn remove(&mut self, at: u32) {
        if let Some(member) = self.members.get(at).filter(|member| member.sessions == 0) {
            self.by_owner.remove(&member.owner);
            self.members.remove(at);
            self.absent -= 1;
        }
    }

    /// Where an owner is kept, and how many sessions it has.
    pub(crate) fn find(&self, owner: Owner) -> Option<(u32, usize)> {
        self.by_owner.get(&owner).map(|at| (*at, self.members[*at].sessions as usize))
    }

    /// How many owners have sessions.
    pub(crate) fn with_sessions(&self) -> usize {
        self.members.len() - self.absent
    }

    /// How many owners there are, with those that have no sessions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.members.get(at).map(|member| &member.kept)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.members.get_mut(at).map(|member| &mut member.kept)
    }
}

impl<T> Index<u32> for Owners<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        &self.members[at].kept
    }
}

impl<T> IndexMut<u32> for Owners<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.members[at].kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What greedy owners come to, each of which takes one in its turn as long as it is let.
    fn filled(shared: Shared, owners: usize) -> alloc::vec::Vec<usize> {
        let mut have = alloc::vec![0; owners];
        loop {
            let before = have.clone();
            for at in 0..owners {
                let used = have.iter().sum();
                have[at] += usize::from(shared.admits(used, have[at], 1));
            }
            if have == before {
                return have;
            }
        }
    }

    #[test]
    fn one_has_four_fifths_at_most_and_ten_leave_room_for_an_eleventh() {
        let shared = Shared { capacity: 10_000, reserve: 16 };
        assert_eq!(filled(shared, 1), [8_000]);
        assert!((8_880..=8_890).contains(&filled(shared, 2).iter().sum::<usize>()));
        let ten = filled(shared, 10);
        assert!(ten.iter().all(|have| (970..=980).contains(have)), "{ten:?}");
    }

    #[test]
    fn who_has_less_than_the_reserve_gets_whatever_there_is() {
        let shared = Shared { capacity: 100, reserve: 16 };
        assert!(shared.admits(99, 15, 1) && !shared.admits(99, 16, 1) && !shared.admits(100, 0, 1));
    }

    #[test]
    fn refusal_says_whose_bound_stands_in_the_way() {
        let shared = Shared { capacity: 100, reserve: 4 };
        let told = |used, own, more| {
            let limited = shared.limited(Limit::Locks, used, own, more);
            (limited.whose, limited.used, limited.bound, limited.retry_ms)
        };
        assert_eq!(filled(shared, 2), [44, 44]);
        assert_eq!(told(88, 44, 1), (Whose::Host, 44, 44, 0));
        assert_eq!(told(90, 80, 1), (Whose::Host, 80, 80, 0), "its share was larger once");
        assert_eq!(told(100, 2, 1), (Whose::Server, 100, 100, RETRY_MS));
        assert_eq!(told(90, 2, 11), (Whose::Server, 90, 100, RETRY_MS));
    }

    #[test]
    fn owner_is_forgotten_when_it_has_no_sessions() {
        let mut owners = Owners::<u8>::default();
        let (one, two) = (Owner::V4([1; 4]), Owner::V4([2; 4]));
        let at = owners.join(one, || 7);
        assert_eq!((owners.join(one, || 8), owners[at], owners.join(two, || 9) == at), (at, 7, false));
        assert!(!owners.leave(at));
        owners.remove(at);
        assert!(owners.leave(at));
        assert_eq!(owners.join(one, || 8), at, "what is kept stays");
        owners.leave(at);
        assert_eq!((owners.len(), owners.with_sessions()), (2, 1));
        owners.remove(at);
        assert_eq!((owners.len(), owners.with_sessions(), owners.get(at)), (1, 1, None));
    }

    proptest! {
        #[test]
        fn counting_late_is_counting(capacity in 1usize..2_000, used in 0usize..2_000, part in 0usize..2_000, more in 0usize..9) {
            let (shared, own) = (Shared { capacity, reserve: 16 }, part.min(used));
            prop_assert_eq!(shared.admits_by(used, more, || own), shared.admits(used, own, more));
        }

        #[test]
        fn nobody_takes_all_and_the_table_never_overflows(capacity in 10usize..5_000, owners in 1usize..8, reserve in 0usize..20) {
            let shared = Shared { capacity, reserve };
            let have = filled(shared, owners);
            let used: usize = have.iter().sum();
            prop_assert!(used <= capacity);
            if reserve * owners < capacity / 50 {
                prop_assert!(shared.admits(used, 0, 1), "{have:?}");
            }
        }
    }
}
