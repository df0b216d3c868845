//! The roster: when it is asked for, in which parts, and what is done with the servers in it.

use super::script::{Script, Sent, server};
use crate::Servers;
use crate::api::{Command, Event};
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{Bytes16, FormerFate, Message, RosterAsk, RosterPart, SessionFate, SessionId};

/// What of this asks for a roster, and in which datagram.
fn asked(sent: &[Sent]) -> Vec<(RosterAsk, u64)> {
    let of = |sent: &Sent| {
        let asks = |message| if let Message::Roster(ask) = message { Some((ask, sent.packet())) } else { None };
        sent.messages().into_iter().find_map(asks)
    };
    sent.iter().filter_map(of).collect()
}

/// The one part that is asked for now.
fn asks(script: &mut Script) -> (RosterAsk, u64) {
    let sent = script.turn();
    let [asked] = asked(&sent)[..] else { panic!("one part is asked for") };
    asked
}

fn part(ask: RosterAsk, echo: u64, version: u32, part: &'static [u8]) -> Message<'static> {
    let RosterAsk { serial, offset } = ask;
    RosterPart { serial, echo, version, length: 6, offset, part: Bytes16(part) }.into()
}

/// An agent that knows roster 3, and a server that has this one.
fn opened_by(version: u32) -> Script {
    let mut script = Script::new(Config::default());
    script.agent.know_roster(script.now(), 3);
    script.roster = version;
    script.start(Command::Ping);
    script.shake(&[]);
    script
}

fn rosters(script: &mut Script) -> Vec<Vec<u8>> {
    let of = |event| if let Event::Roster { signed } = event { Some(signed) } else { None };
    script.events().into_iter().filter_map(of).collect()
}

#[test]
fn newer_roster_is_asked_for_part_by_part_and_told_when_it_is_whole() {
    let mut script = opened_by(5);
    let (first, echo) = asks(&mut script);
    assert_eq!(first, RosterAsk { serial: 2, offset: 0 });
    script.say(&[part(first, echo, 5, b"abc")]);
    let (second, echo) = asks(&mut script);
    assert_eq!(second, RosterAsk { serial: 3, offset: 3 });
    // It is sent again until it is answered.
    script.sleep(1_000);
    assert_eq!(asks(&mut script).0, second);
    script.say(&[part(first, echo, 5, b"xyz")]);
    script.drops += 1;
    assert!(rosters(&mut script).is_empty(), "an answer that came before is none");
    script.say(&[part(second, echo, 5, b"def")]);
    assert_eq!(rosters(&mut script), [b"abcdef"]);
    assert!(asked(&script.turn()).is_empty());
}

#[test]
fn roster_that_was_read_in_part_is_read_anew_in_the_next_session() {
    let mut script = opened_by(5);
    let (first, echo) = asks(&mut script);
    script.say(&[part(first, echo, 5, b"abc")]);
    script.turn();
    script.hint();
    let former = script.session;
    script.offer_amid(SessionId(0xEF));
    script.confirmed(&[FormerFate { session: former, fate: SessionFate::Ended }]);
    let (first, echo) = asks(&mut script);
    assert_eq!(first.offset, 0);
    script.say(&[part(first, echo, 5, b"abc")]);
    let (second, echo) = asks(&mut script);
    assert_eq!(second.offset, 3);
    script.say(&[part(second, echo, 5, b"def")]);
    assert_eq!(rosters(&mut script), [b"abcdef"]);
}

#[test]
fn roster_that_is_known_is_not_asked_for_and_nobody_asks_who_keeps_none() {
    let mut script = opened_by(3);
    assert!(asked(&script.turn()).is_empty());
    let mut script = Script::new(Config::default());
    script.roster = 9;
    script.start(Command::Ping);
    script.shake(&[]);
    assert!(asked(&script.turn()).is_empty());
}

#[test]
fn session_asks_once_an_hour_whether_there_is_a_newer_one() {
    let mut script = opened_by(3);
    script.turn();
    script.sleep(3_600_000);
    let (ask, echo) = asks(&mut script);
    assert_eq!(ask.offset, u16::MAX, "the version alone");
    script.say(&[part(ask, echo, 4, b"")]);
    let (ask, echo) = asks(&mut script);
    assert_eq!(ask.offset, 0);
    script.say(&[part(ask, echo, 4, b"abcdef")]);
    assert_eq!(rosters(&mut script), [b"abcdef"]);
    // The same again is nothing new once it is taken.
    script.agent.set_servers(script.now(), Servers { version: 4, keys: Vec::new(), addresses: Vec::new() });
    script.sleep(3_600_000);
    let (ask, echo) = asks(&mut script);
    script.say(&[part(ask, echo, 4, b"")]);
    assert!(asked(&script.turn()).is_empty());
}

#[test]
fn servers_of_a_newer_roster_are_asked_by_the_next_handshake() {
    let mut script = opened_by(3);
    script.turn();
    let of = |version, nth| Servers { version, keys: Vec::new(), addresses: [server(nth)].to_vec() };
    script.agent.set_servers(script.now(), of(3, 7));
    script.agent.set_servers(script.now(), of(4, 2));
    script.hint();
    let asked: Vec<_> = script.run(8_000).into_iter().map(|(_, sent)| sent.to).collect();
    assert!(asked.contains(&server(1)) && asked.contains(&server(2)), "{asked:?}");
    assert!(!asked.contains(&server(7)), "what is not newer is not taken");
}
