//! What tshark says of a capture, read from its PDML: every field with its place, its bytes and how it is shown.

use roxmltree::{Document, Node, ParsingOptions};

/// A field of the dissection tree.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name, as filters have it.
    pub name: String,
    /// The value as a filter has it.
    pub show: String,
    /// The line in the tree.
    pub line: String,
    /// Offset in the frame.
    pub at: usize,
    /// Bytes in the frame.
    pub len: usize,
    /// Its bytes, hexadecimal.
    pub bytes: String,
    /// The fields below it.
    pub children: Vec<Self>,
}

impl Field {
    /// This field and all below it, in the order of the tree.
    pub fn all<'f>(&'f self, into: &mut Vec<&'f Self>) {
        into.push(self);
        self.children.iter().for_each(|child| child.all(into));
    }
}

/// A frame: all fields of Cistern in it, in the order of the tree.
#[derive(Debug)]
pub struct Frame {
    /// Offset of the datagram.
    pub at: usize,
    /// The fields of the tree's first level.
    pub fields: Vec<Field>,
}

impl Frame {
    /// All of them, in the order of the tree.
    pub fn all(&self) -> Vec<&Field> {
        let mut all = Vec::new();
        self.fields.iter().for_each(|field| field.all(&mut all));
        all
    }

    /// The values of all fields of this name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.all().iter().filter(|field| field.name == name).map(|field| field.show.as_str()).collect()
    }
}

/// The frames of a PDML text; a frame that is not Cistern's has no fields.
pub fn frames(text: &str) -> Vec<Frame> {
    let document = Document::parse_with_options(text, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap();
    document.descendants().filter(|node| node.has_tag_name("packet")).map(frame).collect()
}

fn frame(packet: Node<'_, '_>) -> Frame {
    let mut protocols = packet.children().filter(|node| node.has_tag_name("proto") && node.attribute("name") == Some("cistern"));
    let Some(protocol) = protocols.next() else { return Frame { at: 0, fields: Vec::new() } };
    assert!(protocols.next().is_none(), "a frame was dissected twice");
    Frame { at: number(protocol, "pos"), fields: protocol.children().filter(|node| node.has_tag_name("field")).map(field).collect() }
}

fn field(node: Node<'_, '_>) -> Field {
    let text = |name: &str| node.attribute(name).unwrap_or_default().to_owned();
    Field {
        name: text("name"),
        show: text("show"),
        line: text("showname"),
        at: number(node, "pos"),
        len: number(node, "size"),
        bytes: text("value"),
        children: node.children().filter(|child| child.has_tag_name("field")).map(field).collect(),
    }
}

fn number(node: Node<'_, '_>, name: &str) -> usize {
    node.attribute(name).map_or(0, |text| text.parse().unwrap())
}
