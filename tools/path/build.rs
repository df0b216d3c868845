//! Tells the program by which compiler it was made: instruction counts of different compilers are not alike.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=CISTERN_RUSTC={} for {target}", version.as_deref().map_or("unknown", str::trim));
}
