//! `cistern admin`: operation of a running server, through its control socket on its host, or sealed from anywhere with an operator's key.

mod add;
mod admit;
mod agents;
mod backup;
mod evict;
mod grant;
mod hand_over;
pub(super) mod invite;
mod quota;
mod rename;
mod revoke;
mod servers;
mod sessions;
mod stats;
mod status;

use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::options::Options;
use crate::places::Daemon;
use crate::server_control::{ask, ask_at_leisure, ask_sealed};
use crate::text::Blob;
use cistern_credentials::Places;
use cistern_trust::{ClusterKey, Pinned};
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;

super::commands! {
    /// Operate a running server
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
    HandOver(hand_over::HandOver),
    AddServer(servers::AddServer),
    RemoveServer(servers::RemoveServer),
}

/// Global options of commands that ask a server as an operator.
pub(super) const OPERATOR: &[&str] = &["json", "server", "key_file", "server_key", "key_log", "config", "timeout", "lease_max", "pcap"];

// Which server is asked, and by which way.
#[derive(Args, Debug)]
pub(super) struct Control {
    /// The server's control socket; else that of this user's server without --state. With --server, or where there is no such socket and
    /// this user has a key, the server is asked over the network, which takes an operator's key
    #[arg(long, env = "CISTERN_CONTROL", hide_env_values = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl Control {
    /// The socket to ask on; `None`: the server is asked over the network.
    fn socket(&self, options: &Options) -> Result<Option<PathBuf>, Failure> {
        match &self.control {
            _ if options.server_flag => Ok(None),
            Some(socket) => Ok(Some(socket.clone())),
            None => {
                let socket = Daemon::Server.socket(None)?;
                let has_key = || Places::of_this_process(options.key_file.as_deref()).find().map(|found| found.is_some());
                Ok(if !socket.exists() && has_key()? { None } else { Some(socket) })
            }
        }
    }

    pub(super) fn ask(&self, ctx: &mut Ctx, request: &Value) -> Result<Value, Failure> {
        match self.socket(ctx.options())? {
            Some(socket) => ask(&socket, request),
            None => ask_sealed(ctx.operator()?, request),
        }
    }

    /// As [`Self::ask`], for what takes as long as the disk takes.
    fn ask_at_leisure(&self, ctx: &mut Ctx, request: &Value) -> Result<Value, Failure> {
        match self.socket(ctx.options())? {
            Some(socket) => ask_at_leisure(&socket, request),
            None => ask_sealed(ctx.operator()?, request),
        }
    }
}

/// The cluster that this user trusts.
///
/// # Errors
/// A file cannot be used.
fn own_cluster() -> Result<Option<Pinned>, Failure> {
    Ok(match Places::of_this_process(None).find()? {
        Some(found) => found.place.cluster()?,
        None => None,
    })
}

/// The cluster whose servers a host is to be told: the user's own, else that of the server that was asked, which whoever may open its socket believes.
///
/// # Errors
/// There is none.
fn cluster(own: Option<Pinned>, answer: &Value) -> Result<Pinned, Failure> {
    let none =
        || Failure::new("NO_CLUSTER", EXIT_FAILED, "neither this user nor the server belongs to a cluster: `cisternd init` makes one");
    let told = || {
        let bytes = |name: &str| serde_json::from_value::<Blob>(answer["cluster"][name].clone()).ok().map(|blob| blob.0);
        let key = ClusterKey::from_array(bytes("key")?.try_into().ok()?);
        Pinned::new(key, &bytes("roster")?).ok()
    };
    own.or_else(told).ok_or_else(none)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

fn label(value: &Value) -> String {
    serde_json::from_value::<crate::text::Text>(value.clone()).map_or_else(|_| "?".to_owned(), |text| text.to_string())
}
