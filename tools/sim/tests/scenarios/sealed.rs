//! Scenarios of the sealed mode: who is on the path, and has no key, changes and repeats what goes by; keys change and are withdrawn. What
//! does not open changes nothing, and what opens is heard once.

use cistern_sim::plan::SealedSettings;
use cistern_sim::script::{Agent, Script, Setting, from, to};
use cistern_wire::sealed::{MAC_LEN, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedRefusal, SealedRefuse, Zeros};
use cistern_wire::{Datagram, Kind, Message, SessionId, Status};

const MAC1: [u8; MAC_LEN] = [0; MAC_LEN];

/// Keys that are used for so many packets, and change twice a second at most.
fn packets(packets: u64) -> SealedSettings {
    SealedSettings { packets, apart_us: 500_000, old_kept_us: 100_000, ..SealedSettings::default() }
}

/// What somebody makes of the server's public key.
fn said(session: SessionId, body: impl Into<SealedHandshake>) -> Vec<u8> {
    let mut bytes = Vec::new();
    SealedDatagram::new(session, 1 << 40, body).write(&mut bytes);
    bytes
}

/// Handshake and number of the agent's newest datagram of one.
fn newest_of_handshake(s: &Script, agent: &Agent) -> (u64, u64) {
    s.until_sent(Kind::Hello, from(agent));
    let sent = s.datagrams();
    let hellos = sent.iter().rev().filter(|sent| sent.up).filter_map(|sent| Datagram::seen(&sent.bytes).ok());
    let mut found = hellos.filter_map(|datagram| Some((datagram.header.packet, datagram.messages().next()?)));
    found
        .find_map(|(packet, message)| if let Message::Hello(hello) = message { Some((hello.handshake, packet)) } else { None })
        .expect("one was sent")
}

/// The key phase of the newest record there.
fn phase(s: &Script, agent: &Agent) -> bool {
    s.newest_record(from(agent))[3] & 2 != 0
}

/// Somebody on the path counts the packet number of A's record up, and sends it in A's name and from elsewhere. A server that acts on it
/// executes what nobody asked for; one that notes its number drops A's own next record as a copy; one that believes where it comes from
/// answers there.
//= docs/sealed.md#records-form-1
//= type=test
//# A record that does not open MUST change nothing but counters: it is not answered, moves no address and is not logged.
#[test]
fn record_that_does_not_open_changes_nothing() {
    let (s, [a]) = Setting::default().sealed().files(["/f"]).agents(["a"]);
    a.put("/f", "one").done();
    let (session, attacker) = (a.session(), s.attacker(0));
    s.changes_newest(from(&a), |record| record[19] += 1);
    s.pass(5);
    attacker.changes_newest(from(&a), |record| record[19] += 2);
    a.put("/f", "two").done();
    a.put("/f", "three").done();
    s.pass(50);
    assert_eq!((a.session(), attacker.heard()), (session, Vec::new()));
    assert_eq!(a.text_of("/f"), "three");
    s.finish_with_drops(["server: not_authentic"]);
}

/// All that A has sent to open its session comes again. A server that takes a cookie twice can be made to compute by whoever has seen one.
#[test]
fn cookie_pays_for_one_computation() {
    let (s, [a]) = Setting::default().sealed().files(["/f"]).agents(["a"]);
    a.put("/f", "one").done();
    let session = a.session();
    s.replay_recorded(Kind::Hello, from(&a));
    s.pass(50);
    a.put("/f", "two").done();
    assert_eq!(a.session(), session);
    s.finish_with_drops(["a: stray_handshake"]);
}

/// The server is started again while A's OPEN is under way, and asks for another cookie. An agent that keeps its ephemeral key for it says
/// two things under one key and nonce.
#[test]
fn second_challenge_begins_another_handshake() {
    let (s, [a]) = Setting::default().sealed().machines(["a"]);
    s.server.start();
    s.pass(10);
    s.slow(from(&a), 100);
    a.start();
    let asked = a.ping();
    s.until_received(Kind::Challenge, to(&a));
    s.server.restart();
    asked.done();
    assert_eq!(s.server.sessions().len(), 1);
    s.finish_with_drops(["a: stray_handshake"]);
}

/// A's key is withdrawn while A is cut off with a lock: B gets it after T and not before, and A, whose record says that it may not, opens
/// nothing.
#[test]
fn revoked_key_loses_its_locks_after_t_and_opens_nothing() {
    let (s, [a, b]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    s.server.revoke(&a);
    let revoked_at = s.now();
    of_b.granted();
    assert!(s.now() - revoked_at >= s.tau());
    s.heal();
    s.pass(3 * s.wait());
    assert!(of_a.is_lost());
    a.ping().fails();
    assert_ne!(s.server.standing_of(&a), Some("good"));
    s.finish();
}

/// Somebody who knows the server's key, and sees A's datagrams, says that the server knows of no session, wants another cookie, speaks
/// another version, is stopping. A asks the server, later than it might, and keeps what it holds.
//= docs/sealed.md#the-handshake
//= type=test
//# They MUST change only when an agent acts, never what it believes of a lease, a session or a version.
#[test]
fn what_anybody_can_say_ends_nothing() {
    let (s, [a, b]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    s.forges_handshake(to(&a), said(session, SealedHint { echo: s.newest_packet(from(&a)), mac1: MAC1 }));
    let (handshake, echo) = newest_of_handshake(&s, &a);
    s.forges_handshake(to(&a), said(SessionId(0), SealedChallenge { handshake, echo, cookie: [7; 24], mac1: MAC1 }));
    s.pass(s.wait());
    for reason in [SealedRefusal::Version, SealedRefusal::Stopping] {
        s.forges_handshake(to(&a), said(session, SealedHint { echo: s.newest_packet(from(&a)), mac1: MAC1 }));
        let (handshake, echo) = newest_of_handshake(&s, &a);
        let refuse = SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms: u32::MAX, room: Zeros, mac1: MAC1 };
        s.forges_handshake(to(&a), said(SessionId(0), refuse));
        s.pass(s.wait());
        b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    }
    assert!(of_a.is_certain() && of_a.told().is_empty() && a.session() == session);
    assert_eq!(s.server.standing_of(&a), Some("good"));
    s.finish_with_drops(["a: stray_handshake"]);
}

/// Somebody on the path takes A's OPEN away, sends it under the packet number that A's next transmission will have, and holds the WELCOME
/// that answers it back until A has sent that. In the handshake the number is nobody's proof: were the lease counted from there, it would be
/// good for longer than the server knows of.
#[test]
fn welcome_held_back_until_a_later_open_is_sent_renews_nothing() {
    let (s, [a, b]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a", "b"]);
    let asked = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Challenge, to(&a));
    s.drop_next(Kind::Hello, from(&a));
    s.until_sent(Kind::Hello, from(&a));
    s.hold(Kind::Welcome, to(&a));
    s.changes_handshake(from(&a), |open| open[19] += 1);
    let before = s.sent(Kind::Hello, from(&a));
    s.until_so("OPEN is sent again", || s.sent(Kind::Hello, from(&a)) > before);
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

/// All that went by comes again, in either direction and from elsewhere: before and after WELCOME, OPENED, a lock, a restart, the end.
//= docs/sealed.md#the-handshake
//= type=test
//# OPEN and WELCOME MUST NOT end, supersede or renew anything, nor leave anything durable: a recording of OPEN can be sent by anybody.
#[test]
fn whatever_comes_again_changes_nothing() {
    let (s, [a]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a"]);
    let everything = || {
        s.replay_everything(from(&a));
        s.replay_everything(to(&a));
        [Kind::Hello, Kind::Confirm]
            .into_iter()
            .filter(|kind| s.sent(*kind, from(&a)) > 0)
            .for_each(|kind| s.attacker(0).replays(kind, from(&a)));
        s.pass(1);
    };
    let asked = a.lock("/jobs/nightly").exclusive();
    while s.sent(Kind::Opened, to(&a)) == 0 {
        everything();
    }
    let of_a = asked.granted();
    let session = a.session();
    everything();
    assert!(of_a.is_certain() && a.session() == session && s.server.sessions().len() == 1);
    s.server.restart();
    everything();
    s.pass(s.wait());
    everything();
    assert!(of_a.is_certain() && of_a.told().is_empty() && s.server.sessions().len() == 1);
    of_a.unlock();
    a.close();
    everything();
    s.pass(s.wait());
    everything();
    assert!(s.server.sessions().iter().all(|row| row.standing != "good"));
    s.finish_with_drops(["a: duplicate_packet", "a: stray_handshake"]);
}

/// Both sides change keys with every packet, as often as they may, while one packet in three is lost: nobody notices.
#[test]
fn keys_of_both_sides_change_while_packets_are_lost() {
    let (s, [a, b]) = Setting::default().sealed_by(packets(1)).files(["/f", "/jobs/nightly"]).agents(["a", "b"]);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.pass(20);
    let session = a.session();
    let mut phases = Vec::new();
    for n in 0..30 {
        if n % 3 == 0 {
            s.drop_next(Kind::Write, from(&a));
        }
        if n % 5 == 0 {
            s.drop_next(Kind::Ack, to(&a));
        }
        a.put("/f", &format!("{n}")).done();
        phases.push(phase(&s, &a));
        s.pass(200);
    }
    of_b.unlock();
    assert!(of_a.granted().is_certain());
    phases.dedup();
    assert!(phases.len() > 8, "{phases:?}");
    assert_eq!((a.session(), a.text_of("/f")), (session, "29".to_owned()));
    s.finish();
}

/// A changes keys with a datagram that is lost, and is silent; the server, which knows nothing of it, sends a grant by the keys of before.
#[test]
fn late_record_opens_after_a_change_of_keys() {
    let settings = SealedSettings { age_us: 500_000, apart_us: 400_000, old_kept_us: 100_000, ..SealedSettings::default() };
    let (s, [a, b]) = Setting::default().sealed_by(settings).files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.pass(600);
    let before = phase(&s, &a);
    s.cut_one_way(from(&a));
    let asked = a.ping();
    s.pass(2);
    s.heal();
    assert_ne!(phase(&s, &a), before);
    of_b.unlock();
    assert!(of_a.granted().is_certain());
    asked.done();
    s.finish();
}

/// Somebody on the path turns the key phase of records over and over. A side that believes a phase before its record has opened is soon two
/// generations ahead of the other.
#[test]
fn forged_key_phases_change_no_generation() {
    let (s, [a]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (session, before) = (a.session(), phase(&s, &a));
    for n in 1..4 {
        s.changes_newest(from(&a), |record| {
            record[19] += n;
            record[3] ^= if n % 2 == 1 { 2 } else { 0 };
        });
        s.changes_newest(to(&a), |record| {
            record[19] += n;
            record[3] ^= if n % 2 == 1 { 2 } else { 0 };
        });
    }
    a.ping().done();
    assert_eq!((a.session(), phase(&s, &a)), (session, before));
    assert!(of_a.is_certain());
    s.finish_with_drops(["a: not_authentic", "server: not_authentic"]);
}

/// Nothing passes for as long as keys last twice. A side that goes on to the next ones without having heard in the present ones is two
/// ahead, where the other does not follow.
#[test]
fn side_that_hears_nothing_stays_in_its_generation() {
    let settings = SealedSettings { age_us: 300_000, apart_us: 100_000, old_kept_us: 20_000, ..SealedSettings::default() };
    let (s, [a]) = Setting::default().sealed_by(settings).files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    a.ping().done();
    s.cut(&a);
    let asked = a.ping();
    s.pass(1_000);
    s.heal();
    asked.done();
    assert!(of_a.is_certain() && a.session() == session);
    s.finish();
}

/// Somebody on the path sends forgeries until one of them might open: the server ends the session as any that failed, by D and T, the
/// agent abandons it. What was held goes to nobody before T.
//= docs/sealed.md#generations
//= type=test
//# A side for which 2^36 records did not open under one key MUST end the session: the server by D, the agent by abandoning it.
#[test]
fn forgeries_without_number_end_the_session() {
    let settings = SealedSettings { failed: 10, ..SealedSettings::default() };
    let (s, [a, b]) = Setting::default().sealed_by(settings.clone()).files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/nightly").exclusive();
    let (session, began) = (a.session(), s.now());
    for n in 0..10 {
        s.changes_newest(from(&a), |record| record[19] += 1 + n);
    }
    of_b.granted().unlock();
    assert!(s.now() - began >= s.tau() && of_a.is_lost());
    a.ping().done();
    assert_ne!(a.session(), session);
    // The other way.
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let (session, began) = (a.session(), s.now());
    let of_b = b.lock("/jobs/nightly").exclusive();
    for n in 0..10 {
        s.changes_newest(to(&a), |record| record[19] += 1 + n);
    }
    of_b.granted();
    assert!(s.now() - began >= s.tau() && of_a.is_lost());
    a.ping().done();
    assert_ne!(a.session(), session);
    s.finish_with_drops(["a: not_authentic", "a: unknown_session", "server: not_authentic"]);
}
