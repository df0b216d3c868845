//! A run in words: one line for each happening, columns aligned, and the datagrams for a capture file.
//!
//! Decides what a person sees of a run: when, at which machine (a mark in the machine's column), what, and what the machine's clocks
//! read. Invariant: making a trace changes nothing of the run; without one nothing is formatted.
//! Leaves to others: the words for a message (`words`), capture files (`cistern-capture`).

pub(crate) mod logged;
mod words;

pub use logged::log_from;

use crate::judge::audit;
use crate::observe::{Node, Seen, Sight};
use crate::plan::SEC;
use bytes::Bytes;
use cistern_capture::Datagram;
use cistern_link::Instant;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;
use words::{command, datagram, event, result};

/// Where lines go: all of them, or the newest only.
#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    max: usize,
    /// Most characters of a message's fields.
    fields_max: usize,
    /// Every datagram sent, if a capture is wanted.
    packets: Option<Vec<Datagram>>,
    /// What each machine's process has sent and received, as its own capture would have it; then nobody judges the run.
    witness: Option<Vec<(Node, Datagram)>>,
}

impl Trace {
    /// A trace that keeps the newest `max` lines, and every datagram if `captures`.
    #[must_use]
    pub fn new(max: usize, captures: bool) -> Self {
        Self { lines: VecDeque::new(), max, fields_max: 110, packets: captures.then(Vec::new), witness: None }
    }

    /// No lines, but what every machine's process has sent and received; no judge stops the run.
    #[must_use]
    pub const fn witness() -> Self {
        Self { lines: VecDeque::new(), max: 0, fields_max: 0, packets: None, witness: Some(Vec::new()) }
    }

    /// Whether it only bears witness.
    pub(crate) const fn is_witness(&self) -> bool {
        self.witness.is_some()
    }

    /// What every machine's process has sent and received; frames get their numbers when they are read from a file.
    #[must_use]
    pub fn witnessed(&self) -> &[(Node, Datagram)] {
        self.witness.as_deref().unwrap_or_default()
    }

    /// Shows every field of every message.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.fields_max = usize::MAX;
        self
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Every datagram sent, as a capture at the senders has them; the times are true time, counted from 1970.
    #[must_use]
    pub fn packets(&self) -> &[Datagram] {
        self.packets.as_deref().unwrap_or_default()
    }

    /// Notes a happening.
    pub(crate) fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) {
        if let (Some(packets), Seen::Sent { from, to, bytes }) = (&mut self.packets, seen) {
            let at = Duration::from_nanos(sight.now.0);
            let (from, payload) = (address(sight, *from), Bytes::copy_from_slice(bytes));
            packets.push(Datagram { number: packets.len() as u64 + 1, at, from, to: *to, payload });
        }
        if let Some(witness) = &mut self.witness
            && let Some(node) = audit::passes(seen)
            && let Some((from, to, bytes)) = audit::passing(sight, seen, node)
        {
            witness.push((node, Datagram { number: 0, at: audit::stamp(sight, node), from, to, payload: Bytes::copy_from_slice(bytes) }));
        }
        if self.max == 0 {
            return;
        }
        let (node, mark, text) = match seen {
            Seen::Settled => return,
            Seen::Sent { from, to, bytes } => (Some(*from), '>', format!("to {}: {}", who(sight, *to), datagram(bytes, self.fields_max))),
            Seen::Received { by, from, bytes } => {
                (Some(*by), '<', format!("from {}: {}", who(sight, *from), datagram(bytes, self.fields_max)))
            }
            Seen::Forged { by, from, bytes, .. } => {
                (Some(*by), '!', format!("from the attacker {from}: {}", datagram(bytes, self.fields_max)))
            }
            Seen::Exposed { to, bytes } => (Some(Node::Server), '>', format!("to the attacker {to}: {}", datagram(bytes, self.fields_max))),
            Seen::Submitted { agent, op, command: what } => (Some(Node::Agent(*agent)), '?', format!("user {}: {}", op.0, command(what))),
            Seen::Ended { agent, op, result: how } => (Some(Node::Agent(*agent)), '=', format!("user {}: {}", op.0, result(*how))),
            Seen::Told { agent, event: what } => (Some(Node::Agent(*agent)), '*', event(what)),
            Seen::Started { node, incarnation } => (Some(*node), '+', format!("starts, number {incarnation}")),
            Seen::Crashed { node } => (Some(*node), 'x', "dies".to_owned()),
            Seen::Persisted { batch } => (Some(Node::Server), 'w', words::batch(batch)),
            Seen::Durable { batch } => (Some(Node::Server), 'd', format!("batch {batch} is durable")),
            Seen::Restored => (Some(Node::Server), 'r', "the disk is an older copy of itself".to_owned()),
            Seen::Moved { agent } => (Some(Node::Agent(*agent)), 'm', format!("has the address {}", sight.agents[*agent].address)),
        };
        self.line(sight, node, mark, &text);
    }

    /// Notes a remark of the world.
    pub(crate) fn remark(&mut self, sight: &Sight<'_>, text: &str) {
        if self.max > 0 {
            self.line(sight, None, '-', text);
        }
    }

    fn line(&mut self, sight: &Sight<'_>, node: Option<Node>, mark: char, text: &str) {
        let mut line = format!("{:>4}.{:06} ", sight.now.0 / SEC, sight.now.0 % SEC / 1_000);
        for column in std::iter::once(Node::Server).chain((0..sight.agents.len()).map(Node::Agent)) {
            let here = node == Some(column);
            let rest = if stands(sight, column) { '.' } else { ' ' };
            line.push(' ');
            line.push(if here { mark } else { rest });
        }
        // Words are written into a string: that does not fail.
        let _ = write!(line, "  {:<8} ", node.map_or_else(|| "world".to_owned(), |node| node.to_string()));
        line.push_str(text);
        if let Some(node) = node {
            let Instant { raw_ns, boot_ns } = clock(sight, node);
            let _ = write!(line, "  [{}.{:06} {}.{:06}]", raw_ns / SEC, raw_ns % SEC / 1_000, boot_ns / SEC, boot_ns % SEC / 1_000);
        }
        for logged in logged::take() {
            self.keep(logged);
        }
        self.keep(line);
    }

    fn keep(&mut self, line: String) {
        if self.lines.len() >= self.max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// What the columns are.
    #[must_use]
    pub fn heading(agents: usize) -> String {
        let columns: String = (0..agents).map(|agent| format!(" {agent}")).collect();
        format!(
            "     true s  S{columns}  machine  what happened  [raw s, boot s by the machine's clocks]\n\
             marks: > sent  < received  ! forged  ? asked  = answered  * told  w written  d durable  + started  x died  m moved  . runs"
        )
    }
}

fn address(sight: &Sight<'_>, node: Node) -> std::net::SocketAddr {
    match node {
        Node::Server => sight.server_address,
        Node::Agent(agent) => sight.agents[agent].address,
    }
}

fn clock(sight: &Sight<'_>, node: Node) -> Instant {
    match node {
        Node::Server => sight.server_clock.at(sight.now),
        Node::Agent(agent) => sight.agents[agent].clock.at(sight.now),
    }
}

fn stands(sight: &Sight<'_>, node: Node) -> bool {
    match node {
        Node::Server => sight.server.is_some() && !sight.server_paused,
        Node::Agent(agent) => sight.agents[agent].core.is_some() && !sight.agents[agent].paused,
    }
}

/// Whose address it is.
fn who(sight: &Sight<'_>, address: std::net::SocketAddr) -> String {
    if address == sight.server_address {
        return "server".to_owned();
    }
    match sight.agents.iter().position(|agent| agent.address == address) {
        Some(agent) => format!("agent {agent}"),
        None => address.to_string(),
    }
}
