//! The places of a control socket's connections, of which there are only so many.
//!
//! Decides: who gives its place up when all are taken and a further connection comes, which may be the operator's: the one that was used
//! longest ago, but none that is kept (it awaits an answer, or something would end with it). Used by the server's control socket, whose
//! operator gets a place also where all are kept, and by the host's agent, whose locks do not go for that.

use std::collections::BTreeMap;

/// What a connection is told that gives up its place; who closed it stands before.
pub const GAVE_WAY: &str = "closed this connection for another one: it was idle longest";

/// Who has a place.
#[derive(Debug)]
pub struct Places<K> {
    most: usize,
    /// How often a place was used: orders them by their last use.
    uses: u64,
    taken: BTreeMap<K, Place>,
}

#[derive(Debug)]
struct Place {
    used: u64,
    kept: bool,
}

impl<K: Ord + Copy> Places<K> {
    /// None of `most` is taken.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, uses: 0, taken: BTreeMap::new() }
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Whether all are taken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.taken.len() >= self.most
    }

    /// Gives a place to a new connection; the caller has looked whether there is one.
    pub fn enter(&mut self, who: K) {
        self.uses += 1;
        self.taken.insert(who, Place { used: self.uses, kept: false });
    }

    /// A connection has used its place, and must be `kept` until it uses it again or not; false: it has none any more.
    pub fn used(&mut self, who: K, kept: bool) -> bool {
        self.uses += 1;
        let used = self.uses;
        self.taken.get_mut(&who).map(|place| *place = Place { used, kept }).is_some()
    }

    /// A connection has ended, or gives its place up.
    pub fn leave(&mut self, who: K) {
        self.taken.remove(&who);
    }

    /// Who gives its place up, if somebody can.
    #[must_use]
    pub fn idle_longest(&self) -> Option<K> {
        self.oldest(false)
    }

    /// Who was kept for longest, where also those may have to go.
    #[must_use]
    pub fn kept_longest(&self) -> Option<K> {
        self.oldest(true)
    }

    fn oldest(&self, kept: bool) -> Option<K> {
        self.taken.iter().filter(|(_, place)| place.kept == kept).min_by_key(|(_, place)| place.used).map(|(who, _)| *who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_used_its_place_longest_ago_gives_it_up_and_nobody_who_is_kept() {
        let mut places = Places::new(3);
        for who in 1..=3 {
            places.enter(who);
        }
        assert!(places.is_full() && places.idle_longest() == Some(1));
        assert!(places.used(1, false) && places.used(2, true));
        assert_eq!(places.idle_longest(), Some(3));
        places.leave(3);
        assert!(!places.is_full() && !places.used(3, false));
        assert_eq!((places.idle_longest(), places.taken()), (Some(1), 2));
        places.used(1, true);
        assert_eq!((places.idle_longest(), places.kept_longest()), (None, Some(2)));
        places.used(2, false);
        assert_eq!(places.idle_longest(), Some(2));
    }
}
