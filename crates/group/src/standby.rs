//! What a server says that does not serve: nothing but that another one may, and which.
//!
//! Invariant: it proves nothing, is smaller than what caused it, and is limited in rate. Implements `wire-spec.md` section 11.10.

use alloc::vec::Vec;
use cistern_flease::Member;
use cistern_link::{Instant, Rate};
use cistern_seal::FirstCheck;
use cistern_wire::limits::{DATAGRAM_MIN, VERSION};
use cistern_wire::sealed::{MAC_LEN, SealedDatagram, SealedHandshake, SealedHint, SealedRefusal, SealedRefuse, Zeros};
use cistern_wire::{Bytes8, Datagram, Direction, Envelope, Form, Header, Hint, Message, Packer, Refuse, RefuseReason, SessionId};
use core::time::Duration;

/// Answers a second.
const RATE: u32 = 10_000;
const BURST: u32 = 100;

/// The voice of a standby.
#[derive(Debug)]
pub(crate) struct Standby {
    /// In the sealed mode what proves that somebody knows the server's key.
    check: Option<FirstCheck>,
    rate: Rate,
    packet: u64,
    retry_ms: u32,
}

impl Standby {
    /// One whose servers tell agents to ask again after `retry`, when none of them serves.
    pub(crate) fn new(now: Instant, retry: Duration) -> Self {
        let retry_ms = u32::try_from(retry.as_millis()).unwrap_or(u32::MAX).max(1);
        Self { check: None, rate: Rate::new(now, Duration::from_secs(1) / RATE, BURST), packet: 0, retry_ms }
    }

    /// In the sealed mode, with the check of the server's key.
    pub(crate) fn seal(&mut self, check: FirstCheck) {
        self.check = Some(check);
    }

    /// The answer to an agent's datagram, if it gets one; `serving`: who serves, as far as is known.
    pub(crate) fn answer(&mut self, now: Instant, datagram: &[u8], serving: Option<Member>) -> Option<Vec<u8>> {
        let serving = serving.map_or(0, |place| place + 1);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# HINT, CHALLENGE and REFUSE MUST NOT be sent in answer to a datagram of a server.
        let answer = match self.check {
            None => self.plain(datagram, serving),
            Some(_) => self.sealed(datagram, serving),
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be smaller than the datagram that caused it.
        answer.filter(|answer| answer.len() < datagram.len() && self.rate.allow(now))
    }

    fn plain(&mut self, datagram: &[u8], serving: u8) -> Option<Vec<u8>> {
        let envelope = Envelope::at_server(datagram).ok()?;
        let Header { session, packet: echo, .. } = envelope.header;
        if session != SessionId(0) {
            // No number of the session is known: what answers it is told apart by its echo.
            return one(Header { from_server: true, session, packet: echo }, &Hint { echo, detail: Bytes8(b"") }.into());
        }
        let datagram: Datagram<'_> = envelope.decode(datagram).ok()?;
        let Some(Message::Hello(hello)) = datagram.messages().next() else { return None };
        let refuse = Refuse {
            handshake: hello.handshake,
            echo,
            reason: RefuseReason::Standby,
            version_min: VERSION,
            version_max: VERSION,
            retry_ms: self.retry_ms,
            serving,
        };
        self.packet += 1;
        one(Header { from_server: true, session, packet: self.packet }, &refuse.into())
    }

    fn sealed(&mut self, datagram: &[u8], serving: u8) -> Option<Vec<u8>> {
        let check = self.check.as_ref()?;
        let (session, body): (SessionId, SealedHandshake) = match Form::named(datagram)? {
            Form::Plain => return None,
            Form::Record => {
                let header = Envelope::of_record(datagram, Direction::Agent).ok()?.header;
                (header.session, SealedHint { echo: header.packet, mac1: [0; MAC_LEN] }.into())
            }
            Form::Handshake => {
                let asked = SealedDatagram::at_server(datagram).ok().filter(|_| check.holds(datagram))?;
                let handshake = match asked.body {
                    SealedHandshake::Ask(ask) => ask.handshake,
                    SealedHandshake::Open(open) => open.handshake,
                    SealedHandshake::Resume(resume) => resume.handshake,
                    _ => return None,
                };
                let refuse = SealedRefuse {
                    handshake,
                    echo: asked.header.packet,
                    reason: SealedRefusal::Standby,
                    serving,
                    reserved: Zeros,
                    retry_ms: self.retry_ms,
                    room: Zeros,
                    mac1: [0; MAC_LEN],
                };
                (SessionId(0), refuse.into())
            }
        };
        self.packet += 1;
        let mut bytes = Vec::new();
        SealedDatagram::new(session, self.packet, body).write(&mut bytes);
        check.complete(&mut bytes);
        Some(bytes)
    }
}

/// A plain datagram with one message.
fn one(header: Header, message: &Message<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MIN);
    let fits = packer.push(message);
    packer.finish();
    fits.then_some(bytes)
}
