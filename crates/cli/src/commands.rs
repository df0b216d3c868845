//! The commands of `cistern` and `cisternd`: each a file with its arguments, its run and its output.
//!
//! Decides: which commands there are. A command's file has a type that derives `clap::Args`, whose doc comment is the help, and implements [`Run`]; a
//! line in a list below, beside the `mod`, makes it a command. docs/cli.md, manual pages and completions follow by themselves.

mod admin;
pub(crate) mod agent;
mod barrier;
mod batch;
mod cat;
pub(crate) mod check;
mod chmod;
mod compact;
mod completions;
mod counter;
mod demo;
mod elect;
pub(crate) mod export;
mod import;
mod init;
mod join;
pub(crate) mod key;
mod leader;
mod lease;
mod ln;
pub(crate) mod lock;
mod locks;
mod ls;
mod man;
mod member;
mod mkdir;
mod mv;
mod once;
mod peer;
mod ping;
mod plan;
mod put;
mod queue;
mod realm;
mod restore;
mod restored;
mod rm;
pub(crate) mod serve;
mod server_key;
mod settings;
mod stat;
mod status;
mod top;
mod touch;
mod truncate;
mod trust;
mod watch;
mod xattr;

use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::{Attributes, Failure};
use crate::show;
use crate::text::Text;
use cistern_wire::limits::CONTENT_MAX;
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;

/// A command, or a group of them.
pub(crate) trait Run {
    /// The ids of the global options that it takes; of a group, those of the command that `_below` names.
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        SERVER
    }

    /// Whether it stays until it is ended, and logs accordingly.
    fn is_daemon(&self) -> bool {
        false
    }

    /// Carries it out. A failure without a message is an exit status alone.
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure>;
}

/// Global options of commands that ask a server, themselves or through the host's agent.
const SERVER: &[&str] =
    &["json", "server", "agent", "key_file", "server_key", "insecure", "key_log", "config", "timeout", "lease", "lease_max", "pcap"];
/// Of an agent of its own.
const OWN_AGENT: &[&str] =
    &["json", "server", "key_file", "server_key", "insecure", "key_log", "config", "timeout", "lease", "lease_max", "pcap"];
/// Of commands that only look at settings.
const SETTINGS: &[&str] = &["json", "server", "config", "timeout", "lease", "lease_max"];
/// Of commands that only print.
const OUTPUT: &[&str] = &["json"];
/// Of commands that have options of their own by these names, or need none.
/// Options of who speaks with the server as the key that it has.
const KEY_HOLDER: &[&str] = &["json", "server", "key_file", "key_log", "config", "timeout", "pcap"];

const NONE: &[&str] = &[];

/// Declares commands, each in a line: its name, and the type of its arguments.
macro_rules! commands {
    ($(#[$meta:meta])* $list:ident: $($(#[$of:meta])* $name:ident($args:ty),)+) => {
        $(#[$meta])*
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum $list {
            $($(#[$of])* $name($args),)+
        }

        impl $crate::commands::Run for $list {
            fn takes(below: &[&str]) -> &'static [&'static str] {
                let Some((name, below)) = below.split_first() else { return &[] };
                $(if $crate::commands::is_named(stringify!($name), name) {
                    return <$args as $crate::commands::Run>::takes(below);
                })+
                debug_assert!(false, "no command is called {name}");
                &[]
            }

            fn is_daemon(&self) -> bool {
                match self {
                    $(Self::$name(args) => $crate::commands::Run::is_daemon(args),)+
                }
            }

            fn run(&self, ctx: &mut $crate::ctx::Ctx) -> Result<(), $crate::local::Failure> {
                match self {
                    $(Self::$name(args) => $crate::commands::Run::run(args, ctx),)+
                }
            }
        }
    };
}
use commands;

/// Whether a variant has this name, in which clap puts dashes between its words.
fn is_named(variant: &str, name: &str) -> bool {
    let letters = name.bytes().filter(|byte| *byte != b'-');
    letters.map(|byte| byte.to_ascii_lowercase()).eq(variant.bytes().map(|byte| byte.to_ascii_lowercase()))
}

commands! {
    /// The commands of `cistern`, in the order of its help.
    Command:
    Demo(demo::Demo),
    Ls(ls::Ls),
    Stat(stat::Stat),
    Cat(cat::Cat),
    Put(put::Put),
    Mkdir(mkdir::Mkdir),
    Rm(rm::Rm),
    Mv(mv::Mv),
    Ln(ln::Ln),
    Touch(touch::Touch),
    Chmod(chmod::Chmod),
    Truncate(truncate::Truncate),
    #[command(subcommand)]
    Xattr(xattr::Xattr),
    Batch(batch::Batch),
    Import(import::Import),
    Export(export::Export),
    Lock(lock::Lock),
    Locks(locks::Locks),
    Elect(elect::Elect),
    Leader(leader::ShowLeader),
    Once(once::Once),
    Watch(watch::WatchPath),
    #[command(subcommand)]
    Queue(queue::Queue),
    #[command(subcommand)]
    Counter(counter::Counter),
    #[command(subcommand)]
    Barrier(barrier::Barrier),
    #[command(subcommand)]
    Member(member::Member),
    #[command(subcommand)]
    Realm(realm::Realm),
    #[command(subcommand)]
    Lease(lease::NamedLease),
    Status(status::ServerStatus),
    Top(top::TopOfServer),
    Peer(peer::Peer),
    Ping(ping::Ping),
    #[command(subcommand)]
    Agent(agent::Agent),
    #[command(subcommand)]
    Admin(admin::Admin),
    Join(join::JoinCluster),
    #[command(subcommand)]
    Key(key::KeyCommand),
    Trust(trust::Trust),
    #[command(hide = true)]
    Serve(serve::Serve),
    Settings(settings::ShowSettings),
    Plan(plan::PlanArgs),
    Completions(completions::Completions),
    Man(man::ManPages),
}

impl Command {
    /// Whether it runs a command of the user's, whose exit status is its own.
    pub(crate) const fn runs_another(&self) -> bool {
        matches!(
            self,
            Self::Lock(_) | Self::Elect(_) | Self::Once(_) | Self::Watch(_) | Self::Queue(queue::Queue::Take(_)) | Self::Barrier(_)
        )
    }
}

commands! {
    /// The commands of `cisternd`, beside a server or on a store on which none runs.
    StoreCommand:
    Init(init::Init),
    Check(check::CheckStore),
    Restore(restore::Restore),
    Restored(restored::Restored),
    Compact(compact::Compact),
    #[command(subcommand)]
    ServerKey(server_key::ServerKeyCommand),
}

/// What a path has.
#[derive(Serialize)]
struct PathAttributes<'a> {
    path: &'a Text,
    attr: Attributes,
}

impl fmt::Display for PathAttributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, attr: a } = self;
        writeln!(f, "  File: {path}")?;
        writeln!(f, "  Size: {:<12} {:<12} Links: {}", a.size, a.kind, a.nlink)?;
        writeln!(f, "Object: #{:<11} Version: {:<4} Realm: {}", a.object, a.version, a.realm)?;
        writeln!(f, "Access: ({:04o}/{})  Uid: {}  Gid: {}", a.mode, show::mode(a), a.uid, a.gid)?;
        writeln!(f, "Modify: {} UTC", show::time(a.mtime_ns))?;
        write!(f, "Change: {} UTC", show::time(a.ctime_ns))?;
        match &a.made_by {
            Some(owner) if u64::from_str_radix(owner, 16) == Ok(a.object) => {
                write!(f, "\nNamed lease: removed, with all that is attached, when nobody keeps it")
            }
            Some(owner) => write!(
                f,
                "\nEphemeral: removed with session {owner}, with the one that took it over, or with the named lease of that number"
            ),
            None => Ok(()),
        }
    }
}

/// What a change has made of a path.
#[derive(Serialize)]
struct Changed<'a> {
    path: &'a Text,
    attr: Attributes,
    #[serde(skip)]
    text: String,
}

impl<'a> Changed<'a> {
    /// Of which people read nothing.
    fn quietly(path: &'a Text, attr: Attributes) -> Self {
        Self { path, attr, text: String::new() }
    }
}

impl fmt::Display for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a local file, or standard input (`-`), if a file can hold as much.
fn read_local(from: &OsStr) -> Result<Vec<u8>, Failure> {
    let most = CONTENT_MAX as u64;
    let shown = from.to_string_lossy();
    let mut data = Vec::new();
    let read = match from == "-" {
        true => std::io::stdin().lock().take(most + 1).read_to_end(&mut data),
        false => File::open(from).and_then(|file| file.take(most + 1).read_to_end(&mut data)),
    };
    read.map_err(|e| Failure::new("LOCAL", EXIT_FAILED, format!("local file {shown}: {e}")))?;
    if data.len() as u64 > most {
        let what = format!("local file {shown}: larger than {most} bytes, the most that a file can hold");
        return Err(Failure::new("EFBIG", EXIT_FAILED, what));
    }
    Ok(data)
}

/// The end of a command that prints as long as somebody reads: whoever reads no more has had enough.
fn unless_unread(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if failure.message.is_empty() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command as Program, Subcommand};

    /// Asks every command below what it takes, by the name that clap gave it.
    fn ask_all(program: &Program, above: &[&str], takes: fn(&[&str]) -> &'static [&'static str]) -> usize {
        let below = program.get_subcommands().map(|sub| {
            let path = [above, &[sub.get_name()]].concat();
            takes(&path);
            1 + ask_all(sub, &path, takes)
        });
        below.sum()
    }

    #[test]
    fn every_command_is_found_by_the_name_that_people_write() {
        // One that is not found panics.
        assert!(ask_all(&Command::augment_subcommands(Program::new("cistern")), &[], Command::takes) > 30);
        assert_eq!(ask_all(&StoreCommand::augment_subcommands(Program::new("cisternd")), &[], StoreCommand::takes), 8);
        assert!(is_named("TwoWords", "two-words") && !is_named("Two", "two-words"));
    }
}
