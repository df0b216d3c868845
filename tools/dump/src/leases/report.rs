//! How the lives of leases are written: a list for each session for people, one JSON object for programs (`docs/inspecting.md` has its
//! schema).
//!
//! Decides: words and order; that a notice which was receipted in time and was no demand is not told to people. Leaves to others: what
//! belongs together.

use super::{Entry, Leases, Notice, Stretch, Thing, phase};
use crate::failure::Failure;
use crate::time::{seconds, span, time_of_day};
use cistern_audit::story::Promise;
use cistern_audit::{Session, Story};
use cistern_wire::{EndReason, Keep, Kind, ReceiptAnswer, SessionId};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::time::Duration;

impl Leases {
    /// Writes all sessions.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn report(&self, story: &Story, out: &mut impl Write) -> Result<(), Failure> {
        if self.json {
            let sessions: Vec<_> = self.order.iter().map(|session| self.session_json(story, *session)).collect();
            serde_json::to_writer(&mut *out, &json!({ "sessions": sessions, "left_out": self.left_out })).map_err(io::Error::from)?;
            return Ok(writeln!(out)?);
        }
        if self.order.is_empty() {
            writeln!(out, "no sessions")?;
        }
        for (place, session) in self.order.iter().enumerate() {
            if place > 0 {
                writeln!(out)?;
            }
            self.session_text(story, out, *session)?;
        }
        if self.left_out > 0 {
            writeln!(out, "\n{} more entries were left out: choose sessions or times", self.left_out)?;
        }
        Ok(())
    }

    fn session_text(&self, story: &Story, out: &mut impl Write, id: SessionId) -> io::Result<()> {
        let Some(told) = self.sessions.get(&id) else { return Ok(()) };
        let known = story.session(id);
        let label = known.and_then(label).map_or(String::new(), |label| format!(" {label}"));
        let address = told.address.map_or(String::new(), |address| format!(" at {address}"));
        let promise = known.and_then(|session| session.promise);
        let terms = promise.map_or("its WELCOME was not seen, so nothing is known of its lease".to_owned(), |promise| {
            format!("τ {}, T {}, delivery timeout {}", span(promise.tau), span(promise.wait), span(promise.delivery_timeout))
        });
        writeln!(out, "session {id}:{label}{address}; {terms}")?;
        let failed = known.filter(|session| session.nack.is_some() || session.stolen.is_some()).and(promise);
        // The end of the lease that is not told yet.
        let mut end: Option<Duration> = None;
        for entry in &told.entries {
            over(out, &mut end, entry.at)?;
            if let Thing::Stretch(stretch) = &entry.what {
                end = Some(stretch.until);
            }
            if let Some(text) = words(entry, failed) {
                writeln!(out, "  {}  {text}", time_of_day(entry.at))?;
            }
        }
        let ended = known.is_some_and(|session| session.ended.is_some() || session.given_up.is_some());
        if ended { Ok(()) } else { over(out, &mut end, story.now()) }
    }

    fn session_json(&self, story: &Story, id: SessionId) -> Value {
        let known = story.session(id);
        let promise = known.and_then(|session| session.promise);
        let told = self.sessions.get(&id);
        let failed = known.filter(|session| session.nack.is_some() || session.stolen.is_some()).and(promise);
        let entries: Vec<_> = told.iter().flat_map(|told| &told.entries).map(|entry| entry_json(entry, failed)).collect();
        json!({
            "session": id.to_string(),
            "agent": known.and_then(label),
            "address": told.and_then(|told| told.address).map(|address| address.to_string()),
            "tau_s": promise.map(|promise| promise.tau.as_secs_f64()),
            "wait_s": promise.map(|promise| promise.wait.as_secs_f64()),
            "entries": entries,
        })
    }
}

/// What its agent calls itself, if it does.
fn label(session: &Session) -> Option<&str> {
    Some(session.label.as_str()).filter(|label| !label.is_empty())
}

/// Tells that the lease was over by this time, if it was.
fn over(out: &mut impl Write, end: &mut Option<Duration>, by: Duration) -> io::Result<()> {
    match end.take_if(|end| *end < by) {
        Some(end) => writeln!(out, "  {}  the lease is over", time_of_day(end)),
        None => Ok(()),
    }
}

/// When a session is timing out, at the earliest: from the decision that a delivery has failed on, for T.
fn timing_out(entry: &Entry, promise: &Promise) -> (Duration, Duration) {
    let from = entry.at.saturating_add(promise.delivery_timeout);
    (from, from + promise.wait)
}

/// What an entry says to people; nothing for what goes without saying. `failed`: some delivery to the session has failed, and what the
/// session was promised.
fn words(entry: &Entry, failed: Option<Promise>) -> Option<String> {
    Some(match &entry.what {
        Thing::Opened => "opened".to_owned(),
        Thing::Moved { from, to } => format!("the agent moved from {from} to {to}"),
        Thing::Stretch(stretch) => stretch_words(stretch),
        Thing::Notice(notice) => return notice_words(entry, notice, failed),
        Thing::Refused { reason, times, last } => {
            let again = match times - 1 {
                0 => String::new(),
                1 => format!(", and once more at {}", time_of_day(*last)),
                more => format!(", and {more} times more until {}", time_of_day(*last)),
            };
            format!("NACK ({reason}): the session is lost{again}")
        }
        Thing::GaveUp { reason: Some(EndReason::Close) } => "closed by its agent".to_owned(),
        Thing::GaveUp { reason: Some(EndReason::Surrender) | None } => "surrendered: nothing of it is in use any more".to_owned(),
        Thing::Ended => "ended, as was asked".to_owned(),
        Thing::LostTo { lock, generation, to, by_mutation } => {
            let how = if *by_mutation { "what it protects was changed by" } else { "went to" };
            format!("stolen from: the {} lock on {} (generation {generation}) {how} session {to}", lock.class, lock.object)
        }
        Thing::ServerRestarted { before, now } => {
            format!("the server was started anew: incarnation {} of epoch {}, before {} of {}", now.1, now.0, before.1, before.0)
        }
    })
}

fn stretch_words(stretch: &Stretch) -> String {
    let renewed = stretch.explicit + stretch.opportunistic;
    let (explicit, length) = (stretch.explicit, span(stretch.until.saturating_sub(stretch.from)));
    let oldest = if stretch.oldest == 0.0 {
        String::new()
    } else {
        format!("; at its oldest {:.2} τ ({}) at {}", stretch.oldest, phase(stretch.oldest), time_of_day(stretch.oldest_at))
    };
    let times = if renewed == 1 { "once" } else { &format!("{renewed} times") };
    format!("lease until {}, {length} in all: renewed {times}, {explicit} of them by KEEPALIVE{oldest}", time_of_day(stretch.until))
}

fn notice_words(entry: &Entry, notice: &Notice, failed: Option<Promise>) -> Option<String> {
    if notice.kind != Kind::Demand && notice.receipt.is_some() {
        return None;
    }
    let about = notice
        .lock
        .map_or(String::new(), |(lock, generation)| format!(" of the {} lock on {}, generation {generation}", lock.class, lock.object));
    let since = |at: Duration| span(at.saturating_sub(entry.at));
    let receipt = match (notice.receipt, notice.back) {
        // In one datagram: to give it back says all.
        (Some((at, ReceiptAnswer::Received)), Some((back, _))) if at == back => String::new(),
        (Some((at, ReceiptAnswer::Received)), _) => format!("receipted after {}", since(at)),
        (Some((at, answer)), _) => format!("receipted after {}: {answer}", since(at)),
        (None, Some(_)) => String::new(),
        (None, None) => {
            let fate = failed.map_or(" in this capture".to_owned(), |promise| {
                let (from, until) = timing_out(entry, &promise);
                format!(": the delivery failed; timing out from {} to {} at the earliest", time_of_day(from), time_of_day(until))
            });
            format!("sent {} times over {}, never receipted{fate}", notice.transmissions, since(notice.last))
        }
    };
    let back = match notice.back {
        Some((at, Keep::Nothing)) => format!("given back after {}", since(at)),
        Some((at, Keep::Shared)) => format!("made shared after {}", since(at)),
        None if notice.kind == Kind::Demand && notice.receipt.is_some_and(|(_, answer)| answer != ReceiptAnswer::NotHeld) => {
            "not given back in this capture".to_owned()
        }
        None => String::new(),
    };
    let between = if receipt.is_empty() || back.is_empty() { "" } else { ", " };
    Some(format!("{} q{}{about}: {receipt}{between}{back}", notice.kind.name(), notice.seq))
}

fn entry_json(entry: &Entry, failed: Option<Promise>) -> Value {
    let mut map = Map::new();
    map.insert("time".to_owned(), json!(seconds(entry.at)));
    map.insert("frame".to_owned(), json!(entry.frame));
    let (what, more) = match &entry.what {
        Thing::Opened => ("opened", json!({})),
        Thing::Moved { from, to } => ("moved", json!({ "from": from.to_string(), "to": to.to_string() })),
        Thing::Stretch(stretch) => (
            "lease",
            json!({
                "until": seconds(stretch.until),
                "explicit": stretch.explicit,
                "opportunistic": stretch.opportunistic,
                "oldest": stretch.oldest,
                "oldest_at": seconds(stretch.oldest_at),
                "phase": phase(stretch.oldest),
            }),
        ),
        Thing::Notice(notice) => (
            "notice",
            json!({
                "kind": notice.kind.name(),
                "seq": notice.seq,
                "object": notice.lock.map(|(lock, _)| lock.object.0),
                "class": notice.lock.map(|(lock, _)| lock.class.name()),
                "generation": notice.lock.map(|(_, generation)| generation.0),
                "transmissions": notice.transmissions,
                "last": seconds(notice.last),
                "receipted": notice.receipt.map(|(at, _)| seconds(at)),
                "receipt": notice.receipt.map(|(_, answer)| answer.name()),
                "timing_out": failed.filter(|_| notice.receipt.is_none() && notice.back.is_none()).map(|promise| {
                    let (from, until) = timing_out(entry, &promise);
                    json!({ "from": seconds(from), "until": seconds(until) })
                }),
                "given_back": notice.back.map(|(at, _)| seconds(at)),
                "kept": notice.back.map(|(_, keep)| keep.name()),
            }),
        ),
        Thing::Refused { reason, times, last } => ("refused", json!({ "reason": reason.name(), "times": times, "last": seconds(*last) })),
        Thing::GaveUp { reason } => ("given_up", json!({ "reason": reason.map_or("surrender", |reason| reason.name()) })),
        Thing::Ended => ("ended", json!({})),
        Thing::LostTo { lock, generation, to, by_mutation } => (
            "stolen",
            json!({
                "object": lock.object.0,
                "class": lock.class.name(),
                "generation": generation.0,
                "to": to.to_string(),
                "by_mutation": by_mutation,
            }),
        ),
        Thing::ServerRestarted { before, now } => ("server_restarted", json!({ "before": before, "now": now })),
    };
    map.insert("what".to_owned(), json!(what));
    if let Value::Object(more) = more {
        map.extend(more);
    }
    Value::Object(map)
}
