//! Deliberate bugs: protocol mistakes that the simulator must be able to find.
//!
//! Decides which there are and which one is on. Compiled in only with the feature `bugs`, which nothing but the simulator's command
//! `bugs` asks for; without it [`is`] is the constant `false`, the compiler removes every place that asks, and a daemon in which it
//! is not refuses to compile ([`COMPILED_IN`]). At most one bug is on in a process, chosen at run time by `choose`.
//! Invariant: with no bug chosen a build with the feature does exactly what one without it does.
//! Leaves to others: where each bug bites (the cores ask [`is`] there), who must notice (`cistern-sim`, and its ledger).

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident $text:literal),* $(,)?) => {
        /// A deliberate bug that is built in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Bug { $($(#[$doc])* $name),* }

        impl Bug {
            /// Every bug, in order of name.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its short name, as in the ledger.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

bugs! {
    /// The lease is counted from the receipt of the answer, not from the send time of what it echoes.
    M1 "M1",
    /// The lease is counted from the last transmission, although the answer is to an earlier one.
    M2 "M2",
    /// The server's timer lasts τ, without δ.
    M3 "M3",
    /// δ lengthens the agent's lease instead of the server's timer.
    M3b "M3b",
    /// The server's timer is rounded down.
    M3c "M3c",
    /// A session that is timing out is answered as if it were in good standing.
    M4 "M4",
    /// The timer counts from the first transmission of the demand, not from giving up.
    M5 "M5",
    /// The locks are taken as soon as the demand has failed.
    M6 "M6",
    /// A message of the server's own initiative renews the lease.
    M7 "M7",
    /// An answer from a former session, or a former incarnation of the server, renews the lease.
    M8 "M8",
    /// An operation checks the lease when it starts, and not when it ends.
    M9 "M9",
    /// The lease is measured by a clock that stands still while the machine sleeps.
    M10 "M10",
    /// What is cached is kept over the end of the session, and revived by the next one.
    M11 "M11",
    /// The agent ignores NACK.
    M12 "M12",
    /// The server takes a failed session back as soon as it has sent it a NACK.
    M13 "M13",
    /// Any packet from a failed session cancels its timer.
    M14 "M14",
    /// The agent installs a grant that was demanded before it arrived.
    M16 "M16",
    /// A waiter is granted a lock although its session has failed.
    M17 "M17",
    /// A new acquire by the same owner gets the same generation again.
    M18 "M18",
    /// A release is not checked against the generation that is held.
    M19 "M19",
    /// A demand that was receipted counts as complied with.
    M20 "M20",
    /// The server gives a demand up without starting the timer.
    M22 "M22",
    /// New shared requests are granted past a waiting exclusive one.
    M23 "M23",
    /// A steal frees the locks and leaves the session as it was.
    M24 "M24",
    /// A lock request that arrives again while it waits gets a second place in the queue.
    M25 "M25",
    /// Names known to be absent are kept when the lock on their directory goes.
    M26 "M26",
    /// Kept replies are dropped by count, before the agent can have stopped asking.
    M27 "M27",
    /// A new session of an agent begins with the kept replies of the former one.
    M28 "M28",
    /// A duplicate of a request that is being executed is executed.
    M29 "M29",
    /// A request below the floor is executed.
    M30 "M30",
    /// The outcome of a mutation is not in the mutation's own transaction.
    M31 "M31",
    /// Replies that are errors are not kept.
    M32 "M32",
    /// Tokens begin anew when the server starts.
    M34 "M34",
    /// Grace is shorter than T.
    M35 "M35",
    /// Locks are granted in grace.
    M36 "M36",
    /// The end of a session is not durable before its locks are granted to others.
    M37 "M37",
    /// The end of grace ends nobody: who missed a whole grace may reclaim in the next.
    M38 "M38",
    /// Reclaims are accepted after the agent's RECLAIM_COMPLETE.
    M38b "M38b",
    /// The session's record is written after the session was opened.
    M39 "M39",
    /// Mutations are answered before they are durable.
    M40 "M40",
    /// A failed write of the store counts as done.
    M41 "M41",
    /// The server's incarnation is raised in memory only.
    M42 "M42",
    /// After a stall of its own the server counts the stall against its agents.
    M43 "M43",
    /// A timer is kept for every session, just in case.
    M46 "M46",
    /// A cancelled waiter stays in the queue.
    M47 "M47",
    /// Under load keep-alives are shed like any other request.
    M48 "M48",
    /// Retransmissions are neither spaced out nor spread.
    M49 "M49",
    /// The replay window lets the newest packet through twice.
    M51 "M51",
    /// What is answered without a session may be larger than what caused it.
    M53 "M53",
    /// Behaviour depends on what the process did before, outside of the core.
    M55 "M55",
    /// The time of each renewal is noted although the setting `last-heard` is off.
    L1 "L1",
    /// A session that its agent continues is taken as lost: another one is opened in its place.
    H1 "H1",
    /// The agent takes KNOWN for an answer that renews its lease.
    H2 "H2",
    /// Only the first CONFIRM of a handshake is answered KNOWN.
    H3 "H3",
    /// A HELLO ends the sessions of its agent, before it is confirmed.
    H4 "H4",
    /// WELCOME renews: the lease begins at the send time of the HELLO that it echoes.
    H5 "H5",
    /// A half-open session is opened by whatever comes first in it.
    H6 "H6",
    /// The server acts on a record that does not open.
    S1 "S1",
    /// The packet number of a record is noted before the record opens.
    S2 "S2",
    /// A record that does not open moves its session to the address that it comes from.
    S3 "S3",
    /// A cookie pays for any number of Diffie-Hellman computations.
    S4 "S4",
    /// An OPEN that is answered by another CHALLENGE goes out again with that cookie, and the ephemeral key of before.
    S5 "S5",
    /// What is sent besides, as copies to former addresses, has the packet number of the datagram before.
    S6 "S6",
    /// The packet numbers of a session begin anew when it has ended.
    S7 "S7",
    /// Both directions of a session have one key.
    S8 "S8",
    /// A side begins generations without hearing in the present one.
    S9 "S9",
    /// The handshake of a revoked key goes through.
    S10 "S10",
    /// A revocation frees what its sessions hold at once.
    S11 "S11",
    /// The agent takes its session for lost because of a HINT.
    S12 "S12",
    /// The key of a generation is gone as soon as the next one begins.
    S13 "S13",
    /// Keys are used however many records they have failed to open.
    S14 "S14",
    /// A key phase is believed although its record does not open.
    S15 "S15",
    /// Where the key before and the next one may be meant, the next one is tried, and no other.
    S16 "S16",
    /// The packet numbers of a session begin with 1, in both directions.
    U1 "U1",
    /// Ephemeral files go as soon as their session has failed.
    E1 "E1",
    /// A session that reclaims does not take over the ephemeral files of the former one.
    E2 "E2",
    /// CANCEL of a lock request whose answer was lost says nothing of the grant in that answer.
    Q1 "Q1",
    /// The locks of a long session are granted before its record names them, or at all without that.
    T1 "T1",
    /// The end of the common grace ends the long sessions, too, and others get what they may hold.
    T2 "T2",
    /// The timer of a session with a longer lease runs for T of the server's own.
    T3 "T3",
    /// A mutation is let through under the token of a user who has given the lock back, as long as its agent holds it.
    G1 "G1",
    /// A lock is granted to a waiter of which nothing was heard for long.
    P1 "P1",
    /// Watchers are told of a change before it is durable.
    W1 "W1",
    /// The agent counts on the watches of its former session.
    W2 "W2",
    /// A standby takes the lease of the group without waiting for the end of the former owner's.
    C1 "C1",
    /// The server answers on after the end of its lease of the group.
    C2 "C2",
    /// A server that has the lease of the group again goes on with what it knew.
    C3 "C3",
    /// The grace of an elected server counts from the start of its machine.
    C4 "C4",
    /// The agent takes a hint for an answer that renews its lease.
    C5 "C5",
    /// The agent follows every hint of who serves.
    C6 "C6",
    /// The grace of the second take-over counts from long ago: only that of the first is whole.
    C7 "C7",
    /// The list of servers is changed again before a majority of it has agreed to anything.
    C8 "C8",
    /// A server forgets what it granted when the list of servers changes.
    C9 "C9",
    /// The server acts on what comes from an address that is not proven for its session.
    A1 "A1",
    /// The agent takes datagrams of any address.
    A2 "A2",
    /// A cookie is good for any agent at its address.
    A3 "A3",
    /// "Surrendered" is believed from any address.
    A4 "A4",
    /// An incarnation may be any number above the last.
    A5 "A5",
    /// RECLAIM of a generation that was never granted is believed.
    A6 "A6",
    /// A packet number may be any number above the highest.
    A7 "A7",
    /// A floor may be any number above the last.
    A8 "A8",
    /// What an owner has of a table does not count against its share.
    B1 "B1",
    /// Strikes end with the sessions of who got them.
    B2 "B2",
    /// A host may use up all that can be answered to those without a session.
    B3 "B3",
    /// A request that is shed counts as executing.
    F1 "F1",
    /// Requests are executed as they come whatever their host owes.
    F3 "F3",
    /// Datagrams of control messages cost nothing.
    F4 "F4",
    /// An advisory lock protects its object's name from removal and replacement only, not from being moved away.
    N1 "N1",
    /// A named lease ends after its time to live by the server's clock, without δ.
    N2 "N2",
    /// A named lease that is kept is answered so, and its time goes on.
    N3 "N3",
    /// A start gives named leases no time: they end when the server serves.
    N4 "N4",
    /// The record of a named lease outlives its end.
    N5 "N5",
    /// What cannot go with a named lease at once stays.
    N6 "N6",
    /// Whoever has a secret, has that of every named lease.
    N7 "N7",
    /// A named lease that is kept lasts twice as long.
    N8 "N8",
    /// A name may lead from one realm into another.
    R1 "R1",
    /// A quota of a realm bounds nothing.
    R2 "R2",
    /// What a realm holds counts in itself alone, not in those around it.
    R3 "R3",
    /// Rights are checked on the way by names alone, not for an object that is named by its number.
    R4 "R4",
    /// Rights that a session had once are not looked up again.
    R5 "R5",
    /// Who may write in a realm may move away the realms within it.
    R6 "R6",
    /// Locks are listed whoever asks.
    R7 "R7",
    /// A lock guards a change although its object may not be read.
    R8 "R8",
    /// An invite is spent in one transaction, and the key registered in the next.
    K1 "K1",
    /// A spent invite admits another key.
    K2 "K2",
    /// A key that was withdrawn resumes its sessions.
    R20 "R20",
    /// A session that has ended is resumed.
    R21 "R21",
    /// What was cached by rights that are withdrawn is not demanded.
    R9 "R9",
}

/// Whether bugs are compiled in; daemons and libraries for users refuse to be.
pub const COMPILED_IN: bool = cfg!(feature = "bugs");

#[cfg(feature = "bugs")]
mod chosen {
    use super::Bug;
    use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

    /// The bug that is on, plus one; 0: none.
    static CHOSEN: AtomicU16 = AtomicU16::new(0);

    /// Switches one bug on in the whole process, and every other one off.
    pub fn choose(bug: Option<Bug>) {
        CHOSEN.store(bug.map_or(0, |bug| bug as u16 + 1), Ordering::SeqCst);
    }

    /// How often this was called in the process: what no core may depend on.
    pub(crate) fn calls() -> u64 {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        CALLS.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this bug is on.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        CHOSEN.load(Ordering::Relaxed) == bug as u16 + 1
    }
}

#[cfg(feature = "bugs")]
pub(crate) use chosen::calls;
#[cfg(feature = "bugs")]
pub use chosen::{choose, is};

/// Whether this bug is on: never, for none is compiled in.
#[cfg(not(feature = "bugs"))]
#[must_use]
pub const fn is(_: Bug) -> bool {
    false
}

/// Nothing counts where no bug is compiled in.
#[cfg(not(feature = "bugs"))]
pub(crate) const fn calls() -> u64 {
    1
}
