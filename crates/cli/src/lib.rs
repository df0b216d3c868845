//! What the programs `cistern` and `cisternd` do.
//!
//! Decides: which command is which function, and that every failure becomes one clear line on standard error and a documented
//! exit status. Leaves to others: the command line (`args`), each command (its own file), the protocol (the other crates).

// Only the simulator may be built with deliberate bugs in the cores.
const _: () = assert!(!cistern_link::bugs::COMPILED_IN, "this build has deliberate bugs in it; build without the feature `bugs`");

mod admin;
mod args;
mod backend;
mod batch;
mod bell;
mod capture;
mod change;
mod changes;
mod contact;
pub mod decode;
mod demo;
mod execute;
mod files;
mod holder;
mod host_agent;
mod local;
mod lock;
mod locks;
mod logging;
mod member;
mod members;
mod metrics;
mod neighbours;
mod ping;
mod places;
mod plan;
mod serve;
mod server_control;
mod settings;
mod show;
mod signals;
mod stopped;
mod text;
mod tree;
mod watch;

use crate::args::{AgentCommand, Cistern, Cisternd, Command, Member};
use crate::local::Failure;
use std::process::ExitCode;

/// The program `cistern`: its exit status.
#[must_use]
pub fn main_cistern() -> ExitCode {
    // The processes that run a command under a lock are this program, too; they go their own way before anything else.
    if let Some(code) = cistern_run::hidden_main(std::env::args_os()) {
        return code;
    }
    let args = Cistern::read();
    if args.common.json {
        show::errors_as_json();
    }
    let daemon = matches!(args.command, Command::Serve(_) | Command::Agent(AgentCommand::Run(_)));
    finish("cistern", logging::start(daemon, args.verbosity).map_err(|failure| own(&args, failure)).and_then(|()| carry_out(&args)))
}

/// The program `cisternd`: its exit status.
#[must_use]
pub fn main_cisternd() -> ExitCode {
    let args = Cisternd::read();
    if args.wants_json() {
        show::errors_as_json();
    }
    let result = logging::start(args.command.is_none(), args.verbosity).and_then(|()| match &args.command {
        Some(command) => stopped::run(command),
        None => serve::serve(&args.serve).map(|()| 0),
    });
    finish("cisternd", result)
}

/// A failure of the program itself: of `cistern lock` it must be told from the command's.
fn own(args: &Cistern, failure: Failure) -> Failure {
    if matches!(args.command, Command::Lock(_)) { lock::own(failure) } else { failure }
}

fn carry_out(args: &Cistern) -> Result<u8, Failure> {
    // The capture of these two is of other datagrams than a command's.
    if !matches!(args.command, Command::Demo(_) | Command::Serve(_)) {
        capture::start(args.common.pcap.as_deref()).map_err(|failure| own(args, failure))?;
    }
    match &args.command {
        Command::Demo(args) => demo::demo(args),
        Command::Ls(args) => files::ls(args).map(|()| 0),
        Command::Stat(args) => files::stat(args).map(|()| 0),
        Command::Cat(args) => files::cat(args).map(|()| 0),
        Command::Put(args) => files::put(args).map(|()| 0),
        Command::Mkdir(args) => files::mkdir(args).map(|()| 0),
        Command::Rm(args) => files::rm(args).map(|()| 0),
        Command::Mv(args) => files::mv(args).map(|()| 0),
        Command::Ln(args) => files::ln(args).map(|()| 0),
        Command::Touch(args) => change::touch(args).map(|()| 0),
        Command::Chmod(args) => change::chmod(args).map(|()| 0),
        Command::Truncate(args) => change::truncate(args).map(|()| 0),
        Command::Xattr(args) => change::xattr(args).map(|()| 0),
        Command::Batch(args) => batch::batch(args).map(|()| 0),
        Command::Import(args) => tree::import(args).map(|()| 0),
        Command::Export(args) => tree::export(args).map(|()| 0),
        Command::Lock(command) => lock::lock(command, args.verbosity),
        Command::Locks(args) => locks::locks(args).map(|()| 0),
        Command::Admin(args) => admin::admin(args).map(|()| 0),
        Command::Status(args) => files::status(args).map(|()| 0),
        Command::Ping(args) => ping::ping(args),
        Command::Member(Member::Join(args)) => member::join(args),
        Command::Member(Member::Watch(args)) => changes::watch(args),
        Command::Agent(AgentCommand::Run(args)) => host_agent::agent(args).map(|()| 0),
        Command::Agent(AgentCommand::Status(args)) => watch::status(args).map(|()| 0),
        Command::Agent(AgentCommand::Top(args)) => watch::top(args).map(|()| 0),
        Command::Serve(args) => serve::serve(args).map(|()| 0),
        Command::Settings(args) => settings::settings(args).map(|()| 0),
        Command::Plan(args) => plan::plan(args),
    }
}

fn finish(program: &str, result: Result<u8, Failure>) -> ExitCode {
    let code = match result {
        Ok(code) => code,
        Err(failure) => {
            show::error(program, &failure);
            failure.exit
        }
    };
    // Last, for a file may take its time.
    capture::finish();
    logging::flush();
    ExitCode::from(code)
}
