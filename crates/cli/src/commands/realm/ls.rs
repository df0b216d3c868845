//! `cistern realm ls`.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use clap::Args;

/// List all realms, with their use and quotas
#[derive(Args, Debug)]
pub(crate) struct RealmList {}

impl Run for RealmList {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let rows = ctx.agent()?.call(Request::Realms { realm: None })?.realms()?;
        ctx.print_rows(&rows, super::table(&rows))
    }
}
