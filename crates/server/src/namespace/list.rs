//! READDIR: a page of a directory.
//!
//! Decides: how many entries fit one answer. Place in the walk: called by `read`. Implements `wire-spec.md` sections 6.2 and 11.5.
//! Invariant: pages go by name, so a name that stays is seen once whatever changes meanwhile; a page with a version other than the
//! one asked for is refused, so a listing that is put together is of one version.
//! Leaves to others: which locks are granted.

use super::read::check_version;
use super::{directory, entered};
use crate::store::{EntryRecord, ReadError, View};
use alloc::vec::Vec;
use cistern_wire::{Bytes8, CacheGrant, Entry, Field as _, List, Listing, ObjectId, ReadDir, Reply, Stated, Status, Want, Writer};

/// A LISTING reply without entries.
const LISTING_AROUND: usize = Reply::KIND_LEN + Listing::MIN_LEN;

/// Executes READDIR, as `Namespace::read` says.
pub(super) fn read_dir(
    view: &View<'_>,
    m: &ReadDir<'_>,
    room: usize,
    grant: &mut impl FnMut(ObjectId, Want) -> CacheGrant,
    out: &mut Writer,
) -> Result<(), ReadError> {
    let dir = directory(view, m.dir)?.attr;
    check_version(&dir, m.version)?;
    let mut left = room.checked_sub(LISTING_AROUND).ok_or(Status::EINVAL)?;
    // An entry without its name.
    let around = Entry::MIN_LEN + if m.detail { Stated::LEN } else { 0 };
    // One more than can fit, to know whether there is more.
    let most = left / (around + 1) + 1;
    view.know_entries(m.dir, m.after.0, most)?;
    let mut page: Vec<(&[u8], EntryRecord)> = Vec::with_capacity(most);
    let mut end = true;
    //= wire-spec.md#11-5-caching-and-metadata
    //# A READDIR page MUST begin with the first name above the cookie, in byte order, whatever happened to the directory.
    for (name, entry) in view.entries(m.dir, m.after.0).take(most) {
        let Some(rest) = left.checked_sub(around + name.len()) else {
            end = false;
            break;
        };
        left = rest;
        page.push((name, entry));
    }
    if page.is_empty() && !end {
        return Err(Status::EINVAL.into());
    }
    if m.detail {
        know_objects(view, &page)?;
    }
    let dir_grant = grant(m.dir, m.want);
    let mut entries: Vec<Entry<'_>> = Vec::with_capacity(page.len());
    for (name, EntryRecord { object, kind }) in page {
        let detail = match m.detail {
            true => {
                let attr = entered(view, object)?.attr;
                // Two names of one file on one page: its one grant stands at both.
                let same = entries.iter().filter(|_| attr.nlink > 1).find(|other| other.object == object);
                let given = same.and_then(|other| other.detail).map(|detail| detail.grant);
                Some(Stated { attr, grant: given.unwrap_or_else(|| grant(object, m.want)) })
            }
            false => None,
        };
        entries.push(Entry { name: Bytes8(name), object, kind, detail });
    }
    Reply::Listing(Listing { dir, grant: dir_grant, end, entries: List::of(&entries) }).put(out);
    Ok(())
}

/// Makes sure that the objects of a page are in memory.
fn know_objects(view: &View<'_>, page: &[(&[u8], EntryRecord)]) -> Result<(), ReadError> {
    let mut missing = Vec::new();
    for (_, entry) in page {
        match entered(view, entry.object) {
            Ok(_) => {}
            Err(ReadError::NotCached(queries)) => missing.extend(queries),
            Err(lack) => return Err(lack),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(ReadError::NotCached(missing)) }
}
