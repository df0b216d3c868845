//! `cistern admin revoke`.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use serde_json::json;

const REVOKE_HELP: &str = "\
The agent's sessions end as by `cistern admin evict`: its locks are free after the lease period, when it can no longer use them. Its key is never \
accepted again, also after a restore of a backup; a host that is to return needs another one.";

/// Revoke an agent's key, and end its sessions
#[derive(Args, Debug)]
#[command(after_help = REVOKE_HELP)]
pub(crate) struct RevokeAgent {
    #[command(flatten)]
    server: Control,
    /// Its name
    name: String,
}

impl Run for RevokeAgent {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let revoked = self.server.ask(ctx, &json!({ "op": "revoke", "name": self.name }))?;
        ctx.print_with(&revoked, || format!("{} is revoked; `cistern admin sessions` shows when its sessions are over", self.name))
    }
}
