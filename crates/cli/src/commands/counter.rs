//! `cistern counter`: a number that many hosts change.
//!
//! Decides: that a change is made to the number that was read, or not at all; and that one whose outcome is unknown is not made again.
//! Leaves to others: what a change depends on (the server), the file's contents (docs/recipes.md).

use super::{Run, commands};
use crate::ctx::Ctx;
use crate::execute::{EXIT_FAILED, EXIT_PRECONDITION};
use crate::local::{Failure, Request};
use crate::text::{Blob, Text};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;

commands! {
    /// Count, with changes that are made once or not at all
    Counter:
    Get(Get),
    Add(Add),
    Set(Set),
}

/// Print a counter
#[derive(Args, Debug)]
#[command(after_help = "A counter that is missing is 0.\n\nExample:\n  cistern counter get /builds")]
pub(crate) struct Get {
    /// File of the counter
    path: OsString,
}

const ADD_HELP: &str = "\
Prints the new number. The file is made if it is missing; its parent directories are not. When the answer is lost (exit status 74) the amount was added once or not at all.

Examples:
  cistern counter add /builds
  cistern counter add /builds -- -3";

/// Add to a counter
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub(crate) struct Add {
    /// File of the counter
    path: OsString,
    /// How much
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    amount: i64,
}

const SET_HELP: &str = "\
With --if the number is set only if it is that one now; otherwise nothing is changed, and the exit status is 3.

Examples:
  cistern counter set /builds 7
  cistern counter set --if 7 /builds 8";

/// Set a counter
#[derive(Args, Debug)]
#[command(after_help = SET_HELP)]
pub(crate) struct Set {
    /// Only if it is this number now
    #[arg(long = "if", value_name = "NUMBER", allow_negative_numbers = true)]
    expected: Option<i64>,
    /// File of the counter
    path: OsString,
    /// The new number
    #[arg(allow_negative_numbers = true)]
    number: i64,
}

#[derive(Serialize)]
struct CounterValue<'a> {
    path: &'a Text,
    number: i64,
}

impl fmt::Display for CounterValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Run for Get {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let path = Text::from(self.path.as_os_str());
        let number = read(ctx, &path)?.0;
        ctx.print(&CounterValue { path: &path, number })
    }
}

impl Run for Add {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        change(ctx, &self.path, |path, now| {
            let wrong = || Failure::new("EOVERFLOW", EXIT_FAILED, format!("{path}: {now} and {} do not fit into 64 bits", self.amount));
            now.checked_add(self.amount).ok_or_else(wrong)
        })
    }
}

impl Run for Set {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        change(ctx, &self.path, |path, now| match self.expected {
            Some(expected) if expected != now => {
                let what = format!("{path}: it is {now}, not {expected}; nothing was changed");
                Err(Failure::new("VERSION_CHANGED", EXIT_PRECONDITION, what))
            }
            _ => Ok(self.number),
        })
    }
}

/// Writes what follows from the number that is there, again if somebody was quicker.
fn change(ctx: &mut Ctx, path: &OsString, compute: impl Fn(&Text, i64) -> Result<i64, Failure>) -> Result<(), Failure> {
    let path = Text::from(path.as_os_str());
    loop {
        let (now, version) = read(ctx, &path)?;
        let number = compute(&path, now)?;
        let data = Blob(format!("{number}\n").into_bytes());
        let put = Request::Put { path: path.clone(), data, mode: 0o644, if_version: Some(version) };
        match ctx.agent()?.change(put) {
            Err(failure) if failure.code == "VERSION_CHANGED" => {}
            // Removed meanwhile: it is 0 then.
            Err(failure) if failure.code == "ENOENT" && version != 0 => {}
            written => {
                written?;
                return ctx.print(&CounterValue { path: &path, number });
            }
        }
    }
}

/// The number and its version; 0: there is no file.
fn read(ctx: &mut Ctx, path: &Text) -> Result<(i64, u64), Failure> {
    let (attr, Blob(data)) = match ctx.agent()?.call(Request::Read { path: path.clone() }) {
        Err(failure) if failure.code == "ENOENT" => return Ok((0, 0)),
        answer => answer?.data()?,
    };
    let text = String::from_utf8_lossy(&data);
    let number = if text.is_empty() { Ok(0) } else { text.trim().parse() };
    let wrong = |_| Failure::new("EINVAL", EXIT_FAILED, format!("{path}: its contents are no number"));
    Ok((number.map_err(wrong)?, attr.version))
}
