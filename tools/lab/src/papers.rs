//! What the papers show and say: `cistern-lab figure`, `gc-figure` and `table`.
//!
//! Decides: how a figure is told without a picture, and the table of claims with its verdicts. Leaves to others: figures and claims.

use crate::args::{GcFigure, OrFigure, Shown, Table};
use crate::figures;
use crate::show::{self, Failure, line, refused, show};
use cistern_model::claims::{self, Claim, Kind, Verdict};
use cistern_model::{Invalid, Magnitude};
use cistern_picture::{Axis, Figure, Mark};
use cistern_text::row;

pub(crate) fn or_figure(args: &OrFigure) -> Result<(), Failure> {
    figure(&args.shown, if args.number == 7 { figures::overhead() } else { figures::availability() })
}

pub(crate) fn v_figure(args: &GcFigure) -> Result<(), Failure> {
    let drawn = match args.number {
        1 => figures::v_load(),
        2 => figures::v_delay(),
        _ => figures::v_far_delay(),
    };
    figure(&args.shown, drawn)
}

fn figure(shown: &Shown, figure: Result<Figure, Invalid>) -> Result<(), Failure> {
    let figure = figure.map_err(refused)?;
    let mut rows = vec![row([&"curve", &"x", &"y"])];
    for curve in &figure.curves {
        rows.extend(curve.points.iter().map(|(x, y)| row([&curve.name, x, y])));
    }
    rows.extend(figure.marks.iter().map(|mark| row([&mark.of, &mark.x, &mark.y])));
    show(shown, &figure, &rows, || Ok(figure.clone()), || in_words(&figure))
}

/// Some columns of a figure, for a terminal.
fn in_words(figure: &Figure) -> Result<(), Failure> {
    line(format!("{}\n", figure.title))?;
    let Some(first) = figure.curves.first() else { return Ok(()) };
    // About a dozen places along the figure.
    let every = first.points.len().div_ceil(12).max(1);
    let mut head = vec![figure.x.label.split(',').next().unwrap_or_default().to_owned()];
    head.extend(figure.curves.iter().map(|curve| curve.name.clone()));
    let mut rows = vec![head];
    for (i, (x, _)) in first.points.iter().enumerate().step_by(every) {
        let ys = figure.curves.iter().filter_map(|curve| curve.points.get(i)).map(|(_, y)| Magnitude::new(*y).to_string());
        rows.push(std::iter::once(format!("{x:.2}")).chain(ys).collect());
    }
    show::table(&rows)?;
    line(format!("\nDown the columns: {}.", figure.y.label))?;
    if let Some(mark) = figure.marks.first() {
        let points: Vec<_> = figure.marks.iter().map(|mark| format!("({}, {})", mark.x, Magnitude::new(mark.y))).collect();
        line(format!("Points {}: {}", mark.of, points.join(" ")))?;
    }
    for note in &figure.notes {
        line(note)?;
    }
    line("--svg FILE draws it, --csv and --json print all points.")
}

pub(crate) fn table(args: &Table) -> Result<(), Failure> {
    let claims = claims::all().map_err(refused)?;
    let mut rows =
        vec![row([&"number", &"paper", &"section", &"claim", &"kind", &"relation", &"paper_value", &"our_value", &"verdict", &"why"])];
    for (number, claim) in (1..).zip(&claims) {
        let Claim { paper, section, claim: what, kind, stated, relation, ours, why, .. } = claim;
        let kind = if *kind == Kind::Number { "number" } else { "words" };
        rows.push(row([&number as &dyn ToString, paper, section, what, &kind, relation, stated, ours, &word(claim.verdict), why]));
    }
    show(&args.shown, &claims, &rows, || Ok(picture(&claims)), || claims_in_words(&claims))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "reproduced",
        Verdict::Differs => "differs",
    }
}

fn claims_in_words(claims: &[Claim]) -> Result<(), Failure> {
    let mut last = "";
    for (number, claim) in (1..).zip(claims) {
        if claim.paper != last {
            last = claim.paper;
            let name = match last {
                "OR" => "Burns, Rees, Long: An Analytical Study of Opportunistic Lease Renewal (ICDCS 2001)",
                _ => "Gray, Cheriton: Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency (SOSP 1989)",
            };
            line(format!("{}{name}", if number > 1 { "\n" } else { "" }))?;
        }
        let relation = if claim.relation == "=" { "" } else { claim.relation };
        let (paper, ours) = (Magnitude::new(claim.stated), Magnitude::new(claim.ours));
        line(format!("{number:>3}  {:<10}  {}: {}", word(claim.verdict), claim.section, claim.claim))?;
        let asked = if claim.kind == Kind::Number { "paper" } else { "taken as" };
        line(format!("                 {asked} {relation}{paper}, here {ours}{}", because(claim)))?;
    }
    let count = |kind| {
        let of_it = || claims.iter().filter(move |claim| claim.kind == kind);
        (of_it().filter(|claim| claim.verdict == Verdict::Reproduced).count(), of_it().count())
    };
    let ((numbers, of_numbers), (said, of_words)) = (count(Kind::Number), count(Kind::Words));
    line(format!("\n{numbers} of {of_numbers} numbers that the papers print come out, {} differ.", of_numbers - numbers))?;
    line(format!("{said} of {of_words} statements in words come out; the thresholds of these are chosen here."))
}

fn because(claim: &Claim) -> String {
    if claim.why.is_empty() { String::new() } else { format!("; {}", claim.why) }
}

/// Each statement as a point: what comes out here beside what the paper says.
pub(crate) fn picture(claims: &[Claim]) -> Figure {
    let of = |claim: &Claim| match (claim.verdict, claim.relation) {
        (Verdict::Differs, _) => "differs",
        _ if claim.kind == Kind::Words => "statement in words, holds",
        (_, "=") => "reproduced",
        _ => "within the paper's bound",
    };
    let marks: Vec<_> = (1u32..)
        .zip(claims)
        .map(|(number, claim)| Mark { of: of(claim).to_owned(), x: f64::from(number), y: claim.ours / claim.stated })
        .collect();
    let top = marks.iter().map(|mark| mark.y).fold(10.0, f64::max).log10().ceil();
    let bottom = marks.iter().map(|mark| mark.y).fold(0.1, f64::min).log10().floor();
    let last = marks.last().map_or(1.0, |mark| mark.x + 1.0);
    Figure {
        title: "The papers' numbers: what comes out here beside what they say".to_owned(),
        x: Axis::linear("number of the statement in `cistern-lab table`", 0.0, last),
        y: Axis::log("our value / the paper's value", 10f64.powf(bottom), 10f64.powf(top)),
        curves: vec![],
        marks,
        notes: vec![],
    }
}
