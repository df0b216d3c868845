//! `cistern completions`: scripts by which shells complete command lines.

use super::{NONE, Run};
use crate::command_line::Cistern;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::Args;
use clap_complete::{Shell, generate};

const COMPLETIONS_HELP: &str = "\
Examples:
  cistern completions bash > cistern.bash
  cistern completions fish > cistern.fish";

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

impl Run for Completions {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        NONE
    }

    fn run(&self, _: &mut Ctx) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cistern::prepared(), "cistern", &mut script);
        show::bytes(&script)
    }
}
