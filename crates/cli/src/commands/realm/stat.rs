//! `cistern realm stat`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;
use std::ffi::OsString;

/// Show the realm to which a path belongs
#[derive(Args, Debug)]
pub(crate) struct RealmStat {
    /// Path
    path: OsString,
}

impl Run for RealmStat {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let agent = ctx.agent()?;
        let attr = agent.stat(&self.path.as_os_str().into(), true)?;
        let rows = agent.call(Request::Realms { realm: Some(attr.realm) })?.realms()?;
        ctx.print_rows(&rows, super::table(&rows))
    }
}
