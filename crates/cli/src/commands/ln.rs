//! `cistern ln`: links.

use super::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use clap::Args;
use std::ffi::OsString;

/// Create a link to a file
#[derive(Args, Debug)]
pub(crate) struct Ln {
    /// Create a symbolic link
    #[arg(short = 's', long = "symbolic")]
    symbolic: bool,
    /// Target of the link
    target: OsString,
    /// Path of the link
    path: OsString,
}

impl Run for Ln {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (target, path) = (Text::from(self.target.as_os_str()), Text::from(self.path.as_os_str()));
        let request = match self.symbolic {
            true => Request::Symlink { target, path: path.clone() },
            false => Request::Link { existing: target, path: path.clone() },
        };
        let attr = ctx.agent()?.change(request)?;
        ctx.print(&Changed::quietly(&path, attr))
    }
}
