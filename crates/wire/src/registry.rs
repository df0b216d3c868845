//! The message registry: one line per kind.
//!
//! Decides: codes, names, directions, lanes, and for each answer whether it renews the lease (`wire-spec.md` section 7). The enum,
//! the decoder, the encoder and the field lists are generated from the lines, and the specification is tested against them.
//! Place in the walk: `Message::check` is called by `Envelope::decode` for every message, `Message::decode` when it is acted on.
//! Leaves to others: layouts (the family files).

use crate::field::{Fault, Field, Malformed, Reader, Writer};
use crate::ids::{Ask, Terms};
use crate::shape::{FieldInfo, Shape};
use crate::{admin, answer, attr, batch, content, control, handshake, joining, lease, locks, names, notice, realm, recovery, watch, xattr};
use alloc::vec::Vec;

/// Who sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Agent to server.
    Agent,
    /// Server to agent.
    Server,
}

/// The lane a message travels in: with which means it is made at-most-once (`wire-spec.md` section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Asks for a session, in session 0.
    Handshake,
    /// Has a nonce and a slot of the window.
    Request,
    /// Idempotent; waits for nothing.
    Control,
    /// Answers a request; does not renew.
    Answer,
    /// Answers a request or control message and renews the lease: carries `echo`.
    Renewal,
    /// From the server's own initiative; retransmitted until receipted.
    Notice,
    /// Proves an address; repeated when what needs the proof is.
    Path,
}

/// What a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing, but for the locks that come with its answer: executed again, it does no harm.
    Read,
    /// What is stored; it ends with [`Terms`].
    Mutation,
    /// What the server keeps of the session: its locks, stages and watches, what it reclaims; or, beside the store, the time of a named lease.
    Session,
}

/// The terms of a message, if its class has any.
macro_rules! terms_of {
    (Mutation $message:ident) => {
        Some($message.terms)
    };
    ($class:ident $message:ident) => {{
        let _ = $message;
        None
    }};
}

macro_rules! registry {
    ($($code:literal $name:ident $text:literal $direction:ident $lane:ident $(/ $class:ident)? $ty:ty;)*) => {
        /// A message, borrowed from its datagram.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant's structure is documented where it is declared")]
        pub enum Message<'a> { $($name($ty)),* }

        /// The kind of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each kind's structure is documented where it is declared")]
        pub enum Kind { $($name = $code),* }

        impl Kind {
            /// Every kind, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The kind of a code, if there is one.
            #[inline]
            #[must_use]
            pub const fn of(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Its code.
            #[inline]
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Its name in the specification, in captures and in logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Who sends it.
            #[must_use]
            pub const fn direction(self) -> Direction {
                match self { $(Self::$name => Direction::$direction),* }
            }

            /// How it travels.
            #[inline]
            #[must_use]
            pub const fn lane(self) -> Lane {
                match self { $(Self::$name => Lane::$lane),* }
            }

            /// What it may change, if it is a request.
            #[inline]
            #[must_use]
            pub const fn class(self) -> Option<Class> {
                match self {
                    $( $( Self::$name => Some(Class::$class), )? )*
                    _ => None,
                }
            }

            /// Whether a server acts on it before the other messages of its datagram (section 11.2): a session that gives a lock back in
            /// the datagram in which it asks is not refused for keeping it.
            #[inline]
            #[must_use]
            pub const fn goes_first(self) -> bool {
                matches!(self, Self::Receipt | Self::Release | Self::EndSession | Self::PathResponse)
            }

            /// Whether receiving it renews the lease (from the send time of the transmission echoed).
            #[must_use]
            pub const fn renews(self) -> bool {
                //= wire-spec.md#7-the-table-of-answers
                //# An agent MUST NOT renew its lease on a message that this table does not mark as renewing.
                matches!(self.lane(), Lane::Renewal)
            }

            /// Every code with its name.
            pub const WORDS: &'static [(u64, &'static str)] = &[$(($code, $text)),*];

            /// Its name in captures: the one in the specification in lower case.
            #[must_use]
            pub const fn field(self) -> &'static str {
                match self { $(Self::$name => lower!($text)),* }
            }

            /// What stands on the wire for its body.
            #[must_use]
            #[allow(clippy::extra_unused_lifetimes, reason = "some of the types named in the lines borrow")]
            pub const fn shape<'a>(self) -> &'static Shape {
                match self { $(Self::$name => <$ty as Field<'a>>::SHAPE),* }
            }

            /// Its fields in wire order.
            #[must_use]
            #[allow(clippy::extra_unused_lifetimes, reason = "some of the types named in the lines borrow")]
            pub const fn fields<'a>(self) -> &'static [FieldInfo] {
                match self { $(Self::$name => <$ty>::FIELDS),* }
            }
        }

        impl<'a> Message<'a> {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name),* }
            }

            /// Reads the body of a message of `kind`, to its last byte.
            ///
            /// # Errors
            /// [`Malformed`] names the structure and field at fault; the sender is to blame.
            pub fn decode(kind: Kind, body: &'a [u8]) -> Result<Self, Malformed> {
                let mut r = Reader::new(body);
                let message = match kind { $(Kind::$name => Self::$name(r.get()?)),* };
                if r.rest().is_empty() {
                    Ok(message)
                } else {
                    Err(Malformed::new(Fault::Trailing).within(kind.name(), "end"))
                }
            }

            /// Whether the body of a message of `kind` parses to its last byte: as [`Self::decode`], but nothing is made of it.
            ///
            /// # Errors
            /// Those of [`Self::decode`].
            pub fn check(kind: Kind, body: &'a [u8]) -> Result<(), Malformed> {
                let mut r = Reader::new(body);
                match kind { $(Kind::$name => <$ty as Field<'a>>::skip(&mut r)?),* }
                if r.rest().is_empty() {
                    Ok(())
                } else {
                    Err(Malformed::new(Fault::Trailing).within(kind.name(), "end"))
                }
            }

            /// With what a request begins; `None`: it is no request.
            #[must_use]
            pub const fn ask(&self) -> Option<Ask> {
                match self {
                    $( $( Self::$name(m) => {
                        const _: Class = Class::$class;
                        Some(m.ask)
                    } )? )*
                    _ => None,
                }
            }

            /// With what a mutation ends; `None`: it is none.
            #[must_use]
            pub const fn terms(&self) -> Option<Terms<'a>> {
                match self {
                    $( $( Self::$name(m) => terms_of!($class m), )? )*
                    _ => None,
                }
            }

            /// The value of a field of its body that is a plain `u64`, by the field's name.
            #[must_use]
            pub fn number(&self, field: &str) -> Option<u64> {
                match self { $(Self::$name(body) => body.number(field)),* }
            }

            /// Appends the body.
            pub fn encode_body(&self, w: &mut Writer) {
                match self { $(Self::$name(body) => body.put(w)),* }
            }
        }

        $( impl<'a> From<$ty> for Message<'a> {
            fn from(body: $ty) -> Self {
                Self::$name(body)
            }
        } )*
    };
}

registry! {
    // Handshake: `wire-spec.md` section 6.1.
    0x01 Hello         "HELLO"          Agent  Handshake        handshake::Hello<'a>;
    0x02 Challenge     "CHALLENGE"      Server Handshake        handshake::Challenge<'a>;
    0x03 Welcome       "WELCOME"        Server Handshake        handshake::Welcome;
    0x04 Refuse        "REFUSE"         Server Handshake        handshake::Refuse;
    0x06 Confirm       "CONFIRM"        Agent  Control          handshake::Confirm<'a>;
    0x07 Opened        "OPENED"         Server Renewal          handshake::Opened<'a>;
    0x08 Known         "KNOWN"          Server Answer           handshake::Known;
    0x09 Join          "JOIN"           Agent  Control          joining::Join;
    0x0A Joined        "JOINED"         Server Answer           joining::Joined<'a>;
    0x0B Roster        "ROSTER"         Agent  Control          joining::RosterAsk;
    0x0C RosterPart    "ROSTER_PART"    Server Answer           joining::RosterPart<'a>;
    // Control: section 6.3.
    0x10 KeepAlive     "KEEPALIVE"      Agent  Control          control::KeepAlive;
    0x11 Release       "RELEASE"        Agent  Control          control::Release<'a>;
    0x13 Cancel        "CANCEL"         Agent  Control          control::Cancel;
    0x14 EndSession    "END_SESSION"    Agent  Control          control::EndSession;
    0x15 PathChallenge "PATH_CHALLENGE" Server Path             control::PathChallenge;
    0x16 PathResponse  "PATH_RESPONSE"  Agent  Path             control::PathResponse;
    // Notices and their receipt: section 6.4.
    0x20 Demand        "DEMAND"         Server Notice           notice::Demand;
    0x21 Grant         "GRANT"          Server Notice           notice::Grant;
    0x22 WaitOver      "WAIT_OVER"      Server Notice           notice::WaitOver;
    0x23 Probe         "PROBE"          Server Notice           notice::Probe;
    0x24 WatchEvent    "WATCH_EVENT"    Server Notice           notice::WatchEvent;
    0x28 Receipt       "RECEIPT"        Agent  Control          notice::Receipt;
    // Requests: section 6.2.
    0x30 Reclaim       "RECLAIM"        Agent  Request/Session  recovery::Reclaim<'a>;
    0x31 ReclaimComplete "RECLAIM_COMPLETE" Agent  Request/Session  recovery::ReclaimComplete;
    0x32 Outcome       "OUTCOME"        Agent  Request/Read     recovery::Outcome;
    0x40 Lookup        "LOOKUP"         Agent  Request/Read     names::Lookup<'a>;
    0x41 GetAttr       "GETATTR"        Agent  Request/Read     attr::GetAttr;
    0x42 SetAttr       "SETATTR"        Agent  Request/Mutation attr::SetAttr<'a>;
    0x43 ReadDir       "READDIR"        Agent  Request/Read     names::ReadDir<'a>;
    0x44 Create        "CREATE"         Agent  Request/Mutation names::Create<'a>;
    0x45 Mkdir         "MKDIR"          Agent  Request/Mutation names::Mkdir<'a>;
    0x46 Symlink       "SYMLINK"        Agent  Request/Mutation names::Symlink<'a>;
    0x47 Link          "LINK"           Agent  Request/Mutation names::Link<'a>;
    0x48 Unlink        "UNLINK"         Agent  Request/Mutation names::Unlink<'a>;
    0x49 Rmdir         "RMDIR"          Agent  Request/Mutation names::Rmdir<'a>;
    0x4A Rename        "RENAME"         Agent  Request/Mutation names::Rename<'a>;
    0x4B MakeRealm     "MKREALM"        Agent  Request/Mutation realm::MakeRealm<'a>;
    0x4C SetQuota      "SETQUOTA"       Agent  Request/Mutation realm::SetQuota<'a>;
    0x4D ListRealms    "LIST_REALMS"    Agent  Request/Read     realm::ListRealms;
    0x4E MakeLease     "MKLEASE"        Agent  Request/Mutation lease::MakeLease<'a>;
    0x4F Attach        "ATTACH"         Agent  Request/Mutation lease::Attach<'a>;
    0x50 Read          "READ"           Agent  Request/Read     content::Read;
    0x51 Stage         "STAGE"          Agent  Request/Session  content::Stage<'a>;
    0x52 Write         "WRITE"          Agent  Request/Mutation content::Write<'a>;
    0x53 Batch         "BATCH"          Agent  Request/Mutation batch::Batch<'a>;
    0x54 GetXattr      "GETXATTR"       Agent  Request/Read     xattr::GetXattr<'a>;
    0x55 ListXattr     "LISTXATTR"      Agent  Request/Read     xattr::ListXattr<'a>;
    0x56 SetXattr      "SETXATTR"       Agent  Request/Mutation xattr::SetXattr<'a>;
    0x57 RemoveXattr   "REMOVEXATTR"    Agent  Request/Mutation xattr::RemoveXattr<'a>;
    0x60 Lock          "LOCK"           Agent  Request/Session  locks::Lock;
    0x62 ListLocks     "LIST_LOCKS"     Agent  Request/Read     locks::ListLocks;
    0x63 ServerStatus  "SERVER_STATUS"  Agent  Request/Read     locks::ServerStatus;
    0x64 Watch         "WATCH"          Agent  Request/Session  watch::Watch;
    0x65 Unwatch       "UNWATCH"        Agent  Request/Session  watch::Unwatch;
    0x66 KeepLease     "KEEP_LEASE"     Agent  Request/Session  lease::KeepLease;
    0x67 ListLeases    "LIST_LEASES"    Agent  Request/Read     lease::ListLeases;
    0x78 Admin         "ADMIN"          Agent  Request/Session  admin::Admin<'a>;
    // Answers: sections 6.5 and 7.
    0x80 Ack           "ACK"            Server Renewal          answer::Ack<'a>;
    0x81 Pending       "PENDING"        Server Renewal          answer::Pending;
    0x82 Queued        "QUEUED"         Server Renewal          answer::Queued<'a>;
    0x83 Result        "RESULT"         Server Answer           answer::RequestResult<'a>;
    0x84 Nack          "NACK"           Server Answer           answer::Nack;
    0x85 Alive         "ALIVE"          Server Renewal          answer::Alive;
    0x86 Released      "RELEASED"       Server Renewal          answer::Released<'a>;
    0x87 Cancelled     "CANCELLED"      Server Renewal          answer::Cancelled;
    0x88 Ended         "ENDED"          Server Answer           answer::Ended;
    0x89 Hint          "HINT"           Server Answer           answer::Hint<'a>;
}

impl Message<'_> {
    /// The message as it stands in a datagram: header and body.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }

    /// Appends the message with its header.
    pub fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.extend_from_slice(&[self.kind().code(), 0, 0, 0]);
        self.encode_body(w);
        // A body longer than its length field cannot be sent: the packer refuses it by its size before that.
        let len = u16::try_from(w.len() - start - crate::limits::MESSAGE_HEADER_LEN).unwrap_or(u16::MAX);
        w[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    }
}
