//! What a standby says, and to what. Elections, cores and their ends are judged in the simulator (`cistern-sim group`).

use crate::{Duty, GroupServer, Role};
use alloc::vec;
use alloc::vec::Vec;
use cistern_flease::{Config, Terms};
use cistern_link::{Instant, Machine as _, Path};
use cistern_seal::{FirstCheck, GroupSealer, SecretKey};
use cistern_server::Server;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::sealed::{MAC_LEN, SealedAsk, SealedDatagram, SealedHandshake, SealedRefusal, Zeros};
use cistern_wire::{AgentId, Datagram, Header, Hello, KeepAlive, Message, Packer, RefuseReason, SessionId, StoreId};
use core::net::SocketAddr;

fn at(ms: u64) -> Instant {
    Instant::new((1_000 + ms) * 1_000_000, (2_000 + ms) * 1_000_000)
}

fn agent() -> Path {
    Path::to(SocketAddr::from(([192, 0, 2, 1], 4_000)))
}

/// The only member of its group, which therefore wins as soon as it may.
fn member() -> GroupServer {
    member_of(1, 0)
}

fn member_of(members: u8, me: u8) -> GroupServer {
    let config = Config {
        terms: Terms::default(),
        list_number: 0,
        members: (0..members).map(|member| vec![b'a' + member]).collect(),
        me,
        renew_by_write: false,
        resources_max: 1,
        reserved: None,
    };
    let mut member = GroupServer::new(&config, [7; 32], at(0)).unwrap();
    assert!(!member.learn_servers(at(0), None), "the store has no list yet");
    member
}

fn datagram(from_server: bool, session: u64, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, Header { from_server, session: SessionId(session), packet: 19 }, DATAGRAM_MIN);
    assert!(packer.push(message));
    packer.finish();
    bytes
}

fn answers(member: &mut GroupServer, now: Instant, bytes: &[u8]) -> Vec<Vec<u8>> {
    member.handle_datagram(now, agent(), bytes);
    let mut answers = Vec::new();
    let mut buf = Vec::from(*b"dirty");
    while let Some(path) = member.poll_transmit(now, &mut buf) {
        assert_eq!(path, agent());
        answers.push(buf.clone());
    }
    answers
}

#[test]
fn standby_answers_a_session_by_hint_a_handshake_by_refusal_and_nothing_else() {
    let mut member = member();
    assert_eq!(member.role(at(0)), Role::Standby);
    let keep_alive = KeepAlive { serial: 1, clock_us: 0 }.into();
    let hints = answers(&mut member, at(0), &datagram(false, 5, &keep_alive));
    let hint = Datagram::at_agent(&hints[0]).unwrap();
    assert_eq!((hints.len(), hint.header.session, hint.header.packet), (1, SessionId(5), 19));
    assert!(matches!(hint.messages().next(), Some(Message::Hint(hint)) if hint.echo == 19));
    let hello = Hello::new(AgentId([1; 16]), 77).into();
    let refusals = answers(&mut member, at(0), &datagram(false, 0, &hello));
    let refusal = Datagram::at_agent(&refusals[0]).unwrap();
    let Some(Message::Refuse(refuse)) = refusal.messages().next() else { panic!("{refusals:?}") };
    assert_eq!((refuse.handshake, refuse.echo, refuse.reason), (77, 19, RefuseReason::Standby));
    assert!(refuse.retry_ms > 0, "or the agent would give up");
    assert_eq!(refuse.serving, 0, "nobody that it knows of");
    // Of a server, damaged, no handshake.
    let mut damaged = datagram(false, 5, &keep_alive);
    damaged[20] ^= 1;
    for bytes in [datagram(true, 5, &hint.messages().next().unwrap()), damaged, datagram(false, 0, &keep_alive), b"what".to_vec()] {
        assert_eq!(answers(&mut member, at(0), &bytes), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn standby_is_no_amplifier() {
    let mut member = member();
    let keep_alive = datagram(false, 5, &KeepAlive { serial: 1, clock_us: 0 }.into());
    let sent: usize = (0..1_000).map(|_| answers(&mut member, at(0), &keep_alive).len()).sum();
    assert_eq!(sent, 100, "a burst, and no more at one instant");
    let longest = answers(&mut member, at(100), &keep_alive).iter().map(Vec::len).max().unwrap();
    assert!(longest < keep_alive.len());
}

#[test]
fn sealed_standby_answers_those_who_know_its_key() {
    let key = SecretKey::from_bytes([9; 32]);
    let check = FirstCheck::of(&key.public());
    let sealer = GroupSealer::new(&key, 0, vec![key.public()], [1; 16]).unwrap();
    let mut member = member().sealed(check.clone(), sealer);
    let ask = SealedAsk { handshake: 77, key_id: [0; 8], room: Zeros, mac1: [0; MAC_LEN] };
    let mut bytes = Vec::new();
    SealedDatagram::new(SessionId(0), 3, ask).write(&mut bytes);
    assert!(answers(&mut member, at(0), &bytes).is_empty(), "no check");
    check.complete(&mut bytes);
    let refusals = answers(&mut member, at(0), &bytes);
    assert!(check.holds(&refusals[0]));
    let SealedHandshake::Refuse(refuse) = SealedDatagram::at_agent(&refusals[0]).unwrap().body else { panic!("{refusals:?}") };
    assert_eq!((refuse.handshake, refuse.echo, refuse.reason), (77, 3, SealedRefusal::Standby));
    let plain = datagram(false, 5, &KeepAlive { serial: 1, clock_us: 0 }.into());
    assert!(answers(&mut member, at(0), &plain).is_empty(), "a server with a key answers nothing in clear");
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server MUST NOT stand for election unless the store has answered it within the last L.
#[test]
fn who_hears_nothing_of_the_store_is_not_elected_and_who_cannot_have_it_gives_the_lease_back() {
    let mut member = member();
    let lease = Terms::default().lease;
    let passes = |member: &mut GroupServer, from: u64, to: u64, hears: bool| {
        for ms in from..to {
            if hears {
                member.store_answered(at(ms));
            }
            member.handle_drained(at(ms));
        }
    };
    passes(&mut member, 0, 3_000, false);
    assert_eq!((member.role(at(3_000)), member.poll_duty()), (Role::Standby, None));
    passes(&mut member, 3_000, 3_100, true);
    assert_eq!(member.role(at(3_100)), Role::Elected);
    let Some(Duty::Open(tenure)) = member.poll_duty() else { panic!("nothing to open") };
    // Nobody gives it a core.
    let late = 3_100 + 4 * u64::try_from(lease.as_millis()).unwrap();
    passes(&mut member, 3_100, late, false);
    assert_eq!((member.role(at(late)), member.poll_duty()), (Role::Standby, Some(Duty::Close(tenure))));
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server MUST NOT give its lease back before it has stopped for good in that tenure.
#[test]
fn who_hands_over_has_no_core_any_more_when_the_lease_is_free() {
    let mut member = member();
    for ms in 0..1_000 {
        member.store_answered(at(ms));
        member.handle_drained(at(ms));
    }
    let Some(Duty::Open(tenure)) = member.poll_duty() else { panic!("nothing to open") };
    let core = Server::new(at(1_000), 0, StoreId([1; 16]), cistern_server::Config::default(), [8; 32]).unwrap();
    assert!(member.serve(at(1_000), tenure, core));
    assert_eq!(member.role(at(1_000)), Role::Serving);
    member.hand_over(at(1_000), None);
    assert!(member.core().is_none());
    assert_eq!((member.role(at(1_000)), member.poll_duty()), (Role::Standby, Some(Duty::Close(tenure))));
    // What comes late for that tenure finds nothing, and another one may win first.
    let late = Server::new(at(1_000), 0, StoreId([1; 16]), cistern_server::Config::default(), [9; 32]).unwrap();
    assert!(!member.serve(at(1_001), tenure, late));
    member.store_answered(at(1_100));
    member.handle_drained(at(1_100));
    assert_eq!(member.role(at(1_100)), Role::Standby);
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# An elected server that the store has not answered for 2 L SHOULD give its lease back while another one says that it hears the store.
#[test]
fn who_alone_does_not_hear_the_store_gives_the_lease_back_and_who_is_deaf_as_all_others_keeps_it() {
    for another_hears in [true, false] {
        let mut pair = [member_of(2, 0), member_of(2, 1)];
        let at_of = |member: usize| SocketAddr::from(([192, 0, 2, 10 + u8::try_from(member).unwrap()], 7_311));
        for (one, other) in [(0, 1), (1, 0)] {
            pair[one].node_mut().set_address(u8::try_from(other).unwrap(), at_of(other));
        }
        let pass = |pair: &mut [GroupServer; 2], from: u64, to: u64, hear: [bool; 2]| {
            for ms in from..to {
                for member in 0..2 {
                    if hear[member] {
                        pair[member].store_answered(at(ms));
                    }
                    pair[member].handle_drained(at(ms));
                    let mut buf = Vec::new();
                    while let Some(path) = pair[member].poll_transmit(at(ms), &mut buf) {
                        assert_eq!(path.remote, at_of(1 - member));
                        pair[1 - member].handle_datagram(at(ms), Path::to(at_of(member)), &buf);
                    }
                }
            }
        };
        pass(&mut pair, 0, 1_000, [true, false]);
        let Some(Duty::Open(tenure)) = pair[0].poll_duty() else { panic!("nothing to open") };
        let core = Server::new(at(1_000), 0, StoreId([1; 16]), cistern_server::Config::default(), [8; 32]).unwrap();
        assert!(pair[0].serve(at(1_000), tenure, core));
        pass(&mut pair, 1_000, 4_000, [false, another_hears]);
        // Who knows who serves says so.
        let hello = Hello::new(AgentId([1; 16]), 77).into();
        let refusals = answers(&mut pair[1], at(4_000), &datagram(false, 0, &hello));
        let refusal = Datagram::at_agent(&refusals[0]).unwrap();
        let Some(Message::Refuse(refuse)) = refusal.messages().next() else { panic!("{refusals:?}") };
        let expected = if another_hears { (Role::Standby, 0) } else { (Role::Serving, 1) };
        assert_eq!(refuse.serving, expected.1, "it serves itself, or the first does");
        let expected = expected.0;
        assert_eq!(pair[0].role(at(4_000)), expected);
        assert_eq!(pair[0].core().is_none(), another_hears);
    }
}

/// Turns both, and passes what they say to each other.
fn pass(pair: &mut [GroupServer; 2], span: core::ops::Range<u64>) {
    let at_of = |member: usize| SocketAddr::from(([192, 0, 2, 10 + u8::try_from(member).unwrap()], 7_311));
    for ms in span {
        for member in 0..2 {
            pair[member].node_mut().set_address(u8::try_from(1 - member).unwrap(), at_of(1 - member));
            // The second does not stand for election.
            if member == 0 {
                pair[0].store_answered(at(ms));
            }
            pair[member].handle_drained(at(ms));
            let mut buf = Vec::new();
            while let Some(path) = pair[member].poll_transmit(at(ms), &mut buf) {
                assert_eq!(path.remote, at_of(1 - member));
                pair[1 - member].handle_datagram(at(ms), Path::to(at_of(member)), &buf);
            }
        }
    }
}

//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server MUST NOT vote, ask or answer under another list than the newest that it has read from the store.
//= wire-spec.md#11-10-groups-of-servers
//= type=test
//# A server MUST NOT write the next list before its lease of the group was granted or renewed under the newest one.
#[test]
fn who_serves_goes_on_over_a_change_of_servers_that_a_majority_has_learned_of() {
    let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut pair = [member_of(2, 0), member_of(2, 1)];
    let first = names(&["a", "b"]);
    // The second has not asked the store yet, and so has no part in it.
    pair[1].learn_servers(at(0), Some((7, &names(&["a", "c"]))));
    pass(&mut pair, 0..2_000);
    assert_eq!((pair[0].role(at(2_000)), pair[1].role(at(2_000))), (Role::Standby, Role::Standby));
    pair[1] = member_of(2, 1);
    pass(&mut pair, 2_000..3_500);
    let Some(Duty::Open(tenure)) = pair[0].poll_duty() else { panic!("nothing to open") };
    assert!(pair[0].learn_servers(at(3_500), Some((1, &first))) && pair[1].learn_servers(at(3_500), Some((1, &first))));
    let core = Server::new(at(3_500), 0, StoreId([1; 16]), cistern_server::Config::default(), [8; 32]).unwrap();
    assert!(pair[0].serve(at(3_500), tenure, core));
    assert!(!pair[0].may_change_servers(at(3_500), 1), "nothing was renewed under it yet");
    pass(&mut pair, 3_500..3_700);
    assert!(pair[0].may_change_servers(at(3_700), 1) && !pair[0].may_change_servers(at(3_700), 2));
    // One more, of whom nothing is heard: the two are a majority of three.
    let three = names(&["a", "b", "c"]);
    assert!(pair[0].learn_servers(at(3_700), Some((2, &three))));
    pass(&mut pair, 3_700..3_800);
    assert!(!pair[0].may_change_servers(at(3_800), 2), "the other one has not learned of it");
    assert!(pair[1].learn_servers(at(3_800), Some((2, &three))) && !pair[1].learn_servers(at(3_800), Some((1, &first))));
    pass(&mut pair, 3_800..4_000);
    assert!(pair[0].may_change_servers(at(4_000), 2));
    // One less, who keeps silent from then on; a list from before is not believed any more.
    let one = names(&["a", "", "c"]);
    assert!(pair[0].learn_servers(at(4_000), Some((3, &one))) && !pair[1].learn_servers(at(4_000), Some((3, &one))));
    assert!(!pair[1].learn_servers(at(4_000), Some((2, &three))) && !pair[1].node().is_listed());
    pass(&mut pair, 4_000..5_500);
    assert_eq!(pair[0].role(at(5_500)), Role::Standby, "it is one of two, and the other does not answer");
    assert_eq!(pair[0].poll_duty(), Some(Duty::Close(tenure)));
    assert!(pair[0].learn_servers(at(5_500), Some((4, &names(&["a", "", ""])))));
    pass(&mut pair, 5_500..6_500);
    assert!(matches!(pair[0].poll_duty(), Some(Duty::Open(later)) if later > tenure));
}
