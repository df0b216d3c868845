//! Processes of a script: how they start, die, stand still and go on, and what their disk does meanwhile.
//!
//! Decides what a machine keeps: a process that stands still keeps what its socket holds, a dead one nothing but what is durable; a disk
//! that stalls does its work later, in its order. Place: under the script's words for machines (`machines`, `agent`).
//! Invariant: what a dead process had dropped is noted before its counters are gone.
//! Leaves to others: turns (`turns`), time (`course`), crash images (`crate::disk`).

use super::course::{Course, Due, Ending, LATENCY};
use crate::clock::Rates;
use crate::host::{NEVER, Process};
use crate::observe::{Node, Seen, True};

impl Course {
    pub(super) fn start(&mut self, node: Node) {
        let now = self.stage.now;
        let incarnation = match node {
            Node::Server => {
                assert!(self.stage.server.core.is_none(), "the server runs already");
                self.stage.server.start(now);
                self.stage.server.process.starts
            }
            Node::Agent(agent) => {
                assert!(self.stage.agents[agent].core.is_none(), "{} runs already", self.names[agent]);
                self.stage.agents[agent].start();
                self.stage.agents[agent].process.starts
            }
        };
        self.tell(&Seen::Started { node, incarnation });
        self.process(node).wake = NEVER;
        self.wake(node);
    }

    pub(super) fn crash(&mut self, node: Node) {
        let now = self.stage.now;
        self.note_drops(node);
        match node {
            Node::Server => {
                self.stage.server.crash(now);
                self.disk_waits.clear();
                self.tell(&Seen::Crashed { node });
            }
            Node::Agent(agent) => {
                let lost = self.stage.agents[agent].crash(now);
                self.tell(&Seen::Crashed { node });
                for op in lost {
                    self.tell(&Seen::Ended { agent, op, result: None });
                    self.ended.insert(op, Ending::Died);
                }
            }
        }
    }

    /// Notes what a process dropped, before its counters are gone.
    pub(super) fn note_drops(&mut self, node: Node) {
        let reasons: Vec<(String, u64)> = match node {
            Node::Server => self.stage.server.core.iter().flat_map(|core| core.stats().drops()).map(owned).collect(),
            Node::Agent(agent) => self.stage.agents[agent].core.iter().flat_map(|core| core.drops().iter()).map(owned).collect(),
        };
        for (reason, count) in reasons.into_iter().filter(|(_, count)| *count > 0) {
            *self.dropped.entry(format!("{}: {reason}", self.name(node))).or_default() += count;
        }
    }

    pub(super) fn pause(&mut self, node: Node) {
        self.process(node).paused += 1;
    }

    pub(super) fn resume(&mut self, node: Node) {
        self.process(node).paused -= 1;
        self.wake(node);
    }

    pub(super) fn moved(&mut self, agent: usize) {
        self.stage.agents[agent].go();
        self.tell(&Seen::Moved { agent });
    }

    /// The disk goes on.
    pub(super) fn disk_goes(&mut self) {
        self.disk_stalls = false;
        for (start, work) in std::mem::take(&mut self.disk_waits) {
            self.push(self.stage.now + LATENCY, Due::Disk(start, work));
        }
    }

    /// An older copy comes in the disk's place.
    pub(super) fn restore(&mut self) {
        assert!(self.stage.server.restore(), "there is no copy of the disk");
        self.tell(&Seen::Restored);
    }

    /// From now on a machine's clocks run at other rates.
    pub(super) fn rate(&mut self, node: Node, rates: Rates) {
        let now = True(self.stage.now);
        match node {
            Node::Server => self.stage.server.clock.change(now, rates),
            Node::Agent(agent) => self.stage.agents[agent].clock.change(now, rates),
        }
        // What it had planned was planned by other rates.
        self.wake(node);
    }

    pub(super) fn process(&mut self, node: Node) -> &mut Process {
        match node {
            Node::Server => &mut self.stage.server.process,
            Node::Agent(agent) => &mut self.stage.agents[agent].process,
        }
    }
}

fn owned((reason, count): (&'static str, u64)) -> (String, u64) {
    (reason.to_owned(), count)
}
