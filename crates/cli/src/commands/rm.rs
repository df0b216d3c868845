//! `cistern rm`: removes files and directories.

use super::Run;
use crate::backend::Backend;
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::holder;
use crate::local::{Failure, Request};
use crate::text::Text;
use cistern_client::FileType;
use clap::Args;
use std::ffi::OsString;

/// Remove files and directories
#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories and their contents
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// Remove empty directories
    #[arg(short = 'd', long)]
    dir: bool,
    /// Ignore paths that do not exist
    #[arg(short = 'f', long)]
    force: bool,
    /// Remove files although others hold locks on them, which is an error otherwise
    #[arg(long)]
    override_locks: bool,
    /// Paths to remove
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for Rm {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| match self.remove(ctx.agent()?, path) {
            Err(failure) if self.force && failure.code == "ENOENT" => Ok(()),
            other => other,
        })
    }
}

impl Rm {
    fn remove(&self, agent: &mut Backend, path: &Text) -> Result<(), Failure> {
        let found = agent.stat(path, false)?;
        if !found.is(FileType::Directory) {
            let removed = agent.call(Request::Unlink { path: path.clone(), force: self.override_locks });
            return removed
                .map(drop)
                .map_err(|failure| holder::named(agent, failure, &[path], "; --override-locks removes it nevertheless"));
        }
        if self.recursive {
            // A name that vanishes meanwhile is what was wanted.
            for row in agent.list(path, false)? {
                match self.remove(agent, &path.join(&row.name.0)) {
                    Err(failure) if failure.code == "ENOENT" => {}
                    other => other?,
                }
            }
        } else if !self.dir {
            let message = format!("{path}: is a directory (use -r to remove it and its contents, -d if it is empty)");
            return Err(Failure::new("EISDIR", EXIT_FAILED, message));
        }
        let removed = agent.call(Request::Rmdir { path: path.clone() });
        removed.map(drop).map_err(|failure| holder::named(agent, failure, &[path], ""))
    }
}
