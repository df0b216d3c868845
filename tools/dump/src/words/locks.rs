//! Words of locks on the way: asked for, granted, demanded, given back, reclaimed. `wire-spec.md` sections 6.2 to 6.4.
//!
//! Decides: that a grant is told with its tokens. Leaves to others: answers (`answers`), all that is not about locks.

use super::{a_mode, list as join, lock_name, short, tokens};
use cistern_wire::{
    Demand, Grant, Keep, ListLocks, Lock, LockWait, ObjectId, Receipt, ReceiptAnswer, Reclaim, Release, ReleaseItem, WaitOver,
};

pub(super) fn lock(m: &Lock) -> String {
    let wait = match m.wait {
        LockWait::Try => "now or not at all",
        LockWait::Queue => "waits in line for it",
    };
    format!("asks for {} lock on {} ({wait})", a_mode(m.mode), m.object)
}

pub(super) fn list_of(object: ObjectId) -> String {
    if object.0 == 0 { "all objects".to_owned() } else { object.to_string() }
}

pub(super) fn list(m: &ListLocks) -> String {
    let after = if m.after_object.0 == 0 { String::new() } else { format!(", after row {} of {}", m.after_row, m.after_object) };
    let places = if m.places { ", and where they are" } else { "" };
    format!("asks who holds and who waits for locks on {}{places}{after}", list_of(m.object))
}

pub(super) fn release(m: &Release<'_>) -> String {
    let item = |item: ReleaseItem| match item.keep {
        Keep::Nothing => format!("{} (generation {})", lock_name(item.lock), item.generation),
        Keep::Shared => format!("{} (generation {}, keeps it shared)", lock_name(item.lock), item.generation),
    };
    format!("gives back {}", join(m.items.iter().map(item)))
}

pub(super) fn demand(m: &Demand) -> String {
    let keep = match m.keep {
        Keep::Nothing => "",
        Keep::Shared => "; a shared one may stay",
    };
    format!("wants {} back, up to generation {}{keep}", lock_name(m.lock), m.generation)
}

pub(super) fn grant(m: &Grant) -> String {
    format!("n{} has waited and gets {} lock on {}: {}", m.nonce, a_mode(m.mode), m.lock.object, tokens(m.generation, m.run))
}

pub(super) fn wait_over(m: &WaitOver) -> String {
    format!("n{} has waited for {} in vain: {}, {}", m.nonce, lock_name(m.lock), m.status.name(), m.status)
}

pub(super) fn receipt(m: &Receipt) -> String {
    match m.answer {
        ReceiptAnswer::Received => "the agent has taken it in",
        ReceiptAnswer::InUse => "the lock is in use, and goes back when its user ends",
        ReceiptAnswer::NotHeld => "the agent holds no such grant and never will",
        ReceiptAnswer::Awaited => "the grant has not arrived yet; the agent complies when it has",
    }
    .to_owned()
}

pub(super) fn reclaim(m: &Reclaim<'_>) -> String {
    let items = m.items.iter().map(|item| format!("{} ({}, {})", lock_name(item.lock), item.mode, tokens(item.generation, item.run)));
    format!("takes over from session {}: {}", short(m.from), join(items))
}
