//! What tshark sees of a capture with the dissector, and whether the inspector sees the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

pub mod compare;
pub mod pdml;

use crate::DISSECTOR;
use std::io::{ErrorKind, Write as _};
use std::process::Command;

/// What tshark prints when it is called so, with the dissector and without any settings of a person; `None` where there is no tshark,
/// which is said. Anything that looks like a failure of the dissector fails.
pub fn tshark(args: &[&str]) -> Option<String> {
    // There is none: a person's are not for tests.
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/no-settings");
    let script = format!("lua_script:{DISSECTOR}");
    let output = Command::new("tshark").env("WIRESHARK_CONFIG_DIR", settings).args(args).args(["-X", &script]).output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let _ = writeln!(std::io::stderr(), "skipped: tshark is not installed");
            return None;
        }
        other => other.unwrap(),
    };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "tshark failed: {errors}");
    // A failure of a script is an item of the tree (`_ws.lua.error` where only chosen fields are printed), or a word on standard error.
    assert!(!errors.contains("Lua") && !errors.contains("lua"), "{errors}");
    for bad in ["Lua Error: ", "dissector failed, please report"] {
        assert!(!text.contains(bad), "tshark's output tells of a failure: {}", text.lines().find(|line| line.contains(bad)).unwrap());
    }
    Some(text)
}
