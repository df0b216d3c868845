//! Bad input of every kind: one clear line, a documented exit status, nothing lost.

use cistern_testkit::{Agent, CISTERN, CISTERND, Server, command, said};
use cistern_wire::is_printable;
use serde_json::json;
use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

fn fails(program: &str, args: &[&str], code: i32, words: &str) {
    let output = command(program, args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
    assert!(stderr.contains(words), "{args:?} does not say {words:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", said(&output));
}

#[test]
fn impossible_settings_of_a_server_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("s");
    let state = state.to_str().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let base = ["--volatile", "--listen", "127.0.0.1:0", "--insecure", "--state", state];
    let with = |args: &[&'static str]| [&base[..], args].concat();
    fails(CISTERND, &with(&["--lease", "50ms"]), 2, "100 ms");
    fails(CISTERND, &with(&["--delta", "0.001"]), 2, "0.003");
    fails(CISTERND, &with(&["--lease", "soon"]), 2, "soon");
    fails(
        CISTERND,
        &["--volatile", "--listen", "127.0.0.1:0", "--state", state],
        2,
        "run `cisternd init`, which makes it; or give --insecure",
    );
    fails(CISTERND, &["--volatile", "--insecure", "--listen", &taken, "--state", state], 1, &taken);
    fails(CISTERND, &["--volatile", "--listen", "127.0.0.1:0", "--state", file.to_str().unwrap()], 2, file.to_str().unwrap());
    let config = dir.path().join("bad.toml");
    fs::write(&config, "[server]\nleese = \"1s\"\n").unwrap();
    fails(CISTERND, &[&base[..], &["--config", config.to_str().unwrap()]].concat(), 2, "leese");
}

#[test]
fn wrong_uses_of_commands_are_refused_in_words() {
    let server = Server::start();
    let at = server.address.to_string();
    fails(CISTERN, &["ls", "--server", "no-such-host.invalid"], 69, "no-such-host.invalid");
    fails(CISTERN, &["ls", "--server", "127.0.0.1:9", "--timeout", "300ms"], 69, "127.0.0.1:9");
    fails(CISTERN, &["ls", "--server", &at, "/missing"], 1, "/missing");
    fails(CISTERN, &["cat", "--server", &at, "/"], 1, "directory");
    fails(CISTERN, &["mkdir", "--server", &at, &format!("/{}", "n".repeat(256))], 1, "too long");
    fails(CISTERN, &["rmdir"], 2, "rmdir");
    let beyond = "--lease: lease is \"300s\"; it must be at most lease-max, which is 60s";
    fails(CISTERN, &["ls", "--server", &at, "--lease", "5m", "/"], 2, beyond);
    fails(CISTERN, &["ls", "--server", &at, "--lease-max", "50ms", "/"], 2, "--lease-max: lease-max is \"50ms\"; it must be 100 ms to 1 h");
    fails(CISTERN, &["cat", "--agent", "/no/such/socket", "/f"], 69, "/no/such/socket");
    fails(CISTERN, &["put", "--server", &at, "/no/such/local/file", "/f"], 1, "/no/such/local/file");
    fails(CISTERN, &["admin", "evict", "nobody", "--control", server.control().to_str().unwrap()], 1, "nobody");
}

#[test]
fn two_servers_cannot_have_one_state_directory() {
    let server = Server::start();
    let state = server.dir.path().join("server");
    fails(CISTERND, &["--volatile", "--listen", "127.0.0.1:0", "--state", state.to_str().unwrap()], 2, state.to_str().unwrap());
}

#[test]
fn bad_datagrams_are_dropped_by_name_and_counted_and_change_nothing() {
    let server = Server::start();
    server.captures.have_hostile_datagrams();
    server.ok(&["mkdir", "/d"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let valid = {
        let mut bytes = vec![0xC5, 1, 0, 0];
        bytes.extend([0; 8]);
        bytes.extend(1u64.to_be_bytes());
        bytes
    };
    let mut other_version = valid.clone();
    other_version[1] = 9;
    other_version.extend([0; 8]);
    let mut corrupt = valid.clone();
    corrupt.extend([0x10, 0, 0, 0, 1, 2, 3, 4]);
    for bytes in [&b""[..], b"x", &[0xFF; 100], &other_version, &corrupt, &vec![0xC5; 9_000]] {
        socket.send_to(bytes, server.address).unwrap();
    }
    let drops = cistern_testkit::eventually("the drops are counted", || {
        let drops = server.status()["drops_by_reason"].clone();
        let names = ["too_short", "bad_magic", "unknown_version", "bad_checksum"];
        names.iter().all(|name| drops[name].as_u64().is_some_and(|n| n > 0)).then_some(drops)
    });
    assert!(drops.is_object());
    assert_eq!(server.ok(&["ls", "/"]), "d\n");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    assert!(socket.recv_from(&mut [0; 100]).is_err(), "a bad datagram was answered");
}

#[test]
fn idle_connections_to_the_host_agent_give_way_and_those_that_hold_a_lock_do_not() {
    let server = Server::start();
    let agent = Agent::start(&server, "host");
    server.ok(&["touch", "/x"]);
    let mut holds = agent.line();
    let (hold, _) = holds.lock("/x");
    // More than the agent serves.
    let mut first = UnixStream::connect(agent.socket()).unwrap();
    let mut others: Vec<_> = (0..300).map(|_| agent.line()).collect();
    let output = server.cistern(&["--agent", agent.socket(), "ls", "/"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(holds.hold(hold), "certain");
    let mut told = String::new();
    first.read_to_string(&mut told).unwrap();
    assert!(told.contains("BUSY") && told.contains("idle longest"), "{told}");
    others[299].ok(json!({ "op": "ping" }));
}

/// Names, labels, targets of links and attributes of others, and the words of the caller: with escape sequences, and with characters that
/// change the order of what is shown, or hide.
#[test]
fn no_name_of_others_writes_to_the_terminal_or_the_log() {
    const EVIL: &str = "n\u{1b}[31m\u{7}\u{9b}2J\u{202e}\u{200b}\u{2028}\re";
    let server = Server::kept(false, &[]);
    let (dir, file, link) = (format!("/d{EVIL}"), format!("/d{EVIL}/f{EVIL}"), format!("/l{EVIL}"));
    server.ok(&["mkdir", &dir]);
    server.ok(&["touch", &file]);
    server.ok(&["ln", "-s", EVIL, &link]);
    server.ok(&["xattr", "set", &file, &format!("user.{EVIL}"), EVIL]);
    let mut holder = Agent::start(&server, EVIL);
    holder.lock(&file);
    let (control, missing, local) = (server.control().to_str().unwrap(), format!("/m{EVIL}"), server.dir.path().join(format!("to{EVIL}")));
    // The directory to export to is a file.
    fs::write(&local, "").unwrap();
    let local = local.to_str().unwrap();
    let shown: [&[&str]; 16] = [
        &["ls", "/"],
        &["ls", "-l", &dir],
        &["stat", &link],
        &["stat", &file],
        &["xattr", "list", &file],
        &["locks"],
        &["lock", "--try", &file, "--", "true"],
        &["admin", "sessions", "--control", control],
        &["admin", "evict", EVIL, "--control", control],
        &["cat", &missing],
        &["rm", &missing],
        &["rmdir", &dir],
        &["mkdir", &dir],
        &["export", &dir, local],
        &["put", local, &missing, EVIL],
        &[EVIL],
    ];
    let (mut names, mut failures) = (0, 0);
    for args in shown {
        for json in [&[][..], &["--json"]] {
            let output = server.cistern(&[json, args].concat());
            for bytes in [&output.stdout, &output.stderr] {
                let text = std::str::from_utf8(bytes).unwrap();
                assert!(text.chars().all(|c| c == '\n' || is_printable(c)), "{args:?} {json:?}: {text:?}");
                names += usize::from(text.contains("[31m"));
            }
            failures += usize::from(!output.status.success());
        }
    }
    assert!(names >= 24 && failures >= 14, "{names} tell the name, {failures} fail");
    let log = fs::read_to_string(server.log()).unwrap();
    assert!(log.contains("[31m") && log.chars().all(|c| c == '\n' || is_printable(c)), "{log:?}");
}
