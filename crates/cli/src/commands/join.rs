//! `cistern join`: becomes a member of a cluster.
//!
//! Decides: that a host's key is made where it is missing and never replaced, that nothing is trusted that did not come with the grant, and that all of it can be
//! done again: what is there is gone on from.

mod line;

use super::key::random;
use super::{OUTPUT, Run, read_local};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE, EXIT_UNAVAILABLE};
use crate::local::Failure;
use crate::{logging, places, show};
use cistern_credentials::{Found, HOST_KEY, JoinRefusal, NotJoined, Place, Places, make_directory, make_key};
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::{Fingerprint, Grant, Invite, Name, Request, ServerAddress, TextForm as _};
use clap::Args;
pub(super) use line::ask;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use zeroize::Zeroizing;

const JOIN_HELP: &str = "\
LINE is what `cistern admin invite` has printed. Whoever has it first joins: the server registers this host's key, and the cluster's servers and its key are written \
beside it. Give it by standard input (`-`) to keep it out of the list of processes. The same line joins the same host again, as long as it is good; another host is \
told when and from where it was used.

Without a network between this host and the operator: `cistern join --request` prints a line with this host's public key, `cistern join --grant FILE` takes the \
operator's answer. Neither line is secret, and both must come unaltered: compare the fingerprints that both ends print.

The host's key is made if there is none, in /etc/cistern for root, in ~/.config/cistern for everybody else, and never replaced.

Examples:
  cistern join cistern-invite-1.AQkJ...
  cistern join - < line
  cistern join --if-needed cistern-invite-1.AQkJ...
  cistern join --request > web-1.request
  cistern join --grant web-1.grant

Exit status:
  0   done; also if it was before
  1   the line is not good, or was used by another host; a file cannot be used, or the grant is for another key
  2   wrong usage
  69  no server of the line answers";

/// Join a cluster
#[derive(Args, Debug)]
#[command(after_help = JOIN_HELP)]
pub(crate) struct JoinCluster {
    /// The invite; `-` reads it from standard input
    #[arg(required_unless_present_any = ["request", "grant"], conflicts_with_all = ["request", "grant"])]
    line: Option<OsString>,
    /// Do nothing if this host has joined a cluster
    #[arg(long, requires = "line")]
    if_needed: bool,
    /// Print a request for the operator
    #[arg(long, conflicts_with = "grant")]
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
        match (&self.line, &self.grant) {
            (Some(line), _) => self.by_line(ctx, line),
            (None, Some(from)) => take(ctx, from),
            (None, None) => self.request(ctx),
        }
    }
}

impl JoinCluster {
    fn by_line(&self, ctx: &Ctx, line: &OsString) -> Result<(), Failure> {
        if self.if_needed
            && let Some(found) = Places::of_this_process(None).find()?
            && let Some(pinned) = found.place.cluster()?
        {
            let cluster = pinned.cluster().to_string();
            let known = json!({ "joined": false, "cluster": cluster });
            return ctx
                .print_with(&known, || show::columns(&[row([&"cluster", &format!("{}, joined before", Fingerprint::of(&cluster))])]));
        }
        let bad = |what: &dyn std::fmt::Display| Failure::new("INVITE", EXIT_FAILED, format!("the line {what}"));
        // As it is given, or as it is piped in: never in a message.
        let text = if line == "-" { read_local(line)? } else { line.clone().into_encoded_bytes() };
        let text = Zeroizing::new(String::from_utf8(text).map_err(|_| bad(&"is no text"))?);
        let invite = Invite::from_text(text.trim()).map_err(|e| bad(&e))?;
        let found = own_key()?;
        let label = host_name().map_or_else(|_| String::new(), |name| name.to_string());
        let ask = |server: &PublicKey, address: &ServerAddress| ask(&found.key, &invite, server, address, &label);
        let grant = cistern_credentials::join(&found, &invite, ask).map_err(refused)?;
        let cluster = grant.pinned.cluster().to_string();
        let key = found.key.public().to_text(Role::Agent);
        let joined = json!({
            "joined": true,
            "name": grant.name.to_string(),
            "principal": grant.principal,
            "key": key,
            "cluster": cluster,
        });
        ctx.print_with(&joined, || {
            show::columns(&[
                row([&"joined as", &grant.name]),
                row([&"key", &Fingerprint::of(&key)]),
                row([&"cluster", &Fingerprint::of(&cluster)]),
                row([&"written", &found.place.cluster_path().display()]),
            ])
        })
    }

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

pub(super) fn refused(why: NotJoined) -> Failure {
    match why {
        NotJoined::Silent(_) => Failure::new("UNREACHABLE", EXIT_UNAVAILABLE, why.to_string()),
        NotJoined::Refused(JoinRefusal::Spent { at_s, from }) => {
            let at = show::time(i64::try_from(at_s).unwrap_or(i64::MAX).saturating_mul(1_000_000_000));
            let what = format!(
                "the line was used by another key, on {at} from {from}: if that was none of your hosts, have its agent revoked (`cistern admin \
                 revoke`), and ask for another line"
            );
            Failure::new("JOIN", EXIT_FAILED, what)
        }
        NotJoined::File(error) => error.into(),
        NotJoined::Refused(_) | NotJoined::Answer(_) => Failure::new("JOIN", EXIT_FAILED, why.to_string()),
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
