//! All fields of a datagram, one a line (`-v`), and its bytes (`-vv`).
//!
//! Decides: how the tree is laid out; the names of fields and the text of values are the wire crate's own. Invariant: nothing here knows a
//! kind. Leaves to others: meaning (`words`).

use cistern_wire::{DatagramTree, Node, Shown, Value};
use std::io::{self, Write};

/// Spaces before a field of a message.
const INDENT: usize = 8;

/// Whether the object occurs in this part of a message.
#[must_use]
pub fn has_object(node: &Node<'_>, object: u64) -> bool {
    let is_it = node.shown == Shown::Object && node.value == Value::Unsigned(object);
    is_it || node.children.iter().any(|child| has_object(child, object))
}

/// Writes the fields of the datagram's header.
///
/// # Errors
/// Those of `out`.
pub fn header(out: &mut impl Write, tree: &DatagramTree<'_>) -> io::Result<()> {
    let fields: Vec<_> = tree.header.iter().chain(&tree.tail).map(|node| format!("{} {node}", node.name)).collect();
    writeln!(out, "{:INDENT$}{}", "", fields.join(", "))
}

/// Writes the fields of a message: its header's, and its body's.
///
/// # Errors
/// Those of `out`.
pub fn message(out: &mut impl Write, message: &Node<'_>) -> io::Result<()> {
    message.children.iter().try_for_each(|child| field(out, child, None, INDENT))
}

fn field(out: &mut impl Write, node: &Node<'_>, index: Option<usize>, indent: usize) -> io::Result<()> {
    let name = match index {
        Some(index) if node.name.is_empty() => format!("[{index}]"),
        _ => node.name.to_owned(),
    };
    if node.value != Value::Parts {
        return writeln!(out, "{:indent$}{name}: {node}", "");
    }
    writeln!(out, "{:indent$}{name}", "")?;
    let mut items = 0..;
    node.children.iter().try_for_each(|child| {
        let index = if child.name.is_empty() { items.next() } else { None };
        field(out, child, index, indent + 2)
    })
}

/// Writes bytes as hexadecimal and text.
///
/// # Errors
/// Those of `out`.
pub fn hex(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for (row, chunk) in bytes.chunks(16).enumerate() {
        write!(out, "{:INDENT$}{:04x} ", "", row * 16)?;
        for at in 0..16 {
            let gap = if at == 8 { " " } else { "" };
            match chunk.get(at) {
                Some(byte) => write!(out, "{gap} {byte:02x}")?,
                None => write!(out, "{gap}   ")?,
            }
        }
        let text: String = chunk.iter().map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }).collect();
        writeln!(out, "  {text}")?;
    }
    Ok(())
}
