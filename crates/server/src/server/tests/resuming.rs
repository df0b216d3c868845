//! RESUME: who may take up a session of before the start, or of now, without its agent's key.

use super::sealed::{Peer, Sealed, keep_alive};
use crate::store::tests::disk::Disk;
use crate::store::{Key, StoreEvent};
use crate::{Config, Dropped};
use alloc::vec::Vec;
use cistern_seal::Psk;
use cistern_wire::sealed::{OpenStatus, SealedDatagram, SealedHandshake, SealedKind, SealedRefusal};
use cistern_wire::{AgentId, Ask, Claim, Confirm, EndReason, EndSession, FormerClaim, Kind, List, ReclaimComplete, SessionFate, SessionId};

/// What the server answers to a RESUME of the peer's session.
fn resume(server: &mut Sealed, peer: &mut Peer) -> Vec<Vec<u8>> {
    peer.handshake += 1;
    let cookie = peer.cookie(server);
    let resume = peer.resume(cookie);
    let answers = server.say(peer.path, &resume);
    assert!(answers.iter().all(|answer| answer.len() < resume.len()));
    if answers.iter().any(|answer| answer.len() == SealedKind::Welcome.datagram_len()) {
        let again = peer.again(&resume);
        assert_eq!(server.say(peer.path, &again), answers, "a repetition is offered the same");
    }
    answers
}

/// RESUME is taken: the peer is offered a session.
fn is_resumed(server: &mut Sealed, peer: &mut Peer) {
    let welcome = resume(server, peer).pop().expect("a WELCOME");
    assert_eq!(peer.welcomed(&welcome), OpenStatus::Opened);
}

fn is_refused(server: &mut Sealed, peer: &mut Peer) {
    let refused = resume(server, peer).pop().expect("a REFUSE");
    let SealedHandshake::Refuse(refuse) = SealedDatagram::at_agent(&refused).unwrap().body else { panic!("not a REFUSE") };
    assert_eq!(refuse.reason, SealedRefusal::Resume);
}

fn reclaiming(session: SessionId) -> [FormerClaim; 1] {
    [FormerClaim { session, claim: Claim::Reclaiming }]
}

/// The starts whose keys the store has.
fn start_keys(server: &Sealed) -> Vec<u64> {
    server.world.disk.values.keys().filter_map(|key| if let Key::StartKey(start) = key { Some(*start) } else { None }).collect()
}

#[test]
fn a_session_of_before_the_start_is_resumed_and_reclaimed() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let (former, secret) = (peer.session, peer.secret.clone());
    assert_ne!(secret.expose(), &[0; 32]);
    let mut server = server.restart();
    is_resumed(&mut server, &mut peer);
    assert_eq!(server.confirm(&mut peer, &reclaiming(former))[0].fate, SessionFate::Reclaimable);
    assert_ne!(peer.secret.expose(), secret.expose(), "each session has its own");
    assert_eq!(server.world.server.stats().resumed, 1);
    let row = server.world.server.sessions(server.world.now).into_iter().find(|row| row.session == peer.session).unwrap();
    assert_eq!(row.agent, peer.agent(), "who it is follows from the record");
}

//= docs/sealed.md#resumption
//= type=test
//# The key of a start MUST be durable before the server answers, and as long as a session of that start can be resumed; it is deleted in
//# the transaction that ends the last one.
//= docs/sealed.md#resumption
//= type=test
//# The key of a start MUST be durable before the server answers, and as long as a session of that start can be resumed; it is deleted in
//# the transaction that ends the last one.
#[test]
fn nothing_is_answered_before_the_key_of_the_start_is_durable() {
    let (mut server, mut peer) = (Sealed::starting(Disk::default(), Config { volatile: true, ..Config::default() }, 7), Peer::new(1));
    server.world.stalled = true;
    for _ in 0..3 {
        server.turn();
        while !server.world.disk.asked.is_empty() {
            let loaded = server.world.disk.give(0);
            server.world.server.store_event(server.world.now, StoreEvent::Loaded(loaded));
        }
    }
    let ask = peer.ask();
    assert!(server.say(peer.path, &ask).is_empty());
    assert_eq!((start_keys(&server), server.world.disk.batches.len()), (Vec::new(), 1));
    server.world.stalled = false;
    server.turn();
    assert_eq!(start_keys(&server), [1]);
    assert!(!server.say(peer.path, &ask).is_empty());
}

#[test]
fn the_key_of_a_start_is_kept_until_its_last_session_is_over() {
    let (mut server, mut first, mut second) = (Sealed::new(), Peer::new(1), Peer::new(2));
    server.open(&mut first);
    server.open(&mut second);
    assert_eq!(start_keys(&server), [7]);
    let mut server = server.restart();
    assert_eq!(start_keys(&server), [7, 8]);
    for (peer, left) in [(&mut first, &[7, 8][..]), (&mut second, &[8][..])] {
        let former = peer.session;
        is_resumed(&mut server, peer);
        server.confirm(peer, &reclaiming(former));
        let done = peer.record(&[ReclaimComplete { ask: Ask { nonce: 1, back: 0, limit: 1_232 }, from: former }.into()]);
        server.say(peer.path, &done);
        server.turn();
        assert_eq!(start_keys(&server), left);
    }
    // The sessions that took their places are of the last start.
    assert_eq!(start_keys(&server.restart()), [8, 9]);
}

#[test]
fn a_live_session_goes_on_when_its_agent_resumes_it() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let mut again = Peer::new(1);
    (again.secret, again.session, again.handshake) = (peer.secret.clone(), peer.session, 77);
    is_resumed(&mut server, &mut again);
    let continuing = [FormerClaim { session: peer.session, claim: Claim::Continuing }];
    let record = again.record(&[Confirm { serial: 1, former: List::of(&continuing) }.into()]);
    let known = server.say(again.path, &record).pop().unwrap();
    assert_eq!(again.opened(&known)[0][0], Kind::Known.code());
    let alive = peer.record(&[keep_alive(9)]);
    let answer = server.say(peer.path, &alive).pop().unwrap();
    assert_eq!(peer.opened(&answer)[0][0], Kind::Alive.code());
    assert_eq!(server.world.server.stats().resumed, 0, "nothing was opened");
}

//= docs/sealed.md#resumption
//= type=test
//# A server MUST look up the key's rights and revocation when it takes RESUME and when it offers a session, and answer REFUSE (resume) to
//# one of a session that is unknown or has ended, or of a key that is revoked.
#[test]
fn a_revoked_key_resumes_nothing() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let mut server = server.restart();
    // It is withdrawn while its RESUME is computed.
    peer.handshake += 1;
    let cookie = peer.cookie(&mut server);
    let late = peer.resume(cookie);
    server.world.deliver(peer.path, &late);
    let who = server.world.server.principal_named(b"b").unwrap();
    server.world.server.revoke(server.world.now, who).unwrap();
    assert!(server.say(peer.path, &[]).is_empty());
    is_refused(&mut server, &mut peer);
    is_refused(&mut server.restart(), &mut peer);
}

//= docs/sealed.md#resumption
//= type=test
//# A server MUST look up the key's rights and revocation when it takes RESUME and when it offers a session, and answer REFUSE (resume) to
//# one of a session that is unknown or has ended, or of a key that is revoked.
#[test]
fn an_ended_session_is_not_resumed() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let end = peer.record(&[EndSession { serial: 3, reason: EndReason::Close }.into()]);
    server.say(peer.path, &end);
    is_refused(&mut server, &mut peer);
    is_refused(&mut server.restart(), &mut peer);
}

#[test]
fn what_was_restored_from_a_copy_is_not_resumed() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    server.world.disk.values.retain(|key, _| Key::is_copied(&key.to_bytes()));
    is_refused(&mut server.restart(), &mut peer);
}

//= docs/sealed.md#resumption
//= type=test
//# The instance and incarnation in the payload MUST be those of the session; else RESUME is dropped.
#[test]
fn who_has_not_the_secret_or_is_another_resumes_nothing() {
    let (mut server, mut peer, mut other) = (Sealed::new(), Peer::new(1), Peer::new(2));
    server.open(&mut peer);
    server.open(&mut other);
    let mut server = server.restart();
    let secret = core::mem::replace(&mut peer.secret, Psk::none());
    assert!(resume(&mut server, &mut peer).is_empty());
    peer.secret = other.secret;
    assert!(resume(&mut server, &mut peer).is_empty(), "that of another session");
    assert_eq!(server.dropped(Dropped::NotAuthentic), 2);
    peer.secret = secret;
    let instance = core::mem::replace(&mut peer.instance, AgentId([9; 16]));
    assert!(resume(&mut server, &mut peer).is_empty(), "another instance of its key");
    assert_eq!(server.dropped(Dropped::BadHello), 1);
    peer.instance = instance;
    peer.incarnation += 1;
    assert!(resume(&mut server, &mut peer).is_empty(), "another incarnation of its agent");
    assert_eq!(server.dropped(Dropped::BadHello), 2);
    peer.incarnation -= 1;
    is_resumed(&mut server, &mut peer);
}
