//! The pictures of layouts in `wire-spec.md`: drawn from its tables, and compared.

use crate::regenerate;
use crate::spec_reader::size;
use crate::spec_text::{self, Entry, Spec};

/// Widest line of a picture.
const WIDTH: usize = 100;

/// Draws the fields of a body as a row of boxes (several rows if it is long), offsets above.
fn picture(spec: &Spec, entry: &Entry) -> String {
    let mut rows: Vec<[String; 2]> = vec![[String::new(), "|".to_owned()]];
    let (mut at, mut known) = (0, true);
    for field in &entry.fields {
        let (bytes, fixed) = size(spec, &field.ty);
        let label = if known { at.to_string() } else { String::new() };
        let text = if fixed { format!(" {} ", field.name) } else { format!(" {} ~ ", field.name) };
        let width = text.len().max(label.len() + 1);
        if rows.last().is_some_and(|row| row[1].len() + width + 1 > WIDTH) {
            rows.push([String::new(), "|".to_owned()]);
        }
        let [labels, boxes] = rows.last_mut().expect("there is a row");
        labels.push_str(&" ".repeat(boxes.len() - 1 - labels.len()));
        labels.push_str(&label);
        boxes.push_str(&format!("{text:width$}|"));
        at += bytes;
        known &= fixed;
    }
    let mut text = String::new();
    for (index, [labels, boxes]) in rows.iter().enumerate() {
        let last_of_all = index + 1 == rows.len();
        let end = if last_of_all && known { at.to_string() } else { String::new() };
        let rule: String = boxes.chars().map(|c| if c == '|' { '+' } else { '-' }).collect();
        let labels = format!("{labels:width$}{end}", width = boxes.len() - 1);
        for line in [labels.trim_end(), &rule, boxes, &rule] {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[test]
fn pictures_of_the_specification_are_those_of_its_tables() {
    let mut text = spec_text::text();
    let spec = spec_text::spec(&text);
    let all = spec.messages.iter().chain(&spec.replies).chain(&spec.structures);
    for (name, entry) in all.filter(|(_, entry)| !entry.fields.is_empty()) {
        let begin = format!("```layout {name}\n");
        if entry.picture.is_empty() && !text.contains(&begin) {
            assert!(spec.structures.contains_key(name), "{name} has no picture");
            continue;
        }
        let drawn = picture(&spec, entry);
        if regenerate() {
            let old = format!("{begin}{}```", entry.picture);
            text = text.replace(&old, &format!("{begin}{drawn}```"));
        } else {
            assert_eq!(entry.picture, drawn, "the picture of {name}");
        }
    }
    if regenerate() {
        std::fs::write(spec_text::PATH, text).unwrap();
    }
}
