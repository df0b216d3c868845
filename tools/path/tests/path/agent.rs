//! The agent's core: what it answers without a message.

use allocation_counter::measure;
use bytes::Bytes;
use cistern_agent::api::{Command, Output, Ownership, Submitted, Target, Wait};
use cistern_path::Pair;
use cistern_wire::{Mode, ObjectId};

const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };
const COUNTED: usize = 100;

fn path(of: &'static str) -> Target {
    Target::Path(Bytes::from_static(of.as_bytes()))
}

/// A pair with a file of which the agent has read all that it can keep.
fn pair() -> Pair {
    let mut pair = Pair::new();
    let put = Command::Put { path: Bytes::from_static(b"/file"), data: Bytes::from_static(b"contents"), owner: OWNER };
    pair.run(put).unwrap();
    for _ in 0..2 {
        pair.run(stat(path("/file"))).unwrap();
        pair.run(read()).unwrap();
    }
    pair
}

fn stat(target: Target) -> Command {
    Command::Stat { target, follow: true }
}

fn read() -> Command {
    Command::Read { target: path("/file"), offset: 0, length: None }
}

fn lock(target: Target) -> Command {
    Command::Lock { target, mode: Mode::Exclusive, wait: Wait::Try }
}

/// Carries a command out that needs no message; gives its output, and how often memory was allocated for it.
fn counted(pair: &mut Pair, command: Command) -> (Output, u64) {
    let mut submitted = None;
    let counted = measure(|| submitted = Some(pair.agent.submit(pair.now, command)));
    match submitted {
        Some(Submitted::Now(Ok(output))) => (output, counted.count_total),
        other => panic!("not answered at once: {other:?}"),
    }
}

fn object(pair: &mut Pair) -> ObjectId {
    match pair.run(stat(path("/file"))).unwrap() {
        Output::Attr(attr) => attr.object,
        other => panic!("not attributes: {other:?}"),
    }
}

#[test]
fn cached_attributes_are_read_without_a_message_and_without_allocation() {
    let mut pair = pair();
    let sent = pair.sent;
    let object = object(&mut pair);
    for _ in 0..COUNTED {
        assert_eq!(counted(&mut pair, stat(path("/file"))).1, 0, "by path");
        assert_eq!(counted(&mut pair, stat(Target::Object(object))).1, 0, "by object");
    }
    assert_eq!(pair.sent, sent);
}

#[test]
fn cached_contents_are_read_without_a_message_and_without_allocation() {
    let mut pair = pair();
    let sent = pair.sent;
    for _ in 0..COUNTED {
        let (output, allocations) = counted(&mut pair, read());
        assert!(matches!(output, Output::Data { .. }), "{output:?}");
        assert_eq!(allocations, 0);
    }
    assert_eq!(pair.sent, sent);
}

#[test]
fn lock_that_the_agent_holds_is_acquired_again_without_a_message_and_without_allocation() {
    let mut pair = pair();
    // Others that are held or idle, so that no table is empty.
    for n in 0..40 {
        let name = Bytes::from(format!("/other-{n}"));
        let create = Command::Create { path: name.clone(), exclusive: true, ephemeral: false, owner: OWNER };
        pair.run(create).unwrap();
        let Output::Locked(locked) = pair.run(lock(Target::Path(name))).unwrap() else { panic!("not locked") };
        if n % 2 == 0 {
            pair.run(Command::Unlock { holder: locked.holder }).unwrap();
        }
    }
    // So often that each part of the table of holders has been in use.
    for _ in 0..500 {
        let Output::Locked(locked) = pair.run(lock(path("/file"))).unwrap() else { panic!("not locked") };
        pair.run(Command::Unlock { holder: locked.holder }).unwrap();
    }
    let sent = pair.sent;
    for _ in 0..COUNTED {
        let (output, locking) = counted(&mut pair, lock(path("/file")));
        let Output::Locked(locked) = output else { panic!("not locked: {output:?}") };
        let (_, unlocking) = counted(&mut pair, Command::Unlock { holder: locked.holder });
        assert_eq!((locking, unlocking), (0, 0), "lock, unlock");
    }
    assert_eq!(pair.sent, sent);
}
