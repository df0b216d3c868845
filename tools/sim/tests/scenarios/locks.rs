//! Scenarios of the lock table: who waits for whom, and that everybody's turn comes.

use cistern_agent::api::{Command, OpError};
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// Two agents have the lock shared and both want it exclusive: each waits for the other to let go, for ever. The second is told
/// EDEADLK, its agent gives the shared lock up and waits from the end of the queue; both get their turn.
#[test]
fn two_who_upgrade_do_not_wait_for_each_other() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.lock("/jobs/nightly").shared().granted().unlock();
    b.lock("/jobs/nightly").shared().granted().unlock();
    s.pass(50);
    let (for_a, for_b) = (a.lock("/jobs/nightly").exclusive(), b.lock("/jobs/nightly").exclusive());
    let of_a = for_a.granted();
    for_b.still_waits();
    assert!(s.refusals(to(&b)).contains(&Status::EDEADLK), "{:?}", s.refusals(to(&b)));
    of_a.unlock();
    assert!(for_b.granted().token() > of_a.token());
    s.finish();
}

/// A writer waits among readers. Readers that are let in past it, since shared goes with shared, keep it out for ever (M23; note 1 of
/// Gray and Cheriton): C queues behind B, and so does a second user at A, although A's agent could let it in by itself (section 11.4).
#[test]
fn readers_queue_behind_a_writer_that_waits() {
    let (s, [a, b, c]) = Setting::default().files(["/etc/rules"]).agents(["a", "b", "c"]);
    let reading = a.lock("/etc/rules").shared().granted();
    let writer = b.lock("/etc/rules").exclusive();
    s.pass(50);
    let (reader, local_reader) = (c.lock("/etc/rules").shared(), a.lock("/etc/rules").shared());
    s.pass(500);
    reader.still_waits();
    local_reader.still_waits();
    reading.unlock();
    let writing = writer.granted();
    reader.still_waits();
    local_reader.still_waits();
    writing.unlock();
    let (reader, local_reader) = (reader.granted(), local_reader.granted());
    assert!(reader.is_certain() && local_reader.is_certain(), "readers go together");
    assert!(reader.token() > writing.token() && local_reader.token() > writing.token());
    s.finish();
}

/// One agent renames x to y, another one y to x, and both have cached everything: fenced one object after the other, each would hold
/// what the other needs. Both requests take one place in the queues of all objects at once.
#[test]
fn renames_that_cross_do_not_deadlock() {
    let (s, [a, b]) = Setting::default().files(["/d/x", "/d/y"]).agents(["a", "b"]);
    for agent in [&a, &b] {
        agent.stat("/d/x").done();
        agent.stat("/d/y").done();
    }
    let (there, back) = (a.rename("/d/x", "/d/y"), b.rename("/d/y", "/d/x"));
    let ends = [there.ends(), back.ends()];
    assert!(s.now() < s.delivery_timeout(), "nobody waited for anybody's failure");
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    let left = [a.stat("/d/x"), a.stat("/d/y")].map(|stat| stat.ends().is_ok());
    assert_eq!(left.into_iter().filter(|there| *there).count(), 1);
    s.finish();
}

/// Somebody unlinks the file whose lock stands for "the nightly job", or moves it away, and makes it anew: two holders of one name. It is
/// refused as long as the lock is held (section 11.4), and replacing or exchanging it is, too. Its holder's own agent may do all of that.
#[test]
fn locked_file_stays_at_its_path_under_its_holder() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    b.unlink("/jobs/nightly").refused(Status::EBUSY);
    b.rename("/jobs/other", "/jobs/nightly").refused(Status::EBUSY);
    b.rename("/jobs/nightly", "/jobs/away").refused(Status::EBUSY);
    b.exchange("/jobs/nightly", "/jobs/other").refused(Status::EBUSY);
    b.exchange("/jobs/other", "/jobs/nightly").refused(Status::EBUSY);
    // The lock goes with the file when a directory above is moved.
    b.rename("/jobs", "/former").done();
    assert!(of_a.is_certain());
    a.rename("/former/nightly", "/former/away").done();
    of_a.unlock();
    s.finish();
}

/// A's first user gives the lock back and its second one is granted it by A itself: A holds it all the time, and the server cannot tell
/// its users apart. What the first one still writes under its token would be seen beside the second one's work.
#[test]
fn user_who_gave_the_lock_back_writes_nothing_under_it_although_its_agent_holds_it() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let first = a.lock("/jobs/nightly").shared().granted();
    let second = a.lock("/jobs/nightly").shared().granted();
    first.unlock();
    a.put_under(&first, "/jobs/nightly", "late").refused(Status::STALE_GUARD);
    a.put_under(&second, "/jobs/nightly", "in time").done();
    second.unlock();
    s.finish();
}

/// B removes by force what A holds a lock on and C waits for. C would wait for what nobody can give it, and A would go on with a lock on
/// what no path leads to: both are told.
#[test]
fn locked_file_that_is_removed_by_force_is_told_to_its_holder_and_to_who_waits() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_c = c.lock("/jobs/nightly").exclusive();
    s.pass(50);
    of_c.still_waits();
    b.does(Command::Unlink { path: "/jobs/nightly".into(), force: true }).done();
    of_c.refused(Status::ESTALE);
    s.until_so("A's user hears", || of_a.is_lost());
    a.put_under(&of_a, "/jobs/nightly", "lost").refused(Status::STALE_GUARD);
    s.finish();
}

/// B takes its request back in the moment in which it is granted. Taken for withdrawn by B and for granted by the server, the lock
/// would be held by nobody for ever.
#[test]
fn wait_that_is_cancelled_as_it_is_granted_leaves_the_lock_free() {
    for ms_after_the_unlock in [0, 1, 2, 3] {
        let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        let for_b = b.lock("/jobs/nightly").exclusive();
        s.pass(50);
        let for_c = c.lock("/jobs/nightly").exclusive();
        s.pass(50);
        of_a.unlock();
        s.pass(ms_after_the_unlock);
        for_b.cancel();
        if for_b.ends().is_ok() {
            for_b.granted().unlock();
        }
        let before = s.now();
        for_c.granted();
        assert!(s.now() < before + 100);
        s.finish();
    }
}

/// P1 at A dies with a write on its way, and A passes the lock on to P2 at the same machine. Under one token for the agent P1's write would
/// pass the fence: every local grant has a token of its own, larger than all before, and across agents, too.
#[test]
fn every_holder_has_a_larger_token_than_the_one_before() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).server(|server| server.token_run = 2).agents(["a", "b"]);
    let mut last = 0;
    for holder in [&a, &a, &a, &a, &b, &a, &b, &b] {
        let held = holder.lock("/jobs/nightly").exclusive().granted();
        assert!(held.token() > last, "{} after {last}", held.token());
        last = held.token();
        held.unlock();
    }
    s.finish();
}

/// B gave up waiting, and its request was withdrawn. Left in the queue (M47), it would be granted a lock that nobody there wants, before C.
#[test]
fn request_that_was_withdrawn_is_not_in_the_queue() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let for_b = b.lock("/jobs/nightly").within(200).exclusive();
    s.pass(50);
    let for_c = c.lock("/jobs/nightly").exclusive();
    assert_eq!(for_b.fails(), OpError::TimedOut);
    s.pass(50);
    assert_eq!(s.server.status().waiting, 1);
    of_a.unlock();
    for_c.granted();
    assert_eq!(s.sent(Kind::Grant, to(&b)), 0);
    s.finish();
}

/// Whoever only tries is told at once that the lock is taken, also where its holder is long gone and T runs: a try that waited would hold up
/// everything that it was meant to hold up not at all.
#[test]
fn try_is_answered_at_once_whatever_became_of_the_holder() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    a.crash();
    let before = s.now();
    b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    assert!(s.now() < before + 50);
    assert!(b.lock("/jobs/nightly").exclusive().granted().token() > of_a.token());
    s.finish();
}

/// A's run of tokens is used up, and its request for more is lost, then answered twice. A token shown twice, or one beyond the run, could
/// be another holder's (section 11.4).
#[test]
fn tokens_go_on_when_the_request_for_more_is_lost() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).server(|server| server.token_run = 2).agents(["a", "b"]);
    let mut last = 0;
    let mut next = |held: cistern_sim::script::Held| {
        assert!(held.token() > last);
        last = held.token();
        held.unlock();
    };
    next(a.lock("/jobs/nightly").exclusive().granted());
    s.drop_next(Kind::Lock, from(&a));
    s.duplicate_next(Kind::Lock, from(&a), 5);
    (0..5).for_each(|_| next(a.lock("/jobs/nightly").exclusive().granted()));
    next(b.lock("/jobs/nightly").exclusive().granted());
    s.finish_with_drops(["server: duplicate_packet"]);
}

/// B's machine stands still for longer than T while B waits, and wakes up. Its place in the queue is gone with its session, its user's wait is
/// not: the agent enters it anew, and the user hears of nothing but its lock.
#[test]
fn wait_of_an_agent_that_stood_still_goes_on() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let for_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Queued, to(&b));
    b.pause();
    s.pass(2 * s.wait());
    let for_c = c.lock("/jobs/nightly").exclusive();
    s.pass(50);
    b.resume();
    s.pass(500);
    for_b.still_waits();
    of_a.unlock();
    let of_c = for_c.granted();
    for_b.still_waits();
    of_c.unlock();
    assert!(for_b.granted().token() > of_c.token());
    s.finish();
}

/// What B changes is cached by A, which is dead. The change waits for as long as a lock would, and is then done once; nobody tells B's user
/// to try again.
#[test]
fn change_of_what_a_dead_agent_has_cached_is_done_after_t() {
    let (s, [a, b]) = Setting::default().files(["/d/x", "/d/y"]).agents(["a", "b"]);
    a.stat("/d/x").done();
    a.stat("/d/y").done();
    a.crash();
    let asked_at = s.now();
    let renamed = b.rename("/d/x", "/d/y");
    renamed.done();
    let waited = s.now() - asked_at;
    assert!(waited >= s.tau() && waited <= s.delivery_timeout() + s.tau() / 4 + s.wait() + 100, "{waited} ms");
    b.stat("/d/x").refused(Status::ENOENT);
    s.finish();
}

/// The holder is evicted while others wait in line, some shared and some exclusive. What is free is given in order, shared ones together, and
/// nobody is passed by.
#[test]
fn queue_is_served_in_order_and_shared_ones_together() {
    let (s, [a, b, c, d, e]) = Setting::default().files(["/etc/rules"]).agents(["a", "b", "c", "d", "e"]);
    let writer = a.lock("/etc/rules").exclusive().granted();
    let waits = [b.lock("/etc/rules").shared(), c.lock("/etc/rules").shared()];
    s.pass(50);
    let writer_too = d.lock("/etc/rules").exclusive();
    s.pass(50);
    let last = e.lock("/etc/rules").shared();
    s.pass(50);
    writer.unlock();
    let readers = waits.map(|op| op.granted());
    assert!(readers.iter().all(cistern_sim::script::Held::is_certain));
    s.pass(200);
    writer_too.still_waits();
    last.still_waits();
    readers.iter().for_each(cistern_sim::script::Held::unlock);
    let written = writer_too.granted();
    last.still_waits();
    written.unlock();
    assert!(last.granted().token() > written.token());
    s.finish();
}

/// One user at A reads, another at A wants to write, and B wants to write, too. A's writer may not go before B because it is at home,
/// nor may B's demand end in A's writer waiting for A's reader for ever.
#[test]
fn writers_of_two_agents_take_turns_behind_a_reader() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    let reading = a.lock("/etc/rules").shared().granted();
    let for_b = b.lock("/etc/rules").exclusive();
    s.pass(50);
    let for_a = a.lock("/etc/rules").exclusive();
    s.pass(50);
    reading.unlock();
    let of_b = for_b.granted();
    s.pass(100);
    for_a.still_waits();
    of_b.unlock();
    assert!(for_a.granted().token() > of_b.token());
    s.finish();
}

/// A reader at A upgrades by asking again while a reader at B sits on: the writer waits for B's user, B's user is not told to stop, and the
/// upgrade is not lost when B goes at last.
#[test]
fn upgrade_waits_for_the_other_reader() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    a.lock("/etc/rules").shared().granted().unlock();
    let reading = b.lock("/etc/rules").shared().granted();
    let writer = a.lock("/etc/rules").exclusive();
    s.pass(2 * s.wait());
    writer.still_waits();
    assert!(reading.is_certain() && reading.told().is_empty());
    reading.unlock();
    assert!(writer.granted().token() > reading.token());
    s.finish();
}

/// A is granted a lock at once, and the answer is lost; A's user has given up meanwhile. A CANCEL that is told no more than "answered" leaves a
/// lock that the server has granted and nobody knows of.
#[test]
fn lock_whose_granting_answer_was_lost_is_given_back_by_who_no_longer_wants_it() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs/nightly").done();
    s.drop_all(Kind::Ack, to(&a));
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Ack, to(&a));
    of_a.cancel();
    s.until_received(Kind::Cancelled, to(&a));
    s.pass(50);
    assert_eq!((s.sent(Kind::Release, from(&a)), s.sent(Kind::Lock, from(&a))), (1, 1), "it need not be asked for the answer");
    s.heal();
    let before = s.now();
    b.lock("/jobs/nightly").exclusive().granted();
    assert!(s.now() < before + 100);
    s.finish();
}

/// P1 at A gave the lock back, or was found dead, and P2 at the same machine has it. P1 comes to and writes under its token: the server
/// cannot tell the two apart, for A has held the lock all along; A can.
#[test]
fn guard_of_a_former_local_holder_is_stale() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly", "/jobs/output"]).agents(["a"]);
    let first = a.lock("/jobs/nightly").exclusive().granted();
    first.unlock();
    let second = a.lock("/jobs/nightly").exclusive().granted();
    a.put_under(&first, "/jobs/output", "too late").refused(Status::STALE_GUARD);
    a.put_under(&second, "/jobs/output", "in time").done();
    assert_eq!(a.text_of("/jobs/output"), "in time");
    s.finish();
}
