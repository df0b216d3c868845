//! `cistern key show`: who this host or user is, and which cluster it trusts.

use crate::commands::{OUTPUT, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::show;
use cistern_credentials::Places;
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::{Fingerprint, Pinned};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

const SHOW_HELP: &str = "\
The key is that of FILE; else the first that is there of cistern.host.key in $CREDENTIALS_DIRECTORY, host.key in ~/.config/cistern, host.key in /etc/cistern. One \
that cannot be used is an error, never a reason to take the next. The cluster is that of the file cluster.toml beside the key.

Examples:
  cistern key show
  cistern key show --json

Exit status:
  0   shown
  1   there is no key, or a file cannot be used
  2   wrong usage";

/// Show the public key of this host or user, and the cluster that it trusts
#[derive(Args, Debug)]
#[command(after_help = SHOW_HELP)]
pub(crate) struct ShowKey {
    /// File of the key; else it is looked for
    file: Option<PathBuf>,
}

impl Run for ShowKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let found = Places::of_this_process(self.file.as_deref()).find()?;
        let none = || Failure::new("NO_KEY", EXIT_FAILED, "there is no key; `cistern key new` makes one");
        let found = found.ok_or_else(none)?;
        let cluster = found.place.cluster()?;
        let public = found.key.public().to_text(Role::Agent);
        let fingerprint = Fingerprint::of(&public).to_string();
        let file = found.place.key_path();
        let shown = json!({
            "file": file.to_string_lossy(),
            "public": public,
            "fingerprint": fingerprint,
            "cluster": cluster.as_ref().map(cluster_as_json),
        });
        ctx.print_with(&shown, || {
            let mut rows = vec![row([&"file", &file.display()]), row([&"public key", &public]), row([&"fingerprint", &fingerprint])];
            match &cluster {
                Some(pinned) => rows.extend(cluster_as_rows(pinned)),
                None => rows.push(row([&"cluster", &"none: this key has not joined one"])),
            }
            show::columns(&rows)
        })
    }
}

fn cluster_as_json(pinned: &Pinned) -> Value {
    let servers = pinned.roster().servers.iter().map(|server| {
        let addresses: Vec<&str> = server.addresses.iter().map(cistern_trust::ServerAddress::as_str).collect();
        json!({ "key": server.key.to_text(Role::Server), "state": server.state.to_string(), "addresses": addresses })
    });
    json!({
        "key": pinned.cluster().to_string(),
        "roster": pinned.roster().version,
        "servers": servers.collect::<Vec<_>>(),
    })
}

fn cluster_as_rows(pinned: &Pinned) -> Vec<Vec<String>> {
    let key = pinned.cluster().to_string();
    let fingerprint = Fingerprint::of(&key);
    let mut rows = vec![row([&"cluster", &key]), row([&"fingerprint", &fingerprint]), row([&"roster", &pinned.roster().version])];
    rows.extend(pinned.roster().servers.iter().map(|server| {
        let addresses: Vec<&str> = server.addresses.iter().map(cistern_trust::ServerAddress::as_str).collect();
        row([&server.state, &format!("{} {}", server.key.to_text(Role::Server), addresses.join(" "))])
    }));
    rows
}
