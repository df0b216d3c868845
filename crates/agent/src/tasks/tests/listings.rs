//! Listings of a server that breaks the rules: names that no directory can have, and pages without end.

use super::bench::{Bench, list};
use super::toy::Node;
use crate::api::{OpError, OpId, Output};
use crate::call::Answer;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_wire::{Attr, Bytes8, CacheGrant, Entry, List, Listing, ObjectId, ObjectKind, Reply, Status};

/// A directory `/d` that is being listed, and its attributes.
fn listing() -> (Bench, OpId, Attr) {
    let mut bench = Bench::new();
    let d = bench.toy.space.plant(1, "d", Node::Dir(BTreeMap::new()));
    let dir = bench.toy.space.objects[&d].attr;
    let op = bench.start(list("/d"));
    let walked = bench.execute();
    bench.deliver(&walked);
    (bench, op, dir)
}

fn answer(bench: &mut Bench, dir: Attr, names: &[&[u8]], end: bool) {
    let entry = |name| Entry { name: Bytes8(name), object: ObjectId(9), kind: ObjectKind::File, detail: None };
    let entries: Vec<_> = names.iter().copied().map(entry).collect();
    let page = Listing { dir, grant: CacheGrant::NONE, end, entries: List::of(&entries) };
    bench.answer_next(&Answer::Reply(Reply::Listing(page)));
}

fn failed(status: Status) -> Option<Result<Output, OpError>> {
    Some(Err(OpError::Status(status)))
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST refuse a LISTING with a name that is not one component (section 6.2), or not above the name before it.
#[test]
fn names_that_no_directory_can_have_are_refused() {
    let wrong: [&[&[u8]]; 9] = [&[b"."], &[b".."], &[b"../x"], &[b"/etc/x"], &[b"a/b"], &[b"a\0"], &[b""], &[b"a", b"a"], &[b"b", b"a"]];
    for names in wrong {
        let (mut bench, op, dir) = listing();
        answer(&mut bench, dir, names, true);
        assert_eq!(bench.ended(op), failed(Status::EPROTO), "{names:?}");
    }
    let (mut bench, op, dir) = listing();
    answer(&mut bench, dir, &[b"..a", b"a\\b", b"~"], true);
    assert!(matches!(bench.ended(op), Some(Ok(Output::Listing { entries, .. })) if entries.len() == 3));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The agent MUST bound the names that it takes of one directory.
#[test]
fn a_listing_without_end_ends() {
    let (mut bench, op, dir) = listing();
    for page in 0..40_u32 {
        let names: Vec<String> = (0..60_000).map(|n| format!("{page:02}{n:05}")).collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        answer(&mut bench, dir, &names, false);
        if let Some(ended) = bench.ended(op) {
            assert_eq!(Some(ended), failed(Status::E2BIG));
            return;
        }
    }
    panic!("more than two million names were taken");
}
