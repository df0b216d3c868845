//! `cistern admin hand-over`: another server of the group serves from now on.

use super::Control;
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::json;

const HAND_OVER_HELP: &str = "\
The server stops serving and gives the lease of its group away, so that another one takes over at once. Holders keep their locks: their agents reclaim them \
from the other server. Before a planned restart of the serving server; ended by a signal it does the same by itself. It is asked on its host.

Examples:
  cistern admin hand-over
  cistern admin hand-over --to b.example.net:7311

Exit status:
  0   another server serves
  1   the server has no group, stands by, or is in grace; or nobody has taken over
  2   wrong usage
  69  no server answers";

/// Let another server of the group serve
#[derive(Args, Debug)]
#[command(after_help = HAND_OVER_HELP)]
pub(crate) struct HandOver {
    #[command(flatten)]
    server: Control,
    /// Which of them, as the group's list names it; else the one that is quickest
    #[arg(long, value_name = "MEMBER")]
    to: Option<String>,
}

impl Run for HandOver {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        &["json"]
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let done = self.server.ask_at_leisure(ctx, &json!({ "op": "hand_over", "to": self.to }))?;
        ctx.print_with(&done, || format!("{} serves", super::text(&done["to"])))
    }
}
