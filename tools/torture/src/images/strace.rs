//! Reads what strace has written down.
//!
//! Decides: which calls a log has, when each began and when it ended. A call during which another thread did something stands on two
//! lines; it is told twice all the same as every other: when it begins ([`Calls::begins`]), and when it has ended ([`Calls::ends`]).
//! Place: the first step of a replay. Invariant: a line that is not understood is an error, never skipped.
//! Leaves to others: what a call does to files (`replay`).
//!
//! ```text
//! 17 openat(AT_FDCWD, "/s/lock", O_RDWR|O_CREAT, 0600) = 5
//! 17 write(5, "12\n" <unfinished ...>
//! 18 fsync(7) = 0
//! 17 <... write resumed>, 3) = 3
//! 17 +++ exited with 0 +++
//! ```

use std::collections::HashMap;
use std::io::BufRead;

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arg {
    /// Bytes in quotes: a path, or what is written.
    Bytes(Vec<u8>),
    /// Anything else, as it stands.
    Word(String),
}

/// A call of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The thread that made it.
    pub(super) thread: u32,
    /// Its name.
    pub(super) name: String,
    /// Its arguments; while it only begins, the last ones may be missing.
    pub(super) args: Vec<Arg>,
}

impl Call {
    /// An argument as a number.
    pub(super) fn number(&self, at: usize) -> Result<u64, String> {
        match self.args.get(at) {
            Some(Arg::Word(word)) => word.parse().map_err(|_| format!("{}: {word} is no number", self.name)),
            other => Err(format!("{}: {other:?} is no number", self.name)),
        }
    }

    /// An argument as bytes.
    pub(super) fn bytes(&self, at: usize) -> Result<&[u8], String> {
        match self.args.get(at) {
            Some(Arg::Bytes(bytes)) => Ok(bytes),
            other => Err(format!("{}: {other:?} is not in quotes", self.name)),
        }
    }

    /// An argument as it stands, if it is a word.
    pub(super) fn word(&self, at: usize) -> &str {
        match self.args.get(at) {
            Some(Arg::Word(word)) => word,
            _ => "",
        }
    }
}

/// Who is told of calls.
pub(super) trait Calls {
    /// One begins.
    fn begins(&mut self, call: &Call) -> Result<(), String>;
    /// One has ended without an error, and gave `result`.
    fn ends(&mut self, call: Call, result: u64) -> Result<(), String>;
}

/// Reads a log to its end.
pub(super) fn read(mut log: impl BufRead, calls: &mut impl Calls) -> Result<(), String> {
    let (mut line, mut number) = (Vec::new(), 0);
    let mut begun = HashMap::new();
    loop {
        line.clear();
        number += 1;
        if log.read_until(b'\n', &mut line).map_err(|e| format!("reading strace's log: {e}"))? == 0 {
            break;
        }
        one(&line, &mut begun, calls).map_err(|e| {
            let start = String::from_utf8_lossy(&line[..line.len().min(200)]);
            format!("strace's log, line {number}: {e}: {}", start.trim_end())
        })?;
    }
    match begun.into_values().next() {
        // A call that was cut short by the end of the process may have done its work, or not.
        Some(text) if !waits(&text) => Err(format!("strace's log ends within {}", String::from_utf8_lossy(&text[..text.len().min(80)]))),
        _ => Ok(()),
    }
}

/// Calls that change nothing.
fn waits(text: &[u8]) -> bool {
    text.starts_with(b"close(") || text.starts_with(b"exit")
}

fn one(line: &[u8], begun: &mut HashMap<u32, Vec<u8>>, calls: &mut impl Calls) -> Result<(), String> {
    let line = line.trim_ascii();
    let at = line.iter().position(|byte| *byte == b' ').ok_or("no thread")?;
    let thread = std::str::from_utf8(&line[..at]).ok().and_then(|id| id.parse().ok()).ok_or("no thread")?;
    let text = line[at..].trim_ascii_start();
    if text.starts_with(b"+++") {
        begun.remove(&thread);
        return Ok(());
    }
    if text.starts_with(b"---") {
        return Ok(());
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let rest = &rest[find(rest, b" resumed>").ok_or("a call goes on without a name")? + b" resumed>".len()..];
        let mut whole = begun.remove(&thread).ok_or("a call goes on that did not begin")?;
        whole.extend_from_slice(rest);
        let (call, end) = parse(thread, &whole)?;
        return ended(call, &whole[end..], calls);
    }
    if let Some(text) = text.strip_suffix(b"<unfinished ...>") {
        let text = text.trim_ascii_end();
        calls.begins(&parse(thread, text)?.0)?;
        begun.insert(thread, text.to_vec());
        return Ok(());
    }
    let (call, end) = parse(thread, text)?;
    calls.begins(&call)?;
    ended(call, &text[end..], calls)
}

/// What stands after the closing bracket.
fn ended(call: Call, rest: &[u8], calls: &mut impl Calls) -> Result<(), String> {
    let rest = String::from_utf8_lossy(rest);
    let result = rest.trim_start().strip_prefix('=').ok_or("no result")?.trim_start();
    // `?`: the process ended in it.
    if result.starts_with('-') || result.starts_with('?') {
        return Ok(());
    }
    let word = result.split_whitespace().next().unwrap_or_default();
    let result = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse(),
    };
    calls.ends(call, result.map_err(|_| "no number as result")?)
}

/// Name and arguments, and where they end; without a closing bracket, at the end.
fn parse(thread: u32, text: &[u8]) -> Result<(Call, usize), String> {
    let open = text.iter().position(|byte| *byte == b'(').ok_or("no call")?;
    let name = String::from_utf8_lossy(&text[..open]).into_owned();
    let (mut args, mut at) = (Vec::new(), open + 1);
    loop {
        while matches!(text.get(at), Some(b' ' | b',')) {
            at += 1;
        }
        match text.get(at) {
            None => return Ok((Call { thread, name, args }, at)),
            Some(b')') => return Ok((Call { thread, name, args }, at + 1)),
            Some(b'"') => {
                let (bytes, end) = quoted(text, at)?;
                args.push(Arg::Bytes(bytes));
                at = end;
            }
            Some(_) => {
                let end = word_end(text, at)?;
                args.push(Arg::Word(String::from_utf8_lossy(&text[at..end]).into_owned()));
                at = end;
            }
        }
    }
}

/// Where a word ends that begins at `at`, brackets and quotes in it included.
fn word_end(text: &[u8], mut at: usize) -> Result<usize, String> {
    let mut depth = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = quoted(text, at)?.1;
                continue;
            }
            b'[' | b'{' | b'(' => depth += 1,
            b')' | b',' if depth == 0 => break,
            b']' | b'}' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(at)
}

/// The bytes between the quotes that begin at `at`, and where what follows them begins.
fn quoted(text: &[u8], at: usize) -> Result<(Vec<u8>, usize), String> {
    let mut bytes = Vec::new();
    let mut at = at + 1;
    loop {
        match text.get(at) {
            None => return Err("quotes without an end".to_owned()),
            Some(b'"') if text[at + 1..].starts_with(b"...") => return Err("bytes that were not written down whole".to_owned()),
            Some(b'"') => return Ok((bytes, at + 1)),
            Some(b'\\') => {
                let (byte, end) = escaped(text, at + 1)?;
                bytes.push(byte);
                at = end;
            }
            Some(byte) => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
}

fn escaped(text: &[u8], at: usize) -> Result<(u8, usize), String> {
    let byte = match text.get(at) {
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'r') => b'\r',
        Some(b'v') => 0x0B,
        Some(b'f') => 0x0C,
        Some(b'"') => b'"',
        Some(b'\\') => b'\\',
        Some(b'0'..=b'7') => {
            let digits = text[at..].iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte));
            let (value, len) = digits.fold((0_u32, 0), |(value, len), digit| (value * 8 + u32::from(digit - b'0'), len + 1));
            return Ok((u8::try_from(value).map_err(|_| "an octal number above 377")?, at + len));
        }
        other => return Err(format!("an unknown escape {other:?}")),
    };
    Ok((byte, at + 1))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Vec<String>);

    impl Calls for Told {
        fn begins(&mut self, call: &Call) -> Result<(), String> {
            self.0.push(format!("{} {}", call.thread, call.name));
            Ok(())
        }
        fn ends(&mut self, call: Call, result: u64) -> Result<(), String> {
            self.0.push(format!("{} {} {:?} = {result}", call.thread, call.name, call.args));
            Ok(())
        }
    }

    fn told(log: &str) -> Result<Vec<String>, String> {
        let mut told = Told::default();
        read(log.as_bytes(), &mut told).map(|()| told.0)
    }

    #[test]
    fn bytes_are_those_that_were_written() {
        let log = br#"7 write(3, "\0\1\37 !\"\\12\377\n\0007", 12) = 12
"#;
        let mut told = Told::default();
        read(&log[..], &mut told).unwrap();
        let bytes = b"\0\x01\x1f !\"\\12\xff\n\x007".to_vec();
        let args = [Arg::Word("3".to_owned()), Arg::Bytes(bytes), Arg::Word("12".to_owned())];
        assert_eq!(told.0[1], format!("7 write {args:?} = 12"));
    }

    #[test]
    fn a_call_on_two_lines_begins_before_and_ends_after_what_came_between() {
        let log = "1 write(3, \"a\" <unfinished ...>\n2 fsync(3) = 0\n1 <... write resumed>, 1) = 1\n1 +++ exited with 0 +++\n";
        let write = r#"1 write [Word("3"), Bytes([97]), Word("1")] = 1"#;
        assert_eq!(told(log).unwrap(), ["1 write", "2 fsync", "2 fsync [Word(\"3\")] = 0", write]);
    }

    #[test]
    fn a_call_that_failed_has_not_ended_well() {
        let log = "1 rename(\"a)\", \"b\") = -1 ENOENT (No such file or directory)\n1 newfstat(3, {st_mode=1, x=\")\"}) = 0\n";
        assert_eq!(told(log).unwrap().len(), 3);
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        for log in [
            "1 write(3, \"a\"..., 9) = 9\n",
            "1 write(3, \"a\n",
            "1 <... write resumed>) = 1\n",
            "x\n",
            "1 write(3, \"a\" <unfinished ...>\n",
        ] {
            assert!(told(log).is_err(), "{log}");
        }
    }
}
