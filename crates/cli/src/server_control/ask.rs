//! The operator's end of the control socket.
//!
//! Leaves to others: what is answered (the parent), the connection (`cistern_driver::control`).

use crate::execute::{EXIT_SOFTWARE, EXIT_UNAVAILABLE};
use crate::local::Failure;
use crate::settings::SettingRow;
use cistern_client::{Client, ErrorKind};
use cistern_driver::{ClientError, ControlClient};
use serde_json::{Map, Value, json};
use std::path::Path;
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

/// As [`ask`], over the network, by a client whose key is an operator's.
///
/// # Errors
/// The line could not be given, or the server says no.
pub(crate) fn ask_sealed(client: &Client, request: &Value) -> Result<Value, Failure> {
    let text = client.admin(request.to_string()).wait().map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotPermitted => ": over the network that takes a sealed session, and the key of an operator; on the server's host there is its control socket",
            ErrorKind::TooLarge => ": ask on the server's host, through its control socket",
            _ => "",
        };
        let failure = Failure::from(error);
        Failure { message: format!("{}{hint}", failure.message), ..failure }
    })?;
    let answer = str::from_utf8(&text).ok().and_then(read_answer);
    answer.unwrap_or_else(|| Err(Failure::new("INTERNAL", EXIT_SOFTWARE, "the server's answer cannot be read")))
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
}
