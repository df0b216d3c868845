//! The command lines of files and directories: ls, stat, cat, put, mkdir, rm, mv, ln, import, export.
//!
//! Decides: names of their flags and their help. Leaves to others: what they do (`files`, `changes`, `tree`).

use super::Common;
use super::octal;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Attributes, too
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// What to list
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Paths {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Paths
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

pub(super) const PUT_HELP: &str = "\
Prints the new version of the file.

Examples:
  cistern put index.html /site/                               into the directory
  date | cistern put - /site/date
  cistern put index.html /site/index.html --if-version 7      unless somebody has changed it
  cistern put --json index.html /site/index.html

Exit status:
  0   success
  1   the operation failed
  3   --if-version: the file has another version, or it exists; nothing was changed
  74  the outcome of the change is unknown";

#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Local file; `-` for standard input
    pub(crate) from: OsString,
    /// Where it goes; with a slash at the end, into that directory
    pub(crate) path: OsString,
    /// Permission bits, octal, if the file is new
    #[arg(long, value_parser = octal, default_value = "644")]
    pub(crate) mode: u16,
    /// Only if the file has this version (`cistern stat` shows it); 0: only if it does not exist
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Parents, too; no error if the directory exists
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Permission bits, octal
    #[arg(short = 'm', long, value_parser = octal, default_value = "755")]
    pub(crate) mode: u16,
    /// Directories
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Directories and what is in them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Empty directories
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// No error for what does not exist; also what somebody holds a lock on: without -f that is refused, and its holder named
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Mv {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Fail if the new name exists
    #[arg(short = 'n', long, visible_alias = "no-replace", conflicts_with = "exchange")]
    pub(crate) no_clobber: bool,
    /// Exchange the two
    #[arg(long)]
    pub(crate) exchange: bool,
    /// Also move, exchange or replace what somebody holds a lock on: without -f that is refused, and its holder named
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Old path
    pub(crate) from: OsString,
    /// New path, or a directory to move it into
    pub(crate) to: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Ln {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A symbolic link
    #[arg(short = 's', long = "symbolic")]
    pub(crate) symbolic: bool,
    /// What it points to
    pub(crate) target: OsString,
    /// The new name
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Local directory; files above 1 MiB are left out and named
    pub(crate) dir: PathBuf,
    /// Where its contents go; made if missing. Files and links that are there are replaced
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Set-uid, set-gid and sticky bits of files, too
    #[arg(long)]
    pub(crate) preserve_special: bool,
    /// Symbolic links, too, that are absolute or may lead out of the tree; else they are left out and named
    #[arg(long)]
    pub(crate) unsafe_links: bool,
    /// Tree to copy out
    pub(crate) path: OsString,
    /// Local directory; made if missing. Files and links that are there are replaced, and no link below it is followed
    pub(crate) dir: PathBuf,
}
