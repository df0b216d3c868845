//! Keys on disk, as the commands make and find them, and what outlives a restore.

use cistern_testkit::{CISTERN, CISTERND, Daemon, Place, command, said};
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
        command.env_remove("CREDENTIALS_DIRECTORY").env("HOME", self.0.path());
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
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
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
    assert_eq!((&shown["public"], &shown["fingerprint"]), (&made["public"], &made["fingerprint"]));
    // As systemd passes it.
    fs::create_dir(home.path("creds")).unwrap();
    fs::rename(file, home.path("creds/cistern.host.key")).unwrap();
    let shown = home.prepared(CISTERN, &["key", "show", "--json"]).env("CREDENTIALS_DIRECTORY", home.path("creds")).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&shown.stdout).unwrap()["public"], made["public"]);
    fs::set_permissions(home.path("creds/cistern.host.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = home.prepared(CISTERN, &["key", "show"]).env("CREDENTIALS_DIRECTORY", home.path("creds")).output().unwrap();
    assert!(refused.status.code() == Some(1) && said(&refused).contains("chmod"), "{}", said(&refused));
}

#[test]
fn a_revoked_key_stays_revoked_whatever_is_restored_or_lost() {
    let home = Home::new();
    assert!(home.run(CISTERND, &["init", "--new-cluster", "store"]).status.success());
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
