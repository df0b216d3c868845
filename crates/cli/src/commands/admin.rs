//! `cistern admin`: operation of a running server through its control socket, on its host.

mod add;
mod agents;
mod backup;
mod evict;
mod grant;
mod quota;
mod rename;
mod revoke;
mod sessions;
mod stats;
mod status;

use crate::local::Failure;
use crate::places::Daemon;
use crate::server_control::ask;
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;

super::commands! {
    /// Operate a running server, on its host
    Admin:
    Status(status::AdminStatus),
    Sessions(sessions::Sessions),
    Stats(stats::Stats),
    Evict(evict::Evict),
    Agents(agents::Agents),
    Add(add::AddAgent),
    Rename(rename::RenameAgent),
    Grant(grant::GrantRights),
    Quota(quota::AgentQuota),
    Revoke(revoke::RevokeAgent),
    Backup(backup::Backup),
}

/// Global options of commands that ask a server through its control socket.
const CONTROL: &[&str] = &["json"];

// Which server on this host is asked.
#[derive(Args, Debug)]
struct Control {
    /// The server's control socket; else that of this user's server without --state
    #[arg(long, env = "CISTERN_CONTROL", hide_env_values = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl Control {
    fn socket(&self) -> Result<PathBuf, Failure> {
        self.control.as_ref().map_or_else(|| Daemon::Server.socket(None), |socket| Ok(socket.clone()))
    }

    fn ask(&self, request: &Value) -> Result<Value, Failure> {
        ask(&self.socket()?, request)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn label(value: &Value) -> String {
    serde_json::from_value::<crate::text::Text>(value.clone()).map_or_else(|_| "?".to_owned(), |text| text.to_string())
}
