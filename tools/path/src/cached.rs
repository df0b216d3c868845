//! What an agent answers without a message, to be counted.
//!
//! Decides what is asked and what the agent holds before. Invariant: nothing is sent meanwhile. Leaves to others: counting.

use crate::pair::Pair;
use bytes::Bytes;
use cistern_agent::api::{Command, Output, Ownership, Submitted, Target, Wait};
use cistern_wire::Mode;

/// The file of which everything is known.
const FILE: &[u8] = b"/jobs/nightly";
const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

/// One kind of question to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Cached {
    /// Attributes of a file in the cache, by its path.
    Stat,
    /// Its contents, likewise.
    Read,
    /// An advisory lock that the agent holds and nobody uses, and its release.
    Lock,
}

impl Cached {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stat, Self::Read, Self::Lock];

    /// An agent that can answer it.
    ///
    /// # Panics
    /// If it does not come to that: agent or server is broken.
    #[must_use]
    pub fn prepare(self) -> Pair {
        let mut pair = Pair::new();
        let parent = Bytes::from_static(b"/jobs");
        pair.run(Command::Mkdir { path: parent, owner: Ownership { mode: 0o755, ..OWNER } }).expect("a directory can be made");
        let path = Bytes::from_static(FILE);
        let put = Command::Put { path, data: Bytes::from_static(b"contents"), owner: OWNER };
        pair.run(put).expect("a file can be made");
        for _ in 0..2 {
            for kind in Self::ALL {
                match pair.run(kind.command()).expect("it is there") {
                    Output::Locked(locked) => drop(pair.run(Command::Unlock { holder: locked.holder })),
                    _ => continue,
                }
            }
        }
        pair
    }

    /// Asks once.
    ///
    /// # Panics
    /// If it is not answered at once: the agent is broken.
    pub fn ask(self, pair: &mut Pair) {
        match pair.agent.submit(pair.now, self.command()) {
            Submitted::Now(Ok(Output::Locked(locked))) => {
                let unlocked = pair.agent.submit(pair.now, Command::Unlock { holder: locked.holder });
                assert!(matches!(unlocked, Submitted::Now(Ok(Output::Done))), "{unlocked:?}");
            }
            Submitted::Now(Ok(_)) => {}
            other => panic!("not answered from cache: {other:?}"),
        }
    }

    fn command(self) -> Command {
        let target = Target::Path(Bytes::from_static(FILE));
        match self {
            Self::Stat => Command::Stat { target, follow: true },
            Self::Read => Command::Read { target, offset: 0, length: None },
            Self::Lock => Command::Lock { target, mode: Mode::Exclusive, wait: Wait::Try },
        }
    }
}
