//! `cistern join`: becomes a member of a cluster.
//!
//! Decides: that a host's key is made where it is missing and never replaced, that nothing is trusted that did not come with the grant, and that all of it can be
//! done again: what is there is gone on from.

use super::key::random;
use super::{OUTPUT, Run, read_local};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::local::Failure;
use crate::{logging, places, show};
use cistern_credentials::{Found, HOST_KEY, Place, Places, make_directory, make_key};
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::{Fingerprint, Grant, Name, Request, TextForm as _};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

const JOIN_HELP: &str = "\
Without a network between this host and the operator: `cistern join --request` prints a line with this host's public key, `cistern join --grant FILE` takes the \
operator's answer. Neither line is secret, and both must come unaltered: compare the fingerprints that both ends print.

The host's key is made if there is none, in /etc/cistern for root, in ~/.config/cistern for everybody else, and never replaced.

Examples:
  cistern join --request > web-1.request
  cistern join --grant web-1.grant

Exit status:
  0   done; also if it was before
  1   a file cannot be used, or the grant is for another key
  2   wrong usage";

/// Join a cluster
#[derive(Args, Debug)]
#[command(after_help = JOIN_HELP)]
pub(crate) struct JoinCluster {
    /// Print a request for the operator
    #[arg(long, conflicts_with = "grant", required_unless_present = "grant")]
    request: bool,
    /// Take the operator's grant; `-` for standard input
    #[arg(long, value_name = "FILE")]
    grant: Option<OsString>,
    /// What this host calls itself in the request; else its host name
    #[arg(long, requires = "request", value_name = "NAME")]
    label: Option<Name>,
}

impl Run for JoinCluster {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        match &self.grant {
            None => self.request(ctx),
            Some(from) => take(ctx, from),
        }
    }
}

impl JoinCluster {
    fn request(&self, ctx: &Ctx) -> Result<(), Failure> {
        let label = self.label.clone().map_or_else(host_name, Ok)?;
        let request = Request { key: own_key()?.key.public(), label };
        let text = request.to_text();
        let fingerprint = Fingerprint::of(&text).to_string();
        let made = json!({ "request": *text, "label": request.label.to_string(), "fingerprint": fingerprint });
        ctx.print_with(&made, || text.to_string())?;
        if !ctx.is_json() {
            // Beside the line, which goes to the operator as it is.
            logging::say(&format!("cistern: the fingerprint of the request is {fingerprint}"));
        }
        Ok(())
    }
}

/// Takes a grant: what it trusts is trusted from now on.
fn take(ctx: &Ctx, from: &OsString) -> Result<(), Failure> {
    let shown = from.to_string_lossy();
    let bad = |what: &dyn std::fmt::Display| Failure::new("GRANT", EXIT_FAILED, format!("local file {shown}: {what}"));
    let text = String::from_utf8(read_local(from)?).map_err(|_| bad(&"it is no text"))?;
    let grant = Grant::from_text(&text).map_err(|e| bad(&format_args!("it {e}")))?;
    let found = Places::of_this_process(None).find()?;
    let none = || bad(&"it is for a key, and this host has none; it was made on another host, or for another user");
    let Found { key, place } = found.ok_or_else(none)?;
    grant.check_key(&key.public()).map_err(|e| bad(&e))?;
    place.trust(&grant.pinned)?;
    let (cluster, fingerprint) = (grant.pinned.cluster().to_string(), Fingerprint::of(&text).to_string());
    let taken = json!({ "name": grant.name.to_string(), "principal": grant.principal, "cluster": cluster, "fingerprint": fingerprint });
    ctx.print_with(&taken, || {
        show::columns(&[
            row([&"joined as", &grant.name]),
            row([&"cluster", &Fingerprint::of(&cluster)]),
            row([&"grant", &fingerprint]),
            row([&"written", &place.cluster_path().display()]),
        ])
    })
}

/// The key of this host or user; made if there is none.
fn own_key() -> Result<Found, Failure> {
    if let Some(found) = Places::of_this_process(None).find()? {
        return Ok(found);
    }
    let dir = places::own_credentials("XDG_CONFIG_HOME")?;
    make_directory(&dir)?;
    let random = random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
    let key = make_key(&dir.join(HOST_KEY), Role::Agent, random)?;
    Ok(Found { key, place: Place::Directory(dir) })
}

fn host_name() -> Result<Name, Failure> {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let none = |_| Failure::usage("the host has no name that can be used: give --label NAME");
    Path::new(&name).to_string_lossy().parse().map_err(none)
}
