//! `cistern admin evict`: ends an agent's session.

use super::{Control, OPERATOR, label, text};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::Args;
use serde_json::{Value, json};

const EVICT_HELP: &str = "\
The agent's locks are free after τ(1+δ): an eviction never frees a lock that may still be in use.

Exit status:
  0   success
  1   no such agent, or several
  69  no server answers";

/// End an agent's session: its locks are free after the lease period
#[derive(Args, Debug)]
#[command(after_help = EVICT_HELP)]
pub(crate) struct Evict {
    #[command(flatten)]
    server: Control,
    /// The agent: its id, its label, or a unique prefix of either
    #[arg(id = "who", value_name = "AGENT")]
    agent: String,
}

impl Run for Evict {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let evicted = self.server.ask(ctx, &json!({ "op": "evict", "agent": self.agent }))?;
        ctx.print_with(&evicted, || {
            let sessions: Vec<_> = evicted["sessions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let free = evicted["locks_free_in_ms"].as_u64().map_or_else(|| "soon".to_owned(), |ms| format!("in {}", show::span(ms)));
            format!(
                "agent {} ({}) is evicted from session {}; its locks are free {free}, when it can no longer use them",
                text(&evicted["agent"]),
                label(&evicted["label"]),
                sessions.join(", "),
            )
        })
    }
}
