//! What a member tells of its group, and of who holds what in it.

use super::holders::Holders;
use crate::group::{GroupList, Troubles, member_rows};
use crate::local::{GroupReport, LockRow, micros, millis};
use crate::text::Text;
use cistern_flease::{Node, Started};
use cistern_link::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn report(node: &Node, now: Instant, group: &GroupList, troubles: &Troubles) -> GroupReport {
    let of_group = node.group();
    let (terms, counts) = (of_group.terms, node.counts());
    let (resources, owned) = node.resources(now);
    let drops = [
        ("unaddressed", counts.unaddressed),
        ("from_strangers", counts.from_strangers),
        ("early", counts.early),
        ("mismatched", counts.mismatched),
        ("malformed", counts.malformed),
    ];
    GroupReport {
        group: group.to_string(),
        number: node.list_number(),
        me: group.members()[usize::from(of_group.me)].to_string(),
        starts_in_ms: match node.started(now) {
            Started::Yes => 0,
            Started::In(span) => millis(span).max(1),
        },
        lease_ms: millis(terms.lease),
        wait_us: micros(terms.record_wait()),
        drift_ppm: terms.drift_ppm,
        epsilon_us: micros(terms.epsilon),
        renews_by_write: of_group.renew_by_write,
        durable_tokens: of_group.durable_tokens,
        resources: resources as u64,
        owned: owned as u64,
        members: member_rows(node, now, group, troubles),
        datagrams_in: counts.received,
        datagrams_out: counts.sent,
        drops: drops.into_iter().map(|(reason, count)| (reason.to_owned(), count.into())).collect(),
    }
}

/// Who holds and waits for a resource, or for all of which this member knows: other members' programs are known by their member alone.
pub(super) fn locks(node: &Node, holders: &Holders, now: Instant, group: &GroupList, of: Option<&Text>) -> Vec<LockRow> {
    let names: BTreeSet<&[u8]> = match of {
        Some(name) => BTreeSet::from([&name.0[..]]),
        None => holders.names().chain(node.owned_names(now)).collect(),
    };
    let me = node.group().me;
    let mut rows = Vec::new();
    for name in names {
        let row = |state: &str, member: u8, since: Option<Instant>, bound: Option<Duration>| LockRow {
            object: 0,
            path: Text(name.to_vec()),
            state: state.to_owned(),
            mode: "exclusive".to_owned(),
            token: node.owned(now, name).filter(|_| member == me).map_or(0, |owned| owned.token),
            handle: member.to_string(),
            label: Text(group.members()[usize::from(member)].to_string().into_bytes()),
            since_ms: since.map_or(0, |since| millis(now.since(since))),
            standing: LockRow::GOOD.to_owned(),
            bound_ms: bound.map(millis),
        };
        let (since, waiting) = holders.of(name);
        if let Some((owner, rest)) = node.owner(now, name) {
            rows.push(row("holds", owner, since.filter(|_| owner == me), Some(rest)));
        }
        rows.extend((0..waiting).map(|_| row("waits", me, None, None)));
    }
    rows
}
