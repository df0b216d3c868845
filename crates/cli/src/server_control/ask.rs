//! `cistern admin status`, `sessions` and `evict`: the operator's end of the control socket.
//!
//! Decides: how the answers look to people; with `--json` they are shown as they came.
//! Leaves to others: what is answered (the parent), the connection (`cistern_driver::control`).

use crate::args::{Control, Evict};
use crate::execute::{EXIT_SOFTWARE, EXIT_UNAVAILABLE};
use crate::local::Failure;
use crate::places::Daemon;
use crate::settings::SettingRow;
use crate::show;
use crate::text::Text;
use cistern_driver::{ClientError, ControlClient};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to answer: it does so in the turn in which it is asked.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// How long a backup may take. A server that ends closes the connection, which ends the wait.
const LEISURE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Asks a server by its control socket.
///
/// # Errors
/// Nobody answers there, or the server says no.
pub(crate) fn ask(socket: &Path, request: &Value) -> Result<Value, Failure> {
    ask_within(socket, request, ANSWER_TIME)
}

/// As [`ask`], for what takes as long as the disk takes.
///
/// # Errors
/// Nobody answers there, or the server says no.
pub(crate) fn ask_at_leisure(socket: &Path, request: &Value) -> Result<Value, Failure> {
    ask_within(socket, request, LEISURE)
}

fn ask_within(socket: &Path, request: &Value, span: Duration) -> Result<Value, Failure> {
    let unavailable = |e: ClientError| Failure::new("NO_SERVER", EXIT_UNAVAILABLE, e.to_string());
    let mut client = ControlClient::connect(socket, ANSWER_TIME).map_err(unavailable)?;
    let line = client.request(&request.to_string(), span).map_err(unavailable)?;
    read_answer(&line).unwrap_or_else(|| {
        let shown: String = line.chars().take(80).collect();
        Err(Failure::new("NO_SERVER", EXIT_UNAVAILABLE, format!("{}: not an answer of a server: {shown:?}", socket.display())))
    })
}

fn read_answer(line: &str) -> Option<Result<Value, Failure>> {
    let mut answer: Map<String, Value> = serde_json::from_str(line).ok()?;
    if let Some(value) = answer.remove("ok") {
        return Some(Ok(value));
    }
    match answer.remove("error")? {
        // From the socket itself: too many connections, a line that is too long.
        Value::String(message) => Some(Err(Failure::failed(message))),
        failure => serde_json::from_value(failure).ok().map(Err),
    }
}

/// The control socket that is named, or else that of this user's server.
///
/// # Errors
/// None is named and the environment gives none.
pub(crate) fn server_socket(args: &Control) -> Result<PathBuf, Failure> {
    args.control.as_ref().map_or_else(|| Daemon::Server.socket(None), |socket| Ok(socket.clone()))
}

/// The settings in force at a running server.
///
/// # Errors
/// Nobody answers there, or the answer is none.
pub(crate) fn settings(socket: &Path) -> Result<Vec<SettingRow>, Failure> {
    let rows = ask(socket, &json!({ "op": "settings" }))?;
    let rows: Result<Vec<SettingRow>, _> = serde_json::from_value(rows);
    let rows = rows.map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, format!("{}: {e}", socket.display())))?;
    Ok(rows.into_iter().map(SettingRow::told).collect())
}

/// Evicts an agent.
pub(crate) fn evict(args: &Evict) -> Result<(), Failure> {
    let evicted = ask(&server_socket(&args.server)?, &json!({ "op": "evict", "agent": args.agent }))?;
    if args.server.json {
        return show::json(&evicted);
    }
    let sessions: Vec<_> = evicted["sessions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let free = evicted["locks_free_in_ms"].as_u64().map_or_else(|| "soon".to_owned(), |ms| format!("in {}", show::span(ms)));
    show::line(format!(
        "agent {} ({}) is evicted from session {}; what it holds is free {free}, when it cannot be using it any more",
        text(&evicted["agent"]),
        label(&evicted["label"]),
        sessions.join(", "),
    ))
}

/// Lists the sessions of a server.
pub(crate) fn sessions(args: &Control) -> Result<(), Failure> {
    let sessions = ask(&server_socket(args)?, &json!({ "op": "sessions" }))?;
    if args.json {
        return sessions["sessions"].as_array().into_iter().flatten().try_for_each(show::json);
    }
    show::table(&session_rows(&sessions))
}

/// Shows the state and the counters of a server.
pub(crate) fn status(args: &Control) -> Result<(), Failure> {
    let status = ask(&server_socket(args)?, &json!({ "op": "status" }))?;
    if args.json {
        return show::json(&status);
    }
    show::table(&figures(&status))?;
    section("dropped, by reason", &counts(&status["drops_by_reason"]))?;
    section("messages received", &counts(&status["messages_in"]))?;
    section("messages sent", &counts(&status["messages_out"]))?;
    section("driver", &counts(&status["driver"]))
}

fn section(title: &str, rows: &[Vec<String>]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    show::line(format!("\n{title}"))?;
    show::table(rows)
}

fn figures(s: &Value) -> Vec<Vec<String>> {
    let n = |name: &str| s[name].as_u64().unwrap_or(0);
    let state = match (s["serving"].as_bool(), s["failure"].as_str()) {
        (_, Some(why)) => format!("stopped answering: {why}"),
        (Some(true), _) if s["grace"].is_object() => grace(&s["grace"]),
        (Some(true), _) => "serves".to_owned(),
        _ => "starting".to_owned(),
    };
    [
        ("server", format!("{}, {state}", text(&s["who"]))),
        ("store", format!("{} epoch {}", text(&s["store"]), n("epoch"))),
        ("up for", show::span(n("uptime_ms"))),
        ("lease", format!("{} ms; a silent agent's locks are taken after {} ms", n("lease_us") / 1_000, n("timer_us") / 1_000)),
        ("sessions", format!("{} in good standing, {} timing out ({} lease timers)", n("sessions"), n("timing_out"), n("lease_timers"))),
        ("opened", format!("{} sessions, {} of them moved to another address", n("welcomes"), n("moves"))),
        ("locks", format!("{} held, {} requests wait for locks", n("locks"), n("waiting"))),
        ("requests", format!("{} executed, {} answered again", n("requests"), n("repeated"))),
        (
            "failures",
            format!("{} deliveries failed, {} sessions rescued, {} stolen from", n("delivery_failures"), n("rescues"), n("steals")),
        ),
        (
            "datagrams",
            format!(
                "{} in ({} KiB), {} out ({} KiB)",
                n("datagrams_in"),
                n("bytes_in") / 1_024,
                n("datagrams_out"),
                n("bytes_out") / 1_024
            ),
        ),
        ("dropped", n("drops").to_string()),
    ]
    .map(|(name, value)| vec![name.to_owned(), value])
    .to_vec()
}

fn session_rows(sessions: &Value) -> Vec<Vec<String>> {
    let list = sessions["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![["AGENT", "LABEL", "SESSION", "ADDRESS", "STANDING", "LEFT", "AGE", "LOCKS", "WAITS"].map(str::to_owned).to_vec()];
    rows.extend(list.iter().map(|row| {
        let span = |name: &str| row[name].as_u64().map_or_else(|| "-".to_owned(), show::span);
        let waited_for = if row["waited_for"].as_bool() == Some(true) { ", waited for" } else { "" };
        vec![
            text(&row["agent"]),
            label(&row["label"]),
            text(&row["session"]),
            text(&row["address"]),
            text(&row["standing"]),
            span("left_ms"),
            span("age_ms"),
            row["locks"].as_u64().unwrap_or(0).to_string(),
            format!("{}{waited_for}", row["waits"].as_u64().unwrap_or(0)),
        ]
    }));
    if let Some(more @ 1..) = sessions["more"].as_u64() {
        rows.push(vec![format!("and {more} more")]);
    }
    rows
}

/// The counters that have counted something.
fn counts(by_name: &Value) -> Vec<Vec<String>> {
    let named = by_name.as_object().into_iter().flatten();
    named.filter(|(_, count)| **count != json!(0)).map(|(name, count)| vec![name.clone(), count.to_string()]).collect()
}

/// The grace after a restart, for who waits for it to be over.
fn grace(grace: &Value) -> String {
    let n = |name: &str| grace[name].as_u64().unwrap_or(0);
    let why = if grace["blind"] == true { "the store may not know of every lock" } else { "agents of before the restart may come back" };
    format!(
        "in grace for {} ms more, granting no locks: {why}; {} sessions awaited, {} reclaiming",
        n("left_ms"),
        n("awaited"),
        n("reclaiming")
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn label(value: &Value) -> String {
    serde_json::from_value::<Text>(value.clone()).map_or_else(|_| "?".to_owned(), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_server_and_of_its_socket_are_understood() {
        assert_eq!(read_answer("{\"ok\":{\"x\":1}}").unwrap().unwrap(), json!({ "x": 1 }));
        let failure = read_answer("{\"error\":{\"code\":\"AMBIGUOUS\",\"message\":\"m\",\"exit\":1}}").unwrap().unwrap_err();
        assert_eq!((failure.code.as_str(), failure.message.as_str(), failure.exit), ("AMBIGUOUS", "m", 1));
        assert_eq!(read_answer("{\"error\":\"too many\"}").unwrap().unwrap_err().message, "too many");
        for line in ["", "[]", "{}", "{\"error\":7}", "HTTP/1.1 400"] {
            assert!(read_answer(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_told_by_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let failure = ask(&dir.path().join("control.sock"), &json!({ "op": "status" })).unwrap_err();
        assert!(failure.exit == EXIT_UNAVAILABLE && failure.message.contains("control.sock"), "{failure:?}");
    }

    #[test]
    fn grace_is_told_with_who_is_awaited() {
        let status =
            json!({ "who": "server 1/2", "serving": true, "grace": { "left_ms": 900, "awaited": 3, "reclaiming": 1, "blind": false } });
        let server = &figures(&status)[0][1];
        assert!(server.contains("in grace for 900 ms more") && server.contains("3 sessions awaited, 1 reclaiming"), "{server}");
        assert_eq!(figures(&json!({ "who": "server 1/2", "serving": true, "grace": null }))[0][1], "server 1/2, serves");
    }

    #[test]
    fn a_label_cannot_write_to_the_operators_terminal() {
        let sessions = json!({ "sessions": [{ "label": "a\u{1b}[2J", "agent": "00", "waits": 1 }], "more": 3 });
        let rows = session_rows(&sessions);
        assert_eq!((rows[1][1].as_str(), rows[2][0].as_str()), ("a\\x1b[2J", "and 3 more"));
    }
}
