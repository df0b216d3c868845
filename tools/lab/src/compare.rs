//! Lease protocols beside each other: `cistern-lab compare`.
//!
//! Decides: columns and words, and which simulated agents stand for which protocol. Leaves to others: what each protocol costs
//! (`cistern_model::schemes`), the simulation (`simulated`).

use crate::args::Compare;
use crate::requests::Arrivals;
use crate::show::{Failure, line, refused_for, show, table};
use crate::simulated::{Policy, Scene, simulate};
use crate::single::decades;
use cistern_model::renewal::Parts;
use cistern_model::schemes::{self, Cluster, Cost};
use cistern_model::{Invalid, Magnitude};
use cistern_picture::{Axis, Curve, Figure, Mark};
use cistern_text::{digits, row};
use serde::Serialize;

/// Requests of a simulated agent; how many renewals there must be among them for the result to say something (10 % off by chance), and
/// how many of its longest terms it must go on for, as it begins without a lease.
const SIMULATED: u64 = 200_000;
const ENOUGH: u64 = 100;
const TERMS: f64 = 10.0;

/// Most objects of a simulated agent.
const OBJECTS_MAX: f64 = 1e6;

/// Which flags make the quantities that models refuse.
const FLAGS: &[(&str, &str)] = &[
    ("ρτ", "--rate, --lease"),
    ("λτ", "--fail-every, --lease"),
    ("μτ", "--repair, --lease"),
    ("στ", "--reads, --objects, --volumes, --lease, --long-term"),
    ("the number of volumes", "--volumes, --objects"),
];

/// A protocol's costs, and its messages as simulated, if enough of them were seen.
#[derive(Serialize)]
struct Compared {
    #[serde(flatten)]
    cost: Cost,
    messages_simulated: Option<f64>,
}

pub(crate) fn compare(args: &Compare) -> Result<(), Failure> {
    let costs = cluster(args, args.lease).compare().map_err(refused_for(FLAGS))?;
    let simulated = costs.iter().map(|cost| messages_simulated(args, cost.name, args.lease, SIMULATED)).collect::<Result<Vec<_>, _>>();
    let simulated = simulated.map_err(refused_for(FLAGS))?;
    let all: Vec<Compared> =
        costs.iter().cloned().zip(simulated).map(|(cost, messages_simulated)| Compared { cost, messages_simulated }).collect();
    let mut rows = vec![row([
        &"protocol",
        &"messages_per_s",
        &"messages_simulated_per_s",
        &"records",
        &"bytes",
        &"timers",
        &"recovery_mean_s",
        &"recovery_most_s",
        &"unavailable",
    ])];
    for Compared { cost, messages_simulated } in &all {
        let Cost { name, messages, records, bytes, timers, recovery_mean, recovery_most, unavailable, .. } = cost;
        let simulated = messages_simulated.map_or_else(String::new, |number| number.to_string());
        rows.push(row([name, &digits(messages), &simulated, records, bytes, timers, recovery_mean, recovery_most, &digits(unavailable)]));
    }
    show(
        &args.shown,
        &all,
        &rows,
        || picture(args),
        || {
            line(format!(
                "{} agents with {} objects each, τ = {} s; an agent reads an object {} times and sends {} other requests a second:\n",
                args.agents, args.objects, args.lease, args.reads, args.rate
            ))?;
            let mut columns = schemes::columns(&costs);
            let simulated =
                all.iter().map(|row| row.messages_simulated.map_or_else(|| "too few".to_owned(), |n| Magnitude::new(n).to_string()));
            for (cells, cell) in columns.iter_mut().zip(std::iter::once("simulated".to_owned()).chain(simulated)) {
                cells.insert(2, cell);
            }
            table(&columns)?;
            line(
                "\nMessages are those that the server sends or receives for leases, two for a renewal. Locks cost records in all of them.",
            )?;
            line(
                "A write of what S agents have cached is approved besides: by S messages with multicast (V), 2(S−1) one by one, 3(S−1)+1 by demands \
                 (Cistern).",
            )?;
            line("Recovery is from the failure; with OR from the first message that goes unanswered, as the server notes no times.")
        },
    )
}

/// Messages a second by agents that follow the protocol's policy; `None` where too few were seen, or no agent could be so large.
fn messages_simulated(args: &Compare, protocol: &str, tau: f64, requests: u64) -> Result<Option<f64>, Invalid> {
    if args.objects.max(args.volumes) > OBJECTS_MAX {
        return Ok(None);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a million, and checked to be above zero")]
    let [objects, volumes] = [args.objects, args.volumes].map(|count| count.ceil() as u32);
    let (policy, rho) = match protocol {
        "per-object" => (Policy::OnRead { leases: objects }, args.reads * args.objects),
        "batched" => (Policy::OnRead { leases: 1 }, args.reads * args.objects),
        "volume" => (Policy::Volumes { objects, volumes, long_term: args.long_term }, args.reads * args.objects),
        "heartbeat" => (Policy::Heartbeat(Parts::AGENT), args.rate),
        _ => (Policy::Opportunistic(Parts::AGENT), args.rate),
    };
    let (lambda, mu) = (1.0 / args.network.fail_every, 1.0 / args.network.repair);
    let counted = simulate(&Scene { policy, arrivals: Arrivals::Poisson, rho, tau, lambda, mu }, requests, 1)?;
    let longest = if let Policy::Volumes { long_term, .. } = policy { long_term.max(tau) } else { tau };
    Ok((counted.renewals >= ENOUGH && counted.time >= TERMS * longest).then(|| counted.renewals_per_time() * 2.0 * args.agents))
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
        parts: Parts::AGENT,
        failures: 1.0 / args.network.fail_every,
        repairs: 1.0 / args.network.repair,
        delivery_timeout: config.delivery_timeout.as_secs_f64(),
        delta: f64::from(config.delta_ppm) / 1e6,
    }
}

pub(crate) fn picture(args: &Compare) -> Result<Figure, Invalid> {
    let x = Axis::log("lease period τ, s", args.lease / 20.0, args.lease * 20.0);
    let mut curves: Vec<Curve> = Vec::new();
    for tau in x.places(120) {
        for (i, cost) in cluster(args, tau).compare()?.into_iter().enumerate() {
            if i == curves.len() {
                curves.push(Curve { name: cost.what.to_owned(), points: vec![] });
            }
            curves[i].points.push((tau, cost.messages.rounded()));
        }
    }
    let mut marks = Vec::new();
    for tau in x.places(5) {
        for cost in cluster(args, tau).compare()? {
            let y = messages_simulated(args, cost.name, tau, SIMULATED / 2)?;
            marks.extend(y.map(|y| Mark { of: "simulated".to_owned(), x: tau, y }));
        }
    }
    Ok(Figure {
        title: format!("Messages for leases at the server, {} agents with {} objects", args.agents, args.objects),
        x,
        y: decades("messages per second", &curves),
        curves,
        marks,
        notes: vec![],
    })
}
