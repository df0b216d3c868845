//! `cistern admin quota`.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use cistern_text::size;
use clap::Args;
use serde_json::json;

const QUOTA_HELP: &str = "\
What an agent made counts as its own until it is removed, whoever changes it. A quota below the use is allowed, and takes nothing away; what would \
use more than a quota fails with EDQUOT.

Examples:
  cistern admin quota web --objects 100000 --bytes 2G";

/// Set quotas of an agent: how much of what it makes there may be
#[derive(Args, Debug)]
#[command(after_help = QUOTA_HELP)]
pub(crate) struct AgentQuota {
    #[command(flatten)]
    server: Control,
    /// Most files, directories and symbolic links; 0: no quota
    #[arg(long, value_name = "COUNT", required_unless_present = "bytes")]
    objects: Option<u64>,
    /// Most bytes of contents and extended attributes; 0: no quota
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Its name
    name: String,
}

impl Run for AgentQuota {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let request = json!({ "op": "quota", "name": self.name, "objects": self.objects, "bytes": self.bytes });
        let set = self.server.ask(ctx, &request)?;
        ctx.print_with(&set, String::new)
    }
}
