//! A settings file: TOML with a table for the server, one for the agent and one for commands.
//!
//! Decides: what is a mistake in it (what cannot be read, what is no TOML, tables and settings that do not exist, values of another
//! kind) and how it is told: file, line, what is written there, what would be right. Of several mistakes the first is told.
//! Leaves to others: which settings there are (`table`), whether a value can be used (the crates' own checks).

use super::table::{AGENT, CLIENT, Client, LOG, Log, Named, SERVER, Setting};
use crate::local::Failure;
use cistern_agent::config::Config as Agent;
use cistern_server::Config as Server;
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Longest settings file, in bytes: all settings with their comments are a tenth of it.
const FILE_MAX: u64 = 1 << 20;

/// A file that was read; every setting in it exists and has a value of its kind.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    given: Vec<Given>,
}

/// One setting in the file.
#[derive(Debug)]
struct Given {
    table: &'static str,
    setting: String,
    value: Value,
    line: usize,
}

/// A mistake: where it is in the text, and what it is.
struct Mistake {
    at: usize,
    what: String,
}

impl File {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first mistake in it; whoever wrote it is at fault.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |why: String| Failure::usage(format!("settings file {}: {why}", path.display()));
        let meta = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
        let (kind, length) = (meta.file_type(), meta.len());
        // A pipe is waited for, perhaps for ever, and can be read once only. `/dev/null` stands for no settings.
        if !kind.is_file() && !kind.is_char_device() {
            return Err(unreadable("it is not a regular file; name one, or /dev/null for the defaults".to_owned()));
        }
        if length > FILE_MAX {
            return Err(unreadable(format!("it has {length} bytes, and {FILE_MAX} are allowed; is it the right file?")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        let given = parse(&text).map_err(|mistake| {
            Failure::usage(format!("settings file {} line {}: {}", path.display(), line(&text, mistake.at), mistake.what))
        })?;
        Ok(Self { path: path.to_owned(), given })
    }

    /// The file, for messages.
    pub(super) fn shown(&self) -> String {
        format!("settings file {}", self.path.display())
    }

    /// The line in which a setting is set.
    pub(super) fn line_of(&self, table: &str, setting: &str) -> Option<usize> {
        self.given.iter().find(|given| given.table == table && given.setting == setting).map(|given| given.line)
    }

    /// Puts the file's settings into a configuration.
    pub(super) fn apply<C: Named>(&self, table: &[Setting<C>], config: &mut C) -> Result<(), Failure> {
        for given in self.given.iter().filter(|given| given.table == C::TABLE) {
            let put = table.iter().find(|setting| setting.name == given.setting).and_then(|setting| (setting.put)(config, &given.value));
            // Checked when the file was read.
            put.ok_or_else(|| Failure::usage(format!("{} line {}: {} cannot be set", self.shown(), given.line, given.setting)))?;
        }
        Ok(())
    }
}

/// An entry of a table, and where its name and its value stand in the text.
struct TomlEntry<'t> {
    name: String,
    at: usize,
    value: DeValue<'t>,
    span: Range<usize>,
}

/// How many settings a text has, or what is wrong with it.
pub(super) fn understood(text: &str) -> Result<usize, String> {
    parse(text).map(|given| given.len()).map_err(|mistake| mistake.what)
}

fn parse(text: &str) -> Result<Vec<Given>, Mistake> {
    let document = DeTable::parse(text).map_err(|e| Mistake {
        at: e.span().map_or(0, |span| span.start),
        what: format!("this is not TOML: {}", e.message().replace('\n', ", ")),
    })?;
    let mut given = Vec::new();
    for TomlEntry { name, at, value, .. } in in_order(document.into_inner()) {
        let wrong =
            |what: &str| Mistake { at, what: format!("{name:?} {what}; settings belong below [server], [agent], [client] or [log]") };
        match value {
            DeValue::Table(table) if name == Server::TABLE => collect(SERVER, table, text, &mut given)?,
            DeValue::Table(table) if name == Agent::TABLE => collect(AGENT, table, text, &mut given)?,
            DeValue::Table(table) if name == Client::TABLE => collect(CLIENT, table, text, &mut given)?,
            DeValue::Table(table) if name == Log::TABLE => collect(LOG, table, text, &mut given)?,
            DeValue::Table(_) => return Err(wrong("is no table of settings")),
            _ => return Err(wrong("stands alone")),
        }
    }
    Ok(given)
}

/// The entries of a table as they stand in the text.
fn in_order(table: DeTable<'_>) -> Vec<TomlEntry<'_>> {
    let entry = |(key, value): (toml::Spanned<_>, toml::Spanned<_>)| TomlEntry {
        at: key.span().start,
        name: Cow::<str>::into_owned(key.into_inner()),
        span: value.span(),
        value: value.into_inner(),
    };
    let mut entries: Vec<_> = table.into_iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn collect<C: Named>(table: &[Setting<C>], entries: DeTable<'_>, text: &str, given: &mut Vec<Given>) -> Result<(), Mistake> {
    for TomlEntry { name, at, value, span } in in_order(entries) {
        let Some(setting) = table.iter().find(|setting| setting.name == name) else {
            return Err(Mistake { at, what: unknown(table, &name) });
        };
        let written = text.get(span.clone()).unwrap_or_default().lines().next().unwrap_or_default();
        let wrong = || Mistake { at, what: format!("{name} is {written}; it must be {}: {}", setting.wanted, setting.rule) };
        let value = Value::deserialize(ValueDeserializer::from(toml::Spanned::new(span.clone(), value))).map_err(|_| wrong())?;
        (setting.put)(&mut C::default(), &value).ok_or_else(wrong)?;
        given.push(Given { table: C::TABLE, setting: name, value, line: line(text, at) });
    }
    Ok(())
}

/// What is said of a setting that does not exist: the one that may be meant, or where to find all.
fn unknown<C: Named>(table: &[Setting<C>], name: &str) -> String {
    let near = table.iter().map(|setting| (strsim::jaro_winkler(setting.name, name), setting.name)).max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((likeness, meant)) if likeness > 0.85 => format!("[{}] has no setting {name:?}; is {meant:?} meant?", C::TABLE),
        _ => format!("[{}] has no setting {name:?}; `cistern settings` prints all that there are", C::TABLE),
    }
}

/// The number of the line in which a byte of the text stands, from 1.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> (usize, String) {
        let Err(mistake) = parse(text) else { panic!("no mistake in {text:?}") };
        (line(text, mistake.at), mistake.what)
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_is_allowed() {
        for (text, at, what) in [
            ("[server]\nlease = = 2", 2, "this is not TOML"),
            ("[server]\n\nleese = 2", 3, "has no setting \"leese\"; is \"lease\" meant?"),
            ("[server]\nzzzz = 2", 2, "`cistern settings` prints all"),
            ("[sever]\nlease = 2", 1, "\"sever\" is no table of settings; settings belong below [server], [agent], [client] or [log]"),
            ("lease = 2\n", 1, "settings belong below [server], [agent], [client] or [log]"),
            ("[server]\nlease = \"2 fortnights\"", 2, "lease is \"2 fortnights\"; it must be a time"),
            ("[server]\nwindow = 70000", 2, "window is 70000; it must be a whole number: 1 to 4,096 requests"),
            ("[server]\nwindow = 99999999999999999999", 2, "window is 99999999999999999999; it must be a whole number"),
            ("[server]\nwindow = [\n1]", 2, "window is [; it must be"),
            ("[server]\nlease = 2\nlease = 3", 3, "this is not TOML: duplicate key"),
        ] {
            let found = mistake(text);
            assert!(found.0 == at && found.1.contains(what), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn of_several_mistakes_the_first_is_told() {
        assert_eq!(mistake("[server]\nzeta = 1\nalpha = 1\n").0, 2);
    }

    #[test]
    fn a_file_that_is_none_is_told_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for (path, why) in [(dir.path().to_owned(), "not a regular file"), (dir.path().join("missing.toml"), "No such file")] {
            let failure = File::read(&path).unwrap_err();
            assert!(failure.message.contains(why) && failure.message.contains(path.to_str().unwrap()), "{}", failure.message);
        }
        let binary = dir.path().join("binary.toml");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        assert!(File::read(&binary).unwrap_err().message.contains("binary.toml"));
    }

    #[test]
    fn any_text_is_either_settings_or_a_mistake_with_a_line_in_it() {
        // Every prefix of a file that uses all of the grammar.
        let text =
            "# c\n[server]\nlease = \"2s\"\ndelta = 0.01\n[agent]\n'idle' = \"\"\"eager\"\"\"\n[server.x]\ny = [1, {z = 1979-05-27}]\n";
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            if let Err(mistake) = parse(&text[..end]) {
                assert!(line(&text[..end], mistake.at) <= text.lines().count());
            }
        }
    }
}
