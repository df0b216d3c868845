//! `cisternd server-key rotate`: makes the key that follows.

use super::{Files, as_json, as_text};
use crate::commands::key::random;
use crate::commands::{NONE, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use clap::Args;

const ROTATE_HELP: &str = "\
Makes the key that follows this server's, beside it, and signs a roster that names both. Reload the server (`systemctl reload cisternd`, SIGHUP): it is addressed by \
either from then on, and agents learn of the new one when they open a session, or within an hour in one. Then `cisternd server-key retire` ends the old one. Needs the cluster's secret key.

Examples:
  cisternd server-key rotate
  cisternd server-key rotate --cluster-key /media/stick/cluster.key

Exit status:
  0   made; also if it was before
  1   a file cannot be used or written
  2   wrong usage";

/// Make the key that follows this server's
#[derive(Args, Debug)]
#[command(after_help = ROTATE_HELP)]
pub(crate) struct RotateServerKey {
    #[command(flatten)]
    files: Files,
}

impl Run for RotateServerKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let random = random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
        let (pinned, next) = self.files.rotation()?.rotate(random)?;
        let then = "restart the server; when agents have learned of the key, `cisternd server-key retire`";
        ctx.print_with(&as_json(&pinned, &next), || as_text(&pinned, "next key", &next, then))
    }
}
