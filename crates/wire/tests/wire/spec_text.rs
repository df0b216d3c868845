//! Reads `wire-spec.md`: its headings, its tables, its formats. Knows nothing of the crate.

use std::collections::BTreeMap;

/// Where the specification is.
pub(crate) const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wire-spec.md");

/// The specification as written.
pub(crate) fn text() -> String {
    std::fs::read_to_string(PATH).expect("wire-spec.md stands at the top of the repository")
}

/// One field of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRow {
    /// Name.
    pub(crate) name: String,
    /// Type.
    pub(crate) ty: String,
}

/// A format: of a message, a reply or a structure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The code, of a message or a reply.
    pub(crate) code: u8,
    /// What follows the name: lane and answers; what it answers; its size.
    pub(crate) line: String,
    /// Its fields; those that the lane adds are among them.
    pub(crate) fields: Vec<FieldRow>,
}

/// What the specification says about formats.
#[derive(Debug, Default)]
pub(crate) struct Spec {
    /// Messages by name.
    pub(crate) messages: BTreeMap<String, Entry>,
    /// Replies by name.
    pub(crate) replies: BTreeMap<String, Entry>,
    /// Common structures by name.
    pub(crate) structures: BTreeMap<String, Entry>,
    /// Codes by type: value and name.
    pub(crate) codes: BTreeMap<String, Vec<(u16, String)>>,
    /// Statuses: value and name.
    pub(crate) statuses: Vec<(u16, String)>,
}

/// The cells of a table row.
pub(crate) fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
}

/// The rows (without header and rule) of every table whose header is `header`.
pub(crate) fn tables<'t>(text: &'t str, header: &str) -> Vec<Vec<Vec<&'t str>>> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = (0..lines.len()).filter(|at| lines[*at] == header);
    starts.map(|at| lines[at + 2..].iter().take_while(|line| line.starts_with('|')).map(|line| cells(line)).collect()).collect()
}

/// The text of the section whose heading begins with `heading` (its marks and number included), up to the next of its level or above.
pub(crate) fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let level = heading.bytes().take_while(|byte| *byte == b'#').count();
    let start = text.find(&format!("\n{heading}")).unwrap_or_else(|| panic!("no section \"{heading}\"")) + 1;
    let body = &text[start..];
    let ends = body.match_indices("\n#").find(|(at, _)| {
        let marks = body[at + 1..].bytes().take_while(|byte| *byte == b'#').count();
        marks <= level
    });
    &body[..ends.map_or(body.len(), |(at, _)| at)]
}

/// The fenced blocks of language `language`.
pub(crate) fn fenced<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("\n```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split_once("\n```").expect("a fence is closed").0).collect()
}

fn field(name: &str, ty: &str) -> FieldRow {
    FieldRow { name: name.to_owned(), ty: ty.to_owned() }
}

/// The fields of the lines below a name; `  name: type, name: type` or `  name: type  # meaning`.
fn fields(lines: &[&str]) -> Vec<FieldRow> {
    let declared = lines.iter().filter(|line| !line.trim_start().starts_with("errors: ")).map(|line| line.split("  # ").next().unwrap());
    declared
        .flat_map(|line| line.split(", "))
        .map(|part| part.trim().split_once(": ").expect(part))
        .map(|(name, ty)| field(name, ty))
        .collect()
}

/// `1 Shared, 2 Exclusive` or `1 Shared  # meaning`.
fn codes(lines: &[&str]) -> Vec<(u16, String)> {
    let values = lines.iter().flat_map(|line| line.split("  # ").next().unwrap().split(", "));
    values.map(|part| part.trim().split_once(' ').expect(part)).map(|(value, name)| (value.parse().expect(name), name.to_owned())).collect()
}

/// Takes one format into the specification.
fn take(spec: &mut Spec, head: &str, lines: &[&str]) {
    let (head, line) = head.split_once(": ").unwrap_or((head, ""));
    if let Some(name) = head.strip_prefix("code ") {
        spec.codes.insert(name.to_owned(), codes(lines));
        return;
    }
    let mut words: Vec<&str> = head.split(' ').collect();
    let name = words.pop().expect("a format has a name").to_owned();
    let mut entry = Entry { code: 0, line: line.to_owned(), fields: fields(lines) };
    if let Some(code) = words.pop() {
        entry.code = u8::from_str_radix(code.trim_start_matches("0x"), 16).expect(head);
    }
    let lane = line.split(" -> ").next().unwrap_or_default();
    if ["request", "mutation"].contains(&lane) {
        entry.fields.insert(0, field("ask", "Ask"));
    }
    if lane == "mutation" {
        entry.fields.push(field("terms", "Terms"));
    }
    let kinds = match words.pop() {
        Some("reply") => &mut spec.replies,
        None if entry.code > 0 => &mut spec.messages,
        None => &mut spec.structures,
        Some(word) => panic!("{word} is neither a message nor a reply"),
    };
    assert!(kinds.insert(name, entry).is_none(), "{head} stands twice");
}

/// Reads sections 5, 6 and 9.
pub(crate) fn spec(text: &str) -> Spec {
    let mut spec = formats(text);
    spec.statuses = spec.codes.remove("Status").expect("section 9 has the statuses");
    spec
}

/// Reads all formats of a text.
pub(crate) fn formats(text: &str) -> Spec {
    let mut spec = Spec::default();
    for block in fenced(text, "wire") {
        let lines: Vec<&str> = block.lines().collect();
        let heads: Vec<usize> = (0..lines.len()).filter(|at| !lines[*at].starts_with(' ')).collect();
        for (at, head) in heads.iter().enumerate() {
            take(&mut spec, lines[*head], &lines[head + 1..heads.get(at + 1).copied().unwrap_or(lines.len())]);
        }
    }
    spec
}
