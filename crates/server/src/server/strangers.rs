//! Datagrams that name a session which is not in the table, or has ended.
//!
//! Decides what its sender hears: of an ended session that is remembered, NACK with the fate of each request, at its proven address;
//! otherwise a hint, smaller than what caused it and limited in rate, by hosts (section 11.6), which changes nothing and makes the agent
//! ask by a handshake. Place in the walk: after `receive`. Implements `wire-spec.md` sections 3.5 and 7.
//! Invariant: nothing here changes any state but counters and the packet number of an ended session; nothing here renews.
//! Leaves to others: sending.

use crate::server::Server;
use crate::server::warnings::Reason;
use crate::sessions::SessionKey;
use crate::sessions::standing::Cause;
use crate::stats::Dropped;
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::OVERHEAD;
use cistern_wire::sealed::SealedKind;
use cistern_wire::{AgentId, Bytes8, Datagram, Ended, Fate, Field as _, Form, Header, Hint, Kind, Message, Nack, NackReason, SessionId};
use log::{trace, warn};

/// Bytes of a datagram that carries one HINT: its echo, and an empty detail.
const HINT_LEN: usize = OVERHEAD + Hint::MIN_LEN;
/// The same in the sealed mode.
const SEALED_HINT_LEN: usize = SealedKind::Hint.datagram_len();

impl Server {
    /// A valid datagram for a session that is not in the table.
    pub(crate) fn stranger(&mut self, path: Path, header: Header, len: usize) {
        self.drop_datagram(path, Dropped::UnknownSession);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be smaller than the datagram that caused it.
        let answer = if self.form() == Form::Plain { HINT_LEN } else { SEALED_HINT_LEN };
        if len <= answer && !bugs::is(Bug::M53) {
            return self.stats.count_dropped(Dropped::Amplification);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be limited in rate.
        if !self.hints.allow(self.now, path.remote, &self.cookies) {
            return self.stats.count_dropped(Dropped::RateLimited);
        }
        if self.form() != Form::Plain {
            return self.sealed_hint(path, header.session, header.packet);
        }
        // No number of that session is known here: what answers it is told apart by its echo.
        //= wire-spec.md#3-2-packet-numbers
        //# A HINT MUST be alone in its datagram, whose packet number MUST neither be judged by the replay window nor move it.
        let hint = Message::Hint(Hint { echo: header.packet, detail: Bytes8(if bugs::is(Bug::M53) { &[0; 200] } else { b"" }) });
        self.send_loose(path, header.session, header.packet, &[hint]);
    }

    /// A datagram of a session that has ended.
    pub(crate) fn after_the_end(&mut self, key: SessionKey, cause: Cause, path: Path, datagram: &Datagram<'_>, len: usize) {
        let header = datagram.header;
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.path.remote == path.remote) else {
            // Nobody else is answered in its name.
            return self.stranger(path, header, len);
        };
        trace!("{}: packet {} of session {}, which has ended", self.who, header.packet, header.session);
        let (echo, reason) = (header.packet, NackReason::Ended);
        let given_up = matches!(cause, Cause::Closed | Cause::Surrendered);
        let clone_of = (cause == Cause::Superseded && !core::mem::replace(&mut session.reported, true)).then_some(session.agent);
        let mut control = false;
        let mut answers: Vec<Message<'static>> = Vec::new();
        for raw in datagram.raw() {
            self.stats.count_in(raw.kind);
            let Some(message) = raw.decode() else {
                continue;
            };
            match (message, message.ask()) {
                (_, Some(ask)) => {
                    answers.push(Message::Nack(Nack { nonce: ask.nonce, echo, reason, fate: session.fate_after_end(ask.nonce) }));
                }
                // Asked once more, because ENDED was lost.
                (Message::EndSession(end), None) if given_up => answers.push(Message::Ended(Ended { serial: end.serial, echo })),
                (_, None) => {
                    let answered = [Kind::Confirm, Kind::KeepAlive, Kind::Release, Kind::Cancel, Kind::EndSession];
                    control |= answered.contains(&raw.kind);
                }
            }
        }
        if control {
            answers.push(Message::Nack(Nack { nonce: 0, echo, reason, fate: Fate::Unknown }));
        }
        self.send_to_session_by(key, path, &answers);
        if let Some(agent) = clone_of {
            self.report_clone(agent, header.session, path);
        }
    }

    /// A session goes on sending although its agent opened another: two run under one identity, perhaps.
    pub(crate) fn report_clone(&mut self, agent: AgentId, session: SessionId, path: Path) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The server MUST report a superseded session that goes on sending as a possible clone.
        self.stats.clones += 1;
        if !self.warnings.admit(self.now, Reason::Cloned, agent) {
            return;
        }
        warn!(
            "{}: session {session} at {} goes on sending although its agent has opened another; if its state directory or its machine \
             was copied, give the copy an identity of its own",
            self.who, path.remote
        );
    }
}
