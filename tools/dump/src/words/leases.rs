//! Words of named leases: `wire-spec.md` section 11.11. A secret is in no sentence.

use super::files::named;
use super::{list as join, millis, text};
use cistern_wire::{Attach, LeaseRow, LeaseRows, MakeLease};

pub(super) fn make(m: &MakeLease<'_>) -> String {
    let ttl = millis(m.ttl_ms.into());
    format!("makes the named lease {} in {}, for {ttl}, mode {:04o}", text(m.name.0), named(m.dir), m.mode)
}

pub(super) fn attach(m: &Attach<'_>) -> String {
    format!("attaches {} to the named lease {}", named(m.object), named(m.lease))
}

pub(super) fn rows(m: &LeaseRows<'_>) -> String {
    let row = |row: LeaseRow<'_>| {
        let lease = if row.object == row.lease { String::new() } else { format!(" of lease {}", row.lease) };
        format!("{}{lease} with {} of {} left", row.object, millis(row.left_ms.into()), millis(row.ttl_ms.into()))
    };
    let more = if m.end { "" } else { "; more follow" };
    format!("named leases: {}{more}", join(m.rows.iter().map(row)))
}
