//! `cistern peer status`: a group as this host's member sees it.

use crate::backend::Line;
use crate::commands::Run;
use crate::ctx::Ctx;
use crate::group::GroupList;
use crate::local::{Failure, GroupReport, MemberRow, Request};
use crate::show;
use cistern_text::row;
use clap::Args;
use std::path::PathBuf;

const STATUS_HELP: &str = "\
Asks this host's member of the group (`cistern peer`). It costs the group no message.

Examples:
  cistern peer status --group a:7312,b:7312,c:7312
  cistern peer status --group a:7312,b:7312,c:7312 --json

Exit status:
  0   success
  2   the member is of another group
  69  no member answers there";

/// Show a group as this host's member sees it
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct PeerStatus {
    /// The members of the group, in their order (host:port,...), or a file with one a line
    #[arg(long, value_parser = GroupList::parse, value_name = "MEMBERS")]
    group: GroupList,
    /// Control socket of the member
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

impl Run for PeerStatus {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        &["json", "timeout"]
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let (_, report) = member_of(&self.group, self.socket.as_ref(), ctx)?;
        ctx.print_with(&report, || text(&report))
    }
}

/// This host's member of a group, by its control socket, and what it tells of the group.
///
/// # Errors
/// None answers there, or one of another group.
pub(crate) fn member_of(group: &GroupList, socket: Option<&PathBuf>, ctx: &Ctx) -> Result<(PathBuf, GroupReport), Failure> {
    let socket = group.socket(socket)?;
    let mut line = Line::open(&socket).map_err(|failure| Failure {
        message: format!("no member of the group {group} answers at {}: start one with `cistern peer --group {group}`", socket.display()),
        ..failure
    })?;
    line = line.within(ctx.options().timeout);
    let report = line.call(&Request::Group)?.group()?;
    if report.group == group.to_string() {
        return Ok((socket, report));
    }
    Err(Failure::usage(format!("the member at {} is of the group {}, not of {group}", socket.display(), report.group)))
}

fn text(report: &GroupReport) -> String {
    let state = match report.starts_in_ms {
        0 => "takes part".to_owned(),
        ms => format!("takes part in {}", show::span(ms)),
    };
    let tokens = if report.durable_tokens { "on disk at every member" } else { "in memory" };
    let renewal = if report.renews_by_write { "one round trip" } else { "two round trips" };
    let rows = [
        row([&"group", &report.group]),
        row([&"list number", &report.number]),
        row([&"this member", &report.me]),
        row([&"state", &state]),
        row([&"lease", &show::span(report.lease_ms)]),
        row([&"renewal", &renewal]),
        row([&"tokens", &tokens]),
        row([&"resources", &format!("{}, {} owned here", report.resources, report.owned)]),
        row([&"datagrams", &format!("{} in, {} out", report.datagrams_in, report.datagrams_out)]),
    ];
    format!("{}\n{}", show::columns(&rows), member_table(&report.members, &report.me))
}

/// The members of a group, as `me` sees them.
pub(crate) fn member_table(members: &[MemberRow], me: &str) -> String {
    let shown = |member: &MemberRow| {
        let (found, is_me) = (member.address.clone(), member.name == me);
        let heard = match member.heard_ms {
            _ if is_me => "this one".to_owned(),
            Some(ms) => format!("heard {} ago", show::span(ms)),
            None => "not heard yet".to_owned(),
        };
        let address = found.unwrap_or_else(|| if is_me { String::new() } else { "not found".to_owned() });
        row([&member.name, &address, &heard, &member.trouble.clone().unwrap_or_default()])
    };
    show::columns(&members.iter().map(shown).collect::<Vec<_>>())
}
