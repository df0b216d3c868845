//! The walk by shapes against the decoder: the same verdict on any bytes, every byte in exactly one leaf, names fit for captures.

use crate::{datagram_of, header_for, seal};
use cistern_wire::limits::{CHECKSUM_LEN, HEADER_LEN};
use cistern_wire::{
    Datagram, DatagramTree, Escaped, Header, Kind, Message, Node, Printable, SessionId, Shape, Shown, Tree, Value, is_printable, samples,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn body(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_body(&mut bytes);
    bytes
}

/// Checks that the leaves stand side by side from `at` on to the end of `bytes`, each with the value that its bytes have.
fn assert_covers(nodes: &[&Node<'_>], bytes: &[u8], mut at: usize) {
    for node in nodes {
        node.leaves("", &mut |name, leaf| {
            assert_eq!(leaf.at, at, "{name} leaves a gap or overlaps");
            at += leaf.len;
            let own = &bytes[leaf.at..at];
            let number = || own.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            match leaf.value {
                Value::Parts => panic!("{name} is no leaf"),
                Value::Unsigned(value) => assert_eq!(value, number(), "{name}"),
                Value::Signed(value) => assert_eq!(value.to_be_bytes(), own, "{name}"),
                Value::Bool(value) => assert_eq!(u64::from(value), number(), "{name}"),
                Value::Bytes(value) => assert_eq!(value, &own[own.len() - value.len()..], "{name}"),
            }
        });
        assert_eq!(node.at + node.len, at, "{} has another length than its leaves", node.name);
    }
    assert_eq!(at, bytes.len(), "bytes are left that no leaf has");
}

fn assert_same_verdict(kind: Kind, bytes: &[u8]) {
    let tree = Tree::of(kind, bytes, 0);
    assert_eq!(tree.malformed, Message::decode(kind, bytes).err(), "{kind:?}: {bytes:02x?}");
    assert_eq!(tree.node.name, kind.field());
    assert_covers(&[&tree.node], bytes, 0);
}

fn assert_same_reason(bytes: &[u8]) {
    let tree = DatagramTree::of(bytes);
    assert_eq!(tree.reason, Datagram::seen(bytes).err(), "{bytes:02x?}");
    let nodes: Vec<&Node<'_>> = tree.header.iter().chain(tree.messages.iter().map(|message| &message.node)).chain(&tree.tail).collect();
    assert_covers(&nodes, bytes, 0);
}

#[test]
fn every_sample_is_walked_to_its_last_byte() {
    for message in samples() {
        let bytes = body(&message);
        assert_same_verdict(message.kind(), &bytes);
        let tree = Tree::of(message.kind(), &bytes, 0);
        assert_eq!(tree.malformed, None);
        tree.node.leaves("", &mut |name, _| assert!(!name.ends_with("undecoded"), "{name}"));
        assert_same_reason(&datagram_of(header_for(&message), &[message, message]));
    }
}

#[test]
fn truncated_and_flipped_samples_get_the_decoders_verdict() {
    for message in samples() {
        let bytes = body(&message);
        let datagram = datagram_of(header_for(&message), &[message]);
        for at in 0..bytes.len() {
            assert_same_verdict(message.kind(), &bytes[..at]);
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_same_verdict(message.kind(), &flipped);
            }
        }
        for at in 0..datagram.len() {
            assert_same_reason(&datagram[..at]);
            let mut flipped = datagram.clone();
            flipped[at] ^= 1 << (at % 8);
            assert_same_reason(&flipped);
            flipped.truncate(flipped.len() - CHECKSUM_LEN);
            seal(&mut flipped);
            assert_same_reason(&flipped);
        }
    }
}

/// Messages that belong in one datagram: the same session or none, the same sender.
fn several() -> impl Strategy<Value = (Header, Vec<Message<'static>>)> {
    prop::sample::subsequence(samples(), 1..6).prop_map(|mut messages| {
        let header = header_for(&messages[0]);
        messages.retain(|message| header_for(message) == header);
        (header, messages)
    })
}

/// Where to change a byte, to what, and whether by cutting everything from there on.
fn change() -> impl Strategy<Value = (prop::sample::Index, u8, bool)> {
    (any::<prop::sample::Index>(), any::<u8>(), prop::bool::weighted(0.1))
}

proptest! {
    #[test]
    fn any_bytes_get_the_decoders_verdict(code in prop::sample::select(Kind::ALL), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_same_verdict(code, &bytes);
        assert_same_reason(&bytes);
    }

    #[test]
    fn mutated_datagrams_get_the_decoders_verdict(
        (header, messages) in several(),
        changes in prop::collection::vec(change(), 0..4),
        sealed in prop::bool::weighted(0.9),
        trailing in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut bytes = datagram_of(header, &messages);
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        for (index, value, cut) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
            if cut && at > HEADER_LEN {
                bytes.truncate(at);
            }
        }
        bytes.extend_from_slice(&trailing);
        if sealed {
            seal(&mut bytes);
        }
        assert_same_reason(&bytes);
    }
}

#[test]
fn a_name_in_captures_has_one_shape_and_is_one_that_wireshark_takes() {
    let mut shapes: BTreeMap<String, (&Shape, Shown)> = BTreeMap::new();
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        let tree = DatagramTree::of(&bytes);
        assert_eq!(tree.messages[0].kind, Some(message.kind()));
        let nodes = tree.header.iter().chain(tree.messages.iter().map(|message| &message.node)).chain(&tree.tail);
        nodes.for_each(|node| {
            node.leaves("cistern", &mut |name, leaf| {
                assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'.'), "{name}");
                assert!(!name.contains("..") && !name.ends_with('.'), "{name}");
                let before = shapes.insert(name.to_owned(), (leaf.shape, leaf.shown));
                assert!(before.is_none_or(|before| before == (leaf.shape, leaf.shown)), "{name} has two shapes");
            });
        });
    }
    for name in [
        "cistern.session",
        "cistern.kind",
        "cistern.checksum",
        "cistern.lock.object",
        "cistern.lock.ask.nonce",
        "cistern.lookup.names",
        "cistern.lookup.names.count",
        "cistern.ack.reply.kind",
        "cistern.ack.reply.listing.entries.detail.present",
        "cistern.ack.reply.listing.entries.detail.attr.mtime_ns",
        "cistern.batch.items.create.name",
    ] {
        assert!(shapes.contains_key(name), "{name} is in no sample");
    }
    assert!(!shapes.contains_key("cistern.batch.items.create.ask.nonce"), "an item has no nonce");
}

#[test]
fn values_are_written_for_people() {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for message in samples() {
        let bytes = datagram_of(header_for(&message), &[message]);
        let tree = DatagramTree::of(&bytes);
        for node in tree.header.iter().chain(tree.messages.iter().map(|message| &message.node)) {
            node.leaves("", &mut |name, leaf| {
                texts.entry(name.to_owned()).or_insert_with(|| leaf.to_string());
            });
        }
    }
    for (name, text) in [
        ("magic", "c5"),
        ("form", "plain"),
        ("kind", "HELLO"),
        ("session", "0000000000000000"),
        ("hello.cookie", "30313233343536373839616263646566"),
        ("confirm.former.claim", "continuing"),
        ("welcome.features", "volatile"),
        ("welcome.lease_us", "2s"),
        ("welcome.delivery_timeout_us", "500ms"),
        ("path_challenge.token", "000000000000feed"),
        ("release.items.lock.object", "#42"),
        ("setattr.mask.bits", "mode|mtime_now"),
        ("setattr.mode", "0600"),
        ("readdir.detail", "true"),
        ("readdir.after", "\"nightly\""),
        ("symlink.target", "\"/jobs\""),
        ("write.data", "68656c6c6f"),
        ("ack.reply.kind", "DONE"),
        ("ack.reply.failed.status", "ENOENT"),
        ("ack.reply.stated.attr.atime_ns", "1700000000.000000001"),
        ("ack.reply.stated.attr.ctime_ns", "-0.000000001"),
        ("ack.reply.listing.entries.kind", "file"),
    ] {
        assert_eq!(texts.get(name).map(String::as_str), Some(text), "{name}");
    }
    let server = header_for(&samples().pop().unwrap());
    let bytes = datagram_of(server, &[samples().pop().unwrap()]);
    assert_eq!(DatagramTree::of(&bytes).header[3].to_string(), "from_server");
    assert_eq!(DatagramTree::of(&datagram_of(Header { session: SessionId(0), ..server }, &[])).header[4].to_string(), "0000000000000000");
}

#[test]
fn text_from_the_wire_is_escaped_so_that_it_can_be_told_apart() {
    assert_eq!(Escaped("Zoë/λ".as_bytes()).to_string(), "Zoë/λ");
    assert_eq!(Escaped(b"\xff").to_string(), "\\xff");
    assert_eq!(Escaped(b"\\xff").to_string(), "\\\\xff");
    assert_eq!(Escaped(b"a\n\x7f\xc2\x85\xe2\x82").to_string(), "a\\x0a\\x7f\\xc2\\x85\\xe2\\x82");
    assert_eq!(Escaped("a\u{202e}b".as_bytes()).to_string(), "a\\xe2\\x80\\xaeb");
    assert_eq!(Printable("C:\\ \x1b\u{200b}λ").to_string(), "C:\\ \\x1b\\xe2\\x80\\x8bλ");
    for hidden in ['\0', '\x07', '\u{85}', '\u{200d}', '\u{2028}', '\u{2066}', '\u{2069}', '\u{feff}', '\u{e0041}'] {
        assert!(!is_printable(hidden), "{hidden:?}");
    }
}
