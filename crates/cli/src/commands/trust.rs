//! `cistern trust`: the cluster that this host or user trusts, as a line, and taken from one.

use super::{OUTPUT, Run, read_local};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::{logging, show};
use cistern_credentials::Places;
use cistern_text::row;
use cistern_trust::{Fingerprint, Offered, Pinned, TextForm as _};
use clap::Args;
use serde_json::json;
use std::ffi::OsStr;

const TRUST_HELP: &str = "\
Without LINE: prints the line with the key of the cluster that is trusted here, and its servers. With LINE, as an operator prints it: takes it. So a host that has slept \
through a change of keys learns what the others know. Servers are believed only as the trusted cluster has signed them, and never an older list.

--replace trusts another cluster from now on: after its key was lost, or stolen. The line is not secret and must come unaltered: compare the fingerprints that both \
ends print.

Examples:
  cistern trust
  cistern trust - < cluster.line

Exit status:
  0   printed; or taken, also if it was known
  1   nothing is trusted here; the line is of another cluster, or damaged; a file cannot be used or written
  2   wrong usage";

/// Print the line of the trusted cluster, or take one
#[derive(Args, Debug)]
#[command(after_help = TRUST_HELP)]
pub(crate) struct Trust {
    /// The line; `-`: from standard input
    #[arg(allow_hyphen_values = true)]
    line: Option<String>,
    /// Trust its cluster in place of another one
    #[arg(long, requires = "line")]
    replace: bool,
}

impl Run for Trust {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let none = |what| Failure::new("NO_CLUSTER", EXIT_FAILED, what);
        let found = Places::of_this_process(None).find()?.ok_or_else(|| none("there is no key here; `cistern key new` makes one"))?;
        let Some(line) = &self.line else {
            let pinned = found.place.cluster()?.ok_or_else(|| none("no cluster is trusted here"))?;
            let line = pinned.to_text();
            let fingerprint = Fingerprint::of(&line).to_string();
            let shown = json!({ "trust": *line, "fingerprint": fingerprint, "roster": pinned.roster().version });
            ctx.print_with(&shown, || line.to_string())?;
            if !ctx.is_json() {
                logging::say(&format!("cistern: the fingerprint of the line is {fingerprint}"));
            }
            return Ok(());
        };
        let bad = |what: &dyn std::fmt::Display| Failure::new("TRUST", EXIT_FAILED, format!("the line {what}"));
        let line = if line == "-" { text_of(read_local(OsStr::new("-"))?)? } else { line.clone() };
        let pinned = Pinned::from_text(&line).map_err(|e| bad(&e))?;
        let offered = if self.replace { found.place.replace(&pinned)? } else { found.place.trust(&pinned)? };
        let known = found.place.cluster()?.unwrap_or(pinned);
        let (cluster, fingerprint) = (known.cluster().to_string(), Fingerprint::of(&line).to_string());
        let what = match offered {
            Offered::Taken => "taken",
            Offered::Known => "known already",
            Offered::Older => "older than what is known: left as it is",
        };
        let taken =
            json!({ "cluster": cluster, "roster": known.roster().version, "taken": offered == Offered::Taken, "fingerprint": fingerprint });
        ctx.print_with(&taken, || {
            let (version, cluster) = (known.roster().version, Fingerprint::of(&cluster));
            show::columns(&[
                row([&"line", &fingerprint]),
                row([&"cluster", &cluster]),
                row([&"roster", &version]),
                row([&"the line is", &what]),
            ])
        })
    }
}

fn text_of(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| Failure::new("TRUST", EXIT_FAILED, "the line is no text"))
}
