//! The command lines of small changes: chmod, truncate, xattr, batch.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do (`change`, `batch`).

use super::{Common, Paths, octal, size};
use clap::{Args, Subcommand};
use std::ffi::OsString;

pub(super) const BATCH_HELP: &str = "\
A script has one change on a line, in words as a shell reads them (quotes, backslashes, # for comments); at most 16 changes, of which write and put count as two:
  create PATH                  an empty file, which must not exist
  write PATH TEXT              replace the contents of a file by TEXT, or create it
  put FILE PATH                the same with the contents of a local file
  mkdir PATH                   rmdir PATH
  rm PATH                      a file or symbolic link
  mv OLD NEW                   mv -n OLD NEW: NEW must not exist; mv -x ONE OTHER: exchange them
  ln FILE PATH                 ln -s TARGET PATH: a symbolic link
  chmod MODE PATH              truncate SIZE PATH
  setxattr PATH NAME VALUE     rmxattr PATH NAME
  if-version VERSION PATH      apply nothing unless PATH has that version; at most 8

Each change sees those before it. A path is resolved as before the batch, unless an earlier change created that very name.
Nobody observes a state between two changes; if one fails, none is applied.

Examples:
  printf 'mkdir /site/v2\\nput index.html /site/v2/index.html\\n' | cistern batch
  cistern batch --json release.script

Exit status:
  0   all changes were applied
  1   none was applied
  3   none was applied: a precondition (`if-version`, `create`, `mv -n`) does not hold
  74  the outcome is unknown: all were applied, or none";

#[derive(Args, Debug)]
pub(crate) struct Chmod {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Permission bits, octal
    #[arg(value_parser = octal)]
    pub(crate) mode: u16,
    /// Paths
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Truncate {
    #[command(flatten)]
    pub(crate) common: Common,
    /// New size: bytes, or with a unit (10K, 1M); at most 1M
    #[arg(short = 's', long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: u64,
    /// Files
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Xattr {
    #[command(subcommand)]
    pub(crate) act: XattrAct,
}

#[derive(Debug, Subcommand)]
pub(crate) enum XattrAct {
    /// Write the value of an attribute to standard output
    #[command(after_help = "Example:\n  cistern xattr get /site user.origin")]
    Get(XattrName),
    /// Set an attribute
    #[command(after_help = "Examples:\n  cistern xattr set /site user.origin web-1\n  cistern xattr set --from logo.png /site user.icon")]
    Set(XattrSet),
    /// List the names of all attributes
    List(Paths),
    /// Remove an attribute
    Rm(XattrName),
}

#[derive(Args, Debug)]
pub(crate) struct XattrName {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Path
    pub(crate) path: OsString,
    /// Name of the attribute, 1 to 255 bytes
    pub(crate) name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct XattrSet {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Fail if it exists
    #[arg(long, conflicts_with = "replace")]
    pub(crate) create: bool,
    /// Fail if it does not exist
    #[arg(long)]
    pub(crate) replace: bool,
    /// Take the value from a local file; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub(crate) from: Option<OsString>,
    /// Path
    pub(crate) path: OsString,
    /// Name of the attribute, 1 to 255 bytes
    pub(crate) name: OsString,
    /// Its value, at most 64 KiB
    #[arg(required_unless_present = "from")]
    pub(crate) value: Option<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Script; `-` for standard input
    #[arg(default_value = "-")]
    pub(crate) script: OsString,
}
