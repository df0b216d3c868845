//! `cistern stat`: attributes.

use super::{PathAttributes, Run};
use crate::ctx::Ctx;
use crate::local::Failure;
use clap::Args;
use std::ffi::OsString;

/// Show attributes
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Paths
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Stat {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let attr = ctx.agent()?.stat(path, false)?;
            ctx.print(&PathAttributes { path, attr })
        })
    }
}
