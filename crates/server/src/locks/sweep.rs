//! The sweep: taking away holds that stand no more, a few in a turn.
//!
//! Decides: in which order. Two lines of sessions take turns: one for the locks that somebody waits for, one for all locks; in each, one
//! lock of each session in turn. Place in the walk: begun by `sessions` and `release`, gone on with by the machine in every turn.
//! Implements `wire-spec.md` section 11.3 (R50).
//! Invariant: a walk through a session's holds ends after those that it had at the beginning, whatever its agent does meanwhile; what
//! stands no more since then is found by the next walk, which begins when this one is over. So no session keeps another one's
//! waiters waiting, neither by how much it holds nor by how often it gives back.
//! Leaves to others: which holds stand (`table`), who comes when one is gone (`release`).

use super::LockTable;
use super::table::{LockAccess, Table};
use alloc::collections::VecDeque;
use cistern_link::Instant;
use cistern_link::slab::NONE;

/// Which holds of a session a walk looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Those that were asked back, for somebody may wait for them.
    Demanded,
    /// All.
    All,
}

/// How many lines there are.
pub(super) const LINES: usize = 2;

/// Where in a session's holds a walk goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// The next hold, or [`NONE`].
    next: u32,
    /// The last hold that it looks at.
    last: u32,
    /// Another walk is to follow: more holds stand no more than when this one began.
    again: bool,
}

impl Walk {
    /// A hold leaves its place between two others of its session.
    pub(super) const fn step_aside(&mut self, at: u32, prev: u32, next: u32) {
        if self.next == at {
            self.next = if self.last == at { NONE } else { next };
        } else if self.last == at {
            self.last = prev;
        }
    }
}

/// The sessions whose holds are walked through.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    lines: [VecDeque<u32>; LINES],
    /// Whether the next turn is that of [`Line::All`].
    turn_of_all: bool,
}

impl Sweeps {
    /// Takes the session whose turn it is out of its line.
    fn next(&mut self) -> Option<(Line, u32)> {
        let turns = if self.turn_of_all { [Line::All, Line::Demanded] } else { [Line::Demanded, Line::All] };
        self.turn_of_all = !self.turn_of_all;
        turns.into_iter().find_map(|line| Some((line, self.lines[line as usize].pop_front()?)))
    }

    fn push(&mut self, line: Line, session: u32) {
        self.lines[line as usize].push_back(session);
    }

    fn is_over(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }
}

impl LockTable {
    /// Takes away at most `budget` locks of sessions that were freed, or that RELEASE_ALL gave back, and lets come whoever waited for
    /// them. True: there is more to do.
    pub fn reclaim_some(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            let Some((line, slot)) = self.sweeps.next() else { return false };
            if let Some(at) = self.table.walk_on(slot, line) {
                self.sweeps.push(line, slot);
                if !self.table.stands(&self.table.holds[at]) {
                    self.free(now, at);
                }
            } else if self.table.sessions[slot].state == LockAccess::Freed && !self.table.sessions[slot].is_walked() {
                self.table.forget_session(slot);
            }
        }
        self.is_sweeping()
    }

    /// Whether there is more to take away.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        !self.sweeps.is_over()
    }

    /// Begins to take away those holds of a session that stand no more.
    pub(super) fn start_sweep(&mut self, slot: u32) {
        let demanded = self.table.demanded_of(slot).next().is_some();
        for line in [Line::Demanded, Line::All] {
            if (line == Line::All || demanded) && self.table.start_walk(slot, line) {
                self.sweeps.push(line, slot);
            }
        }
    }
}

impl Table {
    /// Begins a walk through a session's holds. False: one is under way, and another one follows it.
    fn start_walk(&mut self, session: u32, line: Line) -> bool {
        let session = &mut self.sessions[session];
        let (next, last) = (session.first, session.last);
        let walk = session.walk_mut(line);
        match walk {
            Some(walk) => walk.again = true,
            None => {
                *walk = Some(Walk { next, last, again: false });
                return true;
            }
        }
        false
    }

    /// The next hold of a walk, standing or not; `None`: it is over.
    fn walk_on(&mut self, session: u32, line: Line) -> Option<u32> {
        let session = &mut self.sessions[session];
        let (first, last) = (session.first, session.last);
        let slot = session.walk_mut(line);
        while let Some(walk) = slot {
            let at = walk.next;
            if let Some(hold) = self.holds.get(at).filter(|hold| line == Line::All || hold.demand.is_some()) {
                walk.next = if at == walk.last { NONE } else { hold.session_next };
                return Some(at);
            }
            *slot = walk.again.then_some(Walk { next: first, last, again: false });
        }
        session.shrink();
        None
    }
}
