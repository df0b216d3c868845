//! Rights in realms, as an operator gives and withdraws them, and whose they are who need no key.

use cistern_testkit::{Server, eventually, said};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::process::Output;

fn refused(output: &Output, why: &str) {
    assert!(!output.status.success() && said(output).contains(why), "{}", said(output));
}

/// What the operator is told of one agent.
fn row(server: &Server, name: &str) -> Value {
    let told = server.ok(&["admin", "agents", "--json", "--control", server.control().to_str().unwrap()]);
    let mut rows = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {told}"))
}

#[test]
fn guests_may_do_what_they_were_given_in_each_realm_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    fs::write(&file, "").unwrap();
    let mut server = Server::durable(&["--lease", "1s", "--config", file.to_str().unwrap()]);
    let admin =
        |server: &Server, args: &[&str]| server.cistern(&[&["admin"], args, &["--control", server.control().to_str().unwrap()]].concat());
    for args in [&["realm", "make", "/team"][..], &["mkdir", "/private"], &["touch", "/team/f", "/private/f"]] {
        server.ok(args);
    }
    let told = server.ok(&["realm", "stat", "/team", "--json"]);
    let realm = serde_json::from_str::<Value>(&told).unwrap()["realm"].to_string();
    for args in [&["add", "guests"][..], &["grant", "guests", &format!("{realm}=rwl")], &["add", "others", "--operator"]] {
        let output = admin(&server, args);
        assert!(output.status.success(), "{}", said(&output));
    }
    refused(&admin(&server, &["add", "guests"]), "the name or the key is taken");
    refused(&admin(&server, &["grant", "nobody", "1=r"]), "no agent is called");
    refused(&admin(&server, &["grant", "guests", "4711=r"]), "no such realm");
    let number = row(&server, "guests")["number"].to_string();
    fs::write(&file, format!("[server]\nplain-principal = {number}\n")).unwrap();
    eventually("who comes is a guest", || {
        server.process.signal(Signal::SIGHUP);
        (!server.cistern(&["ls", "/private"]).status.success()).then_some(())
    });
    // Rights, and whose they are, outlive a restart.
    for start in 0..2 {
        if start == 1 {
            server.process.kill();
            server.start_again();
        }
        server.ok(&["touch", "/team/f", &format!("/team/{start}")]);
        refused(&server.cistern(&["ls", "/"]), "permission denied");
        refused(&server.cistern(&["ls", "/private"]), "permission denied");
        refused(&server.cistern(&["touch", "/g"]), "permission denied");
        refused(&server.cistern(&["realm", "make", "/team/own"]), "permission denied");
        refused(&server.cistern(&["realm", "quota", "/team", "--objects", "9"]), "operation not permitted");
    }
    let rights = json!([{ "realm": realm.parse::<u32>().unwrap(), "rights": "rwl" }]);
    assert_eq!(row(&server, "guests")["rights"], rights);
    assert!(admin(&server, &["quota", "guests", "--objects", "2", "--bytes", "1K"]).status.success());
    refused(&server.cistern(&["touch", "/team/2"]), "quota: 2 of 2 objects of the agent that made it are used");
    let told = row(&server, "guests");
    assert_eq!([&told["objects"], &told["objects_max"], &told["bytes_max"]], [&json!(2), &json!(2), &json!(1024)]);
    assert!(admin(&server, &["grant", "guests", &format!("{realm}=r")]).status.success());
    refused(&server.cistern(&["touch", "/team/2"]), "permission denied");
    server.ok(&["ls", "/team"]);
    assert!(admin(&server, &["rename", "guests", "visitors"]).status.success());
    assert!(admin(&server, &["revoke", "visitors"]).status.success());
    refused(&server.cistern(&["ls", "/team"]), "stale object");
    let row = row(&server, "visitors");
    assert_eq!((&row["revoked"], &row["rights"]), (&json!(true), &json!([])));
    assert_eq!(server.process.end(), Some(0));
}
