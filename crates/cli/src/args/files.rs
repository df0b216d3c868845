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
    /// Long format (show attributes)
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// Files and directories to list
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
  cistern put index.html /site/index.html --if-version 7      only if nobody has changed it
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
    /// Destination; with a trailing slash, a directory
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
    /// Create parent directories, too; no error if the directory exists
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
    /// Remove directories and their contents
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// Ignore paths that do not exist
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Remove files although others hold locks on them, which is an error otherwise
    #[arg(long)]
    pub(crate) override_locks: bool,
    /// Paths to remove
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Mv {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Fail if the destination exists
    #[arg(short = 'n', long, visible_alias = "no-replace", conflicts_with = "exchange", overrides_with = "force")]
    pub(crate) no_clobber: bool,
    /// Exchange the two files atomically
    #[arg(long)]
    pub(crate) exchange: bool,
    /// Replace an existing destination (the default)
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    force: bool,
    /// Move, exchange or replace files although others hold locks on them, which is an error otherwise
    #[arg(long)]
    pub(crate) override_locks: bool,
    /// Source
    pub(crate) from: OsString,
    /// Destination, or a directory to move it into
    pub(crate) to: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Ln {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Create a symbolic link
    #[arg(short = 's', long = "symbolic")]
    pub(crate) symbolic: bool,
    /// Target of the link
    pub(crate) target: OsString,
    /// Path of the link
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Local directory; files above 1 MiB are skipped and reported
    pub(crate) dir: PathBuf,
    /// Destination directory, created if missing. Existing files and links are replaced
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) common: Common,
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
