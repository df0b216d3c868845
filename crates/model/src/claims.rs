//! What the papers say in numbers, what comes out here, and the verdict.
//!
//! Decides: which statements are checked (every number in the text of sections 5.1, 5.3 and 5.4 of the OR paper, of its abstract and its
//! introduction, and of sections 3.1 to 3.3 and 7 of the V paper; and what these sections say in words and a model can answer, by a
//! threshold that is chosen here), that each verdict is computed and none is written down, and the reason where they differ.
//! Leaves to others: the models themselves.

use crate::chain::chain;
use crate::invalid::Invalid;
use crate::renewal::{Explicit, Lease, STAGES_MAX, Stages, closed_form};
use crate::stages;
use crate::v::{CONSISTENCY_SHARE, FIGURE_3_ROUND_TRIP, System, TABLE_2};
use serde::Serialize;

/// How a paper's number is meant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meant {
    /// As it is printed: ours must round to it, so be within this of it.
    Within(f64),
    /// At least.
    MoreThan,
    /// At most.
    LessThan,
}

/// What the paper gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number that is printed there.
    Number,
    /// Words; the number that decides is chosen here.
    Words,
}

/// Whether a paper's statement comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does, to the digits printed.
    Reproduced,
    /// It does not.
    Differs,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// `OR` or `V`.
    pub paper: &'static str,
    /// Section of it.
    pub section: &'static str,
    /// What it says, in our words.
    pub claim: &'static str,
    /// Whether it says so in a number.
    pub kind: Kind,
    /// Its number; for words, the threshold that is chosen here.
    #[serde(rename = "paper_value")]
    pub stated: f64,
    /// `=`, `>` or `<`: whether the paper's number is meant as it is or as a bound.
    pub relation: &'static str,
    /// Ours.
    #[serde(rename = "our_value")]
    pub ours: f64,
    /// Whether it comes out.
    pub verdict: Verdict,
    /// Why it differs, or what else there is to know.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'static str,
}

fn claim(section: &'static str, text: &'static str, stated: f64, meant: Meant, ours: f64, why: &'static str) -> Claim {
    let (relation, holds) = match meant {
        Meant::Within(half) => ("=", (ours - stated).abs() <= half * (1.0 + 1e-9)),
        Meant::MoreThan => (">", ours > stated),
        Meant::LessThan => ("<", ours < stated),
    };
    let verdict = if holds { Verdict::Reproduced } else { Verdict::Differs };
    Claim { paper: "", section, claim: text, kind: Kind::Number, stated, relation, ours, verdict, why }
}

/// What a paper says in words.
fn words(section: &'static str, text: &'static str, threshold: f64, meant: Meant, ours: f64, why: &'static str) -> Claim {
    Claim { kind: Kind::Words, ..claim(section, text, threshold, meant, ours, why) }
}

/// All statements of both papers.
///
/// # Errors
/// None with the constants used.
pub fn all() -> Result<Vec<Claim>, Invalid> {
    let or = [stages_claims()?, overhead_claims()?, period_claims()?, availability_claims()?].concat();
    let v = [load_claims(), delay_claims()].concat();
    let of = |paper, claims: Vec<Claim>| claims.into_iter().map(move |claim| Claim { paper, ..claim });
    Ok(of("OR", or).chain(of("V", v)).collect())
}

#[expect(clippy::cast_precision_loss, reason = "counts of stages are small")]
fn stages_claims() -> Result<Vec<Claim>, Invalid> {
    let choice = stages::choose(0.1, 0.01)?;
    let exact = Meant::Within(0.0);
    Ok(vec![
        claim("5.1", "states by Chebyshev for δ = 0.1, ε = 0.01", 10_000.0, exact, choice.chebyshev as f64, ""),
        claim(
            "5.1",
            "states by the central limit theorem for the same",
            676.0,
            exact,
            choice.clt as f64,
            "the normal quantile 2.5758 was rounded up to 2.6: (2.6/0.1)² = 676",
        ),
    ])
}

/// The OR paper's chain without failures and with renewals that take no time, x = τρ.
fn overhead_at(x: f64) -> Result<f64, Invalid> {
    let lease = Lease { tau: 1.0, rho: x, lambda: 0.0, mu: 0.0, sigma: Explicit::AtOnce, stages: Stages::PAPER };
    Ok(lease.solve()?.overhead(x).rounded())
}

fn explicit_at(x: f64) -> Result<f64, Invalid> {
    let lease = Lease { tau: 1.0, rho: 0.0, lambda: 0.0, mu: 0.0, sigma: Explicit::AtOnce, stages: Stages::PAPER };
    Ok(lease.solve()?.overhead(x).rounded())
}

fn overhead_claims() -> Result<Vec<Claim>, Invalid> {
    let half_second = overhead_at(10.0 * 0.5)?;
    Ok(vec![
        claim("5.3", "overhead of explicit renewal at 10/ρ", 0.1, Meant::Within(0.005), explicit_at(10.0)?, ""),
        claim(
            "5.3",
            "overhead of opportunistic renewal at 10/ρ",
            5e-5,
            Meant::Within(0.5e-5),
            overhead_at(10.0)?,
            "with k = 676; a period of exactly τ gives 4.54e-5",
        ),
        claim("5.3", "explicit overhead times τρ (it declines as 1/τρ)", 1.0, Meant::Within(1e-9), explicit_at(7.0)? * 7.0, ""),
        claim(
            "5.3",
            "overhead falls by this factor for each 1/ρ of τ: Θ(2^(−τ))",
            2.0,
            Meant::Within(0.5),
            closed_form(20.0)?.rounded() / closed_form(21.0)?.rounded(),
            "it falls by e, as e^(−τρ): exponentially, but not to the base 2, which would need 0.693/ρ as the unit of τ",
        ),
        words(
            "5.3",
            "explicit over opportunistic at τρ = 0.1: no significant gain below τρ = 1",
            1.1,
            Meant::LessThan,
            explicit_at(0.1)? / overhead_at(0.1)?,
            "",
        ),
        words(
            "5.3",
            "the same up to where the statement ends, τρ = 1",
            1.1,
            Meant::LessThan,
            explicit_at(1.0)? / overhead_at(1.0)?,
            "the gain sets in sooner: 1.14 at τρ = 0.25, 1.30 at 0.5",
        ),
        claim("5.3", "overhead at 10 requests a second and half a second of lease", 0.01, Meant::LessThan, half_second, ""),
    ])
}

/// τρ at which the overhead is `overhead`, by halving.
fn period_of(overhead: f64) -> Result<f64, Invalid> {
    period_at(overhead_at, overhead)
}

/// The same for overhead as a function of τρ that falls.
fn period_at(of: impl Fn(f64) -> Result<f64, Invalid>, overhead: f64) -> Result<f64, Invalid> {
    let (mut low, mut high) = (1e-3, 1e4);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if of(middle)? > overhead { low = middle } else { high = middle }
    }
    Ok(high)
}

fn period_claims() -> Result<Vec<Claim>, Invalid> {
    let [hundred, ten, one, tenth] = [1.0, 0.1, 0.01, 0.001].map(period_of);
    let (hundred, ten, one, tenth) = (hundred?, ten?, one?, tenth?);
    let [explicit_ten, explicit_one, explicit_tenth] = [0.1, 0.01, 0.001].map(|overhead| period_at(explicit_at, overhead));
    let (explicit_ten, explicit_one, explicit_tenth) = (explicit_ten?, explicit_one?, explicit_tenth?);
    let exact = |stated: f64| Meant::Within(stated * 1e-9);
    Ok(vec![
        words("5.3", "at 100 % overhead, by what factor the period is shorter: only a little", 2.0, Meant::LessThan, 1.0 / hundred, ""),
        claim("5.3", "τρ for 10 % overhead with explicit renewal", 10.0, exact(10.0), explicit_ten, ""),
        claim("5.3", "τρ for 10 % overhead", 2.4, Meant::Within(0.05), ten, ""),
        claim("5.3", "by what factor the period is shorter at 10 %", 4.0, Meant::MoreThan, explicit_ten / ten, ""),
        claim("5.3", "τρ for 1 % overhead with explicit renewal", 100.0, exact(100.0), explicit_one, ""),
        claim(
            "5.3",
            "τρ for 1 % overhead",
            4.7,
            Meant::Within(0.05),
            one,
            "read from the chart, to the safe side: at 4.7 the overhead is 0.93 %; a sharp period needs ln 101 = 4.615",
        ),
        claim("5.3", "by what factor the period is shorter at 1 %", 10.0, Meant::MoreThan, explicit_one / one, ""),
        claim(
            "abstract",
            "by what factor the period is shorter at 1 %",
            50.0,
            Meant::Within(5.0),
            explicit_one / one,
            "the abstract is not in agreement with section 5.3, whose own 100 and 4.7 give 21; 50 is reached at about 0.35 % overhead",
        ),
        claim("5.3", "τρ for 0.1 % overhead with explicit renewal", 1_000.0, exact(1_000.0), explicit_tenth, ""),
        claim("5.3", "τρ for 0.1 % overhead", 7.0, Meant::Within(0.5), tenth, "to one digit; 6.94, and 6.91 for a sharp period"),
        claim("5.3", "by what factor the period is shorter at 0.1 %", 140.0, Meant::MoreThan, explicit_tenth / tenth, ""),
        claim(
            "1",
            "seconds of lease at 10 requests a second for the overhead of an explicit lease of 10 s",
            1.0,
            Meant::LessThan,
            period_of(1.0 / (10.0 * 10.0))? / 10.0,
            "",
        ),
    ])
}

fn availability_claims() -> Result<Vec<Claim>, Invalid> {
    // λτ = 0.01: outages are rare beside lease periods.
    let lease = |rho, mu| Lease { tau: 1.0, rho, lambda: 0.01, mu, sigma: Explicit::AtOnce, stages: Stages::PAPER };
    let unavailable = |rho, mu| Ok::<_, Invalid>(lease(rho, mu).solve()?.unavailability().rounded());
    let gain = |mu: f64| Ok::<_, Invalid>(unavailable(0.0, mu)? / unavailable(10.0, mu)?);
    let states = chain(&lease(0.0, 2.0))?;
    let spread = |of: &[crate::Magnitude]| of.last().zip(of.first()).map_or(0.0, |(last, first)| (*last / *first).rounded());
    // Of the time in which the network is out, the share with data; requests so many that a lease has just been renewed when it fails.
    let outages = 0.01 / (0.01 + 3.0);
    let masked = 1.0 - unavailable(1e3, 3.0)? / outages;
    let busy = chain(&lease(10.0, 2.0))?;
    // By how much a state is more probable than the next, at least.
    let falls = |of: &[crate::Magnitude]| of.windows(2).map(|pair| (pair[0] / pair[1]).rounded()).fold(f64::INFINITY, f64::min);
    let unequal = "not all: a renewed lease begins with a working network (S₁), and the network fails later. F₁ is nearly empty, and Fᵢ/Sᵢ grows \
                   towards λ/μ; only the sums Sᵢ + Fᵢ are equal. The S states alone are nearly so while λ is small";
    let rises = "a renewed lease begins with a working network, so F₁ is nearly empty: Pr(Fᵢ) grows up to i = 137 of 676, and Pr(F₁) is 0.086 of \
                 Pr(F_k)";
    Ok(vec![
        words("5.4", "unavailability of explicit over opportunistic renewal at ρτ = 10, μτ = 2", 1.0, Meant::MoreThan, gain(2.0)?, ""),
        words(
            "5.4",
            "the same at ρτ = 10 over ρτ = 5: more requests, more gain",
            1.0,
            Meant::MoreThan,
            unavailable(5.0, 2.0)? / unavailable(10.0, 2.0)?,
            "",
        ),
        words("5.4", "the gain at μτ = 5 over that at μτ = 1: more with quick repair", 1.0, Meant::MoreThan, gain(5.0)? / gain(1.0)?, ""),
        words(
            "5.4",
            "opportunistic renewal makes lower S states more probable: the least Pr(Sᵢ)/Pr(Sᵢ₊₁) (ρτ = 10, λτ = 0.01, μτ = 2)",
            1.0,
            Meant::MoreThan,
            falls(&busy.up),
            "",
        ),
        words("5.4", "and lower F states: the least Pr(Fᵢ)/Pr(Fᵢ₊₁) (the same)", 1.0, Meant::MoreThan, falls(&busy.down), rises),
        words(
            "5.4",
            "explicit renewal: Pr(S_k)/Pr(S₁), all S states being equal (λτ = 0.01, μτ = 2)",
            1.0,
            Meant::Within(0.05),
            spread(&states.up),
            "",
        ),
        words(
            "5.4",
            "explicit renewal: Pr(F_k)/Pr(F₁), all F states being equal (the same)",
            1.0,
            Meant::Within(0.05),
            spread(&states.down),
            unequal,
        ),
        words(
            "5.4",
            "share of the time of outages that leases of three mean repair times bridge: several times makes data available",
            0.9,
            Meant::MoreThan,
            masked,
            "",
        ),
    ])
}

fn load_claims() -> Vec<Claim> {
    let alone = TABLE_2;
    let shared = System::shared_by(10.0);
    let traffic = |system: &System, term| system.relative_traffic(term, CONSISTENCY_SHARE);
    // Longer than any time of the model, and 1/t beyond the last digit.
    let for_ever = 1e18;
    let over_infinite = |system: &System| (traffic(system, 10.0) / traffic(system, for_ever) - 1.0) * 100.0;
    vec![
        claim(
            "3.2",
            "consistency load at a term of 10 s, S = 1, % of that at zero",
            10.0,
            Meant::Within(0.5),
            alone.relative_load(10.0) * 100.0,
            "",
        ),
        claim(
            "3.2",
            "all traffic saved by it, %, consistency being 30 % of it",
            27.0,
            Meant::Within(0.5),
            (1.0 - traffic(&alone, 10.0)) * 100.0,
            "",
        ),
        claim("3.2", "all traffic above that of an infinite term, %", 4.5, Meant::Within(0.05), over_infinite(&alone), ""),
        claim("7", "the same: within %", 5.0, Meant::LessThan, over_infinite(&alone), ""),
        claim("3.2", "all traffic saved by 10 s with S = 10, %", 20.0, Meant::Within(0.5), (1.0 - traffic(&shared, 10.0)) * 100.0, ""),
        claim("3.2", "all traffic above that of an infinite term with S = 10, %", 4.1, Meant::Within(0.05), over_infinite(&shared), ""),
        words(
            "3.1",
            "load of a term that leaves no time at the cache, S = 10, over that of the term zero",
            1.0,
            Meant::MoreThan,
            shared.relative_load(0.05),
            "",
        ),
        words(
            "3.2",
            "most of the gain of a term without end by one of a few seconds: the share of it at 3 s, S = 1",
            0.5,
            Meant::MoreThan,
            (1.0 - alone.relative_load(3.0)) / (1.0 - alone.relative_load(for_ever)),
            "",
        ),
    ]
}

fn delay_claims() -> Vec<Claim> {
    let far = TABLE_2.with_round_trip(FIGURE_3_ROUND_TRIP);
    let percent = |term| far.delay(term) / far.round_trip() * 100.0;
    let of_round_trip = "so the paper's percentages are of a round trip: 10.06 ms of 100 ms are added, and none with an infinite term";
    let apart = (System::shared_by(40.0).delay(10.0) - TABLE_2.delay(10.0)) / TABLE_2.delay(0.0) * 100.0;
    vec![
        claim("3.3", "delay at 10 s over an infinite term, round trip 100 ms, %", 10.1, Meant::Within(0.05), percent(10.0), of_round_trip),
        claim("3.3", "delay at 30 s over an infinite term, %", 3.6, Meant::Within(0.05), percent(30.0), ""),
        words(
            "3.2",
            "figure 2: S = 1 and S = 40 cannot be told apart: their distance, % of the delay at zero",
            5.0,
            Meant::LessThan,
            apart,
            "W·t_a/(R+W) with S = 40 is 0.54 ms of 2.87 ms: by formula (2) and table 2 they can, unless the figure's scale is much larger, or \
             table 2 is misread: with m_proc = 0.025 ms it is 6.6 %",
        ),
    ]
}

/// The state counts of the OR paper are far within what is solved here.
const _: () = assert!(STAGES_MAX >= 10_000 && matches!(Stages::PAPER, Stages::Erlang(676)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdicts_are_those_that_the_documentation_gives() {
        let all = all().unwrap();
        let differing = |kind| all.iter().filter(move |claim| claim.verdict == Verdict::Differs && claim.kind == kind);
        let told = |kind| differing(kind).map(|claim| (claim.paper, claim.section, claim.stated)).collect::<Vec<_>>();
        assert_eq!(told(Kind::Number), [("OR", "5.1", 676.0), ("OR", "5.3", 2.0), ("OR", "5.3", 4.7), ("OR", "abstract", 50.0)]);
        assert_eq!(told(Kind::Words), [("OR", "5.3", 1.1), ("OR", "5.4", 1.0), ("OR", "5.4", 1.0), ("V", "3.2", 5.0)]);
        assert!(all.iter().all(|claim| claim.verdict == Verdict::Reproduced || !claim.why.is_empty()), "a difference has its reason");
        let count = |kind| all.iter().filter(|claim| claim.kind == kind).count();
        assert_eq!((count(Kind::Number), count(Kind::Words)), (26, 14));
        let manual = include_str!("../../../docs/models.md");
        assert!(manual.contains("22 of 26 numbers") && manual.contains("10 of 14 statements"), "the manual counts otherwise");
    }

    /// The reasons say numbers, too.
    #[test]
    fn the_reasons_are_true() {
        assert!((overhead_at(4.7).unwrap() - 0.0093).abs() < 5e-5);
        assert!((period_of(0.003_5).unwrap() * 50.0 * 0.003_5 - 1.0).abs() < 0.02, "50 at 0.35 %");
        for (x, gain) in [(0.25, 1.14), (0.5, 1.30), (1.0, 1.72)] {
            assert!((explicit_at(x).unwrap() / overhead_at(x).unwrap() - gain).abs() < 5e-3, "{x}");
        }
        let busy = chain(&Lease { tau: 1.0, rho: 10.0, lambda: 0.01, mu: 2.0, sigma: Explicit::AtOnce, stages: Stages::PAPER }).unwrap();
        let most = (0..busy.down.len()).max_by(|a, b| busy.down[*a].rounded().total_cmp(&busy.down[*b].rounded())).unwrap();
        assert_eq!((most + 1, busy.down.len()), (137, 676));
        assert!(((busy.down[0] / busy.down[675]).rounded() - 0.086).abs() < 5e-4);
        let added = System::shared_by(40.0).delay(10.0) - TABLE_2.delay(10.0);
        assert!((added * 1e3 - 0.54).abs() < 5e-3 && (TABLE_2.delay(0.0) * 1e3 - 2.87).abs() < 5e-3);
        let quick = |sharing| System { processing: 0.000_025, ..System::shared_by(sharing) };
        let apart = (quick(40.0).delay(10.0) - quick(1.0).delay(10.0)) / quick(1.0).delay(0.0) * 100.0;
        assert!((apart - 6.6).abs() < 0.05, "{apart}");
        let states = chain(&Lease { tau: 1.0, rho: 0.0, lambda: 0.01, mu: 2.0, sigma: Explicit::AtOnce, stages: Stages::PAPER }).unwrap();
        for (up, down) in states.up.iter().zip(&states.down) {
            let sum = (*up + *down).rounded();
            let first = (states.up[0] + states.down[0]).rounded();
            assert!((sum / first - 1.0).abs() < 1e-12, "the sums are equal");
        }
    }

    /// Nothing that the V paper prints tells whether table 2's times of messages were read rightly; docs/models.md says so.
    #[test]
    fn the_numbers_of_the_v_paper_say_nothing_about_the_times_of_messages() {
        let printed = |times: f64| {
            let of = |sharing| {
                let system = System::shared_by(sharing);
                System { propagation: system.propagation * times, processing: system.processing * times, ..system }
            };
            let traffic = |sharing, term| of(sharing).relative_traffic(term, CONSISTENCY_SHARE);
            let far = of(1.0).with_round_trip(FIGURE_3_ROUND_TRIP);
            [
                of(1.0).relative_load(10.0) * 100.0,
                (1.0 - traffic(1.0, 10.0)) * 100.0,
                (traffic(1.0, 10.0) / traffic(1.0, 1e18) - 1.0) * 100.0,
                (1.0 - traffic(10.0, 10.0)) * 100.0,
                (traffic(10.0, 10.0) / traffic(10.0, 1e18) - 1.0) * 100.0,
                far.delay(10.0) / far.round_trip() * 100.0,
                far.delay(30.0) / far.round_trip() * 100.0,
            ]
        };
        let usual = printed(1.0);
        for times in [0.1, 10.0] {
            for (ours, usual) in printed(times).iter().zip(usual) {
                assert!((ours - usual).abs() < 0.02, "{ours} and {usual}");
            }
        }
    }
}
