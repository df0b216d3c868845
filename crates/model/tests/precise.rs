//! The solved chain against values with 60 digits and more (`precise/make.py`, by another way), and against a dense solution.

#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

use cistern_model::Magnitude;
use cistern_model::chain::chain;
use cistern_model::renewal::{Explicit, Lease, Solution, Stages};

const VALUES: &str = include_str!("precise/values.csv");

/// A mantissa and a binary exponent, as `make.py` writes them.
fn value(text: &str) -> Magnitude {
    let (mantissa, exponent) = text.split_once(':').unwrap();
    let (sign, hex) = mantissa.trim_start_matches("0x").split_once('p').unwrap_or(("0", "0"));
    let digits = sign.replace('.', "");
    let fraction = digits.len().saturating_sub(1);
    let whole = u64::from_str_radix(&digits, 16).unwrap() as f64;
    let mut shift = exponent.parse::<i32>().unwrap() + hex.parse::<i32>().unwrap() - 4 * i32::try_from(fraction).unwrap();
    let mut number = Magnitude::new(whole);
    while shift != 0 {
        let step = shift.clamp(-1_000, 1_000);
        number = number * 2f64.powi(step);
        shift -= step;
    }
    number
}

struct Case {
    lease: Lease,
    expected: Solution,
    line: &'static str,
}

fn cases() -> Vec<Case> {
    VALUES
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<_> = line.split(',').collect();
            let number = |i: usize| fields[i].parse::<f64>().unwrap();
            let k = fields[0].parse::<u32>().unwrap();
            let lease = Lease {
                tau: 1.0,
                rho: number(1),
                lambda: number(2),
                mu: number(3),
                sigma: if number(4) == 0.0 { Explicit::AtOnce } else { Explicit::Rate(number(4)) },
                stages: if k == 0 { Stages::Sharp } else { Stages::Erlang(k) },
            };
            let expected = Solution {
                renewals: value(fields[5]),
                lapsed_up: value(fields[6]),
                lapsed_down: value(fields[7]),
                valid: value(fields[8]),
            };
            Case { lease, expected, line }
        })
        .collect()
}

/// The relative difference; of two zeros, none.
fn off(ours: Magnitude, expected: Magnitude) -> f64 {
    match (ours.is_zero(), expected.is_zero()) {
        (true, true) => 0.0,
        (true, false) | (false, true) => f64::INFINITY,
        (false, false) => ((ours / expected).rounded() - 1.0).abs(),
    }
}

fn farthest(ours: &Solution, expected: &Solution) -> f64 {
    let lapsed = off(ours.lapsed_up, expected.lapsed_up).max(off(ours.lapsed_down, expected.lapsed_down));
    off(ours.renewals, expected.renewals).max(lapsed).max(off(ours.valid, expected.valid))
}

/// An exponent z·ln(1+…) of 1,000 is exact to 1,000 roundings, so this is what 53 bits allow, and a few roundings more.
const DIGITS: f64 = 1e-12;

#[test]
fn the_closed_form_has_twelve_right_digits_over_twelve_decades() {
    let cases = cases();
    assert!(cases.len() > 300);
    for case in &cases {
        let ours = case.lease.solve().unwrap();
        let off = farthest(&ours, &case.expected);
        assert!(off < DIGITS, "{off:e} off: {}\n{ours:?}\n{:?}", case.line, case.expected);
    }
}

#[test]
fn the_chain_state_by_state_has_eleven() {
    for case in cases().iter().filter(|case| case.lease.stages != Stages::Sharp) {
        let Stages::Erlang(k) = case.lease.stages else { continue };
        let off = farthest(&chain(&case.lease).unwrap().solution, &case.expected);
        assert!(off < 1e-13 + 3e-16 * f64::from(k), "{off:e} off: {}", case.line);
    }
}

#[test]
fn what_f64_cannot_hold_is_among_the_values() {
    assert!(cases().iter().any(|case| case.expected.renewals.value().is_none() && case.expected.renewals.log10() < -400.0));
}

/// All states, from the transitions of figure 5 alone, by state reduction (Grassmann, Taksar, Heyman 1985), which never subtracts.
/// States: S₁…S_k, F₁…F_k, S_x, F_x.
fn dense(lease: &Lease, k: usize) -> Vec<f64> {
    let Explicit::Rate(sigma) = lease.sigma else { panic!("a dense solution needs a rate") };
    let n = 2 * k + 2;
    let (sx, fx) = (2 * k, 2 * k + 1);
    let stage = k as f64 / lease.tau;
    let mut q = vec![vec![0.0f64; n]; n];
    for i in 0..k {
        q[i][if i + 1 < k { i + 1 } else { sx }] += stage;
        q[k + i][if i + 1 < k { k + i + 1 } else { fx }] += stage;
        q[i][k + i] += lease.lambda;
        q[k + i][i] += lease.mu;
        if i > 0 {
            q[i][0] += lease.rho;
        }
    }
    q[sx][0] += sigma + lease.rho;
    q[sx][fx] += lease.lambda;
    q[fx][sx] += lease.mu;
    for last in (1..n).rev() {
        let out: f64 = q[last][..last].iter().sum();
        for i in 0..last {
            q[i][last] /= out;
            for j in 0..last {
                if i != j {
                    q[i][j] += q[i][last] * q[last][j];
                }
            }
        }
    }
    let mut p = vec![1.0f64];
    for j in 1..n {
        let next = p.iter().zip(&q).map(|(p, row)| p * row[j]).sum();
        p.push(next);
    }
    let whole: f64 = p.iter().sum();
    p.iter().map(|p| p / whole).collect()
}

#[test]
fn every_state_is_that_of_a_dense_solution() {
    for k in [1usize, 2, 3, 10, 40] {
        for (rho, lambda, mu, sigma) in
            [(1.0, 0.1, 2.0, 5.0), (0.0, 0.1, 2.0, 5.0), (8.0, 1e-6, 1e-3, 1e3), (0.01, 1e3, 1e6, 0.1), (20.0, 1.0, 1.0, 1.0)]
        {
            let stages = Stages::Erlang(u32::try_from(k).unwrap());
            let lease = Lease { tau: 0.7, rho, lambda, mu, sigma: Explicit::Rate(sigma), stages };
            let (dense, solved) = (dense(&lease, k), chain(&lease).unwrap());
            let ours = solved.up.iter().chain(&solved.down).chain([&solved.solution.lapsed_up, &solved.solution.lapsed_down]);
            for (state, (ours, expected)) in ours.zip(&dense).enumerate() {
                assert!((ours.rounded() / expected - 1.0).abs() < 1e-11, "state {state} of {lease:?}: {ours:?} and {expected:e}");
            }
            assert!((solved.solution.renewals.rounded() / (sigma * dense[2 * k]) - 1.0).abs() < 1e-11);
        }
    }
}

#[test]
fn a_hundred_thousand_states_are_no_more_work_than_one() {
    let lease = |stages| Lease { tau: 1.0, rho: 10.0, lambda: 1e-3, mu: 2.0, sigma: Explicit::AtOnce, stages };
    // The chain itself, all 200,002 probabilities, adds up to one.
    let all = chain(&lease(Stages::Erlang(100_000))).unwrap();
    let sum: f64 = all.up.iter().chain(&all.down).map(|p| p.rounded()).sum();
    assert_eq!(all.up.len(), 100_000);
    assert!((sum + all.solution.unavailability().rounded() - 1.0).abs() < 1e-10);
    assert!(farthest(&all.solution, &lease(Stages::Erlang(100_000)).solve().unwrap()) < 1e-10);
}
