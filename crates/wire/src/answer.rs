//! The answer family: ACK, PENDING, QUEUED, RESULT, NACK for requests; ALIVE, RELEASED, CANCELLED, ENDED for control messages; HINT.
//!
//! Decides: their layout. Which of them renews is the table of `wire-spec.md` section 7, kept as `Kind::renews`.
//! Invariant: every kind that renews carries `echo`, the packet number of the transmission that it answers (section 11.1).
//! Leaves to others: who may be answered what (`server::standing`).

use crate::field::{Bytes8, Field, List, Writer};
use crate::header::Form;
use crate::ids::{Generation, LockId};
use crate::limits::{DATAGRAM_MIN, MESSAGE_HEADER_LEN};
use crate::locks::Holder;
use crate::notice::Keep;
use crate::registry::Kind;
use crate::reply::Reply;

codes! {
    /// Why a valid request is refused.
    pub enum NackReason {
        /// The session is being timed out.
        TimingOut = 1 "timing out",
        /// The session has ended.
        Ended = 2 "ended",
    }
}

codes! {
    /// What a NACK says of its request (section 11.3).
    pub enum Fate {
        /// The server cannot tell; or the message refused was not a request.
        Unknown = 0 "unknown",
        /// It was executed and is durable; a RESULT may stand beside the NACK.
        Executed = 1 "executed",
        /// It was not executed and never will be.
        NotExecuted = 2 "not executed",
    }
}

codes! {
    /// How a cancellation ended.
    pub enum CancelOutcome {
        /// The wait is over, nothing was granted; also when the server never saw the request, which then never executes.
        Cancelled = 1 "cancelled",
        /// The lock was granted before the cancellation arrived; `generation` names the grant.
        Granted = 2 "granted",
        /// The request was answered otherwise.
        Answered = 3 "answered",
    }
}

body! {
    /// Server to agent: the application's positive answer. Renews; retires the nonce.
    pub struct Ack<'a> {
        /// The request.
        pub nonce: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// The result.
        pub reply: Reply<'a>,
    }
}

impl Ack<'_> {
    /// Bytes of its body before the reply: nonce and echo.
    const BEFORE: usize = 16;
    /// Bytes of a datagram of `form` that carries one ACK and nothing else, besides its reply.
    #[inline]
    #[must_use]
    pub const fn around(form: Form) -> usize {
        form.around() + MESSAGE_HEADER_LEN + Self::BEFORE
    }

    /// Appends an ACK, with its header, of a reply that was encoded before.
    #[inline]
    pub fn put_around(nonce: u64, echo: u64, reply: &[u8], w: &mut Writer) {
        let len = u16::try_from(Self::BEFORE + reply.len()).unwrap_or(u16::MAX);
        let mut head = [0; MESSAGE_HEADER_LEN + Self::BEFORE];
        head[0] = Kind::Ack.code();
        head[2..4].copy_from_slice(&len.to_be_bytes());
        head[4..12].copy_from_slice(&nonce.to_be_bytes());
        head[12..].copy_from_slice(&echo.to_be_bytes());
        w.extend_from_slice(&head);
        w.extend_from_slice(reply);
    }
}

body! {
    /// Server to agent: the request is executing (it waits for cache locks, or for the store). Renews; does not retire the nonce.
    pub struct Pending {
        /// The request.
        pub nonce: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
    }
}

body! {
    /// Server to agent: the lock request waits in line. Renews; retires the nonce. GRANT or WAIT_OVER follows as a notice.
    pub struct Queued<'a> {
        /// The request.
        pub nonce: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// The lock waited for.
        pub lock: LockId,
        /// How many requests stand before this one.
        pub ahead: u32,
        /// One who holds it.
        pub holder: Holder<'a>,
    }
}

body! {
    /// Server to agent: the outcome of a request executed before the delivery failure. Does not renew (section 11.3).
    pub struct RequestResult<'a> {
        /// The request.
        pub nonce: u64,
        /// The result, without grants.
        pub reply: Reply<'a>,
    }
}

body! {
    /// Server to agent: the session is timing out or has ended. Never renews; final for the session (section 11.3).
    pub struct Nack {
        /// The request; 0 when a control message is refused.
        pub nonce: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// Why.
        pub reason: NackReason,
        /// What became of the request.
        pub fate: Fate,
    }
}

body! {
    /// Server to agent: answers KEEPALIVE. Renews.
    pub struct Alive {
        /// The keep-alive's serial.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
    }
}

body! {
    /// One lock after a RELEASE.
    pub struct ReleasedItem {
        /// The lock.
        pub lock: LockId,
        /// The generation that the release named.
        pub generation: Generation,
        /// What the agent keeps.
        pub keep: Keep,
        /// Generation of what it keeps; 0: nothing, or the release named a generation that is not current.
        pub now: Generation,
    }
}

body! {
    /// Server to agent: answers RELEASE. Renews.
    pub struct Released<'a> {
        /// The release's serial.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// What became of each lock named.
        pub items: List<'a, ReleasedItem>,
    }
}

impl Released<'_> {
    /// Most items of one RELEASED in a datagram of `form`: as many as fit the smallest.
    #[must_use]
    pub const fn items_max(form: Form) -> usize {
        (DATAGRAM_MIN - form.around() - MESSAGE_HEADER_LEN - <Self as Field<'_>>::MIN_LEN) / <ReleasedItem as Field<'_>>::LEN
    }
}

body! {
    /// Server to agent: answers CANCEL. Renews.
    pub struct Cancelled {
        /// The cancellation's serial.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// The request cancelled.
        pub nonce: u64,
        /// How it ended.
        pub outcome: CancelOutcome,
        /// The grant, when there was one; else 0.
        pub generation: Generation,
    }
}

body! {
    /// Server to agent: the session has ended as END_SESSION asked. Does not renew.
    pub struct Ended {
        /// The serial of END_SESSION.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
    }
}

body! {
    /// Server to agent, unauthenticated: the session in the header is not known. Changes nothing; starts a handshake (section 11.6).
    pub struct Hint<'a> {
        /// Packet number of the datagram that named the session.
        pub echo: u64,
        /// Reserved for a reason in words; empty in this version.
        pub detail: Bytes8<'a>,
    }
}
