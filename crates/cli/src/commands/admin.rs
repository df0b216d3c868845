//! `cistern admin`: operation of a running server through its control socket, on its host.

mod add;
mod admit;
mod agents;
mod backup;
mod evict;
mod grant;
mod invite;
mod quota;
mod rename;
mod revoke;
mod sessions;
mod stats;
mod status;

use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::places::Daemon;
use crate::server_control::ask;
use cistern_credentials::Places;
use cistern_trust::Pinned;
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
    Invite(invite::InviteHost),
    Admit(admit::AdmitHost),
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

/// The cluster that this operator's key belongs to.
///
/// # Errors
/// There is none, or a file cannot be used.
fn cluster() -> Result<Pinned, Failure> {
    let none = || {
        let what =
            "this user trusts no cluster, so it cannot name servers to others: be the user for whom `cisternd init` made an operator's key";
        Failure::new("NO_CLUSTER", EXIT_FAILED, what)
    };
    let found = Places::of_this_process(None).find()?.ok_or_else(none)?;
    found.place.cluster()?.ok_or_else(none)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn label(value: &Value) -> String {
    serde_json::from_value::<crate::text::Text>(value.clone()).map_or_else(|_| "?".to_owned(), |text| text.to_string())
}
