//! A server in this process, on a loopback address, and clients of it.

use cistern_client::{Client, Config};
use cistern_testkit::LocalServer;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) use cistern_testkit::PATIENCE;

/// τ of the servers here: short, so that what waits for a lease does not take long.
pub(crate) const LEASE: Duration = Duration::from_millis(600);

pub(crate) struct World(LocalServer);

impl World {
    pub(crate) fn new() -> Self {
        Self(LocalServer::start(LEASE).unwrap())
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Config::default())
    }

    pub(crate) fn client_with(&self, config: Config) -> Client {
        Client::builder().insecure().server(self.address.to_string()).config(config).connect().unwrap()
    }

    /// A client, and a file to lock.
    pub(crate) fn with_file(path: &str) -> (Self, Client) {
        let world = Self::new();
        let client = world.client();
        client.create_new(path).wait().unwrap();
        (world, client)
    }
}

impl Deref for World {
    type Target = LocalServer;
    fn deref(&self) -> &LocalServer {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut LocalServer {
        &mut self.0
    }
}

/// Waits until it is so.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    cistern_testkit::eventually(what, || is().then_some(()));
}
