//! `cistern cat`: contents.

use super::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

/// Write contents of files to standard output
#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Paths
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Cat {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let (attr, data) = ctx.agent()?.call(Request::Read { path: path.clone() })?.data()?;
            ctx.print_bytes(|| json!({ "path": path, "attr": attr, "data": data }), &data.0)
        })
    }
}
