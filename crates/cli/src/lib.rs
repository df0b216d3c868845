//! What the programs `cistern` and `cisternd` do.
//!
//! Decides: that every failure becomes one clear line on standard error and a documented exit status. A command's words are read by `command_line`; its
//! file in `commands` carries it out with a `Ctx`, which reaches the server through an agent of its own or the host's (`backend`); both do the same by
//! `execute`. Leaves to others: the protocol (the other crates).

// Only the simulator may be built with deliberate bugs in the cores.
const _: () = assert!(
    !cistern_link::bugs::COMPILED_IN && !cistern_flease::bugs::COMPILED_IN,
    "this build has deliberate bugs in it; build without the feature `bugs`"
);

mod backend;
mod bell;
mod capture;
mod command_line;
mod commands;
mod contact;
mod ctx;
pub mod decode;
mod execute;
mod group;
mod holder;
mod http;
mod key_log;
mod local;
mod logging;
#[cfg(test)]
mod manual;
mod members;
mod metrics;
mod neighbours;
mod on_etcd;
mod options;
mod overview;
mod places;
mod rosters;
mod server_control;
mod service_manager;
mod settings;
mod show;
mod signals;
mod text;
mod tree;

use crate::command_line::{Cistern, Cisternd};
use crate::commands::{Run, lock};
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::options::Options;
use std::process::ExitCode;

/// The program `cistern`: its exit status.
#[must_use]
pub fn main_cistern() -> ExitCode {
    // The processes that run a command under a lock are this program, too; they go their own way before anything else.
    if let Some(code) = cistern_run::hidden_main(std::env::args_os()) {
        return code;
    }
    let Cistern { options, command } = Cistern::read();
    if options.json {
        show::errors_as_json();
    }
    // Its own failures must be told from those of the command that it runs.
    let own = |failure| if command.runs_another() { lock::own(failure) } else { failure };
    let started = logging::start(command.is_daemon(), options.verbosity).map_err(own);
    finish("cistern", started.and_then(|()| command.run(&mut Ctx::new(options))))
}

/// The program `cisternd`: its exit status.
#[must_use]
pub fn main_cisternd() -> ExitCode {
    let Cisternd { verbosity, command, serve, json } = Cisternd::read();
    if json {
        show::errors_as_json();
    }
    let options = Options { verbosity, json, ..Options::default() };
    let result = logging::start(command.is_none(), verbosity).and_then(|()| match &command {
        Some(command) => command.run(&mut Ctx::new(options)),
        None => serve.run(&mut Ctx::new(options)),
    });
    finish("cisternd", result)
}

fn finish(program: &str, result: Result<(), Failure>) -> ExitCode {
    let code = match result {
        Ok(()) => 0,
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
