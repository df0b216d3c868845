//! `cistern xattr set`.

use crate::commands::{Changed, Run, read_local};
use crate::ctx::Ctx;
use crate::local::{AttrRule, Failure, Request};
use crate::text::{Blob, Text};
use clap::Args;
use std::ffi::OsString;

/// Set an attribute
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  cistern xattr set /site user.origin web-1\n  cistern xattr set --from logo.png /site user.icon")]
pub(crate) struct XattrSet {
    /// Fail if it exists
    #[arg(long, conflicts_with = "replace")]
    create: bool,
    /// Fail if it does not exist
    #[arg(long)]
    replace: bool,
    /// Take the value from a local file; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    from: Option<OsString>,
    /// Path
    path: OsString,
    /// Name of the attribute, 1 to 255 bytes
    name: OsString,
    /// Its value, at most 64 KiB
    #[arg(required_unless_present = "from")]
    value: Option<OsString>,
}

impl Run for XattrSet {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let value = match (&self.from, &self.value) {
            (Some(file), _) => read_local(file)?,
            (None, Some(value)) => Text::from(value.as_os_str()).0,
            (None, None) => return Err(Failure::usage("a value is needed, or --from FILE")),
        };
        let rule = match (self.create, self.replace) {
            (true, _) => AttrRule::Create,
            (_, true) => AttrRule::Replace,
            _ => AttrRule::Any,
        };
        let (path, name) = (Text::from(self.path.as_os_str()), Text::from(self.name.as_os_str()));
        let set = ctx.agent()?.change(Request::SetXattr { path: path.clone(), name, value: Blob(value), rule });
        let attr = set.map_err(|failure| match rule {
            AttrRule::Any => failure,
            AttrRule::Create => failure.precondition("EEXIST"),
            AttrRule::Replace => failure.precondition("ENODATA"),
        })?;
        ctx.print(&Changed::quietly(&path, attr))
    }
}
