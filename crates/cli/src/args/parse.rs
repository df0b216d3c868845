//! From the words of a command line to its values.
//!
//! Decides: that connection options stand before the command or after it; that a command that asks no server neither shows nor takes
//! them; that usage lines show what the command needs and not what the environment sets.
//! Leaves to others: which options there are (`args`).

use super::{Cistern, Cisternd};
use crate::show;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use std::ffi::{OsStr, OsString};

impl Cistern {
    /// The command line of this process; ends the process when it cannot be read.
    pub(crate) fn read() -> Self {
        Self::read_from(std::env::args_os()).unwrap_or_else(|e| show::usage("cistern", &e))
    }

    fn read_from(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = prepared::<Self>();
        let matches = command.try_get_matches_from_mut(words)?;
        refuse_unused(&mut command, &matches)?;
        Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
    }
}

impl Cisternd {
    /// The command line of this process; ends the process when it cannot be read.
    pub(crate) fn read() -> Self {
        let mut command = prepared::<Self>();
        let read = command.try_get_matches_from_mut(std::env::args_os());
        let read = read.and_then(|matches| Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command)));
        read.unwrap_or_else(|e| show::usage("cisternd", &e))
    }
}

/// The program's command line, with all that its commands inherit.
fn prepared<P: CommandFactory>() -> Command {
    let mut command = P::command();
    command.build();
    finish(&mut command, &P::command());
    command
}

/// Options of every command.
const EVERYWHERE: [&str; 2] = ["verbose", "quiet"];

/// Hides what a command inherits without having a use for it, and fixes its usage line.
fn finish(command: &mut Command, declared: &Command) {
    let unused = |id: &clap::Id| !EVERYWHERE.contains(&id.as_str()) && declared.get_arguments().all(|arg| arg.get_id() != id);
    *command = std::mem::take(command).mut_args(|arg| if arg.is_global_set() && unused(arg.get_id()) { arg.hide(true) } else { arg });
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    *command = std::mem::take(command).override_usage(usage);
    for sub in command.get_subcommands_mut() {
        if let Some(declared) = declared.find_subcommand(sub.get_name()) {
            finish(sub, declared);
        }
    }
}

/// Arguments that may be empty: they are no paths.
const NO_PATHS: [&str; 4] = ["command", "value", "who", "name"];

/// Refuses an option that the command has no use for, wherever it stands, and empty paths.
fn refuse_unused(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let (mut leaf, mut at, mut names) = (matches, &*command, Vec::new());
    while let Some((name, inner)) = leaf.subcommand() {
        let Some(sub) = at.find_subcommand(name) else { break };
        names.push(name);
        (leaf, at) = (inner, sub);
    }
    let is_path = |arg: &&clap::Arg| arg.is_positional() && !NO_PATHS.contains(&arg.get_id().as_str());
    let empty = |arg: &&clap::Arg| leaf.get_raw(arg.get_id().as_str()).is_some_and(|mut words| words.any(OsStr::is_empty));
    let empty = at.get_arguments().filter(is_path).find(empty).map(|arg| arg.get_id().as_str().to_uppercase());
    let given = |arg: &&clap::Arg| {
        arg.is_hide_set() && arg.is_global_set() && leaf.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let unused = at.get_arguments().find(given).map(|arg| arg.get_long().unwrap_or_default().to_owned());
    if let Some(name) = empty {
        let what = format!("<{name}> is empty, which names nothing; the root is /");
        return Err(command.error(ErrorKind::InvalidValue, what));
    }
    let Some(unused) = unused else { return Ok(()) };
    let what = format!("`cistern {}` has no use for --{unused}", names.join(" "));
    Err(command.error(ErrorKind::UnknownArgument, what))
}

#[cfg(test)]
mod tests {
    use super::super::Command as Which;
    use super::*;
    use std::path::Path;

    fn read(words: &str) -> Result<Cistern, clap::Error> {
        Cistern::read_from(words.split(' ').map(OsString::from))
    }

    #[test]
    fn connection_options_stand_before_and_after_the_command() {
        for words in [
            "cistern --server a,b --pcap f --json ls /",
            "cistern ls --server a,b --pcap f --json /",
            "cistern --server a,b ls / --pcap f --json",
            "cistern --json xattr --server a,b get --pcap f / n",
        ] {
            let read = read(words).unwrap_or_else(|e| panic!("{words}: {e}"));
            let inner = match &read.command {
                Which::Ls(args) => &args.common,
                Which::Xattr(args) => match &args.act {
                    super::super::XattrAct::Get(args) => &args.common,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            };
            for common in [&read.common, inner] {
                assert_eq!((&common.server[..], common.json), (&["a".to_owned(), "b".to_owned()][..], true), "{words}");
                assert_eq!(common.pcap.as_deref(), Some(Path::new("f")), "{words}");
            }
        }
    }

    #[test]
    fn what_stands_after_the_command_wins() {
        let Which::Ls(args) = read("cistern --server a ls --server b").unwrap().command else { panic!("not ls") };
        assert_eq!(args.common.server, ["b"]);
    }

    #[test]
    fn a_command_that_asks_no_server_neither_shows_nor_takes_one() {
        for words in
            ["cistern --server a demo", "cistern demo --server a", "cistern plan --rate 1/s --agent /s", "cistern --server a admin evict b"]
        {
            assert!(read(words).unwrap_err().to_string().contains("has no use for --"), "{words}");
        }
        for (words, shown) in [("cistern demo --help", false), ("cistern ls --help", true)] {
            assert_eq!(read(words).unwrap_err().to_string().contains("--server"), shown, "{words}");
        }
    }

    #[test]
    fn an_empty_path_is_refused_and_an_empty_value_is_not() {
        let words = |words: &[&str]| Cistern::read_from(words.iter().map(OsString::from));
        assert!(words(&["cistern", "stat", "/a", ""]).unwrap_err().to_string().contains("<PATHS> is empty"));
        assert!(words(&["cistern", "xattr", "set", "/a", "n", ""]).is_ok());
        assert!(words(&["cistern", "lock", "/a", "--", "echo", ""]).is_ok());
    }

    #[test]
    fn a_usage_line_shows_what_the_command_needs() {
        let told = read("cistern put --server a x").unwrap_err().to_string();
        assert!(told.contains("Usage: cistern put [OPTIONS] <FROM> <PATH>"), "{told}");
    }

    #[test]
    fn every_page_of_help_begins_with_the_command_s_own_options() {
        let help = read("cistern put --help").unwrap_err().to_string();
        let at = |what: &str| help.find(what).unwrap_or_else(|| panic!("no {what} in {help}"));
        assert!(at("--mode") < at("\nConnection:") && at("\nConnection:") < at("--server") && at("--server") < at("--pcap"), "{help}");
    }
}
