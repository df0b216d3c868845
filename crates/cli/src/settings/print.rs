//! The settings as people read them: a settings file with all defaults, and the page of the manual.
//!
//! Decides: how both look. Invariant: both are made from `table` alone, and the file is a valid one that changes nothing.
//! Leaves to others: the words about each setting (`table`).

use super::table::{AGENT, CLIENT, LOG, Named, SERVER, Setting};

/// Widest line of the file's comments.
const WIDTH: usize = 110;

/// Every setting, with its default, as a settings file.
pub(crate) fn toml() -> String {
    let mut text = String::from(
        "# Settings of Cistern: name this file by --config FILE or CISTERN_CONFIG, or keep it as\n\
         # ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml. Everything here is at its default.\n\
         # Times are texts (\"500ms\", \"2s\", \"1m\", \"1h\") or numbers of seconds, sizes are texts or numbers of bytes.\n\
         # Flags win over this file. What follows the lease period is commented out: set it only to fix it.\n",
    );
    toml_table(&mut text, SERVER);
    toml_table(&mut text, AGENT);
    toml_table(&mut text, CLIENT);
    toml_table(&mut text, LOG);
    text
}

fn toml_table<C: Named>(text: &mut String, table: &[Setting<C>]) {
    text.push_str(&format!("\n[{}]\n", C::TABLE));
    for Setting { name, rule, help, follows, .. } in table {
        let follows = follows.map_or_else(String::new, |what| format!(" Follows the lease period: {what}."));
        text.push('\n');
        comment(text, &format!("{help}. It must be {rule}.{follows}"));
        let mark = if follows.is_empty() { "" } else { "# " };
        text.push_str(&format!("{mark}{name} = {}\n", default_text(table, name)));
    }
}

fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

fn default_text<C: Named>(table: &[Setting<C>], name: &str) -> String {
    let default = C::default();
    table.iter().find(|setting| setting.name == name).map(|setting| (setting.text)(&default)).unwrap_or_default()
}

/// The page of the manual.
#[cfg(test)]
pub(super) fn markdown() -> String {
    let mut text = String::from(
        "# Settings\n\n\
         Every setting, its default, and the relation that it must keep. They are set in a TOML file: the one that `--config FILE` or\n\
         `CISTERN_CONFIG` names, else `$XDG_CONFIG_HOME/cistern/cistern.toml` (`~/.config` where the variable is not set), else\n\
         `/etc/cistern/cistern.toml`. It is a regular file, no pipe; `/dev/null` stands for no settings.\n\
         `cistern settings` prints such a file with all settings. Some are flags, too; a flag wins over the environment, the environment over the file. Times are texts (`\"500ms\"`, `\"2s\"`, `\"1m\"`, `\"1h\"`) or numbers of seconds, sizes are texts or numbers of bytes. A\n\
         setting that cannot be used is told with its file and line, and the exit status is 2. What is marked by ↻ a running\n\
         daemon takes up when it gets SIGHUP (`systemctl reload`); it logs which changed settings wait for its next start.\n\
         `cistern settings --effective` shows what is in force, and where it comes from; with `--control SOCKET`, of a running server.\n\n\
         This page is made from `crates/cli/src/settings/table.rs`, by `UPDATE_EXPECT=1 cargo test -p cistern-cli settings`.\n",
    );
    markdown_table(&mut text, SERVER, "`cisternd`");
    markdown_table(&mut text, AGENT, "`cistern agent run`, and every command with an agent of its own");
    markdown_table(&mut text, CLIENT, "`cistern agent run`, and every command that asks a server");
    markdown_table(&mut text, LOG, "`cisternd`, `cistern agent run`");
    text
}

#[cfg(test)]
fn markdown_table<C: Named>(text: &mut String, table: &[Setting<C>], who: &str) {
    text.push_str(&format!("\n## [{}]: {who}\n\n| setting | default | must be | what it is |\n|---|---|---|---|\n", C::TABLE));
    for Setting { name, rule, help, follows, flag, .. } in table {
        let default = default_text(table, name).replace('"', "");
        let default = follows.map_or_else(|| default.clone(), |what| format!("{default}; follows τ: {what}"));
        let flag = flag.map_or_else(String::new, |flag| format!(" (`{flag}`)"));
        let live = if C::TABLE == "log" || (C::TABLE == "server" && cistern_server::status::LIVE.contains(name)) { " ↻" } else { "" };
        text.push_str(&format!("| `{name}`{flag}{live} | {default} | {rule} | {help} |\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;
    use std::time::Duration;

    /// Reads the text as a settings file.
    fn configs(text: &str) -> (cistern_server::Config, cistern_agent::config::Config) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let settings = load(Some(file.path())).unwrap_or_else(|f| panic!("{}\n{text}", f.message));
        let mut server = cistern_server::Config::default();
        settings.apply(SERVER, &mut server).unwrap();
        (server, settings.agent_config().unwrap())
    }

    #[test]
    fn the_printed_file_is_valid_and_changes_nothing() {
        assert_eq!(configs(&toml()), Default::default());
    }

    #[test]
    fn the_printed_file_is_still_valid_with_everything_in_it_set() {
        let lines = toml()
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line).to_owned())
            .collect::<Vec<_>>();
        let text = lines.join("\n");
        assert_eq!(configs(&text), Default::default());
        let set = lines.iter().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty()).count();
        assert_eq!(set, SERVER.len() + AGENT.len() + CLIENT.len() + LOG.len());
    }

    #[test]
    fn exactly_what_changes_with_the_lease_is_said_to_follow_it() {
        let (short, long) = (Duration::from_millis(400), Duration::from_secs(3_600));
        for setting in SERVER.iter().filter(|setting| setting.name != "lease") {
            let at = |lease| (setting.text)(&cistern_server::Config::for_lease(lease));
            let changes = at(short) != at(long) || at(Duration::from_secs(2)) != at(long);
            assert_eq!(changes, setting.follows.is_some(), "{}", setting.name);
        }
    }

    #[test]
    fn names_are_unique_and_every_line_of_the_file_is_short() {
        let mut names: Vec<_> = SERVER.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SERVER.len());
        for line in toml().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn the_manual_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        expect_test::expect_file![path].assert_eq(&markdown());
    }
}
