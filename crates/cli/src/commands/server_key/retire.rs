//! `cisternd server-key retire`: ends the key that was followed.

use super::{Files, as_json, as_text};
use crate::commands::{NONE, Run};
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;

const RETIRE_HELP: &str = "\
Signs a roster in which the new key serves and the old one is retired, and puts the new key into server.key; the old one is gone. Reload the server (`systemctl reload cisternd`, SIGHUP); sessions go on. An agent that has not \
heard of the new key until then does not believe the server any more: `cistern trust LINE` on its host.

Example:
  cisternd server-key retire

Exit status:
  0   done; also if it was before
  1   no key follows; a file cannot be used or written
  2   wrong usage";

/// End the key that another one follows
#[derive(Args, Debug)]
#[command(after_help = RETIRE_HELP)]
pub(crate) struct RetireServerKey {
    #[command(flatten)]
    files: Files,
}

impl Run for RetireServerKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (pinned, key) = self.files.rotation()?.retire()?;
        ctx.print_with(&as_json(&pinned, &key), || as_text(&pinned, "key", &key, "restart the server"))
    }
}
