//! Attacks on sealed sessions: by whoever sees their records, and by whoever has an admitted key and a session of its own.

use super::sealed::{Peer, Sealed, keep_alive};
use super::world::{ROOT, advisory, create, lock, ms};
use crate::principals::Rights;
use crate::{Config, Dropped};
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::{
    Ask, Bytes8, Claim, EndReason, EndSession, FormerClaim, FormerFate, GetAttr, Keep, Kind, List, LockWait, Message, PathResponse, Realm,
    Release, ReleaseItem, Reply, SessionFate, Status, Terms, Unlink, Want,
};
use core::net::SocketAddr;

fn elsewhere(n: u8) -> Path {
    Path::to(SocketAddr::from(([198, 51, 100, n], 9)))
}

const fn ask(nonce: u64) -> Ask {
    Ask { nonce, back: 0, limit: 1_232 }
}

/// The peer asks in a record; what the reply to it is.
fn asks<T>(server: &mut Sealed, peer: &mut Peer, message: Message<'_>, look: impl FnOnce(Reply<'_>) -> T) -> T {
    let record = peer.record(&[message]);
    let answers = server.say(peer.path, &record);
    let answers: Vec<_> = answers.iter().flat_map(|answer| peer.opened(answer)).collect();
    let ack = answers.iter().find(|answer| answer[0] == Kind::Ack.code()).unwrap_or_else(|| panic!("no ACK: {answers:?}"));
    let Ok(Message::Ack(ack)) = Message::decode(Kind::Ack, &ack[4..]) else { panic!("an ACK that cannot be read") };
    look(ack.reply)
}

fn refused(server: &mut Sealed, peer: &mut Peer, message: Message<'_>) -> Option<Status> {
    asks(server, peer, message, |reply| match reply {
        Reply::Failed(failed) => Some(failed.status),
        _ => None,
    })
}

/// The answer to a PATH_CHALLENGE in a record to the peer.
fn token(peer: &mut Peer, challenge: &[u8]) -> Message<'static> {
    let challenge = peer.opened(challenge).pop().unwrap();
    let Ok(Message::PathChallenge(challenge)) = Message::decode(Kind::PathChallenge, &challenge[4..]) else { panic!("not a challenge") };
    PathResponse { token: challenge.token }.into()
}

/// The peer is answered where it is.
#[track_caller]
fn goes_on(server: &mut Sealed, peer: &mut Peer) {
    let record = peer.record(&[keep_alive(99)]);
    let answer = server.say(peer.path, &record).pop().expect("an answer");
    assert_eq!(peer.opened(&answer)[0][0], Kind::Alive.code());
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST NOT send more than one PATH_CHALLENGE for a session in a round trip, to however many addresses.
#[test]
fn records_sent_on_from_many_addresses_bring_one_challenge_a_round_trip_which_nobody_else_can_answer() {
    let (mut server, mut peer, mut thief) = (Sealed::new(), Peer::new(1), Peer::new(2));
    server.open(&mut peer);
    server.open(&mut thief);
    let (mut challenges, mut came) = (Vec::new(), 0);
    for n in 1..=20 {
        let record = peer.record(&[keep_alive(n.into())]);
        came = record.len();
        challenges.extend(server.say(elsewhere(n), &record));
    }
    assert_eq!(challenges.len(), 1, "all came within one round trip");
    assert!(challenges[0].len() < came);
    assert_eq!(server.dropped(Dropped::RateLimited), 19);
    // Even whoever learnt the token is in no session of the peer's: in clear, or sealed by other keys.
    let response = token(&mut peer, &challenges[0]);
    let plain = server.world.encode(peer.session, 30, &[response]);
    assert!(server.say(elsewhere(1), &plain).is_empty());
    let own = core::mem::replace(&mut thief.session, peer.session);
    for _ in 0..30 {
        let record = thief.record(&[response]);
        assert!(server.say(elsewhere(1), &record).is_empty());
    }
    thief.session = own;
    assert_eq!((server.dropped(Dropped::NotAuthentic), server.world.server.stats().moves), (30, 0));
    goes_on(&mut server, &mut peer);
    server.world.tick(ms(1_000));
    let record = peer.record(&[keep_alive(21)]);
    let challenges = server.say(elsewhere(21), &record);
    assert_eq!(challenges.len(), 1, "a round trip later one more");
    // Nor does the peer's own answer prove any other address than the challenged one.
    let response = token(&mut peer, &challenges[0]);
    let record = peer.record(&[response]);
    server.say(elsewhere(1), &record);
    assert_eq!(server.world.server.stats().moves, 0);
    goes_on(&mut server, &mut peer);
}

#[test]
fn an_admitted_key_ends_and_frees_nothing_in_the_name_of_another() {
    let (mut server, mut victim, mut thief) = (Sealed::new(), Peer::new(1), Peer::new(2));
    server.open(&mut victim);
    let file = asks(&mut server, &mut victim, create(ask(1), "job", Want::Nothing).into(), |reply| match reply {
        Reply::Changed(changed) => changed.effects.iter().nth(1).unwrap().attr.object,
        other => panic!("{other:?}"),
    });
    let generation = asks(&mut server, &mut victim, lock(ask(2), file, LockWait::Try).into(), |reply| match reply {
        Reply::Granted(granted) => granted.generation,
        other => panic!("{other:?}"),
    });
    // It calls itself by the victim's instance, started much later, and says of the victim's session what the victim could say.
    (thief.instance, thief.incarnation) = (victim.instance, 1 << 40);
    let cookie = thief.cookie(&mut server);
    let open = thief.open(cookie);
    let welcome = server.say(thief.path, &open).pop().unwrap();
    thief.welcomed(&welcome);
    let session = victim.session;
    let fates = server.confirm(&mut thief, &[FormerClaim { session, claim: Claim::Surrendered }]);
    assert_eq!(fates, [FormerFate { session, fate: SessionFate::Ended }], "as for a session that never was");
    // In the victim's session, under keys of its own and numbers that the victim has not used: nothing of it opens.
    (0..9).for_each(|_| drop(thief.record(&[keep_alive(9)])));
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    let own = core::mem::replace(&mut thief.session, session);
    for message in [
        EndSession { serial: 9, reason: EndReason::Surrender }.into(),
        EndSession { serial: 9, reason: EndReason::Close }.into(),
        Release { serial: 9, items: List::of(&items) }.into(),
        keep_alive(9),
    ] {
        let record = thief.record(&[message]);
        for path in [thief.path, victim.path] {
            assert!(server.say(path, &record).is_empty());
        }
    }
    thief.session = own;
    assert_eq!(server.dropped(Dropped::NotAuthentic), 8);
    let is_held = |reply: Reply<'_>| matches!(reply, Reply::LockRefused(_));
    assert!(asks(&mut server, &mut thief, lock(ask(1), file, LockWait::Try).into(), is_held));
    assert_eq!((server.world.server.lease_timers(), server.world.server.status(server.world.now).sessions), (0, 2));
    goes_on(&mut server, &mut victim);
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# The server MUST check the rights of a request each time that it executes it.
#[test]
fn a_key_may_do_what_it_was_given_and_no_more_from_the_moment_it_was_given() {
    let (mut server, mut owner, mut guest) = (Sealed::new(), Peer::new(1), Peer::new(2));
    server.open(&mut owner);
    server.open(&mut guest);
    let file = asks(&mut server, &mut owner, create(ask(1), "job", Want::Nothing).into(), |reply| match reply {
        Reply::Changed(changed) => changed.effects.iter().nth(1).unwrap().attr.object,
        other => panic!("{other:?}"),
    });
    let who = server.world.server.principal_named(b"c").unwrap();
    let mut nonce = 0;
    let mut is = |server: &mut Sealed, rights: &str, refusals: [Option<Status>; 4]| {
        let rights = Rights::from_letters(rights).unwrap();
        server.world.server.grant(server.world.now, who, Realm::TREE, rights).unwrap();
        server.turn();
        let mut next = || {
            nonce += 1;
            ask(nonce)
        };
        let wants: [Message<'_>; 4] = [
            GetAttr { ask: next(), object: file, want: Want::Nothing }.into(),
            create(next(), "other", Want::Nothing).into(),
            lock(next(), file, LockWait::Try).into(),
            Unlink { ask: next(), dir: ROOT, name: Bytes8(b"job"), force: true, terms: Terms::NONE }.into(),
        ];
        let found = wants.map(|message| refused(server, &mut guest, message));
        assert_eq!(found, refusals, "{rights:?}");
    };
    let no = Some(Status::EACCES);
    is(&mut server, "r", [None, no, no, no]);
    is(&mut server, "rl", [None, no, None, no]);
    is(&mut server, "rw", [None, None, no, None]);
    goes_on(&mut server, &mut owner);
}

#[test]
fn asks_of_one_host_use_up_no_other_hosts_challenges() {
    let mut server = Sealed::with(Config { challenges_per_second: 1_000, ..Config::default() });
    let mut flood = Peer::new(1);
    for n in 2..6 {
        let asked: Vec<_> = (0..100).map(|_| flood.ask()).collect();
        let answered: usize = asked.iter().map(|ask| server.say(flood.path, ask).len()).sum();
        assert!((1..=10).contains(&answered), "{answered}");
        server.open(&mut Peer::new(n));
        server.world.tick(ms(5));
    }
    assert!(server.dropped(Dropped::RateLimited) > 300);
}
