//! Each fault alone: a sound store, damaged in one way, and exactly what is found in it.

use super::{Check, Fault, Finding, Place, Report, Severity};
use bytes::Bytes;
use cistern_server::invites::{InviteId, InviteUse};
use cistern_server::principals::{PrincipalId, Rights};
use cistern_server::store::{
    AccountRecord, BLOCK_LEN, Bound, Counter, EntryRecord, EphemeralRecord, InviteRecord, Key, LeaseRecord, NEW_CLUSTER, ObjectRecord,
    OutcomeRecord, PrincipalRecord, RESTORED, RealmRecord, SessionRecord, XattrRecord,
};
use cistern_server::store::{EarlierKeys, counter_to_bytes};
use cistern_wire::{AgentId, Attr, Done, Field as _, Handle, ObjectId, ObjectKind, Realm, Reply, SessionId};
use std::collections::BTreeMap;
use std::convert::Infallible;

use ObjectKind::{Directory, File, Symlink};

/// A store that can be damaged.
#[derive(Clone)]
struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

const ROOT: u64 = 1;
const DIR: u64 = 2;
const FILE: u64 = 3;
const LINK: u64 = 4;
const INNER: u64 = 5;
const SESSION: u64 = 77;

/// `/d`, `/f`, `/l` → `f`, `/d/e` with an extended attribute, and `/d/g`, which is `/f`; a session with an outcome.
fn sound() -> Store {
    let mut store = Store(BTreeMap::new());
    let counters = [
        (Counter::NextObject, 6),
        (Counter::Objects, 5),
        (Counter::Bytes, 70_003),
        (Counter::Tokens, (1 << 56) + 9),
        (Counter::Incarnation, 3),
        (Counter::Epoch, 1),
        (Counter::Restored, 0),
        (Counter::Wait, 2_021_000),
    ];
    for (counter, value) in counters {
        store.count(counter, value);
    }
    store.session(|_| {});
    store.outcome(SESSION, 2, 6);
    store.make(ROOT, Directory, 3, 3, ROOT, "");
    store.make(DIR, Directory, 3, 2, ROOT, "d");
    store.make(FILE, File, 2, 70_000, DIR, "g");
    store.make(LINK, Symlink, 1, 1, ROOT, "l");
    store.make(INNER, Directory, 2, 0, DIR, "e");
    for (dir, name, object, kind) in [
        (ROOT, "d", DIR, Directory),
        (ROOT, "f", FILE, File),
        (ROOT, "l", LINK, Symlink),
        (DIR, "e", INNER, Directory),
        (DIR, "g", FILE, File),
    ] {
        store.enter(dir, name, object, kind);
    }
    store.block(FILE, 0, BLOCK_LEN);
    store.block(FILE, 1, 70_000 - BLOCK_LEN);
    store.put(&Key::Block(ObjectId(LINK), 0), b"f");
    store.change(INNER, |dir| dir.xattrs = 1);
    store.xattrs(INNER, &[(b"user.a", b"ab")]);
    store
}

impl Store {
    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.insert(key.to_bytes(), value.to_vec());
    }

    fn remove(&mut self, key: &Key) {
        assert!(self.0.remove(&key.to_bytes()).is_some(), "{key:?} is there to be removed");
    }

    fn count(&mut self, counter: Counter, value: u64) {
        self.put(&Key::Counter(counter), &counter_to_bytes(value));
    }

    fn make(&mut self, id: u64, kind: ObjectKind, nlink: u32, size: u64, parent: u64, name: &str) {
        let times = (1, 2, 3);
        let attr = Attr {
            object: ObjectId(id),
            version: 1,
            kind,
            mode: 0o755,
            nlink,
            uid: 0,
            gid: 0,
            size,
            atime_ns: times.0,
            mtime_ns: times.1,
            ctime_ns: times.2,
            owner: Handle(0),
            realm: Realm::TREE,
        };
        let record = ObjectRecord {
            attr,
            parent: ObjectId(parent),
            name: Bytes::copy_from_slice(name.as_bytes()),
            xattrs: 0,
            creator: PrincipalId::ANYBODY,
        };
        self.put(&Key::Object(ObjectId(id)), &record.to_bytes());
    }

    /// Changes an object's record.
    fn change(&mut self, id: u64, how: impl FnOnce(&mut ObjectRecord)) {
        let key = Key::Object(ObjectId(id));
        let mut record = ObjectRecord::from_bytes(ObjectId(id), &self.0[&key.to_bytes()]).unwrap();
        how(&mut record);
        self.put(&key, &record.to_bytes());
    }

    fn enter(&mut self, dir: u64, name: &str, object: u64, kind: ObjectKind) {
        let entry = EntryRecord { object: ObjectId(object), kind };
        self.put(&entry_key(dir, name), &entry.to_bytes());
    }

    fn block(&mut self, id: u64, n: u32, len: usize) {
        self.put(&Key::Block(ObjectId(id), n), &vec![7; len]);
    }

    fn xattrs(&mut self, id: u64, all: &[(&[u8], &[u8])]) {
        let record = XattrRecord::of(all.iter().copied()).unwrap();
        self.put(&Key::Xattrs(ObjectId(id)), &record.into_bytes());
    }

    fn principal(&mut self, id: u8, name: &str, how: impl FnOnce(&mut PrincipalRecord)) {
        let rights = vec![(Realm::TREE, Rights::READ)];
        let (name, key) = (name.as_bytes().into(), Some([id; 32]));
        let mut record = PrincipalRecord { name, key, rotated: None, operator: false, revoked: false, rights };
        how(&mut record);
        self.put(&Key::Principal(PrincipalId(id.into())), &record.to_bytes());
    }

    fn account(&mut self, id: u32, objects: u64, bytes: u64) {
        let record = AccountRecord { objects, bytes, ..AccountRecord::default() };
        self.put(&Key::Account(PrincipalId(id)), &record.to_bytes());
    }

    fn made_by(&mut self, object: u64, id: u32) {
        let key = Key::Object(ObjectId(object));
        let mut record = ObjectRecord::from_bytes(ObjectId(object), &self.0[&key.to_bytes()]).unwrap();
        record.creator = PrincipalId(id);
        self.put(&key, &record.to_bytes());
    }

    fn invite(&mut self, key: u8) {
        let one = InviteUse { key: [key; 32], principal: PrincipalId(1), at_s: 1, from: [10, 0, 0, 1].into() };
        let (secret, name, rights, used) = ([7; 16].into(), (*b"web").into(), Vec::new(), vec![one]);
        let record = InviteRecord { secret, name, operator: false, rights, uses: 1, expires_s: 9, rotates: None, used };
        self.put(&Key::Invite(InviteId(5)), &record.to_bytes());
    }

    fn start_key(&mut self, len: usize) {
        // Its version, and 32 bytes if it is whole.
        self.put(&Key::StartKey(3), &vec![1; len]);
    }

    /// `/d/e` begins a realm.
    fn realm(&mut self, how: impl FnOnce(&mut RealmRecord)) {
        let mut record = RealmRecord { parent: Realm::TREE, root: ObjectId(INNER), objects: 1, bytes: 2, objects_max: 0, bytes_max: 0 };
        how(&mut record);
        self.change(INNER, |dir| dir.attr.realm = Realm(7));
        self.put(&Key::Realm(Realm(7)), &record.to_bytes());
        self.count(Counter::NextRealm, 8);
    }

    fn session(&mut self, how: impl FnOnce(&mut SessionRecord)) {
        let label = (*b"host").into();
        let mut record = SessionRecord {
            principal: PrincipalId::ANYBODY,
            agent: AgentId([7; 16]),
            incarnation: 1,
            boot: [1; 16],
            lease_us: 2_000_000,
            window: 4,
            unreclaimable: false,
            locks: None,
            start: 0,
            address: None,
            label,
        };
        how(&mut record);
        self.put(&Key::Session(SessionId(SESSION)), &record.to_bytes());
    }

    fn outcome(&mut self, session: u64, slot: u16, nonce: u64) {
        let mut reply = Vec::new();
        Reply::Done(Done {}).put(&mut reply);
        self.put(&Key::Outcome(SessionId(session), slot), &OutcomeRecord { nonce, reply: reply.into() }.to_bytes());
    }

    fn check(&self) -> Report {
        self.check_listing(1_000)
    }

    fn check_listing(&self, findings_max: usize) -> Report {
        let scan = || Ok::<_, Infallible>(self.0.iter().map(Ok));
        match (Check { findings_max }).run(scan, |_| {}) {
            Ok(report) => report,
            Err(never) => match never {},
        }
    }
}

fn entry_key(dir: u64, name: &str) -> Key {
    Key::Entry(ObjectId(dir), name.as_bytes().into())
}

fn object_key(id: u64) -> Key {
    Key::Object(ObjectId(id))
}

/// What was found, as (name, place and path).
fn told(report: &Report) -> Vec<(&'static str, String)> {
    let place = |finding: &Finding| match &finding.path {
        Some(path) => path.escape_ascii().to_string(),
        None => finding.place.to_string(),
    };
    report.findings.iter().map(|finding| (finding.fault.name(), place(finding))).collect()
}

#[test]
fn a_sound_store_is_clean_and_its_figures_are_told() {
    let report = sound().check();
    assert_eq!(told(&report), []);
    assert!(report.is_clean());
    assert_eq!((report.directories, report.files, report.symlinks, report.objects()), (3, 1, 1, 5));
    assert_eq!((report.entries, report.blocks, report.content_bytes), (5, 3, 70_003));
    assert_eq!((report.sessions, report.outcomes, report.records), (1, 1, 24));
    assert_eq!(report.counter(Counter::Incarnation), Some(3));
}

#[test]
fn a_realm_s_use_is_told_from_what_is_in_it() {
    let mut store = sound();
    store.realm(|_| {});
    store.principal(1, "a", |one| one.revoked = true);
    store.principal(2, "a", |_| {});
    store.made_by(INNER, 2);
    store.made_by(FILE, 2);
    store.account(2, 2, 70_002);
    store.invite(2);
    store.start_key(33);
    let report = store.check();
    assert_eq!((told(&report), report.realms), (vec![], 1));
}

#[test]
fn a_restored_store_that_was_not_started_yet_is_clean() {
    let mut store = sound();
    for (key, value) in crate::restore::restoration(&store.check(), 1_800_000_000, 6).unwrap().writes {
        store.put(&key, &value.unwrap());
    }
    assert_eq!(told(&store.check()), []);
}

#[test]
fn a_new_store_is_clean() {
    assert!(Store(BTreeMap::new()).check().is_clean());
    let marked = |marks: &[(Counter, u64)]| {
        let mut store = Store(BTreeMap::new());
        marks.iter().for_each(|(counter, value)| store.count(*counter, *value));
        store.check().is_clean()
    };
    assert!(marked(&[(Counter::Restored, NEW_CLUSTER)]) && marked(&[(Counter::Epoch, 4), (Counter::Restored, RESTORED)]));
    assert!(!marked(&[(Counter::Epoch, 4)]) && !marked(&[(Counter::Restored, RESTORED)]) && !marked(&[(Counter::Incarnation, 1)]));
}

/// One test for each way of damage: what is done, and all that is found.
macro_rules! damages {
    ($($name:ident: |$store:ident| $damage:expr => [$($fault:literal at $place:literal),+];)*) => {
        $(
            #[test]
            fn $name() {
                let mut $store = sound();
                $damage;
                let found = told(&$store.check());
                let expected = [$(($fault, String::from($place))),+];
                assert_eq!(found, expected);
            }
        )*

        #[test]
        fn every_kind_of_fault_has_a_test() {
            let tested = [$($($fault),+),*];
            // The order of keys is the engine's: see the test below.
            for fault in Fault::ALL.iter().filter(|fault| **fault != Fault::Order) {
                assert!(tested.contains(&fault.name()), "{}", fault.name());
            }
        }
    };
}

damages! {
    a_key_that_is_none: |s| s.0.insert(vec![0x77, 1], vec![]) => ["unknown_key" at "key 7701"];
    a_record_cut_short: |s| s.0.get_mut(&object_key(FILE).to_bytes()).unwrap().pop() => ["bad_record" at "object #3"];
    a_directory_s_record_cut_short: |s| s.0.get_mut(&object_key(DIR).to_bytes()).unwrap().pop() => ["bad_record" at "object #2"];
    an_entry_cut_short: |s| s.0.get_mut(&entry_key(DIR, "e").to_bytes()).unwrap().pop() =>
        ["bad_record" at "/d/e", "wrong_links" at "/d", "lost_object" at "/d/e"];
    a_counter_of_another_version: |s| s.0.get_mut(&Key::Counter(Counter::Bytes).to_bytes()).unwrap()[0] = 9 =>
        ["bad_record" at "counter Bytes"];
    a_session_cut_short: |s| s.0.get_mut(&Key::Session(SessionId(SESSION)).to_bytes()).unwrap().pop() =>
        ["bad_record" at "session 000000000000004d"];
    no_root: |s| s.remove(&object_key(ROOT)) => [
        "orphan_entry" at "/d", "orphan_entry" at "/f", "orphan_entry" at "/l", "lost_object" at "/d", "wrong_links" at "/d/g",
        "lost_object" at "/l", "bad_root" at "/", "wrong_counter" at "counter Objects"
    ];
    a_root_with_a_name: |s| s.change(ROOT, |root| root.name = Bytes::from_static(b"x")) => ["bad_root" at "/"];
    a_mode_that_is_none: |s| s.change(FILE, |file| file.attr.mode = 0o10644) => ["bad_attribute" at "/d/g"];
    a_version_of_nothing: |s| s.change(FILE, |file| file.attr.version = 0) => ["bad_attribute" at "/d/g"];
    a_file_too_large: |s| { s.change(FILE, |file| file.attr.size = 1 << 40); s.count(Counter::Bytes, (1 << 40) + 3) } =>
        ["bad_attribute" at "/d/g"];
    a_record_with_a_name_that_is_none: |s| s.change(FILE, |file| file.name = Bytes::from_static(b"a/b")) => ["bad_name" at "/d/a/b"];
    an_entry_with_a_name_that_is_none: |s| { s.enter(INNER, "..", FILE, File); s.change(INNER, |dir| dir.attr.size = 1); s.change(FILE, |file| file.attr.nlink = 3) } =>
        ["bad_name" at "/d/e/.."];
    an_entry_in_no_directory: |s| s.enter(99, "x", FILE, File) => ["orphan_entry" at "directory #99, entry \"x\""];
    an_entry_in_a_file: |s| s.enter(FILE, "x", FILE, File) => ["orphan_entry" at "/d/g/x"];
    an_entry_of_nothing: |s| { s.enter(DIR, "h", 99, File); s.change(DIR, |dir| dir.attr.size = 3) } => ["dangling_entry" at "/d/h"];
    an_entry_of_another_kind: |s| s.enter(ROOT, "l", LINK, File) => ["wrong_kind" at "/l"];
    a_file_without_a_name: |s| { s.remove(&entry_key(ROOT, "l")); s.change(ROOT, |root| root.attr.size = 2) } => ["lost_object" at "/l"];
    a_directory_without_a_name: |s| { s.remove(&entry_key(DIR, "e")); s.change(DIR, |dir| { dir.attr.size = 1; dir.attr.nlink = 2; }) } =>
        ["lost_object" at "/d/e"];
    a_file_with_a_link_too_many: |s| s.change(FILE, |file| file.attr.nlink = 3) => ["wrong_links" at "/d/g"];
    a_directory_with_a_link_too_few: |s| s.change(DIR, |dir| dir.attr.nlink = 2) => ["wrong_links" at "/d"];
    an_empty_directory_with_links: |s| s.change(INNER, |dir| dir.attr.nlink = 3) => ["wrong_links" at "/d/e"];
    a_directory_with_two_names: |s| { s.enter(ROOT, "e", INNER, Directory); s.change(ROOT, |root| { root.attr.size = 4; root.attr.nlink = 4; }) } =>
        ["named_twice" at "/d/e"];
    a_root_in_a_directory: |s| { s.enter(INNER, "r", ROOT, Directory); s.change(INNER, |dir| { dir.attr.size = 1; dir.attr.nlink = 3; }) } =>
        ["named_twice" at "/"];
    a_directory_that_thinks_it_is_elsewhere: |s| s.change(INNER, |dir| dir.parent = ObjectId(ROOT)) => ["wrong_parent" at "/e"];
    a_directory_that_thinks_it_has_another_name: |s| s.change(INNER, |dir| dir.name = Bytes::from_static(b"x")) => ["wrong_parent" at "/d/x"];
    directories_in_each_other: |s| {
        s.remove(&entry_key(ROOT, "d"));
        s.enter(INNER, "d", DIR, Directory);
        s.change(DIR, |dir| dir.parent = ObjectId(INNER));
        s.change(INNER, |dir| { dir.attr.size = 1; dir.attr.nlink = 3; });
        s.change(ROOT, |root| { root.attr.size = 2; root.attr.nlink = 2; });
    } => ["directory_loop" at "object #2"];
    a_directory_in_itself: |s| {
        s.remove(&entry_key(DIR, "e"));
        s.enter(INNER, "e", INNER, Directory);
        s.change(INNER, |dir| { dir.parent = ObjectId(INNER); dir.attr.size = 1; dir.attr.nlink = 3; });
        s.change(DIR, |dir| { dir.attr.size = 1; dir.attr.nlink = 2; });
    } => ["directory_loop" at "object #5"];
    a_directory_with_an_entry_too_many: |s| s.change(DIR, |dir| dir.attr.size = 1) => ["wrong_entry_count" at "/d"];
    an_empty_directory_with_entries: |s| s.change(INNER, |dir| dir.attr.size = 1) => ["wrong_entry_count" at "/d/e"];
    a_block_of_nothing: |s| s.block(99, 0, 5) => ["orphan_block" at "object #99, block 0"];
    a_block_of_a_directory: |s| s.block(DIR, 0, 5) => ["orphan_block" at "/d"];
    a_block_beyond_the_end: |s| s.block(FILE, 2, 5) => ["block_beyond_end" at "/d/g"];
    a_block_longer_than_a_block: |s| s.block(FILE, 0, BLOCK_LEN + 1) => ["bad_block" at "/d/g"];
    a_block_longer_than_its_file: |s| s.block(FILE, 1, 70_000 - BLOCK_LEN + 1) => ["bad_block" at "/d/g"];
    a_block_of_no_byte: |s| s.block(FILE, 1, 0) => ["bad_block" at "/d/g"];
    a_link_without_a_target: |s| s.remove(&Key::Block(ObjectId(LINK), 0)) => ["bad_target" at "/l"];
    a_target_of_another_length: |s| s.put(&Key::Block(ObjectId(LINK), 0), b"ff") => ["bad_target" at "/l"];
    a_target_with_a_zero: |s| s.put(&Key::Block(ObjectId(LINK), 0), b"\0") => ["bad_target" at "/l"];
    attributes_of_nothing: |s| { s.xattrs(99, &[(b"user.a", b"b")]); s.count(Counter::Bytes, 70_003) } =>
        ["orphan_xattrs" at "object #99, extended attributes"];
    attributes_that_are_missing: |s| { s.remove(&Key::Xattrs(ObjectId(INNER))); s.count(Counter::Bytes, 70_001) } => ["bad_xattrs" at "/d/e"];
    attributes_that_nobody_counted: |s| { s.xattrs(FILE, &[(b"user.a", b"")]) } => ["bad_xattrs" at "/d/g"];
    attributes_cut_short: |s| s.0.get_mut(&Key::Xattrs(ObjectId(INNER)).to_bytes()).unwrap().pop() => ["bad_record" at "/d/e"];
    more_in_attributes_than_there_can_be: |s| {
        s.xattrs(INNER, &[(b"user.a", &vec![0; (64 << 10) + 1])]);
        s.count(Counter::Bytes, 70_001 + (64 << 10) + 1);
    } => ["bad_xattrs" at "/d/e"];
    an_ephemeral_record_of_nothing: |s| s.put(&Key::Ephemeral(Handle(SESSION), ObjectId(99)), &EphemeralRecord { bound: Bound::Session(SessionId(SESSION)) }.to_bytes()) =>
        ["orphan_ephemeral" at "object #99, ephemeral, made under the handle 000000000000004d"];
    a_lease_of_nothing: |s| s.put(&Key::Lease(ObjectId(99)), &LeaseRecord { ttl_ms: 500, verifier: [1; 32], creator: PrincipalId::ANYBODY }.to_bytes()) =>
        ["orphan_ephemeral" at "object #99, named lease"];
    a_damaged_lease: |s| {
        s.change(FILE, |file| file.attr.owner = ObjectId(FILE).as_owner());
        s.put(&Key::Ephemeral(ObjectId(FILE).as_owner(), ObjectId(FILE)), &EphemeralRecord { bound: Bound::Lease(ObjectId(FILE)) }.to_bytes());
        s.put(&Key::Lease(ObjectId(FILE)), b"x");
    } => ["bad_ephemeral" at "/d/g", "bad_record" at "/d/g"];
    an_ephemeral_file_without_a_record: |s| {
        s.change(FILE, |file| file.attr.owner = Handle(SESSION));
    } => ["bad_ephemeral" at "/d/g", "bad_ephemeral" at "/d/g"];
    a_realm_of_nothing: |s| { s.realm(|_| {}); s.change(INNER, |dir| dir.attr.realm = Realm::TREE) } => ["bad_realm" at "realm 7"];
    a_realm_in_a_later_one: |s| s.realm(|realm| realm.parent = Realm(9)) => ["bad_realm" at "realm 7", "wrong_realm" at "/d/e", "bad_realm" at "realm 7"];
    an_object_in_another_realm: |s| s.change(LINK, |link| link.attr.realm = Realm(7)) => ["wrong_realm" at "/l"];
    a_realm_with_more_objects_than_there_are: |s| s.realm(|realm| realm.objects = 2) => ["wrong_use" at "realm 7"];
    a_realm_with_fewer_bytes_than_there_are: |s| s.realm(|realm| realm.bytes = 1) => ["wrong_use" at "realm 7"];
    a_realm_s_number_that_could_be_given_again: |s| { s.realm(|_| {}); s.count(Counter::NextRealm, 7) } => ["wrong_counter" at "counter NextRealm"];
    a_principal_of_no_number: |s| s.principal(0, "a", |_| {}) => ["bad_principal" at "principal 0"];
    an_account_of_more_than_was_made: |s| { s.made_by(FILE, 2); s.account(2, 2, 70_000) } => ["wrong_use" at "account of principal 2"];
    an_account_of_fewer_bytes: |s| { s.made_by(INNER, 2); s.account(2, 1, 1) } => ["wrong_use" at "account of principal 2"];
    no_account_of_what_was_made: |s| s.made_by(LINK, 2) => ["wrong_use" at "account of principal 2"];
    an_account_cut_short: |s| { s.account(2, 0, 0); s.0.get_mut(&Key::Account(PrincipalId(2)).to_bytes()).unwrap().pop() } =>
        ["bad_record" at "account of principal 2"];
    two_principals_of_one_name: |s| { s.principal(1, "a", |_| {}); s.principal(2, "a", |_| {}) } => ["bad_principal" at "principal 2"];
    a_principal_with_another_one_s_first_key: |s| {
        s.principal(1, "a", |_| {});
        s.principal(2, "b", |two| two.rotated = Some(EarlierKeys { first: [1; 32], former: [9; 32], until_s: 0 }));
    } => ["bad_principal" at "principal 2"];
    two_principals_of_one_key: |s| { s.principal(1, "a", |one| one.revoked = true); s.principal(2, "b", |two| two.key = Some([1; 32])) } =>
        ["bad_principal" at "principal 2"];
    a_principal_cut_short: |s| { s.principal(1, "a", |_| {}); s.0.get_mut(&Key::Principal(PrincipalId(1)).to_bytes()).unwrap().pop() } =>
        ["bad_record" at "principal 1"];
    an_invite_that_has_admitted_nobody: |s| { s.principal(1, "a", |_| {}); s.invite(2) } => ["bad_invite" at "invite 0000000000000005"];
    an_invite_cut_short: |s| { s.principal(1, "a", |_| {}); s.invite(1); s.0.get_mut(&Key::Invite(InviteId(5)).to_bytes()).unwrap().pop() } =>
        ["bad_record" at "invite 0000000000000005"];
    a_start_key_cut_short: |s| s.start_key(32) => ["bad_record" at "key of start 3"];
    objects_counted_wrong: |s| s.count(Counter::Objects, 6) => ["wrong_counter" at "counter Objects"];
    bytes_counted_wrong: |s| s.count(Counter::Bytes, 70_001) => ["wrong_counter" at "counter Bytes"];
    an_id_that_could_be_given_again: |s| s.count(Counter::NextObject, 5) => ["wrong_counter" at "counter NextObject"];
    ids_of_an_epoch_to_come: |s| s.count(Counter::NextObject, (2 << 56) + 6) => ["wrong_counter" at "counter NextObject"];
    tokens_of_an_epoch_to_come: |s| s.count(Counter::Tokens, 2 << 56) => ["wrong_counter" at "counter Tokens"];
    a_missing_counter: |s| s.remove(&Key::Counter(Counter::Incarnation)) => ["wrong_counter" at "counter Incarnation"];
    an_incarnation_of_nothing: |s| s.count(Counter::Incarnation, 0) => ["wrong_counter" at "counter Incarnation"];
    an_epoch_that_is_none: |s| { s.count(Counter::Epoch, 256) } => ["wrong_counter" at "counter Epoch"];
    a_mark_of_restoring_that_is_none: |s| s.count(Counter::Restored, 3) => ["wrong_counter" at "counter Restored"];
    a_wait_of_nothing: |s| s.count(Counter::Wait, 0) => ["wrong_counter" at "counter Wait"];
    an_endless_wait: |s| s.count(Counter::Wait, u64::MAX) => ["wrong_counter" at "counter Wait"];
    a_session_without_a_window: |s| s.session(|session| session.window = 0) => ["bad_session" at "session 000000000000004d"];
    a_session_with_an_endless_lease: |s| s.session(|session| session.lease_us = u64::MAX) => ["bad_session" at "session 000000000000004d"];
    a_session_with_a_long_label: |s| s.session(|session| session.label = [b'x'; 65].into()) => ["bad_session" at "session 000000000000004d"];
    an_outcome_of_no_session: |s| s.outcome(78, 2, 6) => ["orphan_outcome" at "session 000000000000004e, outcome 2"];
    an_outcome_outside_of_the_window: |s| s.outcome(SESSION, 4, 4) => ["bad_outcome" at "session 000000000000004d, outcome 4"];
    an_outcome_in_the_place_of_another: |s| s.outcome(SESSION, 2, 7) => ["bad_outcome" at "session 000000000000004d, outcome 2"];
    an_outcome_nobody_can_read: |s| s.put(&Key::Outcome(SessionId(SESSION), 2), &OutcomeRecord { nonce: 6, reply: [0xFF; 3].into() }.to_bytes()) =>
        ["bad_outcome" at "session 000000000000004d, outcome 2"];
}

#[test]
fn keys_out_of_order_are_told_once_each() {
    let store = sound();
    let mut records: Vec<_> = store.0.iter().collect();
    let last = records.len() - 1;
    records.swap(last, last - 1);
    let scan = || Ok::<_, Infallible>(records.iter().map(|record| Ok(*record)));
    let report = Check::default().run(scan, |_| {}).unwrap();
    let order: Vec<_> = report.findings.iter().filter(|finding| finding.fault == Fault::Order).collect();
    assert!(matches!(order.as_slice(), [Finding { place: Place::Raw(_), .. }]), "{:?}", report.findings);
}

#[test]
fn an_error_of_the_engine_ends_the_check() {
    let store = sound();
    let scan = || Ok(store.0.iter().map(Ok).take(9).chain([Err("page 7 is damaged")]));
    assert_eq!(Check::default().run(scan, |_| {}), Err("page 7 is damaged"));
}

#[test]
fn more_findings_than_are_listed_are_counted() {
    let mut store = sound();
    for n in 0..20 {
        store.block(100 + n, 0, 1);
    }
    let report = store.check_listing(5);
    assert_eq!((report.findings.len(), report.more, report.is_clean()), (5, 15, false));
    let nothing_listed = store.check_listing(0);
    assert_eq!((nothing_listed.more, nothing_listed.is_clean()), (20, false));
}

#[test]
fn a_loop_of_many_directories_is_one_finding() {
    let mut store = sound();
    let ids: Vec<u64> = (10..60).collect();
    for (at, id) in ids.iter().enumerate() {
        let parent = ids[(at + 1) % ids.len()];
        store.make(*id, Directory, 3, 1, parent, "n");
        store.enter(parent, "n", *id, Directory);
    }
    store.count(Counter::Objects, 55);
    store.count(Counter::NextObject, 60);
    let report = store.check();
    assert_eq!(report.findings.len(), 1, "{:?}", told(&report));
    assert!(report.findings[0].fault == Fault::DirectoryLoop && report.findings[0].what.contains("and 42 more"), "{:?}", report.findings);
}

#[test]
fn the_gravest_finding_tells_how_grave_a_report_is() {
    let mut store = sound();
    assert_eq!(store.check().gravest(), None);
    store.block(99, 0, 5);
    assert_eq!(store.check().gravest(), Some(Severity::Waste));
    store.count(Counter::Bytes, 1);
    assert_eq!(store.check().gravest(), Some(Severity::Wrong));
    store.0.insert(vec![0x77], vec![]);
    assert_eq!(store.check().gravest(), Some(Severity::Loss));
    assert_eq!(store.check_listing(1).gravest(), Some(Severity::Loss), "whether it is listed or only counted");
}

#[test]
fn a_check_keeps_some_fifty_bytes_of_each_object() {
    const FILES: u64 = 100_000;
    let mut store = sound();
    for id in 10..10 + FILES {
        let name = format!("{id}");
        store.make(id, File, 1, 0, INNER, &name);
        store.enter(INNER, &name, id, File);
    }
    store.change(INNER, |dir| dir.attr.size = FILES);
    store.count(Counter::Objects, FILES + 5);
    store.count(Counter::NextObject, FILES + 10);
    let report = store.check();
    assert_eq!(told(&report), []);
    // The last piece may be half empty.
    assert!(report.memory as u64 <= 2 * 50 * FILES, "{} bytes", report.memory);
}

#[test]
fn names_that_are_no_text_are_shown_as_escapes() {
    let mut store = sound();
    store.put(&Key::Entry(ObjectId(INNER), (*b"\xff\n").into()), &EntryRecord { object: ObjectId(99), kind: File }.to_bytes());
    store.change(INNER, |dir| dir.attr.size = 1);
    let text = store.check().findings[0].to_string();
    assert_eq!(text, "dangling_entry: /d/e/\\xff\\n (directory #5, entry \"\\xff\\n\"): it names object #99, which does not exist");
}

mod damaged_anywhere {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever bytes there are, a check ends, and says something of each record that it cannot read.
        #[test]
        fn any_bytes_at_all_are_checked(records in proptest::collection::btree_map(
            proptest::collection::vec(any::<u8>(), 0..12), proptest::collection::vec(any::<u8>(), 0..40), 0..30)) {
            let empty = records.is_empty();
            prop_assert_eq!(Store(records).check().is_clean(), empty);
        }

        /// A flipped bit anywhere in a key or a value is either found, or leaves something that could as well have been written: times,
        /// owners, versions, and the bytes of files.
        #[test]
        fn a_flipped_bit_is_found_wherever_it_matters(at: prop::sample::Index, bit in 0usize..8, byte: prop::sample::Index, of_key: bool) {
            let mut store = sound();
            let (key, value) = { let (key, value) = store.0.iter().nth(at.index(store.0.len())).unwrap(); (key.clone(), value.clone()) };
            let (mut new_key, mut new_value) = (key.clone(), value.clone());
            let target = if of_key { &mut new_key } else { &mut new_value };
            let place = byte.index(target.len());
            target[place] ^= 1 << bit;
            store.0.remove(&key);
            store.0.insert(new_key, new_value);
            let harmless = match (key[0], of_key) {
                // Tokens, incarnation and epoch may be others; so may the end of ids.
                (0x01, false) => true,
                // A store of which no token was given out has none of this counter.
                (0x01, true) => key[1] == Counter::Tokens as u8,
                (0x02, false) => true,
                (0x03, false) => true,
                (0x10, false) => true,
                (0x12, false) => true,
                // Names and values of extended attributes are their owner's.
                (0x13, false) => true,
                // What is missing of a file reads as zeros, so a block may be where another one was.
                (0x12, true) => place >= 9,
                // A file's entry may have another name.
                (0x11, true) => true,
                _ => false,
            };
            prop_assert!(harmless || !store.check().is_clean(), "key {:x?} of_key {} byte {}", key, of_key, place);
        }
    }
}
