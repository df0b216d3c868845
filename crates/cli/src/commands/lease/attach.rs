//! `cistern lease attach`.

use super::SecretSource;
use crate::commands::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use clap::Args;
use std::ffi::OsString;

const ATTACH_HELP: &str = "\
A file that is attached goes with the lease. It has one name, which may be changed, and cannot be attached to a second lease.

Examples:
  cistern touch /site/web1
  cistern lease attach --secret-file web1.secret /web1 /site/web1";

/// Have files go with a named lease
#[derive(Args, Debug)]
#[command(after_help = ATTACH_HELP)]
pub(crate) struct LeaseAttach {
    /// Path of the lease
    #[arg(value_name = "LEASE")]
    name: OsString,
    /// Files or symbolic links
    #[arg(required = true)]
    paths: Vec<OsString>,
    #[command(flatten)]
    secret: SecretSource,
}

impl Run for LeaseAttach {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (lease, secret): (Text, _) = (self.name.as_os_str().into(), self.secret.read()?);
        ctx.each(&self.paths, |ctx, path| {
            let request = Request::LeaseAttach { path: path.clone(), lease: lease.clone(), secret: secret.clone() };
            let attr = ctx.agent()?.change(request)?;
            ctx.print(&Changed { path, attr, text: String::new() })
        })
    }
}
