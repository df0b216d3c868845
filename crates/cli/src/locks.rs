//! `cistern locks`: who holds, who waits, since when, and for how long at most.
//!
//! Decides: the table. Leaves to others: asking (`backend`).

use crate::args::Locks;
use crate::backend::Backend;
use crate::files::unexpected;
use crate::local::{Failure, LockRow, Request, Response};
use crate::show;
use crate::text::Text;

pub(crate) fn locks(args: &Locks) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let path: Option<Text> = args.path.as_ref().map(|path| path.as_os_str().into());
    let result = backend.call(Request::Locks { path: path.clone() }).and_then(|response| match response {
        Response::Locks(mut rows) => {
            // The server does not tell the place of the one object that it was asked about.
            if let Some(path) = path {
                rows.iter_mut().for_each(|row| row.path = path.clone());
            }
            if args.common.json { rows.iter().try_for_each(show::json) } else { table(&rows) }
        }
        other => unexpected(&other),
    });
    backend.close();
    result
}

/// Within what time the lock is free at the latest: sure of a holder that does not answer, what it would be of one that is gone.
fn at_most(row: &LockRow) -> String {
    match row.bound_ms.map(show::span) {
        Some(span) if row.is_in_good_standing() => format!("{span} if gone"),
        Some(span) => span,
        None => "-".to_owned(),
    }
}

fn table(rows: &[LockRow]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
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
    show::table(&cells)
}
