//! One or more samples of every message and every reply.
//!
//! Decides: the values on which codec tests, fuzz corpora, test vectors of the specification and the dissector's tests agree.
//! Invariant: every `Kind` and every `ReplyKind` has at least one sample, with its lists and options filled at least once.
//! Leaves to others: what is done with them.

use crate::sealed::{
    MAC_LEN, OpenPayload, OpenStatus, SealedAsk, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedOpen, SealedRefusal,
    SealedRefuse, SealedResume, SealedWelcome, WelcomePayload, Zeros,
};
use crate::{
    Ack, Admin, AdminAnswer, AgentId, Alive, Ask, Attach, Attr, Batch, BatchFailed, Bytes8, Bytes16, CacheGrant, Cancel, CancelOutcome,
    Cancelled, Challenge, Changed, Claim, Confirm, Create, Data, Demand, Done, Effect, EndReason, EndSession, Ended, Entry, Expect, Failed,
    Fate, FormerClaim, FormerFate, Generation, GetAttr, GetXattr, Grant, Granted, GroupMember, Handle, Held, Hello, Hint, Holder, Item,
    ItemResult, Join, JoinOutcome, Joined, Keep, KeepAlive, KeepLease, Known, LeaseKept, LeaseRow, LeaseRows, Limit, Limited, Link, List,
    ListLeases, ListLocks, ListRealms, ListXattr, Listing, Lock, LockClass, LockId, LockRefused, LockRow, LockRows, LockWait, Lookup,
    MakeLease, MakeRealm, Message, Mkdir, Mode, Nack, NackReason, ObjectId, ObjectKind, Opened, Outcome, OutcomeTold, PathChallenge,
    PathResponse, Pending, Probe, Queued, Read, ReadDir, Realm, RealmRow, RealmRows, Receipt, ReceiptAnswer, Reclaim, ReclaimComplete,
    ReclaimItem, Reclaimed, ReclaimedItem, Refuse, RefuseReason, Release, ReleaseItem, Released, ReleasedItem, RemoveXattr, Rename,
    RenameRule, Reply, RequestResult, Rmdir, RosterAsk, RosterPart, RowState, ServerReport, ServerStatus, SessionFate, SessionId, SetAttr,
    SetMask, SetQuota, SetXattr, Stage, Standing, Stated, Status, StoreId, Symlink, Terms, Unlink, Unwatch, WaitOver, Walked, Want, Watch,
    WatchEvent, Watched, Welcome, Whose, Write, Xattr, XattrNames, XattrRule,
};
use alloc::vec;
use alloc::vec::Vec;

const ASK: Ask = Ask { nonce: 7, back: 2, limit: 1_232 };
const LOCK: LockId = LockId { object: ObjectId(42), class: LockClass::Advisory };
const CACHE: LockId = LockId { object: ObjectId(42), class: LockClass::Cache };
const GRANT: CacheGrant = CacheGrant { mode: Want::Shared, generation: Generation(0x0100_0000_0000_0009) };
const ATTR: Attr = Attr {
    object: ObjectId(42),
    version: 3,
    kind: ObjectKind::File,
    mode: 0o644,
    nlink: 1,
    uid: 1000,
    gid: 100,
    size: 11,
    atime_ns: 1_700_000_000_000_000_001,
    mtime_ns: 1_700_000_000_000_000_002,
    ctime_ns: -1,
    owner: Handle(0),
    realm: Realm(1),
};
const DIR: Attr = Attr { object: ObjectId(1), kind: ObjectKind::Directory, mode: 0o755, nlink: 2, ..ATTR };
const TERMS: Terms<'static> = Terms {
    want: Want::Exclusive,
    guard_object: ObjectId(9),
    guard_generation: Generation(5),
    held: List::of(&[Held { object: ObjectId(1), generation: Generation(4) }]),
    expect: List::of(&[Expect { object: ObjectId(42), version: 3 }]),
};
const HOLDER: Holder<'static> = Holder {
    label: Bytes8(b"host-a:4711"),
    handle: Handle(0xA1B2_C3D4_E5F6_0718),
    mode: Mode::Exclusive,
    since_ms: 1_500,
    standing: Standing::TimingOut,
    bound_ms: 2_021,
};
const RECLAIM_ITEM: ReclaimItem =
    ReclaimItem { lock: LOCK, mode: Mode::Exclusive, generation: Generation(9), first: Generation(8), run: 1_024, version: 0 };
const NAME: Bytes8<'static> = Bytes8(b"nightly");
const XATTR: Bytes8<'static> = Bytes8(b"user.a");
/// One item of every kind; the later ones name what the first two make.
const ITEMS: [Item<'static>; 15] = {
    let (ask, terms, dir, object) = (Ask::NONE, Terms::NONE, ObjectId::made_by(0), ObjectId::made_by(1));
    [
        Item::Mkdir(Mkdir { ask, dir: ObjectId(1), name: NAME, mode: 0o755, uid: 1, gid: 2, terms }),
        Item::Create(Create { ask, dir, name: NAME, exclusive: true, mode: 0o644, uid: 1, gid: 2, ephemeral: true, terms }),
        Item::Write(Write { ask, object, offset: 0, truncate: true, stage: 0, data: Bytes16(b"hello"), terms }),
        Item::SetAttr(SetAttr {
            ask,
            object,
            mask: SetMask { bits: SetMask::UID },
            mode: 0,
            uid: 3,
            gid: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            terms,
        }),
        Item::SetXattr(SetXattr { ask, object, name: XATTR, rule: XattrRule::Any, stage: 7, data: Bytes16(b""), terms }),
        Item::RemoveXattr(RemoveXattr { ask, object, name: XATTR, terms }),
        Item::Symlink(Symlink { ask, dir, name: Bytes8(b"l"), target: Bytes16(b"nightly"), uid: 1, gid: 2, terms }),
        Item::Link(Link { ask, object, dir, name: Bytes8(b"h"), terms }),
        Item::Rename(Rename {
            ask,
            from_dir: dir,
            from_name: Bytes8(b"h"),
            to_dir: ObjectId(1),
            to_name: Bytes8(b"h"),
            rule: RenameRule::NoReplace,
            force: false,
            terms,
        }),
        Item::Unlink(Unlink { ask, dir, name: Bytes8(b"l"), force: false, terms }),
        Item::Rmdir(Rmdir { ask, dir: ObjectId(1), name: Bytes8(b"old"), terms }),
        Item::MakeRealm(MakeRealm { ask, dir: ObjectId(1), name: Bytes8(b"team"), mode: 0o755, uid: 1, gid: 2, terms }),
        Item::SetQuota(SetQuota { ask, root: ObjectId::made_by(11), objects: Some(1_000), bytes: None, terms }),
        Item::MakeLease(MakeLease {
            ask,
            dir,
            name: Bytes8(b"web1"),
            mode: 0o644,
            uid: 1,
            gid: 2,
            ttl_ms: 30_000,
            verifier: [0x5E; 32],
            terms,
        }),
        Item::Attach(Attach { ask, object, lease: ObjectId::made_by(13), secret: [0x5C; 16], terms }),
    ]
};

/// At least one sample of every kind of reply.
#[must_use]
pub fn reply_samples() -> Vec<Reply<'static>> {
    vec![
        Reply::Done(Done {}),
        Reply::Failed(Failed { status: Status::ENOENT, retry_ms: 0 }),
        Reply::Failed(Failed { status: Status::BUSY, retry_ms: 250 }),
        Reply::Walked(Walked {
            status: Status::OK,
            steps: List::of(&[Stated { attr: DIR, grant: GRANT }, Stated { attr: ATTR, grant: CacheGrant::NONE }]),
            target: Bytes16(b"../elsewhere"),
        }),
        Reply::Stated(Stated { attr: ATTR, grant: GRANT }),
        Reply::Listing(Listing {
            dir: DIR,
            grant: GRANT,
            end: true,
            entries: List::of(&[
                Entry { name: NAME, object: ObjectId(42), kind: ObjectKind::File, detail: Some(Stated { attr: ATTR, grant: GRANT }) },
                Entry { name: Bytes8(b"\xff"), object: ObjectId(43), kind: ObjectKind::Symlink, detail: None },
            ]),
        }),
        Reply::Data(Data { attr: ATTR, grant: CacheGrant::NONE, offset: 0, data: Bytes16(b"hello world") }),
        Reply::Changed(Changed { effects: List::of(&[Effect { before: 2, attr: ATTR, grant: GRANT }]) }),
        Reply::Granted(Granted { lock: LOCK, mode: Mode::Exclusive, generation: Generation(9), run: 1_024 }),
        Reply::LockRefused(LockRefused { lock: LOCK, holder: HOLDER }),
        Reply::LockRows(LockRows {
            end: false,
            rows: List::of(&[LockRow {
                lock: LOCK,
                state: RowState::Waits,
                mode: Mode::Shared,
                generation: Generation(0),
                label: HOLDER.label,
                handle: HOLDER.handle,
                since_ms: 20,
                standing: Standing::Good,
                bound_ms: 0,
                place: Bytes16(b"/jobs/nightly"),
            }]),
        }),
        Reply::ServerReport(ServerReport {
            store: StoreId([0x5A; 16]),
            epoch: 1,
            incarnation: 2,
            uptime_ms: 3,
            agent: AgentId([0xA1; 16]),
            sessions: 4,
            timing_out: 5,
            locks: 6,
            waiters: 7,
            objects: 8,
            requests: 9,
            demands: 10,
            delivery_failures: 11,
            steals: 12,
            drops: 13,
            place: 2,
            members: List::of(&[
                GroupMember { name: Bytes8(b"a:7311"), heard_ms: 40 },
                GroupMember { name: Bytes8(b"b:7311"), heard_ms: 0 },
                GroupMember { name: Bytes8(b"c:7311"), heard_ms: GroupMember::NOT_HEARD },
            ]),
        }),
        Reply::Reclaimed(Reclaimed {
            items: List::of(&[
                ReclaimedItem { lock: CACHE, generation: Generation(9), status: Status::OK, version: 4 },
                ReclaimedItem { lock: LOCK, generation: Generation(9), status: Status::NOT_HELD, version: 0 },
            ]),
        }),
        // The reply kept is DONE.
        Reply::OutcomeTold(OutcomeTold { fate: Fate::Executed, reply: Bytes16(&[0x00]) }),
        Reply::OutcomeTold(OutcomeTold { fate: Fate::NotExecuted, reply: Bytes16(b"") }),
        Reply::Xattr(Xattr { object: ObjectId(42), version: 3, total: 2_000, offset: 1_000, data: Bytes16(b"value") }),
        Reply::XattrNames(XattrNames {
            object: ObjectId(42),
            version: 3,
            end: true,
            names: List::of(&[Bytes8(b"user.a"), Bytes8(b"user.b")]),
        }),
        Reply::BatchFailed(BatchFailed { status: Status::EEXIST, item: 1 }),
        Reply::Watched(Watched { attr: Attr { owner: Handle(0x0102_0304_0506_0708), ..ATTR } }),
        Reply::Batched(crate::Batched {
            items: List::of(&[ItemResult { object: ObjectId(42), version: 3 }, ItemResult { object: ObjectId(43), version: 0 }]),
        }),
        Reply::Limited(Limited { limit: Limit::Bytes, whose: Whose::Realm, realm: Realm(7), used: 4_000, bound: 4_096, retry_ms: 0 }),
        Reply::RealmRows(RealmRows {
            end: true,
            rows: List::of(&[RealmRow {
                realm: Realm(7),
                parent: Realm(1),
                root: ObjectId(42),
                objects: 9,
                objects_max: 0,
                bytes: 4_000,
                bytes_max: 4_096,
                place: Bytes16(b"/teams/web"),
            }]),
        }),
        Reply::LeaseKept(LeaseKept { ttl_ms: 30_000 }),
        Reply::LeaseRows(LeaseRows {
            end: false,
            rows: List::of(&[LeaseRow {
                object: ObjectId(42),
                lease: ObjectId(43),
                ttl_ms: 30_000,
                left_ms: 12_500,
                files: 2,
                place: Bytes16(b"/jobs/nightly"),
            }]),
        }),
        Reply::AdminAnswer(AdminAnswer { answer: 7, total: 2_000, offset: 1_100, text: Bytes16(br#","sessions":2}]}"#) }),
    ]
}

/// At least one sample of every kind of message.
#[must_use]
pub fn samples() -> Vec<Message<'static>> {
    let mut all = handshake_samples();
    all.extend(control_samples());
    all.extend(request_samples());
    all.extend(answer_samples());
    all
}

fn handshake_samples() -> Vec<Message<'static>> {
    vec![
        Message::Hello(Hello {
            handshake: 0x0102_0304_0506_0708,
            version_min: 1,
            version_max: 1,
            window: 64,
            max_datagram: 1_232,
            features: 0,
            agent: AgentId([0xA1; 16]),
            incarnation: 3,
            boot: [0xB0; 16],
            store: StoreId([0x5A; 16]),
            epoch: 1,
            server_incarnation: 2,
            lease_us: 0,
            first_packet: 0x1122_3344_5566,
            label: Bytes8(b"host-a:4711"),
            cookie: Bytes8(b"0123456789abcdef"),
        }),
        Message::Challenge(Challenge { handshake: 1, echo: 1, cookie: Bytes8(b"0123456789abcdef") }),
        Message::Welcome(Welcome {
            handshake: 1,
            echo: 2,
            version: 1,
            session: SessionId(0x1122_3344_5566_7788),
            handle: Handle(0xA1B2_C3D4_E5F6_0718),
            store: StoreId([0x5A; 16]),
            epoch: 1,
            server_incarnation: 2,
            features: 1,
            lease_us: 2_000_000,
            delta_ppm: 10_000,
            epsilon_us: 1_000,
            delivery_timeout_us: 500_000,
            window: 64,
            max_datagram: 1_232,
            first_packet: 0x6655_4433_2211,
        }),
        Message::Refuse(Refuse {
            handshake: 1,
            echo: 2,
            reason: RefuseReason::Version,
            version_min: 2,
            version_max: 3,
            retry_ms: 0,
            serving: 0,
        }),
        Message::Confirm(Confirm { serial: 1, former: List::of(&[FormerClaim { session: SessionId(5), claim: Claim::Continuing }]) }),
        Message::Opened(Opened {
            serial: 1,
            echo: 2,
            former: List::of(&[FormerFate { session: SessionId(5), fate: SessionFate::TimingOut }]),
            resume: [0; 32],
            roster: 0,
        }),
        Message::Known(Known { serial: 1, echo: 2, session: SessionId(5) }),
        Message::Join(Join { serial: 1 }),
        Message::Joined(Joined {
            serial: 1,
            echo: 2,
            outcome: JoinOutcome::Joined,
            principal: 7,
            name: Bytes8(b"web-1"),
            cluster: [3; 32],
            used_s: 0,
            used_from: [0; 16],
        }),
        Message::Roster(RosterAsk { serial: 2, offset: 400 }),
        Message::RosterPart(RosterPart { serial: 2, echo: 3, version: 4, length: 405, offset: 400, part: Bytes16(b"parts") }),
    ]
}

fn control_samples() -> Vec<Message<'static>> {
    vec![
        Message::KeepAlive(KeepAlive { serial: 1, clock_us: 123_456 }),
        Message::Release(Release {
            serial: 2,
            items: List::of(&[
                ReleaseItem { lock: CACHE, generation: Generation(9), keep: Keep::Shared },
                ReleaseItem { lock: LOCK, generation: Generation(10), keep: Keep::Nothing },
            ]),
        }),
        Message::Cancel(Cancel { serial: 4, nonce: 7 }),
        Message::EndSession(EndSession { serial: 5, reason: EndReason::Close }),
        Message::PathChallenge(PathChallenge { token: 0xFEED }),
        Message::PathResponse(PathResponse { token: 0xFEED }),
        Message::Demand(Demand { seq: 1, lock: CACHE, generation: Generation(9), keep: Keep::Nothing }),
        Message::Grant(Grant { seq: 2, nonce: 7, lock: LOCK, mode: Mode::Exclusive, generation: Generation(2_048), run: 1_024 }),
        Message::WaitOver(WaitOver { seq: 3, nonce: 7, lock: LOCK, status: Status::EDEADLK }),
        Message::Probe(Probe { seq: 4 }),
        Message::WatchEvent(WatchEvent { seq: 5, object: ObjectId(42), version: 4, gone: false }),
        Message::Receipt(Receipt { seq: 1, answer: ReceiptAnswer::InUse }),
    ]
}

fn request_samples() -> Vec<Message<'static>> {
    let (ask, terms, object, dir, name) = (ASK, TERMS, ObjectId(42), ObjectId(1), NAME);
    let from = SessionId(5);
    vec![
        Message::Reclaim(Reclaim {
            ask,
            from,
            items: List::of(&[RECLAIM_ITEM, ReclaimItem { lock: CACHE, first: Generation(9), run: 0, version: 3, ..RECLAIM_ITEM }]),
        }),
        Message::ReclaimComplete(ReclaimComplete { ask, from }),
        Message::Outcome(Outcome { ask, session: from, nonce: 9 }),
        Message::Lookup(Lookup { ask, start: dir, want: Want::Shared, names: List::of(&[Bytes8(b"jobs"), NAME]) }),
        Message::GetAttr(GetAttr { ask, object, want: Want::Nothing }),
        Message::SetAttr(SetAttr {
            ask,
            object,
            mask: SetMask { bits: SetMask::MODE | SetMask::MTIME_NOW },
            mode: 0o600,
            uid: 0,
            gid: 0,
            size: 0,
            atime_ns: 0,
            mtime_ns: 0,
            terms,
        }),
        Message::ReadDir(ReadDir { ask, dir, after: name, version: 3, detail: true, want: Want::Shared }),
        Message::Create(Create { ask, dir, name, exclusive: true, mode: 0o644, uid: 1, gid: 2, ephemeral: true, terms }),
        Message::Mkdir(Mkdir { ask, dir, name, mode: 0o755, uid: 1, gid: 2, terms: Terms::NONE }),
        Message::Symlink(Symlink { ask, dir, name, target: Bytes16(b"/jobs"), uid: 1, gid: 2, terms }),
        Message::Link(Link { ask, object, dir, name, terms }),
        Message::Unlink(Unlink { ask, dir, name, force: false, terms }),
        Message::Rmdir(Rmdir { ask, dir, name, terms }),
        Message::Rename(Rename {
            ask,
            from_dir: dir,
            from_name: name,
            to_dir: ObjectId(2),
            to_name: Bytes8(b"weekly"),
            rule: RenameRule::Exchange,
            force: false,
            terms,
        }),
        Message::MakeRealm(MakeRealm { ask, dir, name, mode: 0o755, uid: 1, gid: 2, terms }),
        Message::SetQuota(SetQuota { ask, root: object, objects: None, bytes: Some(4_096), terms }),
        Message::ListRealms(ListRealms { ask, realm: Realm(0), after: Realm(6) }),
        Message::MakeLease(MakeLease { ask, dir, name, mode: 0o644, uid: 1, gid: 2, ttl_ms: 30_000, verifier: [0x5E; 32], terms }),
        Message::Attach(Attach { ask, object, lease: ObjectId(43), secret: [0x5C; 16], terms }),
        Message::Read(Read { ask, object, offset: 4_096, length: 65_536, version: 3, want: Want::Shared }),
        Message::Stage(Stage { ask, stage: 1, total: 2_000, offset: 1_000, data: Bytes16(b"piece") }),
        Message::Write(Write { ask, object, offset: 0, truncate: true, stage: 0, data: Bytes16(b"hello"), terms }),
        Message::Batch(Batch { ask, items: List::of(&ITEMS), terms }),
        Message::GetXattr(GetXattr { ask, object, name: XATTR, offset: 1_000, length: 65_536, version: 3 }),
        Message::ListXattr(ListXattr { ask, object, after: XATTR, version: 0 }),
        Message::SetXattr(SetXattr { ask, object, name: XATTR, rule: XattrRule::Create, stage: 0, data: Bytes16(b"value"), terms }),
        Message::RemoveXattr(RemoveXattr { ask, object, name: XATTR, terms }),
        Message::Lock(Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Queue }),
        Message::ListLocks(ListLocks { ask, object: ObjectId(0), after_object: ObjectId(41), after_row: 1, places: true }),
        Message::ServerStatus(ServerStatus { ask }),
        Message::Watch(Watch { ask, object: ObjectId(42) }),
        Message::Unwatch(Unwatch { ask, object: ObjectId(42) }),
        Message::KeepLease(KeepLease { ask, lease: ObjectId(43), secret: [0x5C; 16] }),
        Message::ListLeases(ListLeases { ask, lease: ObjectId(0), after: ObjectId(42) }),
        Message::Admin(Admin { ask, answer: 0, offset: 0, line: Bytes16(br#"{"op":"agents"}"#) }),
    ]
}

fn answer_samples() -> Vec<Message<'static>> {
    let (nonce, echo) = (7, 19);
    let mut all: Vec<_> = reply_samples().into_iter().map(|reply| Message::Ack(Ack { nonce, echo, reply })).collect();
    all.extend([
        Message::Pending(Pending { nonce, echo }),
        Message::Queued(Queued { nonce, echo, lock: LOCK, ahead: 1, holder: HOLDER }),
        Message::Result(RequestResult { nonce, reply: Reply::Done(Done {}) }),
        Message::Nack(Nack { nonce, echo, reason: NackReason::TimingOut, fate: Fate::NotExecuted }),
        Message::Alive(Alive { serial: 1, echo }),
        Message::Released(Released {
            serial: 2,
            echo,
            items: List::of(&[ReleasedItem { lock: CACHE, generation: Generation(9), keep: Keep::Shared, now: Generation(12) }]),
        }),
        Message::Cancelled(Cancelled { serial: 4, echo, nonce, outcome: CancelOutcome::Granted, generation: Generation(2_048) }),
        Message::Ended(Ended { serial: 5, echo }),
        Message::Hint(Hint { echo, detail: Bytes8(b"") }),
    ]);
    all
}

/// A sample of every kind of handshake datagram of the sealed mode. What is encrypted in them, and their checks, are any bytes.
#[must_use]
pub fn sealed_samples() -> Vec<SealedDatagram> {
    let (handshake, echo, key_id, mac1) = (0x0102_0304_0506_0708, 1, [0xD1; 8], [0xAC; MAC_LEN]);
    let (cookie, ephemeral) = ([0xC0; 24], [0xE0; 32]);
    let opening = |packet, body: SealedHandshake| SealedDatagram::new(SessionId(0), packet, body);
    vec![
        opening(1, SealedAsk { handshake, key_id, room: Zeros, mac1 }.into()),
        opening(1, SealedChallenge { handshake, echo, cookie, mac1 }.into()),
        opening(
            2,
            SealedOpen { handshake, key_id, cookie, psk_id: [0; 8], ephemeral, agent_key: [0x5E; 48], payload: [0x11; 216], mac1 }.into(),
        ),
        opening(2, SealedResume { handshake, key_id, cookie, former: SessionId(5), ephemeral, payload: [0x11; 208], mac1 }.into()),
        opening(2, SealedWelcome { handshake, echo: 2, ephemeral, payload: [0x22; 184] }.into()),
        opening(
            3,
            SealedRefuse { handshake, echo, reason: SealedRefusal::Busy, serving: 0, reserved: Zeros, retry_ms: 1_000, room: Zeros, mac1 }
                .into(),
        ),
        SealedDatagram::new(SessionId(5), 1, SealedHint { echo: 19, mac1 }),
    ]
}

/// What OPEN and RESUME carry.
#[must_use]
pub fn open_payload_sample() -> OpenPayload<'static> {
    OpenPayload {
        instance: AgentId([0xA1; 16]),
        incarnation: 3,
        boot: [0xB0; 16],
        store: StoreId([0x5A; 16]),
        epoch: 1,
        server_incarnation: 2,
        window: 64,
        max_datagram: 1_232,
        features: 0,
        lease_us: 0,
        roster: 1,
        label: Bytes8(b"host-a:4711"),
    }
}

/// What WELCOME carries.
#[must_use]
pub fn welcome_payload_sample() -> WelcomePayload {
    WelcomePayload {
        status: OpenStatus::Opened,
        version: 1,
        version_min: 1,
        version_max: 1,
        session: SessionId(0x1122_3344_5566_7788),
        handle: Handle(0xA1B2_C3D4_E5F6_0718),
        store: StoreId([0x5A; 16]),
        epoch: 1,
        server_incarnation: 2,
        features: 0,
        lease_us: 2_000_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 500_000,
        window: 64,
        max_datagram: 1_232,
        roster: 1,
        retry_ms: 0,
        used: 0,
        bound: 0,
    }
}
