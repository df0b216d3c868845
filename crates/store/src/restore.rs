//! What makes a copy of a store a store of its own: the writes that whoever restores it makes before a server opens it.
//!
//! Decides: from which numbers a restored store goes on. Place in the walk: before it, on a stopped store (`cisternd restore`); the
//! server's start does the rest (`starting`): it ends all sessions, raises the epoch, and waits without reclaim.
//! Implements `wire-spec.md` section 11.7.
//! Invariant: every token, object id and incarnation that follows is above all that any life of this copy may have given out. A copy
//! notes the epoch of each life that is made of it, so that the next one gets another. What is made of a copy of the copy it cannot
//! know; there the wall clock tells lives apart: a life begins at a number made of its second, and a server gives out fewer than 2^24
//! numbers a second on the whole, where each start counts as two minutes (it takes 2^31 tokens ahead).
//! Leaves to others: copying, checking, that the clock is right.

use crate::check::Report;
use bytes::Bytes;
use cistern_server::principals::Principals;
use cistern_server::store::counter_to_bytes;
use cistern_server::store::{Counter, Key, PrincipalRecord};
use cistern_server::store::{FIRST_EPOCH, ID_BITS, RESTORED};
use std::fmt;

/// Tokens and ids of one second.
const BITS_OF_A_SECOND: u32 = 24;

/// Why a copy cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// No epoch is left above those used.
    EpochsUsedUp,
    /// The wall clock is before 1970 or beyond what numbers can tell.
    Clock,
    /// The copy has no counters: it is of a server that was never started.
    Empty,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EpochsUsedUp => "no epoch is left above those used: numbers could repeat; make a new store and import the files",
            Self::Clock => "the wall clock of this machine cannot be right: set it, since what a restored store gives out begins by it",
            Self::Empty => "the copy is empty: no server was ever started on it; create a store with `cisternd init` instead",
        })
    }
}

impl std::error::Error for RestoreError {}

/// A copy that may be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoration {
    /// The epoch of the store from now on.
    pub epoch: u8,
    /// What has to be written into the new store before a server opens it, all at once.
    pub writes: Vec<(Key, Option<Bytes>)>,
    /// What has to be written into the copy before that: that there is a life of that epoch.
    pub note: (Key, Option<Bytes>),
}

/// What makes the copy of which `report` tells a store of its own, at `unix_seconds` by the wall clock. Its epoch will be above
/// `above`, too: the largest that anybody has seen.
///
/// # Errors
/// [`RestoreError`]: there are no numbers to go on from.
pub fn restoration(report: &Report, unix_seconds: u64, above: u8) -> Result<Restoration, RestoreError> {
    let counter = |counter| report.counter(counter).unwrap_or(0);
    if counter(Counter::Incarnation) == 0 {
        return Err(RestoreError::Empty);
    }
    if unix_seconds == 0 || unix_seconds >> (ID_BITS - BITS_OF_A_SECOND) != 0 {
        return Err(RestoreError::Clock);
    }
    // A copy that was marked and never started has its next epoch still before it.
    let former = counter(Counter::Epoch).max(u64::from(FIRST_EPOCH)).max(u64::from(above));
    let epoch = u8::try_from(former).ok().and_then(|former| former.checked_add(1)).ok_or(RestoreError::EpochsUsedUp)?;
    let first = first_of(epoch, unix_seconds);
    let numbers = [
        (Counter::NextObject, counter(Counter::NextObject).max(first)),
        (Counter::Tokens, counter(Counter::Tokens).max(first)),
        // The server adds one to each of these at its start.
        (Counter::Incarnation, counter(Counter::Incarnation).max(unix_seconds)),
        (Counter::Epoch, former),
        (Counter::Restored, RESTORED),
    ];
    let writes = numbers.map(|(counter, value)| (Key::Counter(counter), Some(Bytes::from(counter_to_bytes(value)))));
    let note = (Key::Counter(Counter::Epoch), Some(Bytes::from(counter_to_bytes(u64::from(epoch)))));
    Ok(Restoration { epoch, writes: writes.into(), note })
}

/// What has to be written besides so that `keys` are revoked in the copy with these records, whatever it knows of them: they were revoked after it
/// was made.
///
/// # Errors
/// The copy cannot be read.
pub fn revocation(
    records: impl IntoIterator<Item = Result<(Vec<u8>, Vec<u8>), String>>,
    keys: impl IntoIterator<Item = [u8; 32]>,
) -> Result<Vec<(Key, Option<Bytes>)>, String> {
    let mut known = Vec::new();
    for record in records {
        let (key, value) = record?;
        if let Ok(key @ Key::Principal(who)) = Key::from_bytes(&key) {
            let record = PrincipalRecord::from_bytes(&value).map_err(|_| format!("{key:?} cannot be read"))?;
            known.push((who, record));
        }
    }
    let mut principals = Principals::default();
    principals.load(known, |_| None);
    let mut revoked = |key| principals.revoke_key(key).map(|(who, record)| (Key::Principal(who), Some(Bytes::from(record.to_bytes()))));
    Ok(keys.into_iter().filter_map(&mut revoked).collect())
}

/// The first token and id of a life that begins in this second.
const fn first_of(epoch: u8, unix_seconds: u64) -> u64 {
    (epoch as u64) << ID_BITS | unix_seconds << BITS_OF_A_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Check;
    use cistern_server::principals::{PrincipalId, Rights};
    use cistern_server::store::EarlierKeys;
    use cistern_wire::Realm;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    const NOW: u64 = 1_800_000_000;

    /// Counters of a store, as a report has them.
    fn report(counters: &[(Counter, u64)]) -> Report {
        let records: BTreeMap<_, _> = counters.iter().map(|(c, value)| (Key::Counter(*c).to_bytes(), counter_to_bytes(*value))).collect();
        let scan = || Ok::<_, Infallible>(records.iter().map(Ok));
        Check::default().run(scan, |_| {}).unwrap()
    }

    fn copy(epoch: u64) -> Report {
        let id = (epoch << 56) + 1_000;
        report(&[(Counter::NextObject, id), (Counter::Tokens, id), (Counter::Incarnation, 12), (Counter::Epoch, epoch)])
    }

    fn value(restoration: &Restoration, counter: Counter) -> u64 {
        let found = restoration.writes.iter().find(|write| write.0 == Key::Counter(counter)).unwrap();
        cistern_server::store::counter_from_bytes(found.1.as_ref().unwrap()).unwrap()
    }

    //= wire-spec.md#11-7-restart-and-recovery
    //= type=test
    //# A restore MUST end all sessions, raise the store epoch, and wait a grace without reclaim.
    #[test]
    fn copies_of_one_copy_give_no_number_twice_when_they_are_restored() {
        let (first, second) = (restoration(&copy(1), NOW, 0).unwrap(), restoration(&copy(1), NOW + 3_600, 0).unwrap());
        for counter in [Counter::Tokens, Counter::NextObject] {
            let spent = value(&first, counter) + 3_600 * 10_000_000;
            assert!(value(&second, counter) > spent, "{counter:?}: ten million a second in between");
            assert!(value(&first, counter) > value(&restoration(&copy(1), NOW - 1, 0).unwrap(), counter));
            assert_eq!(value(&first, counter) >> 56, 2, "{counter:?} is of the epoch that begins");
        }
        // The first life was started a thousand times.
        assert!(value(&second, Counter::Incarnation) > value(&first, Counter::Incarnation) + 1_000);
        assert_eq!((first.epoch, value(&first, Counter::Epoch), value(&first, Counter::Restored)), (2, 1, 1));
    }

    #[test]
    fn a_copy_that_is_restored_twice_gives_another_epoch_each_time() {
        let first = restoration(&copy(4), NOW, 0).unwrap();
        assert_eq!((first.epoch, first.note.0.clone()), (5, Key::Counter(Counter::Epoch)));
        let noted = cistern_server::store::counter_from_bytes(first.note.1.as_ref().unwrap()).unwrap();
        assert_eq!(restoration(&copy(noted), NOW, 0).unwrap().epoch, 6);
    }

    #[test]
    fn the_epoch_is_above_what_anybody_has_seen() {
        assert_eq!(restoration(&copy(3), NOW, 9).unwrap().epoch, 10);
        assert_eq!(restoration(&copy(9), NOW, 3).unwrap().epoch, 10);
        assert_eq!(restoration(&copy(254), NOW, 0).unwrap().epoch, 255);
        assert_eq!(restoration(&copy(255), NOW, 0), Err(RestoreError::EpochsUsedUp));
        assert_eq!(restoration(&copy(1), NOW, 255), Err(RestoreError::EpochsUsedUp));
    }

    #[test]
    fn keys_that_were_revoked_after_the_copy_was_made_are_so_in_it_whatever_it_knows_of_them() {
        let record = |name: &str, key: u8, former: Option<u8>| PrincipalRecord {
            name: name.as_bytes().into(),
            key: Some([key; 32]),
            rotated: former.map(|former| EarlierKeys { first: [former; 32], former: [former; 32], until_s: 0 }),
            operator: true,
            revoked: false,
            rights: vec![(Realm::TREE, Rights::ALL)],
        };
        let known = [record("first", 1, None), record("second", 2, Some(12)), record("third", 3, None)];
        let records = || {
            let principals = (1..).zip(&known).map(|(n, record)| Ok((Key::Principal(PrincipalId(n)).to_bytes(), record.to_bytes())));
            principals.chain([Ok((Key::Counter(Counter::Epoch).to_bytes(), counter_to_bytes(1)))])
        };
        let writes = revocation(records(), [[12; 32], [3; 32], [77; 32], [3; 32]]).unwrap();
        let revoked: Vec<_> = writes
            .iter()
            .map(|(key, value)| (key.clone(), PrincipalRecord::from_bytes(value.as_ref().unwrap()).unwrap()))
            .inspect(|(_, record)| assert!(record.revoked && !record.operator && record.rights.is_empty()))
            .map(|(key, record)| (key, record.key))
            .collect();
        let expected = [(2, [2; 32]), (3, [3; 32]), (4, [77; 32])].map(|(n, key)| (Key::Principal(PrincipalId(n)), Some(key)));
        assert_eq!(revoked, expected);
        assert!(revocation(records().chain([Err("gone".to_owned())]), [[1; 32]]).is_err());
    }

    #[test]
    fn numbers_never_go_back_and_a_clock_that_cannot_be_right_is_refused() {
        let late =
            report(&[(Counter::NextObject, u64::MAX), (Counter::Tokens, u64::MAX), (Counter::Incarnation, u64::MAX), (Counter::Epoch, 2)]);
        let restored = restoration(&late, NOW, 0).unwrap();
        assert_eq!((value(&restored, Counter::Tokens), value(&restored, Counter::Incarnation)), (u64::MAX, u64::MAX));
        for clock in [0, 1 << 32, u64::MAX] {
            assert_eq!(restoration(&copy(1), clock, 0), Err(RestoreError::Clock));
        }
        assert_eq!(restoration(&report(&[]), NOW, 0), Err(RestoreError::Empty));
    }
}
