//! Real agents, turned by the generator's own thread: the sans-I/O agent with a socket, and nothing between a call and its answer.
//!
//! Decides how they are turned: what has come in, what goes out, over and over, without sleeping. Place: below the workloads that are
//! about what agents do (cached answers, demands, mixed work). Invariant: every wait has a bound. Leaves to others: what is asked.

use crate::trouble::Trouble;
use cistern_agent::api::{Command, Event, LeaseView, OpError, OpId, Output, Submitted};
use cistern_agent::config::{Config, IdlePolicy};
use cistern_agent::{Agent, Identity};
use cistern_driver::Clock;
use cistern_link::{Machine, Path};
use cistern_wire::AgentId;
use cistern_wire::limits::DATAGRAM_MAX;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long an agent may do without an answer, in seconds.
pub(crate) const SILENCE_S: u64 = 10;
/// How often an agent's timers are looked at while nothing comes.
const TIMERS: Duration = Duration::from_millis(1);

/// How a command ended.
pub(crate) type Ended = Result<Output, OpError>;

/// An agent and its socket.
#[derive(Debug)]
pub(crate) struct Member {
    agent: Agent,
    clock: Clock,
    socket: UdpSocket,
    server: SocketAddr,
    looked: Instant,
    out: Vec<u8>,
    buf: Vec<u8>,
}

impl Member {
    /// An agent of the server at that address, the `number`-th of the run.
    pub(crate) fn new(server: SocketAddr, number: u64) -> Result<Self, Trouble> {
        let clock = Clock::new().map_err(Trouble::starting("reading the clocks"))?;
        let seed = cistern_driver::seed().map_err(Trouble::starting("drawing a seed"))?;
        let mut id = [0xC7; 16];
        id[..8].copy_from_slice(&(number + 1).to_be_bytes());
        let identity = Identity { agent: AgentId(id), incarnation: 1, boot: [0; 16], label: b"bench".to_vec() };
        // What is measured is not how soon an idle agent gives its locks back.
        let config = Config { idle: IdlePolicy::Eager, ..Config::default() };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Trouble::at("opening the socket of an agent"))?;
        socket.connect(server).map_err(Trouble::at("connecting the socket of an agent"))?;
        socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
        let agent = Agent::new(config, identity, *seed, vec![server]).map_err(Trouble::starting("making an agent"))?;
        Ok(Self { agent, clock, socket, server, looked: Instant::now(), out: Vec::new(), buf: vec![0; DATAGRAM_MAX] })
    }

    /// The agent's clock.
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The agent itself, for calls that are timed one by one.
    pub(crate) const fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// What it has sent, received and counted.
    pub(crate) fn view(&self) -> LeaseView {
        self.agent.view(self.clock.now())
    }

    /// Gives it a command.
    pub(crate) fn submit(&mut self, command: Command) -> Submitted {
        self.agent.submit(self.clock.now(), command)
    }

    /// One turn: what has come in, and what goes out of that; gives whether anything came.
    pub(crate) fn turn(&mut self) -> Result<bool, Trouble> {
        let mut came = false;
        loop {
            match self.socket.recv(&mut self.buf) {
                Ok(len) => {
                    came = true;
                    self.agent.handle_datagram(self.clock.now(), Path::to(self.server), &self.buf[..len]);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(error) => return Err(Trouble::at("receiving for an agent")(error)),
            }
        }
        if came || self.looked.elapsed() >= TIMERS {
            self.looked = Instant::now();
            self.agent.handle_drained(self.clock.now());
        }
        self.send()?;
        Ok(came)
    }

    fn send(&mut self) -> Result<(), Trouble> {
        while self.agent.poll_transmit(self.clock.now(), &mut self.out).is_some() {
            match self.socket.send(&self.out) {
                Ok(_) => {}
                // As good as lost: the agent sends it again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Trouble::at("sending for an agent")(error)),
            }
        }
        Ok(())
    }

    /// The next command that ended; what else the agent tells is passed over.
    pub(crate) fn ended(&mut self) -> Option<(OpId, Ended)> {
        loop {
            if let Event::Done { op, result } = self.agent.poll_event()? {
                return Some((op, result));
            }
        }
    }

    /// Does one command and waits for its end.
    pub(crate) fn run(&mut self, command: Command) -> Result<Output, Trouble> {
        let op = match self.submit(command.clone()) {
            Submitted::Now(ended) => return ended.map_err(|error| refused(&command, &error)),
            Submitted::Later(op) => op,
        };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(SILENCE_S) {
            self.turn()?;
            while let Some((ended, result)) = self.ended() {
                if ended == op {
                    return result.map_err(|error| refused(&command, &error));
                }
            }
        }
        Err(Trouble::Silence { while_doing: "waiting for an agent", seconds: SILENCE_S })
    }
}

/// A command failed that must not.
pub(crate) fn refused(command: &Command, error: &OpError) -> Trouble {
    let mut got = format!("{error:?} to {command:?}");
    got.truncate(300);
    Trouble::Answer { while_doing: "using an agent", expected: "success", got }
}
