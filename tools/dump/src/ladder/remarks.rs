//! Words beside rows and bars: what follows from a datagram, beyond what it says.
//!
//! Decides: which events are worth a remark of their own, and what each bar is called. Place in the walk: between the story and what is
//! drawn. Leaves to others: what happened (`cistern-audit`), words for messages (`words`).

use crate::time::span;
use crate::words::short;
use cistern_audit::story::Promise;
use cistern_audit::{Event, HostId, Interval, IntervalKind, Session, Story, What};
use cistern_wire::SessionId;
use std::time::Duration;

/// What follows from a datagram.
pub(super) fn of(story: &Story, events: &[Event]) -> Vec<String> {
    events.iter().filter_map(|event| remark(story, event)).collect()
}

fn remark(story: &Story, event: &Event) -> Option<String> {
    Some(match &event.what {
        What::Passed { holder, lock, passed, possible_until, by_mutation, .. } => {
            let how = if *by_mutation { "is passed over" } else { "goes to another" };
            let whose = name(story, story.session(*holder).map(|session| session.host), *holder);
            let lease = match possible_until {
                Some(until) if until <= passed => format!("whose lease was over for {}", span(*passed - *until)),
                Some(until) => format!("whose lease may have {} left", span(*until - *passed)),
                None => "whose lease is not known".to_owned(),
            };
            format!("lock {lock} of {whose} {how}: {lease}")
        }
        What::Nack { first: true, .. } => {
            format!("the server refuses the session of {} from here on", name(story, Some(event.to), event.session))
        }
        What::Restarted { now: (epoch, incarnation), .. } => {
            format!("the server was started anew: incarnation {incarnation} of epoch {epoch}")
        }
        What::RenewedAfterSteal { of, .. } => format!("session {} is renewed after its locks went to others", short(*of)),
        What::NumberTwice { of } => format!("its packet number was used in frame {of} for something else"),
        _ => return None,
    })
}

fn name(story: &Story, host: Option<HostId>, session: SessionId) -> String {
    host.and_then(|host| story.hosts().get(host)).map_or_else(|| format!("session {}", short(session)), |host| host.name.clone())
}

/// The stretch in which a server that keeps to its rules has timed out a session whose lock it gave away: T before that at the latest it
/// had given up delivering.
pub(super) fn timed_out(session: &Session, promise: Promise, passed: Duration, frame: u64) -> Interval {
    Interval {
        kind: IntervalKind::TimingOut,
        session: session.id,
        host: session.host,
        from: passed.saturating_sub(promise.wait),
        until: Some(passed),
        begun_by: frame,
        ended_by: Some(frame),
    }
}

/// What a bar is.
pub(super) fn of_interval(interval: &Interval, begin: Duration) -> String {
    let what = match interval.kind {
        IntervalKind::Lease => "lease, for certain".to_owned(),
        IntervalKind::PossibleLease => "lease, possibly: what renewed it was sent a little before it passed here".to_owned(),
        IntervalKind::TimingOut => "the server is timing the session out: it renews and executes nothing of it".to_owned(),
        IntervalKind::Hold { lock, mode, generation } => format!("{mode} {} lock on {}, generation {generation}", lock.class, lock.object),
        IntervalKind::Grace => "grace: the server waits for former holders".to_owned(),
    };
    let instant = |at: Duration| match at.checked_sub(begin) {
        Some(after) => format!("+{:.6} s", after.as_secs_f64()),
        None => format!("-{:.6} s", (begin - at).as_secs_f64()),
    };
    let until = interval.until.map_or("its end was not seen".to_owned(), |until| format!("until {}", instant(until)));
    format!("session {}: {what}\nfrom {}, {until}", short(interval.session), instant(interval.from))
}
