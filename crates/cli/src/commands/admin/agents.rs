//! `cistern admin agents`: who may do what, and uses how much.

use super::{Control, OPERATOR, label};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use cistern_trust::Fingerprint;
use clap::Args;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// List agents, with the fingerprints of their keys, what they use and their rights in each realm
///
/// Behind what is used stands how much may be: the agent's share of what is free now, so it shrinks while others take more; of objects and bytes
/// the quota that an operator has set. In clear hosts have shares, and not agents. "2 strikes, no cache locks for ...": it, in clear a host of its
/// sessions, twice kept such a lock that it was asked for; the next time lasts twice as long, and a quiet time as long as the last takes one away.
#[derive(Args, Debug)]
pub(crate) struct Agents {
    #[command(flatten)]
    server: Control,
}

impl Run for Agents {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let agents = self.server.ask(ctx, &json!({ "op": "agents" }))?;
        let rows = agents.as_array().map(Vec::as_slice).unwrap_or_default();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        ctx.print_rows(rows, table(rows, now_s))
    }
}

/// The columns of figures: what is used, and of how much.
const USE: [&str; 7] = ["sessions", "locks", "waits", "watches", "staged", "objects", "bytes"];

fn table(rows: &[Value], now_s: u64) -> String {
    let is_seen = rows.iter().any(|row| row.get("last_seen_s").is_some());
    let seen = |text: String| is_seen.then_some(text);
    let heads = ["NUMBER", "NAME", "KEY"].into_iter().map(str::to_owned).chain(USE.map(str::to_uppercase));
    let heads = heads.chain(seen("LAST SEEN".to_owned())).chain(["RIGHTS".to_owned()]);
    let mut cells = vec![heads.collect::<Vec<_>>()];
    cells.extend(rows.iter().map(|row| {
        let rights = row["rights"].as_array().into_iter().flatten();
        let rights = rights.map(|of| format!("{}={}", of["realm"], of["rights"].as_str().unwrap_or("?")));
        let flags = ["everything", "operator", "revoked"].into_iter().filter(|flag| row[*flag].as_bool() == Some(true)).map(str::to_owned);
        let strikes = row["strikes"].as_u64().filter(|count| *count > 0);
        let strikes = strikes.map(|count| format!("{count} strike{}", if count == 1 { "" } else { "s" }));
        let left = row["uncached_ms"].as_u64().filter(|ms| *ms > 0).map(|ms| format!("no cache locks for {}", show::span(ms)));
        let struck = Some(strikes.into_iter().chain(left).collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty());
        let name = if row["name"].is_null() { "-".to_owned() } else { label(&row["name"]) };
        let key = row["key"].as_str().map_or_else(|| "-".to_owned(), |key| Fingerprint::of(key).to_string());
        let used = USE.map(|column| match row[format!("{column}_max")].as_u64() {
            Some(bound) if bound > 0 => format!("{}/{bound}", row[column]),
            _ => row[column].to_string(),
        });
        let ago =
            row["last_seen_s"].as_u64().map_or_else(|| "-".to_owned(), |s| format!("{} ago", show::span(now_s.saturating_sub(s) * 1_000)));
        let first = [row["number"].to_string(), name, key].into_iter();
        first.chain(used).chain(seen(ago)).chain([flags.chain(struck).chain(rights).collect::<Vec<_>>().join(" ")]).collect()
    }));
    show::columns(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_shown_by_realm() {
        let row = json!({
            "number": 3, "name": "web", "key": "cistern-agent-1.AAAA", "operator": true, "revoked": false, "sessions": 2,
            "locks": 4, "locks_max": 44, "waits": 1, "watches": 0, "staged": 512, "objects": 7, "objects_max": 8, "bytes": 9, "bytes_max": 0,
            "rights": [{ "realm": 1, "rights": "r" }, { "realm": 7, "rights": "rwl" }],
        });
        let mut seen = row.clone();
        let shown = |row: &Value| table(std::slice::from_ref(row), 1_000);
        assert!(!shown(&row).contains("LAST SEEN"));
        seen["last_seen_s"] = json!(400);
        assert!(shown(&seen).contains("LAST SEEN") && shown(&seen).contains("10 min 0 s ago"), "{}", shown(&seen));
        seen["last_seen_s"] = Value::Null;
        assert!(shown(&seen).contains(" -  "), "{}", shown(&seen));
        let struck = shown(&json!({ "number": 3, "strikes": 2, "uncached_ms": 256_000, "rights": [] }));
        assert!(struck.ends_with(" 2 strikes, no cache locks for 4 min 16 s"), "{struck}");
        let struck = shown(&json!({ "number": 3, "strikes": 1, "uncached_ms": 0, "rights": [] }));
        assert!(struck.ends_with(" 1 strike"), "{struck}");
        let table = shown(&row);
        assert_eq!(
            table.lines().nth(1).map(|line| line.split_whitespace().collect::<Vec<_>>()),
            Some(vec![
                "3",
                "web",
                &*Fingerprint::of("cistern-agent-1.AAAA").to_string(),
                "2",
                "4/44",
                "1",
                "0",
                "512",
                "7/8",
                "9",
                "operator",
                "1=r",
                "7=rwl"
            ])
        );
    }
}
