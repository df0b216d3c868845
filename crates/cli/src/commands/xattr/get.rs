//! `cistern xattr get`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::IsTerminal;

/// Write the value of an attribute to standard output
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  cistern xattr get /site user.origin")]
pub(crate) struct XattrGet {
    /// Path
    path: OsString,
    /// Name of the attribute, 1 to 255 bytes
    name: OsString,
}

impl Run for XattrGet {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (path, name) = (Text::from(self.path.as_os_str()), Text::from(self.name.as_os_str()));
        let (done, value) = ctx.agent()?.call(Request::GetXattr { path: path.clone(), name: name.clone() })?.xattr()?;
        let mut raw = value.0.clone();
        // Only a person needs the end of the line.
        if std::io::stdout().is_terminal() && !raw.ends_with(b"\n") {
            raw.push(b'\n');
        }
        ctx.print_bytes(|| json!({ "path": path, "object": done.object, "version": done.version, "name": name, "value": value }), &raw)
    }
}
