//! How a datagram of a session is sealed and opened, with which of the session's keys, and when the next generation of them begins. Both
//! directions are always in the same generation or one apart.
//!
//! There are no timers: generations change at a send or a receipt. A side initiates only after it has opened something in its generation, so
//! the two are never two apart. Whoever initiated keeps the old key until it has heard in the new generation, and a while longer for late
//! packets: a peer that the change did not reach yet sends in the old one, and it may be the only one of the two that sends by itself.
//! Invariants: under one key a number seals one text; nothing but a counter changes by a record that does not open.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::{CHECKSUM_LEN, HEADER_LEN, TAG_LEN};
use cistern_wire::{Direction, Field as _, Form, RawHeader, Reader};

use crate::aead::{Aead, ChaCha};
use crate::record::{Chain, Key, OpenFailed};

/// After so many packet numbers a generation has sealed enough.
pub const PACKETS_MAX: u64 = 1 << 32;

/// After so long the agent begins another generation.
pub const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// An old key opens late packets for so long after the first packet of the new generation.
pub const OLD_KEPT: Duration = Duration::from_secs(10);

/// Generations are at least so far apart.
pub const CHANGES_APART: Duration = Duration::from_secs(60);

/// After so many failed openings under a key the next generation is due.
pub const FAILED_SOFT_MAX: u64 = 1 << 35;

/// After so many the session must end (RFC 9001, section 6.6).
pub const FAILED_MAX: u64 = 1 << 36;

/// Where the flags stand in a header, and the one that is the key phase.
const FLAGS_AT: usize = 3;
const KEY_PHASE: u8 = 2;

/// Bounds on the use of a generation; others than [`Limits::DEFAULT`] are for tests, which cannot send 2^32 packets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Packet numbers used in a generation.
    pub packets: u64,
    /// Failed openings until the next generation is due.
    pub failed_soft: u64,
    /// Failed openings until the session must end.
    pub failed: u64,
    /// After so long the agent begins the next generation.
    pub age: Duration,
    /// Generations are at least so far apart.
    pub apart: Duration,
    /// For how long an old key opens late packets.
    pub old_kept: Duration,
}

impl Limits {
    /// Those of the specification.
    pub const DEFAULT: Self = Self {
        packets: PACKETS_MAX,
        failed_soft: FAILED_SOFT_MAX,
        failed: FAILED_MAX,
        age: AGE_MAX,
        apart: CHANGES_APART,
        old_kept: OLD_KEPT,
    };
}

/// What a machine needs besides the keys of its sessions to seal and open.
pub struct Cipher {
    aead: Box<dyn Aead + Send>,
    limits: Limits,
}

impl Cipher {
    /// Another cipher, or other limits, than those of the specification: for simulations and tests.
    #[must_use]
    pub fn new(aead: impl Aead + Send + 'static, limits: Limits) -> Self {
        Self { aead: Box::new(aead), limits }
    }
}

impl Default for Cipher {
    fn default() -> Self {
        Self::new(ChaCha, Limits::DEFAULT)
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What protects the datagrams of a session.
#[derive(Debug, Default)]
pub enum Sealer {
    /// The checksum, which the decoder verifies and the packer appends.
    #[default]
    Plain,
    /// Keys.
    Sealed(Box<SessionKeys>),
}

impl Sealer {
    /// The form of the session's datagrams: for the packer, and to tell a datagram of the other form.
    #[inline]
    #[must_use]
    pub const fn form(&self) -> Form {
        match self {
            Self::Plain => Form::Plain,
            Self::Sealed(_) => Form::Record,
        }
    }

    /// Completes a datagram that the packer has finished.
    #[inline]
    pub fn seal(&mut self, cipher: &mut Cipher, now: Duration, datagram: &mut Vec<u8>) {
        if let Self::Sealed(keys) = self {
            keys.seal(cipher, now, datagram);
        }
    }

    /// Opens a datagram whose number the replay window takes; gives its messages, which are in it or in `text`.
    ///
    /// # Errors
    /// It is not authentic: nothing but a counter has changed.
    #[inline]
    pub fn open<'a>(
        &mut self,
        cipher: &mut Cipher,
        now: Duration,
        datagram: &'a [u8],
        text: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], OpenFailed> {
        match self {
            Self::Plain => datagram.get(HEADER_LEN..datagram.len().saturating_sub(CHECKSUM_LEN)).ok_or(OpenFailed),
            Self::Sealed(keys) => keys.open(cipher, now, datagram, text),
        }
    }

    /// Whether so many openings failed that the session must end.
    #[must_use]
    pub fn is_worn_out(&self, cipher: &Cipher) -> bool {
        //= docs/sealed.md#generations
        //# A side for which 2^36 records did not open under one key MUST end the session: the server by D, the agent by abandoning it.
        matches!(self, Self::Sealed(keys) if keys.failed >= cipher.limits.failed) && !bugs::is(Bug::S14)
    }
}

/// The receive key of the generation before.
struct Old {
    key: Key,
    /// Known once a packet of this generation was opened.
    until_us: Option<u64>,
}

/// What the next generation needs, derived when a packet of it may have come.
struct Next {
    key: Key,
    chain: Chain,
    /// Failed openings under `key`, which count against it when it is the present one.
    failed: u64,
}

/// Receive keys beside the present one, while a change of generations is under way.
#[derive(Default)]
struct Beside {
    old: Option<Old>,
    next: Option<Next>,
}

/// The keys of one session at one side. Wiped when dropped.
pub struct SessionKeys {
    chain: Chain,
    send: Key,
    receive: Key,
    /// When this generation began; all times are spans since the same moment, in microseconds.
    began_us: u64,
    /// The last number sealed in the session, and that before the first of this generation.
    last: u64,
    before: u64,
    /// Openings that failed under the present key.
    failed: u64,
    /// The lowest number opened in this generation; none: nothing was.
    lowest: Option<NonZeroU64>,
    beside: Option<Box<Beside>>,
    generation: u32,
    sender: Direction,
}

/// With the allocator's header 160 bytes of each session.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SessionKeys>() <= 152);

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl SessionKeys {
    /// The keys of a session whose handshake has just given `chain`, at the side that is `sender`. `now` is the time since any moment that stays
    /// the same for the session.
    #[must_use]
    pub fn new(chain: &Chain, sender: Direction, now: Duration) -> Self {
        Self {
            chain: chain.next(),
            send: chain.key(sender),
            receive: chain.key(if bugs::is(Bug::S8) { sender } else { peer_of(sender) }),
            began_us: micros(now),
            last: 0,
            before: 0,
            failed: 0,
            lowest: None,
            beside: None,
            generation: 0,
            sender,
        }
    }

    /// The generation that this side sends in, from 0.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// The key phase: whether the generation is odd.
    const fn phase(&self) -> bool {
        self.generation % 2 == 1
    }

    /// Seals a record: header and messages in clear, as the packer leaves them; sets the key phase and appends the tag. Begins the next
    /// generation before if one is due.
    ///
    /// # Panics
    /// If the packet number is not above all that were sealed in the session: two texts under one number would show both, and make forgeries
    /// possible.
    pub fn seal(&mut self, cipher: &mut Cipher, now: Duration, datagram: &mut Vec<u8>) {
        self.before_send(micros(now), &cipher.limits);
        let number = RawHeader::get(&mut Reader::new(datagram)).expect("a record begins with a header").packet;
        //= docs/sealed.md#records-form-1
        //# A sender MUST NOT seal two texts under one packet number in a session, also not for copies to former addresses; numbers go on
        //# through all generations.
        assert!(number > self.last, "packet number {number} is sealed after {}", self.last);
        self.last = number;
        let (header, text) = datagram.split_at_mut(HEADER_LEN);
        if self.phase() {
            header[FLAGS_AT] |= KEY_PHASE;
        }
        let tag = cipher.aead.seal(&self.send, number, header, text);
        datagram.extend_from_slice(&tag);
    }

    /// Opens a record by the key to which its phase and number point; gives its messages, which are in `text`. A failure counts and changes
    /// nothing else.
    ///
    /// While nothing was opened in this generation, the other phase is that before or that behind it: then there may be two trials.
    ///
    /// # Errors
    /// The record is not authentic; `text` is then unspecified.
    pub fn open<'a>(&mut self, cipher: &mut Cipher, now: Duration, record: &[u8], text: &'a mut Vec<u8>) -> Result<&'a [u8], OpenFailed> {
        let now = micros(now);
        self.forget_old(now);
        let (header, sealed) = record.split_at_checked(HEADER_LEN).ok_or(OpenFailed)?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_LEN>().ok_or(OpenFailed)?;
        let raw = RawHeader::get(&mut Reader::new(header)).map_err(|_| OpenFailed)?;
        let number = NonZeroU64::new(raw.packet).ok_or(OpenFailed)?;
        text.resize(sealed.len(), 0);
        let trial = Trial { aead: &mut *cipher.aead, number, header, sealed, tag, text, old_kept: cipher.limits.old_kept };
        //= docs/sealed.md#records-form-1
        //# A record that does not open MUST change nothing but counters: it is not answered, moves no address and is not logged.
        if let Err(failed) = self.open_by_phase(now, (raw.flags & KEY_PHASE != 0) == self.phase(), trial) {
            self.failed += 1;
            return Err(failed);
        }
        Ok(text)
    }

    fn open_by_phase(&mut self, now: u64, present: bool, mut trial: Trial<'_>) -> Result<(), OpenFailed> {
        if present {
            trial.open(&self.receive)?;
            self.heard(now, trial.number, trial.old_kept);
            return Ok(());
        }
        match (self.old(), self.lowest) {
            (Some(old), Some(lowest)) if trial.number < lowest => trial.open(&old.key),
            (Some(old), None) if !bugs::is(Bug::S16) && trial.open(&old.key).is_ok() => Ok(()),
            _ => self.open_next(now, trial),
        }
    }

    fn open_next(&mut self, now: u64, mut trial: Trial<'_>) -> Result<(), OpenFailed> {
        let mut next = self.take_next();
        if let Err(failed) = trial.open(&next.key) {
            next.failed += 1;
            if bugs::is(Bug::S15) {
                self.advance(next, now);
            } else {
                self.beside.get_or_insert_default().next = Some(next);
            }
            return Err(failed);
        }
        self.advance(next, now);
        self.heard(now, trial.number, trial.old_kept);
        Ok(())
    }

    /// Begins the next generation if one is due and may begin.
    fn before_send(&mut self, now: u64, limits: &Limits) {
        self.forget_old(now);
        let age = now.saturating_sub(self.began_us);
        let aged = self.sender == Direction::Agent && age >= micros(limits.age);
        let due = aged || self.last - self.before >= limits.packets || self.failed >= limits.failed_soft;
        let has_heard = self.lowest.is_some() && self.old().is_none() || bugs::is(Bug::S9);
        if due && has_heard && age >= micros(limits.apart) {
            let next = self.take_next();
            self.advance(next, now);
        }
    }

    /// A packet of this generation was opened.
    fn heard(&mut self, now: u64, number: NonZeroU64, old_kept: Duration) {
        self.lowest = Some(self.lowest.map_or(number, |lowest| lowest.min(number)));
        if let Some(old) = self.beside.as_mut().and_then(|beside| beside.old.as_mut()) {
            old.until_us.get_or_insert(now.saturating_add(micros(old_kept)));
        }
    }

    fn old(&self) -> Option<&Old> {
        self.beside.as_ref()?.old.as_ref()
    }

    /// What the next generation needs: what was tried already, or derived now.
    fn take_next(&mut self) -> Next {
        let tried = self.beside.as_mut().and_then(|beside| beside.next.take());
        tried.unwrap_or_else(|| Next { key: self.chain.key(peer_of(self.sender)), chain: self.chain.next(), failed: 0 })
    }

    fn advance(&mut self, next: Next, now: u64) {
        let key = std::mem::replace(&mut self.receive, next.key);
        let old = Some(Old { key, until_us: None }).filter(|_| !bugs::is(Bug::S13));
        self.beside.get_or_insert_default().old = old;
        self.send = self.chain.key(self.sender);
        self.chain = next.chain;
        self.generation += 1;
        self.began_us = now;
        self.before = self.last;
        self.failed = next.failed;
        self.lowest = None;
    }

    fn forget_old(&mut self, now: u64) {
        if let Some(beside) = &mut self.beside
            && beside.old.take_if(|old| old.until_us.is_some_and(|until| now >= until)).is_some()
            && beside.next.is_none()
        {
            self.beside = None;
        }
    }
}

/// A record as it is tried with one key or two.
struct Trial<'a> {
    aead: &'a mut dyn Aead,
    number: NonZeroU64,
    header: &'a [u8],
    sealed: &'a [u8],
    tag: &'a [u8; TAG_LEN],
    text: &'a mut [u8],
    old_kept: Duration,
}

impl Trial<'_> {
    fn open(&mut self, key: &Key) -> Result<(), OpenFailed> {
        self.aead.open(key, self.number.get(), self.header, self.sealed, self.tag, self.text)
    }
}

const fn peer_of(side: Direction) -> Direction {
    match side {
        Direction::Agent => Direction::Server,
        Direction::Server => Direction::Agent,
    }
}

/// Saturates after half a million years.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
