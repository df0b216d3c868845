//! `cistern admin sessions`: the agents' sessions.

use super::{Control, OPERATOR, label, text};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::Args;
use serde_json::{Value, json};

const SESSIONS_HELP: &str = "\
The server lists 10,000 at most; the last line is how many more there are.

Examples:
  cistern admin sessions
  cistern admin sessions --json

Exit status:
  0   success
  69  no server answers";

/// List the agents' sessions
#[derive(Args, Debug)]
#[command(after_help = SESSIONS_HELP)]
pub(crate) struct Sessions {
    #[command(flatten)]
    server: Control,
}

impl Run for Sessions {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let sessions = self.server.ask(ctx, &json!({ "op": "sessions" }))?;
        let rows = sessions["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        ctx.print_rows(rows, show::columns(&session_rows(&sessions)))?;
        match more(&sessions) {
            Some(more) if ctx.is_json() => show::json(&json!({ "more": more })),
            _ => Ok(()),
        }
    }
}

/// How many sessions there are that the server does not list.
fn more(sessions: &Value) -> Option<u64> {
    sessions["more"].as_u64().filter(|more| *more > 0)
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
    if let Some(more) = more(sessions) {
        rows.push(vec![format!("and {more} more")]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_write_to_the_operators_terminal() {
        let sessions = json!({ "sessions": [{ "label": "a\u{1b}[2J", "agent": "00", "waits": 1 }], "more": 3 });
        let rows = session_rows(&sessions);
        assert_eq!((rows[1][1].as_str(), rows[2][0].as_str()), ("a\\x1b[2J", "and 3 more"));
    }
}
