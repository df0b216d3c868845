//! Who watches a run: the judges, the counters, the hash, and the trace if one is wanted.
//!
//! Decides that all of them see every happening in one order, and what the hash of a run covers: every happening, its time, its bytes
//! (I18). Invariant: watching changes nothing of the run.
//! Leaves to others: what is told and when (`world`), verdicts (`judge`), words (`trace`).

use crate::counters::Counters;
use crate::judge::judges;
use crate::observe::{Judge, Node, Seen, Sight, Violation};
use crate::plan::Plan;
use crate::trace::Trace;
use cistern_agent::api::{Command, OpError, Output};
use siphasher::sip::SipHasher13;
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher};

/// Those who watch.
pub(crate) struct Watch<'t> {
    judges: Vec<Box<dyn Judge>>,
    pub(crate) counters: Counters,
    hash: SipHasher13,
    trace: Option<&'t mut Trace>,
}

impl<'t> Watch<'t> {
    /// The judges of a plan.
    pub(crate) fn new(plan: &Plan, trace: Option<&'t mut Trace>) -> Self {
        let judges = if trace.as_ref().is_some_and(|trace| trace.is_witness()) { Vec::new() } else { judges(plan) };
        Self { judges, counters: Counters::default(), hash: SipHasher13::new(), trace }
    }

    /// Something happened.
    pub(crate) fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) -> Result<(), Violation> {
        self.note(sight.now.0, seen);
        if let Some(trace) = &mut self.trace {
            trace.see(sight, seen);
        }
        self.counters.see(sight, seen)?;
        for judge in &mut self.judges {
            judge.see(sight, seen)?;
        }
        Ok(())
    }

    /// A remark for the trace; no judge sees it.
    pub(crate) fn remark(&mut self, sight: &Sight<'_>, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.remark(sight, &text());
        }
    }

    /// The run is over.
    pub(crate) fn end(&mut self, sight: &Sight<'_>) -> Result<(), Violation> {
        self.counters.end(sight)?;
        for judge in &mut self.judges {
            judge.end(sight)?;
        }
        Ok(())
    }

    /// The hash of everything seen so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    fn note(&mut self, now: u64, seen: &Seen<'_>) {
        let mut hash = Words(&mut self.hash);
        match seen {
            Seen::Settled => {}
            Seen::Sent { from, bytes, .. } => hash.datagram(1, now, *from, bytes),
            Seen::Received { by, bytes, .. } => hash.datagram(2, now, *by, bytes),
            Seen::Persisted { batch } => {
                hash.0.write_u64(now);
                hash.0.write_u64(batch.id);
                for (key, value) in &batch.writes {
                    hash.0.write(&key.to_bytes());
                    hash.0.write(value.as_deref().unwrap_or(b"-"));
                }
            }
            Seen::Submitted { agent, op, command } => {
                hash.happening(3, now, *agent as u64, op.0);
                // What it carries is in the datagrams that it leads to; which command it is need not be.
                hash.happening(4, now, 0, tag(command));
            }
            Seen::Ended { agent, op, result } => {
                hash.happening(5, now, *agent as u64, op.0);
                hash.result(*result);
            }
            other => {
                hash.0.write_u64(now);
                // Words are written into a hash: that does not fail.
                let _ = write!(hash, "{other:?}");
            }
        }
    }
}

struct Words<'a>(&'a mut SipHasher13);

impl Words<'_> {
    fn datagram(&mut self, tag: u64, now: u64, node: Node, bytes: &[u8]) {
        let node = match node {
            Node::Server => 0,
            Node::Agent(agent) => agent as u64 + 1,
        };
        self.0.write_u64(now);
        self.0.write_u64(node << 8 | tag);
        self.0.write(bytes);
    }

    fn happening(&mut self, tag: u64, now: u64, agent: u64, number: u64) {
        self.0.write_u64(now);
        self.0.write_u64(agent << 8 | tag);
        self.0.write_u64(number);
    }

    /// Bytes as they are, since writing them out in words is what most of a hash's time would go to.
    fn result(&mut self, result: Option<&Result<Output, OpError>>) {
        match result {
            Some(Ok(Output::Data { attr, offset, data })) => {
                self.happening(6, attr.version, attr.object.0, *offset);
                self.0.write(data);
            }
            Some(Ok(Output::Attr(attr))) => self.happening(7, attr.version, attr.object.0, attr.size),
            other => {
                let _ = write!(self, "{other:?}");
            }
        }
    }
}

/// Which command it is.
fn tag(command: &Command) -> u64 {
    let mut hash = SipHasher13::new();
    std::mem::discriminant(command).hash(&mut hash);
    hash.finish()
}

impl std::fmt::Write for Words<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
