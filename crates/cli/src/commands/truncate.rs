//! `cistern truncate`: sizes.

use super::{Changed, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, Request};
use crate::text::Text;
use cistern_text::size;
use cistern_wire::limits::CONTENT_MAX;
use clap::Args;
use std::ffi::OsString;

/// Truncate or zero-extend files
#[derive(Args, Debug)]
pub(crate) struct Truncate {
    /// New size: bytes, or with a unit (10K, 1M); at most 1M
    #[arg(short = 's', long, value_name = "SIZE", value_parser = size)]
    size: u64,
    /// Files
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Truncate {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        if self.size > CONTENT_MAX as u64 {
            let path = self.paths.first().map_or_else(|| Text(Vec::new()), |path| Text::from(path.as_os_str()));
            let what = format!("{path}: --size is {}; the most that a file can hold is {CONTENT_MAX} bytes", self.size);
            return Err(Failure::new("EFBIG", EXIT_FAILED, what));
        }
        ctx.each(&self.paths, |ctx, path| {
            let set = Request::SetAttr { path: path.clone(), mode: None, mtime_ns: None, atime_ns: None, size: Some(self.size) };
            let attr = ctx.agent()?.change(set)?;
            ctx.print(&Changed::quietly(path, attr))
        })
    }
}
