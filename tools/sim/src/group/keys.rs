//! The sealed mode of a group's run: a key of each server, a list of them that a cluster has signed, keys of agents.
//!
//! Decides that agents begin with the list before the one that servers have, so that each fetches that and checks its signature. Invariant: judges see
//! what plain mode would show.
//! Leaves to others: records and handshakes, and what of them is known outside of the cores (`crate::sealing`).

use super::hosts::server_address;
use crate::observe::Violation;
use crate::rng::SimRng;
use crate::sealing::{SealWorker, Sealing};
use cistern_agent::{Agent, KeyAt, Servers};
use cistern_group::GroupServer;
use cistern_link::Instant;
use cistern_seal::{FirstCheck, GroupSealer, SecretKey};
use cistern_server::{Server, ServerRoster};
use cistern_trust::{ClusterSecret, Offered, Pinned, Roster, ServerEntry, ServerState};
use std::borrow::Cow;

/// The sealed mode of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupSealing {
    sealing: Sealing,
    agents: usize,
    /// The list that agents begin with, and the one that servers have.
    known: Pinned,
    newest: Pinned,
}

impl GroupSealing {
    pub(super) fn new(sealing: Sealing, servers: usize, agents: usize) -> Self {
        let cluster = ClusterSecret::from_seed(*sealing.server_key(servers).expose());
        let entry = |key: &SecretKey, state, addresses| ServerEntry { key: key.public(), state, addresses };
        let entries: Vec<_> = (0..servers)
            .map(|server| {
                let address = server_address(server).to_string().parse().expect("an address of a socket is one of a server");
                entry(&sealing.server_key(server), ServerState::Serving, vec![address])
            })
            .collect();
        let pin = |roster: &Roster| {
            let signed = roster.clone().sign(&cluster).expect("a list of three servers is within its bounds");
            Pinned::new(cluster.public(), signed.as_bytes()).expect("it was signed by the cluster")
        };
        let first = Roster { version: 1, servers: entries.clone() };
        let retired = entry(&sealing.server_key(servers + 1), ServerState::Retired, Vec::new());
        let next = first.next(entries.into_iter().chain([retired]).collect());
        Self { agents, known: pin(&first), newest: pin(&next), sealing }
    }

    /// A member that seals for the servers at these places; `boot`: random bytes of its start.
    pub(super) fn member(&self, machine: GroupServer, number: usize, places: &[Option<usize>], boot: [u8; 16]) -> GroupServer {
        let own = self.sealing.server_key(number);
        let keys = places.iter().flatten().map(|server| self.sealing.server_key(*server).public()).collect();
        let sealer = GroupSealer::new(&own, place_of(number, places), keys, boot).expect("each member has a key of its own");
        machine.sealed(FirstCheck::of(&own.public()), sealer)
    }

    /// It seals for the servers at these places from now on.
    pub(super) fn change(&self, machine: &mut GroupServer, number: usize, places: &[Option<usize>]) {
        let keys: Vec<_> = places.iter().map(|server| Some(self.sealing.server_key((*server)?).public())).collect();
        let changed = machine.node_mut().change_keys(&self.sealing.server_key(number), place_of(number, places), &keys);
        changed.expect("each member has a key of its own");
    }

    /// A core that seals, by a key of this start, and the worker of its tenure.
    pub(super) fn core(&self, now: Instant, core: Server, number: usize, rng: &mut SimRng) -> (Server, SealWorker) {
        let mut core = self.sealing.server(core, number, rng.seed());
        let (cluster, signed) = (*self.newest.cluster().as_bytes(), self.newest.signed());
        core.set_roster(now, ServerRoster { cluster, version: signed.roster().version, signed: signed.as_bytes().into() });
        (core, SealWorker::new(self.sealing.clone(), number, rng.fork("worker")))
    }

    /// The agents' principals, at the first server that serves.
    pub(super) fn enlist(&self, core: &mut Server, now: Instant) {
        self.sealing.enlist(core, now, self.agents);
    }

    /// An agent that seals.
    pub(super) fn agent(&self, now: Instant, core: Agent, number: usize, rng: &SimRng) -> Agent {
        let mut agent = self.sealing.agent(core, number, &servers_of(&self.known), rng.fork("ephemerals"));
        agent.know_roster(now, self.known.roster().version);
        agent
    }

    /// What an agent is to take from a list that it has fetched.
    pub(super) fn servers(&self, signed: &[u8]) -> Result<Servers, Violation> {
        let mut pinned = self.known.clone();
        match pinned.offer(signed) {
            Ok(Offered::Taken) => Ok(Servers { version: pinned.roster().version, keys: servers_of(&pinned), addresses: Vec::new() }),
            other => {
                let what = format!("an agent has fetched a list of servers that it does not take: {other:?}");
                Err(Violation { invariant: "I22", check: "list-of-servers", what })
            }
        }
    }

    /// What plain mode would have sent.
    pub(super) fn in_clear<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.sealing.in_clear(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// What a worker was given against the rules.
    pub(super) fn broken(&self) -> Result<(), Violation> {
        self.sealing.broken()
    }
}

/// The place of a server in a list that it is in.
fn place_of(number: usize, places: &[Option<usize>]) -> u8 {
    let place = places.iter().position(|server| *server == Some(number));
    u8::try_from(place.expect("who seals is in the list")).unwrap_or(0)
}

fn servers_of(pinned: &Pinned) -> Vec<KeyAt> {
    let address = |text: &str| text.parse().expect("addresses of the list are those of sockets");
    pinned.roster().usable().map(|server| (server.key, server.addresses.iter().map(|at| address(at.as_str())).collect())).collect()
}
