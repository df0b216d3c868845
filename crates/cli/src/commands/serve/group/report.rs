//! What a server tells of its group.

use crate::group::{GroupList, Troubles, member_rows};
use crate::local::millis;
use cistern_flease::{Member, Node, Started};
use cistern_group::{GroupServer, Role};
use cistern_link::Instant;
use serde_json::{Value, json};

/// What the machine knows at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupMoment {
    role: Role,
    owner: Option<Member>,
}

impl GroupMoment {
    pub(super) fn of(machine: &GroupServer, now: Instant) -> Self {
        Self { role: machine.role(now), owner: machine.owner(now) }
    }

    /// As the control socket shows it; `outside`: the servers of the store, where this is none of them.
    pub(super) fn shown(self, node: &Node, now: Instant, list: &GroupList, troubles: &Troubles, outside: Option<&str>) -> Value {
        let role = match self.role {
            Role::Standby => "standby",
            Role::Elected => "elected",
            Role::Serving => "serving",
        };
        let starts_in_ms = match node.started(now) {
            Started::Yes => 0,
            Started::In(span) => millis(span).max(1),
        };
        json!({
            "group": list.to_string(),
            "number": node.list_number(),
            "me": named(list, node.group().me),
            "role": role,
            "serves": self.owner.map(|owner| named(list, owner)),
            "lease_ms": millis(node.group().terms.lease),
            "starts_in_ms": starts_in_ms,
            "outside_of": outside,
            "members": member_rows(node, now, list, troubles),
        })
    }
}

/// A member's name.
pub(super) fn named(list: &GroupList, member: Member) -> String {
    list.members()[usize::from(member)].to_string()
}
