//! `cistern admin backup`: a copy of the running server's store.

use super::{Control, OPERATOR, text};
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::Failure;
use crate::text::Text;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const BACKUP_HELP: &str = "\
The server keeps running. The copy has everything acknowledged before the command was given, and is durable when the command \
ends. No server starts from it: `cisternd check` checks it, `cisternd restore` creates a store from it.

Over the network (--server, or where there is no control socket) the backup has a plain name in place of a directory: it is made in the directory with which \
the server was started (cisternd --backups DIR), where none is overwritten. Without that there is none over the network.

Examples:
  cistern admin backup /backup/monday
  cistern admin backup monday --server meta-1

Exit status:
  0   the copy is complete and durable
  1   no copy: another backup is running, the server keeps everything in memory, or has no --backups and was asked over the network
  2   wrong usage
  65  the directory is not empty, or there is a backup of that name
  69  no server answers
  74  the store cannot be read, or the directory cannot be written
  77  the server's user may not write there";

/// Copy a snapshot of the store while the server runs
#[derive(Args, Debug)]
#[command(after_help = BACKUP_HELP)]
pub(crate) struct Backup {
    #[command(flatten)]
    server: Control,
    /// Destination directory, missing or empty, on the server's host; the server's user writes it. Over the network a name
    dir: PathBuf,
}

impl Run for Backup {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        OPERATOR
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let request = if self.server.socket(ctx.options())?.is_some() {
            // The server has another working directory.
            let dir = std::path::absolute(&self.dir).map_err(|e| Failure::usage(format!("{}: {e}", self.dir.display())))?;
            json!({ "op": "backup", "dir": Text::from(dir.as_os_str()) })
        } else {
            json!({ "op": "backup", "name": self.dir.to_string_lossy() })
        };
        let made = self.server.ask_at_leisure(ctx, &request)?;
        ctx.print_with(&made, || {
            let (records, seconds) = (made["records"].as_u64().unwrap_or(0), made["seconds"].as_f64().unwrap_or(0.0));
            let dir = text(&made["dir"]);
            format!("{records} records are in {dir}, after {seconds:.1} s; `cisternd check {dir}` checks them")
        })
    }
}
