//! `cistern agent status`: the lease of the host's agent, once.

use super::top::rows;
use super::{HOST_AGENT, connect};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::show;
use clap::Args;

const AGENT_STATUS_HELP: &str = "\
Asks the host's agent: the one that --agent or CISTERN_AGENT names, else this user's (`cistern agent run`) or the system's. That costs it no message and renews nothing.

Examples:
  cistern agent status
  cistern agent status --json

Exit status:
  0   success
  69  no agent answers there";

/// Show the session, lease and counters of the host's agent
#[derive(Args, Debug)]
#[command(after_help = AGENT_STATUS_HELP)]
pub(crate) struct AgentStatus {}

impl Run for AgentStatus {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        HOST_AGENT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let lease = connect(ctx.options())?.1.call(&Request::Lease)?.lease()?;
        ctx.print_with(&lease, || show::columns(&rows(&lease)))
    }
}
