//! Texts and records of trust: what is read is written as it was.

use crate::outcome;
use cistern_seal::key::Role;
use cistern_seal::{PublicKey, SecretKey};
use cistern_trust::cluster::SIGNATURE_LEN;
use cistern_trust::{
    ClusterKey, ClusterSecret, Grant, Invite, InviteId, InviteSecret, Pinned, Request, Revocations, Roster, SignedRoster, TextForm,
};
use std::mem::discriminant;

fn secret() -> ClusterSecret {
    ClusterSecret::from_seed([3; 32])
}

fn key() -> PublicKey {
    PublicKey::from_bytes([1; 32])
}

fn signed() -> SignedRoster {
    let address = "meta.example.net:7311".parse().expect("it is one");
    Roster::first(key(), vec![address]).sign(&secret()).expect("it is a small roster")
}

fn pinned() -> Pinned {
    Pinned::new(secret().public(), signed().as_bytes()).expect("it is signed")
}

/// As text, and as the bytes below it.
fn form<T: TextForm>(input: &[u8]) -> (u64, u64) {
    let as_text = str::from_utf8(input).ok().map(|text| {
        T::from_text(text).map(|value| assert_eq!(&**value.to_text(), text.trim_ascii(), "a text is written otherwise than it was read"))
    });
    let as_bytes =
        T::from_bytes(input).map(|value| assert_eq!(&value.to_bytes()[..], input, "bytes are written otherwise than they were read"));
    (
        outcome(as_text.map(|read| read.map_err(|e| discriminant(&e)))),
        outcome(as_bytes.map_err(|e| (e.part, e.field, discriminant(&e.fault)))),
    )
}

pub(crate) fn forms(input: &[u8]) -> u64 {
    let text = str::from_utf8(input).unwrap_or_default();
    let keys = [Role::Agent, Role::Server].map(|role| {
        let public = PublicKey::from_text(text, role).map(|key| assert_eq!(key.to_text(role), text.trim()));
        let secret = SecretKey::from_text(text, role).map(|key| assert_eq!(*key.to_text(role), text.trim()));
        (public.map_err(|e| discriminant(&e)), secret.map_err(|e| discriminant(&e)))
    });
    let forms = [
        form::<ClusterKey>(input),
        form::<ClusterSecret>(input),
        form::<Pinned>(input),
        form::<Invite>(input),
        form::<Request>(input),
        form::<Grant>(input),
    ];
    outcome((keys, forms))
}

pub(crate) fn texts() -> Vec<Vec<u8>> {
    let name = || "web-1".parse().expect("it is a name");
    let (id, secret_of_invite) = (InviteId([8; 8]), InviteSecret::from_array([9; 16]));
    let address = "10.0.0.1:7311".parse().expect("it is one");
    let invite = Invite { servers: vec![(key(), address)], id, secret: secret_of_invite, expires_s: 1_800_000_000 };
    let request = Request { key: key(), label: name() };
    let grant = Grant { key: key(), principal: 7, name: name(), pinned: pinned() };
    let texts = [pinned().to_text(), invite.to_text(), request.to_text(), grant.to_text(), secret().to_text(), secret().public().to_text()];
    let bytes = [pinned().to_bytes(), invite.to_bytes(), request.to_bytes(), grant.to_bytes()];
    let keys = [key().to_text(Role::Agent), SecretKey::from_bytes([5; 32]).to_text(Role::Server).to_string()];
    let texts = texts.iter().map(|text| text.as_bytes().to_vec());
    texts.chain(bytes.iter().map(|bytes| bytes.to_vec())).chain(keys.map(String::into_bytes)).collect()
}

pub(crate) fn cluster(input: &[u8]) -> u64 {
    outcome(str::from_utf8(input).ok().map(|text| cistern_credentials::parse_cluster(text).map(drop).map_err(|e| discriminant(&e))))
}

pub(crate) fn clusters() -> Vec<Vec<u8>> {
    let pinned = pinned();
    let text = format!("cluster = \"{}\"\nroster = \"{}\"\n", pinned.cluster(), pinned.signed().to_text());
    vec![text.into_bytes()]
}

pub(crate) fn roster(input: &[u8]) -> u64 {
    let read = SignedRoster::verify(input, &secret().public());
    if let Ok(signed) = &read {
        assert_eq!(signed.as_bytes(), input);
        let again = signed.roster().clone().sign(&secret()).expect("what was read can be signed");
        assert_eq!(again.as_bytes(), input, "a roster is written otherwise than it was read");
    }
    outcome(read.map(|signed| signed.roster().servers.len()).map_err(|e| e.to_string()))
}

pub(crate) fn rosters() -> Vec<Vec<u8>> {
    vec![signed().as_bytes().to_vec()]
}

/// Puts the right signature at the end.
pub(crate) fn sign(input: &mut [u8]) {
    if let Some(body) = input.len().checked_sub(SIGNATURE_LEN) {
        let signature = secret().sign(&[&b"cistern1 roster"[..], &input[..body]].concat());
        input[body..].copy_from_slice(&signature);
    }
}

pub(crate) fn revoked(input: &[u8]) -> u64 {
    let read = str::from_utf8(input).ok().map(|text| {
        Revocations::read_log(text).map(|(keys, whole)| {
            assert!(whole <= text.len());
            assert_eq!(Revocations::read_log(&keys.to_log()), Ok((keys.clone(), keys.to_log().len())));
            keys.len().min(4)
        })
    });
    outcome(read.map(|read| read.map_err(|damaged| damaged.line.min(4))))
}

pub(crate) fn revoked_logs() -> Vec<Vec<u8>> {
    vec![[Revocations::log_line(&key(), 10), Revocations::log_line(&PublicKey::from_bytes([2; 32]), 20)].concat().into_bytes()]
}
