//! `cistern xattr list`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;

/// List the names of all attributes
#[derive(Args, Debug)]
pub(crate) struct XattrList {
    /// Paths
    #[arg(required = true)]
    paths: Vec<OsString>,
}

#[derive(Serialize)]
struct XattrNames<'a> {
    path: &'a Text,
    object: u64,
    version: u64,
    names: Vec<Text>,
    #[serde(skip)]
    several: bool,
}

impl fmt::Display for XattrNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.several.then(|| format!("{}:", self.path));
        let lines: Vec<_> = head.into_iter().chain(self.names.iter().map(Text::to_string)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Run for XattrList {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let several = self.paths.len() > 1;
        ctx.each(&self.paths, |ctx, path| {
            let (done, names) = ctx.agent()?.call(Request::ListXattr { path: path.clone() })?.xattrs()?;
            ctx.print(&XattrNames { path, object: done.object, version: done.version, names, several })
        })
    }
}
