//! One state of the model: two agents, the server's view of each, one exclusive lock, and what is in flight.
//!
//! Decides how a state is written down, small enough for tens of millions of them. No absolute time is in it: a lease is what is left
//! of it, a packet number is an age, a timer is what remains. Two states that differ only in when they happen are one state, so
//! time needs no bound. Ghosts, which no rule of the protocol reads, are marked; in the model without bugs each equals something
//! that is there anyhow, so they cost no states. What may happen in a state is in [`crate::agent`] and [`crate::server`].

use crate::network::Wire;

/// An agent: 0 is A, 1 is B. Agents are alike, so states that differ by their exchange are one state too.
pub type Who = usize;

/// Number of a generation among those that still matter, from 1; 0 is none.
pub type Gen = u8;

/// Most generations that matter at one time: the lock on record, and of each agent the lock it holds and the one it is granted.
pub const GENERATIONS: usize = 8;

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// Ticks since the start; stays 0 without a horizon.
    pub elapsed: u8,
    /// The lock as the server records it.
    pub lock: Lock,
    /// How many generations matter.
    pub generations: u8,
    /// What is known and in flight about generation n, at n - 1.
    pub generation: [Generation; GENERATIONS],
    /// The agents.
    pub agents: [Agent; 2],
    /// What the server keeps for each agent's newest session.
    pub sessions: [Session; 2],
    /// What is in flight from and to each agent.
    pub wires: [Wire; 2],
    /// White-box properties that the step into this state has broken (ghost).
    pub alarms: Alarms,
}

/// The server's record of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// Generation granted, 0 if the lock is free.
    pub held: Gen,
    /// Its holder has opened another session since: this one only waits for its end.
    pub former: bool,
    /// Server ticks until a former session ends.
    pub timer: u8,
    /// The same by the rules (ghost).
    pub owed: u8,
    /// Server ticks since the first demand; counted only where a bug reads it.
    pub demanded: u8,
}

/// What is known and in flight about one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(u8);

impl Generation {
    /// Granted to B.
    const OF_B: u8 = 1;
    /// A demand for it is in flight.
    pub const DEMAND: u8 = 2;
    /// A receipt "in use", or "awaited", of a notice about it is in flight.
    pub const RECEIPT: u8 = 4;
    /// A release of it, or a receipt "not held", is in flight.
    pub const RELEASE: u8 = 8;
    /// A notice that grants it is in flight.
    pub const GRANT: u8 = 16;

    /// A generation granted to this agent.
    pub fn of(who: Who) -> Self {
        Generation(if who == 1 { Self::OF_B } else { 0 })
    }

    /// Whom it was granted to.
    pub fn owner(self) -> Who {
        usize::from(self.0 & Self::OF_B)
    }

    /// Is the message in flight?
    pub fn has(self, message: u8) -> bool {
        self.0 & message != 0
    }

    /// Sends the message.
    pub fn send(&mut self, message: u8) {
        self.0 |= message;
    }

    /// Takes messages out of the network that nobody will act on any more.
    pub fn forget(&mut self, messages: u8) {
        self.0 &= !messages;
    }

    /// The same for the other agent.
    pub fn exchanged(self) -> Self {
        Generation(self.0 ^ Self::OF_B)
    }
}

/// Where an agent stands with its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has a session.
    #[default]
    Open,
    /// It accepted a NACK: the session is lost, and it opens another.
    Lost,
}

/// What an agent waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ask {
    /// Nothing.
    #[default]
    Nothing,
    /// The answer to a lock request.
    Answer,
    /// The grant of a lock request that was answered QUEUED.
    Grant,
}

/// An agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent {
    /// Its standing as it knows it.
    pub phase: Phase,
    /// Ticks of its clock until its lease ends; 0 is expired.
    pub lease: u8,
    /// Generation of the lock that it keeps, valid or not; 0 is none.
    pub lock: Gen,
    /// Ticks for which a user may go on who was told "certain until" under a session since lost.
    pub user: u8,
    /// Highest generation that it released or disowned.
    pub disowned: Gen,
    /// What it waits for.
    pub ask: Ask,
    /// Lock requests that it has made; stays 0 where they are not bounded.
    pub asked: u8,
}

impl Agent {
    /// Does it, or a user of it, act on the lock now?
    pub fn uses_lock(&self) -> bool {
        (self.lock != 0 && self.lease != 0) || self.user != 0
    }
}

/// A session's standing at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// Good.
    #[default]
    Good,
    /// A delivery has failed.
    TimingOut,
    /// Ended for ever.
    Ended,
}

/// The outcome of an agent's newest lock request: the reply cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Not executed.
    #[default]
    Unknown,
    /// Waits for the lock.
    Queued,
    /// Granted.
    Granted(Gen),
}

/// What the server keeps for an agent's newest session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// Its standing.
    pub standing: Standing,
    /// Server ticks until it is stolen from, if it is timing out.
    pub timer: u8,
    /// A NACK was produced for it.
    pub nacked: bool,
    /// The agent does not know of this session yet.
    pub unknown_to_agent: bool,
    /// Outcome of the newest lock request.
    pub outcome: Outcome,
    /// It waits for the lock.
    pub waits: bool,
    /// Server ticks since the newest receipt noted, up to T; 0 without last-heard.
    pub heard: u8,
    /// It was rescued before; counted only where a bug reads it.
    pub rescued: bool,
    /// Server ticks since the newest receipt of a packet that was echoed (ghost of `heard`).
    pub echoed: u8,
    /// Failed, and neither rescued by the rules nor replaced (ghost of `standing`).
    pub failed: bool,
    /// Server ticks that the rules still make it wait (ghost of `timer`).
    pub owed: u8,
}

/// White-box properties that one step has broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alarms(u8);

impl Alarms {
    /// A renewing message was produced for a failed session.
    pub const RENEWED_FAILED: u8 = 1;
    /// A lock was taken before the wait was over.
    pub const SHORT_WAIT: u8 = 2;
    /// A generation was granted twice.
    pub const OLD_GENERATION: u8 = 4;
    /// A request was executed twice.
    pub const TWICE: u8 = 8;
    /// A session was surrendered while a user of it went on.
    pub const EARLY_SURRENDER: u8 = 16;

    /// Sets one.
    pub fn raise(&mut self, alarm: u8) {
        self.0 |= alarm;
    }

    /// Is it set?
    pub fn has(self, alarm: u8) -> bool {
        self.0 & alarm != 0
    }
}

impl State {
    /// The generation of that number.
    pub fn about(&self, generation: Gen) -> Generation {
        self.generation[usize::from(generation) - 1]
    }

    /// The generation of that number, to be changed.
    pub fn about_mut(&mut self, generation: Gen) -> &mut Generation {
        &mut self.generation[usize::from(generation) - 1]
    }

    /// Who is on record as holder of the lock, in whichever session.
    pub fn holder(&self) -> Option<Who> {
        (self.lock.held != 0).then(|| self.about(self.lock.held).owner())
    }

    /// Does the agent's newest session hold the lock?
    pub fn holds(&self, who: Who) -> bool {
        self.holder() == Some(who) && !self.lock.former
    }
}
