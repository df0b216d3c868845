//! The command line of `cistern-lab`.
//!
//! Decides: names of commands and flags, their help, their examples. Leaves to others: what they do.

use cistern_text::quantity::{count, fraction, number, rate, time};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const HELP: &str = "\
The papers:
  OR  R. Burns, R. Rees, D. Long, An Analytical Study of Opportunistic Lease Renewal, ICDCS 2001
  V   C. Gray, D. Cheriton, Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency, SOSP 1989

Examples:
  cistern-lab overhead --tau-rho 10
  cistern-lab figure 7 --svg overhead.svg
  cistern-lab gc-figure 1 --csv > load.csv
  cistern-lab gc --term 10s --clients 100 --sharing 10 --approval unicast
  cistern-lab gc --term 10s --clients 100 --installed 50%
  cistern-lab table
  cistern-lab availability --lambda 1/h --mu 0.5/s --lease 2s --rho 10/s
  cistern-lab choose-k --delta 0.1 --epsilon 0.01
  cistern-lab compare --agents 100 --objects 1000
  cistern-lab simulate --svg simulated.svg
  cistern-lab measure --duration 20s --svg measured.svg

docs/models.md shows the pictures and says what they mean. Exit status: 0 success, 1 a picture cannot be written, 2 wrong usage.";

/// What the papers' models of leases give: overhead, availability, figures, claims
#[derive(Debug, Parser)]
#[command(name = "cistern-lab", version, after_help = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) model: Model,
}

/// How a result is shown.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shown {
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print comma-separated values, with a line of names first
    #[arg(long)]
    pub(crate) csv: bool,
    /// Draw the result, too, into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What the papers' models give.
#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Renewal messages per request, opportunistic and explicit (OR paper, section 5.3)
    Overhead(Overhead),
    /// Share of time without data, opportunistic and explicit (OR paper, section 5.4)
    Availability(Availability),
    /// How many states the chain needs (OR paper, section 5.1)
    ChooseK(ChooseK),
    /// The OR paper's figure 7 (overhead) or 8 (availability)
    Figure(OrFigure),
    /// The V paper's figure 1 (load), 2 (delay) or 3 (delay over 100 ms)
    GcFigure(GcFigure),
    /// Load and delay of one lease term (V paper, section 3.1), installed files and unicast approval included
    Gc(Gc),
    /// What the papers say in numbers, what comes out here, and the verdict
    Table(Table),
    /// Lease protocols beside each other, for a whole cluster
    Compare(Compare),
    /// The same quantities by simulation, beside what is solved: with random, bursty and traced requests
    Simulate(Simulate),
    /// Overhead on the real stack: a server and agents on loopback, their datagrams counted, beside what is solved and simulated
    Measure(Measure),
}

#[derive(Args, Debug)]
pub(crate) struct Overhead {
    /// The lease period in mean times between requests
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_hyphen_values = true)]
    pub(crate) tau_rho: f64,
    /// States of a lease period, 1 to 1,000,000
    #[arg(long, value_name = "COUNT", default_value_t = 676, value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_hyphen_values = true)]
    pub(crate) k: u32,
    /// Rate at which explicit renewals complete, as a multiple of ρ; without it they take no time
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_hyphen_values = true)]
    pub(crate) sigma: Option<f64>,
    /// Rate of failures of the network, as a multiple of ρ; without it it never fails
    #[arg(long, value_name = "NUMBER", value_parser = number, requires = "mu", allow_hyphen_values = true)]
    pub(crate) lambda: Option<f64>,
    /// Rate of repairs, as a multiple of ρ
    #[arg(long, value_name = "NUMBER", value_parser = number, requires = "lambda", allow_hyphen_values = true)]
    pub(crate) mu: Option<f64>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct Availability {
    /// Rate of failures of the network
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub(crate) lambda: f64,
    /// Rate of repairs of a failed network
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub(crate) mu: f64,
    /// Lease period
    #[arg(long, value_name = "DURATION", value_parser = time, allow_hyphen_values = true)]
    pub(crate) lease: f64,
    /// Rate of ordinary requests
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub(crate) rho: f64,
    /// Rate at which explicit renewals complete; without it they take no time
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub(crate) sigma: Option<f64>,
    /// States of a lease period, 1 to 1,000,000
    #[arg(long, value_name = "COUNT", default_value_t = 676, value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_hyphen_values = true)]
    pub(crate) k: u32,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct ChooseK {
    /// By what part a modelled period may miss τ
    #[arg(long, value_name = "FRACTION", value_parser = fraction, default_value = "0.1", allow_hyphen_values = true)]
    pub(crate) delta: f64,
    /// With what probability it may miss it by more
    #[arg(long, value_name = "FRACTION", value_parser = fraction, default_value = "0.01", allow_hyphen_values = true)]
    pub(crate) epsilon: f64,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct OrFigure {
    /// Its number
    #[arg(value_parser = clap::value_parser!(u8).range(7..=8))]
    pub(crate) number: u8,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct GcFigure {
    /// Its number
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) number: u8,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Lease term
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s", allow_hyphen_values = true)]
    pub(crate) term: f64,
    /// Caches
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1", allow_hyphen_values = true)]
    pub(crate) clients: f64,
    /// Caches that share what is written, the writer's included
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1", allow_hyphen_values = true)]
    pub(crate) sharing: f64,
    /// Reads of one cache
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "0.864/s", allow_hyphen_values = true)]
    pub(crate) reads: f64,
    /// Writes of one cache
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "0.039/s", allow_hyphen_values = true)]
    pub(crate) writes: f64,
    /// How the holders of leases are asked to approve a write
    #[arg(long, value_enum, default_value_t = Asking::Multicast)]
    pub(crate) approval: Asking,
    /// Share of the reads that is of installed files, whose leases one multicast extends for all caches (section 4)
    #[arg(long, value_name = "SHARE", value_parser = fraction, allow_hyphen_values = true)]
    pub(crate) installed: Option<f64>,
    /// Time between these multicasts; else the term
    #[arg(long, value_name = "DURATION", value_parser = time, requires = "installed", allow_hyphen_values = true)]
    pub(crate) every: Option<f64>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// How a write is approved.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Asking {
    /// One message to all holders, as in the paper: S messages
    Multicast,
    /// A message to each: 2(S−1)
    Unicast,
    /// As Cistern does: DEMAND, RELEASE and RELEASED for each, and PENDING: 3(S−1)+1
    Demand,
}

#[derive(Args, Debug)]
pub(crate) struct Table {
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Agents
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "100", allow_hyphen_values = true)]
    pub(crate) agents: f64,
    /// Objects that each agent holds
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "1000", allow_hyphen_values = true)]
    pub(crate) objects: f64,
    /// Volumes in which they are
    #[arg(long, value_name = "COUNT", value_parser = count, default_value = "4", allow_hyphen_values = true)]
    pub(crate) volumes: f64,
    /// Reads of one object by one agent
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "0.01/s", allow_hyphen_values = true)]
    pub(crate) reads: f64,
    /// Other requests of one agent
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "10/s", allow_hyphen_values = true)]
    pub(crate) rate: f64,
    /// Lease period
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s", allow_hyphen_values = true)]
    pub(crate) lease: f64,
    /// Term of the long leases on objects beside volume leases
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10m", allow_hyphen_values = true)]
    pub(crate) long_term: f64,
    #[command(flatten)]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct Simulate {
    /// Requests in each run; the error is about 1 over the root of the renewals among them
    #[arg(long, value_name = "COUNT", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000), allow_hyphen_values = true)]
    pub(crate) requests: u64,
    /// A seed is one run, for ever
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A capture (pcap or pcapng) of a server's traffic, whose requests are replayed, too
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

#[derive(Args, Debug)]
pub(crate) struct Measure {
    /// Lease period
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "200ms", allow_hyphen_values = true)]
    pub(crate) lease: f64,
    /// Length of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s", allow_hyphen_values = true)]
    pub(crate) duration: f64,
    /// Agents for each rate of requests
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) agents: u32,
    /// Of the times of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// How an agent's network fails.
#[derive(Args, Clone, Debug)]
pub(crate) struct Network {
    /// Mean time between failures of an agent's network
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1d", allow_hyphen_values = true)]
    pub(crate) fail_every: f64,
    /// Mean time until it is mended
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s", allow_hyphen_values = true)]
    pub(crate) repair: f64,
}
