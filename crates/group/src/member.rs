//! The machine of one server of a group.
//!
//! Decides when a core is wanted and when it ends. Invariants: there is a core only in a tenure, and one core to a tenure; the core is
//! told of each renewal by the time at which it was heard of, and ends by itself otherwise; the lease is given back only when no core is left.
//!
//! ```text
//!           the lease is won              the store is fenced, a core is given
//! standby ───────────────────▶ elected ─────────────────────────────────────▶ serving
//!    ▲                            │ not in time: given back                      │
//!    └────────────────────────────┴──── the lease is over, or given away ◀───────┘
//! ```

use crate::sealed::SealedNode;
use crate::standby::Standby;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_flease::{Ballot, Config, Member, Node, Peer};
use cistern_link::bugs::{self, Bug};
use cistern_link::{ConfigError, Instant, Machine, Path};
use cistern_seal::{FirstCheck, GroupSealer};
use cistern_server::Server;
use core::time::Duration;
use log::{info, warn};

/// The resource that the group agrees on.
const RESOURCE: &[u8] = b"server";

/// A tenure of this process, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenureId(pub u64);

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The lease was won: fence all others out of the store, then give a core to [`GroupServer::serve`].
    Open(TenureId),
    /// That tenure is over: nothing of its store reaches the machine any more.
    Close(TenureId),
}

/// What this server is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another one serves, or none.
    Standby,
    /// It has the lease, and not yet the store.
    Elected,
    /// It serves, or starts to.
    Serving,
}

/// An unbroken ownership of the lease.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: TenureId,
    ballot: Ballot,
    won: Instant,
    until: Instant,
}

/// A server of a group, as a driver turns it: as [`Server`], with [`Self::poll_duty`] beside.
#[derive(Debug)]
pub struct GroupServer {
    node: SealedNode,
    standby: Standby,
    /// What it is called in every list.
    name: Vec<u8>,
    /// The highest number of a list that the store has told.
    learned: u32,
    core: Option<Server>,
    held: Option<Held>,
    tenures: u64,
    /// When the store has answered last.
    heard: Option<Instant>,
    /// When it may stand for election again, having given the lease back.
    rests_until: Option<Instant>,
    duties: VecDeque<Duty>,
    answers: VecDeque<(Path, Vec<u8>)>,
}

impl GroupServer {
    /// A server that starts now, in the group of `config`, in clear. `seed` is one that nobody has used. It takes no part before it has learned
    /// which servers the store has ([`Self::learn_servers`]); those of `config` count, under number 0, as long as that has none.
    ///
    /// # Errors
    /// The configuration of the group is outside its bounds.
    pub fn new(config: &Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let mut peer = Peer::new(&Config { list_number: 0, ..config.clone() }, seed, now)?;
        peer.await_list(now);
        Ok(Self {
            name: peer.names()[usize::from(config.me)].clone(),
            node: SealedNode::in_clear(Node::new(peer)),
            learned: 0,
            standby: Standby::new(now, config.terms.lease / 8),
            core: None,
            held: None,
            tenures: 0,
            heard: None,
            rests_until: None,
            duties: VecDeque::new(),
            answers: VecDeque::new(),
        })
    }

    /// In the sealed mode: `check` is that of its own key, `sealer` has those of all members.
    #[must_use]
    pub fn sealed(mut self, check: FirstCheck, sealer: GroupSealer) -> Self {
        self.standby.seal(check);
        self.node = self.node.sealed(sealer);
        self
    }

    /// The peers of the group: their addresses, who was heard when.
    #[must_use]
    pub const fn node(&self) -> &SealedNode {
        &self.node
    }

    /// As [`Self::node`], to say where a member is.
    pub const fn node_mut(&mut self) -> &mut SealedNode {
        &mut self.node
    }

    /// The core that serves, or starts to.
    #[must_use]
    pub const fn core(&self) -> Option<&Server> {
        self.core.as_ref()
    }

    /// As [`Self::core`], for its store and its operators.
    pub const fn core_mut(&mut self) -> Option<&mut Server> {
        self.core.as_mut()
    }

    /// The tenure that there is.
    #[must_use]
    pub fn tenure(&self) -> Option<TenureId> {
        self.held.map(|held| held.id)
    }

    /// The core, and the peers of the group beside it.
    pub fn parts(&mut self) -> (Option<&mut Server>, &SealedNode) {
        (self.core.as_mut(), &self.node)
    }

    /// What it is now.
    #[must_use]
    pub fn role(&self, now: Instant) -> Role {
        match (self.node.owned(now, RESOURCE), &self.core) {
            (None, _) => Role::Standby,
            (Some(_), None) => Role::Elected,
            (Some(_), Some(_)) => Role::Serving,
        }
    }

    /// Which member has the lease, as far as this one knows.
    #[must_use]
    pub fn owner(&self, now: Instant) -> Option<Member> {
        self.node.owner(now, RESOURCE).map(|(member, _)| member)
    }

    /// Until when this server's lease of the group is certain, if it has it: after that it must not take the store any more.
    #[must_use]
    pub fn certain_until(&self) -> Option<Instant> {
        self.held.map(|held| held.until)
    }

    /// The store has answered, linearizably, to what was asked after it was heard last: only then this server stands for election.
    pub fn store_answered(&mut self, now: Instant) {
        self.heard = Some(now);
        self.settle(now);
    }

    /// The list of servers that the store has, as it has just answered: names by place, empty ones of those that were removed; `None`: no list yet. Gives
    /// whether another one counts from now on. A later list counts at once, whoever serves; who is not in it takes no part any more.
    pub fn learn_servers(&mut self, now: Instant, list: Option<(u32, &[Vec<u8>])>) -> bool {
        self.settle(now);
        let Some((number, names)) = list else {
            self.node.keep_list();
            return false;
        };
        if number < self.learned {
            return false;
        }
        self.learned = number;
        //= wire-spec.md#11-10-groups-of-servers
        //# A server MUST NOT vote, ask or answer under another list than the newest that it has read from the store.
        let Some(me) = (0..).zip(names).find_map(|(place, name)| (*name == self.name).then_some(place)) else {
            if self.node.is_listed() {
                self.end();
                self.node.await_list(now);
            }
            return false;
        };
        if self.node.is_listed() && number == self.node.list_number() {
            return false;
        }
        self.node.change_list(now, number, names, me);
        if let Some(core) = self.core.take() {
            let (me, names) = self.shown();
            self.core = Some(core.in_group(me, names));
            self.tell_heard();
        }
        true
    }

    /// Whether the list of servers may be changed again: this server serves, and a majority of the newest list, which has this number, has granted or
    /// renewed its lease.
    #[must_use]
    pub fn may_change_servers(&self, now: Instant, newest: u32) -> bool {
        //= wire-spec.md#11-10-groups-of-servers
        //# A server MUST NOT write the next list before its lease of the group was granted or renewed under the newest one.
        let is_agreed = self.node.list_number() == newest && self.node.is_agreed(now, RESOURCE);
        self.core.is_some() && newest > 0 && (is_agreed || bugs::is(Bug::C8))
    }

    /// This server's place among those that there are, and what all of them are called.
    fn shown(&self) -> (u8, Vec<Vec<u8>>) {
        let group = self.node.group();
        let me = group.members.iter().take_while(|member| *member != group.me).count();
        let names = group.members.iter().map(|member| self.node.names()[usize::from(member)].clone());
        (u8::try_from(me).unwrap_or(0), names.collect())
    }

    /// What is to be done; the driver asks after each turn until there is nothing.
    pub fn poll_duty(&mut self) -> Option<Duty> {
        self.duties.pop_front()
    }

    /// The store is this server's, since [`Duty::Open`] of this tenure, and `core` is to serve it. False: the tenure is over.
    pub fn serve(&mut self, now: Instant, tenure: TenureId, core: Server) -> bool {
        self.settle(now);
        let Some(held) = self.held.filter(|held| held.id == tenure && self.core.is_none()) else { return false };
        //= wire-spec.md#11-10-groups-of-servers
        //# The grace of an elected server MUST begin when its lease of the group was granted, and not before.
        let won = if bugs::is(Bug::C4) { Instant::new(0, 0) } else { held.won };
        let (me, names) = self.shown();
        self.core = Some(core.elected(won, held.until).in_group(me, names));
        self.tell_heard();
        true
    }

    /// Stops serving, and gives the lease to another: to `successor`, if one is named.
    pub fn hand_over(&mut self, now: Instant, successor: Option<Member>) {
        self.settle(now);
        //= wire-spec.md#11-10-groups-of-servers
        //# A server MUST NOT give its lease back before it has stopped for good in that tenure.
        self.end();
        self.node.release(now, RESOURCE, successor);
        // As long as others may take to notice, and once more for them to win.
        self.rests_until = Some(now.plus(4 * self.lease()));
    }

    /// Who was heard when, for those who ask the core: as often as the lease is renewed.
    fn tell_heard(&mut self) {
        let Self { node, core, .. } = self;
        if let Some(core) = core {
            core.group_heard(node.group().members.iter().map(|member| node.heard(member)).collect());
        }
    }

    fn lease(&self) -> Duration {
        self.node.group().terms.lease
    }

    /// The tenure is over, with all that was known in it.
    fn end(&mut self) {
        self.core = None;
        if let Some(held) = self.held.take() {
            self.duties.push_back(Duty::Close(held.id));
        }
    }

    /// Draws the consequences of what the lease is now.
    fn settle(&mut self, now: Instant) {
        match (self.held, self.node.owned(now, RESOURCE)) {
            (Some(held), Some(owned)) if held.ballot == owned.tenure || bugs::is(Bug::C3) => {
                if held.until != owned.until {
                    self.held = Some(Held { ballot: owned.tenure, until: owned.until, ..held });
                    self.core.iter_mut().for_each(|core| core.renew_tenure(now, owned.until));
                    self.tell_heard();
                }
            }
            (Some(_), None) if bugs::is(Bug::C2) || bugs::is(Bug::C3) => {}
            (held, owned) => {
                if held.is_some() {
                    warn!("the lease of the group is over");
                    self.end();
                }
                if let Some(owned) = owned {
                    self.tenures += 1;
                    let id = TenureId(self.tenures);
                    info!("elected: the lease of the group is this server's");
                    self.held = Some(Held { id, ballot: owned.tenure, won: now, until: owned.until });
                    self.duties.push_back(Duty::Open(id));
                }
            }
        }
        self.stand(now);
    }

    /// Stands for election, or does not.
    fn stand(&mut self, now: Instant) {
        // Whoever has won and cannot have the store lets another one try.
        let late = self.held.filter(|held| self.core.is_none() && now.waited(held.won.plus(4 * self.lease())));
        if late.is_some() {
            warn!("the store has not answered in time: the lease of the group is given back");
            return self.give_back(now);
        }
        let is_rested = self.rests_until.is_none_or(|until| now.waited(until));
        let heard_within = |span: Duration| self.heard.is_some_and(|heard| !now.waited(heard.plus(span)));
        //= wire-spec.md#11-10-groups-of-servers
        //# A server MUST NOT stand for election unless the store has answered it within the last L.
        let hears = heard_within(self.lease());
        let is_deaf = !heard_within(2 * self.lease());
        self.node.set_hears(hears);
        if self.held.is_some() {
            //= wire-spec.md#11-10-groups-of-servers
            //# An elected server that the store has not answered for 2 L SHOULD give its lease back while another one says that it hears the store.
            if is_deaf && self.core.is_some() && self.node.another_hears(now, self.lease()) {
                warn!("the store answers others, and not this server: the lease of the group is given back");
                self.give_back(now);
            }
            return;
        }
        if is_rested && hears && self.node.is_listed() {
            // The name is short and the only one.
            let _ = self.node.acquire(now, RESOURCE);
        } else {
            self.node.release(now, RESOURCE, None);
        }
    }

    fn give_back(&mut self, now: Instant) {
        self.end();
        self.node.release(now, RESOURCE, None);
        self.rests_until = Some(now.plus(2 * self.lease()));
    }
}

impl Machine for GroupServer {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        if SealedNode::is_between_members(datagram) {
            self.node.handle_datagram(now, path, datagram);
            return self.settle(now);
        }
        match self.core.as_mut().filter(|core| core.is_serving()) {
            Some(core) => core.handle_datagram(now, path, datagram),
            None => {
                // Who is elected and has not begun to serve sends nobody to itself.
                let serving = self.owner(now).filter(|owner| *owner != self.node.group().me);
                if let Some(answer) = self.standby.answer(now, datagram, serving) {
                    self.answers.push_back((path, answer));
                }
            }
        }
    }

    fn handle_drained(&mut self, now: Instant) {
        self.node.handle_drained(now);
        self.settle(now);
        self.core.iter_mut().for_each(|core| core.handle_drained(now));
    }

    fn work(&mut self, now: Instant) {
        self.core.iter_mut().for_each(|core| core.work(now));
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        if let Some(path) = self.node.poll_transmit(now, buf) {
            return Some(path);
        }
        if let Some((path, answer)) = self.answers.pop_front() {
            *buf = answer;
            return Some(path);
        }
        self.core.as_mut()?.poll_transmit(now, buf)
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        let node = self.node.wake_after(now);
        let core = self.core.as_mut().and_then(|core| core.wake_after(now));
        // Whether it stands for election is looked at as often as the lease is renewed.
        let own = Some(self.lease() / 4);
        [node, core, own].into_iter().flatten().min()
    }

    fn max_datagram(&self) -> usize {
        self.core.as_ref().map_or(0, Server::max_datagram).max(self.node.max_datagram())
    }
}
