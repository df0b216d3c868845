//! Every target takes its corpus and some thousand new inputs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use cistern_fuzz::{Limit, TARGETS, corpus, fuzz};

#[test]
fn what_once_failed_does_not_fail() {
    for target in &TARGETS {
        for (file, input) in corpus(target.name).unwrap() {
            assert!(std::panic::catch_unwind(|| (target.run)(&input)).is_ok(), "{}", file.display());
        }
    }
}

#[test]
fn no_decoder_panics_and_each_is_reached() {
    for target in &TARGETS {
        let (_, outcomes) = fuzz(target, 7, Limit::Inputs(3_000)).unwrap_or_else(|failed| panic!("{}: {:02x?}", target.name, failed.input));
        assert!(outcomes >= 2, "{}: every input comes to the same", target.name);
    }
}

#[test]
fn cargo_fuzz_has_all_targets() {
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    let named: Vec<&str> = manifest.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).skip(1).collect();
    assert_eq!(named, TARGETS.map(|target| target.name));
}
