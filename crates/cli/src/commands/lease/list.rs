//! `cistern lease list`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;
use std::ffi::OsString;

/// List named leases, or the files of one
#[derive(Args, Debug)]
pub(crate) struct LeaseList {
    /// Path of the lease whose files are listed, its own among them
    #[arg(value_name = "LEASE")]
    name: Option<OsString>,
}

impl Run for LeaseList {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let lease = self.name.as_ref().map(|lease| lease.as_os_str().into());
        let rows = ctx.agent()?.call(Request::Leases { lease })?.leases()?;
        let text = if rows.is_empty() { String::new() } else { super::table(&rows) };
        ctx.print_rows(&rows, text)
    }
}
