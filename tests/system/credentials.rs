//! Keys and trust on disk, as the commands make and find them.

use cistern_seal::key::Role;
use cistern_testkit::{CISTERN, CISTERND, Daemon, Place, command, eventually, said};
use cistern_trust::{ClusterSecret, Grant, Invite, Pinned, Request, Roster, TextForm as _};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A user of a machine: a home directory, in which everything is.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// With all places of credentials and state in the home, whoever runs the tests.
    fn prepared(&self, program: &str, args: &[&str]) -> Command {
        let mut command = command(program, args);
        command.env_remove("CREDENTIALS_DIRECTORY").env_remove("CISTERN_CREDENTIALS").env("HOME", self.0.path());
        command.env("XDG_CONFIG_HOME", self.path("config")).env("XDG_STATE_HOME", self.path("state"));
        command.current_dir(self.0.path());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        self.prepared(program, args).output().unwrap()
    }

    fn json(&self, program: &str, args: &[&str]) -> Value {
        let output = self.run(program, args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// `cisternd init`, with all files where root, too, would not touch those of the machine.
    fn init(&self, more: &[&str]) -> Output {
        let places = ["init", "--new-cluster", "--json", "--state", "server", "--credentials", "config/cistern"];
        self.run(CISTERND, &[&places[..], more].concat())
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn init_makes_the_credentials_of_a_cluster_once_and_for_this_user_alone() {
    let home = Home::new();
    let first = home.init(&["one"]);
    assert!(first.status.success(), "{}", said(&first));
    let made: Value = serde_json::from_slice(&first.stdout).unwrap();
    let secrets = ["server/server.key", "config/cistern/host.key", "config/cistern/cluster.key"];
    for name in secrets.iter().chain(&["server/cluster.toml", "config/cistern/cluster.toml"]) {
        assert_eq!(mode(&home.path(name)), 0o600, "{name}");
    }
    // What is printed has no secret in it.
    for name in secrets {
        let secret = fs::read_to_string(home.path(name)).unwrap();
        let secret = secret.trim().rsplit('.').next().unwrap().to_owned();
        assert!(!said(&first).contains(&secret[..16]), "{name} was shown");
    }
    let shown = home.json(CISTERN, &["key", "show", "--json"]);
    assert_eq!(shown["public"], made["operator"]);
    assert_eq!(shown["cluster"]["key"], made["cluster"]);
    assert_eq!(shown["cluster"]["servers"][0]["key"], made["server"]);
    assert_eq!(shown["cluster"]["servers"][0]["addresses"][0], "127.0.0.1:7311");
    let keys = secrets.map(|name| fs::read(home.path(name)).unwrap());
    // A second store is one of the same cluster; the first one is not touched.
    let second = home.init(&["two"]);
    let again: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!((&again["cluster"], &again["server"], &again["made"]), (&made["cluster"], &made["server"], &Value::Array(Vec::new())));
    assert_eq!(home.init(&["one"]).status.code(), Some(65));
    assert_eq!(secrets.map(|name| fs::read(home.path(name)).unwrap()), keys);
}

#[test]
fn a_key_that_others_can_read_is_refused_before_a_store_is_made() {
    let home = Home::new();
    assert!(home.init(&["one"]).status.success());
    fs::set_permissions(home.path("server/server.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = home.init(&["two"]);
    let told = said(&refused);
    assert!(refused.status.code() == Some(1) && told.contains("server.key") && told.contains("chmod"), "{told}");
    assert!(!home.path("two").exists());
    fs::set_permissions(home.path("config/cistern/host.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = home.run(CISTERN, &["key", "show"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("host.key"), "{}", said(&refused));
}

#[test]
fn a_key_is_made_where_it_is_asked_for_and_found_by_name() {
    let home = Home::new();
    let file = home.path("web-1.key");
    let file = file.to_str().unwrap();
    let made = home.json(CISTERN, &["key", "new", file, "--json"]);
    let again = home.run(CISTERN, &["key", "new", file]);
    assert!(again.status.code() == Some(1) && said(&again).contains("exists"), "{}", said(&again));
    let shown = home.json(CISTERN, &["key", "show", file, "--json"]);
    assert_eq!((&shown["public"], &shown["fingerprint"], &shown["cluster"]), (&made["public"], &made["fingerprint"], &Value::Null));
    // As systemd passes it.
    fs::create_dir(home.path("creds")).unwrap();
    fs::rename(file, home.path("creds/cistern.host.key")).unwrap();
    let shown = home.prepared(CISTERN, &["key", "show", "--json"]).env("CREDENTIALS_DIRECTORY", home.path("creds")).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&shown.stdout).unwrap()["public"], made["public"]);
}

#[test]
fn a_host_joins_by_files() {
    let home = Home::new();
    // Its key beforehand, for root's is not in its home.
    fs::create_dir_all(home.path("config/cistern")).unwrap();
    home.json(CISTERN, &["key", "new", "config/cistern/host.key", "--json"]);
    let asked = home.run(CISTERN, &["join", "--request", "--label", "web-1"]);
    assert!(asked.status.success(), "{}", said(&asked));
    let request = Request::from_text(str::from_utf8(&asked.stdout).unwrap()).unwrap();
    assert_eq!(request.label.as_str(), "web-1");
    let secret = ClusterSecret::from_seed([3; 32]);
    let grant = |key| {
        let roster = Roster::first(other_key(), vec!["10.0.0.1:7311".parse().unwrap()]).sign(&secret).unwrap();
        let pinned = Pinned::new(secret.public(), roster.as_bytes()).unwrap();
        Grant { key, principal: 7, name: request.label.clone(), pinned }.to_text().to_string()
    };
    fs::write(home.path("grant"), grant(other_key())).unwrap();
    let refused = home.run(CISTERN, &["join", "--grant", "grant"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("another key"), "{}", said(&refused));
    assert!(!home.path("config/cistern/cluster.toml").exists());
    fs::write(home.path("grant"), grant(request.key)).unwrap();
    for _ in 0..2 {
        let taken = home.json(CISTERN, &["join", "--grant", "grant", "--json"]);
        assert_eq!((&taken["name"], &taken["cluster"]), (&"web-1".into(), &secret.public().to_string().into()));
    }
    assert_eq!(home.json(CISTERN, &["key", "show", "--json"])["cluster"]["servers"][0]["addresses"][0], "10.0.0.1:7311");
    let text = fs::read_to_string(home.path("grant")).unwrap();
    fs::write(home.path("grant"), text.replacen('A', "B", 1)).unwrap();
    assert_eq!(home.run(CISTERN, &["join", "--grant", "grant"]).status.code(), Some(1));
}

fn other_key() -> cistern_seal::PublicKey {
    cistern_seal::PublicKey::from_bytes([9; 32])
}

#[test]
fn invites_and_revocations_outlive_the_server_and_no_backup_takes_them_along_or_back() {
    let home = Home::new();
    assert!(home.init(&["store"]).status.success());
    let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
    let (state, stores) = (path("server"), path(""));
    let serve = |store: &str| {
        let store = format!("{stores}/{store}");
        Daemon::start(&Place::default(), CISTERND, &["--state", &state, "--store", &store, "--listen", "127.0.0.1:0", "--json"])
    };
    let socket = path("server/control.sock");
    let admin = |args: &[&str]| home.run(CISTERN, &[&["admin"], args, &["--control", &socket]].concat());
    let done = |args: &[&str]| {
        let output = admin(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let server = serve("store");
    let line = done(&["invite", "web"]);
    let invite = Invite::from_text(&line).unwrap();
    let shown = home.json(CISTERN, &["key", "show", "--json"]);
    assert_eq!(invite.servers[0].0.to_text(Role::Server), shown["cluster"]["servers"][0]["key"].as_str().unwrap());
    assert_eq!(invite.servers[0].1.as_str(), "127.0.0.1:7311");
    assert_eq!(admin(&["invite", "--rights", "77=r", "db"]).status.code(), Some(1));
    // A host without a network.
    let host = Home::new();
    fs::create_dir_all(host.path("config/cistern")).unwrap();
    host.json(CISTERN, &["key", "new", "config/cistern/host.key", "--json"]);
    fs::write(home.path("request"), host.run(CISTERN, &["join", "--request", "--label", "web-1"]).stdout).unwrap();
    let grant = done(&["admit", &path("request")]);
    assert_eq!(done(&["admit", "--name", "other", &path("request")]), grant, "the same key is answered alike again");
    // Another one that calls itself so, too.
    let twin = Home::new();
    fs::create_dir_all(twin.path("config/cistern")).unwrap();
    twin.json(CISTERN, &["key", "new", "config/cistern/host.key", "--json"]);
    fs::write(home.path("twin"), twin.run(CISTERN, &["join", "--request", "--label", "web-1"]).stdout).unwrap();
    let refused = admin(&["admit", &path("twin")]);
    let why = said(&refused);
    assert!(refused.status.code() == Some(1) && why.contains("another host") && why.contains("--name"), "{why}");
    done(&["admit", "--name", "web-2", &path("twin")]);
    fs::write(host.path("grant"), &grant).unwrap();
    assert_eq!(host.json(CISTERN, &["join", "--grant", "grant", "--json"])["name"], "web-1");
    done(&["backup", &path("early")]);
    done(&["revoke", "web-1"]);
    let log = fs::read_to_string(home.path("server/revoked.log")).unwrap();
    assert!(log.lines().count() == 1 && mode(&home.path("server/revoked.log")) == 0o600, "{log}");
    assert_eq!(admin(&["admit", &path("request")]).status.code(), Some(1), "it was revoked for ever");
    drop(server);
    let server = serve("store");
    assert!(done(&["invite", "--list"]).contains("web"), "{line}");
    drop(server);
    // The backup is older than the revocation, and has no invites.
    assert!(home.run(CISTERND, &["restore", "early", "again"]).status.success());
    let server = serve("again");
    assert_eq!(done(&["invite", "--list"]).trim(), "");
    assert_eq!(admin(&["admit", &path("request")]).status.code(), Some(1), "a restore revives no key");
    drop(server);
    // The log was lost, and the store has it.
    fs::remove_file(home.path("server/revoked.log")).unwrap();
    drop(serve("again"));
    let again = fs::read_to_string(home.path("server/revoked.log")).unwrap();
    assert_eq!(again.split_whitespace().nth(1), log.split_whitespace().nth(1));
    // Nothing is served beside a damaged one.
    fs::write(home.path("server/revoked.log"), "10 nobody\n").unwrap();
    let refused = home.run(CISTERND, &["--state", "server", "--store", "again", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success() && said(&refused).contains("line 1 is damaged"), "{}", said(&refused));
}

#[test]
fn a_server_s_key_is_followed_by_another_which_a_host_that_slept_learns_from_a_line() {
    let home = Home::new();
    assert!(home.init(&["store"]).status.success());
    let line = |home: &Home| String::from_utf8(home.run(CISTERN, &["trust"]).stdout).unwrap();
    let first = line(&home);
    let key = |args: &[&str]| {
        let places = ["--state", "server", "--credentials", "config/cistern", "--json"];
        home.run(CISTERND, &[&["server-key"], args, &places].concat())
    };
    assert_eq!(key(&["retire"]).status.code(), Some(1), "no key follows");
    let rotated = key(&["rotate"]);
    assert!(rotated.status.success(), "{}", said(&rotated));
    let retired = key(&["retire"]);
    let retired: Value = serde_json::from_slice(&retired.stdout).unwrap();
    let shown = home.json(CISTERN, &["key", "show", "--json"]);
    assert_eq!(shown["cluster"]["roster"], 3);
    assert_eq!(shown["cluster"]["servers"][1]["key"], retired["key"]);
    assert_eq!(mode(&home.path("server/server.key")), 0o600);
    // A host that knows the first roster alone.
    let host = Home::new();
    fs::create_dir_all(host.path("config/cistern")).unwrap();
    host.json(CISTERN, &["key", "new", "config/cistern/host.key", "--json"]);
    assert_eq!(host.run(CISTERN, &["trust"]).status.code(), Some(1), "it trusts nobody");
    let take = |line: &str, more: &[&str]| host.run(CISTERN, &[&["trust", line.trim(), "--json"], more].concat());
    for (line, taken) in [(&first, true), (&line(&home), true), (&first, false)] {
        let output = take(line, &[]);
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["taken"], taken, "{}", said(&output));
    }
    assert_eq!(line(&host), line(&home));
    // Another cluster only if that is meant.
    let other = Home::new();
    assert!(other.init(&["store"]).status.success());
    assert_eq!(take(&line(&other), &[]).status.code(), Some(1));
    assert!(take(&line(&other), &["--replace"]).status.success());
    assert_eq!(line(&host), line(&other));
    assert_eq!(take("cistern-trust-1.AAAA", &[]).status.code(), Some(1));
}

#[test]
fn a_revoked_key_stays_revoked_whatever_is_restored_or_lost() {
    let home = Home::new();
    assert!(home.init(&["store"]).status.success());
    let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
    let (state, stores) = (path("server"), path(""));
    let serve = |store: &str| {
        let store = format!("{stores}/{store}");
        Daemon::start(&Place::default(), CISTERND, &["--state", &state, "--store", &store, "--listen", "127.0.0.1:0", "--json"])
    };
    let socket = path("server/control.sock");
    let admin = |args: &[&str]| home.run(CISTERN, &[&["admin"], args, &["--control", &socket]].concat());
    let done = |args: &[&str]| {
        let output = admin(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    };
    let web = || -> Value {
        let listed = home.run(CISTERN, &["admin", "agents", "--json", "--control", &socket]);
        let listed = String::from_utf8(listed.stdout).unwrap();
        let mut rows = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.find(|row| row["name"] == "web").unwrap()
    };
    let server = serve("store");
    let made = home.json(CISTERN, &["key", "new", &path("web.key"), "--json"]);
    let key = made["public"].as_str().unwrap();
    done(&["add", "web", "--key", key]);
    done(&["grant", "web", "1=rw"]);
    assert_eq!(web()["key"], key);
    done(&["backup", &path("early")]);
    done(&["revoke", "web"]);
    let log = fs::read_to_string(home.path("server/revoked.log")).unwrap();
    assert!(log.trim_end().ends_with(key) && mode(&home.path("server/revoked.log")) == 0o600, "{log}");
    drop(server);
    // The backup is older than the revocation.
    assert!(home.run(CISTERND, &["restore", "early", "again"]).status.success());
    let server = serve("again");
    let row = web();
    assert_eq!((row["revoked"].as_bool(), row["rights"].as_array().map(Vec::len)), (Some(true), Some(0)), "{row}");
    assert_eq!(admin(&["add", "other", "--key", key]).status.code(), Some(1), "it is nobody else's either");
    drop(server);
    // The log was lost, and the store has it.
    fs::remove_file(home.path("server/revoked.log")).unwrap();
    drop(serve("again"));
    let again = fs::read_to_string(home.path("server/revoked.log")).unwrap();
    assert!(again.trim_end().ends_with(key), "{again}");
    // Nothing is served beside a damaged one.
    fs::write(home.path("server/revoked.log"), "10 nobody\n").unwrap();
    let refused = home.run(CISTERND, &["--state", "server", "--store", "again", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success() && said(&refused).contains("line 1 is damaged"), "{}", said(&refused));
}

#[test]
fn a_revoked_operator_is_none_after_a_restart_of_a_server_that_keeps_nothing() {
    let home = Home::new();
    assert!(home.init(&["store"]).status.success());
    let (state, socket) = (home.path("server"), home.path("server/control.sock"));
    let serve = || {
        let args = ["--volatile", "--new-cluster", "--listen", "127.0.0.1:0", "--json", "--state", state.to_str().unwrap()];
        Daemon::start(&Place::default(), CISTERND, &args)
    };
    let admin = |args: &[&str]| home.run(CISTERN, &[&["admin"], args, &["--control", socket.to_str().unwrap()]].concat());
    let operators = || {
        let listed = admin(&["agents", "--json"]);
        let rows = str::from_utf8(&listed.stdout).unwrap().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["key"].is_string()).map(|row| (row["operator"] == true, row["revoked"] == true)).collect::<Vec<_>>()
    };
    let server = serve();
    eventually("the first operator is admitted", || (operators() == [(true, false)]).then_some(()));
    assert!(admin(&["revoke", "operator"]).status.success());
    drop(server);
    let _server = serve();
    // What it does at its start it has done when it has answered twice.
    operators();
    assert_eq!(operators(), [(false, true)]);
}
