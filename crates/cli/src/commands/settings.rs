//! `cistern settings`: every setting with its default, or those in force and where they come from.

use super::{Run, SETTINGS};
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::options::Options;
use crate::settings::{self, Settings};
use crate::{server_control, show};
use clap::Args;
use std::path::PathBuf;

const SETTINGS_HELP: &str = "\
Examples:
  cistern settings > cistern.toml
  cistern settings --effective
  cistern settings --effective --json | grep -v '\"default\"'
  cistern settings --control /var/lib/cistern/server/control.sock

Exit status:
  0   success
  2   a setting cannot be used
  69  --control: no server answers there";

/// Print every setting with its default and allowed range as a TOML file, or the settings in force
#[derive(Args, Debug)]
#[command(after_help = SETTINGS_HELP)]
pub(crate) struct ShowSettings {
    /// Print the settings in force with their sources: default, settings file, flag or environment
    #[arg(long)]
    effective: bool,
    /// Print the settings in force at the running server with this control socket
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl Run for ShowSettings {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        SETTINGS
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let options = ctx.options();
        let rows = match &self.control {
            Some(socket) => server_control::settings(socket)?,
            None if self.effective => settings::load(options.config.as_deref())?.effective(options)?,
            None if ctx.is_json() => Settings::default().effective(&Options::default())?,
            None => return show::bytes(settings::toml().as_bytes()),
        };
        ctx.print_rows(&rows, settings::table(&rows))
    }
}
