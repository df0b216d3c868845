//! The defaults, the relations that they keep, and what the manual says of them.

use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

#[test]
fn defaults_keep_their_own_relations_for_every_lease() {
    for ms in [100, 101, 160, 500, 2_000, 30_000, 3_600_000] {
        let config = Config::for_lease(Duration::from_millis(ms));
        assert_eq!(config.check(), Ok(()), "τ of {ms} ms");
    }
    assert_eq!(Config::for_lease(Duration::from_secs(2)), Config::default());
}

#[test]
fn wait_is_tau_times_one_plus_delta_plus_epsilon() {
    assert_eq!(Config::default().wait(), Duration::from_millis(2_021));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The bound on the wait behind holders that have failed MUST be documented as a formula.
#[test]
fn wait_behind_failed_holders_is_the_formula_of_the_specification() {
    // max(1 s, 4 s) + max(500 ms, 3 · 250 ms) + 2,021 ms.
    assert_eq!(Config::default().liveness_bound(0), Duration::from_millis(6_771));
    assert_eq!(Config::default().liveness_bound(2), 3 * Duration::from_millis(6_771));
    let slow = Config { probe_period: Duration::from_secs(20), delivery_timeout: Duration::from_secs(4), ..Config::default() };
    assert_eq!(slow.liveness_bound(0), Duration::from_millis(20_000 + 4_000 + 2_021));
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST round T up, and add an ε no smaller than the granularity and the read error of its clock.
#[test]
fn wait_is_rounded_up_to_the_nanosecond() {
    let config = Config { lease: Duration::from_nanos(100_000_001), delta_ppm: 3_000, ..Config::default() };
    // 100,000,001 ns × 0.003 = 300,000.003 ns.
    assert_eq!(config.wait() - config.epsilon - config.lease, Duration::from_nanos(300_001));
}

#[test]
fn refusal_says_which_setting_its_value_and_what_is_allowed() {
    let config = Config { delta_ppm: 100, ..Config::default() };
    let error = config.check().unwrap_err();
    assert_eq!(error.to_string(), "delta is 100; it must be 0.003 to 1 (3,000 to 1,000,000 ppm)");
}

const CLOCKS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clocks.md"));

#[test]
fn deltas_in_the_manual_are_what_their_clocks_need() {
    let cells = |line: &str| line.split('|').filter_map(|cell| cell.trim().parse::<f64>().ok()).collect::<alloc::vec::Vec<_>>();
    let rows: alloc::vec::Vec<_> = CLOCKS.lines().map(cells).filter(|cells| cells.len() == 2).collect();
    assert_eq!(rows.len(), 6);
    for row in &rows {
        let needed = 2.0 * row[0] / (1.0 - row[0]);
        assert!(row[1] >= needed && row[1] - needed < 0.000_2, "κ {} needs {needed}", row[0]);
    }
    let covers = |delta_ppm: u32, row: &[f64]| f64::from(delta_ppm) / 1e6 >= row[1];
    assert!(covers(DELTA_PPM_MIN, &rows[3]) && covers(Config::default().delta_ppm, &rows[4]) && !covers(180_000, &rows[5]));
    assert!(CLOCKS.contains("refused at start") && Config { delta_ppm: DELTA_PPM_MIN - 1, ..Config::default() }.check().is_err());
}

#[test]
fn manual_says_what_no_clock_can_save_and_what_protects_there() {
    for said in [
        "**A machine whose clocks can stop is outside of the guarantee of the lease.**",
        "**Fencing tokens protect there, and only they do**",
    ] {
        assert!(CLOCKS.contains(said), "{said}");
    }
    assert!(CLOCKS.contains("`last-heard` is **off** by default") && !Config::default().last_heard);
    assert!(CLOCKS.contains("`rescue` and `surrender` are on") && Config::default().rescue && Config::default().surrender);
}

#[test]
fn each_relation_is_checked() {
    let base = Config::default;
    let ms = Duration::from_millis;
    let (locks, stages) = (LockLimits::default(), StageLimits::default());
    let bad = [
        ("lease", Config { lease: ms(99), ..base() }),
        ("epsilon", Config { epsilon: Duration::ZERO, ..base() }),
        ("delivery-timeout", Config { delivery_timeout: ms(59), ..base() }),
        ("probe-period", Config { probe_period: ms(19), ..base() }),
        ("compliance-time", Config { compliance_time: ms(499), ..base() }),
        ("window", Config { window: 0, ..base() }),
        ("max-datagram", Config { max_datagram: 547, ..base() }),
        ("sessions-max", Config { sessions_max: 0, ..base() }),
        ("network-sessions-max", Config { network_sessions_max: 0, ..base() }),
        ("locks-per-session", Config { locks: LockLimits { locks_max: 10, locks_per_session: 11, ..locks }, ..base() }),
        ("stage-idle", Config { stages: StageLimits { idle: ms(1_999), ..stages }, ..base() }),
        ("stage-bytes-per-session", Config { stages: StageLimits { bytes_per_session: 1 << 19, ..stages }, ..base() }),
    ];
    for (setting, config) in bad {
        assert_eq!(config.check().unwrap_err().setting, setting);
    }
}

proptest! {
    #[test]
    fn wait_is_never_shorter_than_any_agents_lease(lease_us in 100_000u64..3_600_000_000, delta_ppm in 3_000u32..=1_000_000) {
        let config = Config { lease: Duration::from_micros(lease_us), delta_ppm, ..Config::default() };
        // The slowest agent clock allowed shows τ after τ(1+δ) of the server's.
        let slowest_ns = config.lease.as_nanos() * u128::from(1_000_000 + delta_ppm);
        prop_assert!((config.wait() - config.epsilon).as_nanos() * 1_000_000 >= slowest_ns);
    }
}
