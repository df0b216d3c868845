//! What an agent that seals needs to open its sessions: who has its key, and which keys its server may have (`docs/sealed.md`).
//!
//! Decides the bytes of ASK, OPEN and RESUME. The agent has no private key: a [`Handshaker`] makes and reads the messages that need it.
//! Invariant: one OPEN is made of one ephemeral key; what is sent again has the same bytes but for its number and its check.

use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_seal::key::KeyId;
use cistern_seal::record::Chain;
use cistern_seal::work::{Beginning, Handshaker};
use cistern_seal::{FirstCheck, Psk, PublicKey, Sealer, SessionKeys};
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, SealedAsk, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedResume, WelcomePayload, Zeros, prologue,
};
use cistern_wire::{Direction, SessionId};
use core::fmt;
use core::net::SocketAddr;
use core::ops::Range;

/// Bytes of a cookie of the sealed mode.
pub(crate) const COOKIE_LEN: usize = 24;
/// Where the packet number stands in a header.
const PACKET: Range<usize> = 12..20;

/// A key by which a server may be addressed, and where: servers of a group each have one of their own. Nowhere: wherever the server is.
pub type KeyAt = (PublicKey, Vec<SocketAddr>);

/// By what an agent opens sealed sessions; one that has it knows no others.
pub struct Keys {
    holder: Box<dyn Handshaker + Send>,
    /// Keys by which the server may be addressed; never empty.
    servers: Vec<ServerKey>,
    /// Which of them the handshake under way, or the next one, is for.
    current: usize,
    /// How often all addresses were tried in vain, each with one of its keys.
    turns: usize,
    psk: ([u8; 8], Psk),
}

/// A server's key, and what is computed from it.
#[derive(Clone)]
struct ServerKey {
    key: PublicKey,
    /// Where it is good; empty: everywhere.
    at: Vec<SocketAddr>,
    id: KeyId,
    check: FirstCheck,
}

impl ServerKey {
    fn of((key, at): &KeyAt) -> Self {
        Self { key: *key, at: at.clone(), id: KeyId::of(key), check: FirstCheck::of(key) }
    }

    fn is_good_at(&self, address: SocketAddr) -> bool {
        self.at.is_empty() || self.at.contains(&address)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("server", &self.server().key).finish_non_exhaustive()
    }
}

impl Keys {
    /// With whoever has the agent's key, and the key of the server.
    #[must_use]
    pub fn new(holder: impl Handshaker + Send + 'static, server: PublicKey) -> Self {
        Self {
            holder: Box::new(holder),
            servers: alloc::vec![ServerKey::of(&(server, Vec::new()))],
            current: 0,
            turns: 0,
            psk: ([0; 8], Psk::none()),
        }
    }

    /// With these keys instead, if there are any. Several that are good at one address are tried in turn: while a server's key is rotated it has
    /// two, and an agent may know either.
    #[must_use]
    pub fn with_servers(mut self, keys: &[KeyAt]) -> Self {
        self.replace_servers(keys);
        self
    }

    /// With a secret, too, that the server knows by `id`.
    #[must_use]
    pub fn with_psk(self, id: [u8; 8], psk: Psk) -> Self {
        Self { psk: (id, psk), ..self }
    }

    /// Takes other keys of the server, for the handshakes that begin from now on. What is empty is not taken.
    pub(crate) fn replace_servers(&mut self, keys: &[KeyAt]) {
        if !keys.is_empty() {
            (self.servers, self.current, self.turns) = (keys.iter().map(ServerKey::of).collect(), 0, 0);
        }
    }

    /// The next handshake is for the next key at each address. False: there is one key only.
    pub(crate) fn turn(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.servers.len() > 1
    }

    /// What is sent next goes to this address. Whether that takes another key than the last.
    pub(crate) fn choose(&mut self, address: SocketAddr) -> bool {
        let good: Vec<usize> = (0..self.servers.len()).filter(|at| self.servers[*at].is_good_at(address)).collect();
        let next = if good.is_empty() { self.turns % self.servers.len() } else { good[self.turns % good.len()] };
        core::mem::replace(&mut self.current, next) != next
    }

    /// Whether a handshake datagram was made by somebody who knows one of the server's keys.
    pub(crate) fn hold(&self, datagram: &[u8]) -> bool {
        self.servers.iter().any(|server| server.check.holds(datagram))
    }

    fn server(&self) -> &ServerKey {
        &self.servers[self.current]
    }

    /// Writes ASK.
    pub(crate) fn ask(&self, handshake: u64, packet: u64, buf: &mut Vec<u8>) {
        let ask = SealedAsk { handshake, key_id: self.server().id.0, room: Zeros, mac1: [0; MAC_LEN] };
        self.write(packet, ask, buf);
    }

    /// Begins a handshake under an ephemeral key of its own, and writes its OPEN. False: the server's key is none.
    pub(crate) fn open(
        &mut self,
        handshake: u64,
        cookie: [u8; COOKIE_LEN],
        packet: u64,
        payload: &OpenPayload<'_>,
        buf: &mut Vec<u8>,
    ) -> bool {
        let (key_id, psk_id, mac1) = (self.server().id.0, self.psk.0, [0; MAC_LEN]);
        let open = SealedOpen { handshake, key_id, cookie, psk_id, ephemeral: [0; 32], agent_key: [0; 48], payload: [0; 216], mac1 };
        self.write(packet, open, buf);
        let payload: [u8; OpenPayload::OPEN_LEN] = payload.padded();
        let beginning = Beginning::Open(&self.servers[self.current].key, &self.psk.1);
        let message = prologue(buf).and_then(|prologue| self.holder.begin(&beginning, &prologue, &payload).ok());
        self.complete(message, SealedKind::Open, buf)
    }

    /// Begins a handshake as [`Self::open`] does, and writes its RESUME of a session whose secret this is.
    pub(crate) fn resume(
        &mut self,
        handshake: u64,
        cookie: [u8; COOKIE_LEN],
        packet: u64,
        (former, secret): (SessionId, &Psk),
        payload: &OpenPayload<'_>,
        buf: &mut Vec<u8>,
    ) -> bool {
        let (key_id, mac1) = (self.server().id.0, [0; MAC_LEN]);
        let resume = SealedResume { handshake, key_id, cookie, former, ephemeral: [0; 32], payload: [0; 208], mac1 };
        self.write(packet, resume, buf);
        let payload: [u8; OpenPayload::RESUME_LEN] = payload.padded();
        let message = prologue(buf).and_then(|prologue| self.holder.begin(&Beginning::Resume(secret), &prologue, &payload).ok());
        self.complete(message, SealedKind::Resume, buf)
    }

    /// Puts message 1 in its place; false: there is none.
    fn complete(&self, message: Option<Vec<u8>>, kind: SealedKind, buf: &mut Vec<u8>) -> bool {
        let (Some(message), Some(room)) = (message, kind.message().and_then(|place| buf.get_mut(place))) else {
            buf.clear();
            return false;
        };
        room.copy_from_slice(&message);
        self.server().check.complete(buf);
        true
    }

    /// Numbers an OPEN anew, that is sent again.
    pub(crate) fn number(&self, packet: u64, open: &mut [u8]) {
        //= docs/sealed.md#the-handshake
        //# A retransmitted OPEN or RESUME MUST have the same bytes as the first but for `packet` and mac1.
        if let Some(place) = open.get_mut(PACKET) {
            place.copy_from_slice(&packet.to_be_bytes());
        }
        self.server().check.complete(open);
    }

    /// Takes WELCOME: what it says, and the chain of the session's keys, if it answers the OPEN that was made last.
    pub(crate) fn finish(&mut self, welcome: &[u8]) -> Option<(WelcomePayload, Chain)> {
        let message = welcome.get(SealedKind::Welcome.message()?)?;
        //= wire-spec.md#11-8-security
        //# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of
        //# trust.
        let (payload, chain) = self.holder.finish(message).ok()?;
        Some((WelcomePayload::of(&payload).ok()?, chain))
    }

    fn write(&self, packet: u64, body: impl Into<SealedHandshake>, buf: &mut Vec<u8>) {
        SealedDatagram::new(SessionId(0), packet, body).write(buf);
        self.server().check.complete(buf);
    }
}

/// The agent's sealer of a session whose handshake has just ended.
pub(crate) fn sealer(chain: &Chain, now: Instant) -> Sealer {
    Sealer::Sealed(Box::new(SessionKeys::new(chain, Direction::Agent, now.uptime())))
}
