//! Whole trees: import from and export to a local directory.
//!
//! Decides: what is copied (directories, regular files, symbolic links; with permission bits and modification times), what is
//! left out and told (other kinds, files too large), and that one failure does not stop the rest.
//! Leaves to others: single operations (`execute`, `backend`).
//!
//! | file | decides |
//! |---|---|
//! | `beneath` | how a local tree is entered: no link is followed, nothing outside is touched |
//! | `import` | who copies what, and that it can be repeated |
//! | `export` | what a server may make of this machine's files |

mod beneath;
mod export;
mod import;

pub(crate) use export::export_tree;
pub(crate) use import::import_tree;

use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::show;
use crate::text::Text;
use cistern_text::Progress;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What was copied.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) directories: u64,
    pub(crate) files: u64,
    pub(crate) symlinks: u64,
    pub(crate) bytes: u64,
    /// What was not copied, and why.
    pub(crate) left_out: Vec<String>,
}

impl Tally {
    fn left_out(&mut self, what: &str, why: &str) {
        self.left_out.push(format!("{what}: {why}"));
    }

    fn progress(&self, progress: &mut Progress) {
        progress.tell(&format!("{} directories, {} files, {} KiB", self.directories, self.files, self.bytes / 1_024));
    }

    /// Prints it; what was left out is a failure.
    pub(crate) fn report(&self, ctx: &Ctx) -> Result<(), Failure> {
        if !ctx.is_json() {
            self.left_out.iter().for_each(|line| show::error("cistern", &Failure::failed(format!("left out: {line}"))));
        }
        ctx.print(self)?;
        match (self.left_out.len(), ctx.is_json()) {
            (0, _) => Ok(()),
            // Each was reported.
            (_, false) => Failure::of_status(EXIT_FAILED),
            (count, true) => {
                let what = format!("{count} files of the tree were left out: `left_out` names them");
                Err(Failure::new("LEFT_OUT", EXIT_FAILED, what))
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directories, files, symlinks, bytes, .. } = self;
        write!(f, "{directories} directories, {files} files, {symlinks} symbolic links, {bytes} bytes")
    }
}

/// A local path, for people.
fn shown(path: &Path) -> String {
    Text::from(path.as_os_str()).to_string()
}
