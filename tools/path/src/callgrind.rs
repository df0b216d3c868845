//! Instructions of one request, counted by callgrind.
//!
//! Decides what is subtracted: this program runs itself twice under valgrind with the same preparations, with fewer and with more
//! requests, and the difference is what the further ones cost; start, handshake and preparations fall out. Of a datagram with many
//! requests what one with a single request costs is subtracted, too: what is left are the further ones. Invariant: nothing else
//! differs between the two runs, nor between two machines' directories. Leaves to others: what a request is (`kind`), what to make of the
//! figure (`baseline`).

use crate::trouble::Trouble;
use cistern_path::{Counted, PACKED};
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// Requests of the shorter run: tables and buffers have grown.
const FEW: u64 = 208;
/// Requests of the longer run.
pub(crate) const MANY: u64 = 1_200;
/// Under which this program runs in the directory of its output: what a heap looks like, and with it what a copy of bytes costs, depends on
/// how long that is, by up to 3 % of a write.
const NAME: &str = "./path";
const PACKED_EACH: u64 = PACKED as u64;
const _: () = assert!(FEW.is_multiple_of(PACKED_EACH) && MANY.is_multiple_of(PACKED_EACH), "both runs are of whole datagrams");

/// Instructions for one request of a kind.
pub(crate) fn count(counted: Counted) -> Result<u64, Trouble> {
    let further = further(counted)?;
    match counted {
        Counted::Request(_) | Counted::Cached(_) | Counted::Priced(_) => Ok(further / (MANY - FEW)),
        Counted::Packed(kind) => {
            let (datagram, single) = (further / ((MANY - FEW) / PACKED_EACH), count(Counted::Request(kind))?);
            let rest = datagram.checked_sub(single).ok_or(Trouble::Output { what: "one request that costs more than many" })?;
            Ok(rest / (PACKED_EACH - 1))
        }
    }
}

/// Instructions of the requests that only the longer run has.
fn further(counted: Counted) -> Result<u64, Trouble> {
    let dir = tempfile::tempdir().map_err(Trouble::at("making a directory for callgrind's output"))?;
    let this = env::current_exe().map_err(Trouble::at("finding this program"))?;
    symlink(this, dir.path().join(NAME)).map_err(Trouble::at("giving this program a short name"))?;
    let [few, many] = [FEW, MANY].map(|requests| instructions(counted, requests, dir.path()));
    let (few, many) = (few?, many?);
    many.checked_sub(few).ok_or(Trouble::Output { what: "a longer run with fewer instructions" })
}

/// Instructions of a whole run with so many requests.
fn instructions(counted: Counted, requests: u64, dir: &Path) -> Result<u64, Trouble> {
    let out = dir.join(format!("callgrind.{requests}"));
    let name = counted.to_string();
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.current_dir(dir).arg(NAME).args(["run", &name, "--times"]).arg(requests.to_string());
    let output = valgrind.stdin(Stdio::null()).output().map_err(|source| Trouble::Valgrind { source })?;
    if !output.status.success() {
        return Err(Trouble::Run { name, status: output.status, said: String::from_utf8_lossy(&output.stderr).into_owned() });
    }
    let text = fs::read_to_string(&out).map_err(Trouble::at("reading callgrind's output"))?;
    total(&text).ok_or(Trouble::Output { what: "no line `summary:` or `totals:` with a number" })
}

/// The sum of all that was executed, as the file says it.
fn total(text: &str) -> Option<u64> {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    of("totals:").or_else(|| of("summary:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_read_from_either_line_and_from_nothing_else() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=(1) main\n1 12\ntotals: 345\n"), Some(345));
        assert_eq!(total("summary: 345 7\nfn=(1) main\n"), Some(345));
        assert_eq!(total("fn=(1) totals: 345\n"), None);
        assert_eq!(total("totals: many\n"), None);
    }
}
