//! The file commands, as people use them, by an own agent and through the host's.

use cistern_testkit::{Agent, CISTERN, Server, command, said};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn put(server: &Server, path: &str, text: &str) {
    let mut child = server.prepared(&["put", "-", path]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_put_is_listed_shown_moved_linked_and_removed() {
    let server = Server::start();
    server.ok(&["mkdir", "-p", "/a/b"]);
    put(&server, "/a/b/f", "hello\n");
    assert_eq!(server.ok(&["cat", "/a/b/f"]), "hello\n");
    assert_eq!(server.ok(&["ls", "/a"]), "b\n");
    server.ok(&["mv", "/a/b/f", "/a"]);
    server.ok(&["ln", "/a/f", "/a/g"]);
    server.ok(&["ln", "-s", "f", "/a/s"]);
    let stat: Value = serde_json::from_str(&server.ok(&["stat", "--json", "/a/f"])).unwrap();
    assert_eq!((&stat["attr"]["nlink"], &stat["attr"]["size"]), (&2.into(), &6.into()));
    assert_eq!(server.ok(&["cat", "/a/s"]), "hello\n");
    assert!(server.ok(&["ls", "-l", "/a"]).contains("lrwxrwxrwx"));
    server.ok(&["rm", "/a/g"]);
    server.ok(&["rm", "-r", "/a"]);
    assert_eq!(server.ok(&["ls", "/"]), "");
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("sub/empty")).unwrap();
    fs::write(from.join("small"), "text").unwrap();
    fs::write(from.join("sub/large"), vec![7u8; 300_000]).unwrap();
    fs::write(from.join("sub/none"), "").unwrap();
    fs::set_permissions(from.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("../small", from.join("sub/link")).unwrap();
    server.ok(&["import", from.to_str().unwrap(), "/tree"]);
    server.ok(&["export", "/tree", to.to_str().unwrap()]);
    let diff = std::process::Command::new("diff").args(["-r", "--no-dereference"]).args([&from, &to]).output().unwrap();
    assert!(diff.status.success(), "{}", said(&diff));
    assert_eq!(fs::metadata(to.join("small")).unwrap().permissions().mode() & 0o7777, 0o640);
    let times = [&from, &to].map(|tree| fs::metadata(tree.join("small")).unwrap().modified().unwrap());
    assert_eq!(times[0], times[1]);
}

#[test]
fn commands_go_through_the_agent_of_the_host_and_share_its_cache() {
    let server = Server::start();
    put(&server, "/f", "text");
    let mut agent = Agent::start(&server, "host");
    let cat = || {
        let output = command(CISTERN, &["cat", "--agent", agent.socket(), "/f"]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    assert_eq!(cat(), b"text");
    assert_eq!(cat(), b"text");
    let requests = agent.count("requests");
    let output = command(CISTERN, &["cat", "--agent", agent.socket(), "/f"]).output().unwrap();
    assert_eq!(output.stdout, b"text");
    assert_eq!(agent.count("requests"), requests, "the third look was no message");
    let watch = command(CISTERN, &["agent", "top", "--agent", agent.socket(), "-n", "2", "-i", "10ms", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&watch.stdout).lines().count(), 2, "{}", said(&watch));
}

#[test]
fn a_host_s_agent_that_stands_still_is_given_up_in_the_time_that_was_given() {
    let server = Server::start();
    let mut agent = Agent::start(&server, "A");
    agent.put("/f", "text");
    agent.process.signal(Signal::SIGSTOP);
    let cases = [(&["ls", "/"][..], 69), (&["mkdir", "/d"], 74), (&["agent", "status"], 69), (&["ping", "-c", "2", "-i", "1ms"], 69)];
    for (args, code) in cases {
        let args = [args, &["--agent", agent.socket(), "--timeout", "200ms"]].concat();
        let output = command(CISTERN, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
    }
    agent.process.signal(Signal::SIGCONT);
}

#[test]
fn status_and_ping_are_answered_by_the_servers_application() {
    let server = Server::start();
    let report: Value = serde_json::from_str(&server.ok(&["status", "--json"])).unwrap();
    assert_eq!(report["sessions"], 1);
    assert_eq!(server.ok(&["ping", "-c", "3", "-i", "1ms", "--json"]).lines().count(), 4, "three answers and the sum");
    let control = server.control().to_str().unwrap();
    let status: Value = serde_json::from_str(&server.ok(&["admin", "status", "--control", control, "--json"])).unwrap();
    assert_eq!(status["lease_timers"], 0);
}

#[test]
fn a_server_of_both_families_is_reached_by_either_and_by_a_list_with_a_dead_address_in_it() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no IPv6 loopback address");
        return;
    }
    let server = Server::with(&["--listen", "[::1]:0"]);
    put(&server, "/f", "text");
    for address in server.process.ready["listen"].as_array().unwrap() {
        // The discard port: nobody answers there.
        let servers = format!("127.0.0.1:9,{}", address.as_str().unwrap());
        let output = command(CISTERN, &["cat", "--server", &servers, "/f"]).output().unwrap();
        assert_eq!(output.stdout, b"text", "by {servers}: {}", said(&output));
    }
}

#[test]
fn the_daemons_end_cleanly_when_they_are_asked_to() {
    let mut server = Server::start();
    let mut agent = Agent::start(&server, "A");
    agent.put("/f", "");
    assert_eq!(agent.process.end(), Some(0));
    cistern_testkit::eventually("the agent's session is closed", || (server.count("sessions") == 0).then_some(()));
    assert_eq!(server.count("locks"), 0);
    let control = server.control().to_owned();
    assert_eq!(server.process.end(), Some(0));
    assert!(!control.exists());
}
