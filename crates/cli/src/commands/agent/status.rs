//! `cistern agent status`: an agent's lease, once.

use super::top::rows;
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::show;
use clap::Args;

/// Show the agent's session, lease and counters
#[derive(Args, Debug)]
pub(crate) struct AgentStatus {}

impl Run for AgentStatus {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let lease = ctx.agent()?.call(Request::Lease)?.lease()?;
        ctx.print_with(&lease, || show::columns(&rows(&lease)))
    }
}
