//! Operators' lines: who may give one, when it is executed, and in which pages it is answered.

use super::sealed::{Peer, Sealed};
use super::world::{ROOT, World};
use crate::principals::PrincipalId;
use crate::scheduler::prices;
use crate::server::admin::{AdminLine, RETIRE_LINE, ROTATE_LINE};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use cistern_wire::{Admin, Ask, Bytes16, GetAttr, Kind, Message, Reply, Status, Want};

const AGENTS: &[u8] = br#"{"op":"agents"}"#;

fn json_grant(name: &str) -> String {
    alloc::format!(r#"{{"name":"{name}","op":"grant","realm":1,"rights":"r"}}"#)
}

/// All before it are still awaited.
fn ask(nonce: u64) -> Ask {
    Ask { nonce, back: u16::try_from(nonce - 1).unwrap(), limit: u16::MAX }
}

fn admin(nonce: u64, line: &[u8]) -> Message<'_> {
    Admin { ask: ask(nonce), answer: 0, offset: 0, line: Bytes16(line) }.into()
}

impl Sealed {
    fn with_operator() -> (Self, Peer) {
        let (mut sealed, mut peer) = (Self::new(), Peer::new(12));
        sealed.add(&peer, "ops", true);
        sealed.open(&mut peer);
        (sealed, peer)
    }

    fn add(&mut self, peer: &Peer, name: &str, operator: bool) -> PrincipalId {
        let key = Some(*peer.key().public().as_bytes());
        let (who, _) = self.world.server.add_principal(self.world.now, name.as_bytes(), key, operator).unwrap();
        self.turn();
        who
    }

    /// What a peer is answered, message by message.
    fn hears(&mut self, peer: &mut Peer, message: Message<'_>) -> Vec<Vec<u8>> {
        let record = peer.record(&[message]);
        let answers = self.say(peer.path, &record);
        answers.iter().flat_map(|answer| peer.opened(answer)).collect()
    }

    /// The one reply that it gets.
    #[track_caller]
    fn reply(&mut self, peer: &mut Peer, message: Message<'_>) -> Told {
        let heard = self.hears(peer, message);
        assert_eq!(heard.len(), 1, "{heard:?}");
        told(&heard[0])
    }

    fn line(&mut self) -> Option<AdminLine> {
        self.world.server.poll_line(self.world.now)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Page { answer: u64, total: u32, offset: u32, text: String },
    Failed(Status),
    Other(Kind),
}

fn told(message: &[u8]) -> Told {
    let kind = Kind::of(message[0]).unwrap();
    match Message::decode(kind, &message[4..]).unwrap() {
        Message::Ack(ack) => match ack.reply {
            Reply::AdminAnswer(page) => {
                let text = String::from_utf8(page.text.0.to_vec()).unwrap();
                Told::Page { answer: page.answer, total: page.total, offset: page.offset, text }
            }
            Reply::Failed(failed) => Told::Failed(failed.status),
            other => panic!("{other:?}"),
        },
        _ => Told::Other(kind),
    }
}

/// The driver has executed the line.
fn answers(sealed: &mut Sealed, peer: &mut Peer, line: &AdminLine, text: &str) -> Vec<Told> {
    sealed.world.server.line_answered(sealed.world.now, line.id, text.to_string());
    sealed.say(peer.path, b"").iter().flat_map(|answer| peer.opened(answer)).map(|message| told(&message)).collect()
}

#[test]
fn an_operator_s_line_is_executed_once_and_its_copies_get_the_same_answer() {
    let (mut sealed, mut peer) = Sealed::with_operator();
    assert_eq!(sealed.hears(&mut peer, admin(1, AGENTS)), Vec::<Vec<u8>>::new(), "the driver has not answered");
    let line = sealed.line().unwrap();
    assert_eq!((&*line.line, &*line.name, line.session), (r#"{"op":"agents"}"#, "ops", peer.session));
    assert_eq!(sealed.reply(&mut peer, admin(1, AGENTS)), Told::Other(Kind::Pending));
    assert!(sealed.line().is_none(), "a copy is no second line");
    let page = Told::Page { answer: 1, total: 2, offset: 0, text: "ok".to_string() };
    assert_eq!(answers(&mut sealed, &mut peer, &line, "ok"), [page]);
    let page = Told::Page { answer: 1, total: 2, offset: 0, text: "ok".to_string() };
    assert_eq!(sealed.reply(&mut peer, admin(1, AGENTS)), page);
    assert!(sealed.line().is_none());
    sealed.world.server.line_answered(sealed.world.now, line.id, "again".to_string());
    assert!(sealed.say(peer.path, b"").is_empty(), "a line is answered once");
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# A server MUST execute the line of an ADMIN only for an operator, unless it is a grant or one of those about the sender's own key, and
//# only in a sealed session.
#[test]
fn nobody_else_s_line_is_given_out_and_none_that_came_in_clear() {
    let (mut sealed, mut operator) = Sealed::with_operator();
    let mut other = Peer::new(1);
    sealed.open(&mut other);
    assert_eq!(sealed.reply(&mut other, admin(1, AGENTS)), Told::Failed(Status::EPERM));
    let page = Admin { ask: ask(2), answer: 1, offset: 0, line: Bytes16(b"") };
    assert_eq!(sealed.reply(&mut other, page.into()), Told::Failed(Status::EPERM));
    assert!(sealed.line().is_none());
    // About its own key, word for word.
    assert_eq!(sealed.reply(&mut other, admin(3, br#"{"op": "rotate"}"#)), Told::Failed(Status::EPERM));
    for (nonce, own) in [(4, ROTATE_LINE), (5, RETIRE_LINE)] {
        assert!(sealed.hears(&mut other, admin(nonce, own.as_bytes())).is_empty());
        let line = sealed.line().unwrap();
        assert_eq!((&*line.line, &*line.name), (own, "b"));
        assert_eq!(answers(&mut sealed, &mut other, &line, "ok").len(), 1);
    }
    // A grant, which is judged when it is executed, and nothing that has one in a string.
    let grant = json_grant("x");
    assert!(sealed.hears(&mut other, admin(6, grant.as_bytes())).is_empty());
    let line = sealed.line().unwrap();
    assert!(!line.operator && *line.line == *grant);
    assert_eq!(answers(&mut sealed, &mut other, &line, "no").len(), 1);
    let hidden = br#"{"op":"revoke","name":"\"op\":\"grant\""}"#;
    assert_eq!(sealed.reply(&mut other, admin(7, hidden)), Told::Failed(Status::EPERM));
    // Rights are what they are when the line is given out, not when it came.
    assert!(sealed.hears(&mut operator, admin(1, AGENTS)).is_empty());
    let who = sealed.world.server.principal_named(b"ops").unwrap();
    sealed.world.server.revoke(sealed.world.now, who).unwrap();
    assert!(sealed.line().is_none(), "its key was withdrawn");
    let mut world = World::new();
    let mut peer = world.open(1);
    let message = Admin { ask: peer.ask_only(), answer: 0, offset: 0, line: Bytes16(AGENTS) };
    assert_eq!(world.refused(&mut peer, message), Status::EPERM, "in clear anybody may be anybody");
    let own = Admin { ask: peer.ask_only(), answer: 0, offset: 0, line: Bytes16(ROTATE_LINE.as_bytes()) };
    assert_eq!(world.refused(&mut peer, own), Status::EPERM);
    assert!(world.server.poll_line(world.now).is_none());
}

#[test]
fn an_operator_reads_no_object_by_that() {
    let (mut sealed, mut peer) = Sealed::with_operator();
    let look = GetAttr { ask: ask(1), object: ROOT, want: Want::Nothing };
    assert_eq!(sealed.reply(&mut peer, look.into()), Told::Failed(Status::ESTALE));
}

#[test]
fn a_long_answer_comes_in_pages_as_long_as_it_is_the_newest() {
    let (mut sealed, mut peer) = Sealed::with_operator();
    let text: String = (0..1_500).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    assert!(sealed.hears(&mut peer, admin(1, AGENTS)).is_empty());
    let line = sealed.line().unwrap();
    let mut got = String::new();
    let mut pages = answers(&mut sealed, &mut peer, &line, &text);
    let mut nonce = 1;
    while let Some(Told::Page { answer: 1, total: 1_500, offset, text }) = pages.pop() {
        assert_eq!(offset as usize, got.len());
        got += &text;
        nonce += 1;
        if got.len() == 1_500 {
            break;
        }
        let offset = u32::try_from(got.len()).unwrap();
        pages = [sealed.reply(&mut peer, Admin { ask: ask(nonce), answer: 1, offset, line: Bytes16(b"") }.into())].into();
    }
    assert!(got == text && nonce > 2, "{nonce} pages: {got}");
    // Beyond its end there is nothing; what another answer has replaced is gone.
    let beyond = |nonce| Admin { ask: ask(nonce), answer: 1, offset: 9_999, line: Bytes16(b"") };
    let empty = Told::Page { answer: 1, total: 1_500, offset: 9_999, text: String::new() };
    assert_eq!(sealed.reply(&mut peer, beyond(20).into()), empty);
    assert!(sealed.hears(&mut peer, admin(21, AGENTS)).is_empty());
    let line = sealed.line().unwrap();
    assert_eq!(answers(&mut sealed, &mut peer, &line, &text).len(), 1);
    assert_eq!(sealed.reply(&mut peer, beyond(22).into()), Told::Failed(Status::ESTALE));
}

#[test]
fn lines_that_nobody_executes_are_bounded_and_what_is_no_text_is_none() {
    let (mut sealed, mut peer) = Sealed::with_operator();
    let refused: Vec<_> = (1..=20).filter(|nonce| !sealed.hears(&mut peer, admin(*nonce, AGENTS)).is_empty()).collect();
    assert_eq!(refused, (5..=20).collect::<Vec<_>>(), "four of one operator wait");
    assert_eq!(core::iter::from_fn(|| sealed.line()).count(), 4);
    assert_eq!(sealed.reply(&mut peer, admin(21, AGENTS)), Told::Failed(Status::BUSY), "and are being executed");
    for line in [&b"\xff"[..], b"a\nb", b"\x1b[2J"] {
        let (mut sealed, mut peer) = Sealed::with_operator();
        assert_eq!(sealed.reply(&mut peer, admin(1, line)), Told::Failed(Status::EINVAL));
        assert!(sealed.line().is_none());
    }
}

#[test]
fn an_answer_waits_for_what_the_line_has_changed() {
    let (mut sealed, mut peer) = Sealed::with_operator();
    assert!(sealed.hears(&mut peer, admin(1, br#"{"op":"add","name":"x"}"#)).is_empty());
    let line = sealed.line().unwrap();
    let (now, server) = (sealed.world.now, &mut sealed.world.server);
    let (_, batch) = server.add_principal(now, b"x", None, false).unwrap();
    server.line_answered(now, line.id, "ok".to_string());
    let mut buf = Vec::new();
    assert!(cistern_link::Machine::poll_transmit(server, now, &mut buf).is_none() && server.durable_up_to() < batch);
    let heard = sealed.say(peer.path, b"");
    assert_eq!(told(&peer.opened(&heard[0])[0]), Told::Page { answer: 1, total: 2, offset: 0, text: "ok".to_string() });
}

#[test]
fn who_is_no_operator_has_one_line_at_a_time_and_all_of_them_leave_room_for_operators() {
    let (mut sealed, mut operator) = Sealed::with_operator();
    let rotate = |nonce| admin(nonce, ROTATE_LINE.as_bytes());
    let mut others: Vec<_> = (1..=9).map(Peer::new).collect();
    others.iter_mut().for_each(|other| sealed.open(other));
    for other in &mut others[..8] {
        assert!(sealed.hears(other, rotate(1)).is_empty());
        assert_eq!(sealed.reply(other, rotate(2)), Told::Failed(Status::BUSY), "one at a time");
    }
    assert_eq!(sealed.reply(&mut others[8], rotate(1)), Told::Failed(Status::BUSY), "they have half of the places");
    // A line that is answered makes room.
    let line = sealed.line().unwrap();
    let page = |answer| Told::Page { answer, total: 2, offset: 0, text: "ok".to_string() };
    assert_eq!(answers(&mut sealed, &mut others[0], &line, "ok"), [page(1)]);
    assert!(sealed.hears(&mut others[0], rotate(3)).is_empty());
    for nonce in 1..=4 {
        assert!(sealed.hears(&mut operator, admin(nonce, AGENTS)).is_empty());
    }
    assert_eq!(sealed.reply(&mut operator, admin(5, AGENTS)), Told::Failed(Status::BUSY), "others may be operators, too");
    assert!(sealed.world.server.figures(sealed.world.now).work.charged_ns >= 13 * u64::from(prices::LINE));
}
