//! What somebody meets who has just installed Cistern: no flags, no rights, no settings but a file.

use cistern_testkit::{CISTERN, CISTERND, Daemon, Place, Server, command, said};
use nix::unistd::{Gid, Uid, chown, geteuid};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The user `nobody`, as whom the tests run where they are run by root.
const NOBODY: u32 = 65_534;

/// A user without rights, with a home directory of his own and nothing else.
pub(crate) struct User {
    pub(crate) home: TempDir,
    /// Programs that were started, to be ended with the user.
    started: Vec<Daemon>,
}

impl User {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        if geteuid().is_root() {
            chown(home.path(), Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
        }
        Self { home, started: Vec::new() }
    }

    pub(crate) fn prepared(&self, program: &str, args: &[&str]) -> Command {
        let mut command = command(program, args);
        command
            .env_remove("CISTERN_CONFIG")
            .env_remove("CISTERN_CREDENTIALS")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("CISTERN_LOG");
        // Not the directory of whoever is logged in with the same number.
        command.env("HOME", self.home.path()).env("XDG_RUNTIME_DIR", self.home.path().join("run")).current_dir(self.home.path());
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.prepared(CISTERN, args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a program that says in JSON when it is ready.
    fn start(&mut self, program: &str, args: &[&str]) -> serde_json::Value {
        let daemon = Daemon::of(&Place::default(), self.prepared(program, args).arg("--json"));
        let ready = daemon.ready.clone();
        self.started.push(daemon);
        ready
    }

    /// A settings file of the user's, made by him.
    fn settings(&self, text: &str) {
        let dir = self.home.path().join(".config/cistern");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("cistern.toml"), text).unwrap();
    }
}

fn path(value: &serde_json::Value) -> PathBuf {
    value.as_str().unwrap().into()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_plain_user_runs_a_server_and_an_agent_and_names_nothing() {
    let mut user = User::new();
    let server = user.start(CISTERND, &["--volatile", "--new-cluster", "--insecure", "--listen", "127.0.0.1:0"]);
    let control = path(&server["control"]);
    assert_eq!(control, user.home.path().join("run/cistern/server.sock"));
    assert_eq!(mode(control.parent().unwrap()), 0o700);
    assert_eq!(mode(&user.home.path().join(".local/state/cistern/server")), 0o700);
    // The server's command lines find its socket by themselves.
    assert!(user.ok(&["admin", "stats"]).contains("cistern_"), "figures of the server");
    // The settings file names the server to whoever is told of none.
    user.settings(&format!("[client]\nserver = {}\n", server["listen"][0]));
    user.ok(&["mkdir", "/a"]);
    let nobody = user.run(&["agent", "status"]);
    assert!(nobody.status.code() == Some(69) && said(&nobody).contains("cistern/agent.sock"), "{}", said(&nobody));
    let agent = user.start(CISTERN, &["agent", "run"]);
    assert_eq!(path(&agent["socket"]), user.home.path().join("run/cistern/agent.sock"));
    assert!(user.home.path().join(".local/state/cistern/agent/agent").exists(), "the identity is kept");
    let socket = agent["socket"].as_str().unwrap();
    assert_eq!(user.ok(&["--agent", socket, "ls", "/"]), "a\n");
    assert!(user.ok(&["agent", "status"]).contains("session"), "found where it is by default");
    assert_eq!(user.ok(&["agent", "top", "-n", "2", "-i", "10ms", "--json"]).lines().count(), 2);
    // A flag that is for an agent of the command's own is never without effect.
    assert_eq!(user.run(&["--agent", socket, "ls", "--server", "127.0.0.1:1", "/"]).status.code(), Some(2));
    let own = user
        .prepared(CISTERN, &["--timeout", "200ms", "--server", "127.0.0.1:1", "ls", "/"])
        .env("CISTERN_AGENT", socket)
        .output()
        .unwrap();
    assert!(own.status.code() == Some(69) && said(&own).contains("127.0.0.1:1 "), "{}", said(&own));
    // Options before the command do what they do after it, and the flag wins over the file.
    let other = user.run(&["--timeout", "200ms", "--server", "127.0.0.1:1", "ls", "/"]);
    assert_eq!(other.status.code(), Some(69), "{}", said(&other));
    assert!(String::from_utf8_lossy(&other.stderr).contains("127.0.0.1:1 "), "{}", said(&other));
}

#[test]
fn without_any_word_of_a_server_the_agent_of_the_host_is_asked_if_one_runs() {
    let mut user = User::new();
    let server = user.start(CISTERND, &["--volatile", "--new-cluster", "--insecure", "--listen", "127.0.0.1:0"]);
    let address = server["listen"][0].as_str().unwrap();
    user.start(CISTERN, &["agent", "run", "--server", address]);
    user.ok(&["mkdir", "/a"]);
    user.ok(&["lock", "/a/job", "--", "true"]);
    user.ok(&["ping", "-c", "1"]);
    let sessions = || -> serde_json::Value { serde_json::from_str(&user.ok(&["status", "--json"])).unwrap() };
    assert_eq!(sessions()["sessions"], 1, "nobody had a session of his own");
    // Whoever names a server, or needs an agent of his own, has one.
    let refused = |args: &[&str]| {
        let output = user.run(&[&["ls", "/", "--timeout", "100ms"], args].concat());
        assert_eq!(output.status.code(), Some(69), "{args:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["--server", "127.0.0.1:1"]).contains("127.0.0.1:1 "));
    user.settings("[client]\nserver = \"127.0.0.1:1\"\n");
    assert!(refused(&[]).contains("127.0.0.1:1 "));
    assert!(refused(&["--lease", "1s"]).contains("127.0.0.1:1 "));
    std::fs::remove_dir_all(user.home.path().join(".config")).unwrap();
    // A socket that an agent has left behind is none.
    user.started.pop();
    let socket = user.home.path().join("run/cistern/agent.sock");
    assert!(socket.exists());
    let output = user.run(&["ls", "/", "--timeout", "100ms"]);
    assert!(!said(&output).contains("agent.sock"), "{}", said(&output));
}

#[test]
fn without_any_word_of_a_server_it_is_the_one_on_this_host() {
    let user = User::new();
    let output = user.run(&["ls", "/", "--timeout", "100ms"]);
    // Somebody may run a server there.
    if output.status.code() == Some(69) {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("127.0.0.1:7311") && told.contains("CISTERN_SERVER"), "{told}");
    } else {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn where_no_state_can_be_kept_the_flag_is_named() {
    let user = User::new();
    let file = user.home.path().join(".local");
    std::fs::write(&file, "").unwrap();
    for (program, args) in [(CISTERND, &["--volatile", "--listen", "127.0.0.1:0"][..]), (CISTERN, &["agent", "run"])] {
        let output = user.prepared(program, args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--state DIR"), "{}", said(&output));
        let homeless = user.prepared(program, args).env_remove("HOME").output().unwrap();
        assert!(String::from_utf8_lossy(&homeless.stderr).contains("XDG_STATE_HOME nor HOME"), "{}", said(&homeless));
    }
}

/// An address on which nothing listens.
fn closed_port() -> String {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_closed_port_is_reported_at_once_and_tried_again_quietly() {
    let user = User::new();
    let address = closed_port();
    let mut child = user.prepared(CISTERN, &["ls", "--server", &address, "--timeout", "1h"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(&address) && line.contains("the port is closed"), "{line}");
    assert!(child.try_wait().unwrap().is_none(), "it goes on trying: {line}");
    child.kill().unwrap();
    child.wait().unwrap();
    // Closed and given up are two facts, a line each.
    let output = user.run(&["ls", "--server", &address, "--timeout", "300ms"]);
    assert_eq!(output.status.code(), Some(69));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 2, "{}", said(&output));
}

#[test]
fn commands_that_wait_for_their_turn_report_a_closed_port_at_once_too() {
    let user = User::new();
    let address = closed_port();
    for (args, tries) in [
        (&["lock", "/x", "--timeout", "1h"][..], "trying for 3600 s"),
        (&["lock", "/x", "--wait", "1h"], "trying for 3600 s"),
        (&["member", "join", "/x"], "trying until it is ended"),
    ] {
        let mut command = user.prepared(CISTERN, args);
        command.args(["--server", &address]);
        if args[0] == "lock" {
            command.args(["--", "true"]);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let goes_on = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.contains(&address) && line.contains("the port is closed") && line.contains(tries), "{args:?}: {line}");
        assert!(goes_on, "{args:?}: {line}");
    }
}

#[test]
fn server_metrics_and_commands_take_a_host_name() {
    let mut user = User::new();
    let ready = user.start(CISTERND, &["--volatile", "--new-cluster", "--insecure", "--listen", "localhost:0", "--http", "localhost:0"]);
    let listen = ready["listen"].as_array().unwrap();
    assert!(!listen.is_empty() && ready["http"].is_string(), "{ready}");
    for address in listen {
        let address: std::net::SocketAddr = address.as_str().unwrap().parse().unwrap();
        assert!(address.ip().is_loopback(), "{ready}");
        // The agent tries each address of the name.
        user.ok(&["ls", "/", "--server", &format!("localhost:{}", address.port())]);
        if address.is_ipv4() {
            user.ok(&["ls", "/", "--server", &address.port().to_string()]);
        }
    }
}

#[test]
fn what_is_no_address_is_the_same_error_everywhere() {
    let user = User::new();
    user.settings("[client]\nserver = \"http://meta\"\n");
    for (program, args) in [
        (CISTERND, &["--volatile", "--listen", "http://meta"][..]),
        (CISTERND, &["--volatile", "--insecure", "--listen", "127.0.0.1:0", "--http", "http://meta"]),
        (CISTERND, &["--volatile", "--insecure", "--listen", "127.0.0.1:0", "--http", "localhost"]),
        (CISTERN, &["ls", "--config", "/dev/null", "--server", "http://meta"]),
        (CISTERN, &["ls"]),
    ] {
        let output = user.prepared(program, args).output().unwrap();
        let told = said(&output);
        assert!(output.status.code() == Some(2) && told.contains("host:port") || told.contains("localhost:PORT"), "{args:?}: {told}");
    }
    let unknown = user.run(&["ls", "--config", "/dev/null", "--server", "nowhere.invalid"]);
    assert!(unknown.status.code() == Some(69) && said(&unknown).contains("nowhere.invalid: cannot find the host"), "{}", said(&unknown));
}

#[test]
fn ping_counts_what_was_lost() {
    let user = User::new();
    // Somebody who listens and says nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = user.run(&["ping", "-c", "2", "-i", "1ms", "--timeout", "150ms", "--server", &address]);
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "no answer: seq=1\nno answer: seq=2\n2 sent, 0 answered, 100 % lost\n");
    assert!(output.stderr.is_empty(), "{}", said(&output));
    let server = Server::start();
    let told = server.ok(&["ping", "-c", "2", "-i", "1ms", "--timeout", "20s"]);
    assert!(told.contains("2 sent, 2 answered, 0 % lost, min/median/max "), "{told}");
}

#[test]
fn a_log_level_that_is_none_is_an_error_and_help_names_the_variable() {
    let user = User::new();
    for (program, args, code) in [(CISTERN, &["ls"][..], 2), (CISTERN, &["lock", "/x", "--", "true"], 125), (CISTERND, &["--volatile"], 2)]
    {
        let output = user.prepared(program, args).env("CISTERN_LOG", "inof").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("CISTERN_LOG: \"inof\" is no level"), "{}", said(&output));
    }
    for program in [CISTERN, CISTERND] {
        let help = user.prepared(program, &["--help"]).output().unwrap();
        assert!(String::from_utf8_lossy(&help.stdout).contains("CISTERN_LOG"), "{}", said(&help));
    }
}

/// A failed command's exit status and the object that it printed instead of words.
fn failure_of(output: &Output) -> (i32, serde_json::Value) {
    let told = String::from_utf8_lossy(&output.stderr);
    let mut value: serde_json::Value = serde_json::from_str(told.trim()).unwrap_or_else(|e| panic!("{told}: {e}"));
    (output.status.code().unwrap(), value["error"].take())
}

#[test]
fn a_failed_precondition_has_an_exit_status_of_its_own() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    std::fs::write(&file, "text").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(server.ok(&["put", file, "/f"]), format!("/f: version {}\n", version(&server, "/f")));
    server.ok(&["mkdir", "/d"]);
    assert_eq!(server.ok(&["put", file, "/d/"]), format!("/d/f: version {}\n", version(&server, "/d/f")));
    for args in [
        &["put", file, "/f", "--if-version", "99"][..],
        &["put", file, "/f", "--if-version", "0"],
        &["mv", "-n", "/f", "/d/f"],
        &["xattr", "set", "--replace", "/f", "user.x", "1"],
    ] {
        let output = server.cistern(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {}", said(&output));
    }
    for (script, code) in [("create /f", 3), ("mv -n /f /d/f", 3), ("if-version 99 /f\nmkdir /e", 3), ("mkdir /f", 1), ("rm /none", 1)] {
        let path = dir.path().join("script");
        std::fs::write(&path, script).unwrap();
        let output = server.cistern(&["batch", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", said(&output));
    }
    assert_eq!(server.cistern(&["mkdir", "/f"]).status.code(), Some(1));
}

fn version(server: &Server, path: &str) -> u64 {
    let told: serde_json::Value = serde_json::from_str(&server.ok(&["stat", "--json", path])).unwrap();
    told["attr"]["version"].as_u64().unwrap()
}

#[test]
fn a_batch_error_names_line_and_path_also_when_a_parent_is_missing() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = (dir.path().join("script"), dir.path().join("f"));
    std::fs::write(&file, "text").unwrap();
    let put = format!("mkdir /q\nput {} /zz/c\n", file.display());
    for (text, line, path) in [
        ("mkdir /q\nmkdir /zz/b\n", 2, "/zz/b"),
        ("\ncreate /zz/b", 2, "/zz/b"),
        (&put, 2, "/zz/c"),
        ("mkdir /q\nmkdir /q/r\nmv /q/r /zz/r", 3, "/q/r to /zz/r"),
        ("mkdir /q\nmkdir /q\n", 2, "/q"),
    ] {
        std::fs::write(&script, text).unwrap();
        let output = server.cistern(&["batch", script.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!(": line {line}: {path}: ")), "{text:?}: {told}");
        assert_eq!(output.status.code(), Some(1), "{told}");
    }
    assert_eq!(server.ok(&["ls", "/"]), "");
}

#[test]
fn errors_modes_and_contents_are_json_that_a_program_can_use() {
    let server = Server::start();
    let (code, failure) = failure_of(&server.cistern(&["--json", "rm", "/none"]));
    assert_eq!((code, &failure["code"], &failure["path"], &failure["exit"]), (1, &"ENOENT".into(), &"/none".into(), &1.into()));
    let (code, failure) = failure_of(&server.cistern(&["put", "/no/such/file", "/f", "--json"]));
    assert_eq!((code, &failure["code"]), (1, &"LOCAL".into()));
    assert!(failure["message"].as_str().unwrap().starts_with("local file /no/such/file: "), "{failure}");
    let dir = tempfile::tempdir().unwrap();
    for (bytes, shown) in [(&b"caf\xc3\xa9\n"[..], serde_json::json!("café\n")), (b"\xff\xfe", serde_json::json!({ "b64": "//4=" }))] {
        let file = dir.path().join("f");
        std::fs::write(&file, bytes).unwrap();
        server.ok(&["put", "--mode", "600", file.to_str().unwrap(), "/f"]);
        let told: serde_json::Value = serde_json::from_str(&server.ok(&["cat", "--json", "/f"])).unwrap();
        assert_eq!((&told["data"], &told["attr"]["mode"]), (&shown, &"0600".into()), "{told}");
        server.ok(&["rm", "/f"]);
    }
}

#[test]
fn errors_of_cisternd_and_of_command_lines_are_json_and_quote_no_control_characters() {
    let user = User::new();
    for (program, args, code, exit) in [
        (CISTERND, &["compact", "/none", "--json"][..], "NO_STORE", 66),
        (CISTERND, &["check", "/none", "--json"], "NO_STORE", 66),
        (CISTERND, &["--json"], "USAGE", 2),
        (CISTERN, &["serve", "--json"], "USAGE", 2),
        (CISTERND, &["--json", "--none\u{202e}"], "USAGE", 2),
        (CISTERN, &["ls", "--none\u{202e}", "--json"], "USAGE", 2),
    ] {
        let output = user.prepared(program, args).output().unwrap();
        let (status, failure) = failure_of(&output);
        assert_eq!((status, &failure["code"], &failure["exit"]), (exit, &code.into(), &exit.into()), "{args:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains('\u{202e}'), "{args:?}");
    }
    for program in [CISTERN, CISTERND] {
        let told = user.prepared(program, &["--none\u{202e}\u{7}\u{200b}"]).output().unwrap();
        let text = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.code() == Some(2) && text.contains("--none\\xe2\\x80\\xae") && text.contains("\nUsage: "), "{text}");
        assert!(!text.contains(['\u{202e}', '\u{7}', '\u{200b}']), "{text:?}");
    }
}

#[test]
fn sizes_have_units_and_an_empty_path_names_nothing() {
    let server = Server::start();
    server.ok(&["touch", "/f"]);
    server.ok(&["truncate", "-s", "10K", "/f"]);
    let told: serde_json::Value = serde_json::from_str(&server.ok(&["stat", "--json", "/f"])).unwrap();
    assert_eq!(told["attr"]["size"], 10_240);
    let large = server.cistern(&["truncate", "-s", "10M", "/f"]);
    assert!(large.status.code() == Some(1) && said(&large).contains("1048576"), "{}", said(&large));
    let empty = server.cistern(&["stat", ""]);
    assert!(empty.status.code() == Some(2) && said(&empty).contains("is empty, which names nothing"), "{}", said(&empty));
}
