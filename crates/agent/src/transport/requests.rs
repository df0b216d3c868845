//! Requests in flight: nonces, windows, retransmission, and what a path has shown to carry (`wire-spec.md` 3.7, 11.2).
//!
//! A request goes out within the server's window of nonces and the congestion window, and again after an adaptive timeout with back-off and
//! jitter; one that is pending is asked about at least every τ/2. After two losses it keeps within 1,232 bytes, after four within 548, and so
//! does what it lets the server answer. A nonce is awaited exactly as long as its request is in this table.

use crate::call::{Origin, TaskId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::{Instant, Nonces, Window};
use cistern_wire::limits::{DATAGRAM_DEFAULT, DATAGRAM_MIN, MESSAGE_HEADER_LEN};
use cistern_wire::{Item, Kind, Message};
use core::ops::Range;
use core::time::Duration;

/// Where the parts of `Ask` stand in an encoded request: behind the message header.
const NONCE: Range<usize> = 4..12;
const BACK: Range<usize> = 12..14;
const LIMIT: Range<usize> = 14..16;
/// For how long a path on which only small datagrams came through is spared large ones.
const SMALL_FOR: Duration = Duration::from_secs(30);

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Sent; unanswered.
    Sent,
    /// To be sent again.
    Due,
    /// The server executes it; to be asked about again later.
    Pending,
    /// Too large for the path as it is now: it is being taken back.
    Withdrawn,
}

/// A request that the server was sent and has not answered for good.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) origin: Origin,
    pub(crate) mutation: bool,
    message: Vec<u8>,
    state: Progress,
    /// Whether it ever was pending: its answer then measures a wait, not the path.
    pub(crate) waited: bool,
    /// Transmissions since the server was last heard about it.
    attempts: u32,
    /// Whether it was ever sent.
    began: bool,
    /// Losses in a row.
    losses: u32,
    /// The floor that its first transmission announced; later ones announced no less.
    floor: u64,
    first_sent: Instant,
    sent: Instant,
}

impl InFlight {
    /// Whether the request is a batch whose item `at` makes an ephemeral file.
    pub(crate) fn makes_ephemeral(&self, at: usize) -> bool {
        let is_batch = self.message.first().is_some_and(|code| *code == Kind::Batch.code());
        let body = self.message.get(MESSAGE_HEADER_LEN..).filter(|_| is_batch);
        let batch = body.and_then(|body| Message::decode(Kind::Batch, body).ok());
        matches!(batch, Some(Message::Batch(batch)) if matches!(batch.items.iter().nth(at), Some(Item::Create(create)) if create.ephemeral))
    }
}

/// Requests that are awaited, by nonce.
pub(crate) type Flights = BTreeMap<u64, InFlight>;

/// The requests of one session.
#[derive(Debug)]
pub(crate) struct Requests {
    nonces: Nonces,
    /// The next nonce.
    next: u64,
    /// The highest floor of which the server is known to have heard.
    told: u64,
    window: u16,
    congestion: Window,
    flights: Flights,
    due: BTreeSet<u64>,
    /// Flights that are in the network, as far as is known.
    in_flight: usize,
    /// Largest datagram of the session, and what it has around its messages.
    max_datagram: usize,
    around: usize,
    /// What came through when larger ones did not, and until when that is heeded.
    small: Option<(usize, Instant)>,
    /// When a request was last answered only after it had been made smaller.
    shrunk: Option<Instant>,
}

/// A transmission of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmission {
    /// Transmissions before it since the server was last heard about the request.
    pub(crate) attempts: u32,
    /// Whether it is the first of all.
    pub(crate) first: bool,
}

/// What is to be done about a request whose timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// It was answered meanwhile.
    Nothing,
    /// It goes out again.
    Again,
    /// It is too large for what the path seems to carry: take it back, and ask in smaller pieces.
    TakeBack,
}

impl Requests {
    /// No requests yet; W, the largest datagram, and what one has around its messages, are the session's.
    pub(crate) fn new(window: u16, max_datagram: usize, around: usize) -> Self {
        Self {
            nonces: Nonces::new(),
            next: 1,
            told: 1,
            window,
            congestion: Window::new(window.into()),
            flights: BTreeMap::new(),
            due: BTreeSet::new(),
            in_flight: 0,
            max_datagram,
            around,
            small: None,
            shrunk: None,
        }
    }

    /// The lowest nonce awaited and the next one.
    pub(crate) const fn horizon(&self) -> (u64, u64) {
        (self.nonces.floor(), self.next)
    }

    /// Requests not answered for good.
    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether a request may be sent now: one again, or a new one.
    pub(crate) fn may_send(&self) -> bool {
        self.congestion.can_send(self.in_flight)
    }

    /// Whether one is to be sent again, and may be.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty() && self.may_send()
    }

    /// Whether a new one may be sent now.
    pub(crate) fn may_start(&self) -> bool {
        self.due.is_empty() && self.may_send() && self.nonces.can_start(self.window)
    }

    /// The largest datagram to make now, in bytes.
    pub(crate) fn path_size(&self, now: Instant) -> usize {
        match self.small {
            Some((size, until)) if !now.waited(until) => size,
            _ => self.max_datagram,
        }
    }

    /// The first request to be sent again, and the largest datagram in which that may be.
    pub(crate) fn first_due(&self, now: Instant) -> Option<(u64, usize)> {
        let nonce = *self.due.first()?;
        self.flights.get(&nonce).map(|flight| (nonce, self.size_for(flight.losses, now)))
    }

    fn size_for(&self, losses: u32, now: Instant) -> usize {
        match losses {
            0 | 1 => self.path_size(now),
            //= wire-spec.md#3-7-sizes-and-paths
            //# After two losses in a row the sender MUST repeat what was in a datagram above 1,232 bytes in datagrams of at most 1,232
            //# bytes.
            2 | 3 => self.path_size(now).min(DATAGRAM_DEFAULT),
            //= wire-spec.md#3-7-sizes-and-paths
            //# After two further losses the sender MUST repeat it in datagrams of at most 548 bytes.
            _ => DATAGRAM_MIN,
        }
    }

    /// Begins to await the answer to a new request.
    pub(crate) fn start(&mut self, origin: Origin, message: Vec<u8>, mutation: bool, now: Instant) -> Option<u64> {
        let nonce = self.nonces.start(self.window)?;
        self.next = nonce + 1;
        let state = Progress::Due;
        let flight = InFlight {
            origin,
            mutation,
            message,
            state,
            waited: false,
            attempts: 0,
            began: false,
            losses: 0,
            floor: 0,
            first_sent: now,
            sent: now,
        };
        self.flights.insert(nonce, flight);
        self.due.insert(nonce);
        Some(nonce)
    }

    /// The bytes of a request as they go out now, its Ask filled in; notes that they are sent.
    pub(crate) fn send(&mut self, nonce: u64, now: Instant) -> Option<(&[u8], Transmission)> {
        let back = self.nonces.back(nonce)?;
        let losses = self.flights.get(&nonce)?.losses;
        let limit = u16::try_from(self.size_for(losses, now)).unwrap_or(u16::MAX);
        let flight = self.flights.get_mut(&nonce)?;
        //= wire-spec.md#11-2-delivery
        //# A request that is sent again MUST keep its nonce and everything after its Ask.
        flight.message.get_mut(NONCE)?.copy_from_slice(&nonce.to_be_bytes());
        flight.message.get_mut(BACK)?.copy_from_slice(&back.to_be_bytes());
        flight.message.get_mut(LIMIT)?.copy_from_slice(&limit.to_be_bytes());
        flight.state = Progress::Sent;
        flight.sent = now;
        if !flight.began {
            flight.floor = nonce - u64::from(back);
        }
        let sending = Transmission { attempts: flight.attempts, first: !flight.began };
        flight.attempts = flight.attempts.saturating_add(1);
        flight.began = true;
        self.due.remove(&nonce);
        self.in_flight += 1;
        Some((&flight.message, sending))
    }

    /// Bytes of an encoded request.
    pub(crate) fn size_of(&self, nonce: u64) -> usize {
        self.flights.get(&nonce).map_or(0, |flight| flight.message.len())
    }

    /// The timeout of a request has passed. Told with whether that was a loss.
    pub(crate) fn overdue(&mut self, nonce: u64, now: Instant) -> (Timeout, bool) {
        let Some(flight) = self.flights.get_mut(&nonce) else { return (Timeout::Nothing, false) };
        let lost = match flight.state {
            Progress::Sent => {
                self.in_flight -= 1;
                flight.losses += 1;
                self.congestion.on_loss(now, flight.sent);
                true
            }
            Progress::Pending => false,
            Progress::Due | Progress::Withdrawn => return (Timeout::Nothing, false),
        };
        let (losses, size) = (flight.losses, flight.message.len() + self.around);
        let fits = size <= self.size_for(losses, now);
        let Some(flight) = self.flights.get_mut(&nonce) else { return (Timeout::Nothing, lost) };
        if fits {
            flight.state = Progress::Due;
            self.due.insert(nonce);
            (Timeout::Again, lost)
        } else {
            flight.state = Progress::Withdrawn;
            (Timeout::TakeBack, lost)
        }
    }

    /// Taking a request back has shown that the server has answered it: it is asked for that answer, at the size at which it came
    /// through.
    pub(crate) fn ask_on(&mut self, nonce: u64) {
        if let Some(flight) = self.flights.get_mut(&nonce).filter(|flight| flight.state == Progress::Withdrawn) {
            flight.state = Progress::Due;
            self.due.insert(nonce);
        }
    }

    /// PENDING has come. Gives when the request was sent last, if it is awaited.
    pub(crate) fn pending(&mut self, nonce: u64) -> Option<Instant> {
        self.heard(nonce);
        let flight = self.flights.get_mut(&nonce)?;
        let sent = flight.sent;
        flight.waited = true;
        flight.attempts = 0;
        flight.losses = 0;
        match flight.state {
            Progress::Sent => {
                self.congestion.on_ack(self.in_flight);
                self.in_flight -= 1;
                flight.state = Progress::Pending;
                Some(sent)
            }
            Progress::Due => {
                self.due.remove(&nonce);
                flight.state = Progress::Pending;
                Some(sent)
            }
            Progress::Pending | Progress::Withdrawn => None,
        }
    }

    /// The server has received a request, and with it the floor.
    pub(crate) fn heard(&mut self, nonce: u64) {
        if let Some(flight) = self.flights.get(&nonce) {
            self.told = self.told.max(flight.floor);
        }
    }

    /// Whether the answer to any request need not be awaited any more: also if the server has not heard of what was asked since, the
    /// floor stays so near to the one it knows that it believes it.
    //= wire-spec.md#11-2-delivery
    //# An agent MUST NOT announce a floor more than W above one of which it knows that the server has heard.
    pub(crate) fn may_give_up(&self) -> bool {
        self.next <= self.told + u64::from(self.window)
    }

    /// The request is answered for good, or nobody waits for its answer any more.
    pub(crate) fn retire(&mut self, nonce: u64, now: Instant) -> Option<InFlight> {
        let flight = self.flights.remove(&nonce)?;
        self.nonces.retire(nonce);
        self.due.remove(&nonce);
        if flight.state == Progress::Sent {
            self.congestion.on_ack(self.in_flight);
            self.in_flight -= 1;
        }
        let came_through = self.size_for(flight.losses, now);
        if came_through < self.path_size(now) {
            self.came_through_small(&flight, came_through, now);
        }
        Some(flight)
    }

    /// A request was answered only when it, or the answer that it allowed, had been made smaller. Once may have been an outage of the
    /// whole path; again, by a request that began after that, is a sign. Those that were under way then say nothing more: with several
    /// at once there would always be one more of them.
    fn came_through_small(&mut self, flight: &InFlight, size: usize, now: Instant) {
        match self.shrunk.filter(|at| !now.waited(at.plus(SMALL_FOR))) {
            Some(at) if flight.first_sent.waited(at) => {
                self.small = Some((size, now.plus(SMALL_FOR)));
                self.shrunk = Some(now);
            }
            Some(_) => {}
            None => self.shrunk = Some(now),
        }
    }

    /// The reads of a command that is over: their answers are not awaited any more.
    pub(crate) fn reads_of(&self, task: TaskId) -> Vec<u64> {
        let reads = self.flights.iter().filter(|(_, flight)| !flight.mutation && matches!(flight.origin, Origin::Op(of, _) if of == task));
        reads.map(|(nonce, _)| *nonce).collect()
    }

    /// The nonce under which somebody asks.
    pub(crate) fn nonce_of(&self, origin: Origin) -> Option<u64> {
        self.flights.iter().find(|(_, flight)| flight.origin == origin).map(|(nonce, _)| *nonce)
    }

    /// Stops awaiting a request without an answer; says nothing about the path.
    pub(crate) fn drop(&mut self, nonce: u64) -> Option<InFlight> {
        let flight = self.flights.remove(&nonce)?;
        self.nonces.retire(nonce);
        self.due.remove(&nonce);
        self.in_flight -= usize::from(flight.state == Progress::Sent);
        Some(flight)
    }

    /// A request, if it is awaited.
    pub(crate) fn get(&self, nonce: u64) -> Option<&InFlight> {
        self.flights.get(&nonce)
    }

    /// Whether one is out of which nobody would see that its answer does not come.
    pub(crate) fn untimed(&self, is_timed: impl Fn(u64) -> bool) -> bool {
        let in_time = |nonce: u64, flight: &InFlight| matches!(flight.state, Progress::Due | Progress::Withdrawn) || is_timed(nonce);
        self.flights.iter().any(|(nonce, flight)| !in_time(*nonce, flight))
    }

    /// Takes out everything that is awaited: the session is over, or of use for nothing but its end. No nonce is used again.
    pub(crate) fn take(&mut self) -> Flights {
        for nonce in self.flights.keys() {
            self.nonces.retire(*nonce);
        }
        self.due.clear();
        self.in_flight = 0;
        core::mem::take(&mut self.flights)
    }
}

#[cfg(test)]
mod tests {
    const AROUND: usize = cistern_wire::Form::Plain.around();
    use super::*;
    use alloc::vec;

    const TASK: TaskId = TaskId(1);

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000, ms * 1_000_000)
    }

    fn started(requests: &mut Requests, size: usize) -> u64 {
        let nonce = requests.start(Origin::Op(TASK, 0), vec![0; size], false, at(0)).unwrap();
        requests.send(nonce, at(0)).unwrap();
        nonce
    }

    fn limit(bytes: &[u8]) -> u16 {
        u16::from_be_bytes([bytes[14], bytes[15]])
    }

    #[test]
    fn nonce_floor_and_limit_are_filled_in_at_each_transmission() {
        let mut requests = Requests::new(64, 1_232, AROUND);
        let first = started(&mut requests, 40);
        let second = started(&mut requests, 40);
        requests.overdue(second, at(100));
        let (bytes, sending) = requests.send(second, at(100)).unwrap();
        assert_eq!((&bytes[NONCE], &bytes[BACK], limit(bytes)), (&[0, 0, 0, 0, 0, 0, 0, 2][..], &[0, 1][..], 1_232));
        assert_eq!(sending, Transmission { attempts: 1, first: false });
        requests.retire(first, at(101));
        requests.overdue(second, at(200));
        assert_eq!(requests.send(second, at(200)).unwrap().0[BACK], [0, 0], "the floor has moved");
        assert_eq!(requests.horizon(), (2, 3));
    }

    //= wire-spec.md#3-7-sizes-and-paths
    //= type=test
    //# After two losses in a row the sender MUST repeat what was in a datagram above 1,232 bytes in datagrams of at most 1,232 bytes.
    //= wire-spec.md#3-7-sizes-and-paths
    //= type=test
    //# After two further losses the sender MUST repeat it in datagrams of at most 548 bytes.
    #[test]
    fn answers_shrink_to_1232_after_two_losses_and_to_548_after_four() {
        let mut requests = Requests::new(64, 8_000, AROUND);
        let nonce = started(&mut requests, 40);
        for (loss, size) in [(1, 8_000), (2, 1_232), (3, 1_232), (4, 548), (5, 548)] {
            assert_eq!(requests.overdue(nonce, at(loss)), (Timeout::Again, true));
            assert_eq!(requests.first_due(at(loss)), Some((nonce, size)));
            assert_eq!(usize::from(limit(requests.send(nonce, at(loss)).unwrap().0)), size, "after {loss} losses");
        }
        requests.retire(nonce, at(6));
        assert_eq!(requests.path_size(at(7)), 8_000, "one may have been an outage");
        let nonce = requests.start(Origin::Op(TASK, 0), vec![0; 40], false, at(8)).unwrap();
        for loss in 8..12 {
            requests.send(nonce, at(loss));
            requests.overdue(nonce, at(loss));
        }
        requests.retire(nonce, at(12));
        assert_eq!(requests.path_size(at(13)), 548, "two in a row are a sign");
        assert_eq!(requests.path_size(at(12).plus(SMALL_FOR)), 8_000, "for a while");
    }

    #[test]
    fn requests_of_which_there_is_always_another_under_way_find_out_how_small_the_path_is() {
        let mut requests = Requests::new(64, 1_232, AROUND);
        let begin = |requests: &mut Requests, now| requests.start(Origin::Op(TASK, 0), vec![0; 1_000], false, at(now)).unwrap();
        let lose = |requests: &mut Requests, nonce, now| {
            requests.send(nonce, at(now));
            requests.overdue(nonce, at(now + 1)).0
        };
        let mut older = begin(&mut requests, 0);
        (0..2).for_each(|n| assert_eq!(lose(&mut requests, older, n), Timeout::Again));
        let mut taken_back = 0;
        // Each begins when the one before it is half through its four losses.
        for round in 1..10 {
            let now = round * 100;
            let younger = begin(&mut requests, now);
            assert_eq!(lose(&mut requests, older, now + 1), Timeout::Again);
            (2..4).for_each(|n| assert_eq!(lose(&mut requests, younger, now + n), Timeout::Again));
            assert_eq!(lose(&mut requests, older, now + 4), Timeout::TakeBack);
            requests.retire(older, at(now + 5));
            taken_back += 1;
            older = younger;
            if requests.path_size(at(now + 5)) == DATAGRAM_MIN {
                break;
            }
        }
        assert_eq!(taken_back, 3, "the first, the one that was under way then, and the first that began after");
    }

    #[test]
    fn a_request_too_large_for_the_path_is_taken_back_not_sent_again() {
        let mut requests = Requests::new(64, 1_232, AROUND);
        let nonce = started(&mut requests, 1_000);
        for loss in 1..4 {
            assert_eq!(requests.overdue(nonce, at(loss)).0, Timeout::Again);
            requests.send(nonce, at(loss));
        }
        assert_eq!(requests.overdue(nonce, at(4)), (Timeout::TakeBack, true));
        assert!(!requests.has_due() && requests.get(nonce).is_some());
        requests.ask_on(nonce);
        assert_eq!(limit(requests.send(nonce, at(5)).unwrap().0), 548, "it came through, its answer did not");
    }

    #[test]
    fn what_the_server_executes_is_not_in_the_network() {
        let mut requests = Requests::new(64, 1_232, AROUND);
        let all: Vec<u64> = (0..10).map(|_| started(&mut requests, 40)).collect();
        assert!(!requests.may_send(), "a new window admits ten");
        assert_eq!(requests.pending(all[0]), Some(at(0)));
        assert!(requests.may_send());
        assert_eq!(requests.pending(all[0]), None, "a copy of PENDING says nothing new");
        assert_eq!(requests.overdue(all[0], at(1_000)), (Timeout::Again, false), "asking again is no loss");
    }

    //= wire-spec.md#11-2-delivery
    //= type=test
    //# An agent MUST NOT announce a floor more than W above one of which it knows that the server has heard.
    #[test]
    fn floor_runs_no_further_ahead_than_w_of_what_the_server_has_heard() {
        let mut requests = Requests::new(2, 1_232, AROUND);
        let first = started(&mut requests, 40);
        let second = started(&mut requests, 40);
        assert!(requests.may_give_up());
        requests.drop(first);
        requests.drop(second);
        let third = started(&mut requests, 40);
        assert_eq!(third, 3, "the server keeps floor 1, and believes this one");
        assert!(!requests.may_give_up(), "it would not believe 4");
        requests.heard(third);
        assert!(requests.may_give_up());
    }

    #[test]
    fn no_nonce_is_used_again_when_all_that_was_awaited_is_taken_out() {
        let mut requests = Requests::new(2, 1_232, AROUND);
        (0..2).for_each(|_| assert!(started(&mut requests, 40) > 0));
        assert_eq!(requests.take().into_keys().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((requests.len(), started(&mut requests, 40)), (0, 3));
    }

    #[test]
    fn one_old_request_stops_new_ones_at_floor_plus_window() {
        let mut requests = Requests::new(2, 1_232, AROUND);
        let first = started(&mut requests, 40);
        let second = started(&mut requests, 40);
        requests.retire(second, at(1));
        assert!(!requests.may_start());
        requests.retire(first, at(2));
        assert!(requests.may_start());
    }
}
