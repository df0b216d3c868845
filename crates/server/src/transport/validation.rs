//! Proof of address: what an agent must bring before the server keeps anything for it, how often it is answered without, and how a session
//! moves.
//!
//! A cookie holds the moment of its making, and a SipHash-2-4-128 under a key of this server's life over that moment, the agent with its
//! incarnation, its address and port, and the number of the handshake. Implements `wire-spec.md` sections 3.5 and 11.6.
//! Invariants: no state is kept for a cookie; it is good for one agent, one address, one handshake and [`crate::Config::cookie_life`]; its
//! moment orders handshakes of one agent.
//! Over any span no more answers without a session are allowed than it has intervals, plus the burst. A flood from one host leaves half of the
//! burst to others.

use crate::ids::Owner;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path, Rate, Rng};
use cistern_wire::Hello;
use core::hash::Hasher as _;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Length of a cookie, in bytes: moment (8), tag (16).
pub(crate) const COOKIE_LEN: usize = 24;

/// When a cookie was made, on the server's boot clock in nanoseconds: later cookies have larger ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CookieTime(u64);

impl CookieTime {
    /// That of a cookie which is of this age now.
    pub(crate) fn of(now: Instant, age: Duration) -> Self {
        Self(now.boot_ns.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago the cookie was made; for a HELLO that brings it, no less than the round trip to its sender.
    pub(crate) const fn age(self, now: Instant) -> Duration {
        Duration::from_nanos(now.boot_ns.saturating_sub(self.0))
    }
}

/// Makes and checks cookies.
#[derive(Debug)]
pub(crate) struct Cookies {
    key: [u8; 16],
    /// What the boot clock is shown shifted by: how long this machine has been up is nobody's business.
    shift: u64,
    life: Duration,
}

impl Cookies {
    /// Cookies under a fresh key; those of an earlier server start are worth nothing.
    pub(crate) fn new(rng: &mut Rng, life: Duration) -> Self {
        let mut key = [0; 16];
        rng.fill(&mut key);
        Self { key, shift: rng.next_u64(), life }
    }

    /// A cookie for the agent at `remote` and its handshake, as `hello` names them.
    pub(crate) fn make(&self, now: Instant, remote: SocketAddr, hello: &Hello<'_>) -> [u8; COOKIE_LEN] {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A cookie MUST NOT tell how long the server has been running.
        let mut cookie = [0; COOKIE_LEN];
        cookie[..8].copy_from_slice(&now.boot_ns.wrapping_add(self.shift).to_be_bytes());
        cookie[8..].copy_from_slice(&self.tag(now.boot_ns, remote, hello));
        cookie
    }

    /// When the cookie of `hello` was made, if it was made here for that agent, address and handshake and has not expired.
    pub(crate) fn check(&self, now: Instant, remote: SocketAddr, hello: &Hello<'_>) -> Option<CookieTime> {
        let (moment, tag) = hello.cookie.0.split_first_chunk::<8>()?;
        let tag: [u8; 16] = tag.try_into().ok()?;
        let made = u64::from_be_bytes(*moment).wrapping_sub(self.shift);
        // Compared as one number: the time taken tells nothing about how many bytes were right.
        if u128::from_be_bytes(tag) ^ u128::from_be_bytes(self.tag(made, remote, hello)) != 0 {
            return None;
        }
        let age = Duration::from_nanos(now.boot_ns.checked_sub(made)?);
        (age <= self.life).then_some(CookieTime(made))
    }

    /// A number of a host, which nobody else can foresee.
    fn mark(&self, host: Owner) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        // Shorter than what a tag is made of: no tag tells a mark.
        match host {
            Owner::V4(ip) => hasher.write(&ip),
            Owner::V6(net) => hasher.write(&net),
            Owner::Server | Owner::Key(_) => {}
        }
        hasher.finish128().h1
    }

    fn tag(&self, made: u64, remote: SocketAddr, hello: &Hello<'_>) -> [u8; 16] {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A cookie MUST bind the agent's identity and incarnation, its address and port, the handshake and the time, and expire.
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&made.to_be_bytes());
        match remote.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&remote.port().to_be_bytes());
        hasher.write(&hello.handshake.to_be_bytes());
        if !bugs::is(Bug::A3) {
            hasher.write(&hello.agent.0);
            hasher.write(&hello.incarnation.to_be_bytes());
        }
        hasher.finish128().as_u128().to_be_bytes()
    }
}

/// Shares of the rate of answers: hosts whose marks are equal but for this have one in common. A host's own share is the rate by
/// [`SHARE`], so that it takes a flood from so many hosts to leave nothing to others.
const SHARES: usize = 512;
const SHARE: u32 = 64;
/// Hints that may be sent at once.
const HINTS_AT_ONCE: u32 = 16;

/// How often addresses are answered that have not proven themselves: all together, and each host as often as it asks until half of what was
/// saved up is gone, then as its share. The shares are as many as ever: no flood of forged addresses fills a table.
#[derive(Debug)]
pub(crate) struct AnswerRate {
    all: Rate,
    shares: Vec<Rate>,
}

impl AnswerRate {
    /// So many challenges in a second, and a hundredth of it at once.
    pub(crate) fn of_challenges(now: Instant, per_second: u32) -> Self {
        Self::new(now, Duration::from_secs(1) / per_second, per_second.div_ceil(100))
    }

    /// One hint in an interval, and some at once, so that half of them can be kept for others.
    pub(crate) fn of_hints(now: Instant, interval: Duration) -> Self {
        Self::new(now, interval, HINTS_AT_ONCE)
    }

    fn new(now: Instant, interval: Duration, burst: u32) -> Self {
        let shares = (0..SHARES).map(|_| Rate::new(now, interval * SHARE, burst / SHARE)).collect();
        Self { all: Rate::new(now, interval, burst), shares }
    }

    /// Takes the right to send one answer to `remote`, if there is one.
    pub(crate) fn allow(&mut self, now: Instant, remote: SocketAddr, cookies: &Cookies) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "any part of a keyed hash")]
        let share = cookies.mark(Owner::of(remote)) as usize % SHARES;
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# Senders of one host (an IPv4 address, an IPv6 /64) SHOULD NOT use up what may be sent to others.
        // Also while there is enough for all: who has asked much has little of a share when there is not.
        let own = self.shares[share].allow(now) || bugs::is(Bug::B3);
        (own || self.all.is_half_full(now)) && self.all.allow(now)
    }
}

/// Most former addresses remembered: a host has wired, wireless and mobile networks and a tunnel; each costs a copy of every notice.
const LEFT_MAX: usize = 4;

/// One that it may have moved to, and those that it has left.
#[derive(Debug, Default)]
pub(crate) struct Roaming {
    /// One that it may have moved to, and has not proven.
    to: Option<Challenged>,
    /// Those that it has left, the newest last, at most [`LEFT_MAX`]. When it left them is not noted: that would be a time of a
    /// session in good standing.
    from: Vec<Path>,
}

/// An address to which a session may have moved.
#[derive(Debug)]
struct Challenged {
    /// The address.
    path: Path,
    /// What must come back from there.
    token: u64,
    /// When it was challenged first, and last.
    first: Instant,
    last: Instant,
}

impl Roaming {
    /// The former addresses, the newest last.
    pub(crate) fn left(&self) -> &[Path] {
        &self.from
    }

    /// A datagram came from `path`, which is not proven: the token with which it is challenged; `None`: the last challenge is younger than
    /// `again`.
    pub(crate) fn challenge(&mut self, now: Instant, path: Path, again: Duration, token: impl FnOnce() -> u64) -> Option<u64> {
        let (token, first) = match &self.to {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A server MUST NOT send more than one PATH_CHALLENGE for a session in a round trip, to however many addresses.
            Some(known) if !now.waited(known.last.plus(again)) => return None,
            Some(known) if known.path == path => (known.token, known.first),
            _ => (token(), now),
        };
        self.to = Some(Challenged { path, token, first, last: now });
        Some(token)
    }

    /// A token came back from `path`, while `former` was the address proven last: when that path was challenged first, if this proves it.
    pub(crate) fn prove(&mut self, path: Path, token: u64, former: Path) -> Option<Instant> {
        let proven = self.to.take_if(|to| to.path.remote == path.remote && to.token == token)?;
        self.from.retain(|left| left.remote != path.remote);
        if self.from.len() == LEFT_MAX {
            self.from.remove(0);
        }
        self.from.push(former);
        Some(proven.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{AgentId, Bytes8};

    const LIFE: Duration = Duration::from_secs(10);
    const AGENT: AgentId = AgentId([7; 16]);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    fn cookies(seed: u8) -> Cookies {
        Cookies::new(&mut Rng::from_seed([seed; 32]), LIFE)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn hello(handshake: u64, cookie: &[u8]) -> Hello<'_> {
        Hello { incarnation: 3, label: Bytes8(b"test"), cookie: Bytes8(cookie), ..Hello::new(AGENT, handshake) }
    }

    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# A cookie MUST bind the agent's identity and incarnation, its address and port, the handshake and the time, and expire.
    #[test]
    fn cookie_is_good_for_its_agent_address_handshake_and_life_only() {
        let (jar, home) = (cookies(1), address("192.0.2.7:4000"));
        let cookie = jar.make(at(5), home, &hello(77, b""));
        let good = hello(77, &cookie);
        assert!(jar.check(at(5), home, &good).is_some());
        assert!(jar.check(at(10_005), home, &good).is_some(), "to the end of its life");
        assert!(jar.check(at(10_006), home, &good).is_none(), "expired");
        assert!(jar.check(at(4), home, &good).is_none(), "from the future");
        assert!(jar.check(at(6), home, &hello(78, &cookie)).is_none(), "another handshake");
        assert!(jar.check(at(6), home, &Hello { agent: AgentId([8; 16]), ..good }).is_none(), "another agent");
        assert!(jar.check(at(6), home, &Hello { incarnation: 4, ..good }).is_none(), "another incarnation");
        assert!(jar.check(at(6), address("192.0.2.7:4001"), &good).is_none(), "another port");
        assert!(jar.check(at(6), address("[2001:db8::7]:4000"), &good).is_none(), "another address");
        assert!(cookies(2).check(at(6), home, &good).is_none(), "another server start");
    }

    #[test]
    fn altered_or_cut_cookie_is_no_cookie() {
        let (jar, home) = (cookies(1), address("[2001:db8::1]:9"));
        let cookie = jar.make(at(5), home, &hello(1, b""));
        for bit in 0..COOKIE_LEN * 8 {
            let mut altered = cookie;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(jar.check(at(5), home, &hello(1, &altered)), None, "bit {bit}");
        }
        for len in 0..COOKIE_LEN {
            assert_eq!(jar.check(at(5), home, &hello(1, &cookie[..len])), None);
        }
        assert_eq!(jar.check(at(5), home, &hello(1, &[cookie.as_slice(), &[0]].concat())), None);
    }

    fn time(jar: &Cookies, ms: u64) -> CookieTime {
        let home = address("192.0.2.7:1");
        jar.check(at(ms), home, &hello(1, &jar.make(at(ms), home, &hello(1, b"")))).unwrap()
    }

    #[test]
    fn later_cookie_has_a_larger_time() {
        assert!(time(&cookies(1), 1) < time(&cookies(1), 2));
    }

    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# A cookie MUST NOT tell how long the server has been running.
    #[test]
    fn cookie_shows_no_uptime() {
        let moment = |seed: u8| {
            let cookie = cookies(seed).make(at(5), address("192.0.2.7:1"), &hello(1, b""));
            u64::from_be_bytes(cookie[..8].try_into().unwrap())
        };
        // Within a year of the clock by chance: once in 300 draws of one seed, never of four.
        let year = 365 * 86_400 * 1_000_000_000;
        assert!((1..=4).any(|seed| moment(seed).abs_diff(at(5).boot_ns) > year));
        assert_ne!(moment(1), moment(2));
    }

    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# Senders of one host (an IPv4 address, an IPv6 /64) SHOULD NOT use up what may be sent to others.
    /// From two ports of one address, or two addresses of a /64, each asks as often as all may be answered; others ask now and then.
    #[test]
    fn flood_from_one_host_leaves_others_their_answers() {
        for flood in [["192.0.2.7:1", "192.0.2.7:2"], ["[2001:db8::7]:1", "[2001:db8::8:0:0:9]:1"]] {
            let (jar, mut rate, flood) = (cookies(1), AnswerRate::of_challenges(at(0), 1_000), flood.map(address));
            let mut flooded = 0;
            for ms in 0..1_000 {
                flooded += flood.iter().filter(|from| rate.allow(at(ms), **from, &jar)).count();
                if ms % 100 == 99 {
                    let other = SocketAddr::from(([198, 51, 100, 7], 9));
                    assert!(rate.allow(at(ms), other, &jar), "at {ms} ms");
                }
            }
            assert!(flooded > 950, "what others leave is its own: {flooded}");
        }
    }

    #[test]
    fn floods_from_everywhere_are_answered_no_more_often_than_all_may_be() {
        let (jar, mut rate) = (cookies(1), AnswerRate::of_challenges(at(0), 1_000));
        let hosts = (0..20_000_u32).map(|n| SocketAddr::from((n.to_be_bytes(), 1)));
        let answered = hosts.enumerate().filter(|(n, host)| rate.allow(at(*n as u64 / 20), *host, &jar)).count();
        assert!((1_000..=1_010).contains(&answered), "{answered}");
    }
}
