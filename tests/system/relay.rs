//! A network between an agent and the server: lossless, lossy, or cut.
//!
//! Decides: nothing; it is the fault proxy, with a seed of its own, so that a failing run can be repeated.

use cistern_netfault::command::Command;
use cistern_netfault::stats::Stats;
use cistern_netfault::{Options, Running};
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    proxy: Running,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let options = Options { seed: 0x5EED, ..Options::between((Ipv4Addr::LOCALHOST, 0).into(), server) };
        let proxy = Running::start(options).unwrap();
        Self { address: proxy.address, proxy }
    }

    /// Carries out a command of the fault proxy.
    pub(crate) fn command(&self, text: &str) -> Stats {
        let command = Command::parse(text).unwrap_or_else(|mistake| panic!("{text:?}: {mistake}"));
        self.proxy.handle().command(command).unwrap()
    }

    pub(crate) fn cut(&self) {
        self.command("cut");
    }

    pub(crate) fn heal(&self) {
        self.command("heal cut");
    }

    /// From now on so many percent of the datagrams are lost, and so many of the others come twice.
    pub(crate) fn disturb(&self, loss_percent: u32, copy_percent: u32) {
        self.command(&format!("loss {loss_percent}%"));
        self.command(&format!("duplicate {copy_percent}% within 5ms"));
    }

    pub(crate) fn stats(&self) -> Stats {
        self.proxy.handle().stats().unwrap()
    }

    /// Datagrams that passed in either direction.
    pub(crate) fn passed(&self) -> u64 {
        let total = self.stats().total;
        total.up.passed + total.down.passed
    }
}
