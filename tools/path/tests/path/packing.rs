//! What is asked in one turn leaves in one datagram as far as it fits, and so do the answers; and nothing waits for company.

use bytes::Bytes;
use cistern_agent::api::{Command, Submitted, Target};
use cistern_path::{Kind, Pair, Rig};

fn stat(name: &'static str) -> Command {
    Command::Stat { target: Target::Path(Bytes::from_static(name.as_bytes())), follow: true }
}

/// A pair whose session is open.
fn open() -> Pair {
    let mut pair = Pair::new();
    pair.run(Command::Ping).unwrap();
    pair
}

#[test]
fn requests_of_one_turn_leave_the_agent_in_one_datagram_and_their_answers_the_server() {
    let mut pair = open();
    let (sent, answered) = (pair.sent, pair.answered);
    for name in ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j", "/k", "/l", "/m", "/n", "/o", "/p"] {
        assert!(matches!(pair.agent.submit(pair.now, stat(name)), Submitted::Later(_)), "nothing is cached");
    }
    pair.turn();
    assert_eq!((pair.sent - sent, pair.answered - answered), (1, 1), "datagrams of the agent, of the server");
}

#[test]
fn request_of_an_idle_agent_leaves_at_once_and_so_does_its_answer() {
    let mut pair = open();
    let (sent, answered, before) = (pair.sent, pair.answered, pair.now);
    assert!(matches!(pair.agent.submit(pair.now, stat("/a")), Submitted::Later(_)));
    pair.exchange();
    assert_eq!((pair.sent - sent, pair.answered - answered), (1, 1));
    assert_eq!(pair.now, before, "no time has passed");
}

#[test]
fn requests_of_sixteen_datagrams_of_one_turn_are_answered_in_few() {
    let mut rig = Rig::new();
    let datagrams = Kind::in_flight(&mut rig, 16, 16);
    let sent = rig.sent();
    rig.turn_all(&datagrams);
    // 16 answers of 101 bytes, and a datagram has 1,232.
    assert_eq!(rig.sent() - sent, 2);
}
