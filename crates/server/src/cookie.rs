//! Cookies: proof that a HELLO comes from the address that it claims, kept by the agent so that the server keeps nothing.
//!
//! Decides what is in a cookie: the moment of its making, and a SipHash-2-4-128 under a key of this server's life over that moment,
//! the agent's address and port, and the number of the handshake (R42, R88). Place in the walk: made for CHALLENGE, checked before a
//! HELLO changes anything (`handshake`). Implements `wire-spec.md` section 6.1.
//! Invariant: no state is kept for it, and it is good for one address, one handshake and [`crate::Config::cookie_life`].
//! Its moment also orders handshakes of one agent incarnation: a delayed HELLO of an older one never ends the session of a newer.

use cistern_link::{Instant, Rng};
use core::hash::Hasher as _;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Length of a cookie, in bytes: moment (8), tag (16).
pub(crate) const COOKIE_LEN: usize = 24;

/// When a cookie was made, on the server's boot clock: later cookies have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CookieTime(u64);

impl CookieTime {
    /// How long ago the cookie was made; for a HELLO that brings it, no less than the round trip to its sender.
    pub(crate) const fn age(self, now: Instant) -> Duration {
        Duration::from_nanos(now.boot_ns.saturating_sub(self.0))
    }
}

/// Makes and checks cookies.
#[derive(Debug)]
pub(crate) struct Cookies {
    key: [u8; 16],
    life: Duration,
}

impl Cookies {
    /// Cookies under a fresh key; those of an earlier server start are worth nothing.
    pub(crate) fn new(rng: &mut Rng, life: Duration) -> Self {
        let mut key = [0; 16];
        rng.fill(&mut key);
        Self { key, life }
    }

    /// A cookie for the agent at `remote` and its handshake.
    pub(crate) fn make(&self, now: Instant, remote: SocketAddr, handshake: u64) -> [u8; COOKIE_LEN] {
        let mut cookie = [0; COOKIE_LEN];
        cookie[..8].copy_from_slice(&now.boot_ns.to_be_bytes());
        cookie[8..].copy_from_slice(&self.tag(now.boot_ns, remote, handshake));
        cookie
    }

    /// When `cookie` was made, if it was made here for this address and handshake and has not expired.
    pub(crate) fn check(&self, now: Instant, remote: SocketAddr, handshake: u64, cookie: &[u8]) -> Option<CookieTime> {
        let (moment, tag) = cookie.split_first_chunk::<8>()?;
        let tag: [u8; 16] = tag.try_into().ok()?;
        let made = u64::from_be_bytes(*moment);
        // Compared as one number: the time taken tells nothing about how many bytes were right.
        if u128::from_be_bytes(tag) ^ u128::from_be_bytes(self.tag(made, remote, handshake)) != 0 {
            return None;
        }
        let age = Duration::from_nanos(now.boot_ns.checked_sub(made)?);
        (age <= self.life).then_some(CookieTime(made))
    }

    fn tag(&self, made: u64, remote: SocketAddr, handshake: u64) -> [u8; 16] {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A cookie MUST bind the agent's address and port, the handshake and the time, and expire.
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&made.to_be_bytes());
        match remote.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&remote.port().to_be_bytes());
        hasher.write(&handshake.to_be_bytes());
        hasher.finish128().as_u128().to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    fn cookies(seed: u8) -> Cookies {
        Cookies::new(&mut Rng::from_seed([seed; 32]), LIFE)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# A cookie MUST bind the agent's address and port, the handshake and the time, and expire.
    #[test]
    fn cookie_is_good_for_its_address_handshake_and_life_only() {
        let (jar, home) = (cookies(1), address("192.0.2.7:4000"));
        let cookie = jar.make(at(5), home, 77);
        assert!(jar.check(at(5), home, 77, &cookie).is_some());
        assert!(jar.check(at(10_005), home, 77, &cookie).is_some(), "to the end of its life");
        assert!(jar.check(at(10_006), home, 77, &cookie).is_none(), "expired");
        assert!(jar.check(at(4), home, 77, &cookie).is_none(), "from the future");
        assert!(jar.check(at(6), home, 78, &cookie).is_none(), "another handshake");
        assert!(jar.check(at(6), address("192.0.2.7:4001"), 77, &cookie).is_none(), "another port");
        assert!(jar.check(at(6), address("[2001:db8::7]:4000"), 77, &cookie).is_none(), "another address");
        assert!(cookies(2).check(at(6), home, 77, &cookie).is_none(), "another server start");
    }

    #[test]
    fn altered_or_cut_cookie_is_no_cookie() {
        let (jar, home) = (cookies(1), address("[2001:db8::1]:9"));
        let cookie = jar.make(at(5), home, 1);
        for bit in 0..COOKIE_LEN * 8 {
            let mut altered = cookie;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(jar.check(at(5), home, 1, &altered), None, "bit {bit}");
        }
        for len in 0..COOKIE_LEN {
            assert_eq!(jar.check(at(5), home, 1, &cookie[..len]), None);
        }
        assert_eq!(jar.check(at(5), home, 1, &[cookie.as_slice(), &[0]].concat()), None);
    }

    #[test]
    fn later_cookie_has_a_larger_time() {
        let (jar, home) = (cookies(1), address("192.0.2.7:1"));
        let time = |ms| jar.check(at(ms), home, 1, &jar.make(at(ms), home, 1)).unwrap();
        assert!(time(1) < time(2));
    }
}
