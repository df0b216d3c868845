//! `cistern batch`: a script of changes that are made as one.
//!
//! Decides: the words of a script, and that errors name its line. Leaves to others: what the changes do (`execute`, the client), and that
//! all of them are done or none (the server).

use super::{Run, read_local};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::holder;
use crate::local::{AttrRule, Done, Failure, Item, Request, Rule, Version};
use crate::text::{Blob, Text};
use cistern_text::{octal, size as size_of};
use cistern_wire::limits::{BATCH_MAX, EXPECT_MAX};
use clap::Args;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const BATCH_HELP: &str = "\
A script has one change on a line, in words as a shell reads them (quotes, backslashes, # for comments); at most 16 changes, of which write and put count as two:
  create PATH                  an empty file, which must not exist
  write PATH TEXT              replace the contents of a file by TEXT, or create it
  put FILE PATH                the same with the contents of a local file
  mkdir PATH                   rmdir PATH
  rm PATH                      a file or symbolic link
  mv OLD NEW                   mv -n OLD NEW: NEW must not exist; mv -x ONE OTHER: exchange them
  ln FILE PATH                 ln -s TARGET PATH: a symbolic link
  chmod MODE PATH              truncate SIZE PATH
  setxattr PATH NAME VALUE     rmxattr PATH NAME
  if-version VERSION PATH      apply nothing unless PATH has that version; at most 8

Each change sees those before it. A path is resolved as before the batch, unless an earlier change created that very name.
Nobody observes a state between two changes; if one fails, none is applied.

Examples:
  printf 'mkdir /site/v2\\nput index.html /site/v2/index.html\\n' | cistern batch
  cistern batch --json release.script

Exit status:
  0   all changes were applied
  1   none was applied
  3   none was applied: a precondition (`if-version`, `create`, `mv -n`) does not hold
  74  the outcome is unknown: all were applied, or none";

/// Apply several changes atomically: all or none
#[derive(Args, Debug)]
#[command(after_help = BATCH_HELP)]
pub(crate) struct Batch {
    /// Script; `-` for standard input
    #[arg(default_value = "-")]
    script: OsString,
}

/// What a script says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Script {
    items: Vec<Item>,
    /// The line of each item.
    lines: Vec<usize>,
    if_versions: Vec<Version>,
}

impl Run for Batch {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        // Read whole, with the local files that it names, before anything is asked of the server.
        let name = self.script.to_string_lossy();
        let script = read(&read_local(&self.script)?, read_local).map_err(|failure| in_script(&name, failure))?;
        let (lines, paths) = (script.lines, script.items.iter().map(paths_of).collect::<Vec<_>>());
        // What fails because it is there already fails a condition that the change carries.
        let conditions: Vec<_> = script.items.iter().map(is_conditional).collect();
        let agent = ctx.agent()?;
        let batched = agent.call(Request::Batch { items: script.items, if_versions: script.if_versions }).map_err(|failure| {
            let Some(at) = failure.item.map(usize::from) else { return failure };
            let of: Vec<_> = paths.get(at).into_iter().flatten().collect();
            let failure = holder::named(agent, failure, &of, "");
            let why = failure.message.rsplit_once(&format!("item {} of the batch: ", at + 1)).map_or(&*failure.message, |(_, why)| why);
            let message = format!("{}: {why}", paths.get(at).map_or_else(String::new, |paths| shown(paths)));
            let failure = Failure { message, ..failure };
            let failure = if conditions.get(at) == Some(&true) { failure.precondition("EEXIST") } else { failure };
            in_script(&name, (lines.get(at).copied().unwrap_or_default(), failure))
        })?;
        let row = |(Done { object, version }, line): (Done, &usize)| json!({ "line": line, "object": object, "version": version });
        let rows: Vec<Value> = batched.batched()?.into_iter().zip(&lines).map(row).collect();
        ctx.print_rows(&rows, "")
    }
}

/// The paths of a change, for a person.
fn shown(paths: &[Text]) -> String {
    paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" to ")
}

fn paths_of(item: &Item) -> Vec<Text> {
    match item {
        Item::Create { path, .. }
        | Item::Mkdir { path, .. }
        | Item::Symlink { path, .. }
        | Item::Unlink { path, .. }
        | Item::Rmdir { path }
        | Item::SetAttr { path, .. }
        | Item::Write { path, .. }
        | Item::SetXattr { path, .. }
        | Item::RemoveXattr { path, .. } => vec![path.clone()],
        Item::Link { existing, path } => vec![existing.clone(), path.clone()],
        Item::LeaseAttach { path, lease, .. } => vec![path.clone(), lease.clone()],
        Item::Rename { from, to, .. } => vec![from.clone(), to.clone()],
    }
}

const fn is_conditional(item: &Item) -> bool {
    matches!(item, Item::Create { exclusive: true, .. } | Item::Rename { rule: Rule::NoReplace, .. })
}

fn in_script(name: &str, (line, failure): (usize, Failure)) -> Failure {
    let message = format!("{name}: line {line}: {}", failure.message);
    Failure { message, ..failure }
}

/// Reads a script; `local` reads the local files that it names. An error comes with its line.
fn read(text: &[u8], local: impl Fn(&OsStr) -> Result<Vec<u8>, Failure>) -> Result<Script, (usize, Failure)> {
    let mut script = Script::default();
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let usage = |what: &str| (number, Failure::usage(what));
        let words = shlex::bytes::split(line).ok_or_else(|| usage("a quote is not closed, or the line ends in a backslash"))?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if words.is_empty() {
            continue;
        }
        if let [b"if-version", version, path] = words[..] {
            let version = number_of(version).filter(|version| *version > 0).ok_or_else(|| {
                usage("if-version takes a version of 1 or more (that nothing exists is what `create` and `mv -n` make sure of), and a path")
            })?;
            script.if_versions.push(Version { path: Text(path.to_vec()), version });
        } else {
            let items = change(&words, &local).map_err(|failure| (number, failure))?;
            script.lines.resize(script.lines.len() + items.len(), number);
            script.items.extend(items);
        }
        if script.items.len() > BATCH_MAX || script.if_versions.len() > EXPECT_MAX {
            let what = format!("a batch has at most {BATCH_MAX} changes and {EXPECT_MAX} versions");
            return Err((number, Failure::new("E2BIG", EXIT_FAILED, what)));
        }
    }
    if script.items.is_empty() {
        return Err((1, Failure::usage("the script has no change")));
    }
    Ok(script)
}

/// The items of one line. A file that is written is made if it is missing: that is an item of its own.
fn change(words: &[&[u8]], local: impl Fn(&OsStr) -> Result<Vec<u8>, Failure>) -> Result<Vec<Item>, Failure> {
    let (path, data) = match words {
        [b"write", path, data] => (*path, data.to_vec()),
        [b"put", file, path] => (*path, local(OsStr::from_bytes(file))?),
        other => return item(other).map(|item| vec![item]),
    };
    let path = Text(path.to_vec());
    let make = Item::Create { path: path.clone(), exclusive: false, mode: 0o644 };
    Ok(vec![make, Item::Write { path, offset: 0, data: Blob(data), truncate: true }])
}

fn item(words: &[&[u8]]) -> Result<Item, Failure> {
    let text = |bytes: &[u8]| Text(bytes.to_vec());
    let rename = |from: &[u8], to: &[u8], rule| Item::Rename { from: text(from), to: text(to), rule, force: false };
    Ok(match words {
        [b"create", path] => Item::Create { path: text(path), exclusive: true, mode: 0o644 },
        [b"mkdir", path] => Item::Mkdir { path: text(path), mode: 0o755 },
        [b"rmdir", path] => Item::Rmdir { path: text(path) },
        [b"rm", path] => Item::Unlink { path: text(path), force: false },
        [b"mv", b"-n", from, to] => rename(from, to, Rule::NoReplace),
        [b"mv", b"-x", from, to] => rename(from, to, Rule::Exchange),
        [b"mv", from, to] => rename(from, to, Rule::Replace),
        [b"ln", b"-s", target, path] => Item::Symlink { target: text(target), path: text(path) },
        [b"ln", existing, path] => Item::Link { existing: text(existing), path: text(path) },
        [b"chmod", mode, path] => {
            let mode = octal(&String::from_utf8_lossy(mode)).map_err(Failure::usage)?;
            Item::SetAttr { path: text(path), mode: Some(mode), size: None }
        }
        [b"truncate", size, path] => {
            let size = size_of(&String::from_utf8_lossy(size)).map_err(Failure::usage)?;
            Item::SetAttr { path: text(path), mode: None, size: Some(size) }
        }
        [b"setxattr", path, name, value] => {
            Item::SetXattr { path: text(path), name: text(name), value: Blob(value.to_vec()), rule: AttrRule::Any }
        }
        [b"rmxattr", path, name] => Item::RemoveXattr { path: text(path), name: text(name) },
        [word, ..] => {
            let word = text(word);
            return Err(Failure::usage(format!(
                "{word}: no such change, or a wrong number of words for it; `cistern batch --help` lists them"
            )));
        }
        [] => return Err(Failure::usage("an empty change")),
    })
}

fn number_of(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &OsStr) -> Result<Vec<u8>, Failure> {
        Ok(b"local".to_vec())
    }

    #[test]
    fn a_script_is_words_on_lines() {
        let script =
            read(b"# release\nmkdir /a\n\nwrite '/a/b c' \"x y\"\r\nput here /a/d\nif-version 7 /q\nmv -x /p /q # swap\n", nothing)
                .unwrap();
        let text = |text: &str| Text::from(text);
        let make = |path: &str| Item::Create { path: text(path), exclusive: false, mode: 0o644 };
        let write = |path: &str, data: &[u8]| Item::Write { path: text(path), offset: 0, data: Blob(data.to_vec()), truncate: true };
        let expected = [
            Item::Mkdir { path: text("/a"), mode: 0o755 },
            make("/a/b c"),
            write("/a/b c", b"x y"),
            make("/a/d"),
            write("/a/d", b"local"),
            Item::Rename { from: text("/p"), to: text("/q"), rule: Rule::Exchange, force: false },
        ];
        assert_eq!((&script.items[..], &script.lines[..]), (&expected[..], &[2, 4, 4, 5, 5, 7][..]));
        assert_eq!(script.if_versions, [Version { path: text("/q"), version: 7 }]);
    }

    #[test]
    fn what_is_wrong_in_a_script_is_told_with_its_line() {
        let many = "mkdir /a\n".repeat(17);
        let wrong = [
            ("mkdir /a\nmkdir\n", 2),
            ("frob /a", 1),
            ("mkdir '/a", 1),
            ("\n\nchmod 999 /a", 3),
            ("truncate -1 /a", 1),
            ("if-version 0 /a", 1),
            ("if-version x /a", 1),
            ("# nothing\n", 1),
            (&many, 17),
        ];
        for (text, line) in wrong {
            assert_eq!(read(text.as_bytes(), nothing).unwrap_err().0, line, "{text:?}");
        }
    }
}
