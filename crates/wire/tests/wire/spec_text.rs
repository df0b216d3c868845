//! Reads `wire-spec.md`: its headings, its tables, its fenced blocks. Knows nothing of the crate.

use std::collections::BTreeMap;

/// Where the specification is.
pub(crate) const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wire-spec.md");

/// The specification as written.
pub(crate) fn text() -> String {
    std::fs::read_to_string(PATH).expect("wire-spec.md stands at the top of the repository")
}

/// One line of a field table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRow {
    /// Offset, where it is fixed.
    pub(crate) at: Option<usize>,
    /// Size; for a field of variable length the least.
    pub(crate) bytes: usize,
    /// Whether the size is fixed.
    pub(crate) fixed: bool,
    /// Name.
    pub(crate) name: String,
    /// Type.
    pub(crate) ty: String,
}

/// What stands under the heading of a message or a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The code in the heading.
    pub(crate) code: u8,
    /// The line below the heading: who sends it, its lane, its answers.
    pub(crate) line: String,
    /// Its fields.
    pub(crate) fields: Vec<FieldRow>,
    /// The picture of its body.
    pub(crate) picture: String,
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
    /// Codes by type: value, name, word.
    pub(crate) codes: BTreeMap<String, Vec<(u8, String, String)>>,
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

fn field_row(row: &[&str]) -> FieldRow {
    let [at, bytes, name, ty, meaning] = row else { panic!("not a field row: {row:?}") };
    assert!(!meaning.is_empty(), "{name} has no meaning");
    FieldRow {
        at: (!at.is_empty()).then(|| at.parse().unwrap()),
        bytes: bytes.trim_end_matches('+').parse().unwrap(),
        fixed: !bytes.ends_with('+'),
        name: name.trim_matches('`').to_owned(),
        ty: (*ty).to_owned(),
    }
}

fn entry(body: &str, code: u8) -> Entry {
    let mut tables = tables(body, "| at | bytes | field | type | meaning |");
    assert!(tables.len() <= 1, "two field tables in one place: {body}");
    let picture = body.split_once("```layout ").and_then(|(_, rest)| rest.split_once('\n')?.1.split_once("```")).map(|parts| parts.0);
    Entry {
        code,
        line: body.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default().to_owned(),
        fields: tables.pop().unwrap_or_default().iter().map(|row| field_row(row)).collect(),
        picture: picture.unwrap_or_default().to_owned(),
    }
}

/// Splits the text of sections 5 and 6 at what begins a structure, a code, a message or a reply.
fn blocks(text: &str) -> Vec<&str> {
    let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).filter(|at| text[*at..].starts_with(['#', '*'])).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

/// Reads sections 5, 6 and 9.
pub(crate) fn spec(text: &str) -> Spec {
    let mut spec = Spec::default();
    for block in blocks(section(text, "## 5 ")).into_iter().chain(blocks(section(text, "## 6 "))) {
        let first = block.lines().next().unwrap_or_default();
        if let Some(heading) = first.strip_prefix("#### ") {
            let (name, code) = heading.strip_suffix(')').and_then(|rest| rest.split_once(" (0x")).expect(heading);
            let entry = entry(block, u8::from_str_radix(code, 16).expect(heading));
            let clash = match name.strip_prefix("Reply ") {
                Some(reply) => spec.replies.insert(reply.to_owned(), entry),
                None => spec.messages.insert(name.to_owned(), entry),
            };
            assert!(clash.is_none(), "{name} stands twice");
        } else if let Some((name, _)) = first.strip_prefix("**").and_then(|rest| rest.split_once("**:")) {
            let codes = tables(block, "| value | name | word | meaning |");
            if let Some(rows) = codes.first() {
                let rows = rows.iter().map(|row| (row[0].parse().unwrap(), row[1].to_owned(), row[2].to_owned()));
                spec.codes.insert(name.to_owned(), rows.collect());
            } else {
                spec.structures.insert(name.to_owned(), entry(block, 0));
            }
        }
    }
    let statuses = tables(section(text, "## 9 "), "| value | name | meaning |");
    spec.statuses = statuses[0].iter().map(|row| (row[0].parse().unwrap(), row[1].to_owned())).collect();
    spec
}

/// Writes `content` between the two marks of that name in the specification.
pub(crate) fn replace_between(text: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = text.split_once(&begin).expect("the mark is in the specification");
    let (_, after) = rest.split_once(&end).expect("the mark is in the specification");
    format!("{before}{begin}{content}{end}{after}")
}

/// What stands between the two marks of that name.
pub(crate) fn between<'t>(text: &'t str, name: &str) -> &'t str {
    let (_, rest) = text.split_once(&format!("<!-- {name}: begin -->\n")).expect("the mark is in the specification");
    rest.split_once(&format!("<!-- {name}: end -->")).expect("the mark is in the specification").0
}
