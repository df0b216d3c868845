//! Whole-system tests of a group of servers on three etcds: who serves is killed, stopped, asked to hand over, restarted; holders keep their locks.

use cistern_testkit::{CISTERN, Etcds, GroupHolder, PATIENCE, ServerGroup, command, eventually, said};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;

/// A lease that outlasts a take-over on a machine that has much else to do.
const LEASE: [&str; 2] = ["--lease", "10s"];

fn admin(group: &ServerGroup, server: usize, args: &[&str]) -> Output {
    let control = group.control(server);
    let args = [&["admin"], args, &["--control", control.to_str().unwrap()]].concat();
    command(CISTERN, &args).output().unwrap()
}

#[test]
fn a_standby_takes_over_from_a_killed_server_and_no_holder_is_stopped() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let mut group = ServerGroup::start(&etcds, 3, &LEASE);
    let first = group.serving(&[]);
    let text = group.dir().join("text");
    fs::write(&text, "before").unwrap();
    group.ok(&["put", text.to_str().unwrap(), "/file"]);
    let mut holder = group.holder("/job");
    let token = holder.goes_on();
    group.kill(first);
    let second = group.serving(&[first]);
    assert_eq!(holder.goes_on(), token);
    // The holder's lease is renewed every 6 s by itself: it is there because it was called.
    let called = group.status(second)["messages_out"]["HINT"].as_u64();
    assert!(called >= Some(1), "{called:?}");
    assert_eq!(group.ok(&["cat", "/file"]), "before");
    group.ok(&["lock", "/other", "--wait", "30s", "--", "true"]);
    // Who was killed comes back as a standby, and takes over in its turn.
    group.start_server(first);
    group.takes_part(first);
    group.kill(second);
    group.serving(&[second]);
    assert_eq!(holder.goes_on(), token);
    drop(holder);
    let next = group.ok(&["lock", "/job", "--wait", "60s", "--", "sh", "-c", "echo $CISTERN_TOKEN"]);
    assert!(next.trim().parse::<u64>().unwrap() > token, "tokens grow over servers");
}

/// What is fetched from a server's HTTP port.
fn fetch(group: &ServerGroup, server: usize, path: &str) -> String {
    let address = group.server(server).ready["http"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn users_see_who_serves_and_a_standby_tells_of_the_group_by_http() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let mut group = ServerGroup::start(&etcds, 3, &["--http", "127.0.0.1:0"]);
    let first = group.serving(&[]);
    let standby = (first + 1) % 3;
    (0..3).for_each(|server| group.takes_part(server));
    eventually("all have heard each other", || {
        let status = group.ok(&["status"]);
        let shows = |server: usize, how: &str| status.contains(&format!("{}, {how}", group.name(server)));
        (shows(first, "serves") && (0..3).filter(|server| *server != first).all(|server| shows(server, "stands by, heard "))).then_some(())
    });
    let told: Value = serde_json::from_str(&group.ok(&["status", "--json"])).unwrap();
    let serving: Vec<_> = told["group"].as_array().unwrap().iter().map(|server| server["serves"] == true).collect();
    assert_eq!(serving, (0..3).map(|server| server == first).collect::<Vec<_>>());
    for (server, serves) in [(first, 1), (standby, 0)] {
        let figures = fetch(&group, server, "/metrics");
        assert!(figures.starts_with("HTTP/1.1 200 OK") && figures.contains(&format!("\ncistern_serving {serves}\n")), "{figures}");
        assert!(figures.contains("\ncistern_group_servers 3\n") && figures.contains("\ncistern_group_lease_known 1\n"), "{figures}");
        assert_eq!(figures.matches("\ncistern_group_heard_seconds{member=").count(), 2, "{figures}");
    }
    let page = fetch(&group, standby, "/overview.json");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    let shown: Value = serde_json::from_str(body).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!((shown["state"].as_str(), shown["group"]["serves"].as_str()), (Some("standby"), Some(&*format!("member {}", first + 1))));
    group.kill(first);
    let second = group.serving(&[first]);
    eventually("the next one is shown to serve", || {
        group.ok(&["status"]).contains(&format!("{}, serves", group.name(second))).then_some(())
    });
}

#[test]
fn a_server_that_stood_still_is_replaced_and_stands_by_when_it_goes_on() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let group = ServerGroup::start(&etcds, 3, &LEASE);
    let first = group.serving(&[]);
    let mut holder = group.holder("/job");
    let token = holder.goes_on();
    group.pause(first, true);
    let second = group.serving(&[first]);
    assert_eq!(holder.goes_on(), token);
    group.pause(first, false);
    eventually("it stands by", || (group.status(first)["group"]["role"] == "standby").then_some(()));
    let shown = group.status(first);
    assert_eq!((shown["group"]["serves"].as_str(), shown["serving"].as_bool()), (Some(group.name(second)), Some(false)));
    let refused = admin(&group, first, &["sessions"]);
    assert!(refused.status.code() == Some(69) && said(&refused).contains("stands by"), "{}", said(&refused));
    group.ok(&["lock", "/other", "--wait", "30s", "--", "true"]);
    assert_eq!((holder.goes_on(), group.serves(second)), (token, true));
}

#[test]
fn servers_with_a_key_each_take_over_from_each_other_and_their_agents_follow() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let mut group = ServerGroup::sealed(&etcds, 3, &LEASE);
    let first = group.serving(&[]);
    let mut holder = group.holder("/job");
    let token = holder.goes_on();
    group.kill(first);
    let second = group.serving(&[first]);
    assert_eq!(holder.goes_on(), token);
    group.start_server(first);
    group.takes_part(first);
    group.kill(second);
    let third = group.serving(&[second]);
    assert_eq!(holder.goes_on(), token);
    group.ok(&["lock", "/other", "--wait", "30s", "--", "true"]);
    assert!(group.status(third)["group"]["members"].as_array().unwrap().iter().all(|member| member["trouble"].is_null()));
}

#[test]
fn in_a_rolling_restart_no_command_is_stopped() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    let mut group = ServerGroup::start(&etcds, 3, &LEASE);
    let first = group.serving(&[]);
    let mut holders: Vec<(GroupHolder, u64)> = (0..8)
        .map(|host| {
            let mut holder = group.holder(&format!("/job-{host}"));
            let token = holder.goes_on();
            (holder, token)
        })
        .collect();
    for standby in (0..3).filter(|server| *server != first) {
        assert_eq!(group.end(standby), Some(0));
        group.start_server(standby);
        group.takes_part(standby);
    }
    let to = (first + 1) % 3;
    let named = group.name(to).to_owned();
    // Before it has heard of a renewal it has nothing to take over.
    eventually("the other one knows who serves", || (group.status(to)["group"]["serves"] == group.name(first)).then_some(()));
    eventually("it hands over", || {
        // It refuses as long as it has not heard of the other one, which has just started.
        let done = admin(&group, first, &["hand-over", "--to", &named]);
        done.status.success().then_some(())
    });
    assert_eq!(group.serving(&[first]), to);
    assert_eq!(group.end(first), Some(0));
    group.start_server(first);
    group.takes_part(first);
    // Who serves may be asked to end as it is: it hands over first.
    assert_eq!(group.end(to), Some(0));
    group.serving(&[to]);
    for (holder, token) in &mut holders {
        assert_eq!(holder.goes_on(), *token);
    }
}

#[test]
fn a_server_is_added_and_the_one_that_served_is_removed_while_commands_run() {
    let Some(etcds) = Etcds::start(3, &[]) else { return };
    // Long leases: who serves must go on, and each of three take-overs end in time, also on a busy machine.
    let mut group = ServerGroup::sealed_with_a_spare(&etcds, 3, &["--lease", "60s", "--group-lease", "2s"]);
    let (first, spare) = (group.serving(&[]), 3);
    (0..3).for_each(|server| group.takes_part(server));
    let mut holders: Vec<(GroupHolder, u64)> = (0..4)
        .map(|host| {
            let mut holder = group.holder(&format!("/job-{host}"));
            let token = holder.goes_on();
            (holder, token)
        })
        .collect();
    let named = group.names().to_vec();
    let change = |group: &ServerGroup, server: usize, change: &str, of: usize| {
        let done = admin(group, server, &[change, &named[of]]);
        (done.status.code(), said(&done))
    };
    // Who was started before it was added has no part in anything.
    group.start_server(spare);
    eventually("the new one knows that it is none of them", || group.status(spare)["group"]["outside_of"].as_str().map(|_| ()));
    let standby = (first + 1) % 3;
    for (server, changed, of, code, word) in [
        (standby, "add-server", spare, 1, "stands by"),
        (first, "remove-server", spare, 2, "no member"),
        (first, "add-server", standby, 2, "is one of the servers"),
        (first, "remove-server", first, 2, "hand-over"),
    ] {
        let (status, said) = change(&group, server, changed, of);
        assert!(status == Some(code) && said.contains(word), "{changed}: {said}");
    }
    let (status, said) = change(&group, first, "add-server", spare);
    assert!(status == Some(0) && said.contains("list number 2") && said.contains(&named[spare]), "{said}");
    eventually("all have the list", || (0..4).all(|server| group.status(server)["group"]["number"] == 2).then_some(()));
    assert!(group.serves(first), "it went on");
    eventually("it hands over to the new one", || {
        admin(&group, first, &["hand-over", "--to", &named[spare]]).status.success().then_some(())
    });
    let second = group.serving(&[first]);
    eventually("the one that served is removed", || (change(&group, second, "remove-server", first).0 == Some(0)).then_some(()));
    eventually("that one knows", || group.status(first)["group"]["outside_of"].as_str().map(|_| ()));
    assert_eq!(group.end(first), Some(0));
    // Who starts as before, by a list of which one was removed, goes by that of the store.
    assert_eq!(group.end(standby), Some(0));
    group.start_server(standby);
    group.takes_part(standby);
    eventually("it has the list", || (group.status(standby)["group"]["number"] == 3).then_some(()));
    assert!(!group.status(standby)["group"]["group"].as_str().unwrap().contains(&named[first]));
    let second = group.serving(&[first]);
    group.kill(second);
    group.serving(&[first, second]);
    for (holder, token) in &mut holders {
        assert_eq!(holder.goes_on(), *token);
    }
    group.ok(&["lock", "/other", "--wait", "30s", "--", "true"]);
    assert!(!group.ok(&["status"]).contains(&named[first]), "who was removed is not shown");
}

#[test]
fn without_a_quorum_of_etcd_who_serves_goes_on_and_nobody_takes_over() {
    let Some(mut etcds) = Etcds::start(3, &[]) else { return };
    let mut group = ServerGroup::start(&etcds, 3, &LEASE);
    let first = group.serving(&[]);
    let mut holder = group.holder("/job");
    let token = holder.goes_on();
    for at in 0..2 {
        etcds.kill(at);
    }
    eventually("the standbys notice", || {
        (0..3).filter(|server| *server != first).all(|server| group.log(server).contains("the store does not answer")).then_some(())
    });
    assert_eq!((group.serves(first), holder.goes_on()), (true, token));
    // Nobody can follow now: whoever is elected could not have the store.
    group.kill(first);
    for at in 0..2 {
        etcds.run(at);
    }
    group.serving(&[first]);
    group.ok(&["lock", "/other", "--wait", "60s", "--", "true"]);
}

#[test]
fn what_is_no_group_is_refused() {
    let Some(etcds) = Etcds::start(1, &[]) else { return };
    let store = etcds.store("none");
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let refused = |args: &[&str]| {
        let output = command(cistern_testkit::CISTERND, &[args, &["--insecure", "--state", state]].concat()).output().unwrap();
        (output.status.code(), said(&output))
    };
    for (args, code, word) in [
        (&["--group", "127.0.0.1:0,127.0.0.2:0", "--store", dir.path().to_str().unwrap()][..], 2, "on etcd"),
        (&["--group", "127.0.0.1:1,127.0.0.1:2", "--store", &store], 2, "--me"),
        (&["--group", "127.0.0.1:0", "--store", &store], 66, "there is no store"),
        (&["--group", "a b,c", "--store", &store], 2, "--group"),
    ] {
        let (status, said) = refused(args);
        assert!(status == Some(code) && said.contains(word), "{args:?}: {said}");
    }
}
