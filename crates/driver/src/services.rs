//! What else is served in the loop that turns a machine: control sockets, the store's effects.
//!
//! Decides the contract between the loop and its guests. On the walk, services stand between the machine's taking
//! of datagrams and its sending: what a service completes (a durable batch, a line from the operator) is answered
//! in the same turn. Invariant: a service that must stop (section 11.7: a failed write) does so before anything more is sent.
//! Leaves to the implementer: everything about its own files and sockets, which must never block.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use cistern_link::Instant;
use mio::{Registry, Token};

use crate::event_loop::Handle;

/// Tokens that services may register are below this; the loop uses those from here on for itself.
pub const SERVICE_TOKENS_END: usize = usize::MAX - 1_024;

/// Further sources and effects, served by the thread that turns the machine.
///
/// Every method has an empty default, so a service implements what it needs.
pub trait Services<M> {
    /// Registers sources with tokens below [`SERVICE_TOKENS_END`]; called once, before the first turn.
    ///
    /// `handle` may be cloned: a disk thread wakes the loop by it when something is done.
    fn register(&mut self, registry: &Registry, handle: &Handle) -> io::Result<()> {
        let _ = (registry, handle);
        Ok(())
    }

    /// A registered source has become ready, for reading or writing (edge-triggered: serve it until it would block).
    fn on_ready(&mut self, machine: &mut M, now: Instant, token: Token) {
        let _ = (machine, now, token);
    }

    /// Runs within a turn after each round that brought datagrams, before the sockets are looked at again: what the machine has made for
    /// others so far can be handed on, so that they work while the loop receives more. Nothing is given to the machine here.
    fn between_rounds(&mut self, machine: &mut M) {
        let _ = machine;
    }

    /// Runs in every turn after the machine took what had arrived and before it is asked what to send: the place
    /// where effects are taken from the machine and completions given to it.
    ///
    /// `Break` ends the loop at once: nothing that the machine wants to send is sent any more.
    fn after_turn(&mut self, machine: &mut M, now: Instant) -> ControlFlow<()> {
        let _ = (machine, now);
        ControlFlow::Continue(())
    }

    /// How long the loop may sleep from `now` as far as this service is concerned; `None`: any time.
    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        let _ = now;
        None
    }
}

/// No services: a loop that only turns its machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServices;

impl<M> Services<M> for NoServices {}
