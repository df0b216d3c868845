//! `cistern ls`: lists directories.

use super::Run;
use crate::backend::Backend;
use crate::ctx::Ctx;
use crate::local::{EntryRow, Failure};
use crate::show;
use crate::text::Text;
use cistern_client::FileType;
use clap::Args;
use std::ffi::OsString;

/// List a directory
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Long format (show attributes)
    #[arg(short = 'l', long)]
    long: bool,
    /// Files and directories to list
    #[arg(default_value = "/")]
    paths: Vec<OsString>,
}

impl Run for Ls {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let several = self.paths.len() > 1;
        ctx.each(&self.paths, |ctx, path| {
            let detail = self.long || ctx.is_json();
            let (realm, rows) = rows(ctx.agent()?, path, detail)?;
            let head = if several { format!("{path}:\n") } else { String::new() };
            let text = if self.long { show::columns(&rows.iter().map(|row| cells(row, realm)).collect::<Vec<_>>()) } else { names(&rows) };
            ctx.print_rows(&rows, head + &text)
        })
    }
}

/// The rows, and the realm to which they belong but for those that begin another.
fn rows(agent: &mut Backend, path: &Text, detail: bool) -> Result<(u32, Vec<EntryRow>), Failure> {
    let attr = agent.stat(path, true)?;
    if attr.is(FileType::Directory) {
        return Ok((attr.realm, agent.list(path, detail)?));
    }
    Ok((attr.realm, vec![EntryRow { name: path.clone(), object: attr.object, kind: attr.kind.clone(), attr: Some(attr) }]))
}

fn names(rows: &[EntryRow]) -> String {
    rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>().join("\n")
}

fn cells(row: &EntryRow, realm: u32) -> Vec<String> {
    let begun = row.attr.as_ref().map(|attr| attr.realm).filter(|begun| *begun != realm);
    let name = begun.map_or_else(|| row.name.to_string(), |begun| format!("{}  (realm {begun})", row.name));
    match &row.attr {
        Some(a) => vec![
            show::mode(a),
            a.nlink.to_string(),
            a.uid.to_string(),
            a.gid.to_string(),
            format!("{:>9}", a.size),
            show::time(a.mtime_ns),
            name,
        ],
        None => vec!["?".to_owned(), name],
    }
}
