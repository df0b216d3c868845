//! What is built: every library of the workspace once, whichever package `-p` names; and nothing of the laboratory for the product. And whether
//! the README names all of it.
//!
//! Cargo unites the features that the chosen packages and all below them ask of a crate. Where two choices come to different features of
//! one crate, it and everything above it is compiled again. `Cargo.toml` therefore asks for all features at one place; where a feature comes
//! from a crate of others, a package names that crate for its features alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Packages with the features that they get; one may get two sets: for a macro or build script, and for the program.
type Features = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_choice_of_packages_builds_a_library_again() {
    let packages = packages();
    assert!(packages.len() > 10, "{packages:?}");
    let alone: Vec<Features> = packages.iter().map(|package| features(&["-p", package], "normal,build")).collect();
    let mut others = vec![("--workspace".to_owned(), features(&["--workspace"], "normal,build,dev"))];
    others.extend(packages.iter().map(|package| (format!("the tests of {package}"), features(&["-p", package], "normal,build,dev"))));
    others.extend(packages.iter().map(|package| format!("-p {package}")).zip(alone.iter().cloned()));
    let mut found = BTreeSet::new();
    for (package, below) in packages.iter().zip(&alone) {
        for (choice, other) in others.iter().filter(|(_, other)| other.contains_key(package)) {
            for (name, wanted) in below.iter().filter(|(name, wanted)| !other.get(*name).is_some_and(|got| got.is_superset(wanted))) {
                found.insert(format!("{name} below {package}: {wanted:?}, with {choice}: {:?}", other.get(name)));
            }
        }
    }
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_is_installed_links_no_simulator_and_draws_nothing() {
    let linked = features(&["-p", "cistern"], "normal");
    for package in linked.keys().map(|name| name.split(' ').next().unwrap_or_default()) {
        assert!(!["cistern-sim", "cistern-lab", "cistern-picture", "cistern-netfault", "plotters", "csv"].contains(&package), "{package}");
    }
    assert!(linked.contains_key("cistern-server"));
}

#[test]
fn readme_names_every_crate_and_tool() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| [`")?.split('`').next());
    let named: BTreeSet<String> =
        rows.filter(|name| name.starts_with("crates/") || name.starts_with("tools/")).map(str::to_owned).collect();
    let of = |dir: &'static str| {
        let entries = std::fs::read_dir(root.join(dir)).unwrap();
        entries.map(move |entry| format!("{dir}/{}", entry.unwrap().file_name().to_string_lossy()))
    };
    assert_eq!(named, of("crates").chain(of("tools")).collect());
}

#[test]
fn crates_can_be_published_and_need_nothing_that_is_not() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo).args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // `publish` is a list of registries: none of them, or, if it is absent, any.
    let published: BTreeSet<&str> =
        packages.iter().filter(|package| package["publish"].is_null()).map(|package| package["name"].as_str().unwrap()).collect();
    assert!(["cistern", "cistern-client", "cistern-wire"].iter().all(|name| published.contains(name)), "{published:?}");
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| published.contains(package["name"].as_str().unwrap())) {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "readme", "rust_version"] {
            if package[field].as_str().is_none_or(str::is_empty) {
                found.push(format!("{name} has no {field}"));
            }
        }
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|dependency| dependency["kind"] != "dev") {
            let (other, version) = (dependency["name"].as_str().unwrap(), dependency["req"].as_str().unwrap());
            if version == "*" || !dependency["path"].is_null() && !published.contains(other) {
                found.push(format!("{name} depends on {other} {version}, which cannot be published"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The packages of the workspace.
fn packages() -> Vec<String> {
    let tree = cargo_tree(&["--workspace", "--depth", "0"]);
    tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What a choice of packages builds: packages of the workspace by name, others by name and version.
fn features(choice: &[&str], edges: &str) -> Features {
    let mut found = Features::new();
    for line in cargo_tree(&[choice, &["-e", edges, "--format", "{p}|{f}"]].concat()).lines() {
        if let Some((package, features)) = line.split_once('|') {
            let own = package.contains('/');
            let words: Vec<&str> = package.split(' ').take(if own { 1 } else { 2 }).collect();
            found.entry(words.join(" ")).or_default().insert(features.trim_end_matches(" (*)").to_owned());
        }
    }
    found
}

fn cargo_tree(arguments: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--locked", "--quiet", "--prefix", "none"]).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
