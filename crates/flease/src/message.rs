//! Messages, and their layout behind the header of a datagram (docs/flease.md, "Messages").

use crate::ballot::{Ballot, Member};
use cistern_wire::{Fault, Field, Malformed, Reader, Writer};

/// Longest name of a resource, in bytes.
pub const NAME_MAX: usize = 200;

/// Rounds and tokens on the wire are not larger, so that counting on never overflows.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// A message about one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Asks for a promise, and whose record lives. With a base: to renew that tenure.
    Read {
        /// The attempt.
        ballot: Ballot,
        /// The tenure to be renewed.
        base: Option<Ballot>,
    },
    /// Promised; no record lives.
    Open {
        /// The attempt that is answered.
        ballot: Ballot,
        /// The highest token seen; 0: none is remembered.
        floor: u64,
    },
    /// Promised; the record that lives is of the base.
    Own {
        /// The attempt that is answered.
        ballot: Ballot,
        /// The base.
        tenure: Ballot,
    },
    /// Refused: the record of another tenure lives. Nothing was promised.
    Held {
        /// The attempt that is answered.
        ballot: Ballot,
        /// The tenure of the record.
        tenure: Ballot,
        /// How long the record lives on, by the acceptor's clock.
        rest_us: u32,
        /// The highest token seen; 0: none is remembered.
        floor: u64,
    },
    /// Refused: a higher ballot was promised.
    Lower {
        /// The attempt that is answered.
        ballot: Ballot,
        /// The higher one.
        promised: Ballot,
    },
    /// Asks for a record.
    Write {
        /// The attempt.
        ballot: Ballot,
        /// The tenure that begins (then it is the ballot) or is renewed.
        tenure: Ballot,
        /// The tenure's token.
        token: u64,
        /// Counts the renewals by WRITE alone of one ballot, from 0.
        transmission: u32,
    },
    /// On record.
    Taken {
        /// The attempt that is answered.
        ballot: Ballot,
        /// The transmission that is answered.
        transmission: u32,
    },
    /// The owner has stopped, for good in this tenure.
    Release {
        /// Which tenure.
        tenure: Ballot,
        /// Who is wished to come next; the others hold back a little.
        successor: Option<Member>,
    },
    /// No record of this tenure is left.
    Released {
        /// Which tenure.
        tenure: Ballot,
    },
    /// Of the synchronised mode: promised; what the register holds.
    Value {
        /// The attempt that is answered.
        ballot: Ballot,
        /// That of the value; [`Ballot::NONE`] if there is none.
        written: Ballot,
        /// The value.
        lease: Option<Lease>,
    },
    /// Of the synchronised mode: asks for a value. It is answered with TAKEN.
    Put {
        /// The attempt.
        ballot: Ballot,
        /// The value.
        lease: Lease,
    },
}

/// A value of the register: who owns the resource until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// The ballot with which the owner began.
    pub tenure: Ballot,
    /// In microseconds since 1970, by the synchronised clocks; 0: the owner gave it up.
    pub ends_us: u64,
    /// The tenure's token.
    pub token: u64,
}

impl Message {
    /// The attempt that it answers.
    #[must_use]
    pub const fn answered(&self) -> Option<Ballot> {
        match *self {
            Self::Open { ballot, .. }
            | Self::Own { ballot, .. }
            | Self::Held { ballot, .. }
            | Self::Lower { ballot, .. }
            | Self::Taken { ballot, .. }
            | Self::Value { ballot, .. } => Some(ballot),
            Self::Read { .. } | Self::Write { .. } | Self::Put { .. } | Self::Release { .. } | Self::Released { .. } => None,
        }
    }

    /// The token that it tells, or wants on record.
    pub(crate) const fn token(&self) -> Option<u64> {
        match *self {
            Self::Open { floor, .. } | Self::Held { floor, .. } => Some(floor),
            Self::Write { token, .. } | Self::Put { lease: Lease { token, .. }, .. } => Some(token),
            Self::Value { lease: Some(lease), .. } => Some(lease.token),
            _ => None,
        }
    }

    /// The ballots that name their sender: it is the process of all of them.
    pub(crate) fn of_sender(&self) -> [Option<Ballot>; 2] {
        match *self {
            Self::Read { ballot, base } => [Some(ballot), base],
            Self::Write { ballot, tenure, .. } => [Some(ballot), Some(tenure)],
            Self::Release { tenure, .. } => [Some(tenure), None],
            // The lease may be another's, written back.
            Self::Put { ballot, .. } => [Some(ballot), None],
            _ => [None, None],
        }
    }

    /// The ballots that name their receiver.
    pub(crate) fn of_receiver(&self) -> Option<Ballot> {
        match *self {
            Self::Released { tenure } => Some(tenure),
            _ => self.answered(),
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Read { .. } => 1,
            Self::Open { .. } => 2,
            Self::Own { .. } => 3,
            Self::Held { .. } => 4,
            Self::Lower { .. } => 5,
            Self::Write { .. } => 6,
            Self::Taken { .. } => 7,
            Self::Release { .. } => 8,
            Self::Released { .. } => 9,
            Self::Value { .. } => 10,
            Self::Put { .. } => 11,
        }
    }

    /// Appends the message about the resource `name`.
    pub(crate) fn put(&self, name: &[u8], w: &mut Writer) {
        self.kind().put(w);
        u8::try_from(name.len()).expect("names were checked").put(w);
        w.extend_from_slice(name);
        match *self {
            Self::Read { ballot, base } => {
                put(ballot, w);
                put(base.unwrap_or(Ballot::NONE), w);
            }
            Self::Open { ballot, floor } => {
                put(ballot, w);
                floor.put(w);
            }
            Self::Own { ballot, tenure: other } | Self::Lower { ballot, promised: other } => {
                put(ballot, w);
                put(other, w);
            }
            Self::Held { ballot, tenure, rest_us, floor } => {
                put(ballot, w);
                put(tenure, w);
                rest_us.put(w);
                floor.put(w);
            }
            Self::Write { ballot, tenure, token, transmission } => {
                put(ballot, w);
                put(tenure, w);
                token.put(w);
                transmission.put(w);
            }
            Self::Taken { ballot, transmission } => {
                put(ballot, w);
                transmission.put(w);
            }
            Self::Release { tenure, successor } => {
                put(tenure, w);
                successor.unwrap_or(u8::MAX).put(w);
            }
            Self::Released { tenure } => put(tenure, w),
            Self::Value { ballot, written, lease } => {
                put(ballot, w);
                put(written, w);
                // Without a value there is no ballot of one either.
                lease.into_iter().for_each(|lease| put_lease(lease, w));
            }
            Self::Put { ballot, lease } => {
                put(ballot, w);
                put_lease(lease, w);
            }
        }
    }

    /// Reads a message and the name of its resource.
    ///
    /// # Errors
    /// The sender is at fault.
    pub(crate) fn get<'a>(r: &mut Reader<'a>, members: u8) -> Result<(&'a [u8], Self), Malformed> {
        let kind: u8 = r.get()?;
        let length = usize::from(r.get::<u8>()?);
        if length == 0 || length > NAME_MAX {
            return Err(bad("name"));
        }
        let name = r.take(length)?;
        let mut next = |field| ballot(r, members, field);
        let message = match kind {
            1 => Self::Read { ballot: next("ballot")?.ok_or(bad("ballot"))?, base: next("base")? },
            2 => Self::Open { ballot: some(r, members, "ballot")?, floor: count(r, "floor")? },
            3 => Self::Own { ballot: some(r, members, "ballot")?, tenure: some(r, members, "tenure")? },
            4 => Self::Held {
                ballot: some(r, members, "ballot")?,
                tenure: some(r, members, "tenure")?,
                rest_us: r.get()?,
                floor: count(r, "floor")?,
            },
            5 => Self::Lower { ballot: some(r, members, "ballot")?, promised: lowest(r, members)? },
            6 => Self::Write {
                ballot: some(r, members, "ballot")?,
                tenure: some(r, members, "tenure")?,
                token: count(r, "token")?,
                transmission: r.get()?,
            },
            7 => Self::Taken { ballot: some(r, members, "ballot")?, transmission: r.get()? },
            8 => Self::Release { tenure: some(r, members, "tenure")?, successor: successor(r, members)? },
            9 => Self::Released { tenure: some(r, members, "tenure")? },
            10 => {
                let (ballot, written) = (some(r, members, "ballot")?, ballot(r, members, "written")?);
                let lease = written.map(|_| lease(r, members)).transpose()?;
                Self::Value { ballot, written: written.unwrap_or(Ballot::NONE), lease }
            }
            11 => Self::Put { ballot: some(r, members, "ballot")?, lease: lease(r, members)? },
            _ => return Err(bad("kind")),
        };
        Ok((name, message))
    }
}

fn count(r: &mut Reader<'_>, field: &'static str) -> Result<u64, Malformed> {
    let found = r.get()?;
    if found <= COUNT_MAX { Ok(found) } else { Err(bad(field)) }
}

const fn bad(field: &'static str) -> Malformed {
    Malformed { part: "message", field, fault: Fault::BadValue }
}

fn put(ballot: Ballot, w: &mut Writer) {
    ballot.round.put(w);
    ballot.member.put(w);
    ballot.nonce.put(w);
}

fn put_lease(lease: Lease, w: &mut Writer) {
    put(lease.tenure, w);
    lease.ends_us.put(w);
    lease.token.put(w);
}

fn lease(r: &mut Reader<'_>, members: u8) -> Result<Lease, Malformed> {
    Ok(Lease { tenure: some(r, members, "tenure")?, ends_us: count(r, "ends_us")?, token: count(r, "token")? })
}

fn raw(r: &mut Reader<'_>, members: u8, field: &'static str) -> Result<Ballot, Malformed> {
    let found = Ballot { round: r.get()?, member: r.get()?, nonce: r.get()? };
    if found.round <= COUNT_MAX && found.member < members { Ok(found) } else { Err(bad(field)) }
}

/// A ballot, or 17 zero bytes for none.
fn ballot(r: &mut Reader<'_>, members: u8, field: &'static str) -> Result<Option<Ballot>, Malformed> {
    let found = raw(r, members, field)?;
    match found == Ballot::NONE {
        true => Ok(None),
        false if found.round > 0 && found.nonce > 0 => Ok(Some(found)),
        false => Err(bad(field)),
    }
}

fn some(r: &mut Reader<'_>, members: u8, field: &'static str) -> Result<Ballot, Malformed> {
    ballot(r, members, field)?.ok_or(bad(field))
}

/// A promise, which a release may have raised to a round of nobody.
fn lowest(r: &mut Reader<'_>, members: u8) -> Result<Ballot, Malformed> {
    let found = raw(r, members, "promised")?;
    if found.round > 0 { Ok(found) } else { Err(bad("promised")) }
}

fn successor(r: &mut Reader<'_>, members: u8) -> Result<Option<Member>, Malformed> {
    match r.get()? {
        u8::MAX => Ok(None),
        member if member < members => Ok(Some(member)),
        _ => Err(bad("successor")),
    }
}
