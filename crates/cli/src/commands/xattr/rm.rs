//! `cistern xattr rm`.

use crate::commands::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use clap::Args;
use std::ffi::OsString;

/// Remove an attribute
#[derive(Args, Debug)]
pub(crate) struct XattrRm {
    /// Path
    path: OsString,
    /// Name of the attribute, 1 to 255 bytes
    name: OsString,
}

impl Run for XattrRm {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (path, name) = (Text::from(self.path.as_os_str()), Text::from(self.name.as_os_str()));
        let attr = ctx.agent()?.change(Request::RemoveXattr { path: path.clone(), name })?;
        ctx.print(&Changed::quietly(&path, attr))
    }
}
