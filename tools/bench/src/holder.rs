//! A process that holds a lock, to be stopped while it does.
//!
//! Decides how it is spoken to: "hold" on its standard input, "held" and "lost" on its standard output, a line each. It ends when its
//! standard input does, and is killed when the bench dies, for a stopped process sees no end of input.
//! Place: both sides of it: started and stopped by `failover`, run by the hidden command. Leaves to others: when it is stopped.

use crate::trouble::Trouble;
use cistern_client::{Client, Guard, LockState};
use cistern_testkit::{PATIENCE, Process};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often the holder looks whether it still has its lock, if nothing is told to it.
const LOOK: Duration = Duration::from_millis(50);

/// The process, as the bench sees it; ended when dropped.
#[derive(Debug)]
pub(crate) struct Holder {
    process: Process,
}

impl Holder {
    /// Starts one that locks `path`, which exists, when it is told to.
    pub(crate) fn start(server: SocketAddr, path: &str) -> Result<Self, Trouble> {
        let program = std::env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
        let mut command = Command::new(program);
        command.args(["holder", &server.to_string(), path]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self { process: Process::spawn(&mut command).map_err(Trouble::at("starting a holder"))? })
    }

    /// Has it take the lock.
    pub(crate) fn hold(&mut self) -> Result<(), Trouble> {
        self.process.tell("hold").map_err(Trouble::at("speaking to a holder"))?;
        self.hear("held")
    }

    /// Stops it, as if its machine had died.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Waits until it has been told that its lock is lost.
    pub(crate) fn await_loss(&self) -> Result<(), Trouble> {
        self.hear("lost")
    }

    fn hear(&self, expected: &'static str) -> Result<(), Trouble> {
        match self.process.line() {
            Some(word) if word == expected => Ok(()),
            Some(got) => Err(Trouble::Answer { while_doing: "speaking to a holder", expected, got }),
            None => Err(Trouble::Silence { while_doing: "waiting for a holder", seconds: PATIENCE.as_secs() }),
        }
    }
}

/// What the process does.
pub(crate) fn run(server: SocketAddr, path: &str) -> Result<(), Trouble> {
    const STARTING: &str = "starting a holder";
    set_pdeathsig(Signal::SIGKILL).map_err(Trouble::at(STARTING))?;
    let client = Client::builder().insecure().server(server.to_string()).connect().map_err(Trouble::starting(STARTING))?;
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
