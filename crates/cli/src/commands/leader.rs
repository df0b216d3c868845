//! `cistern leader`: who leads an election.
//!
//! Decides: what an observer is told, and that one that follows watches the leader's file, so that its end is found out.
//! Leaves to others: making that file (`elect`), its contents (docs/recipes.md).

use super::{Run, unless_unread};
use crate::backend::Backend;
use crate::ctx::Ctx;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, News, Request, What};
use crate::show;
use crate::signals::End;
use crate::text::{Blob, Text};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// How long news are waited for: as long as a signal may take to be noticed.
const WAIT: Duration = Duration::from_millis(200);

const LEADER_HELP: &str = "\
Prints what the leader says of itself (`cistern elect --data`); exit status 1 if nobody leads. A leader whose host is gone or cut off is shown until its lease is over.

With --follow a line for the present leader, and one for each change: leader (with what it says), nobody, uncertain (the lease of this observer is over: it is not known who leads). Ends by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern leader /election || echo 'nobody leads'
  cistern leader --json /election || echo 'nobody leads'";

/// Show who leads an election
#[derive(Args, Debug)]
#[command(after_help = LEADER_HELP)]
pub(crate) struct ShowLeader {
    /// Print each change as it happens
    #[arg(long)]
    follow: bool,
    /// Directory of the election
    dir: OsString,
}

/// Who leads, as a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct LeaderRow {
    /// `leader`, `nobody` or `uncertain`.
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// Public name of the session of its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

impl LeaderRow {
    const fn only(event: &'static str) -> Self {
        Self { event, value: None, token: None, session: None }
    }
}

impl Run for ShowLeader {
    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let dir = Text::from(self.dir.as_os_str());
        if self.follow {
            let (end, json) = (End::catch()?, ctx.is_json());
            return unless_unread(follow(ctx.agent()?, &dir, json, &end));
        }
        match look(ctx.agent()?, &dir)? {
            (row, Some(_)) => ctx.print_with(&row, || row.value.as_ref().map(Text::to_string).unwrap_or_default()),
            (row, None) if ctx.is_json() => ctx.print_with(&row, String::new).and(Failure::of_status(EXIT_FAILED)),
            (_, None) => Err(Failure::new("NO_LEADER", EXIT_FAILED, format!("{dir}: nobody leads"))),
        }
    }
}

/// Who leads, and the file that says so.
fn look(agent: &mut Backend, dir: &Text) -> Result<(LeaderRow, Option<u64>), Failure> {
    let (attr, Blob(data)) = match agent.call(Request::Read { path: dir.join(b"leader") }) {
        Err(failure) if failure.code == "ENOENT" => return Ok((LeaderRow::only("nobody"), None)),
        answer => answer?.data()?,
    };
    let mut parts = data.splitn(2, |byte| *byte == b' ');
    let token = parts.next().and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse().ok());
    let value = Some(Text(parts.next().unwrap_or_default().to_vec()));
    Ok((LeaderRow { event: "leader", value, token, session: attr.made_by }, Some(attr.object)))
}

fn follow(agent: &mut Backend, dir: &Text, json: bool, end: &End) -> Result<(), Failure> {
    let directory = agent.stat(dir, true)?.object;
    agent.call(Request::Watch { object: directory })?;
    let (mut told, mut watched) = (None, None);
    while !end.is_asked() {
        for News { object, what } in agent.news(WAIT)? {
            if object == directory && what == What::Gone {
                return Err(Failure::failed(format!("{dir}: the directory of the election was removed")));
            }
            let (row, file) = match what {
                What::Uncertain => (LeaderRow::only("uncertain"), None),
                _ => look(agent, dir)?,
            };
            // Whoever watches it learns soon that its maker is gone.
            if let Some(file) = file.filter(|file| watched != Some(*file)) {
                if let Some(former) = watched.replace(file) {
                    agent.call(Request::Unwatch { object: former })?;
                }
                agent.call(Request::Watch { object: file })?;
            }
            if told.as_ref() != Some(&row) {
                match &row.value {
                    _ if json => show::json(&row)?,
                    Some(value) => show::line(format!("{:<9} {value}", row.event))?,
                    None => show::line(row.event)?,
                }
                told = Some(row);
            }
        }
    }
    Ok(())
}
