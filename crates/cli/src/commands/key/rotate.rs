//! `cistern key rotate`: another key for this host, while its sessions go on.
//!
//! Decides the order: the next key is on disk before a server hears of it, and takes the place of the present one when a server has registered it. So whoever is
//! killed leaves a key that works, and goes on from there.

use super::random;
use crate::backend::own_client;
use crate::commands::admin::invite::servers;
use crate::commands::join::{ask, refused};
use crate::commands::{KEY_HOLDER, Run};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::local::Failure;
use crate::options::Options;
use crate::server_control::ask_sealed;
use crate::text::Blob;
use crate::{settings, show};
use cistern_credentials::{Found, Place, Places};
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::invite::INVITE_SERVERS_MAX;
use cistern_trust::{Fingerprint, Invite, InviteId, InviteSecret, Pinned, ServerAddress};
use clap::Args;
use serde_json::{Value, json};

const ROTATE_HELP: &str = "\
Makes a key, has the server register it for this host in place of the one that it has, and puts it in the place of that one. Sessions and locks of all programs of \
the host go on; agents that run read the file again at their next handshake. The former key is good for 24 h, or until `cistern key retire`, for programs that were \
given it as a value. Name, rights and quota stay.

If it is interrupted, run it again: the new key waits in host.key.next until it is registered. A key that may be stolen is revoked, not rotated: `cistern admin revoke`.

Examples:
  cistern key rotate
  cistern key rotate && cistern key retire

Exit status:
  0   this host has another key
  1   there is no key, it has joined no cluster, or a file cannot be written
  2   wrong usage or settings
  69  no server answers, or it does not know this key";

/// Replace the key of this host or user by a new one
#[derive(Args, Debug)]
#[command(after_help = ROTATE_HELP)]
pub(crate) struct RotateKey {}

impl Run for RotateKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        KEY_HOLDER
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let none = |what: &str| Failure::new("NO_KEY", EXIT_FAILED, what.to_owned());
        let found = Places::of_this_process(ctx.options().key_file.as_deref()).find()?;
        let place = found.ok_or_else(|| none("there is no key; `cistern join` makes one"))?.place;
        let cluster = place.cluster()?.ok_or_else(|| none("this key has joined no cluster, so there is no roster to find a server by"))?;
        let next = place.next_key(random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?)?;
        if next.is_new || !is_admitted(ctx.options(), &place)? {
            let answer = ask_sealed(ctx.operator()?, &json!({ "op": "rotate" }))?;
            let invite = invite(ctx.options(), &cluster, &answer)?;
            let joining = Found { key: next.key.clone(), place: place.clone() };
            let ask = |server: &PublicKey, address: &ServerAddress| ask(&joining.key, &invite, server, address, "");
            cistern_credentials::join(&joining, &invite, ask).map_err(refused)?;
        }
        place.take_next_key()?;
        let public = next.key.public().to_text(Role::Agent);
        let (file, fingerprint) = (place.key_path(), Fingerprint::of(&public));
        let rotated = json!({ "file": file.to_string_lossy(), "public": public, "fingerprint": fingerprint.to_string() });
        ctx.print_with(&rotated, || {
            show::columns(&[row([&"file", &file.display()]), row([&"public key", &public]), row([&"fingerprint", &fingerprint])])
        })
    }
}

/// Whether a rotation that was interrupted came as far as the server.
fn is_admitted(options: &Options, place: &Place) -> Result<bool, Failure> {
    let next = Options { key_file: Some(place.next_key_path()), ..options.clone() };
    match own_client(&next, None) {
        Ok(client) => {
            // What is left of its session ends by its lease.
            let _ = client.close().wait();
            Ok(true)
        }
        Err(failure) if failure.code == "NOT_ADMITTED" => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The server's answer, with where to join by it: the addresses that were named, then those of the roster.
fn invite(options: &Options, cluster: &Pinned, answer: &Value) -> Result<Invite, Failure> {
    let known = servers(cluster);
    let named = settings::load(options.config.as_deref())?.servers(&options.server);
    let names = if named.default { Vec::new() } else { named.names };
    let at_names = names.iter().filter_map(|name| Some((known.first()?.0, name.parse().ok()?)));
    let servers = at_names.chain(known.iter().cloned()).take(INVITE_SERVERS_MAX).collect();
    let unreadable = || Failure::new("INTERNAL", EXIT_SOFTWARE, "the server's answer cannot be read");
    let part = |name: &str| serde_json::from_value::<Blob>(answer[name].clone()).map(|blob| blob.0);
    let (Ok(id), Ok(secret)) = (part("id"), part("secret")) else { return Err(unreadable()) };
    let id = id.try_into().map_err(|_| unreadable())?;
    let secret = secret.try_into().map_err(|_| unreadable())?;
    Ok(Invite { servers, id: InviteId(id), secret: InviteSecret::from_array(secret), expires_s: u32::MAX })
}
