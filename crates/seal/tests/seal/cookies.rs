use std::net::SocketAddr;
use std::time::Duration;

use cistern_seal::Cookies;
use cistern_seal::cookie::{COOKIE_LIFE, USED_MAX, Worth};

const START: Duration = Duration::from_secs(100);
const MOMENT: Duration = Duration::from_millis(1);

fn here() -> SocketAddr {
    "192.0.2.1:1000".parse().unwrap()
}

//= docs/sealed.md#the-handshake
//= type=test
//# A cookie MUST be good for one Diffie-Hellman, for one address and port, one `handshake` and one start of the server, and for 10 s at
//# most.
#[test]
fn a_cookie_is_taken_once_from_its_sender_and_handshake() {
    let mut cookies = Cookies::new([1; 16], START);
    let cookie = cookies.give(START, here(), 7);
    assert_eq!(cookies.take(START, here(), 8, &cookie), Worth::Forged);
    assert_eq!(cookies.take(START, "192.0.2.1:1001".parse().unwrap(), 7, &cookie), Worth::Forged);
    assert_eq!(cookies.take(START, "192.0.2.2:1000".parse().unwrap(), 7, &cookie), Worth::Forged);
    assert_eq!(Cookies::new([2; 16], START).take(START, here(), 7, &cookie), Worth::Forged, "a start has its own key");
    for place in 0..cookie.len() {
        let mut changed = cookie;
        changed[place] ^= 1;
        assert_eq!(cookies.take(START, here(), 7, &changed), Worth::Forged, "byte {place}");
    }
    assert_eq!(cookies.take(START, here(), 7, &cookie), Worth::Good);
    assert_eq!(cookies.take(START, here(), 7, &cookie), Worth::Used);
    let mapped: SocketAddr = "[::ffff:192.0.2.1]:1000".parse().unwrap();
    assert_eq!(cookies.take(START, mapped, 7, &cookie), Worth::Used, "one address has two spellings");
}

//= docs/sealed.md#the-handshake
//= type=test
//# A cookie MUST be good for one Diffie-Hellman, for one address and port, one `handshake` and one start of the server, and for 10 s at
//# most.
#[test]
fn a_cookie_ages_and_is_never_good_twice_while_sets_take_turns() {
    for taken_after in [Duration::ZERO, COOKIE_LIFE / 2, COOKIE_LIFE - MOMENT] {
        let mut cookies = Cookies::new([1; 16], START);
        let cookie = cookies.give(START, here(), 7);
        let mut now = START + taken_after;
        assert_eq!(cookies.take(now, here(), 7, &cookie), Worth::Good);
        while now < START + 3 * COOKIE_LIFE {
            now += COOKIE_LIFE / 8;
            let other = cookies.give(now, here(), 8);
            assert_eq!(cookies.take(now, here(), 8, &other), Worth::Good);
            assert_ne!(cookies.take(now, here(), 7, &cookie), Worth::Good, "at {now:?}");
        }
    }
    let mut cookies = Cookies::new([1; 16], START);
    let cookie = cookies.give(START, here(), 7);
    assert_eq!(cookies.take(START + COOKIE_LIFE, here(), 7, &cookie), Worth::Stale);
}

#[test]
fn after_a_flood_old_cookies_are_stale_rather_than_good_again() {
    let mut cookies = Cookies::new([1; 16], START);
    let used = cookies.give(START, here(), 7);
    assert_eq!(cookies.take(START, here(), 7, &used), Worth::Good);
    let kept = cookies.give(START + MOMENT, here(), 6);
    let now = START + 2 * MOMENT;
    for handshake in 0..2 * USED_MAX as u64 + 2 {
        let cookie = cookies.give(now, here(), 1000 + handshake);
        let _ = cookies.take(now, here(), 1000 + handshake, &cookie);
    }
    assert_ne!(cookies.take(now, here(), 7, &used), Worth::Good);
    assert_eq!(cookies.take(now, here(), 6, &kept), Worth::Stale, "it may have been used");
    let fresh = cookies.give(now + MOMENT, here(), 5);
    assert_eq!(cookies.take(now + MOMENT, here(), 5, &fresh), Worth::Good);
}
