//! Scenarios of turns, told by users: who waits for whom when a server is asked for more than it has time for.
//!
//! All that is compared comes in one instant, and in the order in which it is asked for; when each request was executed is the time of change
//! of its file.

use cistern_agent::api::{AttrChange, Command, Output, Target};
use cistern_sim::script::{Agent, Op, Script, Setting};
use cistern_wire::ObjectId;

/// More requests than there is time for.
const MANY: usize = 40;
/// Requests that are taken back.
const CANCELLED: usize = 12;
/// From one turn of a busy server to the next.
const TURN_NS: i64 = 11_000;

/// A server that has time for one request in a turn, and agents with files of their own.
fn slow<const N: usize>(names: [&'static str; N]) -> (Script, [Agent; N], [Vec<ObjectId>; N]) {
    let setting = Setting::default().files(["/a/0", "/b/0", "/c/0"]).server(|server| server.work_slice_us = 1);
    let (s, agents) = setting.agents(names);
    let mut at = agents.iter().zip(names);
    let files = std::array::from_fn(|_| {
        let (agent, dir) = at.next().expect("as many");
        (1..=MANY).map(|n| made(&agent.create(&format!("/{dir}/{n}"))).0).collect()
    });
    s.pass(100);
    (s, agents, files)
}

/// The file of a change, and when it was executed.
fn made(op: &Op) -> (ObjectId, i64) {
    let Output::Attr(attr) = op.done() else { panic!("no attributes") };
    (attr.object, attr.ctime_ns)
}

fn when(op: &Op) -> i64 {
    made(op).1
}

fn change(agent: &Agent, file: ObjectId) -> Op {
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    agent.does(Command::SetAttr { target: Target::Object(file), follow: true, change })
}

fn change_all(agent: &Agent, files: &[ObjectId]) -> Vec<Op> {
    files.iter().map(|file| change(agent, *file)).collect()
}

/// A changes many files, then B one: it comes in between, for A is not served beyond its turn as long as B waits. A server that executes what
/// comes as it comes (F3) makes B wait for all of A's.
#[test]
fn who_asks_little_does_not_wait_for_who_asks_much() {
    let (s, [a, b], [of_a, of_b]) = slow(["a", "b"]);
    let (all, one) = (change_all(&a, &of_a), change(&b, of_b[0]));
    let one = when(&one);
    let after = all.iter().filter(|other| when(other) > one).count();
    assert!(after >= MANY - 1, "{after} of A's are executed after B's");
    s.finish();
}

/// A has used up its turn by control messages alone, for it gives up waiting for locks, when B asks for more than there is time for. What A asks
/// then waits until that is paid, while C, who has asked for nothing before, is served. A server that charges nothing for control messages
/// (F4) serves A as it does C.
#[test]
fn control_messages_are_paid_for() {
    let (s, [a, b, c], [of_a, of_b, of_c]) = slow(["a", "b", "c"]);
    let names: Vec<String> = (1..=CANCELLED).map(|n| format!("/b/{n}")).collect();
    let held: Vec<_> = names.iter().map(|name| b.lock(name).exclusive().granted()).collect();
    let waits: Vec<_> = names.iter().map(|name| a.lock(name).exclusive()).collect();
    s.pass(100);
    waits.iter().for_each(Op::cancel);
    s.pass(5);
    let all = change_all(&b, &of_b[CANCELLED..]);
    let (late, new) = (change(&a, of_a[0]), change(&c, of_c[0]));
    let turns = (when(&late) - when(&new)) / TURN_NS;
    assert!(turns >= 4, "A is served {turns} turns after C");
    all.iter().for_each(|other| drop(other.done()));
    assert!(held.iter().all(|held| held.is_certain()));
    s.finish();
}
