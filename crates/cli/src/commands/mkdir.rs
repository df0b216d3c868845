//! `cistern mkdir`: creates directories.

use super::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::Failure;
use cistern_text::octal;
use clap::Args;
use std::ffi::OsString;

/// Create directories
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Create parent directories, too; no error if the directory exists
    #[arg(short = 'p', long)]
    parents: bool,
    /// Permission bits, octal
    #[arg(short = 'm', long, value_parser = octal, default_value = "755")]
    mode: u16,
    /// Directories
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Mkdir {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let agent = ctx.agent()?;
            let attr = if self.parents { agent.mkdir_parents(path, self.mode)? } else { agent.mkdir(path, self.mode)? };
            ctx.print(&Changed::quietly(path, attr))
        })
    }
}
