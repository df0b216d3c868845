//! What a member tells of the others.

use super::{GroupList, Troubles};
use crate::local::{MemberRow, millis};
use cistern_driver::Address;
use cistern_flease::Node;
use cistern_link::Instant;

/// Each member, as this one sees it.
pub(crate) fn member_rows(node: &Node, now: Instant, group: &GroupList, troubles: &Troubles) -> Vec<MemberRow> {
    let row = |(member, name): (u8, &Address)| MemberRow {
        name: name.to_string(),
        address: node.address(member).map(|address| address.to_string()),
        heard_ms: node.heard(member).map(|heard| millis(now.since(heard))),
        trouble: troubles.of(member.into()).cloned(),
    };
    group.present().map(row).collect()
}
