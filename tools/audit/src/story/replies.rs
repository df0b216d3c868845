//! What stands in a reply: locks, versions, and whether it belongs to its request.
//!
//! Decides nothing about order or time. Place in the walk: under `down`. Implements the tables of `wire-spec.md` section 6.5.
//! Leaves to others: what becomes of it.

use super::raw;
use super::session::{Asked, Request};
use crate::event::{Grant, How};
use cistern_wire::{Class, Field, Given, Kind, Reclaimed, Reply, ReplyKind, Status};

/// The bytes of a reply in short, without the grants in it, as a RESULT has them.
pub(super) fn bare(reply: &Reply<'_>, bytes: &[u8]) -> u64 {
    let Reply::Changed(changed) = reply else { return raw::sum(bytes) };
    let mut bare = Vec::with_capacity(bytes.len());
    for effect in changed.effects.iter() {
        effect.before.put(&mut bare);
        effect.attr.put(&mut bare);
    }
    raw::sum(&bare)
}

/// Why an operation failed, if it did.
pub(super) const fn status(reply: &Reply<'_>) -> Option<Status> {
    match reply {
        Reply::Failed(failed) => Some(failed.status),
        Reply::BatchFailed(failed) => Some(failed.status),
        Reply::Limited(_) => Some(Status::EDQUOT),
        _ => None,
    }
}

/// Every new grant in a reply.
pub(super) fn grants(reply: &Reply<'_>, nonce: u64, mut tell: impl FnMut(Grant)) {
    let how = if matches!(reply, Reply::Changed(_)) { How::Effect } else { How::Answer };
    reply.each_grant(|Given { lock, mode, generation, run, version }| {
        tell(Grant { lock, mode, generation, run, version, how, nonce, news: false });
    });
}

/// Locks that a reclaim gives back.
pub(super) fn reclaimed(request: Option<&Request>, nonce: u64, reclaimed: &Reclaimed<'_>, mut tell: impl FnMut(Grant)) {
    let Some(Asked::Reclaim { items, .. }) = request.map(|request| &request.asked) else { return };
    for (asked, told) in items.iter().zip(reclaimed.items.iter()).filter(|(_, told)| told.status.is_ok()) {
        let (lock, mode, generation, run, version) = (asked.lock, asked.mode, asked.generation, asked.run, told.version);
        tell(Grant { lock, mode, generation, run, version, how: How::Reclaim, nonce, news: false });
    }
}

/// What of a reply does not belong to its request: "answered by" in section 6.2.
pub(super) fn unfit(request: &Request, reply: &Reply<'_>) -> Option<&'static str> {
    let fits = match reply.kind() {
        ReplyKind::Failed | ReplyKind::Limited => true,
        ReplyKind::Walked => request.kind == Kind::Lookup,
        ReplyKind::Stated => request.kind == Kind::GetAttr,
        ReplyKind::Listing => request.kind == Kind::ReadDir,
        ReplyKind::Data => request.kind == Kind::Read,
        ReplyKind::Changed => request.kind.class() == Some(Class::Mutation) && request.kind != Kind::Batch,
        ReplyKind::Granted => request.kind == Kind::Lock,
        ReplyKind::LockRefused => request.kind == Kind::Lock,
        ReplyKind::LockRows => request.kind == Kind::ListLocks,
        ReplyKind::RealmRows => request.kind == Kind::ListRealms,
        ReplyKind::AdminAnswer => request.kind == Kind::Admin,
        ReplyKind::LeaseKept => request.kind == Kind::KeepLease,
        ReplyKind::LeaseRows => request.kind == Kind::ListLeases,
        ReplyKind::ServerReport => request.kind == Kind::ServerStatus,
        ReplyKind::Reclaimed => request.kind == Kind::Reclaim,
        ReplyKind::OutcomeTold => request.kind == Kind::Outcome,
        ReplyKind::Xattr => request.kind == Kind::GetXattr,
        ReplyKind::XattrNames => request.kind == Kind::ListXattr,
        ReplyKind::Batched | ReplyKind::BatchFailed => request.kind == Kind::Batch,
        ReplyKind::Watched => request.kind == Kind::Watch,
        ReplyKind::Done => matches!(request.kind, Kind::Stage | Kind::ReclaimComplete | Kind::Unwatch),
    };
    if !fits {
        return Some("its kind of reply");
    }
    match (&request.asked, reply) {
        (Asked::Object(object), Reply::Stated(stated)) if stated.attr.object != *object => Some("the object"),
        (Asked::Object(object), Reply::Data(data)) if data.attr.object != *object => Some("the object"),
        (Asked::Object(object), Reply::Listing(listing)) if listing.dir.object != *object => Some("the directory"),
        (Asked::Object(object), Reply::Watched(watched)) if watched.attr.object != *object => Some("the object"),
        (Asked::Object(object), Reply::Xattr(xattr)) if xattr.object != *object => Some("the object"),
        (Asked::Lock { object, .. }, Reply::Granted(granted)) if granted.lock.object != *object => Some("the object"),
        (Asked::Lock { object, .. }, Reply::LockRefused(refused)) if refused.lock.object != *object => Some("the object"),
        (Asked::Batch { items }, Reply::Batched(done)) if done.items.len() != *items => Some("the number of items"),
        (Asked::Batch { items }, Reply::BatchFailed(failed)) if usize::from(failed.item) >= (*items).max(1) => Some("the item"),
        (Asked::Reclaim { items, .. }, Reply::Reclaimed(reclaimed)) => {
            let same = items.len() == reclaimed.items.len()
                && items
                    .iter()
                    .zip(reclaimed.items.iter())
                    .all(|(asked, told)| (asked.lock, asked.generation) == (told.lock, told.generation));
            (!same).then_some("the locks")
        }
        (Asked::Object(object), Reply::Changed(changed)) => {
            let first = changed.effects.iter().next();
            first.is_some_and(|effect| effect.attr.object != *object).then_some("the object")
        }
        _ => None,
    }
}
