//! Command lines of the models: run, read as JSON, and given quantities at their utmost.

use crate::{command, said};
use serde_json::Value;
use std::process::Output;

/// Numbers at their utmost, of each kind that the command lines take.
pub const NUMBERS: [&str; 7] = ["5e-324", "1e-320", "1e-30", "1e-15", "1e12", "1e30", "1e308"];
/// Rates.
pub const RATES: [&str; 6] = ["1e-320/d", "1e-26/d", "1e-15/s", "1e15/s", "1e27/ms", "1e308/ms"];
/// Times.
pub const TIMES: [&str; 7] = ["1ns", "1us", "100000d", "1e-9", "1e9", "1e18", "1e300"];
/// Shares.
pub const SHARES: [&str; 6] = ["1e-320%", "1e-28%", "1e-9%", "99.999999999%", "1e30", "1e308%"];

/// Flags, each with the values that it is given.
pub type Flags<'a> = [(&'a str, &'a [&'a str])];

/// Runs a program by a line of words.
pub fn run(program: &str, line: &str) -> Output {
    command(program, &line.split(' ').collect::<Vec<_>>()).output().unwrap()
}

/// The same with `--json`, which must succeed; what it printed.
pub fn json(program: &str, line: &str) -> Value {
    let output = run(program, &format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A field that is a number.
pub fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {value}"))
}

/// Compares but for the last digits.
pub fn near(ours: f64, expected: f64) {
    assert!((ours / expected - 1.0).abs() < 1e-9, "{ours:e} is not {expected:e}");
}

/// The consoles of a page that begin with this program show what it prints; how many there are.
pub fn consoles(page: &str, program: &str) -> usize {
    let begin = format!("```console\n$ {program} ");
    let consoles: Vec<_> = page.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    for console in &consoles {
        let (line, shown) = console.split_once('\n').unwrap();
        let printed = String::from_utf8(run(program, line).stdout).unwrap();
        let mut rest = &printed[..];
        for part in shown.split("...").map(str::trim).filter(|part| !part.is_empty()) {
            rest = rest.split_once(part).unwrap_or_else(|| panic!("{program} {line} does not print\n{part}\nbut\n{printed}")).1;
        }
    }
    consoles.len()
}

/// Each flag with each of its values, put to a line that works, is solved or refused, in each form of output: no program panics.
pub fn solved_or_refused(program: &str, base: &str, flags: &Flags<'_>, endings: &[&str]) {
    for (flag, values) in flags {
        // The flag's last word takes the value; the base line's own gives way to it.
        let name = flag.rsplit(' ').next().unwrap();
        let words: Vec<_> = base.split(' ').collect();
        let at = words.iter().position(|word| *word == name);
        let kept: Vec<_> =
            words.iter().enumerate().filter(|(i, _)| at.is_none_or(|at| *i != at && *i != at + 1)).map(|(_, w)| *w).collect();
        for value in *values {
            for ending in endings {
                let line = format!("{} {flag} {value}{ending}", kept.join(" "));
                let output = run(program, &line);
                assert!(matches!(output.status.code(), Some(0..=2)), "{line}: {}", said(&output));
                assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{line}: {}", said(&output));
            }
        }
    }
}
