//! A server of a group: a loop that turns a `GroupServer`, which has a core as long as it has the group's lease.
//!
//! Decides what follows from each duty of the machine: a store is taken and given back by threads of their own, so that the loop goes on renewing
//! the lease; a store that fails ends the core, not the process; who is asked to end hands the lease over first.
//! Place in the walk: as `alone`, around whichever core there is. Invariant: a backing is that of the machine's core, or is being closed.
//! Leaves to others: when this server serves (`cistern_group`), the threads (`opener`), which servers there are (`servers`), what is told of the group (`report`).

mod opener;
mod report;
mod servers;

use super::guests::{Backing, ServerGuests};
use super::{Serve, ServedBy, failed};
use crate::capture;
use crate::group::{Found, GroupList, LookFor, Troubles, look_for_others};
use crate::local::Failure;
use crate::on_etcd::{Probed, StoredServers, probe};
use crate::server_control::GroupRequest;
use cistern_credentials::ServerKeys;
use cistern_driver::{Address, ConnectionId, EventLoop, Handle, LoopOptions, Owned, Registry, Services, Token, UdpPort, seed};
use cistern_flease::{Config, Terms};
use cistern_group::{Duty, GroupServer, TenureId};
use cistern_link::Instant;
use cistern_seal::{FirstCheck, PublicKey};
use cistern_trust::ServerState;
use opener::{Opened, Opener};
use report::{GroupMoment, named};
use serde_json::json;
use servers::{ServersChange, address};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the others have to confirm that the lease was given back, when the process ends. Whoever has not heard by then waits for its end.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// This process's place in its group.
pub(super) struct Member {
    list: GroupList,
    me: u8,
}

impl Member {
    /// The one that was named, or the one with an address of this host.
    pub(super) fn of(list: &GroupList, args: &Serve) -> Result<Self, Failure> {
        let me = args.me.as_ref().map_or_else(|| list.place_of_this_host(), |named| list.place_of(named))?;
        Ok(Self { list: list.clone(), me })
    }

    /// Where it listens if no other address is named.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        self.list.address(self.me)
    }

    /// The group's name and its own.
    pub(super) fn named(&self) -> (String, String) {
        (self.list.to_string(), named(&self.list, self.me))
    }

    /// The keys of all members, in their order, as the cluster's roster has them.
    fn keys(&self, keys: &ServerKeys) -> Result<Vec<PublicKey>, Failure> {
        self.list.members().iter().map(|member| key_of(keys, member)).collect()
    }
}

/// The key of a server, as the cluster's roster has it.
fn key_of(keys: &ServerKeys, member: &Address) -> Result<PublicKey, Failure> {
    let name = member.to_string();
    let at = |entry: &&cistern_trust::ServerEntry| {
        entry.state == ServerState::Serving && entry.addresses.iter().any(|address| address.as_str() == name)
    };
    let lacks = || {
        Failure::usage(format!(
            "the cluster's roster here names no server at {name}: `cisternd init --address {name}` on that host adds it"
        ))
    };
    keys.pinned.roster().servers.iter().find(at).map(|entry| entry.key).ok_or_else(lacks)
}

/// Whether the process was asked to end.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks it.
    pub(super) fn ask(&self, handle: &Handle) {
        self.0.store(true, Ordering::Release);
        handle.wake();
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The guests of the loop, and what its core has while there is one.
pub(super) struct GroupServices {
    guests: ServerGuests,
    member: Member,
    troubles: Troubles,
    found: Receiver<Found>,
    /// Tells the thread that looks for the others.
    look: Sender<LookFor>,
    probed: Receiver<Probed>,
    opener: Opener,
    backing: Option<(TenureId, Backing)>,
    /// Why the store cannot be had, as it was told last.
    trouble: Option<String>,
    /// Has the store ever answered?
    heard_store: bool,
    /// The list of servers that the store had when it was asked last.
    stored: Option<StoredServers>,
    /// Another list of servers that was written, and who waits for it.
    changing: Option<ServersChange>,
    /// Who waits until another server serves, and until when.
    handing_over: Option<(ConnectionId, Instant)>,
    stop: Stop,
    /// The process ends: when, at the latest.
    leaves_by: Option<Instant>,
}

/// Puts the loop together.
///
/// # Errors
/// A setting, a key, an address or the system is in the way.
pub(super) fn set_up(
    args: &Serve,
    member: Member,
    guests: ServerGuests,
    ports: Vec<UdpPort>,
    keys: Option<&ServerKeys>,
    state: &Path,
    stop: &Stop,
) -> Result<EventLoop<Owned<GroupServer>, GroupServices>, Failure> {
    let terms = Terms { lease: args.group_lease, drift_ppm: guests.config.delta_ppm, ..Terms::default() };
    let config = Config {
        terms,
        list_number: 0,
        members: member.list.names(),
        me: member.me,
        renew_by_write: false,
        resources_max: 1,
        reserved: None,
    };
    let now = guests.clock.now();
    let seed = seed().map_err(|e| super::internal(&e))?;
    // The restart wait counts from here: from when the port was this process's, and no earlier one could send.
    let mut machine = GroupServer::new(&config, *seed, now).map_err(|e| Failure::usage(format!("--group: {e}")))?;
    if let Some((keys, own)) = keys.and_then(|keys| Some((keys, keys.keys.first()?))) {
        let sealer = member.list.sealer(member.me, member.keys(keys)?, own, state)?;
        machine = machine.sealed(FirstCheck::of(&own.public()), sealer);
    }
    let ours = ports.first().map_or_else(|| member.address(), |port| Ok(port.local_addr()))?;
    let (found, look) = look_for_others(member.list.clone(), member.me, ours)?;
    let store = args.store.clone().unwrap_or_default();
    let (tell, probed) = channel();
    let bell = guests.bell.clone();
    probe(&store, terms.lease / 4, move |came| {
        let is_heard = tell.send(came).is_ok();
        bell.get().into_iter().for_each(Handle::wake);
        is_heard
    })?;
    let opener = Opener::new(store, state, args.insecure, &guests);
    let options = LoopOptions {
        name: format!("server {}", named(&member.list, member.me)),
        tap: capture::tap(),
        spin: guests.config.spin,
        ..LoopOptions::default()
    };
    let clock = guests.clock.clone();
    let services = GroupServices {
        troubles: Troubles::new(&member.list),
        guests,
        member,
        found,
        look,
        probed,
        opener,
        backing: None,
        trouble: None,
        heard_store: false,
        stored: None,
        changing: None,
        handing_over: None,
        stop: stop.clone(),
        leaves_by: None,
    };
    EventLoop::new(ports, Owned(machine), services, clock, options).map_err(|e| failed("ADDRESS", &e))
}

impl ServedBy for GroupServices {
    fn guests(&mut self) -> &mut ServerGuests {
        &mut self.guests
    }
}

impl Services<GroupServer> for GroupServices {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        // It waits for it, and lives as long as the process.
        let _ = self.look.send(LookFor::Loop(handle.clone()));
        self.guests.register(registry, handle)
    }

    fn on_ready(&mut self, machine: &mut GroupServer, now: Instant, token: Token) {
        let (view, outside) = (GroupMoment::of(machine, now), self.outside_of(machine));
        let Self { guests, member, troubles, backing, .. } = self;
        let (core, node) = machine.parts();
        let group = || view.shown(node, now, &member.list, troubles, outside.as_deref());
        let core = core.zip(backing.as_ref().map(|(_, backing)| backing));
        guests.on_ready(core, Some(&group), now, token);
    }

    fn between_rounds(&mut self, machine: &mut GroupServer) {
        if let (Some(core), Some((_, backing))) = (machine.core_mut(), &mut self.backing) {
            backing.between_rounds(core);
        }
    }

    fn after_turn(&mut self, machine: &mut GroupServer, now: Instant) -> ControlFlow<()> {
        let served = self.served(machine, now);
        self.do_duties(machine, now);
        match served {
            Ok(goes_on) => goes_on,
            Err(failure) => {
                self.guests.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.leaves_by.map(|by| now.until_lease_over(by))
    }
}

impl GroupServices {
    fn served(&mut self, machine: &mut GroupServer, now: Instant) -> Result<ControlFlow<()>, Failure> {
        self.guests.announce()?;
        self.hear(machine, now)?;
        while let Some(opened) = self.opener.opened() {
            self.opened(machine, now, opened);
        }
        self.serve_core(machine, now)?;
        self.answer_operators(machine, now);
        if !self.stop.is_asked() {
            return Ok(ControlFlow::Continue(()));
        }
        let by = *self.leaves_by.get_or_insert_with(|| {
            machine.hand_over(now, None);
            now.plus(LEAVE_TIME)
        });
        let waits = machine.node().is_leaving() && !now.lease_over(by);
        Ok(if waits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// What others have found: members, keys that do not fit, the store.
    fn hear(&mut self, machine: &mut GroupServer, now: Instant) -> Result<(), Failure> {
        let list = &self.member.list;
        let node = machine.node_mut();
        self.found.try_iter().for_each(|found| found.tell(node, list));
        self.troubles.look_at(node, list);
        while let Some(event) = node.poll_event() {
            self.troubles.note(&event, list);
        }
        for probed in self.probed.try_iter().collect::<Vec<_>>() {
            let trouble = match probed {
                Probed::Answered(stored) => {
                    self.heard_store = true;
                    self.learn_servers(machine, now, stored);
                    machine.store_answered(now);
                    None
                }
                Probed::Silent(why) => Some(why),
                // Whoever starts on a store that is none has named the wrong one; later it may come back.
                Probed::Wrong(failure) if !self.heard_store => return Err(failure),
                Probed::Wrong(failure) => Some(failure.message),
            };
            match (&self.trouble, &trouble) {
                (None, Some(why)) => log::warn!("the store does not answer: {why}; this server takes over from nobody until it does"),
                (Some(_), None) => log::info!("the store answers"),
                _ => {}
            }
            self.trouble = trouble;
        }
        Ok(())
    }

    /// A store was taken, or could not be.
    fn opened(&mut self, machine: &mut GroupServer, now: Instant, Opened { tenure, came }: Opened) {
        if let Ok((store, _)) = &came {
            self.learn_servers(machine, now, store.0.servers());
        }
        let started = came.and_then(|(store, keys)| self.guests.start_core(now, store, keys.as_ref()));
        match started {
            Ok((core, backing)) => match machine.serve(now, tenure, core) {
                true => self.backing = Some((tenure, backing)),
                false => Opener::close(backing),
            },
            Err(failure) if machine.tenure() == Some(tenure) => {
                log::error!("this server cannot serve: {}", failure.message);
                machine.hand_over(now, None);
            }
            Err(failure) => log::info!("the store was not taken: {}", failure.message),
        }
    }

    fn serve_core(&mut self, machine: &mut GroupServer, now: Instant) -> Result<(), Failure> {
        let (view, outside) = (GroupMoment::of(machine, now), self.outside_of(machine));
        let Self { guests, member, troubles, backing, .. } = self;
        let (core, node) = machine.parts();
        let group = || view.shown(node, now, &member.list, troubles, outside.as_deref());
        let (Some(core), Some((_, backing))) = (core, backing) else {
            guests.stand_by(&group);
            return Ok(());
        };
        guests.after_turn(core, backing, Some(&group), now)?;
        if let Some(failure) = backing.failure(core) {
            log::error!("this server stops serving: {}", failure.message);
            machine.hand_over(now, None);
        }
        Ok(())
    }

    /// An operator wants another server to serve, or other servers.
    fn answer_operators(&mut self, machine: &mut GroupServer, now: Instant) {
        if let Some((asked, wanted)) = self.guests.operators.take_group_request() {
            let begun = match wanted {
                GroupRequest::HandOver(to) => self.successor(machine, now, to.as_deref()).map(|successor| {
                    machine.hand_over(now, successor);
                    self.handing_over = Some((asked, now.plus(8 * machine.node().group().terms.lease)));
                }),
                GroupRequest::Add(name) => self.change_servers(machine, now, asked, &name, GroupList::with),
                GroupRequest::Remove(name) => self.change_servers(machine, now, asked, &name, GroupList::without),
            };
            if let Err(failure) = begun {
                self.guests.operators.group_answered(asked, Err(failure));
            }
        }
        self.servers_changed(machine, now);
        self.handed_over(machine, now);
    }

    /// Tells who waits for another server that it serves.
    fn handed_over(&mut self, machine: &GroupServer, now: Instant) {
        let Some((asked, until)) = self.handing_over else { return };
        let came = match machine.owner(now) {
            Some(other) if other != self.member.me => Ok(json!({ "to": named(&self.member.list, other) })),
            _ if now.waited(until) => {
                Err(Failure::failed("nobody has taken over yet: `cistern admin status` on the other servers says why; this one stands by"))
            }
            _ => return,
        };
        self.handing_over = None;
        self.guests.operators.group_answered(asked, came);
    }

    /// Who is to be next, if one is named.
    fn successor(&self, machine: &GroupServer, now: Instant, to: Option<&str>) -> Result<Option<u8>, Failure> {
        if machine.core().is_some_and(|core| core.status(now).grace.is_some()) {
            return Err(Failure::failed(
                "agents of before the last take-over may still come back: ask again when the grace is over (`cistern admin status`)",
            ));
        }
        let Some(to) = to else { return Ok(None) };
        let list = &self.member.list;
        let named = address(to)?;
        let place = list.place_of(&named)?;
        if place == self.member.me {
            return Err(Failure::usage(format!("{to} is this server: name another one, or none")));
        }
        let recently = machine.node().group().terms.lease;
        match machine.node().heard(place) {
            Some(heard) if now.since(heard) < recently => Ok(Some(place)),
            _ => Err(Failure::failed(format!("{to} was not heard within {recently:?}: it could not take over"))),
        }
    }

    fn do_duties(&mut self, machine: &mut GroupServer, now: Instant) {
        while let Some(duty) = machine.poll_duty() {
            match duty {
                Duty::Open(tenure) => self.opener.open(tenure, (machine.node().list_number(), self.member.list.to_store())),
                Duty::Close(tenure) => {
                    if let Some((_, backing)) = self.backing.take_if(|(of, _)| *of == tenure) {
                        self.guests.operators.core_ended();
                        Opener::close(backing);
                    }
                }
            }
        }
        self.opener.certain(machine.tenure().zip(machine.certain_until()).filter(|(_, until)| !now.lease_over(*until)));
    }
}
