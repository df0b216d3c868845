//! `cistern agent`: the host's agent.

pub(crate) mod run;
mod status;
mod top;

use crate::backend::{Line, default_agent};
use crate::local::Failure;
use crate::options::Options;
use crate::places::Daemon;
use std::path::PathBuf;

super::commands! {
    /// Run and inspect the host's agent
    Agent:
    Run(run::RunAgent),
    Status(status::AgentStatus),
    Top(top::Top),
}

/// Global options of commands that ask the host's agent itself.
const HOST_AGENT: &[&str] = &["json", "agent", "timeout"];

/// The host's agent: the one that is named, else this user's or the system's, whichever answers.
fn connect(options: &Options) -> Result<(PathBuf, Line), Failure> {
    let socket = options.agent.clone().or_else(default_agent).map_or_else(|| Daemon::Agent.socket(None), Ok)?;
    let line = Line::open(&socket)?.within(options.timeout);
    Ok((socket, line))
}
