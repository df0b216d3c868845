//! The control socket: what a second program can ask of a running proxy, as one line of JSON each.
//!
//! Decides the names in that JSON: `{"command": "cut a->s"}`, `{"stats": true}`; the answer is `{"ok": {...counts...}}` or `{"error": "..."}`.
//! Leaves to others: the socket (`cistern-driver`), the language of commands (`command`).

use cistern_driver::Response;
use serde::Deserialize;
use serde_json::json;

use crate::command::Command;
use crate::proxy::Proxy;

/// A line of the control socket.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// A command, as a script has it.
    Command(String),
    /// The counts.
    Stats(serde::de::IgnoredAny),
}

/// Answers a line.
pub(crate) fn answer(proxy: &mut Proxy, line: &str) -> Response {
    let command = match serde_json::from_str(line) {
        Ok(Line::Command(text)) => match Command::parse(&text) {
            Ok(command) => Some(command),
            Err(mistake) => return Response::Line(json!({ "error": mistake.to_string() }).to_string()),
        },
        Ok(Line::Stats(_)) => None,
        Err(error) => return Response::Line(json!({ "error": format!("not a question to a fault proxy: {error}") }).to_string()),
    };
    let ends = command == Some(Command::End);
    if let Some(command) = command {
        proxy.obey(command);
    }
    let answer = json!({ "ok": proxy.stats() }).to_string();
    if ends { Response::Last(answer) } else { Response::Line(answer) }
}
