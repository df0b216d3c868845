//! `cistern lease revoke`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;
use std::ffi::OsString;

const REVOKE_HELP: &str = "\
Removes the lease's file, and with it all that is attached. It takes no secret, but the right to write in its directory.";

/// End named leases
#[derive(Args, Debug)]
#[command(after_help = REVOKE_HELP)]
pub(crate) struct LeaseRevoke {
    /// Paths of leases
    #[arg(required = true)]
    leases: Vec<OsString>,
}

impl Run for LeaseRevoke {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.leases, |ctx, lease| ctx.agent()?.call(Request::LeaseRevoke { lease: lease.clone() }).map(drop))
    }
}
