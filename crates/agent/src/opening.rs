//! Opening a session: HELLO, CHALLENGE, HELLO with the cookie, WELCOME or REFUSE.
//!
//! Decides: which server address is tried, when HELLO is sent again, and which server is accepted (R42, R43, R47).
//! Implements `wire-spec.md` sections 6.1 and 11.6. Place in the walk: `Agent` begins one when something needs a session.
//! Invariants: all HELLOs of one handshake carry the same number; nothing of a former session is touched before WELCOME.
//! Leaves to others: what becomes of the former session (`recovery`), the identity's durability (the client library).
//!
//! ```text
//!  begin ──▶ HELLO sent ──CHALLENGE──▶ HELLO with cookie sent ──WELCOME──▶ open
//!               ▲  │ no answer: next address, longer pause      └─REFUSE──▶ refused (tried again later, or told)
//!               └──┘
//! ```

use crate::config::Config;
use alloc::vec::Vec;
use cistern_link::{Path, Rng};
use cistern_wire::{Bytes8, Challenge, Claim, FormerClaim, Hello, List, SessionId, StoreId, Welcome};
use core::net::SocketAddr;
use core::time::Duration;

/// What the agent knows of the server, from the newest WELCOME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) store: StoreId,
    pub(crate) epoch: u8,
    pub(crate) incarnation: u64,
    pub(crate) volatile: bool,
}

impl Known {
    pub(crate) fn of(welcome: &Welcome<'_>) -> Self {
        Self {
            store: welcome.store,
            epoch: welcome.epoch,
            incarnation: welcome.server_incarnation,
            volatile: welcome.features & cistern_wire::limits::FEATURE_VOLATILE != 0,
        }
    }

    /// Whether a server may take the place of the one known: the same store, not gone back in time; or one volatile store after
    /// another, for each start of a volatile server makes a new one (R47).
    pub(crate) fn accepts(&self, new: &Self) -> bool {
        let first = self.store == StoreId::default();
        let same = self.store == new.store && (new.epoch, new.incarnation) >= (self.epoch, self.incarnation);
        first || same || (self.volatile && new.volatile && self.store != new.store)
    }
}

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) handshake: u64,
    /// Index of the server address that is tried.
    server: usize,
    cookie: Vec<u8>,
    /// HELLOs sent without a cookie, and attempts since anything was heard.
    pub(crate) attempts: u32,
    pub(crate) ready: bool,
}

/// First time between two attempts; doubles up to `RETRY_MAX`.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// Longest time between two attempts.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(2);

/// HELLOs to one address before the next is tried.
const TRIES_PER_ADDRESS: u32 = 2;

impl Opening {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self { handshake: rng.nonzero_u64().get(), server: 0, cookie: Vec::new(), attempts: 0, ready: true }
    }

    /// The path of the next HELLO.
    pub(crate) fn path(&self, servers: &[SocketAddr]) -> Option<Path> {
        servers.get(self.server % servers.len().max(1)).map(|address| Path::to(*address))
    }

    /// HELLO was not answered in its time: it is sent again, to the next address after some tries.
    pub(crate) fn expired(&mut self) {
        self.ready = true;
        if self.attempts.is_multiple_of(TRIES_PER_ADDRESS) {
            self.server += 1;
            self.cookie.clear();
        }
    }

    /// How long the HELLO that was just sent is given.
    pub(crate) fn pause(&self, rng: &mut Rng) -> Duration {
        let doublings = self.attempts.saturating_sub(1).min(16);
        let span = RETRY.saturating_mul(1 << doublings).min(RETRY_MAX);
        rng.between(span, span * 3 / 2)
    }

    /// The server wants to see that the address is the agent's own.
    pub(crate) fn challenged(&mut self, challenge: &Challenge<'_>) {
        self.cookie = challenge.cookie.0.to_vec();
        self.ready = true;
    }

    /// The HELLO to send.
    pub(crate) fn hello<'a>(
        &'a self,
        config: &Config,
        identity: &'a crate::Identity,
        known: &Known,
        former: &'a [FormerClaim],
    ) -> Hello<'a> {
        Hello {
            handshake: self.handshake,
            version_min: cistern_wire::limits::VERSION,
            version_max: cistern_wire::limits::VERSION,
            window: config.window,
            max_datagram: config.max_datagram,
            features: 0,
            agent: identity.agent,
            incarnation: identity.incarnation,
            boot: identity.boot,
            store: known.store,
            epoch: known.epoch,
            server_incarnation: known.incarnation,
            label: Bytes8(&identity.label),
            cookie: Bytes8(&self.cookie),
            former: List::of(former),
        }
    }
}

/// A former session of which the agent does not know that it ended.
pub(crate) const fn unknown(session: SessionId) -> FormerClaim {
    FormerClaim { session, claim: Claim::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(store: u8, epoch: u8, incarnation: u64, volatile: bool) -> Known {
        Known { store: StoreId([store; 16]), epoch, incarnation, volatile }
    }

    #[test]
    fn another_store_or_an_older_one_is_not_accepted() {
        let durable = known(1, 2, 7, false);
        assert!(durable.accepts(&known(1, 2, 7, false)));
        assert!(durable.accepts(&known(1, 2, 8, false)));
        assert!(durable.accepts(&known(1, 3, 1, false)));
        assert!(!durable.accepts(&known(1, 2, 6, false)));
        assert!(!durable.accepts(&known(1, 1, 9, false)));
        assert!(!durable.accepts(&known(2, 2, 7, false)));
        assert!(!durable.accepts(&known(2, 2, 7, true)), "a volatile server does not follow a durable one");
    }

    #[test]
    fn a_volatile_server_may_be_followed_by_another() {
        assert!(known(1, 1, 1, true).accepts(&known(2, 1, 1, true)));
        assert!(Known::default().accepts(&known(2, 1, 1, false)));
    }
}
