//! Lease protocols beside each other: `cistern model compare`, and the alternatives of a plan.
//!
//! Decides: columns and words. Leaves to others: what each protocol costs (`cistern_model::schemes`).

use super::shown::{digits, refused, row, show};
use super::single::decades;
use crate::args::model::Compare;
use crate::local::Failure;
use crate::show::line;
use cistern_model::figures::{AGENT, Axis, Curve, Figure};
use cistern_model::schemes::{Cluster, Cost};
use cistern_model::{Invalid, Magnitude};

pub(super) fn compare(args: &Compare) -> Result<(), Failure> {
    let costs = cluster(args, args.tau).compare().map_err(refused)?;
    let mut rows = vec![row([
        &"protocol",
        &"messages_per_s",
        &"records",
        &"bytes",
        &"timers",
        &"recovery_mean_s",
        &"recovery_most_s",
        &"unavailable",
    ])];
    for cost in &costs {
        let Cost { name, messages, records, bytes, timers, recovery_mean, recovery_most, unavailable, .. } = cost;
        rows.push(row([name, &digits(messages), records, bytes, timers, recovery_mean, recovery_most, &digits(unavailable)]));
    }
    show(
        &args.shown,
        &costs,
        &rows,
        || picture(args),
        || {
            line(format!(
                "{} agents with {} objects each, τ = {} s; an agent reads an object {} times and sends {} other requests a second:\n",
                args.agents, args.objects, args.tau, args.reads, args.rate
            ))?;
            crate::show::table(&costs_in_rows(&costs))?;
            line(
                "\nMessages are those that the server sends or receives for leases, two for a renewal. Locks cost records in all of them.",
            )?;
            line("Recovery is from the failure; with OR from the first message that goes unanswered, as the server notes no times.")
        },
    )
}

/// The costs as columns for people.
pub(crate) fn costs_in_rows(costs: &[Cost]) -> Vec<Vec<String>> {
    let head = row([&"protocol", &"messages/s", &"records", &"timers", &"recovery, s", &"without data", &""]);
    let cells = costs.iter().map(|cost| {
        let number = |n: f64| Magnitude::new(n).to_string();
        let recovery = format!("{:.2}, at most {:.2}", cost.recovery_mean, cost.recovery_most);
        row([&cost.name, &cost.messages, &cost.records, &number(cost.timers), &recovery, &cost.unavailable, &cost.what])
    });
    std::iter::once(head).chain(cells).collect()
}

fn cluster(args: &Compare, tau: f64) -> Cluster {
    // Delivery timeout and δ by default: those of the server's configuration.
    let config = cistern_server::Config::for_lease(std::time::Duration::try_from_secs_f64(tau).unwrap_or_default());
    Cluster {
        agents: args.agents,
        objects: args.objects,
        volumes: args.volumes,
        reads: args.reads,
        requests: args.rate,
        tau,
        long_term: args.long_term,
        parts: AGENT,
        failures: 1.0 / args.network.fail_every,
        repairs: 1.0 / args.network.repair,
        delivery_timeout: config.delivery_timeout.as_secs_f64(),
        delta: f64::from(config.delta_ppm) / 1e6,
    }
}

pub(super) fn picture(args: &Compare) -> Result<Figure, Invalid> {
    let x = Axis::log("lease period τ, s", args.tau / 20.0, args.tau * 20.0);
    let mut curves: Vec<Curve> = Vec::new();
    for tau in x.places(120) {
        for (i, cost) in cluster(args, tau).compare()?.into_iter().enumerate() {
            if i == curves.len() {
                curves.push(Curve { name: cost.what.to_owned(), points: vec![] });
            }
            curves[i].points.push((tau, cost.messages.rounded()));
        }
    }
    Ok(Figure {
        title: format!("Messages for leases at the server, {} agents with {} objects", args.agents, args.objects),
        x,
        y: decades("messages per second", &curves),
        curves,
        marks: vec![],
        notes: vec![],
    })
}
