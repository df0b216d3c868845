//! `cistern admin stats`: all metrics.

use super::{Control, OPERATOR};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::show;
use clap::Args;
use serde_json::{Value, json};

const STATS_HELP: &str = "\
The names are those of `cisternd --http`; docs/operating.md explains each. Durations are in seconds. \
A histogram shows its count, its mean, and upper bounds of the median and the 99th percentile.

Examples:
  cistern admin stats
  cistern admin stats --json | jq '.cistern_sessions.samples'

Exit status:
  0   success
  69  no server answers";

/// Show all metrics
#[derive(Args, Debug)]
#[command(after_help = STATS_HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    server: Control,
    /// Also show counters that are zero
    #[arg(short = 'a', long)]
    all: bool,
}

impl Run for Stats {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let stats = self.server.ask(ctx, &json!({ "op": "stats" }))?;
        ctx.print_with(&stats, || show::columns(&rows(&stats, self.all)))
    }
}

/// A line for each sample that is not zero, or for all; one for each histogram.
fn rows(stats: &Value, all: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, family) in stats.as_object().into_iter().flatten() {
        let samples = family["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
        if family["type"] == "histogram" {
            rows.extend(histograms(name, samples));
        } else {
            let shown = samples.iter().filter(|sample| all || sample["value"].as_f64() != Some(0.0));
            rows.extend(shown.map(|sample| vec![format!("{name}{}", labels(sample)), sample["value"].to_string()]));
        }
    }
    rows
}

/// A line for each set of labels that measured something; their parts stand together, and end with the count.
fn histograms(name: &str, samples: &[Value]) -> Vec<Vec<String>> {
    let (mut rows, mut bounds, mut sum) = (Vec::new(), Vec::new(), 0.0);
    for sample in samples {
        let value = sample["value"].as_f64().unwrap_or(0.0);
        match sample["part"].as_str() {
            Some("_bucket") => bounds.push((sample["labels"]["le"].as_str().unwrap_or("?").to_owned(), value)),
            Some("_sum") => sum = value,
            _ => {
                let below = |share: f64| bounds.iter().find(|bound| bound.1 >= value * share).map_or("?", |bound| bound.0.as_str());
                if value > 0.0 {
                    let shown = format!("{value}; mean {:.6}, half up to {}, 99 % up to {}", sum / value, below(0.5), below(0.99));
                    rows.push(vec![format!("{name}{}", labels(sample)), shown]);
                }
                bounds.clear();
            }
        }
    }
    rows
}

fn labels(sample: &Value) -> String {
    let named: Vec<_> = sample["labels"].as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
    if named.is_empty() { String::new() } else { format!("{{{}}}", named.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_and_a_histogram_is_one() {
        let part = |part: &str, le: Option<&str>, value: f64| {
            let labels = le.map_or_else(|| json!({ "kind": "READ" }), |le| json!({ "kind": "READ", "le": le }));
            json!({ "part": part, "labels": labels, "value": value })
        };
        let stats = json!({
            "a_total": { "type": "counter", "samples": [{ "part": "", "labels": {}, "value": 7 }, { "part": "", "labels": { "x": "y" }, "value": 0 }] },
            "b_seconds": { "type": "histogram", "samples": [
                part("_bucket", Some("0.1"), 2.0), part("_bucket", Some("1"), 4.0), part("_bucket", Some("+Inf"), 4.0),
                part("_sum", None, 1.0), part("_count", None, 4.0),
            ] },
        });
        let line = |row: &[String]| row.join(" ");
        let shown: Vec<_> = rows(&stats, false).iter().map(|row| line(row)).collect();
        assert_eq!(shown, ["a_total 7", "b_seconds{kind=\"READ\"} 4; mean 0.250000, half up to 0.1, 99 % up to 1"]);
        assert_eq!(rows(&stats, true).len(), 3);
    }
}
