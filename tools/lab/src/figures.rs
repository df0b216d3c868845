//! The data of the papers' figures, and of the pictures beside the project's own answers.
//!
//! Decides: which curves a figure has, over which range, and which points of it the paper's text gives. Of the figures themselves only the
//! captions and what the text says of them can be read in the scans at hand; parameters that the paper does not give are chosen here and
//! said in the notes. Leaves to others: how it is drawn (`cistern_picture`), the models.

use cistern_model::Invalid;
use cistern_model::renewal::{Explicit, Lease, Parts, Stages};
use cistern_model::v::{CONSISTENCY_SHARE, FIGURE_3_ROUND_TRIP, System};
use cistern_picture::{Axis, Curve, Figure, Mark};

/// Points in a curve: a line of 700 pixels needs no more.
const POINTS: u32 = 241;

/// A lease of τ = 1 with the rates of the OR paper's figures, which are all relative to τ.
fn unit(rho: f64, lambda: f64, mu: f64, stages: Stages) -> Lease {
    Lease { tau: 1.0, rho, lambda, mu, sigma: Explicit::AtOnce, stages }
}

/// Figure 7 of the OR paper: renewal message overhead.
pub(crate) fn overhead() -> Result<Figure, Invalid> {
    let x = Axis::linear("lease period τρ, in mean times between messages", 0.0, 12.0);
    let xs = Axis::linear("", 0.05, 12.0).places(POINTS);
    let curve = |name, f: fn(Lease) -> Lease, parts: Parts, stages| {
        Curve::of(name, &xs, |x| {
            let lease = f(unit(x, 0.0, 0.0, stages));
            let solution = if parts == Parts::PAPER { lease.solve()? } else { lease.solve_early(parts)? };
            Ok(solution.overhead(x).rounded())
        })
    };
    let mark = |x, y| Mark { of: "in the paper's text".to_owned(), x, y };
    Ok(Figure {
        title: "Renewal messages per ordinary message (OR paper, figure 7)".to_owned(),
        x,
        y: Axis::log("explicit renewals per message, σ·Pr(Sx)/ρ", 1e-6, 1e2),
        curves: vec![
            curve("explicit, renewed when over", Lease::explicit, Parts::PAPER, Stages::PAPER)?,
            curve("explicit, renewed from 0.6 τ", Lease::explicit, Parts::AGENT, Stages::Sharp)?,
            curve("opportunistic, renewed from 0.6 τ", |lease| lease, Parts::AGENT, Stages::Sharp)?,
            curve("opportunistic, renewed when over", |lease| lease, Parts::PAPER, Stages::PAPER)?,
        ],
        marks: [(10.0, 0.1), (10.0, 5e-5), (2.4, 0.1), (4.7, 0.01), (7.0, 0.001)].map(|(x, y)| mark(x, y)).to_vec(),
        notes: vec![
            "No failures, renewals that take no time; the paper gives neither λ, μ nor σ for its figure. k = 676 for renewal when the period is \
             over, as in the paper; a period of exactly τ for renewal from 0.6 τ, as this project's agents do it."
                .to_owned(),
            "The paper's points at 4.7 and 7 are read from its chart: computed, they are at 4.63 and 6.94.".to_owned(),
        ],
    })
}

/// λτ in figure 8: an outage every hundred lease periods. The ratio of the curves hardly depends on it as long as it is small.
const FIGURE_8_FAILURES: f64 = 0.01;

/// Figure 8 of the OR paper: client data availability.
pub(crate) fn availability() -> Result<Figure, Invalid> {
    let x = Axis::linear("repair rate μτ, in lease periods", 0.0, 10.0);
    let xs = Axis::linear("", 0.1, 10.0).places(POINTS);
    let staged = |name: &str, rho: f64| {
        Curve::of(name, &xs, |mu| Ok(unit(rho, FIGURE_8_FAILURES, mu, Stages::PAPER).solve()?.unavailability().rounded()))
    };
    let agent = |name: &str, rho: f64| {
        Curve::of(name, &xs, |mu| Ok(unit(rho, FIGURE_8_FAILURES, mu, Stages::Sharp).solve_early(Parts::AGENT)?.unavailability().rounded()))
    };
    Ok(Figure {
        title: "Share of time without data (OR paper, figure 8)".to_owned(),
        x,
        y: Axis::log("data unavailable, Pr(Sx) + Pr(Fx)", 1e-8, 1.0),
        curves: vec![
            staged("explicit, renewed when over", 0.0)?,
            staged("opportunistic, ρτ = 2", 2.0)?,
            staged("opportunistic, ρτ = 5", 5.0)?,
            staged("opportunistic, ρτ = 20", 20.0)?,
            agent("this agent, ρτ = 5: renews from 0.6 τ, stops at 0.8 τ", 5.0)?,
        ],
        marks: vec![],
        notes: vec![
            "λτ = 0.01, k = 676, renewals that take no time; the paper's text gives no parameter and no point of this figure.".to_owned(),
            "A network that is mended at the rate μτ = 2 is out for half a lease period at a time.".to_owned(),
        ],
    })
}

/// Caches that share what is written, in the V paper's figures.
const SHARING: [f64; 4] = [1.0, 10.0, 20.0, 40.0];

/// Figures 1 to 3 of the V paper are over terms of up to 30 s.
fn terms() -> (Axis, Vec<f64>) {
    (Axis::linear("lease term, s", 0.0, 30.0), Axis::linear("", 0.0, 30.0).places(POINTS))
}

fn by_sharing(of: impl Fn(&System, f64) -> f64) -> Result<Vec<Curve>, Invalid> {
    let (_, xs) = terms();
    SHARING.iter().map(|s| Curve::of(&format!("S = {s}"), &xs, |term| Ok(of(&System::shared_by(*s), term)))).collect()
}

/// Figure 1 of the V paper: relative server consistency load over the lease term.
pub(crate) fn v_load() -> Result<Figure, Invalid> {
    let mark = |x, y| Mark { of: "from the paper's text".to_owned(), x, y };
    Ok(Figure {
        title: "Messages for consistency at the server (V paper, figure 1)".to_owned(),
        x: terms().0,
        y: Axis::linear("load beside that of the term zero", 0.0, 2.0),
        curves: by_sharing(System::relative_load)?,
        marks: vec![mark(10.0, 0.1), mark(10.0, 1.0 - 0.2 / CONSISTENCY_SHARE)],
        notes: vec![
            "Formula (1) with table 2. The point for S = 10 follows from \"total server traffic is 20 % less\", of which consistency is 30 %."
                .to_owned(),
            "The paper's curve \"Trace\" cannot be computed: its trace was not published.".to_owned(),
        ],
    })
}

/// Figure 2 of the V paper: delay due to consistency.
pub(crate) fn v_delay() -> Result<Figure, Invalid> {
    Ok(Figure {
        title: "Delay that consistency adds to a read or write (V paper, figure 2)".to_owned(),
        x: terms().0,
        y: Axis::linear("added delay, ms", 0.0, 4.0),
        curves: by_sharing(|system, term| system.delay(term) * 1e3)?,
        marks: vec![],
        notes: vec!["Formula (2) with table 2. The paper's text gives no point of this figure.".to_owned()],
    })
}

/// Figure 3 of the V paper: added delay with a round trip of 100 ms.
pub(crate) fn v_far_delay() -> Result<Figure, Invalid> {
    let mark = |x, y| Mark { of: "from the paper's text".to_owned(), x, y };
    Ok(Figure {
        title: "Added delay with a round trip of 100 ms (V paper, figure 3)".to_owned(),
        x: terms().0,
        y: Axis::linear("added delay, ms", 0.0, 110.0),
        curves: by_sharing(|system, term| system.with_round_trip(FIGURE_3_ROUND_TRIP).delay(term) * 1e3)?,
        marks: vec![mark(10.0, 10.1), mark(30.0, 3.6)],
        notes: vec![
            "Formula (2) with table 2 and m_prop = 49.5 ms. The paper's 10.1 % and 3.6 % are of a round trip, so they are milliseconds here."
                .to_owned(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a curve has near x.
    fn at(figure: &Figure, curve: usize, x: f64) -> f64 {
        let points = &figure.curves[curve].points;
        let right = points.iter().position(|point| point.0 >= x).unwrap().max(1);
        let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
        y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    }

    #[test]
    fn the_points_that_the_papers_state_are_on_the_curves() {
        let figure = overhead().unwrap();
        for (curve, mark, within) in [(0, 0, 0.01), (3, 1, 0.05), (3, 2, 0.02), (3, 3, 0.09), (3, 4, 0.06)] {
            let Mark { x, y, .. } = figure.marks[mark].clone();
            assert!((at(&figure, curve, x) / y - 1.0).abs() < within, "{x}: {} and {y}", at(&figure, curve, x));
        }
        let figure = v_load().unwrap();
        assert!((at(&figure, 0, 10.0) - 0.1).abs() < 0.005 && (at(&figure, 1, 10.0) - figure.marks[1].y).abs() < 0.005);
        let figure = v_far_delay().unwrap();
        assert!((at(&figure, 0, 10.0) - 10.1).abs() < 0.05 && (at(&figure, 0, 30.0) - 3.6).abs() < 0.05);
    }

    #[test]
    fn every_figure_has_all_its_points() {
        for figure in [overhead(), availability(), v_load(), v_delay(), v_far_delay()].map(Result::unwrap) {
            assert!(!figure.curves.is_empty());
            for curve in &figure.curves {
                assert_eq!(curve.points.len(), POINTS as usize, "{} of {}", curve.name, figure.title);
                assert!(curve.points.iter().all(|(x, y)| x.is_finite() && y.is_finite() && *y > 0.0));
            }
        }
    }

    #[test]
    fn more_requests_leave_less_time_without_data() {
        let figure = availability().unwrap();
        for x in [1.0, 3.0, 9.0] {
            assert!((0..3).all(|curve| at(&figure, curve, x) > at(&figure, curve + 1, x)));
        }
    }
}
