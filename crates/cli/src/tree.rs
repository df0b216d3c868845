//! Whole trees: import from and export to a local directory.
//!
//! Decides: what is copied (directories, regular files, symbolic links; with permission bits and modification times), what is
//! left out and told (other kinds, files too large), and that one failure does not stop the rest.
//! Leaves to others: single operations (`files`, `backend`).
//!
//! | file | decides |
//! |---|---|
//! | `beneath` | how a local tree is entered: no link is followed, nothing outside is touched |
//! | `import` | who copies what, and that it can be repeated |
//! | `export` | what a server may make of this machine's files |

mod beneath;
mod export;
mod import;

pub(crate) use export::export;
pub(crate) use import::{import, import_tree};

use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::show;
use crate::text::Text;
use cistern_text::Progress;
use serde::Serialize;
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

    fn report(&self, json: bool) -> Result<(), Failure> {
        if json {
            show::json(self)?;
            if !self.left_out.is_empty() {
                return Err(Failure::new(
                    "LEFT_OUT",
                    EXIT_FAILED,
                    format!("{} files of the tree were left out: `left_out` names them", self.left_out.len()),
                ));
            }
        } else {
            for line in &self.left_out {
                show::error("cistern", &Failure::failed(format!("left out: {line}")));
            }
            show::line(format!(
                "{} directories, {} files, {} symbolic links, {} bytes",
                self.directories, self.files, self.symlinks, self.bytes
            ))?;
        }
        // Each was told.
        if self.left_out.is_empty() { Ok(()) } else { Err(Failure::failed("")) }
    }
}

/// A local path, for people.
fn shown(path: &Path) -> String {
    Text::from(path.as_os_str()).to_string()
}
