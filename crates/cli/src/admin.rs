//! `cistern admin`: what an operator has of a running server, by its control socket.
//!
//! Decides: how figures look to people; with `--json` they are shown as they came.
//! Leaves to others: what is answered (`server_control`), names and helps (`metrics`).

use crate::args::{Admin, Backup, Stats};
use crate::local::Failure;
use crate::server_control::{ask, ask_at_leisure, evict, server_socket, sessions, status};
use crate::show;
use crate::text::Text;
use serde_json::{Value, json};

/// Runs one of the commands.
pub(crate) fn admin(command: &Admin) -> Result<(), Failure> {
    match command {
        Admin::Status(args) => status(&args.server),
        Admin::Sessions(args) => sessions(&args.server),
        Admin::Stats(args) => stats(args),
        Admin::Evict(args) => evict(args),
        Admin::Backup(args) => backup(args),
    }
}

fn backup(args: &Backup) -> Result<(), Failure> {
    // The server has another working directory.
    let dir = std::path::absolute(&args.dir).map_err(|e| Failure::usage(format!("{}: {e}", args.dir.display())))?;
    let made = ask_at_leisure(&server_socket(&args.server)?, &json!({ "op": "backup", "dir": Text::from(dir.as_os_str()) }))?;
    if args.server.json {
        return show::json(&made);
    }
    let (records, seconds) = (made["records"].as_u64().unwrap_or(0), made["seconds"].as_f64().unwrap_or(0.0));
    show::line(format!("{records} records are in {}, after {seconds:.1} s; `cisternd check {}` checks them", dir.display(), dir.display()))
}

fn stats(args: &Stats) -> Result<(), Failure> {
    let stats = ask(&server_socket(&args.server)?, &json!({ "op": "stats" }))?;
    if args.server.json {
        return show::json(&stats);
    }
    show::table(&rows(&stats, args.all))
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
