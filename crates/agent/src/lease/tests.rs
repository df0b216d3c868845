//! Claims about the lease alone.

use super::*;
use proptest::prelude::*;

const TAU: Duration = Duration::from_secs(2);

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000, ms * 1_000_000)
}

fn lease(sent_ms: u64) -> Lease {
    let mut lease = Lease::new(Phases::default());
    lease.open(TAU, TAU);
    assert!(lease.renew(at(sent_ms), Renewal::Opening));
    lease
}

#[test]
fn phases_end_at_their_fractions_of_tau_since_the_send_time() {
    let lease = lease(1_000);
    let table = [
        (1_000, Phase::Valid),
        (2_199, Phase::Valid),
        (2_200, Phase::Renewing),
        (2_599, Phase::Renewing),
        (2_600, Phase::Suspect),
        (2_760, Phase::Flush),
        (2_939, Phase::Flush),
        (2_940, Phase::Expired),
    ];
    for (ms, phase) in table {
        assert_eq!(lease.phase(at(ms)), phase, "at {ms} ms");
        assert_eq!(lease.permit(at(ms)).may_start, phase <= Phase::Renewing);
        assert_eq!(lease.permit(at(ms)).may_use, phase != Phase::Expired);
        assert!(lease.certain(at(ms)));
    }
    assert!(lease.certain(at(2_999)) && !lease.certain(at(3_000)));
}

//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST NOT use locks or cache before it received the answer that made them usable.
#[test]
fn without_a_session_nothing_is_usable_and_nothing_renews() {
    let mut lease = Lease::new(Phases::default());
    assert!(!lease.renew(at(0), Renewal::Opportunistic));
    assert!(!lease.permit(at(0)).may_use && !lease.permit(at(0)).may_start);
    assert_eq!(lease.phase(at(0)), Phase::NoSession);
    lease.open(TAU, TAU);
    assert_eq!(lease.phase(at(0)), Phase::Expired, "open, but never renewed");
    assert!(!lease.permit(at(0)).may_use);
}

#[test]
fn nothing_revives_a_closed_lease() {
    let mut lease = lease(0);
    lease.close();
    assert!(!lease.renew(at(1), Renewal::Opportunistic));
    assert!(!lease.permit(at(1)).may_use);
}

#[test]
fn an_older_transmission_does_not_shorten_the_lease() {
    let mut lease = lease(1_000);
    assert!(!lease.renew(at(900), Renewal::Opportunistic));
    assert_eq!(lease.valid_until(), Some(at(3_000)));
    assert!(lease.renew(at(1_100), Renewal::Explicit));
    assert_eq!(lease.valid_until(), Some(at(3_100)));
    assert_eq!(lease.renewals(), (0, 1), "only what moved the end counts");
}

//= wire-spec.md#11-1-lease
//= type=test
//# A renewing answer whose lease is over when it arrives MUST NOT make anything usable.
#[test]
fn an_answer_whose_window_has_passed_revives_nothing() {
    let mut lease = lease(0);
    lease.renew(at(100), Renewal::Opportunistic);
    assert!(!lease.permit(at(2_100)).may_use);
}

#[test]
fn a_jump_of_the_boot_clock_alone_ends_the_lease() {
    let lease = lease(0);
    let slept = Instant::new(10, 5_000_000_000);
    assert!(!lease.permit(slept).may_use && !lease.permit(slept).may_start);
    assert_eq!(lease.phase(slept), Phase::Expired);
}

proptest! {
    //= wire-spec.md#11-1-lease
    //= type=test
    //# A renewing answer MUST set the end of the lease to the later of its end so far and the send time of the echoed transmission plus τ.
    #[test]
    fn end_is_the_latest_send_time_plus_tau(sends in proptest::collection::vec(0u64..10_000, 1..20)) {
        let mut lease = Lease::new(Phases::default());
        lease.open(TAU, TAU);
        for sent in &sends {
            lease.renew(at(*sent), Renewal::Opportunistic);
        }
        let newest = sends.iter().max().unwrap();
        prop_assert_eq!(lease.valid_until(), Some(at(newest + 2_000)));
    }

    //= wire-spec.md#11-1-lease
    //= type=test
    //# The agent MUST round the end of its lease down.
    #[test]
    fn fractions_are_rounded_down(ns in 0u64.., ppm in 0u32..1_000_000) {
        let whole = Duration::from_nanos(ns);
        let exact = whole.as_nanos() * u128::from(ppm);
        prop_assert!(part(whole, ppm).as_nanos() * 1_000_000 <= exact);
    }
}
