//! Whether every MUST of the specifications is cited where it is implemented and where it is tested, or listed as not built yet.
//!
//! Reads the citations by itself and more strictly than `duvet` does: a citation quotes its whole requirement, letter by letter; one of
//! type `test` stands in test code, one of type `implementation` does not; nothing is both built and listed as not built. With
//! `CISTERN_DUVET_REPORT` (set by `tools/spec-coverage`) duvet's own report must come to the same end. `docs/spec-citations.md` says how to cite.
//! Leaves to others: whether a test really tests what it cites; a reader of the report sees both side by side.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The documents whose requirements are checked, as `.duvet/config.toml` has them.
const SPECS: [&str; 3] = ["wire-spec.md", "docs/sealed.md", "docs/flease.md"];

/// The section of what is not built: its requirements are listed in `.duvet/todos`, and no others are.
const NOT_BUILT: &str = "appendix-a-not-built";

/// A sentence with MUST, SHOULD or MAY, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    spec: &'static str,
    section: String,
    text: String,
}

/// What is said about a requirement, and where.
#[derive(Debug, Default)]
struct Cited {
    line: usize,
    implementations: Vec<String>,
    tests: Vec<String>,
    todos: Vec<String>,
    exceptions: Vec<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A heading as duvet names its section: small letters and digits, everything else one hyphen.
fn slug(title: &str) -> String {
    let parts: Vec<String> =
        title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).map(str::to_ascii_lowercase).collect();
    parts.join("-")
}

fn has_keyword(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphabetic()).any(|word| matches!(word, "MUST" | "SHOULD" | "MAY" | "SHALL" | "REQUIRED"))
}

/// The document and the section of a citation's target.
fn target(text: &str) -> Option<(&'static str, &str)> {
    SPECS.into_iter().find_map(|spec| Some((spec, text.strip_prefix(spec)?.strip_prefix('#')?)))
}

/// A line without the number of a rule and its indentation; whether it had a number.
fn without_number(line: &str) -> (&str, bool) {
    let text = line.trim_start();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.strip_prefix(". ") {
        Some(rule) if rest.len() < text.len() => (rule, true),
        _ => (text, false),
    }
}

/// The sentences of a line, each with its end.
fn sentences(text: &str) -> Vec<&str> {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let (mut from, mut all) = (0, Vec::new());
    for end in ends.chain([text.len()]) {
        all.push(text[from..end].trim_start());
        from = end;
    }
    all
}

/// All requirements of a specification: each is a sentence that begins and ends in one line, of which `duvet` reads the same. In
/// `wire-spec.md` it has the line to itself.
fn requirements(name: &'static str, spec: &str, found: &mut BTreeMap<Requirement, Cited>) {
    let lines: Vec<&str> = spec.lines().collect();
    let (mut section, mut fenced) = (String::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        if let Some(title) = line.strip_prefix('#') {
            section = slug(title);
        }
        let (text, numbered) = without_number(line);
        let place = format!("{name}:{}", at + 1);
        for (nth, sentence) in sentences(text).into_iter().enumerate().filter(|(_, sentence)| has_keyword(sentence)) {
            let before = lines[at - 1];
            let begins = nth > 0 || numbered || before.is_empty() || before.ends_with('.');
            assert!(begins, "{place}: the line before does not end a sentence");
            assert!(sentence.ends_with('.'), "{place}: a requirement ends in the line in which it begins");
            assert!(name != SPECS[0] || sentence == *line, "{place}: a requirement is one sentence in a line of its own");
            let requirement = Requirement { spec: name, section: section.clone(), text: sentence.to_owned() };
            let clash = found.insert(requirement, Cited { line: at + 1, ..Cited::default() });
            assert!(clash.is_none(), "{place}: the requirement stands twice in its section");
        }
    }
}

/// All Rust files below `dir`.
fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Whether a line of a file is test code: the file is one of tests, or the line stands behind `#[cfg(test)]` and a module's beginning.
fn is_test_code(path: &Path, lines: &[&str], at: usize) -> bool {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests") || path.file_stem().is_some_and(|stem| stem == "tests");
    let module = lines.windows(2).position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{'));
    in_tests || module.is_some_and(|start| start < at)
}

/// Adds the citations of one file; gives what is wrong with them.
fn read_citations(path: &Path, found: &mut BTreeMap<Requirement, Cited>, errors: &mut Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let marked = |at: usize, mark: &str| lines.get(at).and_then(|line| line.trim_start().strip_prefix(mark)).map(str::trim);
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        let mut metas = Vec::new();
        while let Some(meta) = marked(at, "//=") {
            metas.push(meta);
            at += 1;
        }
        let mut quote = Vec::new();
        while let Some(part) = marked(at, "//#") {
            quote.push(part);
            at += 1;
        }
        if at == start {
            at += 1;
            continue;
        }
        let place = format!("{}:{}", path.strip_prefix(root()).unwrap().display(), start + 1);
        let (spec, section) = metas.first().and_then(|text| target(text)).unwrap_or_default();
        let ty = match metas.get(1) {
            None => "implementation",
            Some(meta) => meta.strip_prefix("type=").unwrap_or("?"),
        };
        let requirement = Requirement { spec, section: section.to_owned(), text: quote.join(" ") };
        let Some(cited) = found.get_mut(&requirement) else {
            errors.push(format!(
                "{place}: \"{spec}\" has no such requirement, letter by letter, in section \"{}\":\n    {}",
                requirement.section, requirement.text
            ));
            continue;
        };
        match (ty, is_test_code(path, &lines, start)) {
            ("test", true) => cited.tests.push(place),
            ("implementation", false) => cited.implementations.push(place),
            ("test", false) => errors.push(format!("{place}: a citation of type test outside of test code")),
            ("implementation", true) => errors.push(format!("{place}: a citation in test code needs `//= type=test`")),
            _ => errors.push(format!("{place}: the type is {ty}; what is not built, or needs no test, is listed in .duvet/")),
        }
    }
}

/// Adds what `.duvet/todos` and `.duvet/exceptions` list.
fn read_lists(kind: &str, found: &mut BTreeMap<Requirement, Cited>, errors: &mut Vec<String>) {
    let dir = root().join(".duvet").join(format!("{kind}s"));
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let place = path.strip_prefix(root()).unwrap().display().to_string();
        let table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap_or_else(|error| panic!("{place}: {error}"));
        for item in table.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
            let field = |name: &str| item.get(name).and_then(toml::Value::as_str).unwrap_or_default().trim().to_owned();
            let named = field("target");
            let (spec, section) = target(&named).unwrap_or_default();
            let requirement = Requirement { spec, section: section.to_owned(), text: field("quote") };
            if field("reason").len() < 10 {
                errors.push(format!("{place}: no reason is given for \"{}\"", requirement.text));
            }
            match found.get_mut(&requirement) {
                Some(cited) if kind == "todo" => cited.todos.push(place.clone()),
                Some(cited) => cited.exceptions.push(place.clone()),
                None => {
                    errors.push(format!("{place}: {named} has no such requirement: {}", requirement.text));
                }
            }
        }
    }
}

/// What is wrong with how a requirement is covered.
fn judge(requirement: &Requirement, cited: &Cited) -> Option<String> {
    let must = requirement.text.contains("MUST");
    let listed = !cited.todos.is_empty() || !cited.exceptions.is_empty();
    let what = match (cited.implementations.is_empty(), cited.tests.is_empty()) {
        _ if cited.todos.is_empty() && requirement.section == NOT_BUILT => "is in the appendix of what is not built, and not listed so",
        _ if !cited.todos.is_empty() && requirement.section != NOT_BUILT => "is listed as not built, and not in the appendix of that",
        (false, _) | (_, false) if !cited.todos.is_empty() => "is cited, and is listed as not built yet",
        (false, false) => return None,
        _ if listed || !must => return None,
        (true, true) => "has neither implementation nor test",
        (true, false) => "has no implementation",
        (false, true) => "has no test",
    };
    Some(format!("{}:{} (#{}) {what}:\n    {}", requirement.spec, cited.line, requirement.section, requirement.text))
}

fn read_all() -> (BTreeMap<Requirement, Cited>, Vec<String>) {
    let mut found = BTreeMap::new();
    for spec in SPECS {
        requirements(spec, &std::fs::read_to_string(root().join(spec)).unwrap(), &mut found);
    }
    let mut errors = Vec::new();
    let mut files = Vec::new();
    for dir in ["crates", "src", "tests", "tools"] {
        sources(&root().join(dir), &mut files);
    }
    files.sort();
    for path in &files {
        read_citations(path, &mut found, &mut errors);
    }
    read_lists("todo", &mut found, &mut errors);
    read_lists("exception", &mut found, &mut errors);
    (found, errors)
}

#[test]
fn every_must_is_implemented_and_tested_or_listed_as_not_built() {
    let (found, mut errors) = read_all();
    errors.extend(found.iter().filter_map(|(requirement, cited)| judge(requirement, cited)));
    let musts = found.keys().filter(|requirement| requirement.text.contains("MUST")).count();
    let built = found.values().filter(|cited| !cited.implementations.is_empty() && !cited.tests.is_empty()).count();
    let todos = found.values().filter(|cited| !cited.todos.is_empty()).count();
    let exceptions = found.values().filter(|cited| !cited.exceptions.is_empty()).count();
    println!(
        "{} requirements, {musts} of them MUST: {built} built and tested, {todos} not built yet, {exceptions} exceptions",
        found.len()
    );
    let mut report = String::new();
    for error in &errors {
        writeln!(report, "{error}").unwrap();
    }
    assert!(errors.is_empty(), "{} faults; docs/spec-citations.md says how to cite\n{report}", errors.len());
}

/// duvet counts, for each requirement, how many of its bytes are cited, tested, or listed.
#[test]
fn duvet_comes_to_the_same_end() {
    let Some(path) = std::env::var_os("CISTERN_DUVET_REPORT") else {
        println!("not asked for: run tools/spec-coverage");
        return;
    };
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap();
    let mut musts = 0;
    let mut faults = String::new();
    let of = |spec| report["specifications"][spec]["requirements"].as_array().unwrap();
    for id in SPECS.into_iter().flat_map(of) {
        let annotation = &report["annotations"][usize::try_from(id.as_u64().unwrap()).unwrap()];
        if annotation["level"] != "MUST" {
            continue;
        }
        musts += 1;
        let status = &report["statuses"][id.to_string()];
        let bytes = |name: &str| status[name].as_u64().unwrap_or(0);
        let whole = bytes("spec");
        let cited = bytes("citation") >= whole && bytes("test") >= whole;
        if !cited && bytes("todo") < whole && bytes("exception") < whole {
            writeln!(faults, "{} {status}", annotation["comment"].as_str().unwrap().trim()).unwrap();
        }
    }
    let (found, _) = read_all();
    assert_eq!(musts, found.keys().filter(|requirement| requirement.text.contains("MUST")).count(), "duvet reads other requirements");
    assert!(faults.is_empty(), "not covered, says duvet:\n{faults}");
}
