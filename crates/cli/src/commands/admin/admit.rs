//! `cistern admin admit`: admits a host whose request was carried by hand.

use super::grant::realm_and_rights;
use super::{Control, OPERATOR, cluster, own_cluster};
use crate::commands::{Run, read_local};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_SOFTWARE};
use crate::local::Failure;
use crate::logging;
use crate::text::Blob;
use cistern_trust::{Fingerprint, Grant, Name, Request, TextForm as _};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

const ADMIT_HELP: &str = "\
Takes the line that `cistern join --request` has printed on the host, and prints the grant that `cistern join --grant` takes there. Neither is secret, and both must \
come unaltered: compare the fingerprints that both ends print. A key that is admitted already gets its grant again, under the name and with the rights that it has.

Examples:
  cistern admin admit web-1.request > web-1.grant

Exit status:
  0   admitted
  1   the request cannot be read, the name is taken, or the key was revoked
  69  no server answers";

/// Admit a host without a network: print the grant for its request
#[derive(Args, Debug)]
#[command(after_help = ADMIT_HELP)]
pub(crate) struct AdmitHost {
    #[command(flatten)]
    server: Control,
    /// File with its request; `-` for standard input
    request: OsString,
    /// What it will be called; else what it calls itself
    #[arg(long)]
    name: Option<Name>,
    /// What it may do in a realm (`cistern realm ls`); repeatable
    #[arg(long, value_name = "REALM=RIGHTS", value_parser = realm_and_rights, default_value = "1=rwl")]
    rights: Vec<(u32, String)>,
    /// It may do what operators do
    #[arg(long)]
    operator: bool,
}

impl Run for AdmitHost {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let bad = |what: &dyn std::fmt::Display| {
            Failure::new("REQUEST", EXIT_FAILED, format!("local file {}: {what}", self.request.to_string_lossy()))
        };
        let text = String::from_utf8(read_local(&self.request)?).map_err(|_| bad(&"it is no text"))?;
        let request = Request::from_text(&text).map_err(|e| bad(&format_args!("it {e}")))?;
        let own = own_cluster()?;
        let name = self.name.as_ref().unwrap_or(&request.label);
        let key = Blob(request.key.as_bytes().to_vec());
        let asked = json!({ "op": "admit", "name": name.as_str(), "key": key, "operator": self.operator, "rights": self.rights });
        let admitted = self.server.ask(ctx, &asked)?;
        let answer = || Failure::new("INTERNAL", EXIT_SOFTWARE, format!("the server's answer is none: {admitted}"));
        let principal = admitted["number"].as_u64().and_then(|number| u32::try_from(number).ok()).ok_or_else(answer)?;
        let name: Name = admitted["name"].as_str().and_then(|name| name.parse().ok()).ok_or_else(answer)?;
        let grant = Grant { key: request.key, principal, name, pinned: cluster(own, &admitted)? };
        let line = grant.to_text();
        let [asked, granted] = [&text, &*line].map(|text| Fingerprint::of(text).to_string());
        let shown = json!({ "grant": *line, "name": grant.name.to_string(), "principal": principal, "request_fingerprint": asked, "fingerprint": granted });
        ctx.print_with(&shown, || line.to_string())?;
        if !ctx.is_json() {
            // Beside the line, which goes to the host as it is.
            logging::say(&format!(
                "cistern: {} is admitted; the fingerprint of its request is {asked}, that of the grant {granted}",
                grant.name
            ));
        }
        Ok(())
    }
}
