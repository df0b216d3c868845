//! The order of sending: the handshake; the ends of former sessions; then what the channel of the session carries.

use crate::agent::Agent;
use crate::call::{Answer, Asker};
use crate::transport::{Cx, Gate};
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::Fate;

impl Agent {
    /// Makes the next datagram, if there is anything to send.
    pub(super) fn next_datagram(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        self.next_hello(buf).or_else(|| self.next_end(buf)).or_else(|| self.next_of_session(buf))
    }

    fn next_of_session(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let gate = self.gate();
        let cx = Cx { now: self.now, timers: &mut self.timers, rng: &mut self.rng };
        let sent = self.sessions.channel_mut()?.poll_transmit(cx, &mut self.queue, gate, buf)?;
        self.stats.requests += sent.first;
        self.stats.retransmissions += sent.again;
        for (asker, nonce) in sent.asked {
            if let Asker::Lock(object) = asker {
                self.locks.asked(object, nonce);
            }
        }
        self.note_horizon();
        Some(sent.path)
    }

    /// Until all locks belong to the present session, only what that needs is asked in it.
    pub(super) const fn gate(&self) -> Gate {
        if self.reclaim.is_some() { Gate::Recovery } else { Gate::Open }
    }

    /// Whether the next datagram of the session carries a request, whose answer will renew the lease.
    pub(super) fn is_asking(&self) -> bool {
        self.sessions.channel().is_some_and(|channel| channel.is_asking(self.now, &self.queue, self.gate()))
    }

    /// Nobody wants the answer to a request any more.
    pub(super) fn give_up_request(&mut self, nonce: u64) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.give_up(&mut self.timers, nonce);
        }
    }

    /// The requests of the session have changed: what was disowned is remembered as long as any of them could bring it.
    pub(super) fn note_horizon(&mut self) {
        if let Some(channel) = self.sessions.channel() {
            let (floor, next) = channel.horizon();
            self.cache.awaited(floor, next);
        }
    }

    /// Requests that were made for larger datagrams than the path carries now are made anew.
    pub(super) fn remake_large(&mut self) {
        let Some(channel) = self.sessions.channel() else { return };
        let (size, room) = channel.path_size(self.now);
        self.ops.set_datagram(size);
        let tasks = &mut self.queue.tasks;
        let large: Vec<_> = tasks.iter().filter(|out| out.message.len() > room).map(|out| (out.task, out.call)).collect();
        if !large.is_empty() {
            tasks.retain(|out| out.message.len() <= room);
            for (task, call) in large {
                self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::SessionEnded(Fate::NotExecuted)));
            }
        }
    }
}
