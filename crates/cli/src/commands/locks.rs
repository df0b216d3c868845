//! `cistern locks`: who holds, who waits, since when, and for how long at most.

use super::Run;
use crate::ctx::Ctx;
use crate::local::{Failure, LockRow, Request};
use crate::show;
use crate::text::Text;
use clap::Args;
use std::ffi::OsString;

const LOCKS_HELP: &str = "\
AT MOST bounds the time until the lock is free: for a holder that is timing out, the rest of its wait; for one that answers (`if gone`), how long \
others would wait if it failed now. The latter follows from the holder's lease period.";

/// List holders and waiters of locks
#[derive(Args, Debug)]
#[command(after_help = LOCKS_HELP)]
pub(crate) struct Locks {
    /// Only locks on this path
    path: Option<OsString>,
}

impl Run for Locks {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let path: Option<Text> = self.path.as_ref().map(|path| path.as_os_str().into());
        let mut rows = ctx.agent()?.call(Request::Locks { path: path.clone() })?.locks()?;
        // The server does not name the one object that it was asked about.
        if let Some(path) = path {
            rows.iter_mut().for_each(|row| row.path = path.clone());
        }
        ctx.print_rows(&rows, table(&rows))
    }
}

/// Bound on the time until the lock is free: certain for a holder that does not answer, for one that does if it failed now.
fn at_most(row: &LockRow) -> String {
    match row.bound_ms.map(show::span) {
        Some(span) if row.is_in_good_standing() => format!("{span} if gone"),
        Some(span) => span,
        None => "-".to_owned(),
    }
}

fn table(rows: &[LockRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut cells = vec![["PATH", "STATE", "MODE", "TOKEN", "HOLDER", "LABEL", "SINCE", "STANDING", "AT MOST"].map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        vec![
            if row.path.0.is_empty() { format!("#{}", row.object) } else { row.path.to_string() },
            row.state.clone(),
            row.mode.clone(),
            if row.token == 0 { "-".to_owned() } else { row.token.to_string() },
            row.handle.chars().take(8).collect(),
            row.label.to_string(),
            show::span(row.since_ms),
            row.standing.clone(),
            at_most(row),
        ]
    }));
    show::columns(&cells)
}
