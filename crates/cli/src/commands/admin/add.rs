//! `cistern admin add`.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::json;

const ADD_HELP: &str = "\
An agent without a key is for the setting plain-principal: whose the sessions are that are opened without one.

Examples:
  cistern admin add web";

/// Add an agent, without rights
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub(crate) struct AddAgent {
    #[command(flatten)]
    server: Control,
    /// Its public key, as `cistern key show` prints it there
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Operator: may set quotas, evict, and change agents
    #[arg(long)]
    operator: bool,
    /// Its name
    name: String,
}

impl Run for AddAgent {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let request = json!({ "op": "add", "name": self.name, "key": self.key, "operator": self.operator });
        let added = self.server.ask(ctx, &request)?;
        ctx.print_with(&added, || format!("{} is added; `cistern admin grant` gives it rights", self.name))
    }
}
