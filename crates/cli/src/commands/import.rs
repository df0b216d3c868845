//! `cistern import`: a local tree into the server.

use super::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::tree::import_tree;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Copy a local directory tree in
#[derive(Args, Debug)]
pub(crate) struct Import {
    /// Local directory; files above 1 MiB are skipped and reported
    dir: PathBuf,
    /// Destination directory, created if missing. Existing files and links are replaced
    path: OsString,
}

impl Run for Import {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let mut progress = ctx.progress();
        let copied = import_tree(ctx.agent()?, &self.dir, &self.path.as_os_str().into(), &mut progress);
        progress.done();
        copied?.report(ctx)
    }
}
