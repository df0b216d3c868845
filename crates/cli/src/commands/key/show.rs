//! `cistern key show`: who this host or user is.

use crate::commands::{OUTPUT, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::show;
use cistern_credentials::Places;
use cistern_seal::key::Role;
use cistern_text::row;
use cistern_trust::Fingerprint;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const SHOW_HELP: &str = "\
The key is that of FILE; else the first that is there of cistern.host.key in $CREDENTIALS_DIRECTORY, host.key in ~/.config/cistern, host.key in /etc/cistern. One \
that cannot be used is an error, never a reason to take the next.

Examples:
  cistern key show ./web-1.key
  cistern key show --json ./web-1.key

Exit status:
  0   shown
  1   there is no key, or a file cannot be used
  2   wrong usage";

/// Show the public key of this host or user
#[derive(Args, Debug)]
#[command(after_help = SHOW_HELP)]
pub(crate) struct ShowKey {
    /// File of the key; else it is looked for
    file: Option<PathBuf>,
}

impl Run for ShowKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let found = Places::of_this_process(self.file.as_deref()).find()?;
        let none = || Failure::new("NO_KEY", EXIT_FAILED, "there is no key; `cistern key new` makes one");
        let found = found.ok_or_else(none)?;
        let public = found.key.public().to_text(Role::Agent);
        let fingerprint = Fingerprint::of(&public).to_string();
        let file = found.place.key_path();
        let shown = json!({
            "file": file.to_string_lossy(),
            "public": public,
            "fingerprint": fingerprint,
        });
        let rows = [row([&"file", &file.display()]), row([&"public key", &public]), row([&"fingerprint", &fingerprint])];
        ctx.print_with(&shown, || show::columns(&rows))
    }
}
