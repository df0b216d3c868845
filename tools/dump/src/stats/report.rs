//! How figures are written: as a page for people, as one JSON object for programs (`docs/inspecting.md` has its schema).
//!
//! Decides: order and columns. Leaves to others: the figures.

use super::Stats;
use super::renewal::Cost;
use crate::failure::Failure;
use crate::time::{date, seconds, span};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

/// Most sessions listed for people.
const LISTED: usize = 20;

/// Round trips of one kind, in nanoseconds.
#[derive(Clone, Copy, Serialize)]
struct RoundTrips {
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl RoundTrips {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self { count: histogram.len(), p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), max_ns: histogram.max() }
    }
}

impl Stats {
    /// Writes all figures.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn report(&self, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            serde_json::to_writer(&mut *out, &self.json()).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            self.text(out)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let kinds: serde_json::Map<_, _> = self
            .kinds
            .iter()
            .map(|(kind, sum)| (kind.name().to_owned(), json!({ "messages": sum.messages, "bytes": sum.bytes, "sent_again": sum.again })))
            .collect();
        let trips: serde_json::Map<_, _> =
            self.round_trips.iter().map(|(kind, trips)| (kind.name().to_owned(), json!(RoundTrips::of(trips)))).collect();
        let sessions: Vec<_> = self.renewals.sessions().collect();
        json!({
            "first": self.span.map(|(first, _)| seconds(first)),
            "last": self.span.map(|(_, last)| seconds(last)),
            "to_server": { "datagrams": self.to_server.datagrams, "bytes": self.to_server.bytes },
            "to_agents": { "datagrams": self.to_agents.datagrams, "bytes": self.to_agents.bytes },
            "copies": self.copies,
            "malformed": self.malformed,
            "kinds": kinds,
            "round_trips": trips,
            "nacks": self.nacks,
            "failed": self.failures,
            "renewing_at": self.renewals.renewing_at(),
            "renewals": self.renewals.all(),
            "sessions": sessions,
        })
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let Some((first, last)) = self.span else { return writeln!(out, "no datagrams of Cistern") };
        writeln!(out, "{} to {}, {}", date(first), date(last), span(last.saturating_sub(first)))?;
        writeln!(out, "to the server {:>8} datagrams {:>10} bytes", self.to_server.datagrams, self.to_server.bytes)?;
        writeln!(out, "to agents     {:>8} datagrams {:>10} bytes", self.to_agents.datagrams, self.to_agents.bytes)?;
        if self.copies > 0 {
            writeln!(out, "copies        {:>8} datagrams, counted nowhere else", self.copies)?;
        }
        counts(out, "malformed", self.malformed.iter())?;
        writeln!(out, "\n{:<16} {:>9} {:>10} {:>10}", "kind", "messages", "bytes", "sent again")?;
        for (kind, sum) in &self.kinds {
            writeln!(out, "{:<16} {:>9} {:>10} {:>10}", kind.name(), sum.messages, sum.bytes, sum.again)?;
        }
        if !self.round_trips.is_empty() {
            writeln!(out, "\n{:<16} {:>9} {:>12} {:>12} {:>12} {:>12}", "round trips", "answers", "p50", "p90", "p99", "longest")?;
        }
        for (kind, trips) in &self.round_trips {
            let trips = RoundTrips::of(trips);
            let [p50, p90, p99, max] = [trips.p50_ns, trips.p90_ns, trips.p99_ns, trips.max_ns].map(|ns| span(Duration::from_nanos(ns)));
            writeln!(out, "{:<16} {:>9} {p50:>12} {p90:>12} {p99:>12} {max:>12}", kind.name(), trips.count)?;
        }
        if !self.nacks.is_empty() || !self.failures.is_empty() {
            writeln!(out)?;
        }
        counts(out, "NACK", self.nacks.iter())?;
        counts(out, "failed", self.failures.iter())?;
        self.renewals(out)
    }

    fn renewals(&self, out: &mut impl Write) -> io::Result<()> {
        let all = self.renewals.all();
        writeln!(out, "\nrenewals, with agents that begin at {} of the lease period", self.renewals.renewing_at())?;
        let heads = ["session", "requests", "a second", "variation", "explicit", "a request", "at random", "of these gaps"];
        writeln!(
            out,
            "{:<16} {:>9} {:>10} {:>9} {:>9} {:>10} {:>10} {:>13}  agent",
            heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6], heads[7]
        )?;
        cost(out, "all", &all)?;
        let mut sessions: Vec<_> = self.renewals.sessions().collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.requests));
        for session in sessions.iter().take(LISTED) {
            cost(out, session.session.as_deref().unwrap_or("-"), session)?;
        }
        if sessions.len() > LISTED {
            writeln!(out, "and {} more sessions, all of which are in --json", sessions.len() - LISTED)?;
        }
        Ok(())
    }
}

fn cost(out: &mut impl Write, name: &str, cost: &Cost) -> io::Result<()> {
    let or_none = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let small =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") });
    writeln!(
        out,
        "{name:<16} {:>9} {:>10} {:>9} {:>9} {:>10} {:>10} {:>13}  {}",
        cost.requests,
        or_none(cost.rate, 3),
        or_none(cost.variation, 2),
        cost.explicit,
        small(cost.per_request),
        small(cost.expected_per_request),
        cost.expected_of_gaps.map_or("-".to_owned(), |expected| expected.to_string()),
        cost.agent.as_deref().unwrap_or(""),
    )
}

fn counts<'a>(out: &mut impl Write, name: &str, counts: impl Iterator<Item = (&'a &'static str, &'a u64)>) -> io::Result<()> {
    let counts: Vec<_> = counts.map(|(what, count)| format!("{what} {count}")).collect();
    if counts.is_empty() { Ok(()) } else { writeln!(out, "{name}: {}", counts.join(", ")) }
}
