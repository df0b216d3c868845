//! `cisternd server-key`: another key for a server, while agents go on.

mod retire;
mod rotate;

use crate::local::Failure;
use crate::places::{Daemon, own_credentials};
use crate::show;
use cistern_credentials::{CLUSTER_KEY, Rotation};
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::{Fingerprint, Pinned};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

super::commands! {
    /// Change the key of this server, while agents go on
    ServerKeyCommand:
    Rotate(rotate::RotateServerKey),
    Retire(retire::RetireServerKey),
}

// Where the files are.
#[derive(Args, Debug)]
struct Files {
    /// State directory of the server, where its key is; as that of `cisternd`
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Directory of the operator's credentials; else /etc/cistern for root, ~/.config/cistern for everybody else
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// File of the cluster's secret key; else cluster.key among the operator's credentials
    #[arg(long, value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Files {
    fn rotation(&self) -> Result<Rotation, Failure> {
        let own = self.credentials.as_ref().map_or_else(|| own_credentials("--credentials DIR"), |dir| Ok(dir.clone()))?;
        Ok(Rotation {
            server: Daemon::Server.state(self.state.as_deref())?,
            cluster_key: self.cluster_key.clone().unwrap_or_else(|| own.join(CLUSTER_KEY)),
            own,
        })
    }
}

fn as_json(pinned: &Pinned, key: &PublicKey) -> Value {
    json!({ "key": key.to_text(Role::Server), "roster": pinned.roster().version, "cluster": pinned.cluster().to_string() })
}

fn as_text(pinned: &Pinned, what: &str, key: &PublicKey, then: &str) -> String {
    let key = key.to_text(Role::Server);
    let rows = [row([&what, &key]), row([&"fingerprint", &Fingerprint::of(&key)]), row([&"roster", &pinned.roster().version])];
    format!("{}\n{then}", show::columns(&rows))
}
