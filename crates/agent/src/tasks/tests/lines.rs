//! Operators' lines: answers are put together from their pages, and no line is given twice by itself.

use super::bench::{Bench, bytes};
use super::toy::decode;
use crate::api::{Command, OpError, Output};
use crate::call::Answer;
use alloc::string::String;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{AdminAnswer, Bytes16, Failed, Fate, Message, Reply, Status};

fn line(text: &str) -> Command {
    Command::Admin { line: bytes(text) }
}

fn page(total: u32, offset: u32, text: &str) -> Answer<'_> {
    Answer::Reply(Reply::AdminAnswer(AdminAnswer { answer: 7, total, offset, text: Bytes16(text.as_bytes()) }))
}

/// What is asked next: which answer, from where on, by which line.
fn asked(bench: &Bench) -> (u64, u32, String) {
    assert_eq!(bench.out.len(), 1);
    let Message::Admin(admin) = decode(&bench.out[0].message) else { panic!("an ADMIN") };
    (admin.answer, admin.offset, String::from_utf8(admin.line.0.to_vec()).unwrap())
}

#[test]
fn an_answer_is_put_together_from_its_pages() {
    let mut bench = Bench::new();
    let op = bench.start(line("{}"));
    assert_eq!(asked(&bench), (0, 0, "{}".into()));
    bench.answer_next(&page(8, 0, "abc"));
    assert_eq!(asked(&bench), (7, 3, "".into()));
    bench.answer_next(&page(8, 3, "defgh"));
    assert_eq!(bench.ended(op), Some(Ok(Output::Line(bytes("abcdefgh")))));
}

#[test]
fn pages_that_do_not_fit_together_are_no_answer() {
    for wrong in [page(8, 2, "c"), page(8, 3, ""), page(4, 3, "xyz"), page(u32::MAX, 3, "x")] {
        let mut bench = Bench::new();
        let op = bench.start(line("{}"));
        bench.answer_next(&page(8, 0, "abc"));
        bench.answer_next(&wrong);
        assert_eq!(bench.ended(op), Some(Err(OpError::Status(Status::EPROTO))), "{wrong:?}");
    }
}

#[test]
fn a_line_whose_answer_is_lost_is_not_given_again() {
    for first in [None, Some(page(8, 0, "abc"))] {
        for fate in [Fate::Unknown, Fate::Executed] {
            let mut bench = Bench::new();
            let op = bench.start(line("{}"));
            first.iter().for_each(|page| bench.answer_next(page));
            bench.answer_next(&Answer::SessionEnded(fate));
            assert_eq!(bench.ended(op), Some(Err(OpError::OutcomeUnknown)), "{first:?}");
            assert!(bench.out.is_empty());
        }
    }
    // The server has promised that it never was, nor will be.
    let mut bench = Bench::new();
    bench.start(line("{}"));
    bench.answer_next(&Answer::SessionEnded(Fate::NotExecuted));
    assert_eq!(asked(&bench), (0, 0, "{}".into()));
}

#[test]
fn a_busy_server_is_asked_again_and_a_line_that_fits_no_datagram_is_refused_here() {
    let mut bench = Bench::new();
    let op = bench.start(line("{}"));
    bench.answer_next(&Answer::Reply(Reply::Failed(Failed { status: Status::BUSY, retry_ms: 100 })));
    bench.wait(100);
    assert_eq!(asked(&bench), (0, 0, "{}".into()));
    bench.answer_next(&page(2, 0, "ok"));
    assert_eq!(bench.ended(op), Some(Ok(Output::Line(bytes("ok")))));
    bench.ops.set_datagram(DATAGRAM_MIN);
    let refused = bench.run(line(&"x".repeat(DATAGRAM_MIN - 65)));
    assert_eq!(refused, Err(OpError::Status(Status::E2BIG)));
    bench.start(line(&"x".repeat(DATAGRAM_MIN - 66)));
    assert_eq!(asked(&bench).2.len(), DATAGRAM_MIN - 66);
}
