//! Ours among the peers as applications ask it: through `cistern-client`, by tasks of one thread, as etcd and ZooKeeper are asked.
//!
//! Decides what stands beside the operations of the others: a guard taken and given back, a write of 128 bytes, a read. The library keeps
//! what the host has: from the second time on a lock that nobody else wants and contents that nobody else changes cost no message, which
//! is what its users have, and no figure of the server; that is in `ours`. Writes all go to the server, whose store is in a directory.
//! Place: a peer. Leaves to others: the loops (`asked`), what the server does for each exchange (`ours`).

use super::asked::{self, Asked};
use super::{Ask, MANY, Service, ServiceRound};
use crate::cases::Plan;
use crate::host::{Host, Role, Setup};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use cistern_client::{Client, Error, File};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A server and a client of it.
pub(crate) struct Library {
    // Ended before the server that it asks.
    client: Rc<LibraryFiles>,
    runtime: Runtime,
    host: Host,
}

struct LibraryFiles {
    client: Client,
    files: Vec<File>,
}

impl Library {
    /// Starts both, and makes a file for all that is in flight.
    pub(crate) fn start(dir: &Path, plan: &Plan) -> Result<Self, Trouble> {
        let host = Host::start_with(Role::Durable, plan.cores, &Setup { store_dir: Some(dir.to_owned()), ..Setup::default() })?;
        let opened = || {
            let client = Client::builder().insecure().server(host.address.to_string()).connect()?;
            let mut files = Vec::with_capacity(MANY);
            for key in 0..MANY {
                client.write(path(key), vec![0; WRITTEN]).mode(0o600).wait()?;
                files.push(client.open(path(key)).wait()?);
            }
            Ok::<_, Error>(LibraryFiles { client, files })
        };
        let client = Rc::new(opened().map_err(Trouble::starting("using the client library"))?);
        Ok(Self { client, runtime: asked::runtime()?, host })
    }
}

fn path(key: usize) -> String {
    format!("/key-{key}")
}

impl Asked for LibraryFiles {
    async fn ask(&self, ask: Ask, key: usize) -> Result<(), String> {
        let done = match ask {
            Ask::Lock => self.client.lock(path(key)).await.map(drop),
            Ask::Write => self.files[key].write(vec![1; WRITTEN]).at(0).await.map(drop),
            Ask::Read => self.client.read(path(key)).await.map(drop),
        };
        done.map_err(|error| error.to_string())
    }
}

impl Service for Library {
    fn name(&self) -> String {
        "Cistern, client library".to_owned()
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble> {
        let before = self.host.usage()?;
        let round = asked::round(&self.runtime, &self.client, ask, in_flight, span)?;
        Ok(ServiceRound { cpu_ns: self.host.usage()?.since(before).cpu_ns, ..round })
    }
}
