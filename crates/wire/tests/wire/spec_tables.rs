//! The formats and tables of `wire-spec.md` against the code: kinds, fields, codes, statuses, answers, limits, drops, reserved room.

use crate::spec_reader::size;
use crate::spec_text::{self, Entry, Spec};
use cistern_wire::{
    Ask, Attr, CacheGrant, CancelOutcome, Claim, Direction, DropReason, Effect, EndReason, Entry as DirEntry, Expect, Fate, FieldInfo,
    FormerClaim, FormerFate, GroupMember, Held, Holder, Item, ItemResult, JoinOutcome, Keep, Kind, Lane, LeaseRow, Limit, LockClass,
    LockId, LockRow, LockWait, Mode, NackReason, ObjectKind, RealmRow, ReceiptAnswer, ReclaimItem, ReclaimedItem, RefuseReason,
    ReleaseItem, ReleasedItem, RenameRule, ReplyKind, RowState, SessionFate, SetMask, Standing, Stated, Status, Terms, Want, Whose,
    XattrRule, limits,
};
use std::collections::{BTreeMap, BTreeSet};

fn loaded() -> (String, Spec) {
    let text = spec_text::text();
    let spec = spec_text::spec(&text);
    (text, spec)
}

/// The type of a field as the specification writes it.
fn type_of(info: &FieldInfo) -> String {
    match info.ty {
        "list" => format!("list of {}", info.item),
        "optional" => format!("optional {}", info.item),
        ty => ty.to_owned(),
    }
}

fn assert_fields(name: &str, entry: &Entry, fields: &[FieldInfo]) {
    let said: Vec<(String, String)> = entry.fields.iter().map(|row| (row.name.clone(), row.ty.clone())).collect();
    let in_code: Vec<(String, String)> = fields.iter().map(|info| (info.name.to_owned(), type_of(info))).collect();
    assert_eq!(said, in_code, "fields of {name}");
}

#[test]
fn every_kind_has_its_heading_fields_direction_and_lane() {
    let (_, spec) = loaded();
    let names: BTreeSet<&str> = spec.messages.keys().map(String::as_str).collect();
    assert_eq!(names, Kind::ALL.iter().map(|kind| kind.name()).collect());
    for kind in Kind::ALL {
        let entry = &spec.messages[kind.name()];
        assert_eq!(entry.code, kind.code(), "code of {}", kind.name());
        assert_fields(kind.name(), entry, kind.fields());
        let mutation = kind.fields().last().is_some_and(|field| field.ty == "Terms");
        let lane = match kind.lane() {
            Lane::Handshake => "handshake",
            Lane::Request if mutation => "mutation",
            Lane::Request => "request",
            Lane::Control => "control",
            Lane::Answer => "answer",
            Lane::Renewal => "answer that renews",
            Lane::Notice => "notice",
            Lane::Path => "path",
        };
        let direction = match kind.direction() {
            Direction::Agent => "agent",
            Direction::Server => "server",
        };
        // The other lanes say who sends.
        let sender = match kind.lane() {
            Lane::Request | Lane::Control => "agent",
            Lane::Answer | Lane::Renewal | Lane::Notice => "server",
            Lane::Handshake | Lane::Path => "",
        };
        let said = entry.line.split(" -> ").next().unwrap();
        let expected = if sender == direction { lane.to_owned() } else { format!("{direction}, {lane}") };
        assert_eq!(said, expected, "{}", kind.name());
    }
}

#[test]
fn every_reply_has_its_heading_and_fields() {
    let (_, spec) = loaded();
    let names: BTreeSet<&str> = spec.replies.keys().map(String::as_str).collect();
    assert_eq!(names, ReplyKind::ALL.iter().map(|kind| kind.name()).collect());
    for kind in ReplyKind::ALL {
        let entry = &spec.replies[kind.name()];
        assert_eq!(entry.code, *kind as u8, "code of {}", kind.name());
        assert_fields(kind.name(), entry, kind.fields());
    }
}

#[test]
fn requests_are_answered_by_replies_that_say_so() {
    let (_, spec) = loaded();
    for kind in Kind::ALL.iter().filter(|kind| kind.lane() == Lane::Request) {
        let line = &spec.messages[kind.name()].line;
        let answers = line.split_once(" -> ").expect("a request is answered").1;
        let mutation = line.starts_with("mutation");
        for answer in answers.split(", ").filter(|answer| *answer != "QUEUED") {
            let reply = &spec.replies[answer].line;
            assert!(reply.contains(kind.name()) || mutation && reply.contains("every mutation"), "{} → {answer}: {reply}", kind.name());
        }
    }
}

#[test]
fn structures_have_the_fields_of_the_code() {
    let (_, spec) = loaded();
    let structures: BTreeMap<&str, &[FieldInfo]> = BTreeMap::from([
        ("Ask", Ask::FIELDS),
        ("LockId", LockId::FIELDS),
        ("Held", Held::FIELDS),
        ("Expect", Expect::FIELDS),
        ("ItemResult", ItemResult::FIELDS),
        ("Terms", Terms::FIELDS),
        ("Attr", Attr::FIELDS),
        ("CacheGrant", CacheGrant::FIELDS),
        ("Effect", Effect::FIELDS),
        ("Stated", Stated::FIELDS),
        ("Entry", DirEntry::FIELDS),
        ("SetMask", SetMask::FIELDS),
        ("ReleaseItem", ReleaseItem::FIELDS),
        ("ReleasedItem", ReleasedItem::FIELDS),
        ("Holder", Holder::FIELDS),
        ("LockRow", LockRow::FIELDS),
        ("RealmRow", RealmRow::FIELDS),
        ("LeaseRow", LeaseRow::FIELDS),
        ("GroupMember", GroupMember::FIELDS),
        ("ReclaimItem", ReclaimItem::FIELDS),
        ("ReclaimedItem", ReclaimedItem::FIELDS),
        ("FormerClaim", FormerClaim::FIELDS),
        ("FormerFate", FormerFate::FIELDS),
    ]);
    assert_eq!(spec.structures.keys().map(String::as_str).collect::<Vec<_>>(), structures.keys().copied().collect::<Vec<_>>());
    for (name, fields) in structures {
        let entry = &spec.structures[name];
        assert_fields(name, entry, fields);
        let (bytes, fixed) = size(&spec, name);
        let said = format!("{bytes} byte{}{}", if bytes == 1 { "" } else { "s" }, if fixed { "" } else { " or more" });
        assert_eq!(entry.line.split("; ").next(), Some(said.as_str()), "size of {name}");
    }
}

macro_rules! assert_codes {
    ($spec:expr, $($ty:ident),*) => {
        let mut known = BTreeSet::new();
        $(
            let in_code: Vec<(u16, String)> = $ty::ALL.iter().map(|value| (*value as u16, format!("{value:?}"))).collect();
            assert_eq!($spec.codes.get(stringify!($ty)), Some(&in_code), "values of {}", stringify!($ty));
            known.insert(stringify!($ty));
        )*
        assert_eq!($spec.codes.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    };
}

#[test]
fn codes_have_the_values_of_the_code() {
    let (_, spec) = loaded();
    assert_codes!(
        spec,
        LockClass,
        Mode,
        Whose,
        Want,
        Keep,
        ObjectKind,
        LockWait,
        RenameRule,
        XattrRule,
        EndReason,
        ReceiptAnswer,
        CancelOutcome,
        NackReason,
        Fate,
        Standing,
        RowState,
        Limit,
        Claim,
        SessionFate,
        RefuseReason,
        JoinOutcome
    );
}

#[test]
fn statuses_have_the_values_of_the_code() {
    let (_, spec) = loaded();
    let in_code: Vec<(u16, String)> = Status::ALL.iter().map(|status| (status.0, status.name().to_owned())).collect();
    assert_eq!(spec.statuses, in_code);
}

#[test]
fn kinds_that_can_be_items_are_the_mutations_but_batch() {
    let (text, spec) = loaded();
    let mutations = Kind::ALL.iter().filter(|kind| kind.fields().last().is_some_and(|field| field.ty == "Terms"));
    assert!(mutations.copied().filter(|kind| *kind != Kind::Batch).eq(Item::KINDS.iter().copied()));
    let said = text.lines().find_map(|line| line.strip_prefix("The kinds that can be items are ")).expect("a list");
    for kind in Item::KINDS {
        assert!(said.contains(kind.name()) && spec.messages.contains_key(kind.name()), "{}", kind.name());
    }
    assert!(text.contains("from 0xFFFF_FFFF_FFFF_FF00 on") && limits::MADE_BASE == 0xFFFF_FFFF_FFFF_FF00);
}

#[test]
fn table_of_answers_says_what_renews() {
    let (text, _) = loaded();
    let header = "| answer | renews | retires the nonce | durable when it is sent | what the agent does |";
    let rows = &spec_text::tables(spec_text::section(&text, "## 7 "), header)[0];
    let mut said = BTreeMap::new();
    for row in rows {
        let name = row[0].split(' ').next().unwrap();
        said.entry(name).or_insert_with(BTreeSet::new).insert(row[1]);
    }
    let answers =
        Kind::ALL.iter().filter(|kind| matches!(kind.lane(), Lane::Answer | Lane::Renewal | Lane::Handshake) && **kind != Kind::Hello);
    let expected: BTreeMap<&str, BTreeSet<&str>> =
        answers.map(|kind| (kind.name(), BTreeSet::from([if kind.renews() { "yes" } else { "no" }]))).collect();
    assert_eq!(said, expected);
}

#[test]
fn limits_have_the_values_of_the_code() {
    let (text, _) = loaded();
    let rows = &spec_text::tables(spec_text::section(&text, "### 8.1 "), "| limit | value | unit |")[0];
    let said: BTreeMap<&str, &str> = rows.iter().map(|row| (row[0], row[1])).collect();
    let number =
        |name: &str| -> usize { said.get(name).unwrap_or_else(|| panic!("no limit \"{name}\"")).replace(',', "").parse().unwrap() };
    for (name, value) in [
        ("datagram header", limits::HEADER_LEN),
        ("message header", limits::MESSAGE_HEADER_LEN),
        ("checksum", limits::CHECKSUM_LEN),
        ("tag of a sealed datagram", limits::TAG_LEN),
        ("smallest `max_datagram` and `limit`", limits::DATAGRAM_MIN),
        ("largest datagram by default", limits::DATAGRAM_DEFAULT),
        ("largest datagram", limits::DATAGRAM_MAX),
        ("name", limits::NAME_MAX),
        ("target of a symbolic link", limits::SYMLINK_MAX),
        ("contents of a file", limits::CONTENT_MAX),
        ("window W", usize::from(limits::WINDOW_MAX)),
        ("`held` of a mutation", limits::HELD_MAX),
        ("`expect` of a mutation", limits::EXPECT_MAX),
        ("`items` of a BATCH", limits::BATCH_MAX),
        ("objects that a BATCH changes", limits::BATCH_OBJECTS_MAX),
        ("name of an extended attribute", limits::XATTR_NAME_MAX),
        ("value of an extended attribute", limits::XATTR_VALUE_MAX),
        ("extended attributes of an object", limits::XATTRS_MAX),
        ("values of all extended attributes of an object", limits::XATTR_BYTES_MAX),
        ("realms around each other, the tree's included", limits::REALM_DEPTH_MAX),
        ("directories above those into which a RENAME or BATCH moves directories", limits::PARENTS_MAX),
        ("shortest time to live of a named lease", limits::LEASE_TTL_MIN_MS as usize),
        ("longest time to live of a named lease", limits::LEASE_TTL_MAX_MS as usize),
        ("`former` of a CONFIRM", limits::FORMER_MAX),
        ("label of an agent", limits::LABEL_MAX),
        ("cookie", limits::COOKIE_MAX),
    ] {
        assert_eq!(number(name), value, "{name}");
    }
    assert_eq!((said["packet number"], said["first packet number of a session"]), ("2^60", "2^48−1"));
    assert_eq!(said.len(), 28, "a limit that is not tested");
    assert!(text.contains("| 0 | volatile |") && limits::FEATURE_VOLATILE == 1 && limits::ROOT == 1);
    assert!(text.contains("| 1 | group |") && limits::FEATURE_GROUP == 2);
}

#[test]
fn drops_are_checked_in_the_order_described() {
    let (text, _) = loaded();
    let rows = &spec_text::tables(spec_text::section(&text, "### 3.5 "), "| order | reason | when |")[0];
    let said: BTreeSet<String> = rows.iter().map(|row| row[1].trim_matches('`').to_owned()).collect();
    assert_eq!(said, DropReason::NAMES.iter().map(|name| (*name).to_owned()).collect());
    // A datagram with every fault is dropped for the first; with that mended, for the next; and so on.
    let mut bytes = vec![0x00, 9, 9, 0xFF];
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(&[0; 4]);
    let mut met = vec![crate::drop_reason(&bytes[..10]).unwrap().name()];
    let mends: [(usize, u8); 5] = [(0, 0xC5), (1, 1), (2, 0), (3, 0), (19, 1)];
    for (at, value) in mends {
        let reason = cistern_wire::Datagram::at_server(&bytes).unwrap_err();
        met.push(reason.name());
        if reason.name() == "bad_checksum" {
            let covered = bytes.len() - 4;
            bytes.truncate(covered);
            crate::seal(&mut bytes);
            met.push(cistern_wire::Datagram::at_server(&bytes).unwrap_err().name());
        }
        bytes[at] = value;
        if at >= 3 {
            bytes.truncate(20);
            crate::seal(&mut bytes);
        }
    }
    met.push(cistern_wire::Datagram::at_agent(&bytes).unwrap_err().name());
    met.push(cistern_wire::Datagram::at_server(&bytes).unwrap_err().name());
    let expected = [
        "too_short",
        "bad_magic",
        "unknown_version",
        "unknown_form",
        "bad_checksum",
        "reserved_bits",
        "bad_packet_number",
        "wrong_direction",
        "empty",
    ];
    assert_eq!(met, expected);
    let orders: Vec<usize> =
        expected.iter().map(|name| rows.iter().find(|row| row[1].trim_matches('`') == *name).unwrap()[0].parse().unwrap()).collect();
    assert!(orders.is_sorted(), "{orders:?}");
}

#[test]
fn every_code_is_a_kind_or_has_its_room_reserved() {
    let (text, _) = loaded();
    let rows = &spec_text::tables(spec_text::section(&text, "### 10.4 "), "| kinds | for |")[0];
    let code = |text: &str| u8::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap();
    let mut reserved = BTreeSet::new();
    for range in rows.iter().flat_map(|row| row[0].split(", ")) {
        let (first, last) = range.split_once(" to ").unwrap_or((range, range));
        for value in code(first)..=code(last) {
            assert!(reserved.insert(value), "{value:#04x} is reserved twice");
            assert_eq!(Kind::of(value), None, "{value:#04x} is reserved and used");
        }
    }
    for value in 0..=u8::MAX {
        assert!(Kind::of(value).is_some() || reserved.contains(&value), "{value:#04x} is neither used nor reserved");
    }
}
