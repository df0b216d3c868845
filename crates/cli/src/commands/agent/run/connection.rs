//! One connection of a local program to the host's agent: lines in, answers out, in order.
//!
//! Decides: how lines are cut and bounded; that a program which has gone away waits for no lock any more; and what happens to the locks of
//! a connection at its end: given back when the program ends it, and kept until then when the agent ends it (section 11.3). A lock that was
//! asked for with `linger` outlives a connection that ends without an unlock until the last instant that was told of it: the program was
//! killed, and what it had started may act until then.
//! Place in the walk: a thread, between a program's socket and `execute`. Implements nothing of the wire format.
//! Invariant: while a request is carried out nothing more is read, so a program cannot make the agent keep more than one line.
//! Leaves to others: what requests mean (`local`, `execute`).

use super::Room;
use crate::bell::Bell;
use crate::execute::{Holds, Programs, User, execute, lock};
use crate::local::{Answer, Failure, Hold, Request, Response, Until};
use crate::signals::{End, wait_for};
use crate::text::Text;
use cistern_client::Client;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt};
use std::fs;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Longest line, in bytes: the largest contents as base64 (4/3 of 1 MiB) and the path they go to.
const LINE_MAX: usize = 2 << 20;
const CHUNK: usize = 16 << 10;

/// Between attempts to remove the files of a program that has gone.
const LEAVE_PAUSE: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(super) fn serve(client: Client, stream: &UnixStream, (user, programs): (User, Programs), room: &Room, end: &End) {
    let our_clocks = has_our_clocks(stream);
    let mut connection = Connection {
        client,
        stream,
        room,
        end,
        our_clocks,
        holds: Holds::of(user, programs),
        lingers: false,
        told: None,
        buffer: Vec::new(),
        searched: 0,
    };
    if let Err(error) = connection.run() {
        // A program that was killed, or does not read its answers: nothing for the agent to mend.
        log::debug!("a program's connection broke: {error}");
    }
    connection.hand_in();
}

/// Whether the program at the other end is in the agent's time namespace. Where that cannot be found out it counts as not.
fn has_our_clocks(stream: &UnixStream) -> bool {
    getsockopt(stream, sockopt::PeerCredentials).is_ok_and(|program| shares_clocks(program.pid()))
}

/// Whether a process is in the time namespace of this one. Where that cannot be found out it counts as not.
pub(crate) fn shares_clocks(pid: i32) -> bool {
    share_origin(fs::read_link(format!("/proc/{pid}/ns/time")), fs::read_link("/proc/self/ns/time"))
}

fn share_origin(theirs: io::Result<PathBuf>, ours: io::Result<PathBuf>) -> bool {
    match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        // A kernel without time namespaces has one origin for all.
        (_, Err(e)) => e.kind() == io::ErrorKind::NotFound,
        (Err(_), Ok(_)) => false,
    }
}

struct Connection<'e> {
    client: Client,
    stream: &'e UnixStream,
    room: &'e Room,
    end: &'e End,
    /// Whether instants mean the same to the program as to the agent.
    our_clocks: bool,
    holds: Holds,
    /// A lock was asked for that outlives a program that was killed.
    lingers: bool,
    /// The last instant until which the program was told that a lock is certain.
    told: Option<Until>,
    /// Bytes read that no request was made of yet.
    buffer: Vec<u8>,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
}

impl Connection<'_> {
    fn run(&mut self) -> io::Result<()> {
        while let Some(line) = self.next_line()? {
            // A connection that has just been closed for another one must not have its request carried out: it is told that it was not.
            if !self.room.used(true) {
                return Ok(());
            }
            let answer = match serde_json::from_slice(&line) {
                Ok(request) => self.carry_out(request),
                Err(e) => Some(Err(Failure::usage(format!("not a request: {e}")))),
            };
            match answer {
                Some(result) => self.answer(result)?,
                None => return Ok(()),
            }
            self.room.used(!self.holds.ends_unseen());
        }
        Ok(())
    }

    /// The next line without its end; `None` when the connection is over or the agent ends.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut too_long = false;
        while !self.end.is_asked() {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found.map(|at| self.searched + at) {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                self.searched = 0;
                if !too_long {
                    return Ok(Some(line));
                }
                too_long = false;
                self.answer(Err(Failure::usage(format!("the line is longer than {LINE_MAX} bytes"))))?;
                continue;
            }
            too_long |= self.buffer.len() > LINE_MAX;
            if too_long || self.buffer.is_empty() {
                // Nothing to keep: neither the line nor the memory that an earlier one took.
                self.buffer = Vec::new();
            }
            self.searched = self.buffer.len();
            if !self.read_some()? {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for bytes and takes them; false when there will be none.
    fn read_some(&mut self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN), PollFd::new(self.end.as_fd(), PollFlags::POLLIN)];
        wait_for(&mut fds, None);
        if fds[0].any() != Some(true) {
            return Ok(true);
        }
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Carries out a request; `None` when nobody waits for its answer any more.
    fn carry_out(&mut self, request: Request) -> Option<Result<Response, Failure>> {
        log::trace!("local request: {request:?}");
        match request {
            Request::Lock { path, shared, wait_ms, linger } => {
                let locked = self.wait_for_lock(&path, shared, wait_ms);
                self.lingers |= linger && matches!(locked, Some(Ok(_)));
                locked
            }
            request => Some(execute(&self.client, &mut self.holds, request).map(|response| match response {
                //= wire-spec.md#11-1-lease
                //# The end of the lease MUST be translated for, or refused to, a user whose clock has another origin.
                Response::Hold(hold) if !self.our_clocks => Response::Hold(Hold { until: None, ..hold }),
                Response::Hold(hold) => {
                    self.told = self.told.max(hold.until);
                    Response::Hold(hold)
                }
                response => response,
            })),
        }
    }

    /// Waits for a lock as long as the program does: when it has gone, the request is cancelled.
    fn wait_for_lock(&mut self, path: &Text, shared: bool, wait_ms: Option<u64>) -> Option<Result<Response, Failure>> {
        let mut call = lock(&self.client, path, shared, wait_ms).start();
        let (bell, waker) = match Bell::new() {
            Ok(pair) => pair,
            Err(e) => return Some(Err(Failure::failed(format!("the agent cannot wait for the lock: {e}")))),
        };
        loop {
            if let Poll::Ready(result) = Pin::new(&mut call).poll(&mut Context::from_waker(&waker)) {
                return Some(result.map(|guard| self.holds.keep(guard)).map_err(Failure::from));
            }
            let mut fds = [
                PollFd::new(bell.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.end.as_fd(), PollFlags::POLLIN),
                // No event is asked for: an error and the end of both directions are always told, waiting lines do not matter now.
                PollFd::new(self.stream.as_fd(), PollFlags::empty()),
            ];
            wait_for(&mut fds, None);
            let seen = fds.map(|fd| fd.any().unwrap_or(false));
            bell.silence();
            if seen[1] || seen[2] {
                log::debug!("{path}: nobody waits for the lock any more");
                return None;
            }
        }
    }

    fn answer(&mut self, result: Result<Response, Failure>) -> io::Result<()> {
        let answer = match result {
            Ok(response) => Answer::Ok(response),
            Err(failure) => Answer::Error(failure),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// The end: locks go back at once when the program has ended the connection. When the agent ends it, the program is told so by
    /// its end, and the locks go back when it has closed its side, or when no instant that it was shown lies ahead any more.
    fn hand_in(mut self) {
        // Fails only if the connection is gone altogether.
        let _ = self.stream.shutdown(Shutdown::Write);
        if self.end.is_asked() && !self.holds.is_empty() {
            let longest = self.client.lease().map_or(Duration::ZERO, |view| view.lease);
            wait_for(&mut [PollFd::new(self.stream.as_fd(), PollFlags::empty())], Some(longest));
        }
        if self.lingers
            && !self.holds.is_empty()
            && let Some(told) = self.told
        {
            let left = told.left(self.client.now());
            log::debug!("a program ended without giving its lock back, which is kept for {left:?}");
            std::thread::sleep(left);
        }
        self.holds.let_go();
        self.leave();
    }

    /// Removes the program's ephemeral files, as soon as the server can be asked; with the end of the agent they go with its session.
    fn leave(&mut self) {
        let mut told = String::new();
        while !self.holds.members.is_empty() && !self.end.is_asked() {
            let Err(failure) = self.holds.members.leave_all(&self.client) else { return };
            if told != failure.message {
                log::warn!("an ephemeral file of a program that has gone cannot be removed yet: {}", failure.message);
                told = failure.message;
            }
            self.end.wait(LEAVE_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rooms;
    use super::*;
    use serde_json::Value;
    use std::io::{BufRead, BufReader};
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::Instant;

    /// A program's end of a connection to an agent whose server is not there.
    struct Program {
        lines: BufReader<UnixStream>,
        asker: Option<UnixStream>,
        agent: JoinHandle<()>,
    }

    impl Program {
        fn connect() -> Self {
            // Port 9 is the discard service: nobody answers there.
            let client = Client::builder().insecure().server("127.0.0.1:9").start().unwrap();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (end, asker) = End::pair().unwrap();
            let agent = thread::spawn(move || {
                let room = Arc::new(Rooms::default()).enter(&Arc::new(theirs.try_clone().unwrap())).unwrap();
                serve(client, &theirs, (User::this(), Programs::default()), &room, &end);
            });
            Self { lines: BufReader::new(ours), asker: Some(asker), agent }
        }

        fn say(&mut self, line: &str) {
            self.lines.get_mut().write_all(line.as_bytes()).unwrap();
        }

        fn hear(&mut self) -> Value {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
        }

        /// Whether the agent's thread ends long before a request would have been given up.
        fn agent_ends(self) -> bool {
            let Self { lines, agent, .. } = self;
            drop(lines);
            let start = Instant::now();
            while !agent.is_finished() && start.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(2));
            }
            agent.is_finished()
        }
    }

    const LOCK: &str = "{\"op\":\"lock\",\"path\":\"/a\",\"shared\":false,\"wait_ms\":null}\n";

    #[test]
    fn what_is_no_request_is_told_and_the_connection_goes_on() {
        let mut program = Program::connect();
        program.say("\n{}\n{\"op\":\"unlock\",\"hold\":7}\n");
        for code in ["USAGE", "USAGE", "FAILED"] {
            assert_eq!(program.hear()["error"]["code"], code);
        }
        program.say("{\"op\":\"lease\"}\r\n");
        assert_eq!(program.hear()["ok"]["lease"]["phase"], "no session");
        assert!(program.agent_ends());
    }

    #[test]
    fn a_line_without_end_is_not_kept_and_the_next_one_is_served() {
        let mut program = Program::connect();
        program.say(&"x".repeat(LINE_MAX + CHUNK));
        program.say("y\n{\"op\":\"lease\"}\n");
        assert!(program.hear()["error"]["message"].as_str().unwrap().contains("longer than"));
        assert!(program.hear()["ok"]["lease"].is_object());
    }

    #[test]
    fn a_request_cut_in_pieces_is_one_request() {
        let mut program = Program::connect();
        for piece in ["{\"op\":", "\"lea", "se\"}", "\n"] {
            program.say(piece);
            thread::sleep(Duration::from_millis(2));
        }
        assert!(program.hear()["ok"]["lease"].is_object());
    }

    //= wire-spec.md#11-1-lease
    //= type=test
    //# The end of the lease MUST be translated for, or refused to, a user whose clock has another origin.
    #[test]
    fn instants_are_told_only_to_programs_of_the_same_time_namespace() {
        let named = |name: &str| Ok(PathBuf::from(name));
        let failed = |kind: io::ErrorKind| Err(io::Error::from(kind));
        assert!(share_origin(named("time:[1]"), named("time:[1]")));
        assert!(!share_origin(named("time:[2]"), named("time:[1]")));
        assert!(!share_origin(failed(io::ErrorKind::PermissionDenied), named("time:[1]")), "not known");
        assert!(share_origin(failed(io::ErrorKind::NotFound), failed(io::ErrorKind::NotFound)), "there are none");
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(has_our_clocks(&ours) && has_our_clocks(&theirs));
    }

    #[test]
    fn a_program_that_has_gone_waits_for_no_lock() {
        let mut program = Program::connect();
        program.say(LOCK);
        thread::sleep(Duration::from_millis(20));
        assert!(program.agent_ends());
    }

    #[test]
    fn an_agent_that_ends_leaves_nobody_waiting() {
        let mut program = Program::connect();
        program.say(LOCK);
        thread::sleep(Duration::from_millis(20));
        program.asker = None;
        assert_eq!(program.lines.read_line(&mut String::new()).unwrap(), 0, "the connection has ended");
        assert!(program.agent_ends());
    }
}
