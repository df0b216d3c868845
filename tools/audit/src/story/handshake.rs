//! Handshakes: by which HELLO a session was opened, what it was promised, and which start of the server did it.
//!
//! Decides when a server was started anew (a WELCOME with a higher incarnation) and which address has proven itself (one that was
//! welcomed), and which sessions end because another one is confirmed. Place in the walk: under `story`, for datagrams of session 0, and for
//! CONFIRM. Implements `wire-spec.md` sections 6.1 and 11.6. Invariant: a session begins with the first WELCOME that names it.
//! Leaves to others: everything that happens in the session.

use super::server::{Handshake, Helloed};
use super::session::{Promise, Session};
use super::{Seen, Story, raw};
use crate::event::{Answer, Cause, What};
use crate::verdict::Why;
use cistern_wire::limits::FEATURE_VOLATILE;
use cistern_wire::{AgentId, Claim, Confirm, Escaped, Hello, Kind, Message, SessionId, Welcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Story {
    pub(super) fn handshake(&mut self, seen: &Seen<'_>) {
        for (message, _) in raw::messages(seen.passage.payload) {
            match message {
                Message::Hello(hello) => self.hello(seen, &hello),
                Message::Challenge(m) => {
                    if let Some(known) = self.handshakes.get_mut(&m.handshake) {
                        known.cookie(raw::sum(m.cookie.0), seen.passage.to, m.echo);
                    }
                    let _cause = self.opening_answer(seen, Kind::Challenge, m.handshake, m.echo);
                }
                Message::Refuse(m) => {
                    let _cause = self.opening_answer(seen, Kind::Refuse, m.handshake, m.echo);
                }
                Message::Welcome(welcome) => self.welcome(seen, &welcome),
                _ => {}
            }
        }
    }

    fn hello(&mut self, seen: &Seen<'_>, hello: &Hello<'_>) {
        let from = seen.passage.from;
        let host = self.hosts.name_agent(from, hello.agent, hello.label.0);
        let helloed = Helloed {
            mark: seen.mark(),
            length: seen.length(),
            from,
            agent: (hello.agent, hello.incarnation),
            cookie: raw::sum(hello.cookie.0),
            has_cookie: !hello.cookie.0.is_empty(),
            window: hello.window,
            max_datagram: hello.max_datagram,
        };
        let handshake = self.handshakes.entry(hello.handshake).or_insert_with(|| Handshake {
            agent: hello.agent,
            incarnation: hello.incarnation,
            asked: hello.lease_us != 0,
            first_packet: hello.first_packet,
            host,
            label: Escaped(hello.label.0).to_string(),
            last: Duration::ZERO,
            hellos: BTreeMap::new(),
            more: false,
            cookies: Vec::new(),
            more_cookies: false,
        });
        if let Some(of) = handshake.hello(seen.header.packet, helloed) {
            self.tally.copies += 1;
            self.events.push(seen.event(What::Copy { of }));
        }
        self.events.push(seen.event(What::Hello {
            handshake: hello.handshake,
            agent: hello.agent,
            incarnation: hello.incarnation,
            cookie: !hello.cookie.0.is_empty(),
        }));
    }

    /// CONFIRM: the session takes the place of the agent's others, at once or by D.
    pub(super) fn confirms(&mut self, seen: &Seen<'_>, confirm: &Confirm<'_>) {
        let id = seen.session();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.claims.get_or_insert_with(|| confirm.former.iter().map(|former| former.session).collect());
        let of = session.agent.map(|agent| (agent, session.agent_incarnation));
        let own = of.and_then(|(agent, _)| self.of_agent.get(&agent)).cloned().unwrap_or_default();
        for other in own.into_iter().filter(|other| *other != id) {
            if let Some(session) = self.sessions.get_mut(&other) {
                session.superseded |= of.is_some_and(|(_, incarnation)| session.agent_incarnation <= incarnation);
            }
        }
        for former in confirm.former.iter().filter(|former| former.claim == Claim::Surrendered) {
            match self.may_surrender(of, former.session) {
                Ok(true) => self.gives_up(seen, former.session, None),
                Ok(false) => {}
                Err(why) => self.doubt(former.session, why),
            }
        }
    }

    /// KNOWN: the session that CONFIRM names goes on, and the one that was offered is never opened.
    pub(super) fn goes_on(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.superseded = false;
        }
    }

    /// Whether a start of an agent can say that a session is surrendered: only the one whose it is knows (section 11.6).
    fn may_surrender(&self, of: Option<(AgentId, u64)>, id: SessionId) -> Result<bool, Why> {
        let Some(session) = self.sessions.get(&id) else { return Ok(false) };
        match (session.agent, of) {
            (Some(agent), Some(of)) => Ok((agent, session.agent_incarnation) == of),
            _ => Err(Why::Late),
        }
    }

    /// CHALLENGE, REFUSE or WELCOME: what it answers.
    fn opening_answer(&mut self, seen: &Seen<'_>, kind: Kind, handshake: u64, echo: u64) -> Cause {
        let known = self.handshakes.get(&handshake);
        let cause = match known.and_then(|known| known.hello_at(echo, seen.passage.to)) {
            Some(hello) => Cause::Seen { frame: hello.mark.frame, at: hello.mark.at, length: hello.length },
            None if known.is_some_and(|known| known.more) => Cause::Forgotten,
            None => Cause::Unseen,
        };
        self.events.push(seen.event(What::Answer(Answer {
            kind,
            number: handshake,
            echo: Some(echo),
            cause,
            reply: None,
            status: None,
            repeats: None,
            before: None,
            differs: false,
            unfit: None,
            limit: 0,
            renewal: None,
        })));
        cause
    }

    fn welcome(&mut self, seen: &Seen<'_>, welcome: &Welcome) {
        let server = self.hosts.name_server(seen.passage.from, welcome.store);
        self.started(seen, server, welcome);
        self.proves(seen.passage.to);
        let again = self.sessions.get(&welcome.session).is_some_and(|session| session.opened.is_some());
        self.open(seen, server, welcome);
        let _cause = self.opening_answer(seen, Kind::Welcome, welcome.handshake, welcome.echo);
        self.events.push(seen.event(What::Welcome {
            session: welcome.session,
            handshake: welcome.handshake,
            store: welcome.store,
            incarnation: (welcome.epoch, welcome.server_incarnation),
            again,
        }));
    }

    /// Which start of which store this is.
    fn started(&mut self, seen: &Seen<'_>, host: usize, welcome: &Welcome) {
        let now = (welcome.epoch, welcome.server_incarnation);
        let server = self.servers.entry(host).or_default();
        let other_store = server.store.is_some_and(|store| store != welcome.store);
        if other_store || server.store.is_none() || welcome.features & FEATURE_VOLATILE != 0 && server.store != Some(welcome.store) {
            if other_store {
                *server = super::Server { exchanges: std::mem::take(&mut server.exchanges), ..super::Server::default() };
            }
            server.store = Some(welcome.store);
        }
        match server.incarnation {
            None => server.incarnation = Some((now, seen.mark())),
            Some((before, _)) if before < now => {
                server.incarnation = Some((now, seen.mark()));
                (server.died_after, server.died_frame) = (server.last_sent, server.last_frame);
                server.nobody_waits();
                (server.awaited, server.perhaps_awaited) =
                    if before.0 == now.0 { awaited(host, server, &self.sessions, seen.passage.at) } else { Default::default() };
                if before.0 < now.0 {
                    server.restored();
                }
                let store = welcome.store;
                self.events.push(seen.event(What::Restarted { store, before, now }));
            }
            Some(_) => {}
        }
    }

    fn open(&mut self, seen: &Seen<'_>, server: usize, welcome: &Welcome) {
        let handshake = self.handshakes.get(&welcome.handshake);
        let host = handshake.map_or(seen.to, |handshake| handshake.host);
        let (agent, incarnation) = handshake.map_or((None, 0), |handshake| (Some(handshake.agent), handshake.incarnation));
        let asked = handshake.is_some_and(|handshake| handshake.asked);
        let first = [Some(welcome.first_packet), handshake.map(|handshake| handshake.first_packet)];
        let late = self.sessions.contains_key(&welcome.session);
        let session = self.sessions.entry(welcome.session).or_insert_with(|| Session::new(welcome.session, host, server));
        session.last = seen.passage.at;
        session.paths.insert(seen.passage.to);
        if session.opened.is_some() {
            return;
        }
        self.tally.sessions += u64::from(!late);
        // One whose datagrams were seen before its WELCOME was opened by another copy of that: its beginning is not here.
        if !late {
            session.opened = Some(seen.mark());
        }
        (session.host, session.server, session.asked, session.first) = (host, server, asked, first);
        (session.agent, session.agent_incarnation, session.handshake) = (agent, incarnation, welcome.handshake);
        session.label = handshake.map(|handshake| handshake.label.clone()).unwrap_or_default();
        if let Some(agent) = agent {
            self.of_agent.entry(agent).or_default().insert(welcome.session);
        }
        session.incarnation = Some((welcome.epoch, welcome.server_incarnation));
        let micros = Duration::from_micros;
        let promise = Promise::new(micros(welcome.lease_us), welcome.delta_ppm, micros(welcome.epsilon_us.into()));
        session.promise = Some(Promise {
            delivery_timeout: micros(welcome.delivery_timeout_us.into()),
            window: welcome.window,
            max_datagram: welcome.max_datagram,
            ..promise
        });
        session.evidence = (0, seen.passage.at);
        if let Some(server) = self.servers.get_mut(&server) {
            server.handles.insert(welcome.handle, welcome.session);
        }
    }
}

/// Sessions that a start has to wait for, for they hold something and cannot have ended before it: it was before `now`; and those of which
/// that may be so.
fn awaited(
    host: usize,
    server: &super::Server,
    sessions: &BTreeMap<SessionId, Session>,
    now: Duration,
) -> (Vec<SessionId>, Vec<SessionId>) {
    let holders: BTreeSet<SessionId> = server.holds.values().flatten().map(|hold| hold.session).collect();
    let lasts = |until: Option<Duration>| until.is_some_and(|until| until > now);
    let free = |session: &&Session| session.given_up.is_none() && session.stolen.is_none();
    let held = holders.iter().filter_map(|id| sessions.get(id)).filter(free);
    let (certain, perhaps): (Vec<_>, Vec<_>) = held.partition(|session| lasts(session.possible_until()));
    // Whoever is not known to hold anything may have held what was forgotten.
    let others =
        sessions.values().filter(|session| server.short.holds.is_some() && session.server == host && !holders.contains(&session.id));
    let perhaps = perhaps.into_iter().chain(others.filter(free)).filter(|session| lasts(session.latest_until()));
    let ids = |all: &mut dyn Iterator<Item = &Session>| all.map(|session| session.id).collect();
    (ids(&mut certain.into_iter()), ids(&mut perhaps.into_iter()))
}
