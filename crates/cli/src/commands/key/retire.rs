//! `cistern key retire`: ends the time for which the key before the last rotation is good.

use crate::commands::{KEY_HOLDER, Run};
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::server_control::ask_sealed;
use clap::Args;
use serde_json::json;

const RETIRE_HELP: &str = "\
Without it the former key is good for 24 h after `cistern key rotate`. Sessions that were opened with it go on; programs that were given it as a value and read no \
file open none any more. It does not help against who has stolen a key and has a session: `cistern admin revoke` does.

Exit status:
  0   the former key is good no more
  2   wrong usage or settings
  69  no server answers, or it does not know this key";

/// End the time for which the former key is good
#[derive(Args, Debug)]
#[command(after_help = RETIRE_HELP)]
pub(crate) struct RetireKey {}

impl Run for RetireKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        KEY_HOLDER
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ask_sealed(ctx.operator()?, &json!({ "op": "retire" }))?;
        ctx.print_with(&json!({ "retired": true }), || "the former key is good no more".to_owned())
    }
}
