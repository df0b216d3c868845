//! A process that holds a lock, to be stopped while it does.
//!
//! Decides how it is spoken to: "hold" on its standard input, "held" and "lost" on its standard output, a line each. It ends when its
//! standard input does, and is killed when the bench dies, for a stopped process sees no end of input.
//! Place: both sides of it: started and stopped by `failover`, run by the hidden command. Leaves to others: when it is stopped.

use crate::trouble::Trouble;
use cistern_client::{Client, Guard, LockState};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long it may take to say something, in seconds.
const SILENCE_S: u64 = 30;
/// How often the holder looks whether it still has its lock, if nothing is told to it.
const LOOK: Duration = Duration::from_millis(50);

/// The process, as the bench sees it; ended when dropped.
#[derive(Debug)]
pub(crate) struct Holder {
    child: Child,
    said: Receiver<String>,
}

impl Holder {
    /// Starts one that locks `path`, which exists, when it is told to.
    pub(crate) fn start(server: SocketAddr, path: &str) -> Result<Self, Trouble> {
        let program = std::env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
        let mut command = Command::new(program);
        command.args(["holder", &server.to_string(), path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Trouble::at("starting a holder"))?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            // Nobody listens any more when the holder is being ended.
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| tell.send(line)).ok()
        });
        Ok(Self { child, said })
    }

    /// Has it take the lock.
    pub(crate) fn hold(&mut self) -> Result<(), Trouble> {
        let stdin = self.child.stdin.as_mut().expect("standard input is piped");
        writeln!(stdin, "hold").map_err(Trouble::at("speaking to a holder"))?;
        self.hear("held")
    }

    /// Stops it, as if its machine had died.
    pub(crate) fn stop(&self) -> Result<(), Trouble> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) -> Result<(), Trouble> {
        self.signal(Signal::SIGCONT)
    }

    /// Waits until it has been told that its lock is lost.
    pub(crate) fn await_loss(&self) -> Result<(), Trouble> {
        self.hear("lost")
    }

    fn signal(&self, signal: Signal) -> Result<(), Trouble> {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).map_err(Trouble::at("stopping a holder or letting it go on"))
    }

    fn hear(&self, expected: &'static str) -> Result<(), Trouble> {
        match self.said.recv_timeout(Duration::from_secs(SILENCE_S)) {
            Ok(word) if word == expected => Ok(()),
            Ok(got) => Err(Trouble::Answer { while_doing: "speaking to a holder", expected, got }),
            Err(RecvTimeoutError::Timeout) => Err(Trouble::Silence { while_doing: "waiting for a holder", seconds: SILENCE_S }),
            Err(RecvTimeoutError::Disconnected) => Err(Trouble::Host { who: "holder", what: "has ended" }),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It keeps nothing, and may be stopped: errors mean that it has just ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the process does.
pub(crate) fn run(server: SocketAddr, path: &str) -> Result<(), Trouble> {
    const STARTING: &str = "starting a holder";
    set_pdeathsig(Signal::SIGKILL).map_err(Trouble::at(STARTING))?;
    let client = Client::builder().server(server.to_string()).connect().map_err(Trouble::starting(STARTING))?;
    let mut lines = io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        let guard = client.lock(path).wait().map_err(Trouble::starting("taking the lock"))?;
        say("held")?;
        await_loss(&guard);
        drop(guard);
        say("lost")?;
    }
    Ok(())
}

fn await_loss(guard: &Guard) {
    while guard.state() != LockState::Lost {
        let _ = guard.events().next_timeout(LOOK);
    }
}

fn say(word: &str) -> Result<(), Trouble> {
    let mut out = io::stdout();
    writeln!(out, "{word}").and_then(|()| out.flush()).map_err(Trouble::at("answering the bench"))
}
