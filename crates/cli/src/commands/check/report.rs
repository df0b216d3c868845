//! How the result of a check looks: lines for people, JSON for scripts.
//!
//! Decides: the words around findings, and the names in the JSON. Leaves to others: what was found.

use crate::text::Text;
use cistern_server::store::Counter;
use cistern_store::check::{Finding, Place, Report};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// The engine could not read the store to its end.
#[derive(Debug)]
pub(in crate::commands) struct Unreadable {
    pub(super) what: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot be read: {}; restore a backup", self.what)
    }
}

/// The report for scripts. What the engine could not read is a finding, too.
pub(super) fn json(store: &Path, looked: &Result<Report, Unreadable>) -> Value {
    let dir = store.to_string_lossy();
    match looked {
        Err(unreadable) => {
            let finding = json!({ "fault": "unreadable", "severity": "loss", "place": "the store", "path": null, "what": unreadable.what });
            json!({ "dir": dir, "sound": false, "gravest": "loss", "findings": [finding], "more": 0 })
        }
        Ok(report) => {
            let counters: Map<_, _> = Counter::ALL.iter().map(|counter| (name(*counter), json!(report.counter(*counter)))).collect();
            json!({
                "dir": dir,
                "sound": report.is_clean(),
                "gravest": report.gravest().map(|severity| severity.name()),
                "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
                "more": report.more,
                "records": report.records,
                "record_bytes": report.record_bytes,
                "directories": report.directories,
                "files": report.files,
                "symlinks": report.symlinks,
                "entries": report.entries,
                "blocks": report.blocks,
                "content_bytes": report.content_bytes,
                "sessions": report.sessions,
                "outcomes": report.outcomes,
                "counters": counters,
                "memory_bytes": report.memory,
            })
        }
    }
}

fn finding(finding: &Finding) -> Value {
    json!({
        "fault": finding.fault.name(),
        "severity": finding.fault.severity().name(),
        "place": finding.place.to_string(),
        "key": match &finding.place {
            Place::Store => None,
            Place::Key(key) => Some(hex(&key.to_bytes())),
            Place::Raw(bytes) => Some(hex(bytes)),
        },
        "path": finding.path.clone().map(Text),
        "what": finding.what,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(counter: Counter) -> String {
    format!("{counter:?}").to_ascii_lowercase()
}

/// The report for people.
pub(super) fn text(store: &Path, looked: &Result<Report, Unreadable>) -> String {
    let dir = store.display();
    let report = match looked {
        Err(unreadable) => return format!("store {dir}: {unreadable}"),
        Ok(report) => report,
    };
    let findings = report.findings.iter().map(|finding| format!("[{}] {finding}\n", finding.fault.severity().name()));
    let mut text: String = findings.collect();
    if report.more > 0 {
        text += &format!("... and {} more; --most lists more of them\n", report.more);
    }
    let verdict = match report.gravest() {
        None => "sound".to_owned(),
        Some(severity) => {
            let count = report.findings.len() as u64 + report.more;
            format!("{count} faults, the gravest of them {}: docs/operating.md says what each means", severity.name())
        }
    };
    text + &format!(
        "store {dir}: {verdict}; {} directories, {} files, {} links, {} of contents; {} sessions; {} records, {}",
        report.directories,
        report.files,
        report.symlinks,
        bytes(report.content_bytes),
        report.sessions,
        report.records,
        bytes(report.record_bytes),
    )
}

/// A size, in the unit a person would use.
pub(in crate::commands) fn bytes(count: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|unit| count >= unit.0) {
        Some((unit, name)) => format!("{}.{} {name}", count / unit, count % unit * 10 / unit),
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_unit_people_use() {
        for (count, text) in [(0, "0 bytes"), (1_023, "1023 bytes"), (1_536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (u64::MAX, "16777215.9 TiB")]
        {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn what_the_engine_could_not_read_is_a_finding_for_scripts() {
        let value = json(Path::new("/s"), &Err(Unreadable { what: "block 7".to_owned() }));
        assert_eq!((value["sound"].as_bool(), value["findings"][0]["fault"].as_str()), (Some(false), Some("unreadable")));
    }
}
