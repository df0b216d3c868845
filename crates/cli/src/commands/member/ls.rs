//! `cistern member ls`: who is there.

use crate::commands::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, Request};
use crate::show;
use crate::text::{Blob, Text};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;

const LS_HELP: &str = "\
Prints the name and the contents of each ephemeral file in the directory. A member whose host is gone or cut off is printed until its lease is over.

Examples:
  cistern member ls /group
  cistern member ls --json /group | while read -r member; do echo \"$member\"; done";

/// List who is there, and what each says of itself
#[derive(Args, Debug)]
#[command(after_help = LS_HELP)]
pub(crate) struct ListMembers {
    /// Directory of the group
    dir: OsString,
}

#[derive(Serialize)]
struct MemberLine {
    name: Text,
    data: Blob,
    /// Public name of the session of its agent.
    session: String,
}

impl Run for ListMembers {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let dir = Text::from(self.dir.as_os_str());
        let agent = ctx.agent()?;
        let mut lines = Vec::new();
        for row in agent.list(&dir, true)? {
            let Some(session) = row.attr.and_then(|attr| attr.made_by) else { continue };
            match agent.call(Request::Read { path: dir.join(&row.name.0) }) {
                Ok(answer) => lines.push(MemberLine { name: row.name, data: answer.data()?.1, session }),
                // It has just gone.
                Err(failure) if failure.code == "ENOENT" => {}
                Err(failure) => return Err(failure),
            }
        }
        let cells: Vec<_> = lines.iter().map(|line| vec![line.name.to_string(), Text(line.data.0.clone()).to_string()]).collect();
        ctx.print_rows(&lines, show::columns(&cells))
    }
}
