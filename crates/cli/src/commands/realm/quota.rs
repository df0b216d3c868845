//! `cistern realm quota`.

use crate::commands::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::text::Text;
use cistern_text::size;
use clap::Args;
use std::ffi::OsString;

/// Set quotas of a realm
#[derive(Args, Debug)]
pub(crate) struct RealmQuota {
    /// Most files, directories and symbolic links; 0: no quota
    #[arg(long, value_name = "COUNT", required_unless_present = "bytes")]
    objects: Option<u64>,
    /// Most bytes of contents and extended attributes; 0: no quota
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// The directory that begins the realm
    path: OsString,
}

impl Run for RealmQuota {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let path = Text::from(self.path.as_os_str());
        let attr = ctx.agent()?.change(Request::SetQuota { path: path.clone(), objects: self.objects, bytes: self.bytes })?;
        ctx.print(&Changed::quietly(&path, attr))
    }
}
