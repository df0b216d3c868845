//! Cookies: a sender that returns one receives at its address, and has paid for one Diffie-Hellman of the server.
//!
//! The server keeps nothing for a cookie that it gives. It keeps a tag of each that was used, in two sets that take turns: an older cookie than
//! the sets can tell about is stale, and its sender is given another.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hashbrown::HashSet;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use zeroize::Zeroizing;

/// Bytes of a cookie: the time of its making, and a keyed hash.
pub const COOKIE_LEN: usize = 24;

/// A cookie is good for so long.
pub const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// Used cookies that a set remembers: as many as a hash table of 65,536 places holds, so that both sets together take 1.2 MB.
pub const USED_MAX: usize = 57_344;

/// What a cookie is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Worth {
    /// Good, and now used.
    Good,
    /// Expired, or older than what the server remembers: the sender may have another.
    Stale,
    /// It has paid for a Diffie-Hellman already.
    Used,
    /// This server never gave it to this sender and handshake.
    Forged,
}

/// Gives cookies and takes them once.
pub struct Cookies {
    key: Zeroizing<[u8; 16]>,
    used: HashSet<u64>,
    used_before: HashSet<u64>,
    swapped: Duration,
    /// Cookies made until then are stale: their use may have been forgotten.
    since: Option<Duration>,
}

impl Cookies {
    /// With `key` of the random source of this start, so that no cookie outlives it.
    #[must_use]
    pub fn new(key: [u8; 16], now: Duration) -> Self {
        Self { key: Zeroizing::new(key), used: HashSet::new(), used_before: HashSet::new(), swapped: now, since: None }
    }

    /// The cookie for `handshake` from `address` made now.
    #[must_use]
    pub fn give(&self, now: Duration, address: SocketAddr, handshake: u64) -> [u8; COOKIE_LEN] {
        // Saturates after half a million years.
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let mut cookie = [0; COOKIE_LEN];
        cookie[..8].copy_from_slice(&micros.to_be_bytes());
        cookie[8..].copy_from_slice(&self.hash(micros, address, handshake).to_be_bytes());
        cookie
    }

    /// Takes a cookie. Only [`Worth::Good`] allows a Diffie-Hellman.
    pub fn take(&mut self, now: Duration, address: SocketAddr, handshake: u64, cookie: &[u8; COOKIE_LEN]) -> Worth {
        let (micros, hash) = cookie.split_at(8);
        let made = u64::from_be_bytes(micros.try_into().unwrap_or_default());
        //= docs/sealed.md#the-handshake
        //# A cookie MUST be good for one Diffie-Hellman, for one address and port, one `handshake` and one start of the server, and for 10
        //# s at most.
        let expected = self.hash(made, address, handshake);
        if verify_slices_are_equal(hash, &expected.to_be_bytes()).is_err() {
            return Worth::Forged;
        }
        let made = Duration::from_micros(made);
        if self.since.is_some_and(|since| made <= since) || now.saturating_sub(made) >= COOKIE_LIFE {
            return Worth::Stale;
        }
        #[expect(clippy::cast_possible_truncation, reason = "half of a keyed hash is a tag")]
        let tag = expected as u64;
        if self.used.contains(&tag) || self.used_before.contains(&tag) {
            return Worth::Used;
        }
        self.swap(now);
        self.used.insert(tag);
        Worth::Good
    }

    /// Sets take turns every [`COOKIE_LIFE`], or earlier when one is full: then what the dropped set knew is stale.
    fn swap(&mut self, now: Duration) {
        let in_time = now.saturating_sub(self.swapped) >= COOKIE_LIFE;
        if !in_time && self.used.len() < USED_MAX {
            return;
        }
        if !in_time {
            // The dropped set has uses of cookies made until the present set began.
            self.since = Some(self.swapped);
        }
        std::mem::swap(&mut self.used, &mut self.used_before);
        self.used.clear();
        self.swapped = now;
    }

    fn hash(&self, micros: u64, address: SocketAddr, handshake: u64) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(micros);
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        hasher.write(&ip.octets());
        hasher.write_u16(address.port());
        hasher.write_u64(handshake);
        hasher.finish128().as_u128()
    }
}
