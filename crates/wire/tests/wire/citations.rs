//! Sections of `wire-spec.md` that code and documents cite by number: each must be there.

use crate::spec_text;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The numbers in the headings, as in "11.3".
fn headings(spec: &str) -> BTreeSet<&str> {
    spec.lines().filter(|line| line.starts_with("##")).filter_map(|line| line.split(' ').nth(1)).collect()
}

/// The numbers behind "section" and "sections" in a line.
fn cited(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("ection") {
        let mut rest = line[at + "ection".len()..].trim_start_matches('s').trim_start();
        while rest.starts_with(|c: char| c.is_ascii_digit()) {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            found.push(rest[..end].trim_end_matches('.'));
            rest = [", and ", ", ", " and ", " to "].iter().find_map(|between| rest[end..].strip_prefix(between)).unwrap_or_default();
        }
    }
    found
}

/// The files that cite, below `dir`.
fn texts(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            texts(&path, into);
        } else if path.extension().is_some_and(|extension| ["rs", "md", "lua"].iter().any(|known| extension == *known)) {
            into.push(path);
        }
    }
}

#[test]
fn every_section_that_is_cited_is_there() {
    assert_eq!(cited("as in sections 3.5, 7 and 11.2, by section 6."), ["3.5", "7", "11.2", "6"]);
    let root = Path::new(spec_text::PATH).parent().unwrap();
    let spec = spec_text::text();
    let headings = headings(&spec);
    let mut files = vec![PathBuf::from(spec_text::PATH)];
    ["crates", "docs", "src", "tests", "tools"].iter().for_each(|dir| texts(&root.join(dir), &mut files));
    let mut count = 0;
    for file in &files {
        // What is said of an RFC is about another text.
        for (at, line) in std::fs::read_to_string(file).unwrap().lines().enumerate().filter(|(_, line)| !line.contains("RFC ")) {
            for number in cited(line) {
                count += 1;
                assert!(headings.contains(number), "{}:{}: there is no section {number} in wire-spec.md", file.display(), at + 1);
            }
        }
    }
    assert!(count > 300, "{count} citations: they are not found");
}
