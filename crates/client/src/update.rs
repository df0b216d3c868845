//! Read, compute, write unless it was changed, and begin again if it was.

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::steps::block_on;
use bytes::Bytes;
use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;

/// A change of a file's contents that depends on what they were; made by [`Client::update`].
#[derive(Debug)]
#[must_use = "nothing happens before `wait` or `.await`"]
pub struct Update<F> {
    client: Client,
    path: PathBuf,
    compute: F,
}

impl<F> Update<F> {
    pub(crate) const fn new(client: Client, path: PathBuf, compute: F) -> Self {
        Self { client, path, compute }
    }
}

impl<F: FnMut(&[u8]) -> Bytes> Update<F> {
    async fn run(self) -> Result<Bytes, Error> {
        let Self { client, path, mut compute } = self;
        loop {
            let written = match client.read(&path).await {
                Ok(old) => {
                    let new = compute(&old.bytes);
                    client.write(&path, new.clone()).if_version(old.metadata.version()).await.map(|_| new)
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let new = compute(&[]);
                    client.write(&path, new.clone()).if_absent().await.map(|_| new)
                }
                Err(error) => return Err(error),
            };
            match written {
                Err(error) if matches!(error.kind(), ErrorKind::VersionChanged | ErrorKind::AlreadyExists) => {}
                written => return written,
            }
        }
    }

    /// Does it, and blocks until it has ended.
    ///
    /// # Errors
    /// Why the file could not be read or written.
    pub fn wait(self) -> Result<Bytes, Error> {
        block_on(self.run())
    }
}

impl<F: FnMut(&[u8]) -> Bytes + Send + 'static> IntoFuture for Update<F> {
    type Output = Result<Bytes, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
