//! Operators at work from elsewhere: by their keys, over the wire, in the control socket's language.

use super::sealed::{Sealed, refused};
use cistern_testkit::{CISTERN, CISTERND, Server, command, eventually, said};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
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
fn an_operator_elsewhere_makes_a_backup_by_a_plain_name_and_overwrites_none() {
    let sealed = Sealed::backing_up();
    sealed.admit("web");
    sealed.ok("web", &["touch", "/f"]);
    let made = sealed.operates(&["backup", "monday"]);
    let dir = sealed.path("backups/monday");
    assert!(made.contains("records are in") && made.contains(dir.to_str().unwrap()), "{made}");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let checked = command(CISTERND, &["check", dir.to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    let asks = |name: &str| sealed.operator(&["admin", "backup", name]).output().unwrap();
    let before = fs::read_dir(&dir).unwrap().count();
    refused(&asks("monday"), 65, "none is overwritten");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), before);
    for name in ["../store", dir.to_str().unwrap(), ".", ""] {
        refused(&asks(name), 2, "");
    }
    refused(&sealed.asks_as("web", &["backup", "tuesday"]), 1, "the key of an operator");
    // A place that is no directory's is taken, too.
    fs::write(sealed.path("backups/taken"), "").unwrap();
    refused(&asks("taken"), 65, "none is overwritten");
    for n in 2..64 {
        fs::create_dir(sealed.path(&format!("backups/{n}"))).unwrap();
    }
    refused(&asks("tuesday"), 1, "remove some");
    fs::remove_dir(sealed.path("backups/2")).unwrap();
    assert!(asks("tuesday").status.success());
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# An answer to ADMIN MUST NOT show contents, names or locks of objects.
#[test]
fn an_operator_elsewhere_is_shown_no_locks() {
    let sealed = Sealed::start();
    sealed.admit("web");
    sealed.ok("web", &["touch", "/f"]);
    let mut held = sealed.prepared("web", &["lock", "/f", "--", "sleep", "60"]).spawn().unwrap();
    let socket = sealed.server.ready["control"].as_str().unwrap();
    eventually("the lock is shown on the server's host", || {
        let top = sealed.plain(&["top", "--once", "--control", socket]).output().unwrap();
        said(&top).contains("/f").then_some(())
    });
    let top = sealed.operator(&["top", "--once"]).output().unwrap();
    assert!(top.status.success(), "{}", said(&top));
    assert!(!said(&top).contains("/f") && said(&top).contains("shown on the server's host"), "{}", said(&top));
    held.kill().unwrap();
    held.wait().unwrap();
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
fn who_owns_a_realm_grants_rights_there_and_asks_for_nothing_else() {
    let sealed = Sealed::start();
    sealed.admit("owner");
    let other = sealed.make_key("other");
    sealed.operates(&["add", "other", "--key", &other]);
    sealed.ok("owner", &["realm", "make", "/team"]);
    sealed.ok("owner", &["touch", "/team/f"]);
    sealed.operates(&["grant", "owner", "1="]);
    let realm = sealed.admin_says(&["agents", "--json"]);
    let realm = realm.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|row| row["name"] == "owner").unwrap();
    let realm = realm["rights"][0]["realm"].as_u64().unwrap();
    refused(&sealed.prepared("other", &["ls", "/team"]).output().unwrap(), 1, "");
    let [give, more, none] = ["r", "rw", ""].map(|rights| format!("{realm}={rights}"));
    let granted = sealed.asks_as("owner", &["grant", "other", &give]);
    assert!(granted.status.success(), "{}", said(&granted));
    sealed.ok("other", &["ls", "/team"]);
    for (who, args) in [
        ("owner", &["grant", "other", "1=r"][..]),
        ("owner", &["grant", "nobody", "1=r"]),
        ("other", &["grant", "other", &more]),
        ("other", &["grant", "owner", &none]),
        ("other", &["grant", "nobody", &none]),
    ] {
        refused(&sealed.asks_as(who, args), 1, "or who owns the realm");
    }
    refused(&sealed.asks_as("owner", &["grant", "nobody", &give]), 1, "no agent is called");
    for args in [&["agents"][..], &["revoke", "other"], &["evict", "other"], &["backup", "/tmp/copy"]] {
        refused(&sealed.asks_as("owner", args), 1, "the key of an operator");
    }
    let given_up = sealed.asks_as("other", &["grant", "other", &none]);
    assert!(given_up.status.success(), "{}", said(&given_up));
    refused(&sealed.prepared("other", &["ls", "/team"]).output().unwrap(), 1, "");
}

#[test]
fn an_owner_that_gives_and_withdraws_without_end_takes_nothing_from_others_elsewhere() {
    let sealed = Sealed::start();
    for name in ["owner", "victim", "holder"] {
        sealed.admit(name);
    }
    sealed.ok("owner", &["realm", "make", "/team"]);
    sealed.ok("owner", &["touch", "/f", "/g"]);
    let realm = sealed.ok("owner", &["realm", "ls", "--json"]);
    let realms = realm.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["realm"].as_u64().unwrap());
    let realm = realms.max().unwrap();
    let stop = sealed.path("stop");
    let until = format!("until [ -e {} ]; do sleep 0.1; done", stop.display());
    let locks = |who: &str, file: &str, act: &[&str]| sealed.prepared(who, &[&["lock", file, "--"], act].concat()).spawn().unwrap();
    let held = ["holder", "victim"].map(|who| locks(who, if who == "victim" { "/g" } else { "/f" }, &["sh", "-c", &until]));
    let sessions = |what: &str| {
        let told = sealed.admin_says(&["sessions", "--json"]);
        told.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()[what] != 0).count()
    };
    eventually("both are held", || (sessions("locks") >= 2).then_some(()));
    let waits = locks("victim", "/f", &["true"]);
    eventually("one waits", || (sessions("waits") == 1).then_some(()));
    let pairs: Vec<String> = (0..400).map(|n| if n % 2 == 0 { format!("{realm}=rwl") } else { format!("{realm}=") }).collect();
    let line: Vec<&str> = ["grant", "victim"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    for _ in 0..3 {
        let granted = sealed.asks_as("owner", &line);
        assert!(granted.status.success(), "{}", said(&granted));
    }
    assert_eq!(sessions("waits"), 1);
    fs::write(stop, "").unwrap();
    for mut process in held.into_iter().chain([waits]) {
        assert!(process.wait().unwrap().success(), "no lease was lost, and the lock came");
    }
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
