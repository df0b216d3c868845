//! Scenarios of attackers: strangers who guess, witnesses who have seen every datagram, insiders with a session of their own. Nobody but
//! themselves is to be harmed by what they send from addresses of their own.

use cistern_agent::api::Output;
use cistern_sim::script::{Agent, Setting, from, to};
use cistern_wire::{
    Ack, AgentId, Alive, Ask, Bytes8, Claim, Datagram, EndReason, EndSession, Fate, FormerClaim, Generation, GetAttr, Granted, Hello, Keep,
    KeepAlive, Kind, List, LockClass, LockId, Message, Mode, Nack, NackReason, ObjectId, Reclaim, ReclaimItem, Release, ReleaseItem, Reply,
    SessionId, Status, Want,
};

/// The first packet number of an attacker's own session.
const FIRST: u64 = 1 << 30;

const HELLO: Hello<'static> =
    Hello { window: 4, first_packet: FIRST, label: Bytes8(b"nobody"), ..Hello::new(AgentId([0xEE; 16]), 0xA77AC4) };

fn ask(nonce: u64) -> Ask {
    Ask { nonce, back: 0, limit: 1_232 }
}

fn keep_alive(serial: u64) -> Message<'static> {
    KeepAlive { serial, clock_us: 0 }.into()
}

/// The advisory lock of a file.
fn lock_of(agent: &Agent, path: &str) -> LockId {
    let Output::Attr(attr) = agent.stat(path).done() else { panic!("no attributes") };
    LockId { object: attr.object, class: LockClass::Advisory }
}

/// A witness has seen A's session and all its numbers. From its own address it ends the session, gives the locks back, uses up packet
/// numbers, and repeats what A has sent. A server that acts on it frees a lock that is in use.
#[test]
fn nothing_from_an_address_that_is_not_proven_acts() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a", "b"]);
    let lock = lock_of(&a, "/jobs/nightly");
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (witness, session, packet) = (s.attacker(0), a.session(), s.newest_packet(from(&a)));
    let items = [ReleaseItem { lock, generation: Generation(of_a.token()), keep: Keep::Nothing }];
    let forged: [Message<'_>; 4] = [
        EndSession { serial: 900, reason: EndReason::Close }.into(),
        EndSession { serial: 901, reason: EndReason::Surrender }.into(),
        Release { serial: 902, items: List::of(&items) }.into(),
        keep_alive(903),
    ];
    for (ahead, message) in (1..).zip(forged) {
        witness.tells_server(session, packet + ahead, &[message]);
    }
    witness.replays(Kind::Lock, from(&a));
    b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    assert!(of_a.is_certain() && of_a.told().is_empty() && a.session() == session);
    assert!(witness.heard_kinds().iter().all(|kind| *kind == Kind::PathChallenge), "{:?}", witness.heard_kinds());
    assert_eq!(s.server.standing_of(&a), Some("good"));
    s.finish_with_drops(["server: duplicate_packet", "server: rate_limited", "server: unproven_address"]);
}

/// A is cut off from the server; a witness goes on answering it, from another address: ALIVE for what A has sent, a grant, a NACK. An agent
/// that takes that goes on using a lock that was given to B, or gives up one that it has.
#[test]
fn agent_takes_nothing_from_a_foreign_address() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (witness, session) = (s.attacker(0), a.session());
    witness.replays(Kind::Ack, to(&a));
    let nack = Nack { nonce: 0, echo: s.newest_packet(from(&a)), reason: NackReason::Ended, fate: Fate::Unknown };
    witness.tells(&a, session, s.newest_packet(to(&a)) + 1, &[nack.into()]);
    assert!(of_a.is_certain() && a.session() == session);
    s.cut(&a);
    let for_b = b.lock("/jobs/nightly").exclusive();
    for n in 0..20 {
        s.pass(s.tau() / 20);
        let (echo, packet) = (s.newest_packet(from(&a)), s.newest_packet(to(&a)) + 1 + n);
        witness.tells(&a, session, packet, &[Alive { serial: n, echo }.into()]);
        let granted = Granted {
            lock: LockId { object: ObjectId(9), class: LockClass::Advisory },
            mode: Mode::Exclusive,
            generation: Generation(1),
            run: 1,
        };
        witness.tells(&a, session, packet + 100, &[Ack { nonce: n, echo, reply: Reply::Granted(granted) }.into()]);
    }
    assert!(a.has_lapsed() && !of_a.is_certain());
    for_b.granted().unlock();
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost());
    s.finish_with_drops(["a: foreign_address"]);
}

/// Somebody has a cookie, and shows it for agent after agent: one host would fill the table of sessions by one round trip.
#[test]
fn cookie_of_one_agent_opens_no_session_for_another() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a"]);
    a.ping().done();
    let insider = s.attacker(0);
    insider.opens(&HELLO).expect("an agent of its own");
    let cookie = insider.cookie().expect("a cookie");
    for other in 1..10 {
        let hello = Hello { agent: AgentId([0xE0 + other; 16]), cookie: Bytes8(&cookie), ..HELLO };
        assert_eq!(insider.greets(&hello), None);
    }
    assert_eq!(s.server.sessions().len(), 2);
    s.finish();
}

/// Somebody who knows A's identity and session says, as A and from his own address, that A has surrendered. That is a new session of A's
/// incarnation, so the old one ends, but like any that may be in use: A's lock is B's only after T.
#[test]
fn surrender_from_another_address_frees_nothing_before_t() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let former = [FormerClaim { session: a.session(), claim: Claim::Surrendered }];
    s.cut(&a);
    let opened = s.attacker(0).opens_claiming(&Hello { agent: a.id(), ..HELLO }, &former);
    assert!(opened.is_some() && of_a.is_certain());
    let (for_b, asked_at) = (b.lock("/jobs/nightly").exclusive(), s.now());
    s.pass(s.tau() - 20);
    for_b.still_waits();
    for_b.granted();
    assert!(s.now() >= asked_at + s.tau() - 20);
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost());
    s.finish();
}

/// A's identity with an incarnation that A would reach in a million years: believed, it would shut A out for ever.
#[test]
fn incarnation_far_above_is_refused_and_the_agent_goes_on() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (session, insider) = (a.session(), s.attacker(0));
    assert_eq!(insider.opens(&Hello { agent: a.id(), incarnation: 1 << 40, ..HELLO }), None);
    assert_eq!(insider.heard_kinds(), [Kind::Challenge, Kind::Refuse]);
    s.pass(s.wait());
    assert!(of_a.is_certain() && of_a.told().is_empty() && a.session() == session);
    s.finish();
}

/// After a restart an insider claims a lock by a generation that nobody was ever given: an earlier session of his own is all that he needs
/// to be let in. Believed, he would hold whatever he names.
#[test]
fn lock_that_was_never_granted_is_not_reclaimed() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly", "/free"]).agents(["a"]);
    let lock = lock_of(&a, "/free");
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let insider = s.attacker(0);
    let before = insider.opens(&HELLO).expect("a session of its own");
    insider.tells_server(before, FIRST + 1, &[keep_alive(2)]);
    s.server.restart();
    s.pass(20);
    let former = [FormerClaim { session: before, claim: Claim::Reclaiming }];
    let session = insider.opens_claiming(&Hello { handshake: 2, ..HELLO }, &former).expect("another one");
    let far = Generation(of_a.token() + (1 << 40));
    let items = [ReclaimItem { lock, mode: Mode::Exclusive, generation: far, first: far, run: 1, version: 0 }];
    insider.tells_server(session, FIRST + 1, &[Reclaim { ask: ask(1), from: before, items: List::of(&items) }.into()]);
    assert_eq!(insider.heard_kinds().last(), Some(&Kind::Ack), "it is told that it holds nothing");
    s.pass(2 * s.wait());
    a.lock("/free").at_once().exclusive().granted();
    assert!(of_a.is_certain());
    s.finish();
}

/// A packet number, and a floor, that no agent reaches: taken, all that the session says afterwards would be stale.
#[test]
fn jumps_are_dropped_and_the_session_goes_on() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a"]);
    a.ping().done();
    let insider = s.attacker(0);
    let session = insider.opens(&HELLO).expect("a session of its own");
    insider.tells_server(session, FIRST + 1, &[keep_alive(2)]);
    insider.tells_server(session, 1 << 52, &[keep_alive(3)]);
    insider.tells_server(session, FIRST + 2, &[GetAttr { ask: ask(1 << 41), object: ObjectId(1), want: Want::Nothing }.into()]);
    insider.tells_server(session, FIRST + 3, &[GetAttr { ask: ask(1), object: ObjectId(1), want: Want::Nothing }.into(), keep_alive(4)]);
    let answered = &insider.heard_kinds()[3..];
    assert_eq!(answered.iter().filter(|kind| **kind == Kind::Alive).count(), 2, "{answered:?}");
    assert_eq!(answered.iter().filter(|kind| **kind == Kind::Ack).count(), 1, "{answered:?}");
    s.finish_with_drops(["server: nonce_ahead", "server: packet_ahead"]);
}

/// Somebody without sight of anything guesses sessions, and shows cookies that he has made up.
#[test]
fn guesses_open_and_end_nothing() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let stranger = s.attacker(0);
    for guess in 1..20 {
        stranger.tells_server(SessionId(guess), guess, &[EndSession { serial: 1, reason: EndReason::Surrender }.into()]);
        assert_eq!(stranger.greets(&Hello { cookie: Bytes8(&[7; 24]), agent: a.id(), ..HELLO }), None);
    }
    assert!(of_a.is_certain() && s.server.sessions().len() == 1);
    let kinds = stranger.heard_kinds();
    assert!(kinds.iter().all(|kind| matches!(kind, Kind::Challenge | Kind::Hint)), "{kinds:?}");
    s.finish_with_drops(["server: amplification", "server: unknown_session"]);
}

/// Somebody has a cookie of his own for A's identity, and is offered a session. That says nothing of who he is before CONFIRM has come, and
/// whatever else he sends first in it is nobody's: A's session goes on, and nothing is answered.
#[test]
fn session_that_is_offered_ends_nothing_and_answers_nothing() {
    let (s, [a]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (session, insider) = (a.session(), s.attacker(0));
    insider.tells_server(SessionId(0), 1, &[Message::Hello(Hello { agent: a.id(), ..HELLO })]);
    let cookie = insider.cookie().expect("a cookie");
    let offered = insider.greets(&Hello { agent: a.id(), cookie: Bytes8(&cookie), ..HELLO }).expect("an offer");
    let request = GetAttr { ask: ask(1), object: ObjectId(1), want: Want::Nothing };
    for (number, message) in (FIRST..).zip([keep_alive(1), request.into(), EndSession { serial: 2, reason: EndReason::Surrender }.into()]) {
        insider.tells_server(offered, number, &[message]);
    }
    assert_eq!(insider.heard_kinds(), [Kind::Challenge, Kind::Welcome]);
    s.pass(s.wait());
    assert!(of_a.is_certain() && of_a.told().is_empty() && a.session() == session);
    assert_eq!(s.server.standing_of(&a), Some("good"));
    s.finish_with_drops(["server: not_open"]);
}

/// Somebody on the path copies A's HELLO under the packet number that its next transmission will have, and holds the WELCOME that answers
/// it back until A has sent that: were the lease counted from there, it would be good for longer than the server knows of. What A can count
/// from is the transmission that OPENED echoes, and the server has seen that.
#[test]
fn welcome_held_back_until_a_later_hello_is_sent_renews_nothing() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a", "b"]);
    s.drop_next(Kind::Welcome, to(&a));
    let asked = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Welcome, to(&a));
    s.hold(Kind::Welcome, to(&a));
    let sent = s.datagrams();
    let hellos = sent.iter().rev().filter(|sent| sent.up).filter_map(|sent| Datagram::seen(&sent.bytes).ok());
    let mut found = hellos.filter_map(|datagram| Some((datagram.header.packet, datagram.messages().next()?)));
    let (packet, hello) = found.find(|(_, message)| matches!(message, Message::Hello(_))).expect("HELLO was sent");
    s.forge(from(&a), SessionId(0), packet + 1, &hello);
    let before = s.sent(Kind::Hello, from(&a));
    s.until_so("HELLO is sent again", || s.sent(Kind::Hello, from(&a)) > before);
    let again = s.now();
    s.pass(5);
    s.drop_all(Kind::Confirm, from(&a));
    s.release_held();
    s.pass(20);
    assert_eq!(a.view().valid_until, None, "WELCOME has come, and nothing rests on it");
    b.lock("/jobs/nightly").at_once().exclusive().granted().unlock();
    s.heal();
    let of_a = asked.granted();
    assert!(of_a.is_certain() && s.now() > again);
    s.finish_with_drops(["a: stray_handshake"]);
}
