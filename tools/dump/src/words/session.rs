//! Words of the messages that open, prove and end sessions: `wire-spec.md` section 6.1, END_SESSION.
//!
//! Decides: that a WELCOME is told with T, which nobody sends but everybody asks for. Leaves to others: all other kinds.

use super::{list, micros, millis, short, text};
use cistern_wire::limits::{FEATURE_GROUP, FEATURE_VOLATILE};
use cistern_wire::{
    Challenge, Confirm, EndReason, EndSession, Hello, JoinOutcome, Joined, Known, Opened, Refuse, RefuseReason, RosterPart, Welcome,
};
use std::net::Ipv6Addr;

pub(super) fn hello(m: &Hello<'_>) -> String {
    let identity = m.agent.to_string();
    let proof = if m.cookie.0.is_empty() { "" } else { ", with the cookie" };
    format!("asks for a session: agent {} {}, incarnation {}{proof}", &identity[..8], text(m.label.0), m.incarnation)
}

pub(super) fn challenge(m: &Challenge<'_>) -> String {
    format!("no session yet: wants HELLO again, with this cookie of {} bytes", m.cookie.0.len())
}

pub(super) fn welcome(m: &Welcome) -> String {
    let says = |feature: u64, what| if m.features & feature == 0 { "" } else { what };
    let (volatile, group) = (says(FEATURE_VOLATILE, ", volatile"), says(FEATURE_GROUP, ", of a group"));
    format!(
        "offers session {}: lease τ {}, T {}, delivery timeout {}, window {}; server incarnation {} of epoch {}{volatile}{group}",
        short(m.session),
        micros(m.lease_us),
        micros(wait_us(m)),
        micros(m.delivery_timeout_us.into()),
        m.window,
        m.server_incarnation,
        m.epoch,
    )
}

/// T = τ(1+δ)+ε in microseconds, rounded up: how long the server waits after a delivery failure.
fn wait_us(m: &Welcome) -> u64 {
    let more = (u128::from(m.lease_us) * u128::from(m.delta_ppm)).div_ceil(1_000_000);
    m.lease_us.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).saturating_add(m.epsilon_us.into())
}

pub(super) fn refuse(m: &Refuse) -> String {
    let range = match m.reason {
        RefuseReason::Version => format!(" (the server speaks {} to {})", m.version_min, m.version_max),
        RefuseReason::Busy
        | RefuseReason::Superseded
        | RefuseReason::Stopping
        | RefuseReason::Ahead
        | RefuseReason::Crowded
        | RefuseReason::Standby => String::new(),
    };
    let again = if m.retry_ms == 0 { String::new() } else { format!("; try again in {}", millis(m.retry_ms.into())) };
    format!("no session: {}{range}{again}", m.reason)
}

pub(super) fn confirm(m: &Confirm<'_>) -> String {
    let former = list(m.former.iter().map(|former| format!("{} {}", short(former.session), former.claim)));
    format!("opens the session{}", if m.former.is_empty() { String::new() } else { format!("; the agent's others: {former}") })
}

pub(super) fn opened(m: &Opened<'_>) -> String {
    let former = list(m.former.iter().map(|former| format!("{} {}", short(former.session), former.fate)));
    format!("the session is open{}", if m.former.is_empty() { String::new() } else { format!("; former sessions: {former}") })
}

pub(super) fn known(m: &Known) -> String {
    format!("session {} is in good standing and goes on, this one is not opened; renews nothing", short(m.session))
}

pub(super) fn joined(m: &Joined<'_>) -> String {
    match m.outcome {
        JoinOutcome::Joined => format!("the key is principal {}, {}; durable", m.principal, text(m.name.0)),
        JoinOutcome::Spent => format!("not joined: {}, at {} from {}", m.outcome, m.used_s, Ipv6Addr::from(m.used_from).to_canonical()),
        JoinOutcome::Unknown | JoinOutcome::Revoked | JoinOutcome::NameTaken | JoinOutcome::Full => format!("not joined: {}", m.outcome),
    }
}

pub(super) fn roster_part(m: &RosterPart<'_>) -> String {
    let end = usize::from(m.offset) + m.part.0.len();
    format!("bytes {} to {end} of the {} of roster {}; renews nothing", m.offset, m.length, m.version)
}

pub(super) fn end(m: &EndSession) -> String {
    match m.reason {
        EndReason::Close => "closes the session: nothing of it is in use any more".to_owned(),
        EndReason::Surrender => "surrenders the session: all is discarded, no user of it can act any more".to_owned(),
    }
}
