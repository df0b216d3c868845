//! The Wireshark dissector, made from the message registry.
//!
//! Decides: how shapes are written as Lua tables. What is done with the tables is written by hand in `dissect/`; both together are
//! `cistern.lua`, which is kept in the repository and compared with what is made here, so that it cannot drift from the registry.
//! Implements `wire-spec.md` sections 3 to 6. Leaves to others: what the formats are (`cistern-wire`). [`view`] is how tests compare what tshark reads by it with the inspector.

pub mod view;

use cistern_wire::{Case, Direction, DropReason, FieldInfo, Kind, MessageHeader, RawHeader, Shape, Shown};
use std::fmt::Write as _;

/// The parts of the dissector that do not depend on the registry, in the order in which each needs those before it.
const DISSECT: [&str; 5] = [
    include_str!("../dissect/fields.lua"),
    include_str!("../dissect/values.lua"),
    include_str!("../dissect/walk.lua"),
    include_str!("../dissect/links.lua"),
    include_str!("../dissect/datagrams.lua"),
];

/// Where the dissector is kept.
pub const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cistern.lua");

/// The dissector, whole.
#[must_use]
pub fn dissector() -> String {
    let mut tables = Tables { text: String::new(), written: Vec::new() };
    tables.line("-- Cistern for Wireshark and tshark: put this file into the folder of personal Lua plugins (docs/inspecting.md).");
    tables.line(
        "-- Made from the message registry by `cargo run -p cistern-wireshark`; what is written by hand is in tools/wireshark/dissect.",
    );
    tables.line("");
    tables.line("-- Field types: what stands on the wire for each, and for the fields of structures how they are shown.");
    tables.line("local types = {}");
    let header = tables.structure("RawHeader", "RawHeader", RawHeader::FIELDS);
    let message_header = tables.structure("MessageHeader", "MessageHeader", MessageHeader::FIELDS);
    for kind in Kind::ALL {
        tables.shape(kind.shape(), "");
    }
    tables.line("");
    tables.line("-- Kinds of messages by code.");
    tables.line("local kinds = {");
    for kind in Kind::ALL {
        let (name, field, lane) = (kind.name(), kind.field(), kind.lane());
        let direction = match kind.direction() {
            Direction::Agent => "agent",
            Direction::Server => "server",
        };
        let ty = key(kind.shape(), "");
        let entry = format!(
            "{{ name = {name:?}, field = {field:?}, direction = {direction:?}, lane = \"{lane:?}\", renews = {}, body = types[{ty:?}] }}",
            kind.renews()
        );
        tables.line(&format!("  [{}] = {entry},", kind.code()));
    }
    tables.line("}");
    tables.line("");
    tables.line("-- Why a datagram is dropped, by the names of the server's counters.");
    tables.line(&format!("local drop_reasons = {{ {} }}", quoted(&DropReason::NAMES)));
    tables.line(&format!("local header_type, message_header_type = types[{header:?}], types[{message_header:?}]"));
    tables.line(&limits());
    tables.line("");
    tables.text + &DISSECT.join("\n")
}

/// The limits that the dissector checks.
fn limits() -> String {
    use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_MAX, HEADER_LEN, MAGIC, VERSION};
    format!(
        "local MAGIC, VERSION, HEADER_LEN, CHECKSUM_LEN, DATAGRAM_MAX = {MAGIC}, {VERSION}, {HEADER_LEN}, {CHECKSUM_LEN}, {DATAGRAM_MAX}"
    )
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// The tables as they are written, each after those that it names.
struct Tables {
    text: String,
    written: Vec<String>,
}

impl Tables {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Writes a shape unless it is there already. `within` names the union whose case it is, if it is one.
    fn shape(&mut self, shape: &'static Shape, within: &str) {
        let key = key(shape, within);
        if self.written.contains(&key) {
            return;
        }
        let value = match shape {
            Shape::Number { bytes, signed, shown, .. } => {
                format!("{{ is = \"number\", bytes = {bytes}, signed = {signed}, {} }}", shown_as(*shown))
            }
            Shape::Bool => "{ is = \"bool\" }".to_owned(),
            Shape::Code { words, .. } => format!("{{ is = \"code\", bytes = 1, {} }}", shown_as(Shown::Words(words))),
            Shape::Fixed { bytes, .. } => format!("{{ is = \"fixed\", bytes = {bytes}, shown = \"bytes\" }}"),
            Shape::Bytes { prefix, shown, .. } => format!("{{ is = \"bytes\", prefix = {prefix}, {} }}", shown_as(*shown)),
            Shape::Optional(inner) => self.holder("optional", inner),
            Shape::List(inner) => self.holder("list", inner),
            Shape::Structure { ty, fields } => {
                self.structure(&key, ty, fields);
                return;
            }
            Shape::Union { cases, words, .. } => {
                let cases = self.cases(&key, cases);
                format!("{{ is = \"union\", name = {key:?}, {}, cases = {{\n{cases}}} }}", shown_as(Shown::Words(words)))
            }
        };
        self.line(&format!("types[{key:?}] = {value}"));
        self.written.push(key);
    }

    fn holder(&mut self, is: &str, inner: &'static Shape) -> String {
        self.shape(inner, "");
        format!("{{ is = {is:?}, of = types[{:?}] }}", key(inner, ""))
    }

    fn cases(&mut self, union: &str, cases: &'static [Case]) -> String {
        let mut text = String::new();
        for case in cases {
            self.shape(case.shape, union);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  [{}] = {{ field = {:?}, type = types[{:?}] }},", case.code, case.field, key(case.shape, union));
        }
        text
    }

    /// Writes a structure and returns its key.
    fn structure(&mut self, key: &str, name: &str, fields: &'static [FieldInfo]) -> String {
        for field in fields {
            self.shape(field.shape, "");
        }
        let mut text = format!("types[{key:?}] = {{ is = \"structure\", name = {name:?},\n");
        for FieldInfo { name, shape, shown, doc, .. } in fields {
            let own = if *shown == shape.shown() { String::new() } else { format!(", {}", shown_as(*shown)) };
            let _ = writeln!(text, "  {{ name = {name:?}, type = types[{:?}]{own}, doc = {doc:?} }},", self::key(shape, ""));
        }
        self.line(&(text + "}"));
        self.written.push(key.to_owned());
        key.to_owned()
    }
}

/// The name of a shape among the tables: that of its type in the specification. Items of a batch are other structures than the requests
/// of the same name, so cases of that union are named with it.
fn key(shape: &Shape, within: &str) -> String {
    match shape {
        Shape::Number { ty, .. } | Shape::Code { ty, .. } | Shape::Fixed { ty, .. } | Shape::Bytes { ty, .. } | Shape::Union { ty, .. } => {
            (*ty).to_owned()
        }
        Shape::Structure { ty, .. } if within == "Item" => format!("Item {ty}"),
        Shape::Structure { ty, .. } => (*ty).to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Optional(inner) => format!("optional {}", key(inner, "")),
        Shape::List(inner) => format!("list of {}", key(inner, "")),
    }
}

/// How values are shown, as entries of a table.
fn shown_as(shown: Shown) -> String {
    let plain = |name: &str| format!("shown = {name:?}");
    match shown {
        Shown::Decimal => plain("decimal"),
        Shown::Hex => plain("hex"),
        Shown::Octal => plain("octal"),
        Shown::Object => plain("object"),
        Shown::Micros => plain("micros"),
        Shown::Millis => plain("millis"),
        Shown::Time => plain("time"),
        Shown::Text => plain("text"),
        Shown::Bytes => plain("bytes"),
        Shown::Words(words) => {
            let words: Vec<String> = words.iter().map(|(code, word)| format!("[{code}] = {word:?}")).collect();
            format!("shown = \"words\", words = {{ {} }}", words.join(", "))
        }
        Shown::Bits(bits) => {
            let bits: Vec<String> = bits.iter().map(|(bit, name)| format!("{{ {bit}, {name:?} }}")).collect();
            format!("shown = \"bits\", bits = {{ {} }}", bits.join(", "))
        }
    }
}
