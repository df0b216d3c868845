//! The host agent's interface as docs/api.md shows it, and what it promises beyond the page's examples.
//!
//! Decides: how an example is carried out. `>` is a line of the program, `<` one of the agent, `2>` and `2<` those of a second connection, `!` a
//! command that somebody else runs. `…` stands for any value, or as the last of an object for any further fields; `$name` is a value that comes again.

use cistern_testkit::{Agent, CISTERN, Group, PATIENCE, Server, command, eventually, said};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection of which nothing is known but lines.
struct Program(BufReader<UnixStream>);

impl Program {
    fn connect(socket: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn greeted(socket: &str, kind: &str) -> Self {
        let mut program = Self::connect(socket);
        program.say("{\"id\":0,\"op\":\"hello\",\"api\":1}");
        assert_eq!(program.hear()["ok"]["hello"]["kind"], kind);
        program
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
    }
}

/// Values that come again.
type Names = BTreeMap<String, Value>;

/// The text of a line as JSON: what stands for values becomes strings.
fn pattern(text: &str) -> Value {
    let mut json = text.replace(",…}", ",\"…\":0}").replace('…', "\"…\"").replace("\"\"…\"\"", "\"…\"");
    for name in names(text) {
        json = json.replace(&format!(":{name}"), &format!(":\"{name}\""));
    }
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{text}: {json}: {e}"))
}

fn names(text: &str) -> Vec<String> {
    let rest = text.split('$').skip(1);
    rest.map(|rest| format!("${}", rest.chars().take_while(char::is_ascii_lowercase).collect::<String>())).collect()
}

/// Whether a value is as an example has it.
fn fits(expected: &Value, got: &Value, known: &mut Names) -> bool {
    match (expected, got) {
        (Value::String(any), _) if any == "…" => true,
        (Value::String(name), _) if name.starts_with('$') => known.entry(name.clone()).or_insert_with(|| got.clone()) == got,
        (Value::Object(expected), Value::Object(got)) => {
            let open = expected.contains_key("…");
            let named = expected.iter().filter(|(name, _)| *name != "…");
            (open || expected.len() == got.len())
                && named.into_iter().all(|(name, value)| got.get(name).is_some_and(|got| fits(value, got, known)))
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| fits(expected, got, known))
        }
        _ => expected == got,
    }
}

/// Carries out one example of the page.
fn run(server: &Server, agent: &Agent, example: &str) {
    let (mut known, mut programs) = (Names::new(), BTreeMap::new());
    for line in example.lines() {
        let (who, text) = line.split_once(' ').unwrap();
        if who == "!" {
            let mut words: Vec<&str> = text.split(' ').skip(1).collect();
            if words[0] == "admin" {
                words.extend(["--control", server.control().to_str().unwrap()]);
            }
            let output = command(CISTERN, &words).env("CISTERN_SERVER", server.address.to_string()).output().unwrap();
            assert!(output.status.success(), "{line}: {}", said(&output));
            continue;
        }
        let (who, is_asked) = (who.trim_end_matches(['>', '<']), who.ends_with('>'));
        let connect =
            || if text.contains("\"op\":\"hello\"") { Program::connect(agent.socket()) } else { Program::greeted(agent.socket(), "agent") };
        let program = programs.entry(who.to_owned()).or_insert_with(connect);
        if is_asked {
            let mut text = text.to_owned();
            for name in names(&text) {
                text = text.replace(&name, &known[&name].to_string());
            }
            program.say(&text);
        } else {
            let mut got = program.hear();
            // On a machine that is busy a lease is renewed late now and then.
            while got["event"]["lock"]["state"].as_str().is_some_and(|state| state != "lost") {
                got = program.hear();
            }
            assert!(fits(&pattern(text), &got, &mut known), "{line}\nbut it was\n{got}\nin\n{example}");
        }
    }
}

#[test]
fn every_example_of_the_page_is_as_it_says() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    let examples: Vec<&str> = page.split("```jsonl\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() > 10, "only {} examples were found", examples.len());
    for example in examples {
        let server = Server::with(&["--lease", "1s"]);
        let agent = Agent::start(&server, "host");
        run(&server, &agent, example);
    }
}

#[test]
fn whoever_ends_a_connection_gives_up_its_locks_and_files_and_waits_for_nothing() {
    let server = Server::with(&["--lease", "1s"]);
    let agent = Agent::start(&server, "host");
    let other = Agent::start(&server, "other");
    let mut line = other.line();
    line.put("/a", "");
    line.put("/b", "");
    let (hold, _) = line.lock("/b");
    let mut gone = Program::greeted(agent.socket(), "agent");
    gone.say("{\"id\":1,\"op\":\"lock\",\"path\":\"/a\"}\n{\"id\":2,\"op\":\"join\",\"path\":\"/me\",\"data\":\"\"}\n{\"id\":3,\"op\":\"lock\",\"path\":\"/b\"}");
    let mut answers = [gone.hear()["id"].clone(), gone.hear()["id"].clone()];
    answers.sort_by_key(Value::as_u64);
    assert_eq!(answers, [1, 2]);
    eventually("it waits", || (server.count("waiting") == 1).then_some(()));
    drop(gone);
    eventually("it waits no more", || (server.count("waiting") == 0).then_some(()));
    eventually("its file is gone", || line.ask(&json!({ "op": "stat", "path": "/me" })).is_err().then_some(()));
    line.lock("/a");
    line.unlock(hold);
    assert_eq!(server.count("delivery_failures"), 0);
}

#[test]
fn a_member_of_a_group_speaks_the_same_of_locks() {
    let mut group = Group::start(3, &["--lease", "2s"]);
    let (mut first, mut second) = (Program::greeted(&group.socket(0), "member"), Program::greeted(&group.socket(0), "member"));
    first.say("{\"id\":1,\"op\":\"lock\",\"path\":\"job\",\"events\":true}");
    let locked = first.hear();
    assert_eq!((&locked["id"], &locked["ok"]["locked"]["hold"]), (&json!(1), &json!(1)), "{locked}");
    first.say("{\"id\":2,\"op\":\"read\",\"path\":\"/a\"}");
    assert_eq!(first.hear()["error"]["code"], "USAGE");
    second.say("{\"id\":1,\"op\":\"lock\",\"path\":\"job\"}\n{\"id\":2,\"op\":\"lock\",\"path\":\"job\",\"deadline_ms\":100}");
    second.say("{\"id\":3,\"op\":\"ping\"}");
    assert_eq!(second.hear()["id"], 3);
    let late = second.hear();
    assert_eq!((&late["id"], &late["error"]["code"]), (&json!(2), &json!("TIMED_OUT")), "{late}");
    second.say("{\"id\":4,\"op\":\"cancel\",\"request\":1}");
    let canceled = second.hear();
    assert_eq!((&canceled["id"], &canceled["error"]["code"]), (&json!(1), &json!("ECANCELED")), "{canceled}");
    assert_eq!(second.hear()["id"], 4);
    group.kill(1);
    group.kill(2);
    assert_eq!(first.hear(), json!({ "event": { "lock": { "hold": 1, "state": "lost" } } }));
}
