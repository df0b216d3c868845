//! The target that has the name of this program.

#![no_main]

use cistern_fuzz::{TARGETS, Target};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> =
    LazyLock::new(|| TARGETS.iter().find(|target| target.name == env!("CARGO_BIN_NAME")).expect("a target has this name"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    (TARGET.run)(input);
});
