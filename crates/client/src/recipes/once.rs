//! Something that is done once in each period, by one of many.
//!
//! Decides: that a period is recorded, durably and under the lock, before it is acted in, so that this is begun at most once whatever
//! fails afterwards; and that periods have an order, so that one whose clock is behind begins no former one again.

use crate::client::Client;
use crate::error::{Cause, Error, ErrorKind};
use crate::guard::Guard;
use crate::steps::Steps;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Something to be done once in each period; made by [`Client::once`].
#[derive(Clone, Debug)]
pub struct Once {
    client: Client,
    path: PathBuf,
    rerun_lost: bool,
}

/// The right to do it in one period. The lock is held until it is dropped.
#[derive(Debug)]
pub struct Run {
    client: Client,
    path: PathBuf,
    guard: Guard,
    record: Value,
}

impl Client {
    /// Something to be done once in each period, of which the last is on record in a file, made if it is missing.
    #[must_use]
    pub fn once(&self, path: impl AsRef<Path>) -> Once {
        Once { client: self.clone(), path: path.as_ref().to_owned(), rerun_lost: false }
    }
}

impl Once {
    /// A period whose run was lost before its end ([`Run::ended`]) is begun again: at least once, then, and not at most once.
    #[must_use]
    pub fn rerun_lost(mut self) -> Self {
        self.rerun_lost = true;
        self
    }

    /// Begins a period, when no former run goes on; `None`: it was begun before. Names of periods are compared as text: later ones are larger. One that is smaller than that on record fails
    /// with [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn begin(&self, period: impl Into<String>) -> Steps<Option<Run>> {
        let (once, period) = (self.clone(), period.into());
        Steps::new(async move { once.take(period).await })
    }

    async fn take(self, period: String) -> Result<Option<Run>, Error> {
        let Self { client, path, rerun_lost } = self;
        let guard = client.lock(&path).create().await?;
        let contents = client.read(&path).await?.bytes;
        let wrong = |why: String| Error::from(Cause::Recipe { path: path.clone(), why });
        if !contents.is_empty() {
            let before: Value = serde_json::from_slice(&contents).unwrap_or_default();
            let named = before["period"].as_str().ok_or_else(|| wrong("it is not a record of periods".to_owned()))?;
            if named > period.as_str() {
                return Err(wrong(format!("period {period} is older than {named}, which is on record")));
            }
            if named == period && (!rerun_lost || before["ended"].is_number()) {
                return Ok(None);
            }
        }
        let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let record = json!({ "period": period, "host": host, "token": guard.token().0, "begun": now() });
        let run = Run { client, path, guard, record };
        run.write(&run.record).await?;
        Ok(Some(run))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

impl Run {
    /// The lock: valid as long as nobody else can have begun another run. Its token is larger than that of every former run.
    #[must_use]
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// It has been done, with this result; that is on record then.
    pub fn ended(self, status: u8) -> Steps<()> {
        Steps::new(async move {
            let mut record = self.record.clone();
            record["ended"] = now().into();
            record["status"] = status.into();
            self.write(&record).await
        })
    }

    async fn write(&self, record: &Value) -> Result<(), Error> {
        let text = format!("{record}\n");
        match self.client.write(&self.path, text.clone()).guarded_by(&self.guard).await {
            // Whether it was written, its file says: who holds the lock is the only one who writes.
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                let there = self.client.read(&self.path).await?.bytes;
                if there == text.as_bytes() { Ok(()) } else { Err(error) }
            }
            written => written.map(drop),
        }
    }
}
