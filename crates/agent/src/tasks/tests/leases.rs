//! Named leases: until when one lasts that was kept, and lists that are put together from their pages.

use super::bench::Bench;
use super::toy::decode;
use crate::api::{Command, OpError, Output, Target};
use crate::call::Answer;
use cistern_seal::LeaseSecret;
use cistern_wire::{Bytes16, Failed, Fate, LeaseKept, LeaseRow, LeaseRows, List, Message, ObjectId, Reply, Status};
use core::time::Duration;

const LEASE: ObjectId = ObjectId(42);

fn keep() -> Command {
    Command::KeepLease { lease: Target::Object(LEASE), secret: LeaseSecret::from_array([0x5C; 16]) }
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# Who keeps a lease MUST count its time from before the first transmission of the request that was answered.
#[test]
fn kept_lease_counts_from_the_command_however_late_its_answer_and_in_whichever_session() {
    let mut bench = Bench::new();
    let begun = bench.now;
    let op = bench.start(keep());
    let Message::KeepLease(asked) = decode(&bench.out[0].message) else { panic!("a KEEP_LEASE") };
    assert_eq!((asked.lease, asked.secret), (LEASE, [0x5C; 16]));
    bench.wait(300);
    bench.answer_next(&Answer::SessionEnded(Fate::Unknown));
    bench.wait(300);
    assert!(matches!(decode(&bench.out[0].message), Message::KeepLease(_)), "to keep it once more does no harm");
    bench.answer_next(&Answer::Reply(Reply::LeaseKept(LeaseKept { ttl_ms: 2_000 })));
    assert_eq!(bench.ended(op), Some(Ok(Output::LeaseKept { until: begun.plus(Duration::from_secs(2)) })));
}

#[test]
fn refusal_to_keep_a_lease_is_told() {
    for status in [Status::EACCES, Status::EINVAL, Status::ESTALE] {
        let mut bench = Bench::new();
        let op = bench.start(keep());
        bench.answer_next(&Answer::Reply(Reply::Failed(Failed { status, retry_ms: 0 })));
        assert_eq!(bench.ended(op), Some(Err(OpError::Status(status))));
    }
}

#[test]
fn list_of_leases_is_put_together_from_pages_that_grow() {
    let row = |object: u64| LeaseRow { object: ObjectId(object), lease: LEASE, ttl_ms: 500, left_ms: 499, files: 2, place: Bytes16(b"/l") };
    let list = || Command::ListLeases { lease: Some(Target::Object(LEASE)) };
    let page = |bench: &mut Bench, rows: &[LeaseRow<'_>], end| {
        bench.answer_next(&Answer::Reply(Reply::LeaseRows(LeaseRows { end, rows: List::of(rows) })));
    };
    let mut bench = Bench::new();
    let op = bench.start(list());
    page(&mut bench, &[row(7), row(42)], false);
    let Message::ListLeases(next) = decode(&bench.out[0].message) else { panic!("a LIST_LEASES") };
    assert_eq!((next.lease, next.after), (LEASE, ObjectId(42)));
    page(&mut bench, &[row(43)], true);
    let Some(Ok(Output::Leases(rows))) = bench.ended(op) else { panic!("no rows") };
    assert_eq!(rows.iter().map(|row| row.object.0).collect::<alloc::vec::Vec<_>>(), [7, 42, 43]);
    for wrong in [&[row(42)][..], &[row(8)], &[]] {
        let mut bench = Bench::new();
        let op = bench.start(list());
        page(&mut bench, &[row(42)], false);
        page(&mut bench, wrong, false);
        assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::EPROTO))), "pages come to an end");
    }
}
