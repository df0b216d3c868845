//! I17, strangers: the server sends less to an address that has not proven itself than came from it, and what nobody can have meant
//! changes nothing.
//!
//! Decides: an address is proven when a HELLO with a cookie came from it and was answered WELCOME, or a PATH_RESPONSE to a challenge
//! that was sent there; until then every datagram to it keeps the sum below what came from it (section 11.6). A datagram that does not
//! decode, or that is a HINT, changes neither an agent's session nor its lease nor its locks (section 3.2). The packet numbers of a session
//! begin where nobody finds them by trying.
//! What attackers send (`crate::attack`) no other judge sees: for them it has not happened. Here is judged that it was refused: what is
//! not of the attacker's own session was dropped, and counted; a jump in its own was, too; nothing was granted or given back for it; no
//! cookie has opened a session for another agent than it was given to; no agent's incarnation has leapt.
//! Invariant: a start of the server forgets who was proven, as the server does.
//! Leaves to others: what an agent makes of forged datagrams that it believes (`agent_lease`), and whom it harms (`exclusion`).

use super::case::{Case, Verdict, violated};
use super::sessions::AgentView;
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_server::Server;
use cistern_wire::{AgentId, Hello, Message, Reply, SessionId, Welcome};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What was exchanged with an address.
#[derive(Clone, Debug, Default)]
struct Exchange {
    proven: bool,
    received: u64,
    sent: u64,
    challenges: BTreeSet<u64>,
    /// Of an attacker: the sessions that it was offered, with its highest packet number in each; for whom it has asked under which
    /// packet number and by which cookie; and for whom each cookie was made.
    sessions: BTreeMap<SessionId, u64>,
    /// Those of them in which it has sent CONFIRM first.
    confirmed: BTreeSet<SessionId>,
    hellos: BTreeMap<u64, ((AgentId, u64), Vec<u8>)>,
    cookies: BTreeMap<Vec<u8>, (AgentId, u64)>,
}

/// By how much the packet number of a session may jump.
const AHEAD_MAX: u64 = 1 << 20;

/// No nonce or floor of a run is larger, but an attacker's.
const FARTHEST: u64 = 1 << 32;

/// By how much the incarnation of an agent may grow from one session to the next, while that is not over.
const LEAP_MAX: u64 = 65_536;

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Where datagrams are sealed numbers are no secret.
    sealed: bool,
    addresses: BTreeMap<SocketAddr, Exchange>,
    /// What each agent's core said before the happening at hand.
    views: Vec<AgentView>,
}

impl Family for Strangers {
    fn name(&self) -> &'static str {
        "strangers"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let verdict = match case.seen {
            Seen::Started { node: Node::Server, .. } => {
                self.addresses.clear();
                Ok(())
            }
            Seen::Received { by: Node::Server, from, bytes } => {
                let exchange = self.addresses.entry(*from).or_default();
                exchange.received += bytes.len() as u64;
                for message in case.packet.iter().flat_map(|packet| &packet.messages) {
                    if let Message::PathResponse(response) = message {
                        exchange.proven |= exchange.challenges.contains(&response.token);
                    }
                }
                Ok(())
            }
            Seen::Sent { from: Node::Server, to, bytes } => self.sends(case, *to, bytes.len() as u64).and_then(|()| self.beginnings(case)),
            Seen::Sent { from: Node::Agent(_), .. } => self.beginnings(case),
            Seen::Received { by: Node::Agent(agent), .. } => self.unmeant(case, facts, *agent),
            Seen::Forged { by: Node::Server, from, bytes, counted } => self.forged(case, *from, bytes.len() as u64, *counted),
            Seen::Forged { by: Node::Agent(agent), counted: true, .. } => self.unmeant(case, facts, *agent),
            Seen::Forged { by, from, .. } => uncounted(case, *by, *from),
            Seen::Exposed { to, bytes } => self.exposed(case, *to, bytes.len() as u64),
            _ => Ok(()),
        };
        if matches!(
            case.seen,
            Seen::Settled | Seen::Forged { .. } | Seen::Received { .. } | Seen::Ended { .. } | Seen::Submitted { .. } | Seen::Told { .. }
        ) {
            self.views = facts.sessions.agents.iter().map(|agent| agent.view).collect();
        }
        verdict
    }
}

impl Strangers {
    pub(super) fn new(sealed: bool) -> Self {
        Self { sealed, ..Self::default() }
    }

    fn sends(&mut self, case: &Case<'_>, to: SocketAddr, len: u64) -> Verdict {
        let exchange = self.addresses.entry(to).or_default();
        exchange.sent += len;
        for message in case.packet.iter().flat_map(|packet| &packet.messages) {
            match message {
                Message::Welcome(_) => exchange.proven = true,
                Message::PathChallenge(challenge) => {
                    exchange.challenges.insert(challenge.token);
                }
                _ => {}
            }
        }
        if !exchange.proven && exchange.sent >= exchange.received {
            let kinds: Vec<&str> = case.packet.iter().flat_map(|packet| &packet.messages).map(|message| message.kind().name()).collect();
            let what = format!(
                "with {kinds:?} the server has sent {} bytes to {to}, which has not proven itself and has sent {}",
                exchange.sent, exchange.received
            );
            return violated("I17", "amplification", what);
        }
        Ok(())
    }

    /// An attacker's datagram has reached the server.
    fn forged(&mut self, case: &Case<'_>, from: SocketAddr, len: u64, counted: bool) -> Verdict {
        let exchange = self.addresses.entry(from).or_default();
        exchange.received += len;
        let Some(packet) = &case.packet else { return Ok(()) };
        let session = packet.session();
        if let Some(Message::Confirm(_)) = packet.messages.first() {
            exchange.confirmed.insert(session);
        }
        let hello = packet.messages.iter().find_map(hello_of);
        if let Some(hello) = hello {
            exchange.hellos.insert(packet.header.packet, ((hello.agent, hello.incarnation), hello.cookie.0.to_vec()));
        }
        let Some(server) = case.sight.server else { return Ok(()) };
        if hello.is_some() {
            return leaps(case, server);
        }
        let number = packet.header.packet;
        let highest = exchange.sessions.get(&session).copied();
        let ahead = highest.is_some_and(|highest| highest > 0 && number > highest + AHEAD_MAX);
        let jump = ahead
            || packet.messages.iter().any(|message| {
                let nonce = if let Message::Cancel(cancel) = message { Some(cancel.nonce) } else { None };
                message.ask().map(|ask| ask.floor()).or(nonce).is_some_and(|number| number > FARTHEST)
            });
        let own = highest.is_some();
        if let Some(highest) = exchange.sessions.get_mut(&session).filter(|_| !ahead) {
            *highest = number.max(*highest);
        }
        let good = own && jump && server.sessions(case.server_now()).iter().any(|row| row.session == session && row.standing == "good");
        if !counted && (!own || good) { uncounted(case, Node::Server, from) } else { Ok(()) }
    }

    /// The server answers an attacker.
    fn exposed(&mut self, case: &Case<'_>, to: SocketAddr, len: u64) -> Verdict {
        for message in case.packet.iter().flat_map(|packet| &packet.messages) {
            let exchange = self.addresses.entry(to).or_default();
            let given = match message {
                Message::Ack(ack) => match ack.reply {
                    Reply::Reclaimed(reclaimed) => reclaimed.items.iter().any(|item| item.status.is_ok()),
                    Reply::Granted(_) => true,
                    _ => false,
                },
                Message::Grant(_) => true,
                _ => false,
            };
            if given {
                return violated("I17", "given-to-an-attacker", format!("{message:?} goes to {to}, which was never granted a lock"));
            }
            let session = case.packet.as_ref().map_or(SessionId(0), super::case::Packet::session);
            if message.kind().renews() && exchange.sessions.contains_key(&session) && !exchange.confirmed.contains(&session) {
                let what = format!("{} goes to {to} in session {session}, which nobody has confirmed", message.kind().name());
                return violated("I17", "acted-before-confirm", what);
            }
            if let Message::Challenge(challenge) = message
                && let Some((asked, _)) = exchange.hellos.get(&challenge.echo)
            {
                exchange.cookies.insert(challenge.cookie.0.to_vec(), *asked);
            }
            if let Message::Welcome(welcome) = message {
                exchange.sessions.entry(welcome.session).or_default();
                let asked = exchange.hellos.get(&welcome.echo);
                let (asked, proven) = (asked.map(|asked| asked.0), asked.and_then(|asked| exchange.cookies.get(&asked.1)).copied());
                if asked != proven {
                    let what = format!("session {} is opened for {asked:?} by the cookie of {proven:?}", welcome.session);
                    return violated("I17", "cookie-of-another", what);
                }
            }
        }
        self.sends(case, to, len)
    }

    /// Garbage and hints change nothing of an agent.
    fn unmeant(&self, case: &Case<'_>, facts: &Facts, agent: usize) -> Verdict {
        let unmeant = match &case.packet {
            // Of a record that is for I22 to say.
            None if self.sealed => return Ok(()),
            None => "a datagram that does not decode",
            _ if matches!(case.seen, Seen::Forged { .. }) => "a datagram of a foreign address",
            Some(packet) if packet.messages.iter().all(|message| matches!(message, Message::Hint(_))) => "a HINT",
            Some(_) => return Ok(()),
        };
        let now = facts.sessions.agents[agent].view;
        match self.views.get(agent) {
            Some(before) if *before != now => {
                violated("I17", "unmeant-change", format!("{unmeant} has made agent {agent} from {before:?} to {now:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whoever tries the numbers from 1 on is not heard in any session: one of a million numbers by chance is beyond every campaign.
const TRIED: u64 = 1 << 20;

impl Strangers {
    /// A HELLO or a WELCOME names a first packet number that is not found by trying.
    fn beginnings(&self, case: &Case<'_>) -> Verdict {
        for message in case.packet.iter().flat_map(|packet| &packet.messages).filter(|_| !self.sealed) {
            let (Message::Hello(Hello { first_packet, .. }) | Message::Welcome(Welcome { first_packet, .. })) = message else { continue };
            if *first_packet <= TRIED {
                let what = format!("{} says that packet numbers begin with {first_packet}", message.kind().name());
                return violated("I17", "guessable-numbers", what);
            }
        }
        Ok(())
    }
}

/// What must be dropped was not.
fn uncounted(case: &Case<'_>, by: Node, from: SocketAddr) -> Verdict {
    let packet = case.packet.iter().map(|packet| format!("packet {} of session {}", packet.header.packet, packet.session()));
    let what: String = packet.collect();
    violated("I17", "forged-and-not-dropped", format!("the {by} has counted no drop for what {from} sent: {what}"))
}

/// No agent has two sessions whose incarnations are further apart than starts can be.
fn leaps(case: &Case<'_>, server: &Server) -> Verdict {
    let rows = server.sessions(case.server_now());
    let mut first: BTreeMap<AgentId, u64> = BTreeMap::new();
    for row in &rows {
        let one = *first.entry(row.agent).or_insert(row.incarnation);
        if one.abs_diff(row.incarnation) > LEAP_MAX {
            let what = format!("agent {} has sessions of the incarnations {one} and {}", row.agent, row.incarnation);
            return violated("I17", "incarnation-leap", what);
        }
    }
    Ok(())
}

fn hello_of<'a>(message: &Message<'a>) -> Option<Hello<'a>> {
    if let Message::Hello(hello) = message { Some(*hello) } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, address, confirm, datagram, fired, hello, opened, welcome};
    use super::*;
    use cistern_wire::{Bytes8, Challenge, Hint, PathChallenge, PathResponse, Receipt, ReceiptAnswer};

    fn challenge() -> Message<'static> {
        Challenge { handshake: 5, echo: 1, cookie: Bytes8(b"0123456789abcdef") }.into()
    }

    #[test]
    fn answer_in_a_session_that_an_attacker_has_not_confirmed_is_caught() {
        for confirms in [true, false] {
            let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
            let from = address(100);
            let receipt = Receipt { seq: 1, answer: ReceiptAnswer::Received }.into();
            let cookie = Challenge { handshake: 5, echo: 1, cookie: Bytes8(b"cookie") }.into();
            let exchange = [
                (datagram(false, 0, 1, &[hello(0, 5)]), datagram(true, 0, 1, &[cookie])),
                (datagram(false, 0, 2, &[hello(0, 5)]), datagram(true, 0, 2, &[welcome(5, 2)])),
                (datagram(false, 5, 1, &[if confirms { confirm() } else { receipt }]), datagram(true, 5, 1, &[opened(1)])),
            ];
            let verdicts: Vec<Verdict> = exchange
                .iter()
                .map(|(bytes, answer)| {
                    bench.show(&mut judge, &Seen::Forged { by: Node::Server, from, bytes, counted: true }).unwrap();
                    bench.show(&mut judge, &Seen::Exposed { to: from, bytes: answer })
                })
                .collect();
            let [Ok(()), Ok(()), last] = <[Verdict; 3]>::try_from(verdicts).unwrap() else { panic!("the handshake is clean") };
            if confirms {
                last.unwrap();
            } else {
                fired(last, "I17", "acted-before-confirm");
            }
        }
    }

    #[test]
    fn smaller_answer_to_a_stranger_is_clean_and_more_is_caught() {
        let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
        bench.server_gets(&mut judge, 0, 1, &[hello(0, 5)]).unwrap();
        bench.server_sends(&mut judge, 0, 1, &[challenge()]).unwrap();
        let mut more = (0..5).map(|n| bench.server_sends(&mut judge, 0, 2 + n, &[challenge()]));
        fired(more.find(Result::is_err).unwrap(), "I17", "amplification");
    }

    #[test]
    fn proven_address_gets_what_there_is_until_the_server_starts_anew() {
        let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
        bench.server_gets(&mut judge, 0, 1, &[hello(0, 5)]).unwrap();
        bench.server_sends(&mut judge, 0, 1, &[welcome(5, 1)]).unwrap();
        (2..9).for_each(|n| bench.server_sends(&mut judge, 0, n, &[welcome(5, 1)]).unwrap());
        bench.show(&mut judge, &Seen::Started { node: Node::Server, incarnation: 2 }).unwrap();
        fired(bench.server_sends(&mut judge, 0, 1, &[challenge()]), "I17", "amplification");
    }

    #[test]
    fn numbers_that_begin_with_1_are_caught_from_either_side() {
        let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
        let Message::Hello(sent) = hello(0, 5) else { unreachable!("it is a HELLO") };
        let Message::Welcome(answer) = welcome(5, 1) else { unreachable!("it is a WELCOME") };
        bench.agent_sends(&mut judge, 0, 0, 1, &[sent.into()]).unwrap();
        fired(bench.agent_sends(&mut judge, 0, 0, 2, &[Hello { first_packet: 1, ..sent }.into()]), "I17", "guessable-numbers");
        bench.server_gets(&mut judge, 0, 1, &[sent.into()]).unwrap();
        bench.server_sends(&mut judge, 0, 1, &[answer.into()]).unwrap();
        fired(bench.server_sends(&mut judge, 0, 2, &[Welcome { first_packet: 1, ..answer }.into()]), "I17", "guessable-numbers");
    }

    #[test]
    fn answered_challenge_proves_an_address() {
        let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
        bench.server_gets(&mut judge, 0, 1, &[hello(0, 5)]).unwrap();
        bench.server_sends(&mut judge, 5, 1, &[PathChallenge { token: 9 }.into()]).unwrap();
        bench.server_gets(&mut judge, 5, 2, &[PathResponse { token: 9 }.into()]).unwrap();
        (2..9).for_each(|n| bench.server_sends(&mut judge, 0, n, &[challenge()]).unwrap());
    }

    #[test]
    fn hint_or_garbage_that_changes_an_agent_is_caught() {
        let hint = datagram(true, 5, 1, &[Hint { echo: 1, detail: Bytes8(b"") }.into()]);
        for bytes in [&hint[..], b"garbage"] {
            let (mut bench, mut judge) = (Bench::new(1), Strangers::default());
            let seen = Seen::Received { by: Node::Agent(0), from: address(200), bytes };
            bench.show(&mut judge, &Seen::Settled).unwrap();
            bench.show(&mut judge, &seen).unwrap();
            bench.facts.sessions.agents[0].view.holders = 3;
            fired(bench.show(&mut judge, &seen), "I17", "unmeant-change");
        }
    }
}
