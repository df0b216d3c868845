//! Handshakes as work: what a protocol machine gives to whoever has the private keys, and what it gets back.
//!
//! A server's machine gives [`SealWork`] as an effect and takes [`SealDone`] as an event, in any order of jobs: Diffie-Hellman takes a tenth of a
//! millisecond, and is no work for its thread. Between reading and writing the machine decides, with the sender's key and payload at hand,
//! whether there will be a session. An agent's machine does one handshake at a time, at once, by a [`Handshaker`].
//! Invariant: private keys and unfinished handshakes are here, decisions are not.

use std::fmt;

use cistern_wire::sealed::{PROLOGUE_LEN, WelcomePayload, handshake_of};
use hashbrown::HashMap;

use crate::handshake::{Entropy, HandshakeFailed, Initiator, Psk, Responder};
use crate::key::{KeyId, PublicKey, SecretKey};
use crate::log::KeySink;
use crate::record::Chain;

/// Names a handshake of a server from its first work to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Which handshake message 1 belongs to.
pub enum Opening {
    /// OPEN, to the server's key of this id.
    Open(KeyId),
    /// RESUME, by this secret.
    Resume(Psk),
}

/// What a server's machine wants done.
pub enum SealWork {
    /// Read message 1. Answered by [`SealDone::Read`] or [`SealDone::Failed`].
    Read {
        /// The job, which has not been named before.
        job: JobId,
        /// What it opens.
        opening: Opening,
        /// The fields in clear before the message ([`cistern_wire::sealed::prologue`]).
        prologue: [u8; PROLOGUE_LEN],
        /// Message 1.
        message: Vec<u8>,
    },
    /// Write message 2. Answered by [`SealDone::Written`] or [`SealDone::Failed`].
    Write {
        /// A job that was read.
        job: JobId,
        /// The secret that OPEN names; not looked at for RESUME.
        psk: Psk,
        /// What is encrypted.
        payload: [u8; WelcomePayload::WELCOME_LEN],
    },
    /// Forget a job that was read: there will be no message 2. Not answered.
    Drop {
        /// The job.
        job: JobId,
    },
}

impl SealWork {
    /// The job that it is of.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::Read { job, .. } | Self::Write { job, .. } | Self::Drop { job } => *job,
        }
    }

    /// Whether it is answered.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self, Self::Drop { .. })
    }
}

/// What was done.
pub enum SealDone {
    /// Message 1 is authentic; whether its sender is there now is not known.
    Read {
        /// The job.
        job: JobId,
        /// The sender's key; of RESUME none: the session's record has it.
        peer: Option<PublicKey>,
        /// What was encrypted.
        payload: Vec<u8>,
    },
    /// Message 2 is ready, and the job is over.
    Written {
        /// The job.
        job: JobId,
        /// Message 2.
        message: Vec<u8>,
        /// The chain of the session's keys.
        chain: Chain,
    },
    /// The job is over, and there is no session: a message is not authentic, or a key not usable.
    Failed {
        /// The job.
        job: JobId,
    },
}

/// Does the work: has the private keys of a server, and the handshakes that were read and not answered. A job is done by one worker.
pub struct Worker {
    keys: Vec<(KeyId, SecretKey)>,
    log: Option<KeySink>,
    /// With the number of each handshake.
    begun: HashMap<JobId, (u64, Responder)>,
}

impl Worker {
    /// With all keys by which the server may be addressed.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = SecretKey>) -> Self {
        Self { keys: keys.into_iter().map(|key| (KeyId::of(&key.public()), key)).collect(), log: None, begun: HashMap::new() }
    }

    /// Takes other keys from now on; what was begun goes on.
    pub fn set_keys(&mut self, keys: impl IntoIterator<Item = SecretKey>) {
        self.keys = keys.into_iter().map(|key| (KeyId::of(&key.public()), key)).collect();
    }

    /// The same, which tells its sessions to a key log.
    #[must_use]
    pub fn logged(self, log: Option<KeySink>) -> Self {
        Self { log, ..self }
    }

    /// Does one piece of work. `ephemeral` is 32 bytes of the system's random source, drawn for this call.
    pub fn work(&mut self, work: SealWork, ephemeral: Entropy) -> Option<SealDone> {
        Some(match work {
            SealWork::Read { job, opening, prologue, message } => match self.read(&opening, ephemeral, &prologue, &message) {
                Some((responder, payload)) => {
                    let (peer, handshake) = (responder.peer(), handshake_of(&prologue));
                    self.log.iter().for_each(|log| log.tell_hello(handshake, &payload));
                    self.begun.insert(job, (handshake, responder));
                    SealDone::Read { job, peer, payload }
                }
                None => SealDone::Failed { job },
            },
            SealWork::Write { job, psk, payload } => {
                let answered = self.begun.remove(&job).and_then(|(handshake, read)| Some((handshake, read.answer(&psk, &payload).ok()?)));
                match answered {
                    Some((handshake, (message, chain))) => {
                        self.log.iter().for_each(|log| log.tell_welcome(handshake, &payload, &chain));
                        SealDone::Written { job, message, chain }
                    }
                    None => SealDone::Failed { job },
                }
            }
            SealWork::Drop { job } => {
                self.begun.remove(&job);
                return None;
            }
        })
    }

    /// Handshakes that were read and neither answered nor dropped.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.begun.len()
    }

    fn read(&self, opening: &Opening, ephemeral: Entropy, prologue: &[u8], message: &[u8]) -> Option<(Responder, Vec<u8>)> {
        match opening {
            Opening::Open(id) => {
                let (_, key) = self.keys.iter().find(|(of, _)| of == id)?;
                Responder::open(key, ephemeral, prologue, message).ok()
            }
            Opening::Resume(secret) => Responder::resume(secret, ephemeral, prologue, message).ok(),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

/// What an agent's machine begins a handshake with.
pub enum Beginning<'a> {
    /// Under the agent's own key, with a server's, and a secret that both may have.
    Open(&'a PublicKey, &'a Psk),
    /// By the secret of a former session.
    Resume(&'a Psk),
}

/// Whoever has an agent's private key: does the handshakes of its machine, one at a time.
pub trait Handshaker {
    /// Begins a handshake, with an ephemeral key of its own, and gives message 1; the one begun before is forgotten.
    ///
    /// # Errors
    /// The server's key is not usable.
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed>;

    /// Takes message 2: its payload, and the chain of the session's keys. A message that fails changes nothing.
    ///
    /// # Errors
    /// It is not the answer to the handshake that was begun last.
    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed>;
}

/// The key of an agent, and the random source of its ephemeral ones.
pub struct KeyHolder<R> {
    key: SecretKey,
    ephemeral: R,
    begun: Option<Initiator>,
}

impl<R: FnMut() -> Entropy> KeyHolder<R> {
    /// With the agent's key. `ephemeral` draws 32 bytes of the system's random source each time.
    pub const fn new(key: SecretKey, ephemeral: R) -> Self {
        Self { key, ephemeral, begun: None }
    }

    /// Takes another key, for the handshakes that begin from now on.
    pub fn set_key(&mut self, key: SecretKey) {
        self.key = key;
    }
}

impl<R: FnMut() -> Entropy> Handshaker for KeyHolder<R> {
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
        self.begun = None;
        let ephemeral = (self.ephemeral)();
        let (begun, message) = match beginning {
            Beginning::Open(server, psk) => Initiator::open(&self.key, server, psk, ephemeral, prologue, payload)?,
            Beginning::Resume(secret) => Initiator::resume(secret, ephemeral, prologue, payload)?,
        };
        self.begun = Some(begun);
        Ok(message)
    }

    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        let finished = self.begun.as_mut().ok_or(HandshakeFailed)?.finish(message)?;
        self.begun = None;
        Ok(finished)
    }
}
