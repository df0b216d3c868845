//! What a connection waits for, all at one place: lines, locks, the operation that is carried out, events, and the end.
//!
//! Decides: how much is read ahead, what is answered as it is read, that a request can be given up while it waits or runs, and when events are
//! told: after the answer to what asked for them, and also while a request is carried out.
//! Invariant: `turn` is the only wait of a connection while it is served; whatever can end a wait rings the one bell.
//! Leaves to others: the order of requests, and the end of the connection (`connection`), what requests mean (`execute`).

use super::lines::{Cut, LineBuffer};
use crate::bell::Bell;
use crate::execute::{Awaited, EXIT_FAILED, EXIT_UNAVAILABLE, Holds, Obtained, Waits};
use crate::local::{Event, Failure, Greeting, Hold, LINE_MAX, News, Request, RequestLine, Response, Said, Unread, Until};
use crate::signals::{End, wait_for};
use cistern_client::{Client, Error, Guard, LockState, Op, Operation};
use cistern_wire::Status;
use nix::poll::{PollFd, PollFlags};
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::io::{self, ErrorKind as IoError, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const CHUNK: usize = 16 << 10;

/// Most requests that are read ahead, and most locks that a connection waits for: a program with more is told BUSY, or not read.
const AHEAD_MAX: usize = 1_024;

/// A request that has not begun.
pub(super) struct Queued {
    pub(super) asked: RequestLine,
    /// When it is given up.
    pub(super) until: Option<Instant>,
    bytes: usize,
}

/// A lock that is waited for, or the others at a barrier.
struct LockWait {
    id: u64,
    awaited: Awaited<Obtained>,
    until: Option<Instant>,
    linger: bool,
    events: bool,
}

/// The request that is carried out.
#[derive(Clone, Copy, Default)]
struct Running {
    id: u64,
    until: Option<Instant>,
    canceled: bool,
    /// It was given up for its deadline.
    is_late: bool,
}

pub(super) struct Desk<'e> {
    client: Client,
    stream: &'e UnixStream,
    end: &'e End,
    bell: Arc<Bell>,
    waker: Waker,
    inbox: LineBuffer,
    queue: VecDeque<Queued>,
    running: Option<Running>,
    locks: Vec<LockWait>,
    held: Holds,
    /// Whether instants mean the same to the program as to the agent.
    our_clocks: bool,
    /// The last instant until which the program was told that a lock is certain.
    told: Option<Until>,
    /// The program has said hello.
    greeted: bool,
    /// Holds of which events are told.
    listening: BTreeSet<u64>,
    /// A lock was asked for that outlives a program that was killed.
    lingers: bool,
    /// The program writes no more.
    is_read: bool,
    /// The program reads no more.
    is_gone: bool,
}

impl<'e> Desk<'e> {
    /// # Errors
    /// The system gives no descriptors.
    pub(super) fn new(client: Client, stream: &'e UnixStream, end: &'e End, (held, our_clocks): (Holds, bool)) -> io::Result<Self> {
        let (bell, waker) = Bell::new()?;
        Ok(Self {
            client,
            stream,
            end,
            bell,
            waker,
            inbox: LineBuffer::default(),
            queue: VecDeque::new(),
            running: None,
            locks: Vec::new(),
            held,
            our_clocks,
            told: None,
            greeted: false,
            listening: BTreeSet::new(),
            lingers: false,
            is_read: false,
            is_gone: false,
        })
    }

    /// The next request, once there is one; `None` when the connection is over or the agent ends.
    pub(super) fn next(&mut self) -> Option<Queued> {
        loop {
            if self.is_gone || self.end.is_asked() {
                return None;
            }
            if let Some(queued) = self.queue.pop_front() {
                return Some(queued);
            }
            if self.is_read && self.locks.is_empty() {
                return None;
            }
            self.turn(None);
        }
    }

    /// Whether the program would miss nothing if its connection ended now.
    pub(super) fn ends_unseen(&self) -> bool {
        self.held.ends_unseen() && self.locks.is_empty() && self.queue.is_empty()
    }

    /// How long its locks are kept now that the program is gone; `None`: they are not.
    pub(super) fn lingers_for(&self) -> Option<Duration> {
        let told = self.told.filter(|_| self.lingers && !self.held.is_empty())?;
        Some(told.left(self.client.now()))
    }

    /// Waits for no lock any more; what is held.
    pub(super) fn close(self) -> Holds {
        self.held
    }

    /// A request is carried out from now on.
    pub(super) fn begin(&mut self, id: u64, until: Option<Instant>) {
        self.running = Some(Running { id, until, ..Running::default() });
    }

    /// It has ended.
    pub(super) fn ended(&mut self, result: Result<Response, Failure>) -> Result<Response, Failure> {
        let is_late = self.running.take().is_some_and(|running| running.is_late);
        result.map_err(|failure| if is_late && failure.code == Status::ECANCELED.name() { late() } else { failure })
    }

    /// Waits for something, which is answered when it is there; `linger` and `events` as for a lock.
    pub(super) fn wait_for(&mut self, id: u64, until: Option<Instant>, awaited: Awaited<Obtained>, (linger, events): (bool, bool)) {
        if self.locks.len() >= AHEAD_MAX {
            let failure = Failure::new("BUSY", EXIT_UNAVAILABLE, format!("this connection waits for {AHEAD_MAX} locks already"));
            return self.answer(Some(id), Err(failure));
        }
        self.locks.push(LockWait { id, awaited, until, linger, events });
        self.serve_locks();
    }

    pub(super) fn answer(&mut self, id: Option<u64>, result: Result<Response, Failure>) {
        self.say(&Said::answer(id, result));
    }

    fn say(&mut self, said: &Said) {
        let written = serde_json::to_vec(said).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.stream.write_all(&line)
        });
        if let Err(error) = written {
            // A program that was killed, or does not read its answers: nothing for the agent to mend.
            log::debug!("a program's connection broke: {error}");
            self.is_gone = true;
        }
    }

    /// Serves what can be served without waiting, and waits until something has happened, at most until `until`.
    fn turn(&mut self, until: Option<Instant>) {
        self.serve_locks();
        let guards: Vec<(u64, Arc<Guard>)> =
            self.listening.iter().filter_map(|hold| Some((*hold, Arc::clone(self.held.get(*hold).ok()?)))).collect();
        let mut told = Vec::new();
        // Receivers, which ring as long as they live.
        let mut states: Vec<_> = guards.iter().map(|(hold, guard)| (*hold, guard.events())).collect();
        let mut cx = Context::from_waker(&self.waker);
        for (hold, states) in &mut states {
            while let Poll::Ready(Some(state)) = states.poll_next(&mut cx) {
                told.push(Event::Lock { hold: *hold, state: name(state).to_owned() });
            }
        }
        let mut changes = self.held.watcher().map(|watcher| watcher.events());
        while let Some(Poll::Ready(Some(event))) = changes.as_mut().map(|changes| changes.poll_next(&mut cx)) {
            told.push(Event::Watch(News::from(event)));
        }
        let ready = if told.is_empty() {
            let until = self.locks.iter().filter_map(|wait| wait.until).chain(until).min();
            self.sleep(until)
        } else {
            Ready::default()
        };
        drop((states, changes));
        for event in told {
            self.say(&Said::event(event));
        }
        self.is_gone |= ready.hung_up;
        if ready.lines {
            self.read();
        }
    }

    /// Waits; what is ready on the stream.
    fn sleep(&self, until: Option<Instant>) -> Ready {
        let ahead = self.inbox.len() + self.queue.iter().map(|queued| queued.bytes).sum::<usize>();
        let reads = !self.is_read && ahead <= LINE_MAX && self.queue.len() < AHEAD_MAX;
        // No event asked for: an error and the end of both directions are told all the same.
        let lines = if reads { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(self.stream.as_fd(), lines), PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        if !self.end.is_asked() {
            fds.push(PollFd::new(self.end.as_fd(), PollFlags::POLLIN));
        }
        wait_for(&mut fds, until.map(|until| until.saturating_duration_since(Instant::now())));
        let seen = fds[0].revents().unwrap_or(PollFlags::empty());
        if fds[1].any() == Some(true) {
            self.bell.silence();
        }
        let lines = seen.contains(PollFlags::POLLIN);
        Ready { lines, hung_up: !lines && seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) }
    }

    fn read(&mut self) {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.is_read = true,
            Ok(count) => self.inbox.take(&chunk[..count]),
            Err(e) if e.kind() == IoError::Interrupted => {}
            Err(_) => self.is_gone = true,
        }
        while let Some(cut) = self.inbox.line() {
            match cut {
                Cut::TooLong => self.answer(None, Err(Failure::usage(format!("the line is longer than {LINE_MAX} bytes")))),
                Cut::Line(line) => match RequestLine::read(&line) {
                    Ok(asked) => self.enqueue(asked, line.len()),
                    Err(Unread { id, failure }) => self.answer(id, Err(failure)),
                },
            }
        }
    }

    /// Puts a request behind those that came before; what needs no server, and decides nothing for others, is answered at once.
    fn enqueue(&mut self, asked: RequestLine, bytes: usize) {
        let answer = match asked.request {
            Request::Hello { api } => {
                let answer = Greeting::to(api, "agent", LINE_MAX);
                self.greeted |= answer.is_ok();
                answer
            }
            _ if !self.greeted => Err(Greeting::missing()),
            Request::Cancel { request } => {
                self.cancel(request);
                Ok(Response::Done {})
            }
            Request::Hold { hold } if asked.guard.is_none() => self.look(hold),
            _ => {
                let until = asked.deadline_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
                return self.queue.push_back(Queued { asked, until, bytes });
            }
        };
        self.answer(Some(asked.id), answer);
    }

    /// How a lock stands, of which note is taken: the program may act under it until then.
    fn look(&mut self, hold: u64) -> Result<Response, Failure> {
        let seen = self.held.look(&self.client, hold)?;
        //= wire-spec.md#11-1-lease
        //# The end of the lease MUST be translated for, or refused to, a user whose clock has another origin.
        let until = seen.until.filter(|_| self.our_clocks);
        self.told = self.told.max(until);
        Ok(Response::Hold(Hold { until, ..seen }))
    }

    /// Gives a request up, wherever it is; it is answered.
    fn cancel(&mut self, id: u64) {
        if let Some(running) = self.running.as_mut().filter(|running| running.id == id) {
            running.canceled = true;
        }
        if let Some(at) = self.queue.iter().position(|queued| queued.asked.id == id) {
            self.queue.remove(at);
            self.answer(Some(id), Err(canceled()));
        }
        if let Some(at) = self.locks.iter().position(|wait| wait.id == id) {
            // A lock that has come at this moment goes back with what was waited for.
            drop(self.locks.remove(at));
            self.answer(Some(id), Err(canceled()));
        }
    }

    /// Answers those locks that are there, or will not be.
    fn serve_locks(&mut self) {
        let mut at = 0;
        while let Some(wait) = self.locks.get_mut(at) {
            let is_late = wait.until.is_some_and(|until| until <= Instant::now());
            let polled = wait.awaited.as_mut().poll(&mut Context::from_waker(&self.waker));
            if polled.is_pending() && !is_late {
                at += 1;
                continue;
            }
            let LockWait { id, awaited, linger, events, .. } = self.locks.remove(at);
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => Err(late()),
            };
            drop(awaited);
            let result = result.map(|obtained| {
                let response = self.held.keep_obtained(obtained);
                self.lingers |= linger;
                if let Response::Locked { hold, .. } = &response
                    && events
                {
                    self.listening.insert(*hold);
                }
                response
            });
            self.answer(Some(id), result);
        }
        let held = &self.held;
        self.listening.retain(|hold| held.get(*hold).is_ok());
    }
}

impl Waits for Desk<'_> {
    fn wait<K: Operation>(&mut self, op: Op<K>) -> Result<K::Output, Error> {
        let mut call = op.start();
        loop {
            if let Poll::Ready(result) = Pin::new(&mut call).poll(&mut Context::from_waker(&self.waker)) {
                return result;
            }
            if let Some(running) = &mut self.running {
                running.is_late = running.until.is_some_and(|until| until <= Instant::now());
                if running.canceled || running.is_late || self.is_gone {
                    return call.cancel();
                }
            }
            self.turn(self.running.and_then(|running| running.until));
        }
    }

    fn held(&mut self) -> &mut Holds {
        &mut self.held
    }
}

/// What can be done on a stream.
#[derive(Clone, Copy, Default)]
struct Ready {
    lines: bool,
    hung_up: bool,
}

fn canceled() -> Failure {
    Failure::new(Status::ECANCELED.name(), EXIT_FAILED, "the request was given up, and nothing was changed")
}

fn late() -> Failure {
    Failure::new("TIMED_OUT", EXIT_FAILED, "the request did not end in the time allowed; nothing was changed")
}

const fn name(state: LockState) -> &'static str {
    match state {
        LockState::Certain => "certain",
        LockState::Suspect => "suspect",
        LockState::Lost => "lost",
        _ => "uncertain",
    }
}
