//! The timeline and the verdicts of the demonstration.
//!
//! Decides: how events and claims are shown: times in milliseconds and in lease periods. Leaves to others: what happened.

use crate::local::{Failure, millis};
use crate::show;
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Moment {
    at_ms: u64,
    at_leases: f64,
    what: String,
}

#[derive(Serialize)]
struct Verdict {
    claim: String,
    holds: bool,
    seen: String,
}

/// What happened, and what that shows.
pub(crate) struct DemoReport {
    start: Instant,
    lease: Duration,
    json: bool,
    timeline: Vec<Moment>,
    verdicts: Vec<Verdict>,
}

impl DemoReport {
    pub(crate) fn new(lease: Duration, json: bool) -> Self {
        Self { start: Instant::now(), lease, json, timeline: Vec::new(), verdicts: Vec::new() }
    }

    /// Something happened now.
    pub(crate) fn say(&mut self, what: &str) -> Result<(), Failure> {
        self.say_at(Instant::now(), what)
    }

    /// Something happened at an instant not long ago.
    pub(crate) fn say_at(&mut self, at: Instant, what: &str) -> Result<(), Failure> {
        let since = at.saturating_duration_since(self.start);
        let moment = Moment { at_ms: millis(since), at_leases: self.leases(since), what: what.to_owned() };
        if !self.json {
            show::line(format!("{:>7} ms {:>6.2} τ  {what}", moment.at_ms, moment.at_leases))?;
        }
        self.timeline.push(moment);
        Ok(())
    }

    /// A span in lease periods.
    pub(crate) fn leases(&self, span: Duration) -> f64 {
        (span.as_secs_f64() / self.lease.as_secs_f64() * 100.0).round() / 100.0
    }

    /// A claim, whether it held, and what was seen.
    pub(crate) fn claim(&mut self, claim: &str, holds: bool, seen: String) -> Result<(), Failure> {
        if !self.json {
            show::line(format!("{:>21}  {} {claim}: {seen}", "", if holds { "✓" } else { "✗" }))?;
        }
        self.verdicts.push(Verdict { claim: claim.to_owned(), holds, seen });
        Ok(())
    }

    /// The end: whether all claims held.
    pub(crate) fn finish(&self) -> Result<bool, Failure> {
        let held = self.verdicts.iter().filter(|v| v.holds).count();
        let all = held == self.verdicts.len();
        if self.json {
            show::json(&serde_json::json!({
                "lease_ms": millis(self.lease),
                "took_ms": millis(self.start.elapsed()),
                "holds": all,
                "timeline": self.timeline,
                "verdicts": self.verdicts,
            }))?;
        } else {
            show::line(format!("\n{held} of {} claims held, in {} ms", self.verdicts.len(), millis(self.start.elapsed())))?;
        }
        Ok(all)
    }
}
