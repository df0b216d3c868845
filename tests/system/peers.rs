//! Locks of a group without a server: `cistern peer`, `cistern lock --group` (docs/flease.md).

use cistern_client::{ErrorKind, PeerLock};
use cistern_testkit::{CISTERN, Group, command, eventually, said};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

const SHORT: &[&str] = &["--lease", "2s"];

fn token_of(output: &Output) -> (u64, String) {
    assert!(output.status.success(), "{}", said(output));
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let (token, basis) = text.split_once(' ').unwrap();
    (token.parse().unwrap(), basis.to_owned())
}

const TELL: &[&str] = &["job", "--", "sh", "-c", "echo $CISTERN_TOKEN $CISTERN_TOKEN_BASIS"];

#[test]
fn a_command_runs_at_one_member_at_a_time_with_growing_tokens() {
    let group = Group::start(3, SHORT);
    let mut last = 0;
    for member in [0, 1, 2, 0] {
        let (token, _) = token_of(&group.lock(member, TELL).output().unwrap());
        assert!(token > last);
        last = token;
    }
    let mut running: Vec<_> = (0..3).map(|member| group.beat(member)).collect();
    for number in 1..=3 {
        eventually("another one runs", || (group.holders() == number).then_some(()));
        let newest = group.newest().unwrap();
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(group.newest().unwrap(), newest, "an owner that is well keeps its lock");
        // The command is stopped, not the one that waits: only the holder has a guardian.
        let holder = running.iter().position(|process| has_child(process.id())).unwrap();
        running.remove(holder).end();
    }
    assert_eq!(group.holders(), 3);
}

/// Whether a process has started another one.
fn has_child(process: u32) -> bool {
    let path = format!("/proc/{process}/task/{process}/children");
    std::fs::read_to_string(path).is_ok_and(|children| !children.is_empty())
}

/// The member of the holder stops serving in some way: another holder follows, after the lease and never before the first has ended.
fn holder_fails(fail: impl Fn(&mut Group), mend: impl Fn(&mut Group)) {
    let mut group = Group::start(3, SHORT);
    let mut first = group.beat(0);
    eventually("the first runs", || group.newest());
    let _second = group.beat(1);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(group.holders(), 1);
    fail(&mut group);
    eventually("the second runs", || (group.holders() == 2).then_some(()));
    let code = eventually("the first has ended", || first.try_wait()).code();
    assert_eq!(code, Some(79));
    mend(&mut group);
    let _third = group.beat(0);
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(group.holders(), 2);
}

#[test]
fn a_command_has_ended_before_its_lock_is_anothers_when_its_member_is_killed() {
    holder_fails(|group| group.kill(0), |group| group.start_member(0));
}

#[test]
fn a_command_has_ended_before_its_lock_is_anothers_when_its_member_is_stopped() {
    holder_fails(|group| group.peer(0).signal(Signal::SIGSTOP), |group| group.peer(0).signal(Signal::SIGCONT));
}

#[test]
fn a_command_has_ended_before_its_lock_is_anothers_although_cistern_was_killed() {
    let group = Group::start(3, SHORT);
    let mut first = group.beat(0);
    eventually("the first runs", || group.newest());
    let _second = group.beat(1);
    first.kill();
    eventually("the second runs", || (group.holders() == 2).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(group.holders(), 2);
}

#[test]
fn a_member_that_is_asked_to_end_hands_over_before_the_lease_ends() {
    let mut group = Group::start(3, &["--lease", "8s"]);
    eventually("the restart wait is over", || (report(&group, 0)["starts_in_ms"] == 0).then_some(()));
    let mut first = group.beat(0);
    eventually("the first runs", || group.newest());
    let _second = group.beat(1);
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let mut ended = group.peers[0].take().unwrap();
    ended.signal(Signal::SIGTERM);
    eventually("the second runs", || (group.holders() == 2).then_some(()));
    assert_eq!(ended.ended(), Some(0));
    assert_eq!(first.ended(), Some(79));
    // What programs were told ends with their lease: no earlier is it released.
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(group.holders(), 2);
}

fn report(group: &Group, member: usize) -> Value {
    let socket = group.socket(member);
    let output = command(CISTERN, &["peer", "status", "--json", "--group", &group.list, "--socket", &socket]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn no_lock_is_granted_without_a_majority() {
    let mut group = Group::start(3, SHORT);
    token_of(&group.lock(0, TELL).output().unwrap());
    group.kill(1);
    token_of(&group.lock(0, TELL).output().unwrap());
    group.kill(2);
    for (words, code) in [(&["--try"][..], 75), (&["--wait", "1"], 124)] {
        let output = group.lock(0, &[words, TELL].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    }
}

#[test]
fn members_that_are_configured_otherwise_are_refused_and_shown() {
    let mut group = Group::start(3, SHORT);
    group.kill(2);
    let socket = group.socket(2);
    let key = group.key_options(2);
    let args = ["peer", "--json", "--group", &group.list, "--me", group.name(2), "--socket", &socket, "--lease", "401ms", &key[0], &key[1]];
    let _other = cistern_testkit::Daemon::start(&cistern_testkit::Place::default(), CISTERN, &args);
    token_of(&group.lock(0, TELL).output().unwrap());
    let refused = group.lock(2, &[&["--wait", "2"], TELL].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(124), "{}", said(&refused));
    let trouble = eventually("the trouble is shown", || report(&group, 0)["members"][2]["trouble"].as_str().map(str::to_owned));
    assert!(trouble.contains("length of the lease differs"), "{trouble}");
}

#[test]
fn a_member_takes_part_with_its_own_key_alone_and_in_clear_only_among_members_in_clear() {
    let mut group = Group::start(3, SHORT);
    group.kill(2);
    let (socket, foreign) = (group.socket(2), group.key_options(1));
    let names = (0..3).map(|member| group.name(member)).collect::<Vec<_>>().join(",");
    let own = ["peer", "--json", "--me", group.name(2), "--socket", &socket];
    let refused = command(CISTERN, &[&own[..], &["--group", &group.list, &foreign[0], &foreign[1]]].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("another key for this member"), "{}", said(&refused));
    // One in clear is not heard, and hears nothing.
    let args = [&own[..], &["--insecure", "--group", &names], SHORT].concat();
    let _other = cistern_testkit::Daemon::start(&cistern_testkit::Place::default(), CISTERN, &args);
    let unheard = command(CISTERN, &[&["lock", "--group", &names, "--socket", &socket, "--wait", "4"], TELL].concat()).output().unwrap();
    assert_eq!(unheard.status.code(), Some(124), "{}", said(&unheard));
    let trouble = eventually("the trouble is shown", || report(&group, 0)["members"][2]["trouble"].as_str().map(str::to_owned));
    assert!(trouble.contains("does not open"), "{trouble}");
    token_of(&group.lock(0, TELL).output().unwrap());
    let clear = Group::in_clear(3, SHORT);
    token_of(&clear.lock(1, TELL).output().unwrap());
}

#[test]
fn tokens_on_disk_grow_although_all_members_restart_and_the_command_says_so() {
    let mut group = Group::start(3, &["--lease", "400ms", "--state", "STATE"]);
    let (mut last, basis) = token_of(&group.lock(0, &[&["--require-durable-token"], TELL].concat()).output().unwrap());
    assert_eq!(basis, "durable");
    for member in [1, 2, 0] {
        (0..3).for_each(|member| group.kill(member));
        (0..3).for_each(|member| group.start_member(member));
        let (token, _) = token_of(&group.lock(member, TELL).output().unwrap());
        assert!(token > last);
        last = token;
    }
    let memory = Group::start(1, SHORT);
    let refused = memory.lock(0, &[&["--require-durable-token"], TELL].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert_eq!(token_of(&memory.lock(0, TELL).output().unwrap()).1, "clock");
    assert_eq!(token_of(&memory.lock(0, TELL).output().unwrap()).1, "remembered");
}

#[test]
fn a_program_holds_a_lock_by_the_client_library_until_its_member_fails() {
    let mut group = Group::start(3, SHORT);
    let lock = PeerLock::acquire(group.socket(0), "job", Some(Duration::from_secs(20))).unwrap();
    assert!(lock.is_valid() && lock.token().0 > 0);
    let tried = PeerLock::acquire(group.socket(1), "job", Some(Duration::ZERO)).unwrap_err();
    assert_eq!(tried.kind(), ErrorKind::Locked, "{tried}");
    let local = PeerLock::acquire(group.socket(0), "job", Some(Duration::from_millis(300))).unwrap_err();
    assert_eq!(local.kind(), ErrorKind::TimedOut, "{local}");
    assert!(lock.is_valid(), "it was renewed meanwhile");
    let token = lock.token();
    lock.release().unwrap();
    let next = PeerLock::acquire(group.socket(0), "job", Some(Duration::from_secs(20))).unwrap();
    assert!(next.token() > token, "each holder has a tenure of its own");
    group.kill(0);
    let begun = Instant::now();
    while next.is_valid() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody renews any more");
    }
    let other = PeerLock::acquire(group.socket(1), "job", None).unwrap();
    assert!(!next.is_valid() && other.token() > next.token());
    let gone = PeerLock::acquire(group.socket(0), "job", None).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unreachable, "{gone}");
    assert_eq!(PeerLock::acquire(group.socket(1), "", None).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn wrong_usage_is_told_with_an_exit_code_of_its_own() {
    let group = Group::start(1, SHORT);
    let other = "127.0.0.1:9,127.0.0.1:10";
    let socket = group.socket(0);
    let peer = |args: &[&str]| command(CISTERN, &[&["peer"], args].concat()).output().unwrap();
    for (args, why) in [
        (&["--group", other][..], "--insecure"),
        (&["--insecure", "--group", other], "--me"),
        (&["--insecure", "--group", other, "--me", "127.0.0.1:11"], "no member"),
        (&["--insecure", "--group", "a,a"], "named twice"),
        (&["--insecure", "--group", "127.0.0.1:9", "--lease", "1ms"], "300 ms"),
        (&["--insecure", "--group", "127.0.0.1:9", "--delta", "7"], "drift"),
        (&["--insecure", "--group", "nowhere.invalid", "--me", "nowhere.invalid"], "cannot find the host"),
        (&["--insecure"], "--group"),
        (&["--insecure", "--group", &group.list], "the list has keys"),
    ] {
        let output = peer(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(why), "{args:?}: {}", said(&output));
    }
    let status = |args: &[&str]| peer(&[&["status"], args].concat()).status.code();
    assert_eq!(status(&["--group", other, "--socket", &socket]), Some(2));
    assert_eq!(status(&["--group", other, "--socket", "/no/such/socket"]), Some(69));
    let key = group.key_options(0);
    let taken = peer(&["--group", &group.list, "--socket", &socket, &key[0], &key[1]]);
    assert_eq!(taken.status.code(), Some(1), "{}", said(&taken));
    assert_eq!(group.lock(0, &["--shared", "job", "--", "true"]).output().unwrap().status.code(), Some(2));
}
