//! `cistern export`: a tree of the server into a local directory.

use super::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::tree::export_tree;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Copy a tree out into a local directory
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// Keep set-uid, set-gid and sticky bits of files
    #[arg(long)]
    pub(crate) preserve_special: bool,
    /// Also write symbolic links that are absolute or may lead out of the tree; otherwise they are skipped and reported
    #[arg(long)]
    pub(crate) unsafe_links: bool,
    /// Tree to export
    pub(crate) path: OsString,
    /// Local directory, created if missing. Existing files and links are replaced; no link below it is followed
    pub(crate) dir: PathBuf,
}

impl Run for Export {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let mut progress = ctx.progress();
        let copied = export_tree(ctx.agent()?, self, &mut progress);
        progress.done();
        copied?.report(ctx)
    }
}
