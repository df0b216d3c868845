//! Ending the command's tree from the caller's process when the guardian cannot do it.
//!
//! Decides what happens if the guardian itself is killed: the kernel kills the command (its parent-death signal), and what the
//! command had started becomes children of the caller's process, which is a child subreaper for this one purpose; they are killed and
//! reaped here. Invariant: children that the caller's process had before the run are not touched, nor what is below them;
//! those it starts while a command runs are not distinguishable, which is why [`crate::Runner`] forbids them.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::exit::Status;
use crate::messages::Survivor;
use crate::tree;

/// The caller's process cleaning up after a guardian.
pub(crate) struct Orphans {
    own: i32,
    spared: BTreeSet<i32>,
    command: Option<i32>,
    rounds: u32,
    reported: Vec<i32>,
}

/// What is left after one round.
pub(crate) struct Left {
    pub(crate) survivors: Vec<Survivor>,
    /// Whether these have held out for so long that it is worth telling, and have not been told before.
    pub(crate) is_news: bool,
    /// How the command ended, if it was reaped in this round.
    pub(crate) status: Option<Status>,
}

/// Between rounds at first, and how many of these: half a second, in which everything dies that is going to.
const PAUSE: Duration = Duration::from_millis(20);
const PROMPT_ROUNDS: u32 = 25;
/// Between rounds for what the kernel does not let go.
const LONG_PAUSE: Duration = Duration::from_secs(1);

impl Orphans {
    /// `spared` are the children that the caller's process had before the run; `command` is the command's process if known.
    pub(crate) fn new(spared: BTreeSet<i32>, command: Option<i32>) -> Orphans {
        Orphans { own: nix::unistd::getpid().as_raw(), spared, command, rounds: 0, reported: Vec::new() }
    }

    /// How long to wait before the next round.
    pub(crate) fn pause(&self) -> Duration {
        if self.rounds < PROMPT_ROUNDS { PAUSE } else { LONG_PAUSE }
    }

    /// One round of killing and reaping.
    pub(crate) fn round(&mut self) -> Left {
        self.rounds = self.rounds.saturating_add(1);
        let denied = tree::kill(self.own, &self.spared);
        let mut status = None;
        for pid in tree::children(self.own).difference(&self.spared) {
            let Some(handle) = Pid::from_raw(*pid) else { continue };
            // Reaping one by one leaves the spared children to whoever waits for them.
            if let Ok(Some((_, ended))) = waitpid(Some(handle), WaitOptions::NOHANG)
                && self.command == Some(*pid)
            {
                status = Some(Status::of(ended));
            }
        }
        let survivors: Vec<Survivor> =
            tree::descendants(self.own, &self.spared).into_iter().map(|process| process.survives(&denied)).collect();
        let pids: Vec<i32> = survivors.iter().map(|survivor| survivor.pid).collect();
        let is_news = self.rounds >= PROMPT_ROUNDS && !pids.is_empty() && pids != self.reported;
        if is_news {
            self.reported = pids;
        }
        Left { survivors, is_news, status }
    }
}
