//! `cistern chmod`: permission bits.

use super::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use cistern_text::octal;
use clap::Args;
use std::ffi::OsString;

/// Set permission bits
#[derive(Args, Debug)]
pub(crate) struct Chmod {
    /// Permission bits, octal
    #[arg(value_parser = octal)]
    mode: u16,
    /// Paths
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Chmod {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let set = Request::SetAttr { path: path.clone(), mode: Some(self.mode), mtime_ns: None, atime_ns: None, size: None };
            let attr = ctx.agent()?.change(set)?;
            ctx.print(&Changed::quietly(path, attr))
        })
    }
}
