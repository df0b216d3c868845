//! `cistern admin agents`: who may do what.

use super::{CONTROL, Control, label};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::Args;
use serde_json::{Value, json};

/// List agents, by the keys that they have, and their rights in each realm
#[derive(Args, Debug)]
pub(crate) struct Agents {
    #[command(flatten)]
    server: Control,
}

impl Run for Agents {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        CONTROL
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let agents = self.server.ask(&json!({ "op": "agents" }))?;
        let rows = agents.as_array().map(Vec::as_slice).unwrap_or_default();
        ctx.print_rows(rows, table(rows))
    }
}

fn table(rows: &[Value]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut cells = vec![["NUMBER", "NAME", "KEY", "SESSIONS", "RIGHTS"].map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let rights = row["rights"].as_array().into_iter().flatten();
        let rights = rights.map(|of| format!("{}={}", of["realm"], of["rights"].as_str().unwrap_or("?")));
        let flags = ["operator", "revoked"].into_iter().filter(|flag| row[*flag].as_bool() == Some(true)).map(str::to_owned);
        vec![
            row["number"].to_string(),
            label(&row["name"]),
            row["key"].as_str().map_or_else(|| "-".to_owned(), |key| key.chars().take(16).collect()),
            row["sessions"].to_string(),
            flags.chain(rights).collect::<Vec<_>>().join(" "),
        ]
    }));
    show::columns(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_shown_by_realm() {
        let row = json!({
            "number": 3, "name": "web", "key": "ab".repeat(32), "operator": true, "revoked": false, "sessions": 2,
            "rights": [{ "realm": 1, "rights": "r" }, { "realm": 7, "rights": "rwl" }],
        });
        let table = table(&[row]);
        assert_eq!(
            table.lines().nth(1).map(|line| line.split_whitespace().collect::<Vec<_>>()),
            Some(vec!["3", "web", "abababababababab", "2", "operator", "1=r", "7=rwl"])
        );
    }
}
