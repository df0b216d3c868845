//! What an agent believes of the numbers that a server tells it (`wire-spec.md` 11.6).
//!
//! Which WELCOME is one that some server may give, and how long a server may make an agent wait. What is refused here changes nothing; the
//! handshake goes on, and the next WELCOME may be the true server's.

use crate::config::{Config, LEASE_MIN};
use cistern_link::is_first_packet;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Handle, SessionId, Welcome};
use core::ops::RangeInclusive;
use core::time::Duration;

/// Longest time for which a server can make an agent wait before it asks again. Servers ask for a second, and in the grace of a long lease
/// for a quarter of that: asking sooner costs them a datagram in 10 s.
const RETRY_MAX: Duration = Duration::from_secs(10);

const HOUR_US: u32 = 3_600_000_000;
/// δ, ε and Td of a server that keeps section 8.3.
const DELTA_PPM: RangeInclusive<u32> = 3_000..=1_000_000;
const EPSILON_US: RangeInclusive<u32> = 1..=HOUR_US;
const DELIVERY_TIMEOUT_US: RangeInclusive<u32> = 1_000..=HOUR_US;

/// How long to wait before asking again.
pub(crate) fn pause(retry_ms: u32) -> Duration {
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST NOT wait longer than 10 s because of a `retry_ms`.
    Duration::from_millis(retry_ms.into()).min(RETRY_MAX)
}

/// The first field of a WELCOME with a value that no server gives, and what it must be. A window or datagram above what was asked for is
/// none: less of it is used.
pub(crate) fn unbelievable(welcome: &Welcome<'_>, config: &Config) -> Option<(&'static str, &'static str)> {
    let Welcome { session, handle, lease_us, delta_ppm, epsilon_us, delivery_timeout_us, window, max_datagram, first_packet, .. } =
        *welcome;
    let lease = Duration::from_micros(lease_us);
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST have a bound on the lease that it believes in, and drop a WELCOME above it.
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST drop a WELCOME with a number outside these bounds.
    [
        ("session", session != SessionId(0), "another than 0"),
        ("handle", handle != Handle(0), "another than 0"),
        ("lease", lease >= LEASE_MIN, "at least 100 ms"),
        ("lease", lease <= config.lease_max, "at most lease-max of this agent: raise that (--lease-max), or lower the lease there"),
        ("delta", DELTA_PPM.contains(&delta_ppm), "0.003 to 1"),
        ("epsilon", EPSILON_US.contains(&epsilon_us), "1 µs to 1 h"),
        ("delivery timeout", DELIVERY_TIMEOUT_US.contains(&delivery_timeout_us), "1 ms to 1 h"),
        ("window", window > 0, "at least 1"),
        ("max_datagram", usize::from(max_datagram) >= DATAGRAM_MIN, "at least 548 bytes"),
        ("first packet number", is_first_packet(first_packet), "1 to 2^48−1"),
    ]
    .into_iter()
    .find_map(|(field, fits, rule)| (!fits).then_some((field, rule)))
}
