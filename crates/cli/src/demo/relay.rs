//! The network between agent A and the server, which can be cut: the fault proxy, in a thread.
//!
//! Decides: which faults the demonstration has. Leaves to others: passing datagrams (`cistern-netfault`).

use crate::local::Failure;
use cistern_netfault::command::{Action, Command, Healed, Scope};
use cistern_netfault::{Effect, Options, Running};
use std::net::{Ipv4Addr, SocketAddr};

/// A relay of UDP datagrams.
pub(crate) struct Relay {
    /// Where agents send to.
    pub(crate) address: SocketAddr,
    proxy: Running,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Result<Self, Failure> {
        let proxy = Running::start(Options::between((Ipv4Addr::LOCALHOST, 0).into(), server)).map_err(failed)?;
        Ok(Self { address: proxy.address, proxy })
    }

    /// From now on nothing passes, in either direction.
    pub(crate) fn cut(&self) -> Result<(), Failure> {
        self.proxy.handle().command(Command::Set(Action::Effect(Effect::Cut), Scope::ALL)).map(drop).map_err(failed)
    }

    /// Datagrams pass again; gives how many were lost in the cut.
    pub(crate) fn heal(&self) -> Result<u64, Failure> {
        let stats = self.proxy.handle().command(Command::Heal(Healed::All)).map_err(failed)?;
        Ok(stats.total.up.lost_all() + stats.total.down.lost_all())
    }
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the relay in front of agent A: {why}"))
}
