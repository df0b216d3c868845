//! `cistern admin status`: the server's state, counters and drops.

use super::{Control, OPERATOR, text};
use crate::commands::Run;
use crate::commands::peer::member_table;
use crate::ctx::Ctx;
use crate::local::{Failure, MemberRow};
use crate::show;
use cistern_text::row;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

const STATUS_HELP: &str = "\
Examples:
  cistern admin status
  cistern admin status --json

Exit status:
  0   success
  69  no server answers";

/// Show the server's state, counters and drops
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct AdminStatus {
    #[command(flatten)]
    server: Control,
}

/// As the server has answered.
#[derive(Serialize)]
#[serde(transparent)]
struct StatusAnswer(Value);

impl Run for AdminStatus {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let status = self.server.ask(ctx, &json!({ "op": "status" }))?;
        ctx.print(&StatusAnswer(status))
    }
}

impl fmt::Display for StatusAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status) = self;
        // Of a server that stands by there is nothing else to tell.
        let is_standby = status["group"]["role"] == "standby";
        let mut text = if is_standby { String::new() } else { show::columns(&figures(status)) };
        if status["group"].is_object() {
            let between = if is_standby { "" } else { "\n\n" };
            text += &format!("{between}{}", group(&status["group"]));
        }
        for (title, counted) in [
            ("dropped, by reason", "drops_by_reason"),
            ("messages received", "messages_in"),
            ("messages sent", "messages_out"),
            ("driver", "driver"),
        ] {
            let rows = counts(&status[counted]);
            if !rows.is_empty() {
                text += &format!("\n\n{title}\n{}", show::columns(&rows));
            }
        }
        f.write_str(&text)
    }
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
        ("opened", format!("{} sessions, {} of them moved to another address", n("opened"), n("moves"))),
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

/// The group of servers, as this one sees it.
fn group(group: &Value) -> String {
    let is = |name: &str| group[name].as_str().map(ToOwned::to_owned);
    let role = match (is("role").as_deref(), group["starts_in_ms"].as_u64()) {
        (Some("standby"), _) if group["outside_of"].is_string() => {
            format!("takes no part: the servers of the store are {}", text(&group["outside_of"]))
        }
        (Some("standby"), Some(ms @ 1..)) => format!("stands by, and takes part in elections in {}", show::span(ms)),
        (Some("standby"), _) => "stands by".to_owned(),
        (Some("elected"), _) => "elected, and takes the store".to_owned(),
        _ => "serves".to_owned(),
    };
    let rows = [
        row([&"group", &format!("{}, list number {}", text(&group["group"]), group["number"])]),
        row([&"this server", &format!("{}, {role}", text(&group["me"]))]),
        row([&"serving", &is("serves").unwrap_or_else(|| "none is known".to_owned())]),
        row([&"lease", &show::span(group["lease_ms"].as_u64().unwrap_or(0))]),
    ];
    let members: Vec<MemberRow> = serde_json::from_value(group["members"].clone()).unwrap_or_default();
    format!("{}\n{}", show::columns(&rows), member_table(&members, &text(&group["me"])))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_told_with_who_is_awaited() {
        let status =
            json!({ "who": "server 1/2", "serving": true, "grace": { "left_ms": 900, "awaited": 3, "reclaiming": 1, "blind": false } });
        let server = &figures(&status)[0][1];
        assert!(server.contains("in grace for 900 ms more") && server.contains("3 sessions awaited, 1 reclaiming"), "{server}");
        assert_eq!(figures(&json!({ "who": "server 1/2", "serving": true, "grace": null }))[0][1], "server 1/2, serves");
    }
}
