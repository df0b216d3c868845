//! The server of a store that is its own: one core, for the life of the process.

use super::guests::{Backing, ServerGuests};
use super::kept::Kept;
use super::{ServedBy, failed};
use crate::capture;
use crate::local::Failure;
use cistern_credentials::ServerKeys;
use cistern_driver::{EventLoop, Handle, LoopOptions, Owned, Registry, Services, Token, UdpPort};
use cistern_link::Instant;
use cistern_server::Server;
use cistern_wire::StoreId;
use std::io;
use std::ops::ControlFlow;

/// The guests of the loop, and what its core has.
pub(super) struct ServerServices {
    guests: ServerGuests,
    backing: Backing,
}

/// Puts the loop together.
///
/// # Errors
/// A setting, an address or the system is in the way.
pub(super) fn set_up(
    mut guests: ServerGuests,
    ports: Vec<UdpPort>,
    (store, id): (Kept, StoreId),
    keys: Option<&ServerKeys>,
) -> Result<EventLoop<Owned<Server>, ServerServices>, Failure> {
    //= wire-spec.md#11-7-restart-and-recovery
    //# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no earlier
    //# process could send.
    let now = guests.clock.now();
    let name = format!("server {:.8}", id.to_string());
    let options = LoopOptions { name, tap: capture::tap(), spin: guests.config.spin, ..LoopOptions::default() };
    let (server, backing) = guests.start_core(now, (store, id), keys)?;
    let clock = guests.clock.clone();
    EventLoop::new(ports, Owned(server), ServerServices { guests, backing }, clock, options).map_err(|e| failed("ADDRESS", &e))
}

impl ServedBy for ServerServices {
    fn guests(&mut self) -> &mut ServerGuests {
        &mut self.guests
    }
}

impl Services<Server> for ServerServices {
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        self.guests.register(registry, handle)
    }

    fn on_ready(&mut self, server: &mut Server, now: Instant, token: Token) {
        self.guests.on_ready(Some((server, &self.backing)), None, now, token);
    }

    fn between_rounds(&mut self, server: &mut Server) {
        self.backing.between_rounds(server);
    }

    fn after_turn(&mut self, server: &mut Server, now: Instant) -> ControlFlow<()> {
        let Self { guests, backing } = self;
        let mut served = guests.after_turn(server, backing, None, now);
        if let Some(failure) = backing.failure(server) {
            served = Err(failure);
        }
        if served.is_ok() && server.is_serving() {
            served = guests.announce();
        }
        match served {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                guests.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }
}
