//! One connection of a local program to the host's agent: requests in, answers out.
//!
//! Decides: that requests are carried out one after the other, and that of them only locks are waited for beside others; and what happens to
//! the locks of a connection at its end: given back when the program ends it, and kept until then when the agent ends it (section 11.3). A
//! lock that was asked for with `linger` outlives a connection that ends without an unlock until the last instant that was told of it: the
//! program was killed, and what it had started may act until then.
//! Place in the walk: a thread, between a program's socket and `execute`. Implements nothing of the wire format.
//! Leaves to others: what requests mean (`local`, `execute`), lines and waiting (`desk`).

use super::Room;
use super::desk::{Desk, Queued};
use crate::execute::{LockKind, LockTerms, Obtained, Program, Programs, User, Waits, execute};
use crate::local::{Failure, Request};
use crate::signals::{End, wait_for};
use cistern_client::Client;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{getsockopt, sockopt};
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between attempts to remove the files of a program that has gone.
const LEAVE_PAUSE: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(super) fn serve(client: Client, stream: &UnixStream, (user, programs): (User, Programs), room: &Room, end: &End) {
    let our_clocks = has_our_clocks(stream);
    let (program, held) = programs.enter(user);
    let desk = match Desk::new(client.clone(), stream, end, (held, our_clocks)) {
        Ok(desk) => desk,
        Err(error) => return log::warn!("cannot serve a program: {error}"),
    };
    let mut connection = Connection { client, program, desk, room };
    connection.run();
    connection.hand_in(stream, end);
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

/// So many milliseconds from now.
fn after(ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(ms))
}

struct Connection<'e> {
    client: Client,
    program: Program,
    desk: Desk<'e>,
    room: &'e Room,
}

impl Connection<'_> {
    fn run(&mut self) {
        while let Some(queued) = self.desk.next() {
            // A connection that has just been closed for another one must not have its request carried out: it is told that it was not.
            if !self.room.used(true) {
                return;
            }
            self.carry_out(queued);
            self.room.used(!(self.desk.ends_unseen() && self.program.members.is_empty()));
        }
    }

    /// Carries out a request, and answers; a lock that is waited for is answered later.
    fn carry_out(&mut self, Queued { asked, until, .. }: Queued) {
        log::trace!("local request: {asked:?}");
        let (id, guard) = (asked.id, asked.guard);
        let result = match asked.request {
            request if guard.is_some() && !request.takes_guard() => Err(Failure::usage("guard is for changes of files")),
            Request::Lock { shared: true, slots: Some(_), .. } => Err(Failure::usage("a slot of a semaphore is not shared")),
            Request::Lock { path, shared, slots, wait_ms, linger, events } => {
                let what = match slots {
                    Some(slots) => LockKind::Slot(slots),
                    None if shared => LockKind::Shared,
                    None => LockKind::Exclusive,
                };
                return self.wait_for_lock(id, until, &LockTerms { path, what, wait_ms }, (linger, events));
            }
            Request::Take { path, wait_ms, linger, events } => {
                let terms = LockTerms { path, what: LockKind::Item, wait_ms };
                let wait = wait_ms.filter(|ms| *ms > 0).and_then(after);
                return self.wait_for_lock(id, until.into_iter().chain(wait).min(), &terms, (linger, events));
            }
            Request::Enter { path, parties, wait_ms } => {
                let barrier = self.client.barrier(path.as_os(), usize::try_from(parties).unwrap_or(usize::MAX));
                let entered = Box::pin(async move { Ok(barrier.enter().await.map(Obtained::Entered)?) });
                let until = until.into_iter().chain(wait_ms.and_then(after)).min();
                return self.desk.wait_for(id, until, entered, (false, false));
            }
            Request::Exit { hold } => match self.desk.held().exit(hold) {
                Ok(left) => return self.desk.wait_for(id, until, left, (false, false)),
                Err(failure) => Err(failure),
            },
            request => {
                self.desk.begin(id, until);
                let result = execute(&self.client, &mut self.program, &mut self.desk, guard, request);
                self.desk.ended(result)
            }
        };
        self.desk.answer(Some(id), result);
    }

    fn wait_for_lock(&mut self, id: u64, until: Option<Instant>, terms: &LockTerms, how: (bool, bool)) {
        let granting = terms.ask(&self.client);
        self.desk.wait_for(id, until, Box::pin(async { granting.await.map(Obtained::Lock) }), how);
    }

    /// The end: locks go back at once when the program has ended the connection. When the agent ends it, the program is told so by
    /// its end, and the locks go back when it has closed its side, or when no instant that it was shown lies ahead any more.
    fn hand_in(mut self, stream: &UnixStream, end: &End) {
        // Fails only if the connection is gone altogether.
        let _ = stream.shutdown(Shutdown::Write);
        if end.is_asked() && !self.desk.held().is_empty() {
            let longest = self.client.lease().map_or(Duration::ZERO, |view| view.lease);
            wait_for(&mut [PollFd::new(stream.as_fd(), PollFlags::empty())], Some(longest));
        }
        if let Some(left) = self.desk.lingers_for() {
            log::debug!("a program ended without giving its lock back, which is kept for {left:?}");
            std::thread::sleep(left);
        }
        let mut held = self.desk.close();
        held.let_go();
        // Removes the program's ephemeral files, as soon as the server can be asked; with the end of the agent they go with its session.
        let mut told = String::new();
        while !self.program.members.is_empty() && !end.is_asked() {
            let Err(failure) = self.program.members.leave_all(&self.client, &mut held) else { return };
            if told != failure.message {
                log::warn!("an ephemeral file of a program that has gone cannot be removed yet: {}", failure.message);
                told = failure.message;
            }
            end.wait(LEAVE_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rooms;
    use super::*;
    use crate::local::LINE_MAX;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Write};
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};

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

        fn greeted() -> Self {
            let mut program = Self::connect();
            program.say("{\"id\":0,\"op\":\"hello\",\"api\":1}\n");
            assert_eq!(program.hear()["ok"]["hello"]["kind"], "agent");
            program
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

    const LOCK: &str = "{\"id\":7,\"op\":\"lock\",\"path\":\"/a\"}\n";

    #[test]
    fn what_is_no_request_is_told_and_the_connection_goes_on() {
        let mut program = Program::greeted();
        program.say("\n{}\n{\"id\":3,\"op\":\"none\"}\n{\"id\":4,\"op\":\"unlock\",\"hold\":7}\n{\"id\":5,\"op\":\"read\",\"path\":\"/\",\"guard\":1}\n");
        for (id, code) in [(json!(null), "USAGE"), (json!(null), "USAGE"), (json!(3), "USAGE"), (json!(4), "FAILED"), (json!(5), "USAGE")] {
            let said = program.hear();
            assert_eq!((&said["id"], &said["error"]["code"]), (&id, &json!(code)), "{said}");
        }
        program.say("{\"id\":6,\"op\":\"lease\"}\r\n");
        assert_eq!(program.hear()["ok"]["lease"]["phase"], "no session");
        assert!(program.agent_ends());
    }

    #[test]
    fn nothing_is_done_before_hello_and_for_another_version() {
        let mut program = Program::connect();
        program.say("{\"id\":1,\"op\":\"lease\"}\n{\"id\":2,\"op\":\"hello\",\"api\":2}\n{\"id\":3,\"op\":\"lease\"}\n");
        assert_eq!(program.hear()["error"]["code"], "USAGE");
        assert_eq!(program.hear()["error"]["code"], "API_VERSION");
        assert_eq!(program.hear()["error"]["code"], "USAGE");
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_served() {
        let mut program = Program::greeted();
        program.say(&"x".repeat(LINE_MAX + 20_000));
        program.say("y\n{\"id\":1,\"op\":\"lease\"}\n");
        assert!(program.hear()["error"]["message"].as_str().unwrap().contains("longer than"));
        assert!(program.hear()["ok"]["lease"].is_object());
    }

    #[test]
    fn a_request_cut_in_pieces_is_one_request() {
        let mut program = Program::greeted();
        for piece in ["{\"id\":1,\"op\":", "\"lea", "se\"}", "\n"] {
            program.say(piece);
            thread::sleep(Duration::from_millis(2));
        }
        assert!(program.hear()["ok"]["lease"].is_object());
    }

    #[test]
    fn a_lock_that_is_waited_for_keeps_nobody_waiting_and_is_given_up_when_canceled() {
        let mut program = Program::greeted();
        program.say(LOCK);
        program.say("{\"id\":8,\"op\":\"lease\"}\n");
        assert_eq!(program.hear()["id"], 8);
        program.say("{\"id\":9,\"op\":\"cancel\",\"request\":7}\n");
        let said = program.hear();
        assert_eq!((&said["id"], &said["error"]["code"]), (&json!(7), &json!("ECANCELED")));
        assert_eq!(program.hear()["id"], 9);
    }

    #[test]
    fn what_a_program_makes_the_agent_keep_is_bounded() {
        let mut program = Program::greeted();
        let locks: String = (0..1_100).map(|n| format!("{{\"id\":{n},\"op\":\"lock\",\"path\":\"/a\"}}\n")).collect();
        program.say(&locks);
        assert_eq!(program.hear()["error"]["code"], "BUSY");
        let mut program = Program::greeted();
        program.say("{\"id\":1,\"op\":\"read\",\"path\":\"/a\"}\n");
        // Nobody answers the first: what comes behind it stays in the socket at last.
        program.lines.get_ref().set_nonblocking(true).unwrap();
        let (long, mut written) = (format!("{{\"id\":2,\"op\":\"read\",\"path\":\"/{}\"}}\n", "x".repeat(50_000)), 0);
        let mut refused_since = None;
        while refused_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
            match program.lines.get_mut().write(&long.as_bytes()[written % long.len()..]) {
                Ok(count) => (written, refused_since) = (written + count, None),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => _ = refused_since.get_or_insert_with(Instant::now),
                Err(e) => panic!("{e}"),
            }
            assert!(written < 4 * LINE_MAX, "it is all read");
        }
    }

    #[test]
    fn a_request_ends_by_its_deadline_and_one_behind_it_by_cancel() {
        let mut program = Program::greeted();
        program.say("{\"id\":1,\"op\":\"read\",\"path\":\"/a\",\"deadline_ms\":300}\n");
        program.say("{\"id\":2,\"op\":\"read\",\"path\":\"/b\"}\n{\"id\":3,\"op\":\"read\",\"path\":\"/c\"}\n");
        program.say("{\"id\":4,\"op\":\"cancel\",\"request\":2}\n");
        let mut said: Vec<_> = (0..3).map(|_| program.hear()).map(|said| (said["id"].clone(), said["error"]["code"].clone())).collect();
        assert_eq!(said[2], (json!(1), json!("TIMED_OUT")));
        said.truncate(2);
        assert_eq!(said, [(json!(2), json!("ECANCELED")), (json!(4), json!(null))]);
        program.say("{\"id\":5,\"op\":\"cancel\",\"request\":3}\n");
        assert_eq!(program.hear()["id"], 5);
        let said = program.hear();
        assert_eq!((&said["id"], &said["error"]["code"]), (&json!(3), &json!("ECANCELED")), "it was running");
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
        let mut program = Program::greeted();
        program.say(LOCK);
        thread::sleep(Duration::from_millis(20));
        assert!(program.agent_ends());
    }

    #[test]
    fn an_agent_that_ends_leaves_nobody_waiting() {
        let mut program = Program::greeted();
        program.say(LOCK);
        thread::sleep(Duration::from_millis(20));
        program.asker = None;
        assert_eq!(program.lines.read_line(&mut String::new()).unwrap(), 0, "the connection has ended");
        assert!(program.agent_ends());
    }
}
