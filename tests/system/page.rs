//! The page at the HTTP port: what it tells, to whom, and that names in it are text.

use crate::metrics::exchange;
use crate::relay::Relay;
use cistern_testkit::{Agent, Server, eventually, said};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

fn with_page(names: &[&str]) -> (Server, SocketAddr) {
    let server = Server::with(&[&["--lease", "1s", "--http", "0"], names].concat());
    let address = server.process.ready["http"].as_str().unwrap().parse().unwrap();
    (server, address)
}

/// The head and the body of an answer.
fn get(address: SocketAddr, path: &str, host: &str) -> (String, String) {
    let answer = exchange(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn overview(address: SocketAddr) -> Value {
    let (head, body) = get(address, "/overview.json", "127.0.0.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Type: application/json\r\n"), "{head}");
    serde_json::from_str(&body).unwrap()
}

/// The value of a field in each of a list.
fn all<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|row| row[field].as_str().unwrap()).collect()
}

#[test]
fn who_holds_who_waits_and_the_steps_of_a_failover_are_told() {
    let (server, address) = with_page(&["--http-names"]);
    let relay = Relay::start(server.address);
    let mut a = Agent::by(&server, relay.address, "A");
    let b = Agent::start(&server, "B");
    a.put("/job", "");
    let mut user = a.line();
    let (_, token) = user.lock("/job");
    let mut other = b.line();
    let waiter = thread::spawn(move || (other.lock("/job"), other));
    let seen = eventually("B is shown waiting", || Some(overview(address)).filter(|seen| seen["totals"]["waiting"] == 1));
    assert_eq!((seen["state"].as_str(), seen["named"].as_bool()), (Some("serving"), Some(true)));
    assert_eq!(all(&seen["sessions"], "label"), ["B", "A"], "who waits comes first");
    let lock = &seen["locks"][0];
    assert_eq!((lock["path"].as_str(), lock["waiters"].as_u64()), (Some("/job"), Some(1)));
    assert_eq!((all(&lock["users"], "label"), all(&lock["users"], "state")), (vec!["A", "B"], vec!["holds", "waits"]));
    assert_eq!(lock["users"][0]["token"].as_u64(), Some(token));
    assert!(lock["users"][0]["bound_ms"].as_u64().unwrap() > 1_000, "how long B waits at most if A is gone");
    relay.cut();
    let seen = eventually("A is shown timing out", || Some(overview(address)).filter(|seen| seen["totals"]["timing_out"] == 1));
    assert_eq!(seen["sessions"][0]["standing"], "timing out");
    assert_eq!((&seen["failovers"][0]["label"], &seen["failovers"][0]["end"]), (&json!("A"), &Value::Null));
    let (_, _other) = waiter.join().unwrap();
    // A second look may be answered by the first one for a while.
    let seen = eventually("its end is shown", || Some(overview(address)).filter(|seen| seen["failovers"][0]["freed_ms"].is_u64()));
    let failover = &seen["failovers"][0];
    let ms = |field: &str| failover[field].as_u64().unwrap();
    assert_eq!(failover["end"], "waited");
    assert!(ms("wait_ms") <= ms("ended_ms") && ms("ended_ms") <= ms("freed_ms"), "{failover}");
}

#[test]
fn without_leave_nothing_is_named_and_ids_are_never_told() {
    for (names, named) in [(&[][..], false), (&["--http-names"], true)] {
        let (server, address) = with_page(names);
        let mut a = Agent::start(&server, "label-of-A");
        a.put("/name-of-file", "");
        let mut user = a.line();
        user.lock("/name-of-file");
        let seen = eventually("the lock is shown", || Some(overview(address)).filter(|seen| !seen["locks"][0].is_null()));
        let text = seen.to_string();
        for name in ["label-of-A", "name-of-file", "127.0.0.1:"] {
            assert_eq!(text.contains(name), named, "{name} in {text}");
        }
        let control = server.control().to_str().unwrap();
        let sessions: Value =
            serde_json::from_str(server.ok(&["admin", "sessions", "--json", "--control", control]).lines().next().unwrap()).unwrap();
        for id in ["session", "agent"] {
            let id = sessions[id].as_str().or_else(|| sessions[0][id].as_str()).unwrap();
            assert!(!text.contains(id), "who knows it could act in its name: {id} in {text}");
        }
    }
}

#[test]
fn other_web_pages_can_neither_read_nor_frame_the_page() {
    let (_server, address) = with_page(&["--http-names"]);
    for path in ["/", "/page.css", "/page.js", "/overview.json"] {
        let (head, body) = get(address, path, &address.to_string());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !body.is_empty(), "{head}");
        for field in [
            "Content-Security-Policy: default-src 'none'; ",
            "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy: same-origin",
            "nosniff",
        ] {
            assert!(head.contains(field), "{path}: {field} in {head}");
        }
        assert!(!head.contains("Access-Control-Allow-Origin"), "{head}");
        assert!(get(address, path, "evil.example").0.starts_with("HTTP/1.1 421 "));
    }
    let (_, page) = get(address, "/", "localhost");
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("<script>"),
        "nothing from elsewhere, nothing inline"
    );
}

#[test]
fn many_who_look_cost_the_server_two_looks_a_second() {
    let (server, address) = with_page(&[]);
    Agent::start(&server, "A").put("/f", "text");
    let seen: Vec<Value> = (0..40).map(|_| overview(address)).collect();
    let moments: std::collections::BTreeSet<u64> = seen.iter().map(|seen| seen["uptime_ms"].as_u64().unwrap()).collect();
    let (first, last) = (moments.first().unwrap(), moments.last().unwrap());
    assert!(moments.len() as u64 <= 1 + (last - first) / 400, "{moments:?}");
}

/// A browser without a window, if there is one.
fn browser() -> Option<&'static str> {
    let found = ["chromium-headless-shell", "chromium", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        eprintln!("skipped: there is no chromium-headless-shell, chromium or google-chrome");
    }
    found
}

/// What a browser has made of the page after some seconds of its own time.
fn browse(browser: &str, address: SocketAddr, profile: &Path, more: &[&str]) -> String {
    let profile = format!("--user-data-dir={}", profile.display());
    let usual = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--virtual-time-budget=6000",
        &profile,
    ];
    let output = Command::new(browser).args(usual).args(more).arg(format!("http://{address}/")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_browser_shows_the_page_and_takes_names_as_text() {
    let Some(browser) = browser() else { return };
    let (server, address) = with_page(&["--http-names"]);
    let label = "<img src=x onerror=document.title='taken'>";
    let mut a = Agent::start(&server, label);
    a.put("/<script>x\u{202e}y", "");
    let mut user = a.line();
    user.lock("/<script>x\u{202e}y");
    // A token that a number of JavaScript has not.
    let token = (0..).find_map(|n| {
        a.put(&format!("/{n}"), "");
        let (_, token) = user.lock(&format!("/{n}"));
        (token % 10 != 0).then_some(token)
    });
    let token = token.unwrap();
    a.put("/nightly-report", "");
    user.lock("/nightly-report");
    let profile = tempfile::tempdir().unwrap();
    let dom = browse(browser, address, profile.path(), &["--dump-dom"]);
    assert!(dom.contains("data-shown=\"yes\""), "the script has run: {dom}");
    assert!(dom.contains("/nightly-<wbr>report"), "a name breaks between its parts: {dom}");
    let dom = dom.replace("<wbr>", "");
    assert!(dom.contains("&lt;img src=x onerror") && !dom.contains("<img"), "{dom}");
    assert!(dom.contains("/&lt;script&gt;x\\u{202e}y") && dom.contains("<title>Cistern</title>"), "{dom}");
    assert!(dom.contains(&format!(">{token}<")), "all digits of {token}: {dom}");
    assert!(dom.contains("<polyline points=\"") && dom.contains("serving"), "{dom}");
    // The pictures of the manual: CISTERN_PICTURES=DIR keeps them.
    let Some(dir) = std::env::var_os("CISTERN_PICTURES") else { return };
    drop(user);
    picture(browser, Path::new(&dir), profile.path());
}

/// A minute in the life of a server, photographed in light, dark, and on a phone.
fn picture(browser: &str, dir: &Path, profile: &Path) {
    let (server, address) = with_page(&["--http-names"]);
    let relay = Relay::start(server.address);
    let mut agents: Vec<Agent> = ["web1", "web2", "db1"].map(|label| Agent::start(&server, label)).into();
    let lost = Agent::by(&server, relay.address, "batch7");
    agents[0].ok(json!({ "op": "mkdir", "path": "/jobs", "mode": "0755" }));
    for path in ["/jobs/nightly", "/jobs/reindex", "/jobs/progress", "/leader"] {
        agents[0].put(path, "");
    }
    let (mut leader, mut reindex) = (agents[2].line(), agents[0].line());
    leader.lock("/leader");
    reindex.lock("/jobs/reindex");
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Relaxed);
    thread::scope(|scope| {
        for (agent, pause_ms) in agents.iter().zip([9, 14, 23]) {
            let mut line = agent.line();
            scope.spawn(move || {
                for n in (1..).take_while(|_| goes_on()) {
                    line.put("/jobs/progress", &n.to_string());
                    // Now and then it has more to do.
                    thread::sleep(Duration::from_millis(if n / 300 % 3 == 1 { pause_ms / 3 } else { pause_ms }));
                }
            });
        }
        let mut standby = agents[1].line();
        scope.spawn(move || {
            while goes_on() {
                let _ = standby.ask(&json!({ "op": "lock", "path": "/leader", "wait_ms": 20_000 }));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                relay.heal();
                let (mut first, mut next) = (lost.line(), agents[1].line());
                first.lock("/jobs/nightly");
                thread::sleep(Duration::from_secs(3));
                relay.cut();
                let (hold, _) = next.lock("/jobs/nightly");
                thread::sleep(Duration::from_secs(25));
                next.unlock(hold);
            }
        });
        photographs(browser, a_second_later(address), dir, profile);
        is_over.store(true, Relaxed);
    });
}

/// The server's page, whose looks are answered a second later: while a browser that photographs waits for an answer its own clock stands still, and else
/// it does not wait. So its seconds are the server's.
fn a_second_later(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move |mut browser: TcpStream| {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match browser.read(&mut byte) {
                Ok(1) => asked.push(byte[0]),
                _ => return,
            }
        }
        if asked.starts_with(b"GET /overview.json ") {
            thread::sleep(Duration::from_secs(1));
        }
        // The browser may have gone.
        let _ = browser.write_all(exchange(server, &asked).as_bytes());
    };
    thread::spawn(move || {
        for browser in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(browser));
        }
    });
    address
}

fn photographs(browser: &str, address: SocketAddr, dir: &Path, profile: &Path) {
    for (name, more) in [
        ("page-light.png", &["--window-size=1100,1200"][..]),
        ("page-dark.png", &["--window-size=1100,1200", "--blink-settings=preferredColorScheme=0"]),
        ("page-phone.png", &["--window-size=390,1900"]),
    ] {
        let file = format!("--screenshot={}", dir.join(name).display());
        browse(browser, address, profile, &[&[file.as_str(), "--virtual-time-budget=45000"], more].concat());
    }
}
