//! The HTTP front of the host's agent: calls, locks that last as long as a connection, and who is let in.

use cistern_testkit::{Agent, PATIENCE, Server, eventually};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// An agent with a front.
struct Front {
    agent: Agent,
    address: SocketAddr,
    /// The header of the token's file.
    token: String,
    file: String,
}

impl Front {
    fn start(server: &Server, label: &str) -> Self {
        let agent = Agent::with(server, server.address, label, &["--idle", "eager", "--http", "0"]);
        let ready = &agent.process.ready;
        let (address, file) = (ready["http"].as_str().unwrap().parse().unwrap(), ready["http_token"].as_str().unwrap().to_owned());
        let token = fs::read_to_string(&file).unwrap().trim_end().to_owned();
        Self { agent, address, token, file }
    }

    fn send(&self, path: &str, token: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{token}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// The status and the lines of an answer.
    fn call(&self, body: &str) -> (u16, Vec<Value>) {
        let mut answer = String::new();
        self.send("/v1/call", &self.token, body).read_to_string(&mut answer).unwrap();
        let (head, lines) = answer.split_once("\r\n\r\n").unwrap();
        (status(head), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Begins to hold; the lines that follow.
    fn hold(&self, body: &str) -> BufReader<TcpStream> {
        let mut stream = self.send("/v1/hold", &self.token, body);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert_eq!(status(&line), 200, "{line}");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        stream
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn next(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
}

#[test]
fn calls_are_those_of_the_socket_and_their_status_tells_whether_they_were_carried_out() {
    let server = Server::start();
    let front = Front::start(&server, "A");
    let (status, lines) = front.call("{\"op\":\"put\",\"path\":\"/f\",\"data\":\"text\"}\n{\"op\":\"read\",\"path\":\"/f\",\"id\":9}");
    assert_eq!((status, lines.len(), &lines[0]["id"]), (200, 2, &json!(1)), "{lines:?}");
    assert_eq!((&lines[1]["id"], &lines[1]["ok"]["data"]["data"]), (&json!(9), &json!("text")));
    let (status, lines) = front.call("{\"op\":\"stat\",\"path\":\"/nobody\",\"follow\":true}");
    assert_eq!((status, &lines[0]["error"]["code"]), (422, &json!("ENOENT")));
    let (status, _) = front.call("{\"op\":\"no such\"}");
    assert_eq!(status, 422);
    assert_eq!(front.call("not json").0, 400);
    // As large as contents may be.
    let large = json!({ "op": "put", "path": "/large", "data": "x".repeat(1 << 20) }).to_string();
    assert_eq!(front.call(&large).0, 200);
    assert_eq!(front.call("{\"op\":\"read\",\"path\":\"/large\"}").1[0]["ok"]["data"]["data"].as_str().unwrap().len(), 1 << 20);
}

#[test]
fn a_lock_is_held_as_long_as_its_request_lasts_and_its_events_come() {
    let server = Server::start();
    let front = Front::start(&server, "A");
    let other = Agent::start(&server, "B");
    assert_eq!(front.call("{\"op\":\"put\",\"path\":\"/job\",\"data\":\"\"}").0, 200);
    let mut held = front.hold("{\"op\":\"lock\",\"path\":\"/job\",\"events\":true}");
    let token = next(&mut held)["ok"]["locked"]["token"].as_u64().unwrap();
    let mut line = other.line();
    let refused = line.ask(&json!({ "op": "lock", "path": "/job", "wait_ms": 0 })).unwrap_err();
    assert!(refused["code"].is_string(), "{refused}");
    drop(held);
    let (_, larger) = line.lock("/job");
    assert!(larger > token, "the lock went back with its request");
    // One who cannot have it is told so, and the request ends.
    let mut held = front.hold("{\"op\":\"lock\",\"path\":\"/job\",\"wait_ms\":0}");
    assert!(next(&mut held)["error"]["code"].is_string());
    let mut rest = String::new();
    assert_eq!(held.read_to_string(&mut rest).unwrap(), 0, "{rest}");
    drop(line);
    // An operator evicts the agent: who holds is told.
    let mut held = front.hold("{\"op\":\"lock\",\"path\":\"/job\",\"events\":true}");
    assert!(next(&mut held)["ok"].is_object());
    server.ok(&["admin", "evict", "A", "--control", server.control().to_str().unwrap()]);
    eventually("the loss is told", || (next(&mut held)["event"]["lock"]["state"] == "lost").then_some(()));
}

#[test]
fn nobody_is_served_who_cannot_read_the_tokens_file_and_no_web_page() {
    let server = Server::start();
    let front = Front::start(&server, "A");
    assert_eq!(fs::metadata(&front.file).unwrap().permissions().mode() & 0o777, 0o600);
    for (fields, expected) in [
        (front.token.clone(), 200),
        ("X: y".to_owned(), 401),
        (format!("{}0", front.token), 401),
        (format!("{}\r\nOrigin: http://127.0.0.1:{}", front.token, front.address.port()), 403),
    ] {
        let mut answer = String::new();
        front.send("/v1/call", &fields, "{\"op\":\"ping\"}").read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), expected, "{fields}: {answer}");
        assert!(!answer.contains("Access-Control"), "{answer}");
    }
    // A web page whose name was made to lead here.
    let mut stream = TcpStream::connect(front.address).unwrap();
    let head = format!(
        "POST /v1/call HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\n{}\r\nContent-Length: 2\r\n\r\n{{}}",
        front.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), 421, "{answer}");
    // Silent connections, slow ones and those that end early keep nobody out.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(front.address).unwrap()).collect();
    assert_eq!(front.call("{\"op\":\"ping\"}").0, 200);
    drop(silent);
}

#[test]
fn what_is_not_loopback_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a");
    let args = ["agent", "run", "--state", state.to_str().unwrap(), "--server", "127.0.0.1:1", "--insecure", "--http", "0.0.0.0:0"];
    let output = cistern_testkit::command(cistern_testkit::CISTERN, &args).output().unwrap();
    let said = cistern_testkit::said(&output);
    assert!(output.status.code() == Some(2) && said.contains("0.0.0.0") && said.contains("loopback"), "{said}");
}

#[test]
fn the_manuals_commands_for_curl_do_what_it_says() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: curl is not installed");
        return;
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    let (_, section) = page.split_once("## By HTTP").unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let server = Server::start();
    let front = Front::start(&server, "A");
    let script = block.replace("127.0.0.1:7313", &front.address.to_string());
    let script: String = script
        .lines()
        .filter(|line| !line.starts_with("cistern agent run") && !line.starts_with("token="))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(script.matches("curl").count() >= 3, "{script}");
    let output = Command::new("bash").args(["-euo", "pipefail", "-c", &script]).env("token", &front.file).output().unwrap();
    let said = cistern_testkit::said(&output);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<&str> = block.lines().filter_map(|line| line.split_once("# prints ").map(|(_, what)| what)).collect();
    assert!(!expected.is_empty() && expected.iter().all(|what| text.contains(what)), "{expected:?} in {text}");
    let mut agent = front.agent;
    eventually("nothing is held any more", || (agent.count("holders") == 0).then_some(()));
}
