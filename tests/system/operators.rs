//! Operators at work from elsewhere: by their keys, over the wire, in the control socket's language.

use super::sealed::{Sealed, refused};
use cistern_testkit::{CISTERN, Server, command, eventually, said};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

impl Sealed {
    /// A command of the user whose key `cisternd init` has made, on a host where no server's socket is.
    fn operator(&self, args: &[&str]) -> Command {
        let mut command = self.plain(args);
        command.env_remove("CISTERN_CONTROL").env_remove("CISTERN_INSECURE").env("XDG_CONFIG_HOME", self.path("config"));
        command.env("XDG_RUNTIME_DIR", self.path("elsewhere")).env("XDG_STATE_HOME", self.path("elsewhere"));
        command
    }

    fn operates(&self, args: &[&str]) -> String {
        let output = self.operator(&[&["admin"], args].concat()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command of the user of a key, by name of its file.
    fn asks_as(&self, key: &str, args: &[&str]) -> Output {
        let address = self.address.to_string();
        let admin = [&["admin"], args, &["--server", &address]].concat();
        self.prepared(key, &admin).env_remove("CISTERN_CONTROL").output().unwrap()
    }
}

/// What of the agents does not change from one question to the next.
fn names(agents: &str) -> Vec<(Value, Value, Value)> {
    let rows = agents.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| (row["number"].clone(), row["name"].clone(), row["rights"].clone())).collect()
}

#[test]
fn an_operator_does_from_another_host_what_the_control_socket_does() {
    let sealed = Sealed::start();
    let public = sealed.make_key("web");
    sealed.operates(&["add", "web", "--key", &public]);
    sealed.operates(&["grant", "web", "1=rwl"]);
    sealed.ok("web", &["touch", "/f"]);
    assert_eq!(names(&sealed.operates(&["agents", "--json"])), names(&sealed.admin_says(&["agents", "--json"])));
    assert!(sealed.operates(&["agents"]).contains("web") && sealed.operates(&["status"]).contains("serves"));
    // Longer than a datagram.
    let figures = sealed.operates(&["stats", "--json", "--all"]);
    assert!(figures.len() > 10_000 && figures.contains("cistern_sessions"), "{} bytes", figures.len());
    let line = sealed.operates(&["invite", "late"]);
    assert!(line.starts_with("cistern-invite-1."), "{line}");
    assert!(sealed.admin_says(&["invite", "--list"]).contains("late"));
    sealed.operates(&["invite", "--withdraw", "late"]);
    sealed.operates(&["rename", "web", "web-1"]);
    refused(&sealed.operator(&["admin", "rename", "web", "x"]).output().unwrap(), 1, "no agent is called \"web\"");
    sealed.operates(&["revoke", "web-1"]);
    refused(&sealed.prepared("web", &["ls", "/"]).output().unwrap(), 69, "revoked");
    let copy = sealed.key("copy");
    refused(&sealed.operator(&["admin", "backup", &copy]).output().unwrap(), 1, "on its host");
    assert!(fs::metadata(&copy).is_err());
}

#[test]
fn a_host_that_runs_a_command_is_evicted_from_elsewhere() {
    let sealed = Sealed::start();
    sealed.admit("web");
    sealed.ok("web", &["touch", "/f"]);
    let mut held = sealed.prepared("web", &["lock", "/f", "--", "sleep", "60"]).spawn().unwrap();
    let agent = eventually("the lock is held", || {
        let told = sealed.operates(&["sessions", "--json"]);
        let mut rows = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.find(|row| row["locks"] != 0).map(|row| row["agent"].as_str().unwrap().to_owned())
    });
    let told = sealed.operates(&["evict", &agent]);
    assert!(told.contains(&agent) && told.contains("is evicted"), "{told}");
    assert!(!held.wait().unwrap().success());
}

#[test]
fn who_is_no_operator_gets_nothing_and_who_was_one_no_more() {
    let sealed = Sealed::start();
    sealed.admit("web");
    refused(&sealed.asks_as("web", &["agents"]), 1, "the key of an operator");
    refused(&sealed.asks_as("web", &["revoke", "operator"]), 1, "the key of an operator");
    let public = sealed.make_key("ops");
    sealed.admin(&["add", "ops", "--operator", "--key", &public]);
    let told = sealed.asks_as("ops", &["agents"]);
    assert!(told.status.success(), "{}", said(&told));
    // It has no right in any realm.
    refused(&sealed.prepared("ops", &["ls", "/"]).output().unwrap(), 1, "stale object");
    sealed.admin(&["revoke", "ops"]);
    refused(&sealed.asks_as("ops", &["agents"]), 69, "revoked");
    // In clear nobody is an operator.
    let server = Server::start();
    let output = command(CISTERN, &["admin", "agents", "--server", &server.address.to_string()]).output().unwrap();
    refused(&output, 1, "that takes a sealed session");
}

#[test]
fn the_log_tells_which_operator_gave_which_line_and_no_secret() {
    let sealed = Sealed::logging();
    let line = sealed.operates(&["invite", "late"]);
    let near =
        sealed.operator(&["admin", "invite", "near", "--control", sealed.server.ready["control"].as_str().unwrap()]).output().unwrap();
    assert!(near.status.success(), "{}", said(&near));
    sealed.operates(&["agents"]);
    refused(&sealed.operator(&["admin", "grant", "nobody", "1=r"]).output().unwrap(), 1, "nobody");
    let log = eventually("both are in the log", || {
        let log = fs::read_to_string(sealed.path("server.log")).unwrap();
        (log.matches(r#""op":"invite""#).count() == 2).then_some(log)
    });
    let from_elsewhere = log.lines().find(|line| line.contains(r#""name":"late""#)).unwrap();
    assert!(from_elsewhere.contains("operator \"") && from_elsewhere.contains("principal"), "{from_elsewhere}");
    assert!(log.lines().any(|line| line.contains("control socket:") && line.contains(r#""name":"near""#)), "{log}");
    assert!(log.contains("refused: {\"name\":\"nobody\"") && !log.contains(r#""op":"agents""#), "{log}");
    let secret = &line.trim()["cistern-invite-1.".len()..];
    assert!(!log.contains("secret") && !log.contains(&secret[secret.len() - 30..]), "{log}");
}
