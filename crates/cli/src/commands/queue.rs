//! `cistern queue`: items that are worked on one by one, each by one host at a time.
//!
//! Decides: that an item is removed when the command that works on it has succeeded, or when it was printed, and never before, unless that is asked for.
//! Leaves to others: which item (the client library), the command (`lock`).

use super::lock::{self, Finished, GuardedCommand, Held, LockAgent, NoLock, Obtaining, Terms};
use super::{Run, commands, read_local};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, LockKind};
use crate::local::{Failure, Item, Request, TakenItem, Version};
use crate::show;
use crate::signals::{Caught, End};
use crate::text::{Blob, Text};
use cistern_text::duration;
use clap::Args;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{dup2_stdin, gethostname};
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time for the removal of an item. The lock is renewed meanwhile.
const REMOVE_TIME: Duration = Duration::from_secs(10);

commands! {
    /// Hand items from host to host, each to one of many
    Queue:
    Put(PutItem),
    Take(TakeItem),
}

const PUT_HELP: &str = "\
DIR is made if it is missing; its parent directories are not. The item is durable, and will be taken, when this command has succeeded. When the answer is lost (exit status 74) it was put once or not at all: \
with --name it can be put again, and is refused (exit status 3) as long as an item of that name is in the queue.

Examples:
  printf 'video-7' | cistern queue put /encode -
  cistern queue put --name logo /encode logo.png";

/// Put an item at the end of a queue
#[derive(Args, Debug)]
#[command(after_help = PUT_HELP)]
pub(crate) struct PutItem {
    /// Name of the item, which does not begin with a dot; otherwise one that no other has
    #[arg(long)]
    name: Option<OsString>,
    /// Directory of the queue
    dir: OsString,
    /// Local file with the contents; - is standard input
    #[arg(default_value = "-")]
    file: OsString,
}

const TAKE_HELP: &str = "\
Takes the first item that nobody works on. COMMAND gets it on standard input, its name in CISTERN_ITEM and a fencing token in CISTERN_TOKEN. While it works, the item is nobody else's; when it succeeds \
the item is removed; when it fails, is stopped because the lock was lost, or its host dies, the item goes back to its place. So every item is delivered at least once. Without COMMAND the item is printed, and then removed.

With --at-most-once the item is removed before COMMAND starts, or before it is printed: it is lost with whoever took it.

Exit status: as `cistern lock`: COMMAND's own, 71, 75 (--try: there is no item), 79, 124 (--wait: no item came in time), 125 to 127.

Examples:
  cistern queue take --try /encode -- ./backup.sh || echo 'nothing to do'
  cistern queue take --wait 1 /encode || echo 'nothing came'";

/// Take an item from a queue, and work on it
#[derive(Args, Debug)]
#[command(after_help = TAKE_HELP)]
pub(crate) struct TakeItem {
    /// Remove the item before the work, not after it
    #[arg(long)]
    at_most_once: bool,
    /// Fail at once if there is no item
    #[arg(long = "try", conflicts_with = "wait")]
    try_once: bool,
    /// Longest wait for an item, the server's silence included; a plain number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Directory of the queue
    dir: OsString,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run for PutItem {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (dir, data) = (Text::from(self.dir.as_os_str()), read_local(&self.file)?);
        let name = self.name.clone().map_or_else(new_name, |name| Text::from(name.as_os_str()));
        if name.0.starts_with(b".") || name.0.is_empty() || name.0.contains(&b'/') {
            return Err(Failure::usage(format!("--name {name}: the name of an item does not begin with a dot, and has no slash")));
        }
        let path = dir.join(&name.0);
        let agent = ctx.agent()?;
        let put = Request::Put { path: path.clone(), data: Blob(data), mode: 0o644, if_version: Some(0) };
        let attr = match agent.change(put.clone()) {
            Err(failure) if failure.code == "ENOENT" => match agent.mkdir(&dir, 0o755) {
                Err(failure) if failure.code != "EEXIST" => return Err(failure),
                _ => agent.change(put)?,
            },
            attr => attr?,
        };
        ctx.print_with(&json!({ "path": path, "name": name, "object": attr.object }), String::new)
    }
}

/// A name that nobody else uses.
fn new_name() -> Text {
    let host = gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos());
    Text(format!("{}-{}-{now}", host.trim_start_matches('.'), std::process::id()).into_bytes())
}

impl Run for TakeItem {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let signals = Caught::catch().map_err(lock::own)?;
        let dir = Text::from(self.dir.as_os_str());
        let terms = Terms { what: LockKind::Item, try_once: self.try_once, wait: self.wait, ..Terms::of(dir) };
        let agent = LockAgent::open(&terms, ctx.options(), None).map_err(lock::own)?;
        let held = Obtaining::new(&terms, ctx.options(), &agent, signals.end()).run();
        let result = held.and_then(|held| self.work(&terms.path, held, ctx, &signals));
        lock::close(&agent);
        lock::end(result, &signals)
    }
}

impl TakeItem {
    fn work(&self, dir: &Text, mut held: Held, ctx: &Ctx, signals: &Caught) -> Result<u8, NoLock> {
        let Some(item) = held.take_item() else {
            return Err(lock::own(Failure::failed(format!("{dir}: the agent has given no item"))).into());
        };
        let path = dir.join(&item.name.0);
        if self.at_most_once
            && let Err(failure) = remove(&path, &item, &mut held, signals.end())
        {
            held.give_back();
            return Err(if signals.end().is_asked() { NoLock::Ended } else { lock::own(failure).into() });
        }
        if self.command.is_empty() {
            let shown = ctx.print_bytes(|| json!({ "name": item.name, "data": item.data }), &item.data.0);
            let done = shown.and_then(|()| if self.at_most_once { Ok(()) } else { remove(&path, &item, &mut held, signals.end()) });
            held.give_back();
            return done.map(|()| 0).map_err(|failure| lock::own(failure).into());
        }
        if let Err(error) = become_input(&item.data.0) {
            held.give_back();
            return Err(lock::own(Failure::new("LOCAL", EXIT_FAILED, format!("standard input of the command: {error}"))).into());
        }
        let job = GuardedCommand {
            path: &path,
            command: &self.command,
            env: vec![("CISTERN_ITEM", item.name.as_os().to_owned())],
            watches_place: false,
        };
        let Finished { mut code, was_stopped, held, running, .. } = job.run(held, signals)?;
        drop(running);
        let Some(mut held) = held else { return Ok(code) };
        if code == 0
            && !was_stopped
            && !self.at_most_once
            && let Ok((never, _asker)) = End::pair()
            && let Err(failure) = remove(&path, &item, &mut held, &never)
        {
            let failure = lock::own(failure);
            let what = format!("{path}: the command has ended, and the item could not be removed: {}", failure.message);
            code = failure.exit;
            show::error("cistern", &Failure { message: what, ..failure });
        }
        held.give_back();
        Ok(code)
    }
}

/// Removes an item, if it is still this one's.
fn remove(path: &Text, item: &TakenItem, held: &mut Held, end: &End) -> Result<(), Failure> {
    let version = Version { path: path.clone(), version: item.version };
    let items = vec![Item::Unlink { path: path.clone(), force: true }];
    held.call(Request::Batch { items, if_versions: vec![version] }, end, Instant::now() + REMOVE_TIME).map(drop)
}

/// Makes this the standard input of what is started.
fn become_input(data: &[u8]) -> std::io::Result<()> {
    let mut file = File::from(memfd_create("cistern-item", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(data)?;
    file.rewind()?;
    Ok(dup2_stdin(&file)?)
}
