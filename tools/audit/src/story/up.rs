//! What agents send in a session: requests, control messages, receipts.
//!
//! Decides when a request or control message is a retransmission and whether it says the same again; what is given back; what a receipt
//! proves about when it was sent. Place in the walk: under `story`, for datagrams to the server. Implements `wire-spec.md` sections 6.2
//! to 6.4. Invariant: a lock is given back by the first transmission that says so, wherever it is captured.
//! Leaves to others: answers (`down`), handshakes (`handshake`).

use super::locks::is_former;
use super::session::{Asked, Control, Request, Session};
use super::{Seen, Story, raw};
use crate::event::What;
use crate::verdict::Why;
use cistern_wire::{
    Ask, EndReason, Field as _, Generation, Kind, LockClass, LockId, Message, Receipt, ReceiptAnswer, ReleaseItem, SessionId,
};
use std::time::Duration;

/// How far below the newest packet number a datagram may be and is still taken (section 3.2).
const REPLAY_WINDOW: u64 = 1_024;

/// For how long an agent must have been seen to send, after a receipt was due, to be called at work.
const AT_WORK: Duration = Duration::from_millis(100);

/// What comes after a serial.
const SERIAL_LEN: usize = 8;

impl Story {
    pub(super) fn up(&mut self, seen: &Seen<'_>) {
        for (message, body) in raw::messages(seen.passage.payload) {
            match (&message, message.ask()) {
                (_, Some(ask)) => self.request(seen, &message, ask, raw::sum(&body[Ask::LEN..])),
                (Message::Receipt(receipt), _) => self.receipt(seen, *receipt),
                (Message::PathResponse(path), _) => {
                    self.responded(seen, path.token);
                    self.events.push(seen.event(What::Path { kind: message.kind(), token: path.token }));
                }
                _ => self.control(seen, &message, body),
            }
        }
        self.overdue(seen);
    }

    /// Which open notices were due to be receipted long before the agent sent this, and what it has sent since.
    fn overdue(&mut self, seen: &Seen<'_>) {
        let at = seen.passage.at;
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let over = session.nack.is_some() || session.ended.is_some() || session.given_up.is_some();
        let due = session.promise.map(|promise| promise.delivery_timeout).filter(|due| !due.is_zero() && !over);
        let Some(due) = due else { return };
        let (mut told_to, mut all_told) = (session.overdue_to, true);
        for seq in session.open.range(session.overdue_to.saturating_add(1)..).copied() {
            let Some(notice) = session.notices.get_mut(seq) else { continue };
            // What comes after it was sent later still.
            if at.saturating_sub(notice.first.at) <= due {
                break;
            }
            let (since, told) = *notice.overdue.get_or_insert((at, false));
            let tell = !told && at.saturating_sub(since) > AT_WORK;
            if tell {
                notice.overdue = Some((since, true));
                let first = notice.first.frame;
                self.events.push(seen.event(What::Unreceipted { seq, first }));
            }
            all_told &= told || tell;
            if all_told {
                told_to = seq;
            }
        }
        session.overdue_to = told_to;
    }

    fn request(&mut self, seen: &Seen<'_>, message: &Message<'_>, ask: Ask, sum: u64) {
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let (kind, nonce, mark) = (message.kind(), ask.nonce, seen.mark());
        let sum = sum ^ u64::from(kind.code());
        let floor_before = (session.floor.1 < mark.packet).then_some(session.floor.0).filter(|floor| *floor > 0);
        if ask.floor() > session.floor.0 {
            session.floor = (ask.floor(), mark.packet);
        }
        let (mut first, mut changed, mut news) = (mark.frame, false, true);
        if let Some(known) = session.requests.get_mut(nonce) {
            (first, changed, news) = (known.first.frame, known.sum != sum, false);
            known.limit_max = known.limit_max.max(ask.limit);
            known.transmissions += 1;
        } else if !session.requests.may_be_forgotten(nonce) {
            let generation_then = self.servers.get(&session.server).map_or(Generation(0), |server| server.newest);
            let request = Request {
                kind,
                first: mark,
                transmissions: 1,
                sum,
                asked: asked(message),
                limit_max: ask.limit,
                generation_then: generation_then.0,
                replied: None,
                queued: None,
                granted: None,
                cancelled: None,
                wait_over: None,
                not_executed: None,
            };
            session.requests.put(nonce, request);
        } else {
            news = false;
        }
        self.events.push(seen.event(What::Request { kind, nonce, first, changed, back: ask.back, floor_before, news }));
        if news {
            self.uses(seen, message);
            if let Message::ReclaimComplete(complete) = message {
                match self.may_reclaim(seen.session(), complete.from) {
                    Ok(true) => self.gives_up(seen, complete.from, None),
                    Ok(false) => {}
                    Err(why) => self.doubt(complete.from, why),
                }
            }
        }
    }

    /// Locks that a request names as its session's own.
    fn uses(&mut self, seen: &Seen<'_>, message: &Message<'_>) {
        let mut named: Vec<(LockId, Generation)> = Vec::new();
        if let Some(terms) = message.terms() {
            let cache = |object| LockId { object, class: LockClass::Cache };
            named.extend(terms.held.iter().map(|held| (cache(held.object), held.generation)));
        }
        for (lock, generation) in named {
            let Some(session) = self.sessions.get(&seen.session()) else { return };
            let given = session.was_given(lock, generation);
            let of = self.servers.get(&session.server).and_then(|server| server.runs.get(&generation.0)).map(|run| run.2);
            let of = of.filter(|of| *of != session.id && given != Some(true));
            self.events.push(seen.event(What::Uses { lock, generation, given, of }));
        }
    }

    fn control(&mut self, seen: &Seen<'_>, message: &Message<'_>, body: &[u8]) {
        let (kind, mark) = (message.kind(), seen.mark());
        let Some(serial) = message.number("serial") else { return };
        let cancels = if let Message::Cancel(cancel) = message { cancel.nonce } else { 0 };
        // A keep-alive says when it was sent, each time anew.
        let words = if kind == Kind::KeepAlive { &[][..] } else { &body[SERIAL_LEN..] };
        let sum = raw::sum(words) ^ u64::from(kind.code());
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        // One that comes too late is dropped, and never answered; so is one that comes before CONFIRM.
        let is_open = session.claims.is_some() || session.first == [None; 2];
        let is_proven = is_open && session.challenged != Some(seen.passage.from);
        if kind == Kind::KeepAlive && is_proven && mark.packet.saturating_add(REPLAY_WINDOW) > session.up.last() {
            session.keep_alive = Some((mark, false));
        }
        let (mut first, mut changed, mut news) = (mark.frame, false, false);
        if let Some(known) = session.controls.get_mut(serial) {
            (first, changed) = (known.first.frame, known.sum != sum);
            known.transmissions += 1;
        } else if !session.controls.may_be_forgotten(serial) {
            session.controls.put(serial, Control { kind, first: mark, transmissions: 1, sum, cancels });
            news = true;
        }
        self.events.push(seen.event(What::Control { kind, serial, first, changed, news }));
        match message {
            Message::Release(release) => release.items.iter().for_each(|item| self.released(seen, item, news)),
            // Whoever cancels waits no more, whenever that is said.
            Message::Cancel(cancel) => {
                if let Some(server) = self.servers.get_mut(&seen.to) {
                    server.stops_waiting(seen.session(), Some(cancel.nonce));
                }
            }
            Message::EndSession(end) => self.gives_up(seen, seen.session(), Some(end.reason)),
            Message::Confirm(confirm) => self.confirms(seen, confirm),
            _ => {}
        }
    }

    fn released(&mut self, seen: &Seen<'_>, item: ReleaseItem, news: bool) {
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let (lock, generation, keep) = (item.lock, item.generation, item.keep);
        let given = session.was_given(lock, generation);
        session.imply(|of, up_to| of == lock && up_to <= generation);
        if Session::leaves(keep) {
            session.owed.remove(&lock);
            self.downgraded(seen.session(), lock, generation);
        } else {
            session.disown(lock, generation, seen.header.packet);
            self.take_back(seen, lock, generation);
        }
        if news {
            self.events.push(seen.event(What::Released { lock, generation, keep, given }));
        }
    }

    fn receipt(&mut self, seen: &Seen<'_>, receipt: Receipt) {
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let packet = seen.header.packet;
        let notice = session.notices.get_mut(receipt.seq).map(|notice| {
            notice.receipted.get_or_insert(seen.passage.at);
            (notice.first, notice.lock)
        });
        session.open.remove(&receipt.seq);
        if let Some((first, lock)) = notice {
            // Whoever receipts a notice has received it: what it sends from here on, it sends after the notice was sent.
            if first.at > session.evidence.1 {
                session.evidence = (packet, first.at);
                if let Some(own) = session.up.get_mut(packet) {
                    own.not_before = Some(own.not_before.map_or(first.at, |before| before.max(first.at)));
                }
            }
            match (lock, receipt.answer) {
                (Some((lock, generation)), ReceiptAnswer::NotHeld) => {
                    session.disown(lock, generation, packet);
                    session.imply(|of, up_to| of == lock && up_to <= generation);
                    self.take_back(seen, lock, generation);
                }
                (Some((lock, generation)), _) if lock.class == LockClass::Cache => {
                    session.owes(lock, generation);
                }
                _ => {}
            }
        }
        let of = notice.map(|(first, _)| first.frame);
        self.events.push(seen.event(What::Receipt { seq: receipt.seq, answer: receipt.answer, of }));
    }

    /// Whether a session may say what becomes of a former one: that of the same start of the same agent.
    pub(super) fn may_reclaim(&self, id: SessionId, from: SessionId) -> Result<bool, Why> {
        let (Some(session), Some(former)) = (self.sessions.get(&id), self.sessions.get(&from)) else { return Ok(false) };
        let known = |session: &Session| session.agent.is_some() && session.incarnation.is_some();
        if known(session) && known(former) { Ok(is_former(former, session)) } else { Err(Why::Late) }
    }

    /// An agent says that nothing of a session can be used again.
    pub(super) fn gives_up(&mut self, seen: &Seen<'_>, session: SessionId, reason: Option<EndReason>) {
        let mark = seen.mark();
        let Some(known) = self.sessions.get_mut(&session) else { return };
        if known.given_up.is_none() {
            known.given_up = Some((mark, reason));
            if let Some(server) = self.servers.get_mut(&known.server) {
                server.stops_waiting(session, None);
                server.awaited.retain(|awaited| *awaited != session);
                server.perhaps_awaited.retain(|awaited| *awaited != session);
            }
            self.end_intervals(session, mark);
            self.events.push(seen.event(What::GivesUp { session, reason }));
        }
    }

    fn responded(&mut self, seen: &Seen<'_>, token: u64) {
        let (server, peer) = (seen.passage.to, seen.passage.from);
        let exchange = self.servers.get_mut(&seen.to).and_then(|known| known.exchanges.get_mut(&(server, peer)));
        if exchange.is_some_and(|exchange| exchange.tokens.contains(&token)) {
            self.proves(peer);
        }
    }
}

/// What an answer to a request must fit.
fn asked(message: &Message<'_>) -> Asked {
    match message {
        Message::Lock(m) => Asked::Lock { object: m.object, mode: m.mode, wait: m.wait },
        Message::Reclaim(m) => Asked::Reclaim { from: m.from, items: m.items.iter().collect() },
        Message::ReclaimComplete(m) => Asked::ReclaimComplete { from: m.from },
        Message::Outcome(m) => Asked::Outcome { session: m.session, nonce: m.nonce },
        Message::Batch(m) => Asked::Batch { items: m.items.len() },
        Message::Lookup(m) => Asked::Object(m.start),
        Message::GetAttr(m) => Asked::Object(m.object),
        Message::ReadDir(m) => Asked::Object(m.dir),
        Message::Read(m) => Asked::Object(m.object),
        Message::GetXattr(m) => Asked::Object(m.object),
        Message::ListXattr(m) => Asked::Object(m.object),
        Message::Watch(m) => Asked::Object(m.object),
        Message::SetAttr(m) => Asked::Object(m.object),
        Message::Write(m) => Asked::Object(m.object),
        Message::SetXattr(m) => Asked::Object(m.object),
        Message::RemoveXattr(m) => Asked::Object(m.object),
        Message::Mkdir(m) => Asked::Object(m.dir),
        Message::MakeRealm(m) => Asked::Object(m.dir),
        Message::SetQuota(m) => Asked::Object(m.root),
        Message::Symlink(m) => Asked::Object(m.dir),
        Message::MakeLease(m) => Asked::Object(m.dir),
        Message::Attach(m) => Asked::Object(m.object),
        _ => Asked::Nothing,
    }
}
