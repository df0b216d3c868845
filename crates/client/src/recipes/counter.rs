//! A number that many change.
//!
//! Decides: that each change is made to the number that was read, or not at all, so that none is lost and none is made twice.

use crate::client::Client;
use crate::error::{Cause, Error, ErrorKind};
use crate::metadata::Version;
use crate::steps::Steps;
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// A number in a file, in decimal; made by [`Client::counter`]. A file that is missing is 0.
///
/// A change is made at most once: when its answer is lost with the session, it fails with [`OutcomeUnknown`](ErrorKind::OutcomeUnknown), and was made or not.
#[derive(Clone, Debug)]
pub struct Counter {
    client: Client,
    path: PathBuf,
}

impl Client {
    /// A counter in a file of its own, which is made with the first change.
    #[must_use]
    pub fn counter(&self, path: impl AsRef<Path>) -> Counter {
        Counter { client: self.clone(), path: path.as_ref().to_owned() }
    }
}

impl Counter {
    /// The number as it is now.
    pub fn get(&self) -> Steps<i64> {
        let counter = self.clone();
        Steps::new(async move { Ok(counter.read().await?.0) })
    }

    /// Adds to it; brings what it is then. One that would not fit is [`InvalidInput`](ErrorKind::InvalidInput), and changes nothing.
    pub fn add(&self, amount: i64) -> Steps<i64> {
        let counter = self.clone();
        Steps::new(async move {
            loop {
                let (now, version) = counter.read().await?;
                let new = now.checked_add(amount).ok_or_else(|| counter.wrong(format!("{now} and {amount} do not fit into 64 bits")))?;
                if counter.write(new, version).await? {
                    return Ok(new);
                }
            }
        })
    }

    /// Sets it to `new` if it is `old`; whether it was.
    pub fn compare_and_set(&self, old: i64, new: i64) -> Steps<bool> {
        let counter = self.clone();
        Steps::new(async move {
            loop {
                let (now, version) = counter.read().await?;
                if now != old {
                    return Ok(false);
                }
                if counter.write(new, version).await? {
                    return Ok(true);
                }
            }
        })
    }

    async fn read(&self) -> Result<(i64, Option<Version>), Error> {
        let contents = match self.client.read(&self.path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, None)),
            contents => contents?,
        };
        let number = std::str::from_utf8(&contents.bytes).ok().map(str::trim).filter(|text| !text.is_empty());
        let number = number.map_or_else(|| contents.bytes.is_empty().then_some(0), |text| text.parse().ok());
        let number = number.ok_or_else(|| self.wrong("its contents are no number".to_owned()))?;
        Ok((number, Some(contents.metadata.version())))
    }

    /// Writes a number in the place of what was read; whether that was still there.
    async fn write(&self, number: i64, version: Option<Version>) -> Result<bool, Error> {
        let write = self.client.write(&self.path, Bytes::from(format!("{number}\n")));
        let written = match version {
            Some(version) => write.if_version(version).await.map(drop),
            None => write.if_absent().await.map(drop),
        };
        match written {
            // Removed meanwhile: it is 0 then.
            Err(error) if error.kind() == ErrorKind::NotFound && version.is_some() => Ok(false),
            Err(error) if [ErrorKind::VersionChanged, ErrorKind::AlreadyExists].contains(&error.kind()) => Ok(false),
            written => written.map(|()| true),
        }
    }

    fn wrong(&self, why: String) -> Error {
        Cause::Recipe { path: self.path.clone(), why }.into()
    }
}
