//! docs/cli.md: every command of both programs with its arguments, made from their command lines.

use crate::command_line::{Cistern, Cisternd};
use clap::{Arg, Command};
use std::fmt::Write;

const HEAD: &str = "\
# Commands

Every command of `cistern` and `cisternd`, with its options; `--help` says the same, `cistern man DIR` writes it as manual pages, and `cistern completions
SHELL` prints a completion script. The global options of `cistern` stand before the command or after it, and every command refuses those that it has no use
for. A flag wins over the environment, the environment over the [settings file](settings.md). [exit-statuses.md](exit-statuses.md) lists the exit statuses.

This page is made by `UPDATE_EXPECT=1 cargo test -p cistern-cli manual`.
";

fn page() -> String {
    let mut text = String::from(HEAD);
    for program in [Cistern::prepared(), Cisternd::prepared()] {
        command(&mut text, &program, "");
    }
    text
}

fn command(text: &mut String, command: &Command, above: &str) {
    let name = format!("{above}{}", command.get_name());
    let marks = if above.is_empty() { "##" } else { "###" };
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    write!(text, "\n{marks} {name}\n\n{about}.\n\n```text\n{usage}\n```\n").unwrap();
    let inherited = |arg: &Arg| arg.is_global_set() && !above.is_empty();
    let own: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set() && !inherited(arg) && !is_common(arg)).collect();
    if !own.is_empty() {
        text.push_str("\n| argument | meaning |\n|---|---|\n");
        own.iter().for_each(|arg| row(text, arg));
    }
    let globals = command.get_arguments().filter(|arg| inherited(arg) && !arg.is_hide_set()).filter_map(Arg::get_long);
    let globals: Vec<_> = globals.filter(|name| !["verbose", "quiet"].contains(name)).map(|name| format!("`--{name}`")).collect();
    match globals.len() {
        0 => {}
        8.. => text.push_str("\nGlobal options: all.\n"),
        _ => write!(text, "\nGlobal options: {}.\n", globals.join(", ")).unwrap(),
    }
    // That of the program is the help that people see first.
    if let Some(after) = command.get_after_help() {
        write!(text, "\n```text\n{after}\n```\n").unwrap();
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        self::command(text, sub, &format!("{name} "));
    }
}

/// Help and version.
fn is_common(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

fn row(text: &mut String, arg: &Arg) {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values()).map(|names| names.join(" "));
    let flags: Vec<_> =
        arg.get_short().map(|c| format!("`-{c}`")).into_iter().chain(arg.get_long().map(|long| format!("`--{long}`"))).collect();
    let flags = flags.join(", ");
    let name = match (flags.is_empty(), value) {
        (true, value) => format!("`{}`", value.unwrap_or_else(|| arg.get_id().to_string().to_uppercase())),
        (false, Some(value)) => format!("{flags} `{value}`"),
        (false, None) => flags,
    };
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        write!(help, "; default: {}", defaults.join(" ")).unwrap();
    }
    let possible: Vec<_> = arg.get_possible_values().iter().filter(|value| !value.is_hide_set()).map(|v| v.get_name().to_owned()).collect();
    if !possible.is_empty() && arg.get_action().takes_values() {
        write!(help, "; one of: {}", possible.join(", ")).unwrap();
    }
    if let Some(variable) = arg.get_env() {
        write!(help, "; environment: {}", variable.to_string_lossy()).unwrap();
    }
    writeln!(text, "| {name} | {} |", help.replace('|', "\\|").replace('\n', " ")).unwrap();
}

#[test]
fn docs_cli_md_is_up_to_date() {
    expect_test::expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")].assert_eq(&page());
}
