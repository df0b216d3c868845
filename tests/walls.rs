//! Whether the code keeps the walls that `ARCHITECTURE.md` draws: who imports whom, who sees several parts, how large a file may be.
//!
//! Reads text only. Rust's own privacy keeps the rest: fields of a part, and modules of the machine, are private.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// No file is longer.
const LINES_MAX: usize = 600;

/// The parts of a machine.
struct Picture {
    /// The crate's directory.
    krate: &'static str,
    /// The machine's type and its folder: the only one that sees several parts.
    machine: (&'static str, &'static str),
    /// Each part with those that it may import. What is not a part is the base, which every part may import and which imports no part.
    parts: &'static [(&'static str, &'static [&'static str])],
    /// How an entry point begins a step.
    step: &'static [&'static str],
    /// Methods that change the machine without a step: they decide nothing.
    no_step: &'static [&'static str],
}

const SERVER: Picture = Picture {
    krate: "crates/server",
    machine: ("Server", "server"),
    parts: &[
        ("gate", &[]),
        ("failovers", &["sessions"]),
        ("sessions", &["transport", "requests", "principals", "store"]),
        ("requests", &["store"]),
        ("namespace", &["principals", "store"]),
        ("principals", &["store"]),
        ("invites", &["store"]),
        ("lines", &["requests"]),
        ("transport", &[]),
        ("presence", &[]),
        ("leases", &["store"]),
        ("locks", &[]),
        ("scheduler", &[]),
        ("store", &[]),
    ],
    step: &["self.step("],
    no_step: &["poll_transmit", "poll_effect", "poll_seal_work", "wake_after", "group_heard"],
};

const AGENT: Picture = Picture {
    krate: "crates/agent",
    machine: ("Agent", "agent"),
    parts: &[
        ("session", &["transport"]),
        ("tasks", &["cache", "locks"]),
        ("cache", &[]),
        ("locks", &[]),
        ("transport", &[]),
        ("users", &[]),
    ],
    step: &["self.enter(", "self.act("],
    no_step: &["poll_event", "wake_after"],
};

/// A source file, as far as it is not a test.
struct Source {
    /// Its path below `src`.
    path: String,
    /// Its code, without comments and tests.
    code: String,
}

/// Crates without parts.
const PLAIN: [&str; 28] = [
    "crates/capture",
    "crates/cli",
    "crates/client",
    "crates/credentials",
    "crates/driver",
    "crates/flease",
    "crates/group",
    "crates/link",
    "crates/model",
    "crates/run",
    "crates/seal",
    "crates/store",
    "crates/store-etcd",
    "crates/text",
    "crates/trust",
    "crates/wire",
    "tools/audit",
    "tools/bench",
    "tools/dump",
    "tools/faults",
    "tools/lab",
    "tools/netfault",
    "tools/path",
    "tools/picture",
    "tools/sim",
    "tools/torture",
    "tools/fuzz",
    "tools/testkit",
];

#[test]
fn no_type_name_stands_twice() {
    for krate in PLAIN {
        Picture { krate, machine: ("", "."), parts: &[], step: &[], no_step: &[] }.check();
    }
}

#[test]
fn no_file_is_too_long() {
    let mut found = Vec::new();
    for top in ["crates", "tools", "tests", "src"] {
        for path in rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(top)) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            if lines > LINES_MAX {
                found.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "too long:\n{}", found.join("\n"));
}

#[test]
fn server_keeps_its_walls() {
    SERVER.check();
}

#[test]
fn agent_keeps_its_walls() {
    AGENT.check();
}

/// Crates of which the client shows its users nothing, but for what can be set and the lease clock.
const INSIDE: [&str; 3] = ["cistern_agent", "cistern_link", "cistern_wire"];
const SHOWN: [&str; 5] = ["CacheLimits", "Config", "IdlePolicy", "Instant", "Phases"];

#[test]
fn tests_that_docs_security_names_are_there() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md")).unwrap();
    let rows = page.split("## Attacks and tests").nth(1).unwrap().lines().filter(|line| line.starts_with("| ")).skip(1);
    let named: Vec<Vec<&str>> = rows.map(|row| row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2).collect()).collect();
    assert!(named.len() >= 26 && named.iter().all(|tests| !tests.is_empty()), "each attack has a test: {named:?}");
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code: String = ["crates", "tests", "tools"]
        .iter()
        .flat_map(|dir| rust_files(&top.join(dir)))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    for test in named.into_iter().flatten() {
        assert!(code.contains(&format!("fn {test}()")), "docs/security.md names `{test}`, which is no test");
    }
}

#[test]
fn client_shows_types_of_its_own() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/client/src");
    let lib = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let given_on: BTreeSet<&str> = names_used(&lib, "pub use ").filter(|name| name.starts_with(char::is_uppercase)).collect();
    assert_eq!(given_on.into_iter().collect::<Vec<_>>(), SHOWN);
    for Source { path, code, .. } in sources(&src) {
        let hidden: BTreeSet<&str> = names_used(&code, "use ").filter(|name| !SHOWN.contains(name)).collect();
        for item in public_items(&code) {
            // What an operation brings is the one associated type.
            let item = &item.replace("::Output", "");
            let is_named = |name: &&str| match name.starts_with(char::is_uppercase) {
                true => words(item).any(|word| word == *name),
                false => item.contains(&format!("{name}::")),
            };
            let leaked: Vec<&str> = hidden.iter().copied().chain(INSIDE).filter(is_named).collect();
            assert!(leaked.is_empty(), "{path}: {leaked:?} in what is public: {item}");
        }
    }
}

/// Names that come from the inner crates by statements that begin so.
fn names_used<'a>(code: &'a str, begin: &'static str) -> impl Iterator<Item = &'a str> {
    let statements = code.split(begin).skip(1).map(|text| text.split(';').next().unwrap_or_default());
    statements
        .filter(|text| INSIDE.iter().any(|krate| text.starts_with(krate)))
        .flat_map(words)
        .filter(|word| !["self", "as"].contains(word))
}

/// Public functions and fields as far as their bodies, public enums whole, and what public types are made from.
fn public_items(code: &str) -> impl Iterator<Item = &str> {
    let public = code.split("pub ").skip(1).map(|text| {
        let end = match text.split_whitespace().next() {
            Some("enum") => text.find("\n}"),
            Some("struct") => text.find(['(', '{', ';']),
            Some("fn" | "const" | "async" | "trait" | "mod" | "type" | "use") => text.find(['{', ';']),
            _ => text.find([';', '\n']),
        };
        &text[..end.unwrap_or(text.len())]
    });
    public.chain(code.split("impl From<").skip(1).map(|text| text.split('{').next().unwrap_or_default()))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

impl Picture {
    fn check(&self) {
        let found: Vec<String> = self.violations().into_iter().collect();
        assert!(found.is_empty(), "{} does not keep its walls:\n{}", self.krate, found.join("\n"));
    }

    fn violations(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(self.krate).join("src")) {
            let Source { path, code } = &source;
            for name in type_names(code) {
                types.entry(name).or_default().insert(path.clone());
            }
            let part = self.part_of(path);
            for imported in imports(code) {
                let other = self.part_of(&imported);
                if !self.may_import(part, other) {
                    found.insert(format!("import: {path} of {} has {imported} of {other}", part.unwrap_or("base"), other = other.unwrap()));
                }
            }
            let (machine, folder) = self.machine;
            let inside = path.starts_with(&format!("{folder}/"));
            if !inside && [format!("impl {machine} {{"), format!(" for {machine} {{")].iter().any(|text| code.contains(text)) {
                found.insert(format!("impl {machine}: {path}"));
            }
            if part == Some(folder) {
                found.extend(self.entries_without_step(code).map(|name| format!("no step: {name} of {path}")));
            }
        }
        let twice = types.into_iter().filter(|(_, paths)| paths.len() > 1);
        found.extend(twice.map(|(name, paths)| format!("twice: {name} in {}", paths.into_iter().collect::<Vec<_>>().join(", "))));
        found
    }

    /// The part of a file or module, by the first name of its path; `None`: the base.
    fn part_of(&self, path: &str) -> Option<&'static str> {
        let first = path.split(['/', ':', '.']).next().unwrap_or_default();
        self.parts.iter().map(|(part, _)| *part).chain([self.machine.1]).find(|part| *part == first)
    }

    fn may_import(&self, part: Option<&str>, other: Option<&str>) -> bool {
        let Some(other) = other else { return true };
        // The crate's own list of modules is no part.
        let Some(part) = part else { return false };
        let allowed = self.parts.iter().find(|(name, _)| *name == part).map_or(&[][..], |(_, allowed)| *allowed);
        part == other || part == self.machine.1 || allowed.contains(&other)
    }

    /// Public methods of the machine that change it, and do not do so within a step.
    fn entries_without_step(&self, code: &str) -> impl Iterator<Item = String> {
        let public = code.split("    pub fn ").skip(1);
        let machine = code.split_once(&format!(" for {} {{", self.machine.0)).map_or("", |(_, rest)| rest).split("    fn ").skip(1);
        let changes = public.chain(machine).filter_map(|text| {
            let (head, body) = text.split_once(" {\n")?;
            let body = body.split("\n    }\n").next()?;
            let name = head.split('(').next()?;
            (head.contains("&mut self") && !self.step.iter().any(|step| body.contains(step)) && !self.no_step.contains(&name))
                .then(|| name.to_owned())
        });
        changes.collect::<Vec<_>>().into_iter()
    }
}

/// All files of a crate but for its tests.
fn sources(src: &Path) -> Vec<Source> {
    let is_test = |path: &Path| path.components().any(|part| ["tests", "tests.rs", "lib.rs"].iter().any(|name| part.as_os_str() == *name));
    let all = rust_files(src).into_iter().map(|path| path.strip_prefix(src).unwrap().to_owned());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(src.join(&path)).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
        Source { path: path.to_string_lossy().into_owned(), code }
    };
    all.filter(|path| !is_test(path)).map(read).collect()
}

/// All files of Rust below a directory, in the order of their names.
fn rust_files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from(top)];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The modules below the crate's root that code names.
fn imports(code: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.split("crate::").skip(1).map(name).filter(|name| !name.is_empty()).collect()
}

/// The types that code declares.
fn type_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in code.lines() {
        let mut words = words(line);
        let declares = |word: &&str| ["struct", "enum", "trait"].contains(word);
        if let Some(name) = words.by_ref().find(declares).and_then(|_| words.next()).filter(|name| name.starts_with(char::is_uppercase)) {
            names.insert(name.to_owned());
        }
    }
    names
}
