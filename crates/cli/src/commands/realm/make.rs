//! `cistern realm make`.

use crate::commands::{Changed, Run};
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use cistern_text::octal;
use clap::Args;
use std::ffi::OsString;

const MAKE_HELP: &str = "\
What is created below a realm's directory belongs to the realm. Rights and quotas are per realm, so nothing moves from one realm into \
another: `mv` and `ln` across realms fail. A realm ends when its directory, empty, is removed (`cistern rm -d`).";

/// Create directories that begin a realm each
#[derive(Args, Debug)]
#[command(after_help = MAKE_HELP)]
pub(crate) struct RealmMake {
    /// Permission bits, octal
    #[arg(short = 'm', long, value_parser = octal, default_value = "755")]
    mode: u16,
    /// Directories
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Run for RealmMake {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        ctx.each(&self.paths, |ctx, path| {
            let attr = ctx.agent()?.change(Request::Mkdir { path: path.clone(), mode: self.mode, realm: true })?;
            let text = format!("{path} begins realm {}", attr.realm);
            ctx.print(&Changed { path, attr, text })
        })
    }
}
