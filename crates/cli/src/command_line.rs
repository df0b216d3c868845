//! The command lines of `cistern` and `cisternd`: from words to values.
//!
//! Decides: that global options stand before the command or after it; that a command that has no use for one neither shows nor takes it; that
//! usage lines show what the command needs and not what the environment sets.
//! Leaves to others: which options there are (`options`), which commands there are, and which options each of them takes (`commands`).

use crate::commands::serve::{SERVE_HELP, Serve};
use crate::commands::{Command as CisternCommand, Run, StoreCommand};
use crate::options::{Options, Verbosity};
use crate::show;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser};
use std::ffi::{OsStr, OsString};

/// What `--version` says after the program's name.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (protocol version 1)");
const _: () = assert!(cistern_wire::limits::VERSION == 1, "VERSION names the protocol's");

// Paragraphs are single lines here: the help wraps them to the terminal.
const EXAMPLES: &str = "\
Examples:
  cistern demo                                   see it work, on this machine, in half a minute
  cisternd init --new-cluster ./store; cisternd --store ./store     a server on loopback
  export CISTERN_SERVER=meta.example.net:7311
  cistern lock /jobs/nightly -- ./backup.sh      run a job on exactly one of many hosts
  cistern import ./site /site && cistern ls -l /site
  cistern locks --json
  cistern member join /group/$(hostname) &       be a member of a group while this runs
  cistern member watch /group                    reports joins and departures

Exit status:
  0   success
  1   the operation failed
  2   wrong usage or settings
  3   a precondition does not hold (--if-version, mv -n, xattr set --create, batch), and nothing was changed
  69  no answer from the server, or it refuses a session
  70  a defect of cistern itself
  74  the outcome of a change is unknown

With --json an error is one object on standard error: {\"error\":{\"code\":\"ENOENT\",\"message\":…,\"path\":…,\"exit\":1}}. Names and contents are texts \
where they are UTF-8, else {\"b64\":…}; permission bits are octal texts.

The log goes to standard error: -v and -q, or CISTERN_LOG=LEVEL: off, error, warn (commands), info (daemons), debug, trace; also by crate:
  CISTERN_LOG=warn,cistern_server=debug
NO_COLOR=1 turns colours off.

`cistern lock` has more: see `cistern lock --help`.";

/// Locks, leases and metadata for groups of computers.
#[derive(Debug, Parser)]
#[command(name = "cistern", version = VERSION, after_help = EXAMPLES, max_term_width = 120)]
pub(crate) struct Cistern {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: CisternCommand,
}

/// The metadata server of Cistern.
#[derive(Debug, Parser)]
#[command(name = "cisternd", version = VERSION, after_help = SERVE_HELP, max_term_width = 120)]
pub(crate) struct Cisternd {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(subcommand)]
    pub(crate) command: Option<StoreCommand>,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// Whether the command's results and errors are to be JSON.
    #[arg(skip)]
    pub(crate) json: bool,
}

impl Cistern {
    /// The command line of this process; ends the process when it cannot be read.
    pub(crate) fn read() -> Self {
        Self::read_from(std::env::args_os()).unwrap_or_else(|e| show::usage("cistern", &e))
    }

    fn read_from(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::prepared();
        let matches = command.try_get_matches_from_mut(words)?;
        refuse_unused(&mut command, &matches)?;
        let read = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        Ok(Self { options: one_agent(&mut command, &matches, read.options)?, ..read })
    }

    /// The program's command line as people see it.
    pub(crate) fn prepared() -> Command {
        let mut command = Self::command();
        command.build();
        finish(&mut command, &Self::command(), &mut Vec::new());
        command
    }
}

impl Cisternd {
    /// The command line of this process; ends the process when it cannot be read.
    pub(crate) fn read() -> Self {
        Self::read_from(std::env::args_os()).unwrap_or_else(|e| show::usage("cisternd", &e))
    }

    fn read_from(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::prepared();
        let matches = command.try_get_matches_from_mut(words)?;
        refuse_serving(&mut command, &matches)?;
        let json = matches!(innermost(&matches).try_get_one("json"), Ok(Some(true)));
        let read = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        Ok(Self { json, ..read })
    }

    /// The program's command line as people see it.
    pub(crate) fn prepared() -> Command {
        let mut command = Self::command();
        command.build();
        command
    }
}

/// Options of every command.
const EVERYWHERE: [&str; 2] = ["verbose", "quiet"];

/// Hides what a command inherits without having a use for it, and fixes its usage line. `words` lead to the command.
fn finish(command: &mut Command, declared: &Command, words: &mut Vec<String>) {
    let path: Vec<_> = words.iter().map(String::as_str).collect();
    let takes = CisternCommand::takes(&path);
    let own = |id: &str| declared.get_arguments().any(|arg| arg.get_id() == id);
    let unused = |id: &str| !words.is_empty() && !EVERYWHERE.contains(&id) && !takes.contains(&id) && !own(id);
    *command = std::mem::take(command).mut_args(|arg| match arg.is_global_set() && unused(arg.get_id().as_str()) {
        true => arg.hide(true),
        false => arg,
    });
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    *command = std::mem::take(command).override_usage(usage);
    for sub in command.get_subcommands_mut() {
        if let Some(declared) = declared.find_subcommand(sub.get_name()) {
            words.push(sub.get_name().to_owned());
            finish(sub, declared, words);
            words.pop();
        }
    }
}

/// Refuses an option of the server before a command, which has no use for it.
fn refuse_serving(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, _)) = matches.subcommand() else { return Ok(()) };
    let given = |arg: &&clap::Arg| !arg.is_global_set() && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let Some(long) = command.get_arguments().find(given).and_then(clap::Arg::get_long) else { return Ok(()) };
    let what = format!("--{long} before `{name}` is an option of the server; those of `cisternd {name}` stand after it");
    Err(command.error(ErrorKind::ArgumentConflict, what))
}

/// The matches of the command that is named, below its groups.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    let mut leaf = matches;
    while let Some((_, inner)) = leaf.subcommand() {
        leaf = inner;
    }
    leaf
}

/// What an agent of the command's own is told, and the host's has settings of its own for.
const OF_AN_OWN_AGENT: [(&str, &str); 2] = [("server", "--server"), ("lease_max", "--lease-max")];

/// Which agent is meant: what says how an agent of the command's own works goes with no host's agent, and wins over one that only the
/// environment names.
fn one_agent(command: &mut Command, matches: &ArgMatches, options: Options) -> Result<Options, clap::Error> {
    let leaf = innermost(matches);
    let given = |id: &str| leaf.value_source(id) == Some(ValueSource::CommandLine);
    let options = Options { server_flag: given("server"), ..options };
    let Some((_, flag)) = OF_AN_OWN_AGENT.into_iter().find(|(id, _)| given(id)) else { return Ok(options) };
    if given("agent") {
        let what =
            format!("{flag} is for an agent of this command's own, and --agent names the host's, which has its own: give one of them");
        return Err(command.error(ErrorKind::ArgumentConflict, what));
    }
    Ok(Options { agent: None, ..options })
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
    use super::*;
    use std::path::Path;

    fn read(words: &str) -> Result<Cistern, clap::Error> {
        Cistern::read_from(words.split(' ').map(OsString::from))
    }

    fn read_daemon(words: &str) -> Result<Cisternd, clap::Error> {
        Cisternd::read_from(words.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_lines_are_well_formed() {
        Cistern::command().debug_assert();
        Cisternd::command().debug_assert();
    }

    #[test]
    fn connection_options_stand_before_and_after_the_command() {
        for words in [
            "cistern --server a,b --pcap f --json ls /",
            "cistern ls --server a,b --pcap f --json /",
            "cistern --server a,b ls / --pcap f --json",
            "cistern --json xattr --server a,b get --pcap f / n",
        ] {
            let options = read(words).unwrap_or_else(|e| panic!("{words}: {e}")).options;
            assert_eq!((&options.server[..], options.json), (&["a".to_owned(), "b".to_owned()][..], true), "{words}");
            assert_eq!(options.pcap.as_deref(), Some(Path::new("f")), "{words}");
        }
    }

    #[test]
    fn what_stands_after_the_command_wins() {
        assert_eq!(read("cistern --server a ls --server b").unwrap().options.server, ["b"]);
    }

    #[test]
    fn a_command_that_asks_no_server_neither_shows_nor_takes_one() {
        for words in [
            "cistern --server a demo",
            "cistern demo --server a",
            "cistern plan --rate 1/s --agent /s",
            "cistern --agent s admin evict b",
            "cistern settings --pcap f",
            "cistern agent run --agent s",
        ] {
            assert!(read(words).unwrap_err().to_string().contains("has no use for --"), "{words}");
        }
        for (words, shown) in [("cistern demo --help", false), ("cistern ls --help", true)] {
            assert_eq!(read(words).unwrap_err().to_string().contains("--server"), shown, "{words}");
        }
    }

    #[test]
    fn what_is_for_an_agent_of_its_own_goes_with_no_host_s_agent() {
        for words in ["cistern ls --agent s --server a", "cistern --agent s ls --lease-max 2s", "cistern --server a lock --agent s / -- x"]
        {
            assert_eq!(read(words).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{words}");
        }
        assert_eq!(read("cistern ls --agent s").unwrap().options.host_agent(), Some(Path::new("s")));
    }

    #[test]
    fn before_a_command_of_cisternd_only_what_is_for_both_is_taken() {
        for words in ["cisternd -v check s", "cisternd check -v s"] {
            let read = read_daemon(words).unwrap_or_else(|e| panic!("{words}: {e}"));
            assert!(read.command.is_some() && read.verbosity.verbose == 1, "{words}");
        }
        assert!(read_daemon("cisternd check s --json").unwrap().json && !read_daemon("cisternd check s").unwrap().json);
        for words in ["cisternd --store s check s", "cisternd --json check s", "cisternd -l 1.2.3.4 check s"] {
            assert_eq!(read_daemon(words).unwrap_err().kind(), ErrorKind::ArgumentConflict, "{words}");
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
