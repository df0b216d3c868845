//! The manual and the metrics are of one mind.

use super::{Snapshot, all, process};
use cistern_driver::stats::Counts;
use cistern_link::Instant;
use cistern_server::{Config, Server};
use cistern_store::CommitStats;
use cistern_wire::StoreId;
use std::collections::BTreeSet;

const MANUAL: &str = include_str!("../../../../docs/operating.md");

/// Names of metrics in the first column of the manual's table.
fn in_manual() -> BTreeSet<String> {
    let rows = MANUAL.lines().filter(|line| line.starts_with("| `cistern_") || line.starts_with("| `process_"));
    let names =
        rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(',').map(|name| name.trim().trim_matches('`').to_owned()));
    names.collect()
}

#[test]
fn the_manual_lists_every_metric_and_no_other() {
    let now = Instant::new(1, 1);
    let server = Server::new(now, 0, StoreId([1; 16]), Config::default(), [1; 32]).unwrap();
    let snapshot = Snapshot { figures: server.figures(now), driver: Counts::default(), store: Some(CommitStats::default()) };
    let mut families = all(&snapshot);
    families.extend(process::families());
    let names: BTreeSet<_> = families.iter().map(|family| family.name.clone()).collect();
    assert_eq!(names.len(), families.len(), "a name is used once");
    assert_eq!(names, in_manual());
}

#[test]
fn the_manual_tells_what_to_do_about_every_reason_for_a_drop() {
    let (_, section) = MANUAL.split_once("### What was dropped").unwrap();
    let (section, _) = section.split_once("## The log").unwrap();
    let server = Server::new(Instant::new(1, 1), 0, StoreId([1; 16]), Config::default(), [1; 32]).unwrap();
    let agent = cistern_agent::Agent::new(
        cistern_agent::config::Config::default(),
        cistern_agent::Identity { agent: cistern_wire::AgentId([1; 16]), incarnation: 1, boot: [1; 16], label: Vec::new() },
        [1; 32],
        vec!["127.0.0.1:1".parse().unwrap()],
    )
    .unwrap();
    for (reason, _) in server.stats().drops().chain(agent.drops().iter()) {
        assert!(section.contains(&format!("`{reason}`")), "{reason}");
    }
}

#[test]
fn the_manual_tells_of_every_fault_with_its_gravity() {
    for fault in cistern_store::check::Fault::ALL {
        let row = MANUAL.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{}`", fault.name())));
        let gravity = format!("| {} |", fault.severity().name());
        assert!(row.is_some_and(|row| row.contains(&gravity)), "{} {gravity}", fault.name());
    }
}
