//! The commands that change little things, or several at once: put --if-version, touch, chmod, truncate, xattr, batch.

use cistern_testkit::{Agent, CISTERN, Server, command, said};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

fn fed(server: &Server, args: &[&str], text: &[u8]) -> Output {
    let mut command = server.prepared(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    child.wait_with_output().unwrap()
}

fn version(server: &Server, path: &str) -> u64 {
    let stat: Value = serde_json::from_str(&server.ok(&["stat", "--json", path])).unwrap();
    stat["attr"]["version"].as_u64().unwrap()
}

fn fails(output: &Output, words: &str) {
    // 3: a precondition does not hold.
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", said(output));
    assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{words:?}: {}", said(output));
}

#[test]
fn a_file_is_put_only_if_it_has_the_version_named() {
    let server = Server::start();
    let put = |version: &str, text: &[u8]| fed(&server, &["put", "-", "/f", "--if-version", version], text);
    assert!(put("0", b"one").status.success());
    fails(&put("0", b"two"), "/f: it exists; nothing was changed");
    let seen = version(&server, "/f");
    assert!(put(&seen.to_string(), b"two").status.success());
    fails(&put(&seen.to_string(), b"three"), "not");
    assert_eq!(server.ok(&["cat", "/f"]), "two");
    fails(&fed(&server, &["put", "-", "/none", "--if-version", "3"], b"x"), "/none");
}

#[test]
fn touch_chmod_and_truncate_change_what_they_say() {
    let server = Server::start();
    server.ok(&["touch", "/f", "/"]);
    let made = version(&server, "/f");
    server.ok(&["touch", "/f"]);
    assert!(version(&server, "/f") > made);
    let told: Value = serde_json::from_str(&server.ok(&["chmod", "--json", "640", "/f"])).unwrap();
    assert_eq!((&told["path"], &told["attr"]["mode"]), (&"/f".into(), &"0640".into()));
    assert!(fed(&server, &["put", "-", "/f"], b"12345").status.success());
    server.ok(&["truncate", "-s", "3", "/f"]);
    assert_eq!(server.ok(&["cat", "/f"]), "123");
    server.ok(&["truncate", "--size", "1048576", "/f"]);
    fails(&server.cistern(&["truncate", "-s", "1048577", "/f"]), "/f");
    fails(&server.cistern(&["chmod", "600", "/none"]), "/none");
    assert_eq!(server.cistern(&["chmod", "888", "/f"]).status.code(), Some(2));
    server.ok(&["mkdir", "/d"]);
    fails(&server.cistern(&["mv", "--no-replace", "/f", "/d/../d/../f"]), "exists");
    assert!(server.ok(&["ls", "/"]).contains('f'));
}

#[test]
fn attributes_are_set_shown_listed_and_removed() {
    let server = Server::start();
    let agent = Agent::start(&server, "host");
    server.ok(&["touch", "/f"]);
    server.ok(&["xattr", "set", "/f", "user.b", "two words"]);
    assert!(fed(&server, &["xattr", "set", "--from", "-", "/f", "user.a"], &[0, 255, 7]).status.success());
    assert_eq!(server.ok(&["xattr", "get", "/f", "user.b"]), "two words");
    assert_eq!(server.cistern(&["xattr", "get", "/f", "user.a"]).stdout, [0, 255, 7]);
    let through = command(CISTERN, &["xattr", "list", "--agent", agent.socket(), "/f"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&through.stdout), "user.a\nuser.b\n", "{}", said(&through));
    fails(&server.cistern(&["xattr", "set", "--create", "/f", "user.a", "x"]), "exists");
    fails(&server.cistern(&["xattr", "set", "--replace", "/f", "user.c", "x"]), "no such attribute");
    let listed: Value = serde_json::from_str(&server.ok(&["xattr", "list", "--json", "/f"])).unwrap();
    assert_eq!(listed["names"], serde_json::json!(["user.a", "user.b"]));
    server.ok(&["xattr", "rm", "/f", "user.a"]);
    fails(&server.cistern(&["xattr", "get", "/f", "user.a"]), "no such attribute");
    assert_eq!(server.cistern(&["xattr", "set", "/f", "user.a"]).status.code(), Some(2), "a value is needed");
}

#[test]
fn a_script_is_done_whole_or_not_at_all_and_its_errors_name_the_line() {
    let server = Server::start();
    let agent = Agent::start(&server, "host");
    let file = server.dir.path().join("index.html");
    fs::write(&file, vec![b'x'; 5_000]).unwrap();
    let script = server.dir.path().join("script");
    let text = format!(
        "# release\nmkdir /site\nput '{}' /site/index\nln -s index /site/now\nsetxattr /site/index user.by 'me & you'\n",
        file.display()
    );
    fs::write(&script, &text).unwrap();
    let done = server.ok(&["batch", "--json", script.to_str().unwrap()]);
    let lines: Vec<u64> = done.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [2, 3, 3, 4, 5]);
    assert_eq!(server.ok(&["cat", "/site/now"]).len(), 5_000);
    assert_eq!(server.ok(&["xattr", "get", "/site/index", "user.by"]), "me & you");
    let failed = fed(&server, &["batch"], b"write /site/index new\n\nmkdir /site/index\n");
    fails(&failed, "-: line 3: /site/index: file exists");
    assert_eq!(server.ok(&["cat", "/site/index"]).len(), 5_000, "nothing was changed");
    let seen = version(&server, "/site/index");
    let guarded = |version: u64| format!("if-version {version} /site/index\nmv /site/index /site/old\nwrite /site/index new\n");
    fails(&fed(&server, &["batch"], guarded(seen + 1).as_bytes()), "nothing was changed");
    let mut through = command(CISTERN, &["batch", "--agent", agent.socket()]).stdin(Stdio::piped()).spawn().unwrap();
    through.stdin.take().unwrap().write_all(guarded(seen).as_bytes()).unwrap();
    assert!(through.wait().unwrap().success());
    assert_eq!(server.ok(&["cat", "/site/now"]), "new");
    let wrong = fed(&server, &["batch"], b"mkdir /a\nfrobnicate /a\n");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("line 2: frobnicate"), "{}", said(&wrong));
    assert!(!server.ok(&["ls", "/"]).contains("a\n"));
}
