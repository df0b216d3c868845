//! Sealed datagrams: long-lived keys, the handshake that proves them, the records of a session, and the cookies that a handshake costs.
//!
//! No sockets, clocks or random source: time, entropy and addresses are arguments, so that a simulator replays every byte. Private keys are
//! seen by whoever calls [`handshake`] (a worker of the server, the agent's driver); a protocol machine has a [`Sealer`] in each session and
//! one [`Cipher`], and knows no key. Implements `docs/sealed.md`; formats are those of `cistern_wire::sealed`.
//!
//! | file | question it answers |
//! |---|---|
//! | [`key`] | what is a key, how is it written down |
//! | [`mac`] | was this handshake datagram made for this server |
//! | [`cookie`] | does the sender receive at its address, and has it paid for a Diffie-Hellman |
//! | [`handshake`] | who is the peer, what do both now share |
//! | [`work`] | who does handshakes for a machine that has no private key |
//! | [`record`] | which keys follow from a handshake |
//! | [`lease`] | who has the secret of a named lease |
//! | [`log`] | by which lines a capture can be read |
//! | [`session`] | how is a datagram of a session sealed and opened: under which key, until when |
//! | [`group`] | how are datagrams sealed between members of a group that has no server |

mod aead;
pub mod cookie;
mod crypto;
pub mod group;
pub mod handshake;
pub mod key;
pub mod lease;
pub mod log;
pub mod mac;
mod paper;
pub mod record;
pub mod session;
pub mod work;

pub use aead::{Aead, ChaCha};
pub use cookie::Cookies;
pub use group::GroupSealer;
pub use handshake::{Entropy, Initiator, Psk, Responder, StartKey};
pub use key::{PublicKey, SecretKey};
pub use lease::LeaseSecret;
pub use log::{KeyLog, KeySink};
pub use mac::FirstCheck;
pub use paper::Paper;
pub use record::{Chain, OpenFailed};
pub use session::{Cipher, Sealer, SessionKeys};
