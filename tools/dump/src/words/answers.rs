//! Words of answers: `wire-spec.md` sections 6.5 and 7.
//!
//! Decides: that a NACK always says what became of its request. Leaves to others: whether and from when an answer renews (`line`).

use super::{a_mode, cached, leases, list as join, lock_name, micros, millis, text, tokens};
use cistern_wire::{
    Attr, CancelOutcome, Cancelled, Effect, Fate, Field as _, Holder, Keep, LockRow, Nack, NackReason, OutcomeTold, Queued, Reader,
    Released, ReleasedItem, Reply, RequestResult, RowState, ServerReport, Standing, Walked, Whose,
};

pub(super) fn reply(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Done(_) => "done".to_owned(),
        Reply::Failed(m) => {
            let again = if m.retry_ms == 0 { String::new() } else { format!("; try again in {}", millis(m.retry_ms.into())) };
            format!("failed with {}: {}{again}", m.status.name(), m.status)
        }
        Reply::Walked(m) => walked(m),
        Reply::Stated(m) => format!("{}{}", attr(&m.attr), cached(&m.grant)),
        Reply::Listing(m) => {
            let more = if m.end { "the last page" } else { "more follow" };
            format!("{} entries of {} at version {} ({more}){}", m.entries.len(), m.dir.object, m.dir.version, cached(&m.grant))
        }
        Reply::Data(m) => {
            format!("{} bytes of {} from {}, version {}{}", m.data.0.len(), m.attr.object, m.offset, m.attr.version, cached(&m.grant))
        }
        Reply::Changed(m) if m.effects.is_empty() => "changed nothing".to_owned(),
        Reply::Changed(m) => format!("changed {}", join(m.effects.iter().map(|item| effect(&item)))),
        Reply::Granted(m) => format!("grants {} lock on {}: {}", a_mode(m.mode), m.lock.object, tokens(m.generation, m.run)),
        Reply::LockRefused(m) => format!("refuses {}: {}", lock_name(m.lock), holder(&m.holder)),
        Reply::LockRows(m) => {
            let more = if m.end { "" } else { "; more follow" };
            format!("locks: {}{more}", join(m.rows.iter().map(|item| row(&item))))
        }
        Reply::ServerReport(m) => server(m),
        Reply::Reclaimed(m) => {
            let item = |item: cistern_wire::ReclaimedItem| match item.status.is_ok() {
                true => format!("{} stays held (generation {})", lock_name(item.lock), item.generation),
                false => format!("{} does not ({})", lock_name(item.lock), item.status.name()),
            };
            format!("reclaimed: {}", join(m.items.iter().map(item)))
        }
        Reply::OutcomeTold(m) => outcome(m),
        Reply::Xattr(m) => format!("{} of {} bytes of an attribute of {} from {}", m.data.0.len(), m.total, m.object, m.offset),
        Reply::XattrNames(m) => {
            let more = if m.end { "the last page" } else { "more follow" };
            format!("{} names of attributes of {} ({more})", m.names.len(), m.object)
        }
        Reply::BatchFailed(m) => format!("changed nothing: item {} failed with {}: {}", m.item, m.status.name(), m.status),
        Reply::Limited(m) => {
            let whose = if m.whose == Whose::Realm { format!("realm {}", m.realm) } else { format!("the {}", m.whose) };
            let again = if m.retry_ms == 0 { String::new() } else { format!("; try again in {}", millis(m.retry_ms.into())) };
            format!("did nothing: {} of {} {} of {whose} are used{again}", m.used, m.bound, m.limit)
        }
        Reply::RealmRows(m) => {
            let row = |row: cistern_wire::RealmRow<'_>| format!("{} with {} objects and {} bytes", row.realm, row.objects, row.bytes);
            let more = if m.end { "" } else { "; more follow" };
            format!("realms: {}{more}", join(m.rows.iter().map(row)))
        }
        Reply::LeaseKept(m) => format!("the named lease lasts {}", millis(m.ttl_ms.into())),
        Reply::LeaseRows(m) => leases::rows(m),
        Reply::AdminAnswer(m) => {
            format!("{} of {} bytes of what n{} is answered, from {}", m.text.0.len(), m.total, m.answer, m.offset)
        }
        Reply::Watched(m) => format!("watches from here on: {}", attr(&m.attr)),
        Reply::Batched(m) => {
            let item = |item: cistern_wire::ItemResult| match item.version {
                0 => format!("{} (gone)", item.object),
                version => format!("{} (version {version})", item.object),
            };
            format!("did it all: {}", join(m.items.iter().map(item)))
        }
    }
}

fn walked(m: &Walked<'_>) -> String {
    let step = |step: cistern_wire::Stated| format!("{}{}", attr(&step.attr), cached(&step.grant));
    let path = m.steps.iter().map(step).collect::<Vec<_>>().join(" / ");
    let stopped = if m.status.is_ok() { String::new() } else { format!("; the next name: {}, {}", m.status.name(), m.status) };
    let target = if m.target.0.is_empty() { String::new() } else { format!("; links to {}", text(m.target.0)) };
    format!("found {path}{stopped}{target}")
}

fn attr(m: &Attr) -> String {
    let ephemeral = if m.is_ephemeral() { "ephemeral " } else { "" };
    format!("{} ({ephemeral}{}, version {}, size {})", m.object, m.kind, m.version, m.size)
}

fn effect(m: &Effect) -> String {
    let change = match (m.before, m.attr.nlink) {
        (_, 0) => "gone".to_owned(),
        (0, _) => format!("new, version {}", m.attr.version),
        (before, _) => format!("version {before} to {}", m.attr.version),
    };
    format!("{} ({change}){}", m.attr.object, cached(&m.grant))
}

/// Who holds a lock, since when, and how long that can last.
fn holder(m: &Holder<'_>) -> String {
    format!("{} has held it {} for {}{}", text(m.label.0), m.mode, millis(m.since_ms), bound(m.standing, m.bound_ms))
}

fn bound(standing: Standing, bound_ms: u64) -> String {
    let standing = match standing {
        Standing::Good if bound_ms == 0 => return String::new(),
        Standing::Good => ", if it is gone",
        Standing::TimingOut => ", is timing out",
        Standing::Evicted => ", is evicted",
    };
    if bound_ms == 0 { standing.to_owned() } else { format!("{standing}, free in {} at the latest", millis(bound_ms)) }
}

pub(super) fn queued(m: &Queued<'_>) -> String {
    format!("waits for {}, {} before it; {}", lock_name(m.lock), m.ahead, holder(&m.holder))
}

fn row(m: &LockRow<'_>) -> String {
    let state = match m.state {
        RowState::Holds => "holds",
        RowState::Waits => "waits for",
    };
    let bound = bound(m.standing, m.bound_ms);
    format!("{} {state} {} ({}, for {}{bound})", text(m.label.0), lock_name(m.lock), m.mode, millis(m.since_ms))
}

fn server(m: &ServerReport<'_>) -> String {
    let group = if m.place == 0 { String::new() } else { format!("; server {} of the {} of its group", m.place, m.members.len()) };
    format!(
        "up for {}, incarnation {} of epoch {}: {} sessions, {} timing out, {} locks, {} waiting; {} delivery failures and {} steals so far{group}",
        micros(m.uptime_ms.saturating_mul(1_000)),
        m.incarnation,
        m.epoch,
        m.sessions,
        m.timing_out,
        m.locks,
        m.waiters,
        m.delivery_failures,
        m.steals
    )
}

fn outcome(m: &OutcomeTold<'_>) -> String {
    let kept = match Reply::get(&mut Reader::new(m.reply.0)) {
        Ok(kept) => format!(": {}", reply(&kept)),
        Err(_) => String::new(),
    };
    format!("{}{kept}", fate(m.fate))
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Unknown => "what became of it is not known",
        Fate::Executed => "it was executed",
        Fate::NotExecuted => "it was not executed and never will be",
    }
}

pub(super) fn result(m: &RequestResult<'_>) -> String {
    format!("was executed before the delivery failed: {}", reply(&m.reply))
}

pub(super) fn nack(m: &Nack) -> String {
    let why = match m.reason {
        NackReason::TimingOut => "refused, for the session is timing out",
        NackReason::Ended => "refused, for the session has ended",
    };
    // A control message has no fate: each may be repeated without harm.
    if m.nonce == 0 { format!("{why}; the agent must discard all it holds") } else { format!("{why}; {}", fate(m.fate)) }
}

pub(super) fn released(m: &Released<'_>) -> String {
    if m.items.is_empty() {
        return "the agent has none of them any more".to_owned();
    }
    let item = |item: ReleasedItem| match (item.keep, item.now.0) {
        (Keep::Shared, now) if now != 0 => format!("keeps {} shared (generation {now})", lock_name(item.lock)),
        _ => format!("has {} no more (generation {})", lock_name(item.lock), item.generation),
    };
    format!("the agent {}", join(m.items.iter().map(item)))
}

pub(super) fn cancelled(m: &Cancelled) -> String {
    match m.outcome {
        CancelOutcome::Cancelled => format!("n{} waits no more, nothing was granted", m.nonce),
        CancelOutcome::Granted => format!("n{} had been granted its lock before: generation {}", m.nonce, m.generation),
        CancelOutcome::Answered => format!("n{} had been answered before", m.nonce),
    }
}
