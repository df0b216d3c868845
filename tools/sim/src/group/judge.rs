//! What must hold in a group, in true time.

use super::etcd::Etcd;
use crate::observe::Violation;
use crate::plan::SEC;
use bytes::Bytes;
use cistern_server::store::Key;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often an agent may ask for a session within a second: a few times in an RTO, of which there are 50.
const ASKED_MAX: usize = 300;

/// One core of one process.
pub(super) type Tenure = (usize, u64, u64);

/// The judge of a run.
#[derive(Debug, Default)]
pub(super) struct GroupJudge {
    /// Tenures in which something was sent that renews; the last one is the only that may go on.
    renewing: Vec<Tenure>,
    /// Tenures in which something was loaded, in the order in which each began to.
    loading: Vec<Tenure>,
    /// Highest token under which each path was used, and by whom.
    used: BTreeMap<usize, (u64, usize)>,
    /// Names that were answered to be made.
    made: BTreeSet<Vec<u8>>,
    pub(super) take_overs: u64,
    /// When each agent has asked for a session within the last second.
    asked: BTreeMap<usize, VecDeque<u64>>,
}

fn violated(invariant: &'static str, check: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { invariant, check, what })
}

impl GroupJudge {
    /// A server has sent something that renews.
    pub(super) fn renews(&mut self, tenure: Tenure) -> Result<(), Violation> {
        if self.renewing.last() == Some(&tenure) {
            return Ok(());
        }
        if self.renewing.contains(&tenure) {
            let what = format!("server {} renews in a tenure after which another was: {:?}", tenure.0, self.renewing);
            return violated("I23", "two-renew", what);
        }
        self.take_overs += u64::from(!self.renewing.is_empty());
        self.renewing.push(tenure);
        Ok(())
    }

    /// The store has answered what a server loads.
    pub(super) fn loads(&mut self, tenure: Tenure) {
        if !self.loading.contains(&tenure) {
            self.loading.push(tenure);
        }
    }

    /// The store was written.
    pub(super) fn writes(&self, tenure: Tenure) -> Result<(), Violation> {
        match self.loading.last() {
            Some(last) if *last != tenure && self.loading.contains(&tenure) => {
                violated("I26", "written-after-load", format!("{tenure:?} writes what {last:?}, which came after it, has loaded before"))
            }
            _ => Ok(()),
        }
    }

    /// The store was written: which COMMIT was the last before and after.
    pub(super) fn commits(tenure: Tenure, before: Option<&Bytes>, after: Option<&Bytes>) -> Result<(), Violation> {
        if before <= after {
            return Ok(());
        }
        violated("I25", "committed-again", format!("{tenure:?} has written COMMIT {after:02x?} over {before:02x?}"))
    }

    /// An agent asks a server for a session.
    pub(super) fn asks(&mut self, agent: usize, now: u64) -> Result<(), Violation> {
        let asked = self.asked.entry(agent).or_default();
        while asked.front().is_some_and(|at| at + SEC <= now) {
            asked.pop_front();
        }
        asked.push_back(now);
        match asked.len() {
            many if many > ASKED_MAX => violated("I29", "to-and-fro", format!("agent {agent} has asked {many} times within a second")),
            _ => Ok(()),
        }
    }

    /// These servers may renew at one instant.
    pub(super) fn serving(&self, servers: &[usize]) -> Result<(), Violation> {
        match servers {
            [] | [_] => Ok(()),
            _ => violated("I23", "two-serve", format!("servers {servers:?} have the lease of the group at once")),
        }
    }

    /// An agent uses a lock of which it is certain.
    pub(super) fn uses(&mut self, path: usize, token: u64, agent: usize) -> Result<(), Violation> {
        let (highest, by) = self.used.get(&path).copied().unwrap_or_default();
        if token < highest || token == highest && by != agent {
            let what = format!("agent {agent} uses lock {path} under token {token}, after agent {by} has under {highest}");
            return violated("I1", "two-holders", what);
        }
        self.used.insert(path, (token, agent));
        Ok(())
    }

    /// A change was answered: a name of its own was made.
    pub(super) fn answered(&mut self, name: Vec<u8>) {
        self.made.insert(name);
    }

    /// The run is over: what was answered is there.
    pub(super) fn end(&self, etcd: &Etcd) -> Result<(), Violation> {
        let names: BTreeSet<Vec<u8>> = etcd
            .clone()
            .loaded()
            .into_keys()
            .filter_map(|key| match key {
                Key::Entry(_, name) => Some(name.to_vec()),
                _ => None,
            })
            .collect();
        match self.made.difference(&names).next() {
            None => Ok(()),
            Some(lost) => violated("I25", "answered-and-lost", format!("{} was answered, and is not there", lost.escape_ascii())),
        }
    }
}
