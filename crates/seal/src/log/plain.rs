//! Handshake datagrams as plain mode would have them, for whoever reads plain captures alone.
//!
//! Decides which message stands for which: HELLO for ASK, OPEN and RESUME, and those of the same names for CHALLENGE, WELCOME, REFUSE and
//! HINT. What is known of an agent is what its OPEN carries, its instance for its identity; a datagram for which there is no line in the
//! log, or no message in plain mode, stays as it is. Lengths and the end of a datagram are those of plain mode.

use std::collections::HashMap;

use cistern_wire::limits::DATAGRAM_MAX;
use cistern_wire::sealed::{OpenPayload, OpenStatus, SealedDatagram, SealedHandshake, SealedRefusal, WelcomePayload};
use cistern_wire::{Bytes8, Challenge, Hello, Hint, Message, Packer, Refuse, RefuseReason, Welcome};

/// The number of the first packet of either side of a sealed session.
const FIRST_PACKET: u64 = 1;

/// What handshakes carried encrypted, by their numbers.
#[derive(Default)]
pub(super) struct Handshakes {
    hellos: HashMap<u64, Vec<u8>>,
    welcomes: HashMap<u64, WelcomePayload>,
}

impl Handshakes {
    /// Takes in what message 1 carried; `None`: it is none.
    pub(super) fn hello(&mut self, handshake: u64, payload: Vec<u8>) -> Option<()> {
        OpenPayload::of(&payload).ok()?;
        self.hellos.insert(handshake, payload);
        Some(())
    }

    /// Takes in what WELCOME carried; `None`: it is none.
    pub(super) fn welcome(&mut self, handshake: u64, payload: &[u8]) -> Option<()> {
        self.welcomes.insert(handshake, WelcomePayload::of(payload).ok()?);
        Some(())
    }

    /// What plain mode would have in place of a datagram.
    pub(super) fn plain(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let sealed = SealedDatagram::at_server(datagram).or_else(|_| SealedDatagram::at_agent(datagram)).ok()?;
        let message = match &sealed.body {
            SealedHandshake::Ask(ask) => self.helloed(&sealed, ask.handshake, &[]),
            SealedHandshake::Open(open) => self.helloed(&sealed, open.handshake, &open.cookie),
            SealedHandshake::Resume(resume) => self.helloed(&sealed, resume.handshake, &resume.cookie),
            SealedHandshake::Challenge(m) => Some(Challenge { handshake: m.handshake, echo: m.echo, cookie: Bytes8(&m.cookie) }.into()),
            SealedHandshake::Welcome(m) => self.welcomed(m.handshake, m.echo),
            SealedHandshake::Refuse(m) => {
                let reason = match m.reason {
                    SealedRefusal::Version => RefuseReason::Version,
                    SealedRefusal::Busy => RefuseReason::Busy,
                    SealedRefusal::Stopping => RefuseReason::Stopping,
                    SealedRefusal::Standby => RefuseReason::Standby,
                    SealedRefusal::Resume | SealedRefusal::Invite => return None,
                };
                Some(Refuse { serving: m.serving, ..refused(m.handshake, m.echo, reason, sealed.versions, m.retry_ms) }.into())
            }
            SealedHandshake::Hint(m) => Some(Hint { echo: m.echo, detail: Bytes8(&[]) }.into()),
        }?;
        let mut plain = Vec::new();
        let mut packer = Packer::new(&mut plain, sealed.header, DATAGRAM_MAX);
        packer.push(&message).then(|| packer.finish())?;
        Some(plain)
    }

    fn helloed<'a>(&'a self, sealed: &SealedDatagram, handshake: u64, cookie: &'a [u8]) -> Option<Message<'a>> {
        let hello = OpenPayload::of(self.hellos.get(&handshake)?).ok()?;
        let OpenPayload { instance, incarnation, boot, store, epoch, server_incarnation, window, max_datagram, features, .. } = hello;
        let (version_min, version_max) = sealed.versions;
        let hello = Hello {
            handshake,
            version_min,
            version_max,
            window,
            max_datagram,
            features,
            agent: instance,
            incarnation,
            boot,
            store,
            epoch,
            server_incarnation,
            lease_us: hello.lease_us,
            first_packet: FIRST_PACKET,
            label: hello.label,
            cookie: Bytes8(cookie),
        };
        Some(hello.into())
    }

    fn welcomed(&self, handshake: u64, echo: u64) -> Option<Message<'_>> {
        let payload = *self.welcomes.get(&handshake)?;
        let WelcomePayload { version, session, handle, store, epoch, server_incarnation, features, lease_us, delta_ppm, .. } = payload;
        let WelcomePayload { epsilon_us, delivery_timeout_us, window, max_datagram, version_min, version_max, retry_ms, .. } = payload;
        let reason = match payload.status {
            OpenStatus::Opened => {
                let welcome = Welcome {
                    handshake,
                    echo,
                    version,
                    session,
                    handle,
                    store,
                    epoch,
                    server_incarnation,
                    features,
                    lease_us,
                    delta_ppm,
                    epsilon_us,
                    delivery_timeout_us,
                    window,
                    max_datagram,
                    first_packet: FIRST_PACKET,
                };
                return Some(welcome.into());
            }
            OpenStatus::Superseded => RefuseReason::Superseded,
            OpenStatus::Ahead => RefuseReason::Ahead,
            OpenStatus::Busy => RefuseReason::Busy,
            OpenStatus::Limit => RefuseReason::Crowded,
            // Plain mode knows no keys.
            OpenStatus::UnknownKey | OpenStatus::Revoked => return None,
        };
        Some(refused(handshake, echo, reason, (version_min, version_max), retry_ms).into())
    }
}

const fn refused(handshake: u64, echo: u64, reason: RefuseReason, (version_min, version_max): (u8, u8), retry_ms: u32) -> Refuse {
    Refuse { handshake, echo, reason, version_min, version_max, retry_ms, serving: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::KeyLog;
    use cistern_wire::sealed::{MAC_LEN, SealedAsk, SealedHint, SealedOpen, SealedRefuse, SealedWelcome, Zeros};
    use cistern_wire::{Datagram, Handle, Kind, SessionId, open_payload_sample, sealed_samples, welcome_payload_sample};

    const H: u64 = 0xABC;

    fn bytes(datagram: &SealedDatagram) -> Vec<u8> {
        let mut bytes = Vec::new();
        datagram.write(&mut bytes);
        bytes
    }

    fn log(status: OpenStatus) -> KeyLog {
        let hello: [u8; OpenPayload::OPEN_LEN] = open_payload_sample().padded();
        let welcome = WelcomePayload { status, ..welcome_payload_sample() }.padded();
        let mut log = KeyLog::default();
        let lines = [crate::log::written("CISTERN1_HELLO", H, &hello), crate::log::written("CISTERN1_WELCOME", H, &welcome)];
        log.read(&lines.join("\n")).unwrap();
        log
    }

    fn ask() -> SealedDatagram {
        SealedDatagram::new(SessionId(0), 1, SealedAsk { handshake: H, key_id: [1; 8], room: Zeros, mac1: [0; MAC_LEN] })
    }

    fn open() -> SealedDatagram {
        let (psk_id, agent_key) = ([0; 8], [0; 48]);
        let open = SealedOpen {
            handshake: H,
            key_id: [1; 8],
            cookie: [7; 24],
            psk_id,
            ephemeral: [2; 32],
            agent_key,
            payload: [0; 216],
            mac1: [0; 16],
        };
        SealedDatagram::new(SessionId(0), 2, open)
    }

    fn welcome() -> SealedDatagram {
        SealedDatagram::new(SessionId(0), 2, SealedWelcome { handshake: H, echo: 2, ephemeral: [3; 32], payload: [4; 184] })
    }

    fn with_plain(log: &mut KeyLog, sealed: &SealedDatagram, look: impl FnOnce(&Message<'_>)) {
        let plain = log.open(&bytes(sealed)).unwrap();
        let datagram = Datagram::seen(&plain).unwrap();
        assert_eq!(datagram.header, sealed.header);
        look(&datagram.messages().next().unwrap());
    }

    #[test]
    fn a_handshake_becomes_that_of_plain_mode_with_what_the_log_has_of_it() {
        let mut log = log(OpenStatus::Opened);
        let sample = open_payload_sample();
        for (sealed, cookie) in [(ask(), &[][..]), (open(), &[7; 24])] {
            with_plain(&mut log, &sealed, |message| {
                let Message::Hello(hello) = message else { panic!("{message:?}") };
                let told = (hello.handshake, hello.agent, hello.incarnation, hello.label, hello.cookie.0, hello.first_packet);
                assert_eq!(told, (H, sample.instance, sample.incarnation, sample.label, cookie, 1));
            });
        }
        with_plain(&mut log, &welcome(), |message| {
            let Message::Welcome(welcome) = message else { panic!("{message:?}") };
            let sample = welcome_payload_sample();
            let told = (welcome.handshake, welcome.echo, welcome.session, welcome.handle, welcome.lease_us);
            assert_eq!(told, (H, 2, sample.session, sample.handle, sample.lease_us));
            assert_ne!(welcome.handle, Handle(0));
        });
        let hint = SealedDatagram::new(SessionId(5), 1, SealedHint { echo: 19, mac1: [0; 16] });
        with_plain(&mut log, &hint, |message| assert_eq!(message.kind(), Kind::Hint));
    }

    #[test]
    fn refusals_are_told_as_far_as_plain_mode_has_them() {
        for (status, reason) in [
            (OpenStatus::Superseded, Some(RefuseReason::Superseded)),
            (OpenStatus::Busy, Some(RefuseReason::Busy)),
            (OpenStatus::Limit, Some(RefuseReason::Crowded)),
            (OpenStatus::Ahead, Some(RefuseReason::Ahead)),
            (OpenStatus::UnknownKey, None),
            (OpenStatus::Revoked, None),
        ] {
            let mut log = log(status);
            match reason {
                None => assert_eq!(log.open(&bytes(&welcome())), None),
                Some(expected) => with_plain(&mut log, &welcome(), |message| {
                    let Message::Refuse(refuse) = message else { panic!("{message:?}") };
                    assert_eq!(refuse.reason, expected);
                }),
            }
        }
        let refuse = |reason| {
            let (reserved, room) = (Zeros, Zeros);
            let refuse = SealedRefuse { handshake: H, echo: 2, reason, serving: 0, reserved, retry_ms: 9, room, mac1: [0; 16] };
            bytes(&SealedDatagram::new(SessionId(0), 1, refuse))
        };
        let mut log = KeyLog::default();
        assert!(log.open(&refuse(SealedRefusal::Stopping)).is_some() && log.open(&refuse(SealedRefusal::Resume)).is_none());
    }

    #[test]
    fn of_what_is_not_in_the_log_nothing_is_made_up() {
        let mut log = KeyLog::default();
        for sealed in [ask(), open(), welcome()] {
            assert_eq!(log.open(&bytes(&sealed)), None);
        }
        for bad in ["CISTERN1_HELLO abc 00", "CISTERN1_WELCOME abc", "CISTERN1_WELCOME abc 0", "CISTERN1_HELLO x 00"] {
            assert_eq!(log.read(bad), Err(1), "{bad}");
        }
        log.read("CISTERN1_LATER 1 00").unwrap();
        // Cut and broken ones are no handshakes.
        for sealed in sealed_samples() {
            let whole = bytes(&sealed);
            for cut in 0..whole.len() {
                assert_eq!(log.open(&whole[..cut]), None);
            }
        }
    }
}
