//! I13: the server writes down no time of a session in good standing.
//!
//! Decides, at renewals: what the server keeps of the session, besides what its requests and notices leave behind, is what it was at an
//! earlier renewal, unless the agent came from another address in between. So no renewal is noted, in the session or with its addresses.
//! Runs with `last-heard` are exempt: that setting asks for a note.
//! Leaves to others: timers (`bounds`).

use super::case::{Case, Verdict, echo_of, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_wire::{Message, SessionId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Every so many renewals of a session are looked at.
const EVERY: u32 = 8;

/// What is known of one session.
#[derive(Debug)]
struct Known {
    from: SocketAddr,
    renewals: u32,
    /// What the server kept at the first renewal since its agent came from `from`.
    kept: Option<String>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Noted {
    sessions: BTreeMap<SessionId, Known>,
}

impl Family for Noted {
    fn name(&self) -> &'static str {
        "noted"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, _facts: &Facts) -> Verdict {
        if case.sight.server_config.last_heard {
            return Ok(());
        }
        match case.seen {
            // An attacker makes the server note the address that it has challenged.
            Seen::Started { node: Node::Server, .. } | Seen::Forged { by: Node::Server, .. } => self.sessions.clear(),
            Seen::Received { by: Node::Server, from, .. } => {
                if let Some(packet) = case.received_by_server() {
                    self.came_from(packet.session(), *from, &packet.messages);
                }
            }
            Seen::Sent { from: Node::Server, .. } => {
                if let Some(packet) = case.sent_by_server()
                    && packet.messages.iter().any(|message| echo_of(message).is_some())
                {
                    return self.renewed(case, packet.session());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Noted {
    fn came_from(&mut self, session: SessionId, from: SocketAddr, messages: &[Message<'_>]) {
        let known = self.sessions.entry(session).or_insert(Known { from, renewals: 0, kept: None });
        if known.from != from || messages.iter().any(|message| matches!(message, Message::PathResponse(_))) {
            *known = Known { from, renewals: 0, kept: None };
        }
    }

    fn renewed(&mut self, case: &Case<'_>, session: SessionId) -> Verdict {
        let Some(known) = self.sessions.get_mut(&session) else { return Ok(()) };
        known.renewals += 1;
        if known.kept.is_some() && !known.renewals.is_multiple_of(EVERY) {
            return Ok(());
        }
        let Some(kept) = case.sight.server.and_then(|server| server.kept(session)) else { return Ok(()) };
        match &known.kept {
            Some(before) if *before != kept => {
                violated("I13", "renewal-noted", format!("session {session} in good standing: the server kept {before}, and now {kept}"))
            }
            Some(_) => Ok(()),
            None => {
                known.kept = Some(kept);
                Ok(())
            }
        }
    }
}
