//! The columns: who stands where.
//!
//! Decides: that servers stand in the middle, agents beside them in order of appearance, and what each is called; and in which lane
//! beside its column a bar stands. Place in the walk: before anything is drawn.
//! Leaves to others: which hosts there are (`cistern-audit`).

use super::{Bar, Column, Row, is_hold};
use cistern_audit::{HostId, Role, Story};
use std::collections::BTreeSet;
use std::time::Duration;

/// Most lanes for locks beside a column; further ones share the last.
pub(super) const LANES: usize = 4;

/// The columns from left to right: those that take part in a row.
pub(super) fn order(story: &Story, rows: &[Row], names: &[Option<String>]) -> Vec<Column> {
    let present: BTreeSet<HostId> = rows.iter().flat_map(|row| [row.from, row.to]).collect();
    let column = |host: &HostId| {
        let known = story.hosts().get(*host)?;
        let name = names.get(*host).cloned().flatten().unwrap_or_else(|| known.name.clone());
        Some(Column { host: *host, name, role: known.role })
    };
    let (servers, mut left): (Vec<_>, Vec<_>) = present.iter().filter_map(column).partition(|column| column.role == Role::Server);
    let right = left.split_off(left.len().div_ceil(2));
    left.into_iter().chain(servers).chain(right).collect()
}

/// The lane of each bar beside its column; bars that are not about locks stand on the column itself, in lane 0.
pub(super) fn lanes(bars: &[Bar]) -> Vec<usize> {
    let mut ends: Vec<(HostId, Vec<Option<Duration>>)> = Vec::new();
    bars.iter()
        .map(|bar| {
            if !is_hold(bar.interval.kind) {
                return 0;
            }
            let host = bar.interval.host;
            let at = ends.iter().position(|(known, _)| *known == host).unwrap_or_else(|| {
                ends.push((host, Vec::new()));
                ends.len() - 1
            });
            let lanes = &mut ends[at].1;
            let free = lanes.iter().position(|end| end.is_some_and(|end| end <= bar.interval.from));
            let lane = free.unwrap_or(lanes.len()).min(LANES - 1);
            if lane == lanes.len() {
                lanes.push(bar.interval.until);
            } else {
                lanes[lane] = bar.interval.until;
            }
            lane
        })
        .collect()
}
