//! I15, how often: nobody sends the same thing again and again without waiting longer each time.
//!
//! Decides: in one lease period no request, control message or notice is transmitted more often than an RTO of 20 ms that doubles up
//! to τ/8 allows (R27), with some room for what begins anew when the other side was heard. Place in the walk: looks at what is sent.
//! Invariant: times are true time; clocks that keep their bound change the count by less than the room.
//! Leaves to others: that what is unanswered is sent again at all (`liveness`).

use super::case::{Case, Verdict, nanos, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_wire::{Message, SessionId};
use std::collections::{BTreeMap, VecDeque};

/// The shortest RTO, in nanoseconds.
const RTO_MIN: u64 = 20_000_000;
/// Retransmissions in a lease period once the RTO is at its cap of τ/8, and room for what begins anew.
const AT_CAP: usize = 8 + 8;

/// What is sent again under one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Request(u64),
    Control(u64),
    Notice(u64),
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Pace {
    sent: BTreeMap<(Node, SessionId, Thing), VecDeque<u64>>,
    oldest: u64,
}

impl Family for Pace {
    fn name(&self) -> &'static str {
        "pace"
    }

    fn look(&mut self, case: &Case<'_>, _facts: &Facts) -> Verdict {
        let (Seen::Sent { from, .. }, Some(packet)) = (case.seen, &case.packet) else { return Ok(()) };
        let (now, lease) = (case.sight.now.0, nanos(case.sight.server_config.lease).max(1));
        if now > self.oldest + 4 * lease {
            self.oldest = now;
            self.sent.retain(|_, times| times.back().is_some_and(|last| now - last < lease));
        }
        for thing in packet.messages.iter().filter_map(thing) {
            let times = self.sent.entry((*from, packet.session(), thing)).or_default();
            while times.front().is_some_and(|first| now - first >= lease) {
                times.pop_front();
            }
            times.push_back(now);
            if times.len() > limit(lease) {
                let what = format!(
                    "{from} sends {thing:?} of session {} for the {}th time within {} ms; {} times are enough",
                    packet.session(),
                    times.len(),
                    lease / 1_000_000,
                    limit(lease)
                );
                return violated("I15", "retransmission-rate", what);
            }
        }
        Ok(())
    }
}

/// Transmissions of one thing that a lease period has room for.
fn limit(lease: u64) -> usize {
    let doublings = (lease / 8 / RTO_MIN).checked_ilog2().map_or(0, |whole| whole as usize + 1);
    AT_CAP + doublings
}

fn thing(message: &Message<'_>) -> Option<Thing> {
    Some(match message {
        Message::KeepAlive(m) => Thing::Control(m.serial),
        Message::Release(m) => Thing::Control(m.serial),
        Message::ReleaseAll(m) => Thing::Control(m.serial),
        Message::Cancel(m) => Thing::Control(m.serial),
        Message::EndSession(m) => Thing::Control(m.serial),
        Message::Demand(m) => Thing::Notice(m.seq),
        Message::Grant(m) => Thing::Notice(m.seq),
        Message::WaitOver(m) => Thing::Notice(m.seq),
        Message::Probe(m) => Thing::Notice(m.seq),
        other => Thing::Request(other.ask()?.nonce),
    })
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, TAU, fired};
    use super::*;
    use cistern_wire::KeepAlive;

    #[test]
    fn what_is_sent_again_without_longer_pauses_is_caught() {
        let (mut bench, mut judge) = (Bench::new(1), Pace::default());
        let again: Message<'_> = KeepAlive { serial: 1, clock_us: 0 }.into();
        for (pause, ok) in [(TAU / 8, true), (20, false)] {
            bench.pass(2 * TAU);
            let verdict = (0..40).try_for_each(|packet| {
                bench.pass(pause);
                bench.agent_sends(&mut judge, 0, 71, 5 + packet, &[again])
            });
            if ok {
                verdict.unwrap();
            } else {
                fired(verdict, "I15", "retransmission-rate");
            }
        }
    }
}
