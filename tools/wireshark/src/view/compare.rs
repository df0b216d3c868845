//! tshark's view of a datagram against the inspector's: every leaf of every message, by name, place, bytes and value.

use super::pdml::{Field, Frame, frames};
use super::tshark;
use cistern_capture::Datagram;
use cistern_dump::labels::Labels;
use cistern_dump::notes::Notes;
use cistern_dump::packet::Packet;
use cistern_dump::record;
use cistern_wire::{DatagramTree, Node, Shape, Shown, Value as Leaf};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// Checks that tshark and the inspector read these datagrams of a capture alike, where there is a tshark.
pub fn assert_alike(capture: &Path, options: &[&str], datagrams: &[Datagram]) {
    let Some(text) = tshark(&[&["-r", capture.to_str().unwrap(), "-2", "-T", "pdml"], options].concat()) else { return };
    let frames = frames(&text);
    assert!(frames.len() >= datagrams.len());
    for datagram in datagrams {
        let number = datagram.number;
        let frame = &frames[usize::try_from(number).unwrap() - 1];
        assert!(!frame.fields.is_empty(), "frame {number} was not taken for Cistern's");
        let reason = DatagramTree::of(&datagram.payload).reason;
        assert_eq!(frame.values("cistern.dropped"), Vec::from_iter(reason.map(|reason| reason.name())), "frame {number}");
        assert_agree(frame, datagram);
    }
}

/// The fields that stand nowhere in a datagram.
const CONCLUDED: [&str; 10] = [
    "cistern.message",
    "cistern.nonce",
    "cistern.serial",
    "cistern.seq",
    "cistern.echo",
    "cistern.dropped",
    "cistern.request_in",
    "cistern.response_in",
    "cistern.retransmission_of",
    "cistern.duplicate_of",
];

/// The leaves of a datagram, each with its name.
pub fn leaves<'t>(tree: &'t DatagramTree<'t>) -> Vec<(String, &'t Node<'t>)> {
    let mut leaves = Vec::new();
    for node in tree.header.iter().chain(tree.messages.iter().map(|message| &message.node)).chain(&tree.tail) {
        node.leaves("cistern", &mut |name, leaf| leaves.push((name.to_owned(), leaf)));
    }
    leaves
}

/// What `cistern-dump --json` prints for a datagram: a line for each message.
fn lines(datagram: &Datagram) -> Vec<String> {
    let packet = Packet::new(0, datagram);
    let all = vec![true; DatagramTree::of(&datagram.payload).messages.len()];
    let mut text = Vec::new();
    record::datagram(&mut text, None, &Labels::default(), &packet, &Notes::default(), None, &all).unwrap();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// The values of a datagram's JSON by path, in order.
#[derive(Default)]
struct Values<'s> {
    by_path: BTreeMap<String, VecDeque<Value>>,
    /// The paths of numbers whose bits have names: their values are arrays.
    bits: BTreeSet<&'s str>,
    /// The paths of what may be absent.
    optional: BTreeSet<&'s str>,
}

impl<'s> Values<'s> {
    fn of(lines: &[String], tree: &DatagramTree<'_>, leaves: &'s [(String, &Node<'_>)]) -> Self {
        let mut values = Self::default();
        for (name, leaf) in leaves {
            if matches!(leaf.shown, Shown::Bits(_)) {
                values.bits.insert(name);
            }
            values.optional.extend(name.strip_suffix(".present"));
        }
        let head: BTreeSet<&str> = tree.header.iter().chain(&tree.tail).map(|node| node.name).collect();
        for (number, line) in lines.iter().enumerate() {
            let mut json: Value = serde_json::from_str(line).unwrap();
            let fields = json["cistern"].as_object_mut().unwrap();
            // The header is in the line of every message, but once in the datagram.
            fields.retain(|key, _| number == 0 || !head.contains(key.as_str()));
            values.add("cistern", json["cistern"].take());
        }
        values
    }

    fn push(&mut self, path: String, value: Value) {
        self.by_path.entry(path).or_default().push_back(value);
    }

    fn add(&mut self, path: &str, value: Value) {
        if self.optional.contains(path) {
            self.push(format!("{path}.present"), (!value.is_null()).into());
        }
        match value {
            Value::Null => {}
            Value::Object(fields) => fields.into_iter().for_each(|(key, value)| self.add(&format!("{path}.{key}"), value)),
            Value::Array(items) if !self.bits.contains(path) => {
                self.push(format!("{path}.count"), items.len().into());
                items.into_iter().for_each(|item| self.add(path, item));
            }
            leaf => self.push(path.to_owned(), leaf),
        }
    }
}

/// Checks what tshark shows of a leaf against what the JSON has.
fn assert_shown_alike(name: &str, leaf: &Node<'_>, field: &Field, json: &Value) {
    let said = format!("{name}: tshark has {field:?}, the inspector {json}");
    match (leaf.value, leaf.shown, json) {
        (Leaf::Bool(_), _, Value::Bool(value)) => assert_eq!(field.show, if *value { "1" } else { "0" }, "{said}"),
        // A byte that is no bool: Wireshark takes it for true.
        (Leaf::Unsigned(value), ..) if *leaf.shape == Shape::Bool => {
            assert_eq!((&field.bytes, json), (&format!("{value:02x}"), &Value::from(value)), "{said}");
        }
        (Leaf::Unsigned(value), Shown::Bits(bits), Value::Array(set)) => {
            assert_eq!(u64::from_str_radix(field.show.trim_start_matches("0x"), 16), Ok(value), "{said}");
            let names: Vec<&str> = bits.iter().map(|(_, bit)| *bit).collect();
            let children: Vec<&str> = field.children.iter().map(|child| child.name.strip_prefix(name).unwrap()).collect();
            assert_eq!(children, names.iter().map(|bit| format!(".{bit}")).collect::<Vec<_>>(), "{said}");
            let shown: Vec<&str> = names.iter().zip(&field.children).filter(|(_, child)| child.show == "1").map(|(bit, _)| *bit).collect();
            let nameless = value & !bits.iter().fold(0, |all, (bit, _)| all | bit);
            let told = shown.iter().map(|bit| (*bit).to_owned()).chain((nameless != 0).then(|| format!("{nameless:#x}")));
            assert_eq!(set, &told.collect::<Vec<_>>(), "{said}");
        }
        (_, Shown::Words(_), Value::String(word)) => assert!(field.line.ends_with(&format!(": {word} ({})", field.show)), "{said}"),
        (_, Shown::Hex, Value::String(digits)) => assert_eq!(field.show, format!("0x{digits}"), "{said}"),
        (Leaf::Unsigned(value), Shown::Octal, Value::String(digits)) => {
            assert_eq!(u64::from_str_radix(digits, 8), Ok(value), "{said}");
            assert_eq!(field.show, value.to_string(), "{said}");
            assert!(field.line.ends_with(digits.trim_start_matches('0')), "{said}");
        }
        (Leaf::Bytes(_), Shown::Text, Value::String(text)) => assert_eq!(&field.show, text, "{said}"),
        (Leaf::Bytes(_), _, Value::String(digits)) => assert_eq!(&field.bytes, digits, "{said}"),
        (_, _, Value::Number(number)) => assert_eq!(field.show, number.to_string(), "{said}"),
        _ => panic!("{said}"),
    }
}

/// Checks a datagram's fields against its tree, and both against its JSON.
fn assert_agree(frame: &Frame, datagram: &Datagram) {
    let tree = DatagramTree::of(&datagram.payload);
    let leaves = leaves(&tree);
    let mut values = Values::of(&lines(datagram), &tree, &leaves);
    let known: BTreeSet<&str> = leaves.iter().map(|(name, _)| name.as_str()).collect();
    let mut fields = frame.all().into_iter().filter(|field| known.contains(field.name.as_str()));
    for (name, leaf) in &leaves {
        let field = fields.next().unwrap_or_else(|| panic!("tshark does not have {name}"));
        assert_eq!(&field.name, name);
        // What is before the bytes of a string is its length, which is not shown.
        let skipped = if let Shape::Bytes { prefix, .. } = leaf.shape { usize::from(*prefix) } else { 0 };
        assert_eq!((field.at - frame.at, field.len), (leaf.at + skipped, leaf.len - skipped), "{name}");
        let json = values.by_path.get_mut(name).and_then(VecDeque::pop_front);
        let json = json.unwrap_or_else(|| panic!("the inspector does not have {name}"));
        if tree.reason.is_some() && name.ends_with(".count") {
            // The list may end before it has as many as it says.
            assert!(json.as_u64() <= field.show.parse().ok(), "{name}: {json} of {}", field.show);
        } else if tree.reason.is_some() && name.ends_with(".present") && json == Value::Bool(false) {
            // Null also where the value should be and is not.
        } else {
            assert_shown_alike(name, leaf, field, &json);
        }
    }
    assert!(fields.next().is_none(), "tshark has more than there is");
    values.by_path.retain(|_, values| !values.is_empty());
    assert!(values.by_path.is_empty(), "the inspector has more than tshark: {:?}", values.by_path);
    for field in frame.all() {
        let holds = known.iter().any(|name| name.strip_prefix(field.name.as_str()).is_some_and(|rest| rest.starts_with('.')));
        let bit = field.name.rsplit_once('.').is_some_and(|(number, _)| known.contains(number));
        let concluded = CONCLUDED.contains(&field.name.as_str()) || field.name == "cistern.time" || !field.name.starts_with("cistern");
        let empty = field.len == 0 && field.show.is_empty();
        let told = field.name.starts_with("cistern.expert.");
        assert!(known.contains(field.name.as_str()) || holds || bit || concluded || empty || told, "nobody knows of {field:?}");
    }
}
