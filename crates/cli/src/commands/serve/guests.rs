//! What a server's process has beside its machine: the control socket, the log of revocations, settings, metrics; and what a core has for itself.
//!
//! Decides the order in which they are served in a turn. Place in the walk: after the machine took what had arrived, before it is asked what to
//! send. A server of a group has one core after the other, and the same guests.
//! Leaves to others: each guest's own file.

use super::announcement::Announcement;
use super::in_force::InForce;
use super::kept::{Bell, Kept};
use super::operators::{Around, AskedCore, GroupView, Operators};
use super::revoked::RevokedLog;
use super::sealing::{KeysInForce, Sealing};
use crate::execute::{EXIT_IN_USE, EXIT_SOFTWARE, EXIT_STORE};
use crate::local::Failure;
use crate::metrics::{Published, Publisher, Snapshot, StandbySnapshot};
use crate::on_etcd::StoredServers;
use cistern_credentials::ServerKeys;
use cistern_driver::{Clock, Handle, Registry, Stats, Token, seed};
use cistern_link::Instant;
use cistern_seal::KeySink;
use cistern_server::{Config, Server};
use cistern_wire::StoreId;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the server is told the wall clock anew, as far as it is awake: it may be set, and files have times.
const WALL_CLOCK_PERIOD: Duration = Duration::from_secs(60);

/// The guests of a server's loop.
pub(super) struct ServerGuests {
    pub(super) bell: Bell,
    pub(super) operators: Operators,
    pub(super) revoked: RevokedLog,
    pub(super) in_force: Arc<InForce>,
    /// With which the next core starts.
    pub(super) config: Config,
    pub(super) keys: Option<Arc<KeysInForce>>,
    pub(super) key_log: Option<KeySink>,
    pub(super) clock: Clock,
    pub(super) stats: Arc<Stats>,
    pub(super) publisher: Option<Publisher>,
    /// What is told once the server answers.
    pub(super) announcement: Option<Announcement>,
    /// Why the loop was ended.
    pub(super) failure: Option<Failure>,
}

/// What a core has for itself: its store, and the threads for its handshakes.
pub(super) struct Backing {
    store: Kept,
    sealing: Option<Sealing>,
    wall_clock_told: Instant,
}

impl ServerGuests {
    /// A core that starts now on a store, and serves sealed if there are keys.
    ///
    /// # Errors
    /// A setting is outside its bounds, or the system has no thread or no randomness to spare.
    pub(super) fn start_core(
        &mut self,
        now: Instant,
        (store, id): (Kept, StoreId),
        keys: Option<&ServerKeys>,
    ) -> Result<(Server, Backing), Failure> {
        let seed = seed().map_err(|e| Failure::new("INTERNAL", EXIT_SOFTWARE, e.to_string()))?;
        let server = Server::new(now, wall_clock(), id, self.config.clone(), *seed);
        let mut server = server.map_err(|e| Failure::usage(e.to_string()))?;
        self.revoked.tell(&mut server, now);
        let (sealing, server) = match (keys, &self.keys) {
            (Some(keys), Some(in_force)) => {
                let started = Sealing::start(keys, in_force, self.key_log.as_ref(), server, &self.bell, now);
                started.map(|(sealing, server)| (Some(sealing), server))?
            }
            _ => (None, server),
        };
        Ok((server, Backing { store, sealing, wall_clock_told: now }))
    }

    /// Registers what has sources.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        // Registered once, so it is empty.
        let _ = self.bell.set(handle.clone());
        self.operators.register(registry)
    }

    /// The control socket is ready.
    pub(super) fn on_ready(&mut self, core: Option<(&mut Server, &Backing)>, group: Option<GroupView<'_>>, now: Instant, token: Token) {
        let Self { stats, in_force, operators, .. } = self;
        let core = core.map(|(server, backing)| AskedCore { server, store: &backing.store });
        operators.on_ready(token, core, &Around { now, stats, in_force, group });
    }

    /// Serves a core in its turn.
    ///
    /// # Errors
    /// Why the process has to end.
    pub(super) fn after_turn(
        &mut self,
        server: &mut Server,
        backing: &mut Backing,
        group: Option<GroupView<'_>>,
        now: Instant,
    ) -> Result<(), Failure> {
        if now.since(backing.wall_clock_told) >= WALL_CLOCK_PERIOD {
            backing.wall_clock_told = now;
            // What it showed at `now`: both are read here, and the turn may have taken its time since.
            let since = i64::try_from(self.clock.now().since(now).as_nanos()).unwrap_or(0);
            server.set_wall_clock(now, wall_clock() - since);
        }
        if let Some(config) = self.in_force.take() {
            server.adopt(now, &config);
            self.config = config;
        }
        if let Some(sealing) = &mut backing.sealing {
            sealing.serve(server, now);
        }
        let Self { stats, in_force, operators, .. } = self;
        operators.take_lines(AskedCore { server, store: &backing.store }, &Around { now, stats, in_force, group });
        backing.store.serve(server, now);
        self.revoked.unite_once(server)?;
        self.operators.tell(server, now, &mut self.revoked);
        if let Some(publisher) = &self.publisher {
            publisher.publish(|with_overview| {
                Published::Core(Box::new(Snapshot {
                    figures: server.figures(now),
                    driver: self.stats.read(),
                    store: backing.store.stats(),
                    overview: with_overview.then(|| server.overview(now)),
                    group: group.map(|group| group()),
                }))
            });
        }
        Ok(())
    }

    /// Serves who asks for figures in a turn of a server that has no core.
    pub(super) fn stand_by(&self, group: GroupView<'_>) {
        if let Some(publisher) = &self.publisher {
            publisher.publish(|_| Published::Standby(Box::new(StandbySnapshot { driver: self.stats.read(), group: group() })));
        }
    }

    /// Tells where the server is found, once.
    ///
    /// # Errors
    /// It cannot be told.
    pub(super) fn announce(&mut self) -> Result<(), Failure> {
        //= wire-spec.md#3-5-validation-and-drops
        //# A server that announces by whatever means that it is ready MUST answer from then on.
        self.announcement.take().map_or(Ok(()), Announcement::tell)
    }
}

impl Backing {
    /// As [`Kept::change_servers`].
    pub(super) fn change_servers(&mut self, list: StoredServers) {
        self.store.change_servers(list);
    }

    /// Hands work on within a turn.
    pub(super) fn between_rounds(&mut self, server: &mut Server) {
        self.store.hand_over_early(server);
        if let Some(sealing) = &mut self.sealing {
            sealing.hand_over(server);
        }
    }

    /// Why the core answers nothing any more, if its store has failed.
    pub(super) fn failure(&self, server: &Server) -> Option<Failure> {
        let (code, exit) = if self.store.was_superseded() { ("STORE_IN_USE", EXIT_IN_USE) } else { ("STORE", EXIT_STORE) };
        server.failure().map(|why| Failure::new(code, exit, why))
    }
}

/// Nanoseconds since 1970.
fn wall_clock() -> i64 {
    let since = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(span) => since(span),
        Err(before) => -since(before.duration()),
    }
}
