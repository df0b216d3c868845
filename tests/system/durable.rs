//! A server with a store in a directory: killed, started again, refused (sections 11.2 and 11.7).

use cistern_testkit::{Agent, CISTERND, Server, command, eventually, said};
use nix::sys::signal::Signal;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Tries to serve on a store, which must fail.
fn refused(store: &Path, code: i32, words: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let args = ["--store", store.to_str().unwrap(), "--listen", "127.0.0.1:0", "--insecure", "--state", state.to_str().unwrap()];
    let output = command(CISTERND, &args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    assert!(stderr.contains(words) && stderr.contains(store.to_str().unwrap()), "does not say {words:?}: {stderr}");
    output
}

//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A server that announces by whatever means that it is ready MUST answer from then on.
#[test]
fn ready_server_answers_the_first_datagram() {
    let mut server = Server::durable(&["--lease", "1s"]);
    for _ in 0..8 {
        assert_eq!(server.status()["serving"], true);
        server.ok(&["ping"]);
        assert_eq!(server.status()["drops_by_reason"]["starting"], serde_json::Value::Null, "{}", server.status());
        server.process.kill();
        server.start_again();
    }
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The server MUST have increased its incarnation durably before it answers its first datagram.
#[test]
fn what_was_answered_outlives_a_kill_and_every_start_is_counted() {
    let mut server = Server::durable(&["--lease", "1s"]);
    for start in 1..=4 {
        assert_eq!(server.count("incarnation"), start);
        server.ok(&["mkdir", &format!("/d{start}")]);
        server.process.kill();
        server.start_again();
        for made in 1..=start {
            server.ok(&["ls", &format!("/d{made}")]);
        }
    }
}

#[test]
fn a_lock_is_held_and_a_cache_is_right_over_a_restart() {
    // Far longer than a start takes, on whatever machine; nothing here waits for its end.
    let mut server = Server::durable(&["--lease", "20s"]);
    let mut a = Agent::start(&server, "A");
    let mut b = Agent::start(&server, "B");
    a.put("/job", "");
    a.put("/shared", "one");
    let (hold, token) = a.line().lock("/job");
    let mut user = a.line();
    let (held, _) = user.lock("/shared");
    assert!(hold > 0);
    let one = b.read("/shared").unwrap();
    user.unlock(held);
    let mut holder = a.line();
    let (hold, token_again) = holder.lock("/job");
    assert!(token_again > token);
    let sessions = [a.lease()["session"].clone(), b.lease()["session"].clone()];
    server.process.kill();
    assert_eq!(holder.hold(hold), "certain", "nothing has happened to A's lease");
    server.start_again();
    // Both come back and reclaim; until then nobody is given anything.
    for (agent, former) in [(&mut a, &sessions[0]), (&mut b, &sessions[1])] {
        // An idle agent that holds nothing would have nothing to say.
        agent.ok(json!({ "op": "ping" }));
        assert_ne!(agent.lease()["session"], *former);
    }
    eventually("the grace is over", || server.status()["grace"].is_null().then_some(()));
    assert_eq!(holder.hold(hold), "certain", "A has its lock as if nothing had happened");
    assert_eq!(server.count("steals"), 0);
    assert_eq!(b.read("/shared").unwrap(), one);
    a.put("/shared", "two");
    assert_ne!(b.read("/shared").unwrap(), one, "B was told to drop what it had cached");
    let mut waiter = b.line();
    let waiting = thread::spawn(move || waiter.lock("/job"));
    eventually("B waits for the lock", || (server.count("waiting") == 1).then_some(()));
    holder.unlock(hold);
    let (_, larger) = waiting.join().unwrap();
    assert!(larger > token_again, "tokens grow over restarts");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A message that shows an effect of a transaction MUST wait until the transaction is durable.
//
//= wire-spec.md#11-2-delivery
//= type=test
//# A mutation's effects and its outcome MUST become durable in one transaction, and the outcome stays until the floor has passed it or its
//# session is forgotten.
#[test]
fn every_change_that_was_answered_is_there_after_each_of_many_kills() {
    let mut server = Server::durable(&["--lease", "1s"]);
    let agents: Vec<_> = (0..3).map(|n| Agent::start(&server, &format!("A{n}"))).collect();
    let over = Arc::new(AtomicBool::new(false));
    let made: Vec<_> = agents.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let makers = agents.iter().zip(&made).enumerate();
    let workers: Vec<_> =
        makers.map(|(n, (agent, made))| thread::spawn(maker(n, agent.line(), Arc::clone(&over), Arc::clone(made)))).collect();
    let more_than = |least: usize| made.iter().all(|made| made.load(Ordering::Acquire) > least).then_some(());
    for round in 0..8_u16 {
        // Every other time while everybody makes files, however slow the machine is; otherwise whenever it comes, perhaps in grace.
        if round % 2 == 0 {
            eventually("everybody makes files", || more_than(round.into()));
        }
        thread::sleep(Duration::from_millis(150 + 70 * u64::from(round)));
        server.process.kill();
        server.start_again();
    }
    eventually("the grace is over", || server.status()["grace"].is_null().then_some(()));
    eventually("everybody has made files", || more_than(10));
    over.store(true, Ordering::Release);
    for (n, worker) in workers.into_iter().enumerate() {
        let (acked, tried) = worker.join().unwrap();
        let listed: BTreeSet<_> = server.ok(&["ls", &format!("/w{n}")]).lines().map(ToOwned::to_owned).collect();
        let lost: Vec<_> = acked.difference(&listed).collect();
        assert!(lost.is_empty(), "answered and lost: {lost:?}");
        let unasked: Vec<_> = listed.difference(&tried).collect();
        assert!(unasked.is_empty(), "never asked for: {unasked:?}");
    }
}

/// Makes files one after the other until it is over, and counts those that were answered; which they were, and which were asked for.
fn maker(
    n: usize,
    mut line: cistern_testkit::Line,
    over: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
) -> impl FnOnce() -> (BTreeSet<String>, BTreeSet<String>) {
    move || {
        let (mut acked, mut tried) = (BTreeSet::new(), BTreeSet::new());
        let dir = json!({ "op": "mkdir", "path": format!("/w{n}"), "mode": "0755" });
        line.ok(dir);
        for k in 0.. {
            if over.load(Ordering::Acquire) {
                break;
            }
            let name = format!("f{k}");
            tried.insert(name.clone());
            let request = json!({ "op": "create", "path": format!("/w{n}/{name}"), "exclusive": true });
            match line.ask(&request) {
                Ok(_) => {
                    acked.insert(name);
                    made.fetch_add(1, Ordering::Release);
                }
                // Executed before the kill and asked again under another number would be "exists": it must never be seen.
                Err(error) => assert_ne!(error["code"], "EEXIST", "executed twice: {name}"),
            }
        }
        (acked, tried)
    }
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An empty store MUST wait T of the longest lease that the server gives before its first grant, unless told to be a new cluster.
#[test]
fn a_new_store_waits_for_the_leases_of_a_server_before_it_unless_there_was_none() {
    let mut server = Server::initialised(&[], &["--lease", "3s", "--lease-max", "3s"]);
    let waits = |server: &Server| {
        let status = server.status();
        // Unless it was asked only after that time.
        assert!(status["grace"]["blind"] == true || status["uptime_ms"].as_u64().unwrap() >= 3_000, "{status}");
    };
    waits(&server);
    // The wait is owed until it is over, over any number of starts.
    server.process.kill();
    server.start_again();
    waits(&server);
    eventually("the wait is over", || server.status()["grace"].is_null().then_some(()));
    assert!(server.count("uptime_ms") >= 3_000);
    server.ok(&["mkdir", "/first"]);
    server.process.kill();
    server.start_again();
    assert_ne!(server.status()["grace"]["blind"], true, "nothing is owed any more");
    let first = Server::durable(&[]);
    assert!(first.status()["grace"].is_null(), "a new cluster has nobody to wait for");
    let replacing = Server::initialised(&["--above", "4"], &[]);
    let status = replacing.status();
    assert_eq!((&status["epoch"], &status["grace"]["blind"]), (&5.into(), &true.into()), "{status}");
}

#[test]
fn a_second_store_is_not_made_where_one_is_and_the_word_for_a_lost_one_is_not_that_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let keys = dir.path().to_str().unwrap();
    let places = ["--state", keys, "--credentials", keys, store.to_str().unwrap()];
    let init = |args: &[&str]| command(CISTERND, &[&["init"], args, &places[..]].concat()).output().unwrap();
    assert_eq!(init(&["--new-cluster", "--above", "2"]).status.code(), Some(2));
    let made = init(&["--above", "2"]);
    assert!(made.status.success() && said(&made).contains("grants nothing until"), "{}", said(&made));
    let sound = command(CISTERND, &["check", store.to_str().unwrap()]).output().unwrap();
    assert!(sound.status.success(), "{}", said(&sound));
    let again = init(&["--new-cluster"]);
    assert!(again.status.code() == Some(65) && said(&again).contains("a store already"), "{}", said(&again));
    fs::write(store.join("format"), "cistern store\nformat 9\ncrc32 cde5650f\n").unwrap();
    assert_eq!(init(&[]).status.code(), Some(76));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A server MUST hold a lock on its store as long as it runs, on a file system where such locks are reliable.
#[test]
fn a_second_server_on_the_same_store_is_refused_until_the_first_is_gone() {
    let mut server = Server::durable(&[]);
    refused(&server.store(), 75, "another process has it");
    // A server that stands still has it, too.
    server.process.signal(Signal::SIGSTOP);
    refused(&server.store(), 75, "another process has it");
    server.process.signal(Signal::SIGCONT);
    assert_eq!(server.process.end(), Some(0));
    server.start_again();
    assert_eq!(server.count("incarnation"), 2);
}

#[test]
fn a_store_that_is_none_or_another_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    refused(&dir.path().join("none"), 66, "cisternd restore");
    refused(&dir.path().join("none"), 66, "--new-cluster is for the first server of a cluster only");
    refused(dir.path(), 66, "the directory is empty");
    fs::write(dir.path().join("letter.txt"), "").unwrap();
    refused(dir.path(), 65, "letter.txt");
    refused(&dir.path().join("letter.txt"), 65, "not a directory");
    let mut server = Server::durable(&[]);
    server.ok(&["mkdir", "/kept"]);
    assert_eq!(server.process.end(), Some(0));
    let store = server.store();
    let journal = store.join("data/0.jnl");
    let (format, bytes) = (fs::read(store.join("format")).unwrap(), fs::read(&journal).unwrap());
    fs::write(store.join("format"), &format[..40]).unwrap();
    refused(&store, 65, "damaged");
    fs::write(store.join("format"), "cistern store\nformat 9\ncrc32 cde5650f\n").unwrap();
    refused(&store, 76, "version 9");
    fs::write(store.join("format"), &format).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs::write(&journal, &bytes[..used / 2]).unwrap();
    refused(&store, 65, "was promised");
    fs::write(&journal, &bytes).unwrap();
    server.start_again();
    server.ok(&["ls", "/kept"]);
}

#[test]
fn a_store_that_may_not_be_written_is_refused_in_words() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: to take rights away for sure one must have them all (run as root)");
        return;
    }
    let mut server = Server::durable(&[]);
    assert_eq!(server.process.end(), Some(0));
    let store = server.store();
    // Another user, who may read it all and write nothing.
    let open = command("chmod", &["-R", "a+rX", server.dir.path().to_str().unwrap()]).status().unwrap();
    assert!(open.success());
    let state = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(state.path(), Some(65_534), Some(65_534)).unwrap();
    let args = ["--store", store.to_str().unwrap(), "--listen", "127.0.0.1:0", "--insecure", "--state", state.path().to_str().unwrap()];
    let output = command(CISTERND, &args).uid(65_534).gid(65_534).output().unwrap();
    assert!(output.status.code() == Some(77) && said(&output).contains("must be able to read and write"), "{}", said(&output));
    server.start_again();
}
