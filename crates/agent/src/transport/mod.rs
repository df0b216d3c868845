//! Delivery within one session: packet numbers, send times, requests, control messages, receipts, and the address of the server.
//!
//! A channel belongs to one session and dies with it, so nothing of two sessions can be mixed. It never knows what a request means.
//! Invariants: a packet number is used once, and its send time is known before the driver has the bytes; a nonce is awaited exactly as
//! long as its request is in flight; what is sent again keeps its bytes; receipts and control messages wait for no window.

mod control;
mod requests;
mod transmit;

pub(crate) use requests::{Flights, InFlight};
pub(crate) use transmit::{Cx, Gate, Lane, SendQueue};

use crate::call::{Origin, TaskId, Timer, Timers};
use crate::stats::Dropped;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Freshness, Instant, PacketCounter, Path, Question, ReplayWindow, Rng, RoundTrip, SentLog};
use cistern_seal::{Psk, Sealer};
use cistern_wire::{CancelOutcome, Cancelled, FormerClaim, List, ObjectId, Receipt, ReceiptAnswer, ReleaseItem, ReleasedItem, SessionId};
use control::Controls;
use core::net::SocketAddr;
use core::time::Duration;
use requests::{Requests, Timeout};

/// However long the lease: somebody waits for the answer of a server that comes back.
pub(crate) const RTO_LONGEST: Duration = Duration::from_secs(2);
/// Most receipts that wait to be sent; a notice beyond them is not taken in, and comes again.
const RECEIPTS_MAX: usize = 256;

/// With what a channel begins: what HELLO and WELCOME have agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) session: SessionId,
    /// The place of the server's address in the list of its addresses, and the address.
    pub(crate) address: usize,
    pub(crate) path: Path,
    pub(crate) tau: Duration,
    /// The first packet number of each direction.
    pub(crate) first_sent: u64,
    pub(crate) first_received: u64,
    /// Transmissions whose send times are remembered.
    pub(crate) sent_max: usize,
    pub(crate) window: u16,
    pub(crate) max_datagram: usize,
    /// As the handshake has measured it.
    pub(crate) rtt: RoundTrip,
    /// What CONFIRM says of the agent's other sessions.
    pub(crate) former: Vec<FormerClaim>,
    pub(crate) sealer: Sealer,
}

/// Delivery within one session.
#[derive(Debug)]
pub(crate) struct Channel {
    session: SessionId,
    /// What protects its datagrams.
    sealer: Sealer,
    /// By which the session can be resumed, once the server has told.
    resume: Option<Psk>,
    /// Where its datagrams go.
    path: Path,
    /// Which of the server's addresses that is.
    address: usize,
    tau: Duration,
    counter: PacketCounter,
    log: SentLog,
    replay: ReplayWindow,
    /// Which notices have come before; for counting each once.
    notices: ReplayWindow,
    rtt: RoundTrip,
    requests: Requests,
    controls: Controls,
    receipts: VecDeque<Receipt>,
    /// Lock requests that are being taken back, by nonce.
    cancels: BTreeMap<u64, ObjectId>,
    /// The last PATH_CHALLENGE that was not answered yet.
    challenged: Option<u64>,
    /// When something that will be answered was sent for the first time last: its answer may renew the lease.
    asked: Option<Instant>,
    /// When this host moved, as long as nothing that was sent since has been answered.
    moved: Option<Instant>,
    /// Timeouts since the server was heard last.
    unheard: u32,
    /// Nothing is in use and the server is silent: what is unanswered waits until one of the two changes.
    dormant: bool,
}

/// What is left of a channel whose session is over: enough to say so to the server.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) sealer: Sealer,
    pub(crate) counter: PacketCounter,
    pub(crate) path: Path,
    pub(crate) rtt: RoundTrip,
    /// The number of the control message that says it: the same each time.
    pub(crate) serial: u64,
}

impl Channel {
    pub(crate) fn new(agreed: Agreed) -> Self {
        let Agreed { session, address, path, tau, first_sent, first_received, sent_max, window, max_datagram, mut rtt, former, sealer } =
            agreed;
        rtt.set_cap(RTO_LONGEST.min(tau / 2));
        Self {
            session,
            path,
            address,
            tau,
            counter: PacketCounter::starting_at(first_sent),
            log: SentLog::new(sent_max),
            replay: ReplayWindow::starting_at(first_received),
            notices: ReplayWindow::starting_at(1),
            rtt,
            requests: Requests::new(window, max_datagram, sealer.form().around()),
            sealer,
            resume: None,
            controls: Controls::confirming(former),
            receipts: VecDeque::new(),
            cancels: BTreeMap::new(),
            challenged: None,
            asked: None,
            moved: None,
            unheard: 0,
            dormant: false,
        }
    }

    /// The session that it belongs to.
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    /// What protects its datagrams.
    pub(crate) const fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }

    /// The server has told the secret by which the session can be resumed.
    pub(crate) fn set_resume_secret(&mut self, secret: Psk) {
        self.resume = Some(secret);
    }

    /// The session and the secret by which it can be resumed, if the server has told one.
    pub(crate) fn resumable(&self) -> Option<(SessionId, &Psk)> {
        Some((self.session, self.resume.as_ref()?))
    }

    /// Its lease period.
    pub(crate) const fn tau(&self) -> Duration {
        self.tau
    }

    /// The retransmission timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// The measured round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// No timeout is longer than this from now on.
    pub(crate) fn set_rto_cap(&mut self, cap: Duration) {
        self.rtt.set_cap(cap);
    }

    /// The session is over: nothing of it is waited for any more.
    pub(crate) fn shut(self) -> (Sender, Flights) {
        let Self { sealer, counter, path, rtt, controls, mut requests, .. } = self;
        (Sender { sealer, counter, path, rtt, serial: controls.next_serial() }, requests.take())
    }

    /// The session is closed: only that is said in it from now on. Gives the requests that were on their way.
    pub(crate) fn only_end(&mut self) -> Flights {
        self.cancels.clear();
        self.controls.only_end();
        self.dormant = false;
        self.requests.take()
    }
}

/// What arrives.
impl Channel {
    /// Says by its number why a datagram must be dropped; changes nothing.
    pub(crate) fn judge(&self, packet: u64) -> Result<(), Dropped> {
        match self.replay.classify(packet) {
            Freshness::Fresh => Ok(()),
            Freshness::Duplicate => Err(Dropped::DuplicatePacket),
            Freshness::Stale => Err(Dropped::StalePacket),
            Freshness::Ahead => Err(Dropped::PacketAhead),
        }
    }

    /// Notes that a sound datagram of this number has arrived.
    pub(crate) fn note(&mut self, packet: u64) {
        self.replay.note(packet);
        self.unheard = 0;
        self.wake();
    }

    /// A number that no datagram has had; for a deliberate bug.
    pub(crate) fn unused_packet(&self) -> u64 {
        self.replay.highest() + 1
    }

    /// Whether a transmission of this number was ever made in this session.
    pub(crate) const fn was_sent(&self, echo: u64) -> bool {
        self.counter.has_dealt(echo)
    }

    /// When a transmission was sent, if its echo may renew: sent in this session, and remembered.
    pub(crate) fn sent_at(&self, echo: u64) -> Option<Instant> {
        self.log.sent_at(echo)
    }

    /// Takes an answer by what it echoes. Gives the send time from which it may renew, if that is remembered.
    ///
    /// `prompt`: it was made on receipt of what it echoes, so it measures the round trip.
    pub(crate) fn answered(&mut self, now: Instant, echo: u64, prompt: bool) -> Result<Option<Instant>, Dropped> {
        //= wire-spec.md#11-1-lease
        //# An answer whose echo the agent did not send in this session MUST be dropped whole.
        if !self.was_sent(echo) {
            return Err(Dropped::UnknownEcho);
        }
        //= wire-spec.md#11-1-lease
        //# The packet number in the header of an answer MUST NOT renew anything.
        let Some(mut sent) = self.sent_at(echo) else { return Ok(None) };
        if bugs::is(Bug::M1) {
            sent = now;
        } else if bugs::is(Bug::M2) {
            sent = self.sent_at(self.counter.last()).unwrap_or(sent);
        }
        if self.moved.is_some_and(|moved| sent.waited(moved)) {
            // The server knows where this host is now, or the old address serves as well.
            self.moved = None;
        }
        if prompt {
            self.rtt.sample(now.since(sent));
        }
        Ok(Some(sent))
    }

    /// Whether the server answers this request as soon as it has it, as far as is known.
    pub(crate) fn is_prompt(&self, nonce: u64) -> bool {
        self.requests.get(nonce).is_some_and(|flight| !flight.waited)
    }

    /// Who asked by this request, if its answer is awaited.
    pub(crate) fn origin(&self, nonce: u64) -> Option<Origin> {
        self.requests.get(nonce).map(|flight| flight.origin)
    }

    /// The server has received a request, and with it the floor.
    pub(crate) fn reached(&mut self, nonce: u64) {
        self.requests.heard(nonce);
    }

    /// The request is answered; gives it if it was still awaited.
    pub(crate) fn retire(&mut self, now: Instant, timers: &mut Timers, nonce: u64) -> Option<InFlight> {
        let flight = self.requests.retire(nonce, now)?;
        timers.cancel(Timer::Request(nonce));
        Some(flight)
    }

    /// The server is about to answer a request: it is asked again later.
    pub(crate) fn pending(&mut self, timers: &mut Timers, rng: &mut Rng, nonce: u64) {
        if let Some(sent) = self.requests.pending(nonce) {
            // Spread over the second quarter of τ after it was asked, so that it is asked about at least every τ/2.
            //= wire-spec.md#11-2-delivery
            //# An agent MUST ask again for a pending request at least every τ/2.
            let again = sent.plus(rng.jitter(RTO_LONGEST.min(self.tau / 2)));
            timers.set(Timer::Request(nonce), again, Question::Waited);
        }
    }

    /// A control message was answered.
    pub(crate) fn control_answered(&mut self, timers: &mut Timers, serial: u64) {
        self.controls.answered(serial);
        timers.cancel(Timer::Control(serial));
    }

    /// A release was answered, as far as `items` goes.
    pub(crate) fn released(&mut self, timers: &mut Timers, serial: u64, items: List<'_, ReleasedItem>) {
        if self.controls.released(serial, items) {
            timers.cancel(Timer::Control(serial));
        }
    }

    /// CANCEL was answered. Gives the lock whose request was taken back.
    pub(crate) fn cancelled(&mut self, cancelled: &Cancelled) -> Option<ObjectId> {
        let nonce = cancelled.nonce;
        // What is "answered" may be cancelled yet, by a copy of the message that comes after the request.
        let object = match cancelled.outcome {
            CancelOutcome::Answered if self.requests.get(nonce).is_some() => self.cancels.get(&nonce).copied(),
            CancelOutcome::Answered | CancelOutcome::Cancelled | CancelOutcome::Granted => self.cancels.remove(&nonce),
        };
        if cancelled.outcome == CancelOutcome::Answered {
            self.requests.ask_on(nonce);
        }
        object
    }

    /// The server asks for a proof of this host's address.
    pub(crate) fn challenged(&mut self, now: Instant, token: u64) {
        self.challenged = Some(token);
        // Answers went to the address that was proven last, and may be lost: the keep-alive goes with the proof.
        self.address_changed(now);
    }

    /// Whether a notice can be taken in: there is room for its receipt.
    pub(crate) fn can_receipt(&self, seq: u64) -> bool {
        self.receipts.len() < RECEIPTS_MAX || self.receipts.iter().any(|receipt| receipt.seq == seq)
    }

    /// Whether this notice has not come before; it has from now on.
    pub(crate) fn is_new_notice(&mut self, seq: u64) -> bool {
        let fresh = self.notices.classify(seq) == Freshness::Fresh;
        self.notices.note(seq);
        fresh
    }

    /// What is said last about a notice counts.
    pub(crate) fn receipt(&mut self, seq: u64, answer: ReceiptAnswer) {
        match self.receipts.iter_mut().find(|receipt| receipt.seq == seq) {
            Some(receipt) => receipt.answer = answer,
            None => self.receipts.push_back(Receipt { seq, answer }),
        }
    }
}

/// Requests in flight.
impl Channel {
    /// Whether the answer to a request is awaited.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.requests.len() > 0
    }

    /// The reads of a command that is over.
    pub(crate) fn reads_of(&self, task: TaskId) -> Vec<u64> {
        self.requests.reads_of(task)
    }

    /// The nonce under which somebody asks.
    pub(crate) fn nonce_of(&self, origin: Origin) -> Option<u64> {
        self.requests.nonce_of(origin)
    }

    /// Stops awaiting the answer to a request.
    pub(crate) fn forget(&mut self, timers: &mut Timers, nonce: u64) {
        self.requests.drop(nonce);
        timers.cancel(Timer::Request(nonce));
    }

    /// Nobody wants the answer to a request any more. It is asked on all the same if the floor would run too far ahead of the one that
    /// the server has heard of: a floor that the server does not believe stops all that comes later.
    pub(crate) fn give_up(&mut self, timers: &mut Timers, nonce: u64) {
        if self.requests.may_give_up() {
            self.forget(timers, nonce);
        }
    }

    /// The lowest nonce awaited and the next one.
    pub(crate) const fn horizon(&self) -> (u64, u64) {
        self.requests.horizon()
    }

    /// The largest datagram that the path carries now, and the longest message that it has room for.
    pub(crate) fn path_size(&self, now: Instant) -> (usize, usize) {
        let size = self.requests.path_size(now);
        (size, size - self.sealer.form().around())
    }
}

/// Control messages.
impl Channel {
    /// Whether the server has not said that the session is open.
    pub(crate) const fn is_confirming(&self) -> bool {
        self.controls.is_confirming()
    }

    /// Whether anything was ever sent in the session.
    pub(crate) const fn is_used(&self) -> bool {
        self.counter.count() > 0
    }

    /// Asks for a part of the roster.
    pub(crate) fn ask_roster(&mut self, offset: u16) {
        self.controls.ask_roster(offset);
    }

    /// The number of the message that asks for a part of the roster, and is not answered.
    pub(crate) fn roster_asked(&self) -> Option<u64> {
        self.controls.roster_asked()
    }

    /// Renews the lease on purpose, unless that is being tried already.
    pub(crate) fn keep_alive(&mut self) {
        self.controls.keep_alive();
    }

    /// Whether a keep-alive is wanted and not answered.
    pub(crate) const fn is_keeping(&self) -> bool {
        self.controls.is_keeping()
    }

    /// The lease was renewed, or is not worth it.
    pub(crate) fn stop_keeping(&mut self, timers: &mut Timers) {
        if let Some(serial) = self.controls.stop_keeping() {
            timers.cancel(Timer::Control(serial));
        }
    }

    /// Gives a lock back.
    pub(crate) fn release(&mut self, item: ReleaseItem) {
        self.controls.release(item);
    }

    /// Takes the request for a lock back.
    pub(crate) fn cancel(&mut self, nonce: u64, object: ObjectId) {
        self.cancels.insert(nonce, object);
        self.controls.cancel(nonce);
    }

    /// All control messages that are not answered go out again.
    pub(crate) fn hurry(&mut self) {
        self.controls.wake();
    }
}

/// Whether anything is heard, and where it comes from.
impl Channel {
    /// Which of the server's addresses it talks to.
    pub(crate) const fn address(&self) -> usize {
        self.address
    }

    /// What goes to the server goes to this address from now on.
    pub(crate) fn set_address(&mut self, address: usize, remote: SocketAddr) {
        if self.path.remote != remote {
            self.address = address;
            self.path = Path::to(remote);
        }
    }

    /// Timeouts since the server was heard last.
    pub(crate) const fn unheard(&self) -> u32 {
        self.unheard
    }

    /// A timeout passed without a word. How many there were since there was one.
    pub(crate) const fn heard_nothing(&mut self) -> u32 {
        self.unheard = self.unheard.saturating_add(1);
        self.unheard
    }

    /// The timeout of a request has passed. Whether that was a loss.
    pub(crate) fn request_timed_out(&mut self, now: Instant, nonce: u64) -> bool {
        let (what, lost) = self.requests.overdue(nonce, now);
        if what == Timeout::TakeBack {
            self.controls.cancel(nonce);
        }
        lost
    }

    /// The timeout of a control message has passed: it goes out again. False if it was answered.
    pub(crate) fn control_timed_out(&mut self, serial: u64) -> bool {
        self.controls.overdue(serial)
    }

    /// Datagrams of this host leave from another address from now on, perhaps unknown to the server. What waits for its timeout may have
    /// been sent to nowhere, while there was no address at all.
    pub(crate) fn address_changed(&mut self, now: Instant) {
        self.moved = Some(now);
        self.controls.wake();
    }

    /// Whether nothing that was sent since this host moved has been answered.
    pub(crate) const fn is_moving(&self) -> bool {
        self.moved.is_some()
    }

    /// When something was sent last whose answer will renew the lease. What went out before the host moved may not be answered to where
    /// it is now.
    pub(crate) fn last_asked(&self) -> Option<Instant> {
        self.asked.filter(|asked| self.moved.is_none_or(|moved| asked.waited(moved)))
    }

    /// Whether what is unanswered waits because nobody needs it.
    pub(crate) const fn is_dormant(&self) -> bool {
        self.dormant
    }

    /// Whether all that is not answered is asked for again, sooner or later.
    pub(crate) fn is_live(&self, timers: &Timers) -> bool {
        let requests = self.requests.untimed(|nonce| timers.get(Timer::Request(nonce)).is_some());
        let controls = self.controls.untimed(|serial| timers.get(Timer::Control(serial)).is_some());
        self.dormant || !requests && !controls
    }

    /// Nobody needs what is unanswered: it waits.
    pub(crate) const fn rest(&mut self) {
        self.dormant = true;
    }

    /// What waits because nobody needed its answer goes out again. Whether anything did.
    pub(crate) fn wake(&mut self) -> bool {
        let woken = core::mem::replace(&mut self.dormant, false);
        if woken {
            self.controls.wake();
        }
        woken
    }
}
