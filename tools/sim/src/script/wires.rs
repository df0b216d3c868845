//! The wires of a script: what becomes of each datagram between an agent and the server, by rules that the script makes.
//!
//! Decides whether a datagram arrives, how often, and whether it is kept back; the first rule that fits decides. Without rules every
//! datagram arrives once, whole, after the same time. Invariant: a rule that the script made and that nothing ever met is an error at
//! the script's end, so a scenario cannot pass because what it was about never happened.
//! Leaves to others: arrivals (`course`), who makes rules (the script).

use bytes::Bytes;
use cistern_wire::{Ack, Datagram, Form, Kind, Message, Reply, Status};
use std::net::SocketAddr;

/// One direction of one agent's link with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub(super) agent: usize,
    /// To the server.
    pub(super) up: bool,
}

/// What is done to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It is lost.
    Lose,
    /// It is kept back until the script lets it go.
    Hold,
    /// It arrives again, so much later.
    Twice(u64),
    /// It takes so much longer.
    Slow(u64),
}

/// What is done to which datagrams.
#[derive(Clone, Debug)]
struct Rule {
    way: Way,
    /// Those with a message of this kind; `None`: all.
    kind: Option<Kind>,
    act: Act,
    /// How many more; `None`: until it is lifted.
    left: Option<u32>,
    met: u32,
}

/// A datagram that went by.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    pub(super) way: Way,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Bytes,
    /// As plain mode would have it.
    pub(super) plain: Bytes,
    pub(super) lost: bool,
}

/// A datagram of a script's run, as [`Script::datagrams`](super::Script::datagrams) gives it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The agent, by its place among the names of the setting.
    pub agent: usize,
    /// Whether it went to the server.
    pub up: bool,
    /// Its bytes, in clear.
    pub bytes: Bytes,
    /// Whether a rule of the script has lost it.
    pub lost: bool,
}

/// All links.
#[derive(Debug)]
pub(super) struct Wires {
    delay: u64,
    rules: Vec<Rule>,
    pub(super) held: Vec<Passed>,
    pub(super) recorded: Vec<Passed>,
    /// Rules that were lifted and that nothing had met.
    unmet: Vec<String>,
}

impl Wires {
    pub(super) const fn new(delay: u64) -> Self {
        Self { delay, rules: Vec::new(), held: Vec::new(), recorded: Vec::new(), unmet: Vec::new() }
    }

    /// Makes a rule.
    pub(super) fn rule(&mut self, way: Way, kind: Option<Kind>, act: Act, left: Option<u32>) {
        self.rules.push(Rule { way, kind, act, left, met: 0 });
    }

    /// Lifts the rules that `which` is about; those that met nothing are remembered, but for plain cuts: silence may be all there was.
    pub(super) fn lift(&mut self, which: impl Fn(Act) -> bool) {
        for rule in self.rules.extract_if(.., |rule| which(rule.act)) {
            if rule.met == 0 && rule.kind.is_some() {
                self.unmet.push(rule.says());
            }
        }
    }

    /// What the script planned and what never came to pass.
    pub(super) fn unmet(&self) -> Vec<String> {
        let waiting = self.rules.iter().filter(|rule| rule.kind.is_some() && (rule.met == 0 || rule.left.is_some_and(|left| left > 0)));
        self.unmet.iter().cloned().chain(waiting.map(Rule::says)).collect()
    }

    /// Sends a datagram, which is `plain` to whoever makes rules: when it arrives, in nanoseconds from now, each time.
    pub(super) fn send(&mut self, way: Way, from: SocketAddr, to: SocketAddr, bytes: &[u8], plain: &[u8]) -> Vec<u64> {
        let rule = self.rules.iter_mut().find(|rule| rule.meets(way, plain));
        let lost = rule.as_ref().is_some_and(|rule| rule.act == Act::Lose);
        let passed = Passed { way, from, to, bytes: Bytes::copy_from_slice(bytes), plain: Bytes::copy_from_slice(plain), lost };
        self.recorded.push(passed.clone());
        let Some(rule) = rule else { return vec![self.delay] };
        rule.met += 1;
        if let Some(left) = &mut rule.left {
            *left -= 1;
        }
        match rule.act {
            Act::Lose => Vec::new(),
            Act::Hold => {
                self.held.push(passed);
                Vec::new()
            }
            Act::Twice(later) => vec![self.delay, self.delay + later],
            Act::Slow(more) => vec![self.delay + more],
        }
    }

    /// The newest datagram of a form that went there.
    pub(super) fn newest(&self, form: Form, way: Way) -> Vec<u8> {
        let mut there = self.recorded.iter().rev().filter(|passed| passed.way == way);
        there.find(|passed| Form::named(&passed.bytes) == Some(form)).expect("one went there").bytes.to_vec()
    }

    pub(super) const fn delay(&self) -> u64 {
        self.delay
    }
}

impl Rule {
    fn meets(&self, way: Way, bytes: &[u8]) -> bool {
        self.way == way && self.left != Some(0) && self.kind.is_none_or(|kind| has(bytes, kind))
    }

    fn says(&self) -> String {
        let kind = self.kind.map_or("anything", Kind::name);
        let times = self.left.map_or(String::new(), |left| format!(", {left} more"));
        format!("{:?} of {kind} {} agent {}{times}", self.act, if self.way.up { "from" } else { "to" }, self.way.agent)
    }
}

/// Whether a datagram has a message of this kind.
pub(super) fn has(bytes: &[u8], kind: Kind) -> bool {
    Datagram::seen(bytes).is_ok_and(|datagram| datagram.messages().any(|message| message.kind() == kind))
}

/// The statuses of the failures that a datagram answers with.
pub(super) fn refusals(bytes: &[u8]) -> Vec<Status> {
    let Ok(datagram) = Datagram::seen(bytes) else { return Vec::new() };
    let failed = datagram.messages().filter_map(|message| match message {
        Message::Ack(Ack { reply: Reply::Failed(failed), .. }) => Some(failed.status),
        _ => None,
    });
    failed.collect()
}
