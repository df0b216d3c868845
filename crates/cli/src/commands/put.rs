//! `cistern put`: stores a local file.

use super::{Changed, Run, read_local};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::{Blob, Text};
use cistern_text::octal;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const PUT_HELP: &str = "\
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

/// Store a local file (or `-`, standard input) at a path
#[derive(Args, Debug)]
#[command(after_help = PUT_HELP)]
pub(crate) struct Put {
    /// Local file; `-` for standard input
    from: OsString,
    /// Destination; with a trailing slash, a directory
    path: OsString,
    /// Permission bits, octal, if the file is new
    #[arg(long, value_parser = octal, default_value = "644")]
    mode: u16,
    /// Only if the file has this version (`cistern stat` shows it); 0: only if it does not exist
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

impl Run for Put {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        // Read before anything is asked of the server: a local mistake costs nobody anything.
        let data = read_local(&self.from)?;
        let path = into(&self.path, &self.from)?;
        let request = Request::Put { path: path.clone(), data: Blob(data), mode: self.mode, if_version: self.if_version };
        let attr = ctx.agent()?.change(request)?;
        let text = format!("{path}: version {}", attr.version);
        ctx.print(&Changed { path: &path, attr, text })
    }
}

/// The destination: a path that ends in `/` is the directory that gets the file.
fn into(path: &OsStr, from: &OsStr) -> Result<Text, Failure> {
    let path = Text::from(path);
    if !path.0.ends_with(b"/") {
        return Ok(path);
    }
    let name = Path::new(from).file_name().filter(|_| from != "-");
    let name = name.ok_or_else(|| Failure::usage(format!("{path}: standard input needs a file name as its destination")))?;
    Ok(path.join(name.as_encoded_bytes()))
}
