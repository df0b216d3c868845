//! A lock that a fixed number of holders may have.
//!
//! Decides: that each slot is a file with an exclusive lock, so that no failure lets more holders in than there are slots; that one waiter at a
//! time, the holder of the lock on `slots`, waits for slots, in the order in which they asked; and that this one waits for all slots at
//! once, so that the first that is given back is taken.

use super::{make_dir, unless};
use crate::call::Call;
use crate::client::Client;
use crate::error::{Cause, Error, ErrorKind};
use crate::guard::Guard;
use crate::op::{Op, kinds};
use crate::steps::Steps;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Most slots: the first waiter asks for the locks of all.
const SLOTS_MAX: u32 = 256;

/// A lock with a number of slots; made by [`Client::semaphore`].
///
/// At most so many holders are there at any time, whatever fails: a holder that is gone or cut off gives its slot up when its lease is over, as with any lock.
/// Waiters are served in their order.
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    dir: PathBuf,
    slots: u32,
}

/// A slot that is held; given back when dropped.
#[derive(Debug)]
pub struct Slot {
    guard: Guard,
    number: u32,
}

/// How long a slot is waited for.
#[derive(Clone, Copy)]
enum Patience {
    Forever,
    None,
    Until(Instant),
}

impl Client {
    /// A semaphore in a directory of its own, which is made if it is missing. All who use it name the same number of slots, 1 to 256: another one
    /// than its first user named is refused ([`InvalidInput`](ErrorKind::InvalidInput)).
    #[must_use]
    pub fn semaphore(&self, dir: impl AsRef<Path>, slots: u32) -> Semaphore {
        Semaphore { client: self.clone(), dir: dir.as_ref().to_owned(), slots }
    }
}

impl Semaphore {
    /// Takes a slot, and waits for one as long as it takes.
    pub fn acquire(&self) -> Steps<Slot> {
        self.steps(Patience::Forever)
    }

    /// Takes a slot if one is free; otherwise fails with [`Locked`](ErrorKind::Locked).
    pub fn try_acquire(&self) -> Steps<Slot> {
        self.steps(Patience::None)
    }

    /// Waits for a slot at most so long, and then fails with [`TimedOut`](ErrorKind::TimedOut).
    pub fn acquire_timeout(&self, span: Duration) -> Steps<Slot> {
        self.steps(Instant::now().checked_add(span).map_or(Patience::Forever, Patience::Until))
    }

    fn steps(&self, patience: Patience) -> Steps<Slot> {
        let semaphore = self.clone();
        Steps::new(async move { semaphore.take(patience).await })
    }

    fn gate(&self) -> PathBuf {
        self.dir.join("slots")
    }

    fn lock(&self, path: impl AsRef<Path>, patience: Patience) -> Op<kinds::Lock> {
        let lock = self.client.lock(path);
        match patience {
            Patience::Forever => lock,
            Patience::None => lock.try_once(),
            Patience::Until(until) => lock.timeout(until.saturating_duration_since(Instant::now())),
        }
    }

    async fn take(&self, patience: Patience) -> Result<Slot, Error> {
        self.agree().await?;
        // Nobody waits behind one who only tries, and one who only tries waits behind nobody.
        let gate = match patience {
            Patience::None => None,
            _ => Some(self.lock(self.gate(), patience).await?),
        };
        let mut refused = None;
        for number in 0..self.slots {
            match self.lock(self.slot(number), Patience::None).await {
                Ok(guard) => return Ok(Slot { guard, number }),
                Err(error) if error.kind() == ErrorKind::Locked => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let (Patience::None, Some(error)) = (patience, refused) {
            return Err(error);
        }
        let mut calls: Vec<_> = (0..self.slots).map(|number| self.lock(self.slot(number), patience).start()).collect();
        let taken = first(&mut calls).await;
        // Those that were granted at the same moment go back, before the next waiter looks.
        drop((calls, gate));
        taken.map(|(number, guard)| Slot { guard, number })
    }

    fn slot(&self, number: u32) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Makes sure that all who use it mean the same number of slots.
    async fn agree(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Cause::Recipe { path: self.dir.clone(), why }.into());
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return wrong(format!("{} slots are asked for; a semaphore has 1 to {SLOTS_MAX}", self.slots));
        }
        let known = match self.client.read(self.gate()).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make().await?;
                self.client.read(self.gate()).await?
            }
            known => known?,
        };
        let known = String::from_utf8_lossy(&known.bytes).trim().to_owned();
        if known == self.slots.to_string() {
            return Ok(());
        }
        let file = self.gate();
        wrong(format!(
            "it has {known:?} slots, and {} are asked for; name the same number everywhere, or, while nobody uses it, remove {}",
            self.slots,
            file.display()
        ))
    }

    /// Makes its files, that with the number last: once it is there, all are.
    async fn make(&self) -> Result<(), Error> {
        make_dir(&self.client, &self.dir).await?;
        for number in 0..self.slots {
            self.client.create(self.slot(number)).await?;
        }
        let number = format!("{}\n", self.slots);
        unless(self.client.write(self.gate(), number).if_absent().await.map(drop), ErrorKind::AlreadyExists)
    }
}

/// The first of these locks that is granted, or fails.
async fn first(calls: &mut [Call<kinds::Lock>]) -> Result<(u32, Guard), Error> {
    poll_fn(|cx| {
        for (call, number) in calls.iter_mut().zip(0..) {
            if let Poll::Ready(ended) = Pin::new(call).poll(cx) {
                return Poll::Ready(ended.map(|guard| (number, guard)));
            }
        }
        Poll::Pending
    })
    .await
}

impl Slot {
    /// The lock on the slot. Its token orders the holders of this slot, and says nothing about those of others.
    #[must_use]
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Which slot, from 0.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The lock alone.
    #[must_use]
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}
