//! Messages as JSON: the tree of a datagram, value by value.
//!
//! Decides: how each value is written. The path of a value, its keys joined by dots behind `cistern.`, is the name of its field in
//! Wireshark: `cistern.lock.ask.nonce`, and `cistern.lookup.names` for each of a list. Keys stand in wire order.
//!
//! | on the wire | in JSON |
//! |---|---|
//! | numbers, objects, spans and times | a number, in the unit that the name says |
//! | session ids, other random numbers, the checksum | a string of all hexadecimal digits |
//! | permission bits | a string of octal digits |
//! | codes and result codes | the word; a number if it has none |
//! | bits | an array of their names; those without a name as one hexadecimal number at its end |
//! | names and other text | a string; what is not printable UTF-8 as `\xff`, a backslash as two |
//! | identities, contents and other bytes | a string of hexadecimal digits |
//! | optional | null or the value |
//! | lists | an array |
//! | replies, items of a batch | an object of `kind` and, under the kind's name, its fields |
//!
//! Leaves to others: bytes and names (`cistern-wire`), what else stands in a line.

use cistern_wire::{DatagramTree, Escaped, MessageTree, Node, Shape, Shown, Value};
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

/// A message of a datagram with the datagram's header: an object without nesting but that of the message's own structures.
#[derive(Clone, Copy, Debug)]
pub struct MessageFields<'t> {
    /// The datagram.
    pub datagram: &'t DatagramTree<'t>,
    /// One of its messages.
    pub message: &'t MessageTree<'t>,
}

impl Serialize for MessageFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields(serializer, self.datagram.header.iter().chain(&self.message.node.children).chain(&self.datagram.tail))
    }
}

/// What can be read of a datagram in which no message can be told apart: its header, the rest undecoded.
#[derive(Clone, Copy, Debug)]
pub struct DatagramFields<'t>(pub &'t DatagramTree<'t>);

impl Serialize for DatagramFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields(serializer, self.0.header.iter().chain(&self.0.tail))
    }
}

/// An object of the nodes, each under its name.
fn fields<'n, S: Serializer>(serializer: S, nodes: impl Iterator<Item = &'n Node<'n>>) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for node in nodes {
        map.serialize_entry(node.name, &Json(node))?;
    }
    map.end()
}

/// The value of a node.
struct Json<'n>(&'n Node<'n>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let node = self.0;
        match (node.value, node.shape) {
            (Value::Parts, Shape::List(_)) => {
                let mut items = serializer.serialize_seq(None)?;
                for item in node.children.iter().filter(|child| child.name.is_empty()) {
                    items.serialize_element(&Json(item))?;
                }
                items.end()
            }
            (Value::Parts, Shape::Optional(_)) => match node.child("") {
                Some(value) => Json(value).serialize(serializer),
                None => serializer.serialize_none(),
            },
            (Value::Parts, _) => fields(serializer, node.children.iter()),
            (Value::Bool(value), _) => serializer.serialize_bool(value),
            (Value::Signed(value), _) => serializer.serialize_i64(value),
            (Value::Unsigned(value), _) => match node.shown {
                Shown::Bits(names) => bits(serializer, value, names),
                Shown::Words(_) if node.word().is_none() => serializer.serialize_u64(value),
                Shown::Words(_) | Shown::Hex | Shown::Octal => serializer.collect_str(node),
                _ => serializer.serialize_u64(value),
            },
            (Value::Bytes(bytes), _) if node.shown == Shown::Text => serializer.collect_str(&Escaped(bytes)),
            (Value::Bytes(_), _) => serializer.collect_str(node),
        }
    }
}

/// The names of the bits that are set.
fn bits<S: Serializer>(serializer: S, value: u64, names: &[(u64, &str)]) -> Result<S::Ok, S::Error> {
    let mut set = serializer.serialize_seq(None)?;
    let mut nameless = value;
    for (bit, name) in names.iter().filter(|(bit, _)| value & bit != 0) {
        set.serialize_element(name)?;
        nameless &= !bit;
    }
    if nameless != 0 {
        set.serialize_element(&format!("{nameless:#x}"))?;
    }
    set.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Direction, Header, Kind, Lane, Message, Packer, SessionId, samples};

    /// The samples of a kind, each in a datagram of its own, as JSON.
    fn json(kind: Kind) -> Vec<String> {
        samples().iter().filter(|message| message.kind() == kind).map(|message| line(&datagram(message))).collect()
    }

    fn datagram(message: &Message<'_>) -> Vec<u8> {
        let kind = message.kind();
        let session = SessionId(if kind.lane() == Lane::Handshake { 0 } else { 0x1122 });
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: kind.direction() == Direction::Server, session, packet: 9 }, 1_232);
        assert!(packer.push(message));
        packer.finish();
        bytes
    }

    fn line(bytes: &[u8]) -> String {
        let datagram = DatagramTree::of(bytes);
        serde_json::to_string(&MessageFields { datagram: &datagram, message: &datagram.messages[0] }).unwrap()
    }

    #[test]
    fn a_message_is_one_object_in_wire_order() {
        assert_eq!(
            json(Kind::ReadDir)[0],
            concat!(
                r#"{"magic":"c5","version":1,"form":"plain","flags":[],"session":"0000000000001122","packet":9,"#,
                r#""kind":"READDIR","reserved":0,"length":38,"#,
                r#""readdir":{"ask":{"nonce":7,"back":2,"limit":1232},"dir":1,"after":"nightly","version":3,"detail":true,"want":"shared"},"#,
                r#""checksum":"dca0e58c"}"#
            )
        );
    }

    #[test]
    fn lists_options_and_replies_are_arrays_nulls_and_objects() {
        let listing = json(Kind::Ack).into_iter().find(|line| line.contains("LISTING")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&listing).unwrap();
        let reply = &value["ack"]["reply"];
        assert_eq!((&reply["kind"], &reply["listing"]["end"]), (&"LISTING".into(), &true.into()));
        assert_eq!(reply["listing"]["entries"][0]["detail"]["attr"]["mode"], "0644");
        assert_eq!(reply["listing"]["entries"][1]["name"], "\\xff");
        assert!(reply["listing"]["entries"][1]["detail"].is_null());
        let set: serde_json::Value = serde_json::from_str(&json(Kind::SetAttr)[0]).unwrap();
        assert_eq!(set["setattr"]["mask"]["bits"], serde_json::json!(["mode", "mtime_now"]));
    }

    #[test]
    fn what_cannot_be_read_is_there_undecoded() {
        let mut bytes = datagram(&samples()[0]);
        bytes[1] = 7;
        let text = serde_json::to_string(&DatagramFields(&DatagramTree::of(&bytes))).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["version"], &value["packet"]), (&7.into(), &9.into()));
        assert_eq!(value["undecoded"].as_str().unwrap().len(), 2 * (bytes.len() - 20));
    }
}
