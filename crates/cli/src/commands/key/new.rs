//! `cistern key new`: makes a key.

use super::random;
use crate::commands::{OUTPUT, Run};
use crate::ctx::Ctx;
use crate::execute::EXIT_SOFTWARE;
use crate::local::Failure;
use crate::{places, show};
use cistern_credentials::{HOST_KEY, make_directory, make_key};
use cistern_seal::key::Role;
use cistern_trust::Fingerprint;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const NEW_HELP: &str = "\
The secret stays in the file, which is for this user alone; the public key is printed, and is what an operator admits. A key that is there is never overwritten: \
to be somebody else, move it away.

Example:
  cistern key new ./web-1.key        for another host, to be laid down there by an image or by systemd

Exit status:
  0   made
  1   there is one already, or it cannot be written
  2   wrong usage";

/// Make a key
#[derive(Args, Debug)]
#[command(after_help = NEW_HELP)]
pub(crate) struct NewKey {
    /// File of the new key; else host.key in /etc/cistern for root, in ~/.config/cistern for everybody else
    file: Option<PathBuf>,
}

impl Run for NewKey {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OUTPUT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => places::own_credentials("FILE")?.join(HOST_KEY),
        };
        if self.file.is_none()
            && let Some(dir) = file.parent()
        {
            make_directory(dir)?;
        }
        let random = random().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
        let public = make_key(&file, Role::Agent, random)?.public().to_text(Role::Agent);
        let fingerprint = Fingerprint::of(&public).to_string();
        let made = json!({ "file": file.to_string_lossy(), "public": public, "fingerprint": fingerprint });
        ctx.print_with(&made, || show::pairs([("file", file.display().to_string()), ("public key", public), ("fingerprint", fingerprint)]))
    }
}
