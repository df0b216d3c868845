//! Who may join, on the control socket: invites made, listed and withdrawn, and keys admitted by an operator's word.
//!
//! Decides: the requests and answers. A secret comes with a request and is in no answer.
//! Leaves to others: what follows (`cistern_server`), the texts that people carry (`cistern_trust`).

use super::ControlRequest;
use super::principals::{failure, rights_of};
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::text::{Blob, Text};
use cistern_link::Instant;
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_server::invites::{InviteId, InviteRecord};
use cistern_server::principals::Rights;
use cistern_server::store::BatchId;
use cistern_server::{NewInvite, Server};
use cistern_trust::Fingerprint;
use cistern_wire::{Realm, Status};
use serde_json::{Value, json};

/// Does what is asked; with it the batch of a change.
pub(super) fn answer(server: &mut Server, now: Instant, request: ControlRequest) -> Result<(Value, Option<BatchId>), Failure> {
    match request {
        ControlRequest::Invite { id, secret, name, operator, rights, uses, within_s } => {
            let (id, secret) = (InviteId(u64::from_be_bytes(exactly(&id, "id")?)), exactly::<16>(&secret, "secret")?.into());
            let rights = all_rights(&rights)?;
            let new = NewInvite { id, secret, name: name.clone().into_bytes(), operator, rights, uses, within_s };
            let (expires_s, batch) = server.invite(now, new).map_err(|status| not_made(&name, status))?;
            Ok((json!({ "id": id.to_string(), "expires_s": expires_s, "cluster": cluster(server) }), Some(batch)))
        }
        ControlRequest::Invites {} => {
            let rows: Vec<Value> = server.invites().map(|(id, record)| row(id, record)).collect();
            Ok((json!(rows), None))
        }
        ControlRequest::WithdrawInvite { name } => {
            let (count, batch) = server.withdraw_invites(now, name.as_bytes()).map_err(|_| {
                Failure::failed(format!("there is no invite for {name:?}; `cistern admin invite --list` shows those that are good"))
            })?;
            Ok((json!({ "withdrawn": count }), Some(batch)))
        }
        ControlRequest::Admit { name, key, operator, rights } => {
            let (key, rights) = (exactly(&key, "key")?, all_rights(&rights)?);
            let joined = server.admit_key(now, name.as_bytes(), key, operator, &rights);
            let joined = joined.map_err(|status| taken(server, &name, status).unwrap_or_else(|| not_made(&name, status)))?;
            let name = server.principal(joined.principal).map(|record| Text(record.name.to_vec()));
            Ok((json!({ "number": joined.principal.0, "name": name, "cluster": cluster(server) }), Some(joined.batch)))
        }
        other => Err(Failure::usage(format!("{other:?} is not answered here"))),
    }
}

/// The cluster and its servers, for a host that is to trust them.
fn cluster(server: &Server) -> Option<Value> {
    let blob = |bytes: &[u8]| Blob(bytes.to_vec());
    server.roster().map(|roster| json!({ "key": blob(&roster.cluster), "roster": blob(&roster.signed) }))
}

fn exactly<const N: usize>(blob: &Blob, what: &str) -> Result<[u8; N], Failure> {
    blob.0.as_slice().try_into().map_err(|_| Failure::usage(format!("{what}: it has {N} bytes")))
}

fn all_rights(rights: &[(u32, String)]) -> Result<Vec<(Realm, Rights)>, Failure> {
    rights.iter().map(|(realm, letters)| Ok((Realm(*realm), rights_of(letters)?))).collect()
}

/// Why another host cannot be called so, if one is.
fn taken(server: &Server, name: &str, status: Status) -> Option<Failure> {
    let other = server.principal_named(name.as_bytes()).filter(|_| status == Status::EEXIST)?;
    let key = server.principal(other)?.key.map(|key| PublicKey::from_bytes(key).to_text(Role::Agent));
    let key = key.map_or_else(String::new, |key| format!(", the fingerprint of its key {}", Fingerprint::of(&key)));
    let message = format!(
        "{name:?} is the name of another host, which is admitted already (number {}{key}): give this one another by --name, or revoke or rename \
         that one first",
        other.0
    );
    Some(Failure::new(status.name(), EXIT_FAILED, message))
}

fn not_made(name: &str, status: Status) -> Failure {
    match status {
        Status::EINVAL => Failure::failed(format!(
            "{name:?}: a name has 1 to 64 bytes, of several hosts at most 60, and can be printed; an invite is for 1 to 256 hosts, and good for 1 s to 30 d"
        )),
        Status::EACCES => Failure::failed(format!("{name:?}: its key was revoked, which is for ever: make it another one")),
        Status::ENOSPC => Failure::failed(format!("{name:?}: there are too many invites or agents")),
        status => failure(name, status),
    }
}

fn row(id: InviteId, record: &InviteRecord) -> Value {
    json!({
        "id": id.to_string(),
        "name": Text(record.name.to_vec()),
        "operator": record.operator,
        "rights": record.rights.iter().map(|(realm, rights)| json!({ "realm": realm.0, "rights": rights.to_string() })).collect::<Vec<_>>(),
        "rotates": record.rotates.map(|who| who.0),
        "uses": record.uses,
        "expires_s": record.expires_s,
        "used": record.used.iter().map(|used| json!({ "number": used.principal.0, "at_s": used.at_s, "from": used.from })).collect::<Vec<_>>(),
    })
}
