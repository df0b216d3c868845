//! `cistern agent top`: the lease of the host's agent, live.
//!
//! Decides: what is looked at and how it is shown: a view that is redrawn in place on a terminal, a line for each look elsewhere,
//! a line of JSON for each look with `--json`. Looking costs the agent no message and renews nothing.
//! Leaves to others: the numbers (`local::Lease`), through whom they come (`backend`), the picture of the view (`view`).

mod view;

use super::{HOST_AGENT, connect};
use crate::backend::Line;
use crate::commands::{Run, unless_unread};
use crate::ctx::Ctx;
use crate::local::{Failure, Lease, Request, millis};
use crate::show;
use crate::signals::End;
use cistern_text::duration;
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use view::View;

const TOP_HELP: &str = "\
On a terminal the view is redrawn in place; elsewhere each refresh is a line. The agent is the one that --agent or CISTERN_AGENT names, else this user's \
(`cistern agent run`) or the system's. Looking costs it no message and renews nothing.

Examples:
  cistern agent top
  cistern agent top -n 10 --json

Exit status:
  0   success
  69  no agent answers there";

/// Show the lease of the host's agent live
#[derive(Args, Debug)]
#[command(after_help = TOP_HELP)]
pub(crate) struct Top {
    /// Time between two refreshes
    #[arg(short = 'i', long, value_parser = duration, default_value = "200ms", value_name = "DURATION")]
    interval: Duration,
    /// Stop after N refreshes
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
}

/// Least time between two looks: faster ones would show nothing more, and would keep the agent from its work.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// One look.
#[derive(Debug, Serialize)]
struct LeaseLook {
    /// Since the first look, in milliseconds.
    at_ms: u64,
    #[serde(flatten)]
    lease: Lease,
}

/// How a look is shown.
enum Style {
    Json,
    Lines,
    View(View),
}

/// What is known of a lease, in words.
pub(super) fn rows(l: &Lease) -> Vec<Vec<String>> {
    let left = if l.lease_ms == 0 { "-".to_owned() } else { format!("{} ms of {} ms, {} τ", l.left_ms, l.lease_ms, in_leases(l)) };
    [
        ("session", session(l)),
        ("phase", l.phase.clone()),
        ("left", left),
        ("renewals", format!("{} by ordinary requests, {} by keep-alives", l.renewals_opportunistic, l.renewals_explicit)),
        ("demands", format!("{} received, {} NACKs", l.demands, l.nacks)),
        ("locks", format!("{} cache, {} advisory, {} local holders", l.cache_locks, l.advisory_locks, l.holders)),
        ("requests", format!("{} sent, {} answered from cache", l.requests, l.cache_hits)),
        ("datagrams", format!("{} out, {} in, {} retransmitted", l.datagrams_out, l.datagrams_in, l.retransmissions)),
        ("round trip", round_trip(l)),
    ]
    .map(|(name, value)| vec![name.to_owned(), value])
    .to_vec()
}

impl Run for Top {
    fn takes(_below: &[&str]) -> &'static [&'static str] {
        HOST_AGENT
    }

    fn run(&self, ctx: &mut Ctx) -> Result<(), Failure> {
        let end = End::catch()?;
        let (socket, mut line) = connect(ctx.options())?;
        let mut style = if ctx.is_json() {
            Style::Json
        } else if is_screen() {
            Style::View(View::new(socket.display().to_string()))
        } else {
            Style::Lines
        };
        unless_unread(watch(self, &end, &mut line, &mut style))
    }
}

fn watch(args: &Top, end: &End, agent: &mut Line, style: &mut Style) -> Result<(), Failure> {
    let start = Instant::now();
    let mut due = start;
    for looks in 1.. {
        let lease = agent.call(&Request::Lease)?.lease()?;
        let look = LeaseLook { at_ms: millis(start.elapsed()), lease };
        match style {
            Style::Json => show::json(&look)?,
            Style::Lines => show::line(line(&look))?,
            Style::View(view) => view.draw(&look.lease)?,
        }
        // By the clock, not by the last look: looks stay in step with the interval.
        due = (due + args.interval.clamp(INTERVAL_MIN, Duration::from_secs(86_400))).max(Instant::now());
        if args.count.is_some_and(|count| looks >= count) || end.wait(due.saturating_duration_since(Instant::now())) {
            break;
        }
    }
    Ok(())
}

/// Whether standard output is a terminal that can move its cursor.
fn is_screen() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// A look as one line for people.
fn line(look: &LeaseLook) -> String {
    let l = &look.lease;
    format!(
        "{:>8.3} s  {:<10} left {} ms ({} τ)  session {}  renewals {} + {} keep-alives  demands {}  NACKs {}  locks {} cache {} advisory \
         {} in use  requests {}  cached answers {}  datagrams {} out {} in {} again  round trip {}",
        Duration::from_millis(look.at_ms).as_secs_f64(),
        l.phase,
        l.left_ms,
        in_leases(l),
        session(l),
        l.renewals_opportunistic,
        l.renewals_explicit,
        l.demands,
        l.nacks,
        l.cache_locks,
        l.advisory_locks,
        l.holders,
        l.requests,
        l.cache_hits,
        l.datagrams_out,
        l.datagrams_in,
        l.retransmissions,
        round_trip(l),
    )
}

/// The time left as a multiple of the lease period.
fn in_leases(lease: &Lease) -> String {
    let hundredths = (lease.left_ms * 100).checked_div(lease.lease_ms).unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The session, and the former one whose locks it is taking over after a restart of the server.
fn session(lease: &Lease) -> String {
    let session = lease.session.as_deref().unwrap_or("none");
    match &lease.reclaiming {
        Some(former) => format!("{session} taking over the locks of {former}"),
        None => session.to_owned(),
    }
}

fn round_trip(lease: &Lease) -> String {
    lease.round_trip_us.map_or_else(|| "unknown".to_owned(), |us| format!("{}.{:03} ms", us / 1_000, us % 1_000))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Lease {
        Lease {
            phase: "valid".to_owned(),
            session: Some("00112233445566ff".to_owned()),
            reclaiming: None,
            lease_ms: 2_000,
            left_ms: 1_880,
            renewals_opportunistic: 12,
            renewals_explicit: 3,
            demands: 1,
            nacks: 0,
            cache_locks: 40,
            advisory_locks: 2,
            holders: 1,
            watches: 0,
            ephemerals: 0,
            requests: 55,
            datagrams_out: 60,
            datagrams_in: 59,
            retransmissions: 1,
            cache_hits: 1_234,
            round_trip_us: Some(317),
        }
    }

    #[test]
    fn a_look_as_json_is_one_flat_object() {
        let json = serde_json::to_value(LeaseLook { at_ms: 200, lease: sample() }).unwrap();
        assert_eq!((json["at_ms"].as_u64(), json["left_ms"].as_u64(), json["phase"].as_str()), (Some(200), Some(1_880), Some("valid")));
    }

    #[test]
    fn a_look_as_text_is_one_line() {
        let text = line(&LeaseLook { at_ms: 1_200, lease: sample() });
        assert!(text.contains("1.200 s") && text.contains("left 1880 ms (0.94 τ)") && text.contains("round trip 0.317 ms"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_look_in_a_reclaim_names_both_sessions() {
        let lease = Lease { reclaiming: Some("ab".to_owned()), ..sample() };
        assert!(line(&LeaseLook { at_ms: 0, lease }).contains("session 00112233445566ff taking over the locks of ab  renewals"));
    }

    #[test]
    fn a_look_without_a_session_divides_by_no_lease_period() {
        let lease = Lease { phase: "no session".to_owned(), session: None, lease_ms: 0, left_ms: 0, round_trip_us: None, ..sample() };
        assert!(line(&LeaseLook { at_ms: 0, lease }).contains("left 0 ms (0.00 τ)  session none"));
    }
}
