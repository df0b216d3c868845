//! The key log: what opens the records of sessions, and explains their handshakes, for whoever is allowed to look into captures of them.
//!
//! Decides the lines, and how a record is opened whose generation nobody tells: by its key phase, from the generation of the records before
//! it. Everybody who reads a log reads the sessions: who writes it sees to the file (mode 0600, and only where it was asked for).
//! Leaves to others: what plain mode has in place of a handshake datagram (`plain`).

mod plain;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cistern_wire::limits::{DATAGRAM_MAX, HEADER_LEN, TAG_LEN};
use cistern_wire::sealed::{OpenStatus, WelcomePayload, handshake_of};
use cistern_wire::{Direction, Envelope, Field as _, Form, Packer, RawHeader, Reader, SessionId};

use crate::aead::{Aead as _, ChaCha};
use crate::handshake::HandshakeFailed;
use crate::record::Chain;
use crate::work::{Beginning, Handshaker};

use plain::Handshakes;

/// What each line begins with.
const LABELS: &str = "CISTERN1_";
/// Then, of a session's chain.
const CHAIN: &str = "CISTERN1_CHAIN";
/// Of what OPEN or RESUME carries encrypted.
const HELLO: &str = "CISTERN1_HELLO";
/// Of what WELCOME does.
const WELCOME: &str = "CISTERN1_WELCOME";
/// The flag of a header that is the key phase, and that which says who has sent.
const KEY_PHASE: u8 = 2;
const FROM_SERVER: u8 = 1;

/// The line of a session, without an end.
#[must_use]
pub fn line(session: SessionId, chain: &Chain) -> String {
    written(CHAIN, session.0, chain.expose())
}

fn written(label: &str, of: u64, bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{label} {of:016x} {digits}")
}

/// Where the lines of a log go, each without an end; from any thread.
#[derive(Clone)]
pub struct KeySink(Arc<dyn Fn(&str) + Send + Sync>);

impl KeySink {
    /// Gives each line to `take`.
    #[must_use]
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Tells what message 1 carries, by the prologue that it has.
    pub(crate) fn tell_hello(&self, handshake: u64, payload: &[u8]) {
        (self.0)(&written(HELLO, handshake, payload));
    }

    /// Tells what message 2 carries, and of the session, if it offers one.
    pub(crate) fn tell_welcome(&self, handshake: u64, payload: &[u8], chain: &Chain) {
        (self.0)(&written(WELCOME, handshake, payload));
        if let Ok(WelcomePayload { status: OpenStatus::Opened, session, .. }) = WelcomePayload::of(payload) {
            (self.0)(&line(session, chain));
        }
    }
}

impl fmt::Debug for KeySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySink(..)")
    }
}

/// A handshaker whose sessions are told to a key log.
pub struct Logged<H> {
    holder: H,
    sink: KeySink,
    /// That which was begun last.
    handshake: u64,
}

impl<H> Logged<H> {
    /// Tells the sessions of `holder` to `sink`.
    pub const fn new(holder: H, sink: KeySink) -> Self {
        Self { holder, sink, handshake: 0 }
    }
}

impl<H: Handshaker> Handshaker for Logged<H> {
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
        self.handshake = handshake_of(prologue);
        let message = self.holder.begin(beginning, prologue, payload)?;
        self.sink.tell_hello(self.handshake, payload);
        Ok(message)
    }

    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        let (payload, chain) = self.holder.finish(message)?;
        self.sink.tell_welcome(self.handshake, &payload, &chain);
        Ok((payload, chain))
    }
}

/// What a line says: its label, what it is of, and its bytes.
fn parsed(line: &str) -> Option<(&str, u64, Vec<u8>)> {
    let mut words = line.split_ascii_whitespace();
    let (label, of, digits) = (words.next()?, words.next()?, words.next()?);
    if digits.len() % 2 != 0 || words.next().is_some() || !digits.is_ascii() {
        return None;
    }
    let of = u64::from_str_radix(of, 16).ok()?;
    let byte = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok();
    Some((label, of, digits.as_bytes().chunks_exact(2).map(byte).collect::<Option<_>>()?))
}

/// The chains of a session: that of the newest generation seen, and those before and behind it.
struct Chains {
    before: Option<Chain>,
    newest: Chain,
    generation: u32,
}

/// The sessions of a key log.
#[derive(Default)]
pub struct KeyLog {
    sessions: HashMap<SessionId, Chains>,
    handshakes: Handshakes,
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLog").field("sessions", &self.sessions.len()).finish()
    }
}

impl KeyLog {
    /// Takes a log in. Lines of other kinds, and empty ones, are passed over.
    ///
    /// # Errors
    /// The number, from 1, of the first line that begins as one of this kind and is none.
    pub fn read(&mut self, text: &str) -> Result<(), usize> {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with(LABELS)) {
            let (label, of, bytes) = parsed(line).ok_or(at + 1)?;
            match label {
                CHAIN => {
                    let chain = Chain::from_bytes(bytes.try_into().map_err(|_| at + 1)?);
                    self.sessions.insert(SessionId(of), Chains { before: None, newest: chain, generation: 0 });
                }
                HELLO => self.handshakes.hello(of, bytes).ok_or(at + 1)?,
                WELCOME => self.handshakes.welcome(of, &bytes).ok_or(at + 1)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// How many sessions it opens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether it opens none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// What plain mode would have in place of a sealed datagram; `None`: it is of a session or handshake that is not in the log, or does not
    /// open. Records come in about the order in which they were sent.
    pub fn open(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        match Form::named(datagram)? {
            Form::Plain => None,
            Form::Record => self.open_record(datagram),
            Form::Handshake => self.handshakes.plain(datagram),
        }
    }

    fn open_record(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let (header, sealed) = record.split_at_checked(HEADER_LEN)?;
        let raw = RawHeader::get(&mut Reader::new(header)).ok()?;
        let from = if raw.flags & FROM_SERVER == 0 { Direction::Agent } else { Direction::Server };
        let envelope = Envelope::of_record(record, from).ok()?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_LEN>()?;
        let chains = self.sessions.get_mut(&raw.session)?;
        let mut text = vec![0; sealed.len()];
        let mut opens = |chain: &Chain| ChaCha.open(&chain.key(from), raw.packet, header, sealed, tag, &mut text).is_ok();
        if (raw.flags & KEY_PHASE != 0) == (chains.generation % 2 == 1) {
            opens(&chains.newest).then_some(())?;
        } else if !chains.before.as_ref().is_some_and(&mut opens) {
            let next = chains.newest.next();
            opens(&next).then_some(())?;
            chains.before = Some(std::mem::replace(&mut chains.newest, next));
            chains.generation += 1;
        }
        let mut plain = Vec::new();
        let mut packer = Packer::new(&mut plain, envelope.header, DATAGRAM_MAX);
        packer.push_encoded(&text).then(|| packer.finish())?;
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{AGE_MAX, Cipher, Sealer, SessionKeys};
    use cistern_wire::{Alive, Datagram, Header, KeepAlive, Message};
    use std::time::Duration;

    const SESSION: SessionId = SessionId(0xABC);

    fn record(sealer: &mut Sealer, now: Duration, from_server: bool, packet: u64) -> Vec<u8> {
        let message: Message<'_> =
            if from_server { Alive { serial: packet, echo: 1 }.into() } else { KeepAlive { serial: packet, clock_us: 2 }.into() };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, Header { from_server, session: SESSION, packet }, 548, Form::Record);
        assert!(packer.push(&message));
        packer.finish();
        sealer.seal(&mut Cipher::default(), now, &mut bytes);
        bytes
    }

    fn keys(chain: &Chain, side: Direction) -> Sealer {
        Sealer::Sealed(Box::new(SessionKeys::new(chain, side, Duration::ZERO)))
    }

    #[test]
    fn a_log_opens_all_generations_of_a_session_in_both_directions() {
        let chain = Chain::from_bytes([5; 32]);
        let (mut agent, mut server) = (keys(&chain, Direction::Agent), keys(&chain, Direction::Server));
        let mut log = KeyLog::default();
        log.read(&format!("# made by a test\nCLIENT_RANDOM 1 2\n{}\n\n", line(SESSION, &chain))).unwrap();
        assert_eq!(log.len(), 1);
        let (mut text, mut late) = (Vec::new(), Vec::<Vec<u8>>::new());
        for packet in 1..=5_u64 {
            let now = AGE_MAX * u32::try_from(packet).unwrap();
            let asked = record(&mut agent, now, false, packet);
            server.open(&mut Cipher::default(), now, &asked, &mut text).unwrap();
            let answer = record(&mut server, now, true, packet);
            agent.open(&mut Cipher::default(), now, &answer, &mut text).unwrap();
            for sealed in [&asked, &answer] {
                let plain = log.open(sealed).unwrap_or_else(|| panic!("packet {packet} opens"));
                let datagram = Datagram::seen(&plain).unwrap();
                assert_eq!((datagram.header.packet, datagram.header.session), (packet, SESSION));
            }
            if let Some(late) = late.pop() {
                assert!(log.open(&late).is_some(), "one of the generation before");
            }
            late.push(asked);
        }
        let Sealer::Sealed(keys) = &agent else { panic!("sealed") };
        assert!(keys.generation() >= 3);
    }

    #[test]
    fn what_is_no_line_is_told_and_what_does_not_open_is_left() {
        let mut log = KeyLog::default();
        for bad in [
            "CISTERN1_CHAIN",
            "CISTERN1_CHAIN 1 22",
            &format!("CISTERN1_CHAIN x {}", "0".repeat(64)),
            &format!("{} 1", line(SESSION, &Chain::from_bytes([1; 32]))),
        ] {
            assert_eq!(log.read(&format!("\n{bad}\n")), Err(2), "{bad}");
        }
        assert!(log.is_empty());
        let (right, wrong) = (Chain::from_bytes([1; 32]), Chain::from_bytes([2; 32]));
        let sealed = record(&mut keys(&right, Direction::Agent), Duration::ZERO, false, 1);
        assert_eq!(log.open(&sealed), None, "of a session that is not in it");
        log.read(&line(SESSION, &wrong)).unwrap();
        assert_eq!(log.open(&sealed), None);
        log.read(&line(SESSION, &right)).unwrap();
        assert!(log.open(&sealed).is_some());
        for cut in 0..sealed.len() {
            assert_eq!(log.open(&sealed[..cut]), None);
        }
    }
}
