//! `cistern completions`: scripts by which shells complete command lines.
//!
//! Decides: that they offer what the help shows, and nothing that is hidden or that a command has no use for.

use super::{NONE, Run};
use crate::command_line::Cistern;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::{Arg, Args, Command};
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
        generate(self.shell, &mut visible(&Cistern::prepared()), "cistern", &mut script);
        show::bytes(&script)
    }
}

/// A command without what is hidden, which the generators would offer.
fn visible(command: &Command) -> Command {
    // These clap adds anew.
    let is_own = |name: &str| name != "help" && name != "version";
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set() && is_own(arg.get_id().as_str()));
    // What is global was handed down already, and hidden where it is of no use.
    let args: Vec<Arg> = args.map(|arg| arg.clone().global(false)).collect();
    let below: Vec<Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set() && is_own(sub.get_name())).map(visible).collect();
    let shown = Command::new(command.get_name().to_owned()).args(args).subcommands(below);
    let shown = if let Some(version) = command.get_version() { shown.version(version.to_owned()) } else { shown };
    if let Some(about) = command.get_about() { shown.about(about.clone()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn options(command: &str) -> Vec<String> {
        let program = visible(&Cistern::prepared());
        let sub = program.find_subcommand(command).unwrap();
        sub.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect()
    }

    #[test]
    fn what_is_hidden_is_not_offered() {
        assert!(visible(&Cistern::prepared()).find_subcommand("serve").is_none());
        let of = |command: &str, option: &str| options(command).iter().any(|long| long == option);
        assert!(of("ls", "server") && of("demo", "verbose") && !of("demo", "server") && !of("completions", "agent"));
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            generate(*shell, &mut visible(&Cistern::prepared()), "cistern", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("if-version") && !script.contains("new-cluster"), "{shell}");
        }
    }
}
