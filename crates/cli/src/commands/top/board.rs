//! The lines of `cistern top`: for a screen of any size, or all of them.
//!
//! Decides: what stays when there is little room: the head, then failovers, then as many locks and sessions as fit, each with the number of those
//! that do not. Invariant: no line is wider than the screen, and nothing in it can write to the terminal.
//! Leaves to others: the terminal (`screen`), which rows there are (the server).

use crate::local::{Failure, LockRow};
use crate::overview::{Counters, FailoverShown, GroupShown, OverviewReport, Spans};
use crate::show;
use crate::text::Text;
use cistern_text::table;
use cistern_wire::Printable;
use std::time::Instant;

/// Rows of failovers on a screen: the others are in the whole list.
const FAILOVERS_SHOWN: usize = 3;

/// What is known of the server, and what has changed since the look before.
#[derive(Default)]
pub(super) struct Board {
    last: Option<(Instant, OverviewReport)>,
    rates: Option<String>,
    /// Why the newest look failed.
    trouble: Option<String>,
}

impl Board {
    /// A look.
    pub(super) fn look(&mut self, at: Instant, report: OverviewReport) {
        self.trouble = None;
        if let Some((before_at, before)) = &self.last {
            let seconds = at.saturating_duration_since(*before_at).as_secs_f64();
            self.rates = (before.who == report.who && seconds > 0.0).then(|| rates(&before.counters, &report.counters, seconds));
        }
        self.last = Some((at, report));
    }

    /// The server did not answer.
    pub(super) fn miss(&mut self, failure: &Failure) {
        self.trouble = Some(format!("no answer: {}; trying again. What is below is old.", failure.message));
    }

    /// A screen of a width and a height.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let Some((_, report)) = &self.last else { return Vec::new() };
        let mut lines = head(report);
        lines.push(self.trouble.clone().or_else(|| self.rates.clone()).unwrap_or_else(|| "rates follow with the next look".to_owned()));
        let sections = sections(report);
        let heights = share(&sections, height.saturating_sub(lines.len() + 1));
        for (section, room) in sections.iter().zip(heights) {
            if room > 0 {
                lines.push(String::new());
                lines.extend(section.lines(room - 1));
            }
        }
        lines.truncate(height.saturating_sub(1));
        lines.push("q quits".to_owned());
        lines.iter().map(|line| Printable(line).to_string().chars().take(width).collect()).collect()
    }
}

/// Everything that a look has, as text.
pub(super) fn rows_of(report: &OverviewReport) -> String {
    let mut lines = head(report);
    for section in sections(report) {
        lines.push(String::new());
        lines.extend(section.lines(usize::MAX));
    }
    lines.join("\n")
}

/// A table with its title.
struct Section {
    title: String,
    /// With its head.
    rows: Vec<Vec<String>>,
    /// How many there are that the server does not tell.
    more: usize,
    /// Most rows on a screen.
    shown: usize,
}

impl Section {
    /// Lines that it takes if there is room.
    fn height(&self) -> usize {
        if self.is_empty() {
            return 1;
        }
        let shown = self.rows.len().min(self.shown.saturating_add(1));
        1 + shown + usize::from(self.more > 0 || self.rows.len() > shown)
    }

    fn is_empty(&self) -> bool {
        self.rows.len() == 1 && self.more == 0
    }

    /// In at most so many lines.
    fn lines(&self, room: usize) -> Vec<String> {
        if self.is_empty() {
            return vec![format!("{}: none", self.title)];
        }
        let most = if room == usize::MAX { usize::MAX } else { self.shown.saturating_add(1) };
        let mut shown = self.rows.len().min(most);
        let has_more = |shown: usize| self.more > 0 || shown < self.rows.len();
        shown = shown.min(room.saturating_sub(1));
        if has_more(shown) && 1 + shown + 1 > room {
            shown = room.saturating_sub(2);
        }
        let mut lines = vec![self.title.clone()];
        let text = table(&self.rows[..shown], 0..0);
        lines.extend(text.lines().map(ToOwned::to_owned));
        if has_more(shown) && lines.len() < room {
            lines.push(format!("and {} more", self.more + self.rows.len() - shown.max(1)));
        }
        lines
    }
}

/// How many lines each section gets of so many, with the empty one above it: each its own need, the last ones what is left.
fn share(sections: &[Section], mut room: usize) -> Vec<usize> {
    // Below this a section shows nothing but its head.
    const LEAST: usize = 4;
    let count = sections.len();
    let needs = sections.iter().enumerate().map(|(n, section)| {
        let kept_for_others = sections[n + 1..].iter().map(|other| (other.height() + 1).min(room / (count - n))).sum::<usize>();
        let given = (section.height() + 1).min(room.saturating_sub(kept_for_others));
        let given = if given < LEAST.min(section.height() + 1) { 0 } else { given };
        room -= given;
        given
    });
    needs.collect()
}

fn head(report: &OverviewReport) -> Vec<String> {
    let (t, state) = (&report.totals, &report.state);
    let state = match report.grace_left_ms {
        Some(left) => format!("in grace for up to {}: no locks are granted", show::span(left)),
        None if !report.room => format!("{state}, but its store has no room"),
        None => state.clone(),
    };
    vec![
        format!("{}: {state}, up {}, lease {}", report.who, show::span(report.uptime_ms), show::span(report.lease_ms)),
        format!(
            "sessions {}  timing out {}  locks {}  waiting {}  demands {}  named leases {}  files {}",
            t.sessions, t.timing_out, t.locks, t.waiting, t.demands, t.named_leases, t.objects
        ),
    ]
}

fn rates(before: &Counters, now: &Counters, seconds: f64) -> String {
    let rate = |now: u64, before: u64| {
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
        let rate = now.saturating_sub(before) as f64 / seconds;
        format!("{rate:.1}/s")
    };
    format!(
        "requests {}  datagrams {} in {} out  waits 99 % {}  commits 99 % {}",
        rate(now.requests, before.requests),
        rate(now.datagrams_in, before.datagrams_in),
        rate(now.datagrams_out, before.datagrams_out),
        quantile(&before.waits, &now.waits),
        quantile(&before.commits, &now.commits),
    )
}

/// The bound below which 99 % of what was measured between two looks lies.
fn quantile(before: &Spans, now: &Spans) -> String {
    let total = now.count.saturating_sub(before.count);
    if total == 0 {
        return "-".to_owned();
    }
    let within = |(n, b): (&u64, &u64)| n.saturating_sub(*b) * 100 >= total * 99;
    match now.up_to.iter().zip(&before.up_to).position(within).and_then(|at| now.bounds_us.get(at)) {
        Some(us) if *us < 1_000 => format!("<= {us} us"),
        Some(us) => format!("<= {}", show::span(us / 1_000)),
        None => "above all bounds".to_owned(),
    }
}

fn sections(report: &OverviewReport) -> Vec<Section> {
    let mut sections = vec![failovers(report), locks(report), sessions(report), demands(report)];
    sections.extend(report.group.as_ref().map(members));
    sections
}

fn titles<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).to_vec()
}

/// The agent by its label, else its session by the beginning of its handle.
fn who(label: &Text, handle: &str) -> String {
    if label.0.is_empty() { handle.chars().take(8).collect() } else { label.to_string() }
}

fn file(path: &Text, object: u64) -> String {
    if path.0.is_empty() { format!("#{object}") } else { path.to_string() }
}

fn failovers(report: &OverviewReport) -> Section {
    let mut rows = vec![titles(["AGENT", "AGO", "WHY", "LOCKS", "NACK", "END", "FREE"])];
    rows.extend(report.failovers.iter().map(failover));
    Section { title: "Failovers of the last hour".to_owned(), rows, more: 0, shown: FAILOVERS_SHOWN }
}

fn failover(f: &FailoverShown) -> Vec<String> {
    let after = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("+{}", show::span(ms)));
    let end = match (&f.end, f.ended_ms) {
        (Some(end), Some(ms)) => format!("{end} +{}", show::span(ms)),
        _ => format!("in {}", show::span(f.wait_ms.saturating_sub(f.ago_ms))),
    };
    vec![who(&f.label, &f.handle), show::span(f.ago_ms), f.cause.clone(), f.locks.to_string(), after(f.nacked_ms), end, after(f.freed_ms)]
}

fn locks(report: &OverviewReport) -> Section {
    let mut rows = vec![titles(["FILE", "STATE", "MODE", "WHO", "SINCE", "STANDING", "AT MOST", "TOKEN"])];
    let mut more = 0;
    for lock in &report.locks {
        for (n, user) in lock.users.iter().enumerate() {
            rows.push(lock_user(if n == 0 { file(&lock.path, lock.object) } else { String::new() }, user));
        }
        let waiting = lock.users.iter().filter(|user| user.state == "waits").count();
        more += lock.waiters.saturating_sub(waiting) + usize::from(lock.more_holders);
    }
    let is_hidden = report.locks.is_empty() && report.totals.locks > 0;
    let title = if is_hidden {
        "Advisory locks are shown on the server's host".to_owned()
    } else {
        format!("Advisory locks of {} files", report.locks.len())
    };
    Section { title, rows, more, shown: usize::MAX }
}

fn lock_user(file: String, user: &LockRow) -> Vec<String> {
    let bound = match user.bound_ms.map(show::span) {
        Some(span) if user.is_in_good_standing() && user.state == "holds" => format!("{span} if gone"),
        Some(span) => span,
        None => "-".to_owned(),
    };
    let token = if user.token == 0 { "-".to_owned() } else { user.token.to_string() };
    let who = who(&user.label, &user.handle);
    vec![file, user.state.clone(), user.mode.clone(), who, show::span(user.since_ms), user.standing.clone(), bound, token]
}

fn sessions(report: &OverviewReport) -> Section {
    let mut rows = vec![titles(["AGENT", "STANDING", "AT MOST", "LOCKS", "WAITS", "LEASE", "AGE", "ADDRESS"])];
    rows.extend(report.sessions.iter().map(|s| {
        let waited_for = if s.waited_for { ", waited for" } else { "" };
        vec![
            who(&s.label, &s.handle),
            format!("{}{waited_for}", s.standing),
            s.left_ms.map_or_else(|| format!("{} if gone", show::span(s.failover_ms)), show::span),
            s.locks.to_string(),
            s.waits.to_string(),
            show::span(s.lease_ms),
            show::span(s.age_ms),
            s.address.clone(),
        ]
    }));
    let all = report.totals.sessions + report.totals.timing_out;
    Section { title: "Sessions".to_owned(), rows, more: all.saturating_sub(report.sessions.len()), shown: usize::MAX }
}

fn members(group: &GroupShown) -> Section {
    let mut rows = vec![titles(["SERVER", "ROLE", "HEARD", "ADDRESS", "TROUBLE"])];
    rows.extend(group.members.iter().map(|member| {
        let role = if group.serves.as_ref() == Some(&member.name) { "serves" } else { "stands by" };
        let heard = match member.heard_ms {
            _ if member.name == group.me => "this one".to_owned(),
            Some(ms) => format!("{} ago", show::span(ms)),
            None => "not heard".to_owned(),
        };
        let address = member.address.clone().unwrap_or_else(|| "-".to_owned());
        vec![member.name.clone(), role.to_owned(), heard, address, member.trouble.clone().unwrap_or_default()]
    }));
    Section { title: "Group of servers".to_owned(), rows, more: 0, shown: usize::MAX }
}

fn demands(report: &OverviewReport) -> Section {
    let mut rows = vec![titles(["FILE", "LOCK", "HOLDER", "MAY KEEP", "DEMAND", "HELD"])];
    rows.extend(report.demands.iter().map(|d| {
        let told = if d.is_sent { "told" } else { "in its turn" };
        let lock = format!("{} {}", d.class, d.mode);
        vec![file(&d.path, d.object), lock, who(&d.label, &d.handle), d.keep.clone(), told.to_owned(), show::span(d.held_ms)]
    }));
    Section { title: "Demands under way".to_owned(), rows, more: 0, shown: usize::MAX }
}
