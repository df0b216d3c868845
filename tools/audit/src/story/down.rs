//! What a server sends in a session: answers, refusals, notices.
//!
//! Decides which transmission an answer echoes, and so from when until when it renews; whether a request was answered before and
//! otherwise; which locks are given and which versions shown. Place in the walk: under `story`, for datagrams from the server.
//! Implements `wire-spec.md` sections 6.4, 6.5 and 7. Invariant: the end of a lease never moves back.
//! Leaves to others: the lock table (`locks`), handshakes (`handshake`), whether a reply fits its request (`replies`).

use super::session::{Asked, Carried, Notice, Replied, Session};
use super::{Seen, Story, raw, replies};
use crate::event::{Answer, Cause, Grant, How, Renewal, What};
use crate::vantage::Side;
use cistern_wire::limits::CALL;
use cistern_wire::{Kind, Lane, LockClass, LockId, Message, Mode, Nack, ObjectId, Released, Reply, SessionId, Status};
use std::time::Duration;

impl Story {
    pub(super) fn down(&mut self, seen: &Seen<'_>) {
        self.sends(seen);
        for (message, body) in raw::messages(seen.passage.payload) {
            if let Some(session) = self.sessions.get_mut(&seen.session()) {
                if matches!(message, Message::PathChallenge(_)) {
                    (session.challenged, session.keep_alive) = (Some(seen.passage.to), None);
                } else if session.challenged == Some(seen.passage.to) {
                    session.challenged = None;
                }
            }
            match &message {
                Message::Ack(m) => self.replied(seen, Kind::Ack, m.nonce, Some(m.echo), &m.reply, &body[16..]),
                Message::Result(m) => self.replied(seen, Kind::Result, m.nonce, None, &m.reply, &body[8..]),
                Message::Pending(m) => {
                    self.answer(seen, Kind::Pending, m.nonce, Some(m.echo));
                }
                Message::Queued(m) => self.queued(seen, m.nonce, m.echo),
                Message::Alive(m) => {
                    if let Some(session) = self.sessions.get_mut(&seen.session()) {
                        session.keep_alive = session.keep_alive.map(|(mark, done)| (mark, done || mark.packet == m.echo));
                    }
                    self.answer(seen, Kind::Alive, m.serial, Some(m.echo));
                }
                Message::Released(m) => self.told_released(seen, m),
                Message::Cancelled(m) => {
                    self.answer(seen, Kind::Cancelled, m.serial, Some(m.echo));
                    self.cancelled(seen, m);
                }
                Message::Opened(m) => {
                    self.answer(seen, Kind::Opened, m.serial, Some(m.echo));
                    let former = m.former.iter().map(|former| (former.session, former.fate)).collect();
                    self.events.push(seen.event(What::Opened { former }));
                }
                Message::Known(m) => {
                    self.answer(seen, Kind::Known, m.serial, Some(m.echo));
                    self.goes_on(m.session);
                }
                Message::Joined(m) => {
                    self.answer(seen, Kind::Joined, m.serial, Some(m.echo));
                }
                Message::RosterPart(m) => {
                    self.answer(seen, Kind::RosterPart, m.serial, Some(m.echo));
                }
                Message::Ended(m) => self.told_ended(seen, m.serial, m.echo),
                Message::Nack(m) => self.nack(seen, *m),
                Message::Hint(m) => self.hint(seen, m.echo),
                Message::PathChallenge(m) => {
                    if let Some(server) = self.servers.get_mut(&seen.from) {
                        server.challenged(seen.passage.from, seen.passage.to, m.token);
                    }
                    self.events.push(seen.event(What::Path { kind: Kind::PathChallenge, token: m.token }));
                }
                _ if message.kind().lane() == Lane::Notice => self.notice(seen, &message, &body[8..]),
                _ => {}
            }
        }
    }

    /// A server is there: the time at which its start was last seen to send.
    fn sends(&mut self, seen: &Seen<'_>) {
        // A HINT is what a new start says of a session that it does not know.
        if raw::is_hint(seen.passage.payload) {
            return;
        }
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let Some(server) = self.servers.get_mut(&session.server) else { return };
        if session.incarnation.is_some() && session.incarnation == server.incarnation.map(|(now, _)| now) {
            (server.last_sent, server.last_frame) = (seen.passage.at, seen.passage.frame);
        }
    }

    /// What an answer echoes: the transmission that carried what it names.
    fn cause(&self, id: SessionId, kind: Kind, number: u64, echo: u64) -> (Cause, u16) {
        let Some(session) = self.sessions.get(&id) else { return (Cause::Unseen, 0) };
        let Some(sent) = session.up.get(echo) else {
            return (if session.up.may_be_forgotten(echo) { Cause::Forgotten } else { Cause::Unseen }, 0);
        };
        let answered = |carried: &&Carried| match kind {
            Kind::Ack | Kind::Pending | Kind::Queued => carried.kind.lane() == Lane::Request && carried.number == number,
            Kind::Nack if number == 0 => carried.kind.lane() == Lane::Control && carried.kind != Kind::Receipt,
            Kind::Nack => carried.kind.lane() == Lane::Request && carried.number == number,
            Kind::Alive => carried.kind == Kind::KeepAlive && carried.number == number,
            Kind::Released => carried.kind == Kind::Release && carried.number == number,
            Kind::Cancelled => carried.kind == Kind::Cancel && carried.number == number,
            Kind::Ended => carried.kind == Kind::EndSession && carried.number == number,
            Kind::Joined => carried.kind == Kind::Join && carried.number == number,
            Kind::RosterPart => carried.kind == Kind::Roster && carried.number == number,
            Kind::Opened | Kind::Known => carried.kind == Kind::Confirm && carried.number == number,
            _ => true,
        };
        match sent.carried.iter().find(answered) {
            Some(carried) => (Cause::Seen { frame: sent.mark.frame, at: sent.mark.at, length: sent.length }, carried.limit),
            None if kind == Kind::Hint => (Cause::Seen { frame: sent.mark.frame, at: sent.mark.at, length: sent.length }, 0),
            None => (Cause::Other { frame: sent.mark.frame }, 0),
        }
    }

    /// The frame in which the same of the same transmission was answered before, where one answer is all that it gets.
    fn repeats(&mut self, seen: &Seen<'_>, kind: Kind, number: u64, echo: u64) -> Option<u64> {
        if !matches!(kind, Kind::Ack | Kind::Queued | Kind::Alive | Kind::Cancelled) {
            return None;
        }
        let sent = self.sessions.get_mut(&seen.session())?.up.get_mut(echo)?;
        let before = sent.answered.iter().find(|(of, to, _)| (*of, *to) == (kind, number)).map(|(.., frame)| *frame);
        if before.is_none() {
            sent.answered.push((kind, number, seen.passage.frame));
        }
        before
    }

    /// An answer; gives its place among the events.
    fn answer(&mut self, seen: &Seen<'_>, kind: Kind, number: u64, echo: Option<u64>) -> usize {
        let (cause, limit) = echo.map_or((Cause::Unseen, 0), |echo| self.cause(seen.session(), kind, number, echo));
        let repeats = echo.and_then(|echo| self.repeats(seen, kind, number, echo));
        let renewal = if kind.renews() { self.renewed(seen, seen.session(), cause, echo) } else { None };
        self.events.push(seen.event(What::Answer(Answer {
            kind,
            number,
            echo,
            cause,
            reply: None,
            status: None,
            repeats,
            before: None,
            differs: false,
            unfit: None,
            limit,
            renewal,
        })));
        self.events.len() - 1
    }

    /// The lease that a renewing answer gives.
    pub(super) fn renewed(&mut self, seen: &Seen<'_>, id: SessionId, cause: Cause, echo: Option<u64>) -> Option<Renewal> {
        if let (Cause::Forgotten, Some(session)) = (cause, self.sessions.get_mut(&id)) {
            session.echo_latest = session.echo_latest.max(Some(seen.passage.at));
        }
        let Cause::Seen { frame, at, .. } = cause else { return None };
        let (side, stepped) = (self.vantage.side, self.stepped);
        let session = self.sessions.get_mut(&id)?;
        session.renewals += 1;
        if id == seen.session() && session.newest_renewal.is_none_or(|known| known.packet < seen.header.packet) {
            session.newest_renewal = Some(seen.mark());
            session.may_have_owed = !session.owed.is_empty();
        }
        // A time of before the clock was set back says nothing beside one of after it.
        let moved = session.newest_echo.is_none_or(|known| known < at) || session.echo_frame < stepped && frame >= stepped;
        if moved {
            (session.newest_echo, session.echo_frame) = (Some(at), frame);
        }
        let promise = session.promise?;
        let not_before = echo.and_then(|echo| session.up.get(echo)).and_then(|sent| sent.not_before);
        let exact = side == Side::Agent;
        let from_earliest = if exact { at } else { not_before.unwrap_or(at.saturating_sub(promise.most())).min(at) };
        let (least, most) = if exact { (promise.tau, promise.tau) } else { (promise.least(), promise.most()) };
        let renewal = Renewal {
            by: frame,
            from_earliest,
            from_latest: at,
            certain_until: from_earliest.saturating_add(least),
            possible_until: at.saturating_add(most),
            moved,
        };
        let wait = if side == Side::Server { promise.wait } else { promise.shortest_wait() };
        let vantage = self.vantage;
        let late = |stolen: &super::Mark| stepped > frame || vantage.is_shorter(stolen.at.saturating_sub(at), wait);
        let (host, stolen) = (session.host, session.stolen.filter(late));
        if let Some(intervals) = &mut self.intervals {
            intervals.renewed(id, host, seen.passage.frame, &renewal);
        }
        if let Some(stolen) = stolen {
            self.events.push(seen.event(What::RenewedAfterSteal { of: id, by: frame, stolen: (stolen.at, stolen.frame) }));
        }
        Some(renewal)
    }

    /// ACK or RESULT.
    fn replied(&mut self, seen: &Seen<'_>, kind: Kind, nonce: u64, echo: Option<u64>, reply: &Reply<'_>, bytes: &[u8]) {
        let place = self.answer(seen, kind, nonce, echo);
        let (sum, bare, is_bare) = (raw::sum(bytes), replies::bare(reply, bytes), kind == Kind::Result);
        let status = replies::status(reply);
        let refused = matches!(status, Some(Status::BUSY | Status::IN_GRACE | Status::ECANCELED));
        let now = Replied { mark: seen.mark(), kind: reply.kind(), sum, bare, is_bare, refused };
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let (mut before, mut differs, mut unfit, mut limit_max, mut news) = (None, false, None, 0, true);
        if let Some(request) = session.requests.get_mut(nonce) {
            unfit = replies::unfit(request, reply);
            limit_max = request.limit_max;
            if let Some(known) = request.replied {
                (before, news) = (Some(known.mark.frame), false);
                differs = if is_bare || known.is_bare { known.bare != bare } else { known.sum != sum };
            } else if status != Some(Status::NONCE_REUSED) {
                request.replied = Some(now);
            }
        }
        if let What::Answer(answer) = &mut self.events[place].what {
            (answer.reply, answer.status, answer.before, answer.differs, answer.unfit) =
                (Some(reply.kind()), status, before, differs, unfit);
            if kind == Kind::Result {
                answer.limit = limit_max;
            }
        }
        if matches!(reply, Reply::Done(_)) {
            self.completes(seen, nonce);
        }
        self.effects(seen, nonce, reply, news);
        if kind == Kind::Ack {
            self.grants(seen, nonce, reply);
        }
        self.shows(seen, nonce, reply);
    }

    /// A reclaim is complete: nothing of the former session can be reclaimed any more, and its ephemeral files are the present one's.
    fn completes(&mut self, seen: &Seen<'_>, nonce: u64) {
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let Some(Asked::ReclaimComplete { from }) = session.requests.get(nonce).map(|request| &request.asked) else { return };
        // Of a session that is not its own nothing is completed, though that is answered as well.
        if self.may_reclaim(session.id, *from) != Ok(true) {
            return;
        }
        if let Some(server) = self.servers.get_mut(&session.server) {
            server.completed.entry(*from).or_insert(seen.passage.frame);
            server.heirs.insert(*from, session.id);
        }
    }

    /// What a mutation changed.
    fn effects(&mut self, seen: &Seen<'_>, nonce: u64, reply: &Reply<'_>, news: bool) {
        match reply {
            Reply::Changed(changed) => {
                for effect in changed.effects.iter().filter(|effect| effect.before != effect.attr.version) {
                    let (object, version) = (effect.attr.object, effect.attr.version);
                    let gone = effect.attr.nlink == 0;
                    let by_other = self.made(seen, object, (version, gone), nonce);
                    self.events.push(seen.event(What::Changed { object, before: effect.before, version, gone, nonce, by_other }));
                    if news {
                        self.mutated(seen, object, version);
                    }
                }
            }
            Reply::Batched(done) => {
                for item in done.items.iter().filter(|item| item.version == 0) {
                    self.made(seen, item.object, (0, true), nonce);
                }
                if !news {
                    return;
                }
                for item in done.items.iter().filter(|item| item.version > 0) {
                    self.mutated(seen, item.object, item.version);
                }
            }
            _ => {}
        }
    }

    /// Notes which request has made a version; gives another that had made it before.
    fn made(&mut self, seen: &Seen<'_>, object: ObjectId, (version, gone): (u64, bool), nonce: u64) -> Option<(SessionId, u64)> {
        let session = self.sessions.get(&seen.session())?;
        let server = self.servers.get_mut(&session.server)?;
        if session.incarnation.map(|one| one.0) != server.incarnation.map(|(one, _)| one.0) {
            return None;
        }
        let known = server.objects.entry(object).or_default();
        let (made, by, of) = known.made;
        known.gone |= gone;
        if version > made {
            known.made = (version, session.id, nonce);
        }
        (version > 0 && version == made && (by, of) != (session.id, nonce)).then_some((by, of))
    }

    /// Locks in a reply.
    fn grants(&mut self, seen: &Seen<'_>, nonce: u64, reply: &Reply<'_>) {
        let mut all: Vec<Grant> = Vec::new();
        replies::grants(reply, nonce, |grant| all.push(grant));
        if let Reply::Reclaimed(reclaimed) = reply {
            let request = self.sessions.get(&seen.session()).and_then(|session| session.requests.get(nonce));
            replies::reclaimed(request, nonce, reclaimed, |grant| all.push(grant));
        }
        for grant in all {
            self.give(seen, grant);
        }
    }

    /// Versions in a reply: what is older than what was shown before is told, what is newer is noted.
    fn shows(&mut self, seen: &Seen<'_>, nonce: u64, reply: &Reply<'_>) {
        let mut shown: Vec<(ObjectId, u64)> = Vec::new();
        reply.each_version(|object, version| shown.push((object, version)));
        let server = self.sessions.get(&seen.session()).and_then(|session| self.servers.get_mut(&session.server));
        if let Some(server) = server {
            reply.each_owner(|object, owner| {
                server.owners.insert(object, owner);
            });
            // What was made in this session bears its handle; its WELCOME may have come before the capture began.
            if let Reply::Changed(changed) = reply {
                let made =
                    changed.effects.iter().filter(|effect| effect.before == 0 && effect.attr.is_ephemeral() && !effect.attr.is_lease());
                server.handles.extend(made.map(|effect| (effect.attr.owner, seen.session())));
            }
        }
        for (object, version) in shown {
            self.shown(seen, object, version, nonce);
        }
    }

    fn shown(&mut self, seen: &Seen<'_>, object: ObjectId, version: u64, nonce: u64) {
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let Some(server) = self.servers.get_mut(&session.server) else { return };
        // What an older copy of the store, or none that is known, has said of it means nothing here.
        if session.incarnation.is_none() || session.incarnation.map(|one| one.0) != server.incarnation.map(|(one, _)| one.0) {
            return;
        }
        let known = server.objects.entry(object).or_default();
        match known.shown {
            Some(mark) if version < known.version => {
                let newer = known.version;
                self.events.push(seen.event(What::Older { object, version, newer, shown: (mark.at, mark.frame), nonce }));
            }
            Some(_) if version == known.version => {}
            _ => (known.version, known.shown) = (version, Some(seen.mark())),
        }
    }

    fn queued(&mut self, seen: &Seen<'_>, nonce: u64, echo: u64) {
        self.answer(seen, Kind::Queued, nonce, Some(echo));
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let server = self.servers.get_mut(&session.server);
        if let Some(request) = session.requests.get_mut(nonce) {
            request.queued.get_or_insert(seen.mark());
            let waits = request.granted.is_none() && request.wait_over.is_none() && request.cancelled.is_none();
            if let (Asked::Lock { object, mode: Mode::Exclusive, .. }, true, Some(server)) = (&request.asked, waits, server) {
                server.waits(*object, (seen.session(), nonce, seen.mark()));
            }
        }
    }

    fn told_released(&mut self, seen: &Seen<'_>, released: &Released<'_>) {
        self.answer(seen, Kind::Released, released.serial, Some(released.echo));
        for item in released.items.iter().filter(|item| item.now.0 > 0) {
            let id = seen.session();
            self.left_by_downgrade(id, item.lock, item.generation, item.now);
            let (lock, generation, how) = (item.lock, item.now, How::Downgrade { of: item.generation });
            if let Some(session) = self.sessions.get_mut(&id) {
                let news = session.give(lock, generation);
                let grant = Grant { lock, mode: Mode::Shared, generation, run: 0, version: 0, how, nonce: 0, news };
                if let Some(server) = self.servers.get_mut(&session.server) {
                    server.newest = server.newest.max(generation);
                    server.runs.entry(generation.0).or_insert((generation.0.saturating_add(1), lock, id, seen.passage.frame));
                }
                self.events.push(seen.event(What::Granted(grant)));
            }
        }
    }

    fn stops_waiting(&mut self, id: SessionId, nonce: u64) {
        let server = self.sessions.get(&id).and_then(|session| self.servers.get_mut(&session.server));
        if let Some(server) = server.filter(|server| !server.waiting.is_empty()) {
            server.stops_waiting(id, Some(nonce));
        }
    }

    fn cancelled(&mut self, seen: &Seen<'_>, m: &cistern_wire::Cancelled) {
        let cistern_wire::Cancelled { serial, nonce, outcome, generation, .. } = *m;
        if let Some(session) = self.sessions.get_mut(&seen.session()).filter(|_| m.generation.0 > 0)
            && let Some(Asked::Lock { object, .. }) = session.requests.get(nonce).map(|request| &request.asked)
        {
            // Its agent knows of the grant from here on, if GRANT has not come.
            let lock = LockId { object: *object, class: LockClass::Advisory };
            session.told(lock, m.generation);
        }
        if let Some(request) = self.sessions.get_mut(&seen.session()).and_then(|session| session.requests.get_mut(nonce))
            && outcome == cistern_wire::CancelOutcome::Cancelled
        {
            request.cancelled.get_or_insert(seen.mark());
        }
        self.stops_waiting(seen.session(), nonce);
        self.events.push(seen.event(What::Cancelled { serial, nonce, outcome, generation }));
    }

    fn told_ended(&mut self, seen: &Seen<'_>, serial: u64, echo: u64) {
        self.answer(seen, Kind::Ended, serial, Some(echo));
        let mark = seen.mark();
        if let Some(session) = self.sessions.get_mut(&seen.session()) {
            session.ended.get_or_insert(mark);
        }
        self.end_intervals(seen.session(), mark);
    }

    fn nack(&mut self, seen: &Seen<'_>, nack: Nack) {
        self.answer(seen, Kind::Nack, nack.nonce, Some(nack.echo));
        let mark = seen.mark();
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let first = session.nack.is_none();
        let earlier = session.nack.is_none_or(|known| mark.packet < known.packet);
        if earlier {
            session.nack = Some(mark);
        }
        let (host, server, until) = (session.host, session.server, session.promise.map(|promise| mark.at.saturating_add(promise.wait)));
        let executed = session.requests.get_mut(nack.nonce).and_then(|request| {
            if nack.fate == cistern_wire::Fate::NotExecuted {
                request.not_executed.get_or_insert(mark);
            }
            request.replied.filter(|replied| !replied.refused).map(|replied| replied.mark.frame)
        });
        if let (true, Some(intervals)) = (first, &mut self.intervals) {
            intervals.refused(seen.session(), host, mark, until);
        }
        if let Some(server) = self.servers.get_mut(&server) {
            server.stops_waiting(seen.session(), None);
        }
        self.events.push(seen.event(What::Nack { nonce: nack.nonce, reason: nack.reason, fate: nack.fate, first, executed }));
    }

    fn hint(&mut self, seen: &Seen<'_>, echo: u64) {
        // A call answers nothing, and knows the session.
        if echo != CALL {
            self.answer(seen, Kind::Hint, 0, Some(echo));
            self.forgets(seen);
        }
        self.events.push(seen.event(What::Hint));
    }

    /// A server does not know a session: of one that it must know, this shows that it was started anew.
    fn forgets(&mut self, seen: &Seen<'_>) {
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let steady = self.steady(session.echo_frame).is_ok();
        let Some(server) = self.servers.get_mut(&session.server) else { return };
        let free = session.given_up.is_none() && session.stolen.is_none() && session.nack.is_none() && session.ended.is_none();
        let holds = server.holds.values().flatten().any(|hold| hold.session == session.id);
        let lasts = session.possible_until().is_some_and(|until| seen.passage.at < until) && steady;
        let whole = session.opened.is_some() && !session.superseded && session.doubt.is_none();
        if let (true, Some(own)) = (free && holds && lasts && whole, session.incarnation)
            && server.incarnation.is_some_and(|(now, _)| now == own)
        {
            server.forgot.get_or_insert((own, seen.passage.frame));
        }
    }

    fn notice(&mut self, seen: &Seen<'_>, message: &Message<'_>, words: &[u8]) {
        let (kind, mark) = (message.kind(), seen.mark());
        let (seq, nonce, lock, object, status) = match message {
            Message::Demand(m) => (m.seq, 0, Some((m.lock, m.generation)), m.lock.object, None),
            Message::Grant(m) => (m.seq, m.nonce, Some((m.lock, m.generation)), m.lock.object, None),
            Message::WaitOver(m) => (m.seq, m.nonce, None, m.lock.object, Some(m.status)),
            Message::Probe(m) => (m.seq, 0, None, ObjectId(0), None),
            Message::WatchEvent(m) => (m.seq, 0, None, m.object, None),
            _ => return,
        };
        let sum = raw::sum(words) ^ u64::from(kind.code());
        let Some(session) = self.sessions.get_mut(&seen.session()) else { return };
        let (mut first, mut changed, mut transmissions, mut gap) = (mark.frame, false, 1, None);
        if let Some(known) = session.notices.get_mut(seq) {
            gap = Some(mark.at.saturating_sub(known.last));
            known.transmissions += 1;
            known.last = known.last.max(mark.at);
            (first, changed, transmissions) = (known.first.frame, known.sum != sum, known.transmissions);
        } else if !session.notices.may_be_forgotten(seq) {
            if let Some((of, up_to)) = lock {
                // A newer demand or grant of a lock takes the place of what was said of it before.
                let owed = session.owed.clone();
                session.imply(|lock, generation| lock == of && generation <= up_to);
                session.owed = owed;
            }
            if kind == Kind::Grant {
                session.newest_grant = Some(mark);
            }
            if let Message::Demand(m) = message {
                // Its agent knows of the grant from here on, if the answer to its LOCK has not come.
                session.told(m.lock, m.generation);
            }
            let (receipted, implied, overdue, listened) = (None, false, None, Duration::ZERO);
            let fresh =
                Notice { kind, first: mark, last: mark.at, sum, transmissions: 1, lock, object, receipted, implied, overdue, listened };
            session.notices.put(seq, fresh);
            session.open.insert(seq);
            session.forget_open();
        } else {
            // How often it was sent before is not known any more.
            transmissions = 0;
        }
        let listened = self.servers.get(&session.server).map_or(Duration::ZERO, |server| server.listened);
        if let Some(known) = session.notices.get_mut(seq) {
            known.listened = listened;
        }
        let what = What::Notice { kind, seq, first, transmissions, lock, object, nonce, status, changed, gap };
        self.events.push(seen.event(what));
        match message {
            Message::Grant(m) => self.granted(seen, m),
            Message::WaitOver(m) => {
                if let Some(request) = self.sessions.get_mut(&seen.session()).and_then(|session| session.requests.get_mut(m.nonce)) {
                    request.wait_over.get_or_insert(m.seq);
                }
                self.stops_waiting(seen.session(), m.nonce);
            }
            Message::WatchEvent(m) => {
                if m.gone && transmissions == 1 {
                    self.goes(seen, m.object);
                }
                self.note_version(seen, m.object, m.version);
            }
            _ => {}
        }
    }

    /// An object is gone: of an ephemeral file, whose it was, and whether a request is known that can have taken it away.
    fn goes(&mut self, seen: &Seen<'_>, object: ObjectId) {
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let Some(server) = self.servers.get(&session.server) else { return };
        let owner = server.owner(object);
        if owner.is_none() && !server.owners.contains_key(&object) && server.short.owners.is_none_or(|up_to| object > up_to) {
            return;
        }
        let removed = server.objects.get(&object).is_some_and(|object| object.gone);
        let takes_away = |kind: Kind| matches!(kind, Kind::Unlink | Kind::Rename | Kind::Batch);
        let open = |session: &Session| session.requests.iter().any(|(_, request)| takes_away(request.kind) && request.replied.is_none());
        let unanswered = !removed && self.sessions.values().any(open);
        self.events.push(seen.event(What::Gone { object, owner, removed, unanswered }));
    }

    /// A version told by a notice counts as shown, but what is told late is nothing to object to.
    fn note_version(&mut self, seen: &Seen<'_>, object: ObjectId, version: u64) {
        let mark = seen.mark();
        let Some(session) = self.sessions.get(&seen.session()) else { return };
        let Some(server) = self.servers.get_mut(&session.server) else { return };
        if session.incarnation.is_some() && session.incarnation.map(|one| one.0) == server.incarnation.map(|(one, _)| one.0) {
            let known = server.objects.entry(object).or_default();
            if known.version < version || known.shown.is_none() {
                (known.version, known.shown) = (version, Some(mark));
            }
        }
    }

    fn granted(&mut self, seen: &Seen<'_>, m: &cistern_wire::Grant) {
        let id = seen.session();
        if let Some(request) = self.sessions.get_mut(&id).and_then(|session| session.requests.get_mut(m.nonce)) {
            request.granted.get_or_insert((m.generation, m.seq));
        }
        self.stops_waiting(id, m.nonce);
        let (lock, mode, generation, run) = (m.lock, m.mode, m.generation, m.run);
        self.give(seen, Grant { lock, mode, generation, run, version: 0, how: How::Notice, nonce: m.nonce, news: false });
    }
}
