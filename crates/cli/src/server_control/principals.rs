//! Principals on the control socket: who they are, what they may do where, and what is changed of that by operators, or, by ADMIN, by who owns a realm.
//!
//! Decides: the requests and answers, and that who may not grant learns nothing of names and realms. A change is in force at once, and answered when it is durable.
//! Leaves to others: what follows from a change (`cistern_server`).

use super::{Answered, ControlRequest};
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, millis};
use crate::text::Text;
use cistern_link::Instant;
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_server::principals::{PrincipalId, Rights};
use cistern_server::store::BatchId;
use cistern_server::{PrincipalRow, Server};
use cistern_wire::{Realm, Status};
use serde_json::{Value, json};

/// Does what is asked; with it the batch of a change.
pub(super) fn answer(server: &mut Server, now: Instant, request: ControlRequest) -> Result<(Value, Option<BatchId>), Failure> {
    let (name, changed) = match request {
        ControlRequest::Agents {} => {
            let rows: Vec<Value> = server.principals().iter().map(row).collect();
            return Ok((json!(rows), None));
        }
        ControlRequest::Add { name, key, operator } => {
            let key = key.map(|key| key_of(&key)).transpose()?;
            let added = server.add_principal(now, name.as_bytes(), key, operator);
            (name, added.map(|(_, batch)| batch))
        }
        ControlRequest::Rename { name, to } => {
            let who = meant(server, &name)?;
            (to.clone(), server.rename_principal(now, who, to.as_bytes()))
        }
        ControlRequest::Revoke { name } => {
            let who = meant(server, &name)?;
            let revoked = server.revoke(now, who);
            (name, revoked)
        }
        ControlRequest::Quota { name, objects, bytes } => {
            let who = meant(server, &name)?;
            let set = server.limit(now, who, objects, bytes);
            (name, set)
        }
        ControlRequest::Grant { name, realm, rights } => {
            let who = meant(server, &name)?;
            let granted = server.grant(now, who, Realm(realm), given(&rights)?);
            (name, granted)
        }
        other => return Err(Failure::usage(format!("{other:?} is not answered here"))),
    };
    match changed {
        Ok(batch) => Ok((json!({ "name": name }), Some(batch))),
        Err(status) => Err(failure(&name, status)),
    }
}

/// Answers a line by which a principal that is no operator grants rights, or gives up its own.
pub(crate) fn of_grant(server: &mut Server, now: Instant, by: PrincipalId, line: &str) -> Answered {
    match granted_by(server, now, by, line) {
        Ok((name, batch)) => (json!({ "ok": { "name": name } }).to_string(), Some(batch)),
        Err(failure) => (json!({ "error": failure }).to_string(), None),
    }
}

fn granted_by(server: &mut Server, now: Instant, by: PrincipalId, line: &str) -> Result<(String, BatchId), Failure> {
    let refused = "an operator grants rights, or who owns the realm; anybody may give up some of its own";
    let refused = || Failure::new(Status::EPERM.name(), EXIT_FAILED, refused);
    let Ok(ControlRequest::Grant { name, realm, rights }) = serde_json::from_str(line) else { return Err(refused()) };
    let rights = given(&rights)?;
    let who = server.principal_named(name.as_bytes());
    if !server.may_grant(by, who, Realm(realm), rights) {
        return Err(refused());
    }
    let who = meant(server, &name)?;
    match server.grant_by(now, by, who, Realm(realm), rights) {
        Ok(batch) => Ok((name, batch)),
        Err(status) => Err(failure(&name, status)),
    }
}

/// Rights by their letters; none are none.
fn given(letters: &str) -> Result<Rights, Failure> {
    if letters.is_empty() { Ok(Rights::NONE) } else { rights_of(letters) }
}

fn meant(server: &Server, name: &str) -> Result<PrincipalId, Failure> {
    let unknown = || Failure::new("UNKNOWN_AGENT", EXIT_FAILED, format!("no agent is called {name:?}; `cistern admin agents` lists them"));
    server.principal_named(name.as_bytes()).ok_or_else(unknown)
}

pub(super) fn rights_of(letters: &str) -> Result<Rights, Failure> {
    let wrong = || Failure::usage(format!("{letters:?}: rights are letters out of rwlo, each once: read, write, lock, own"));
    Rights::from_letters(letters).ok_or_else(wrong)
}

pub(super) fn failure(name: &str, status: Status) -> Failure {
    let what = match status {
        Status::EINVAL => "a name has 1 to 64 bytes, and can be printed",
        Status::EEXIST => "the name or the key is taken",
        Status::ENOENT => "there is no such realm; `cistern realm ls` lists them",
        Status::EDQUOT => "it has rights in as many realms as it can, or in half of them, beyond which only an operator gives it more",
        _ => status.text(),
    };
    Failure::new(status.name(), EXIT_FAILED, format!("{name:?}: {what}"))
}

fn key_of(text: &str) -> Result<[u8; 32], Failure> {
    PublicKey::from_text(text, Role::Agent).map(|key| *key.as_bytes()).map_err(|e| Failure::usage(format!("the key: {e}")))
}

fn row(row: &PrincipalRow) -> Value {
    let record = row.record.as_ref();
    let text = |key| PublicKey::from_bytes(key).to_text(Role::Agent);
    let rights =
        record.iter().flat_map(|record| &record.rights).map(|(realm, rights)| json!({ "realm": realm.0, "rights": rights.to_string() }));
    let mut shown = json!({
        "number": row.id.0,
        "name": record.map(|record| Text(record.name.to_vec())),
        "key": record.and_then(|record| record.key).map(text),
        "everything": row.id == PrincipalId::ANYBODY,
        "operator": record.is_some_and(|record| record.operator),
        "revoked": record.is_some_and(|record| record.revoked),
        "rights": rights.collect::<Vec<_>>(),
        "sessions": row.sessions.now,
        "sessions_max": row.sessions.most,
        "locks": row.locks.now,
        "locks_max": row.locks.most,
        "waits": row.waits.now,
        "waits_max": row.waits.most,
        "watches": row.watches.now,
        "watches_max": row.watches.most,
        "staged": row.staged.now,
        "staged_max": row.staged.most,
        "uncached_ms": millis(row.struck.left),
        "strikes": row.struck.strikes,
        "objects": row.account.objects,
        "objects_max": row.account.objects_max,
        "bytes": row.account.bytes,
        "bytes_max": row.account.bytes_max,
    });
    if let Some(seen_s) = row.last_seen_s {
        shown["last_seen_s"] = if seen_s == 0 { Value::Null } else { seen_s.into() };
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_others_are() {
        let text = PublicKey::from_bytes([10; 32]).to_text(Role::Agent);
        assert_eq!(key_of(&text).unwrap(), [10; 32]);
        for wrong in ["", &"0a".repeat(32), &text[1..], &PublicKey::from_bytes([10; 32]).to_text(Role::Server)] {
            assert!(key_of(wrong).is_err(), "{wrong}");
        }
    }
}
