//! The manual says what the code counts.

use super::families::of_standby;
use super::{Family, Snapshot, StandbySnapshot, all, process, text};
use cistern_driver::stats::Counts;
use cistern_link::Instant;
use cistern_server::{Config, Server};
use cistern_store::CommitStats;
use cistern_wire::StoreId;
use serde_json::json;
use std::collections::BTreeSet;

const MANUAL: &str = include_str!("../../../../docs/operating.md");

#[test]
fn the_page_of_metrics_is_made_from_them() {
    let now = Instant::new(1, 1);
    let server = Server::new(now, 0, StoreId([1; 16]), Config::default(), [1; 32]).unwrap();
    let snapshot = Snapshot {
        figures: server.figures(now),
        driver: Counts::default(),
        store: Some(CommitStats::default()),
        overview: None,
        group: Some(json!({ "number": 1, "serves": "a", "members": [{ "name": "a", "heard_ms": 5 }, { "name": "b" }] })),
    };
    let mut families = all(&snapshot);
    let names_of = |families: &[Family]| families.iter().map(|family| family.name.clone()).collect::<BTreeSet<_>>();
    let standby = of_standby(&StandbySnapshot { driver: Counts::default(), group: snapshot.group.clone().unwrap() });
    assert!(names_of(&standby).is_subset(&names_of(&families)), "a standby tells a part of it");
    let heard = standby.iter().find(|family| family.name == "cistern_group_heard_seconds").unwrap();
    assert_eq!(heard.samples.iter().map(|sample| sample.labels[0].1.as_str()).collect::<Vec<_>>(), ["1"], "numbered, and never named");
    families.extend(process::families());
    let names = names_of(&families);
    assert_eq!(names.len(), families.len(), "a name is used once");
    let mut page = "# Metrics

What `cisternd --http ADDRESS` serves at `/metrics` and `cistern admin stats` prints; [operating.md](operating.md#metrics) has alert rules to start with. This page
is made from `crates/cli/src/metrics` by `UPDATE_EXPECT=1 cargo test -p cistern-cli metrics`.

| metric | labels | type | meaning; what to do |
|---|---|---|---|
"
    .to_owned();
    for Family { name, kind, help, labels, samples } in &families {
        assert!(samples.iter().flat_map(|sample| &sample.labels).all(|(label, _)| labels.contains(label) || *label == "le"), "{name}");
        page += &format!("| `{name}` | {} | {} | {help} |\n", labels.join(", "), text::type_name(*kind));
    }
    expect_test::expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")].assert_eq(&page);
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
