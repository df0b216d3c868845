//! `cistern admin rename`.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::json;

/// Rename an agent; its rights and sessions stay
#[derive(Args, Debug)]
pub(crate) struct RenameAgent {
    #[command(flatten)]
    server: Control,
    /// Its name
    name: String,
    /// Its new name
    to: String,
}

impl Run for RenameAgent {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let renamed = self.server.ask(ctx, &json!({ "op": "rename", "name": self.name, "to": self.to }))?;
        ctx.print_with(&renamed, String::new)
    }
}
