//! What messages and requests cost, in nanoseconds of one core.
//!
//! One table, by counted work: nothing is measured while the server runs, so what is charged is the same in every run. `cistern-path prices`
//! compares it with instructions: each price must be between a half and twice what is counted, by the same ratio for all.

#![expect(clippy::cast_possible_truncation, reason = "what one request is about is far below 4 GiB")]

use cistern_wire::Kind;

/// What a datagram costs besides its messages: the system calls of its receipt and of an answer, its checks, its session.
pub(crate) const DATAGRAM: u32 = 1_200;
/// A value of the store that a run has looked at.
const LOOK: u32 = 60;
/// A row of locks, or a holder that was looked at for a list.
const ROW: u32 = 260;
/// A lock that was asked back.
const DEMAND: u32 = 300;
/// A grant that a release, or the end of a session, has brought to one who waited.
pub(crate) const GRANT: u32 = 600;
/// 16 bytes that were copied out of a request, or into a reply.
const BYTES_16: u32 = 5;
/// 16 bytes of names that were listed.
const LISTED_16: u32 = 32;
/// 16 bytes that a mutation gives to the store.
const STORED_16: u32 = 12;

/// 16 bytes of a stage that are filled before their piece has come: 11 ns in new pages of a virtual machine, a fraction of one where the allocator
/// has them still.
const FILLED_16: u32 = 8;
/// An operator's line, or one about the own key, besides what it lists: it is read, logged and executed, looks at each invite, and its change is
/// committed.
pub(crate) const LINE: u32 = 40_000;

/// A session or a hold that is looked at for what withdrawn rights allowed.
const PLACE: u32 = 10;

/// What one message of each kind costs at least, by its code.
const LEAST: [u16; 256] = {
    let (mut prices, mut at) = ([250; 256], 0);
    while at < Kind::ALL.len() {
        prices[Kind::ALL[at].code() as usize] = least(Kind::ALL[at]);
        at += 1;
    }
    prices
};

/// What one message of a kind costs at least, copies included, which are answered from what is kept.
const fn least(kind: Kind) -> u16 {
    match kind {
        Kind::KeepAlive => 100,
        Kind::Receipt | Kind::Cancel => 250,
        Kind::GetAttr | Kind::Read => 270,
        Kind::Lookup => 300,
        Kind::Lock => 480,
        Kind::Create | Kind::Mkdir | Kind::MakeRealm | Kind::MakeLease | Kind::Symlink | Kind::Batch => 3_500,
        Kind::Write | Kind::SetAttr | Kind::SetQuota | Kind::Attach | Kind::SetXattr | Kind::RemoveXattr => 2_000,
        Kind::Link | Kind::Unlink | Kind::Rmdir | Kind::Rename => 2_000,
        Kind::Reclaim | Kind::ReclaimComplete => 1_000,
        Kind::Roster => 700,
        _ => 400,
    }
}

/// What a control message costs, copies and what cannot be acted on included.
#[inline]
pub(crate) const fn control(kind: Kind) -> u32 {
    LEAST[kind.code() as usize] as u32
}

/// What a RELEASE of so many bytes costs besides: it is as long as what it gives back.
#[inline]
pub(crate) const fn released(bytes: usize) -> u32 {
    bytes as u32 * 7
}

/// What a run of a request costs that has looked at so many values, and whose body and reply have so many bytes; lists, demands and what is
/// stored besides.
#[inline]
pub(crate) const fn request(kind: Kind, looks: u32, bytes: usize) -> u32 {
    LEAST[kind.code() as usize] as u32 + looks * LOOK + bytes as u32 / 16 * BYTES_16
}

/// What so many bytes cost that a mutation gives to the store.
pub(crate) const fn stored(bytes: usize) -> u32 {
    bytes as u32 / 16 * STORED_16
}

/// What it costs to fill so many bytes of a stage.
pub(crate) const fn filled(bytes: usize) -> u32 {
    bytes as u32 / 16 * FILLED_16
}

/// What it costs to list so many bytes of names.
pub(crate) const fn listed(bytes: usize) -> u32 {
    bytes as u32 / 16 * LISTED_16
}

/// What a list of so many rows costs.
pub(crate) const fn rows(count: usize) -> u32 {
    (count as u32).saturating_mul(ROW)
}

/// What it costs to look through so many sessions and holds.
pub(crate) fn places(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(PLACE)
}

/// What it costs to ask so many locks back.
pub(crate) const fn demands(count: u64) -> u32 {
    (count as u32).saturating_mul(DEMAND)
}
