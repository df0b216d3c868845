//! One lease term of the V paper with the parameters that are given: `cistern-lab gc`.
//!
//! Decides: what a person is told beside the numbers. Leaves to others: the formulas (`cistern_model::v`).

use crate::args::{Asking, Gc};
use crate::show::{Failure, line, refused, show, table};
use cistern_model::v::{Approval, System, TABLE_2};
use cistern_model::{Invalid, Magnitude};
use cistern_picture::{Axis, Curve, Figure, Mark};
use cistern_text::row;
use serde::Serialize;

#[derive(Serialize)]
struct TermCosts {
    term_s: f64,
    /// Messages for consistency at the server.
    load_per_s: f64,
    /// The same with the term zero.
    load_without_per_s: f64,
    /// Mean delay that consistency adds to a read or write; of reads and writes of installed files nothing is known.
    delay_s: f64,
    approval_messages: f64,
    approval_time_s: f64,
    /// α; `null`: writes need no approval.
    benefit: Option<f64>,
    /// The shortest term that is less load than none; `null`: there is none.
    break_even_term_s: Option<f64>,
}

pub(crate) fn term(args: &Gc) -> Result<(), Failure> {
    let system = system(args);
    system.check().map_err(refused)?;
    let answer = TermCosts {
        term_s: args.term,
        load_per_s: load(args, &system, args.term),
        load_without_per_s: system.load(0.0),
        delay_s: system.delay(args.term),
        approval_messages: system.approval_messages(),
        approval_time_s: system.approval_time(),
        benefit: Some(system.benefit()).filter(|benefit| benefit.is_finite()),
        break_even_term_s: system.break_even().map(|cache| cache + system.propagation + 2.0 * system.processing + system.clocks),
    };
    let text = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    let rows = [
        row([
            &"term_s",
            &"load_per_s",
            &"load_without_per_s",
            &"delay_s",
            &"approval_messages",
            &"approval_time_s",
            &"benefit",
            &"break_even_term_s",
        ]),
        row([
            &answer.term_s,
            &answer.load_per_s,
            &answer.load_without_per_s,
            &answer.delay_s,
            &answer.approval_messages,
            &answer.approval_time_s,
            &text(answer.benefit),
            &text(answer.break_even_term_s),
        ]),
    ];
    show(&args.shown, &answer, &rows, || picture(args, &system), || in_words(args, &answer))
}

fn system(args: &Gc) -> System {
    let approval = match args.approval {
        Asking::Multicast => Approval::Multicast,
        Asking::Unicast => Approval::Unicast,
        Asking::Demand => Approval::Demand,
    };
    System { clients: args.clients, reads: args.reads, writes: args.writes, sharing: args.sharing, approval, ..TABLE_2 }
}

fn load(args: &Gc, system: &System, term: f64) -> f64 {
    match args.installed {
        Some(share) => system.load_with_installed(term, share, args.every.unwrap_or(term)),
        None => system.load(term),
    }
}

fn in_words(args: &Gc, answer: &TermCosts) -> Result<(), Failure> {
    let number = |n: f64| Magnitude::new(n).to_string();
    line(format!(
        "{} caches, each with {} reads and {} writes a second, what is written is shared by {}; leases of {} s.\n",
        args.clients, args.reads, args.writes, args.sharing, args.term
    ))?;
    let part = number(answer.load_per_s / answer.load_without_per_s * 100.0);
    table(&[
        row([
            &"  messages for consistency at the server",
            &format!("{}/s", number(answer.load_per_s)),
            &format!("{part} % of those without leases"),
        ]),
        row([
            &"  delay that consistency adds",
            &format!("{} ms", number(answer.delay_s * 1e3)),
            &"mean of reads and writes that are not of installed files",
        ]),
        row([&"  messages to approve a write", &number(answer.approval_messages), &format!("{} ms", number(answer.approval_time_s * 1e3))]),
        row([
            &"  lease benefit factor α",
            &answer.benefit.map_or_else(|| "infinite".to_owned(), number),
            &answer.break_even_term_s.map_or_else(
                || "no term is less load than none".to_owned(),
                |term| format!("terms above {} s are less load than none", number(term)),
            ),
        ]),
    ])?;
    match args.installed {
        Some(share) => line(format!(
            "\n{} % of the reads are of installed files: one multicast every {} s extends their leases for all caches, however many. A write of one\n\
             waits until the lease is over, and costs no message.",
            share * 100.0,
            args.every.unwrap_or(args.term)
        )),
        None => Ok(()),
    }
}

fn picture(args: &Gc, system: &System) -> Result<Figure, Invalid> {
    let to = (args.term * 3.0).max(1.0);
    let xs = Axis::linear("", to / 240.0, to).places(240);
    let curves = vec![
        Curve::of("with leases of the term", &xs, |term| Ok(load(args, system, term)))?,
        Curve::of("without leases", &xs, |_| Ok(system.load(0.0)))?,
    ];
    let most = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max);
    Ok(Figure {
        title: format!("Messages for consistency, {} caches, what is written is shared by {}", args.clients, args.sharing),
        x: Axis::linear("lease term, s", 0.0, to),
        y: Axis::linear("messages at the server a second", 0.0, most * 1.1),
        curves,
        marks: vec![Mark { of: "asked for".to_owned(), x: args.term, y: load(args, system, args.term) }],
        notes: vec![],
    })
}
