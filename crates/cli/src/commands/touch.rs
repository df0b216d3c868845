//! `cistern touch`: creates files, and sets times.

use super::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Create files if they are missing, and set their times to now
#[derive(Args, Debug)]
pub(crate) struct Touch {
    /// Paths
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Touch {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let agent = ctx.agent()?;
            match agent.change(Request::Create { path: path.clone(), exclusive: false, mode: 0o644 }) {
                // A directory has times, too.
                Err(failure) if failure.code != "EISDIR" => return Err(failure),
                _ => {}
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|span| i64::try_from(span.as_nanos()).ok());
            let attr = agent.change(Request::SetAttr { path: path.clone(), mode: None, mtime_ns: now, atime_ns: now, size: None })?;
            ctx.print(&Changed::quietly(path, attr))
        })
    }
}
