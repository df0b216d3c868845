//! Datagrams between the members of a group without a server, sealed between each two of them (`docs/flease.md`, "Sealed datagrams").
//!
//! There is no handshake: two members share the Diffie-Hellman of their long-lived keys, and each start of a process has keys of its own for what
//! it sends. Decides what is believed: only what its member sent since this process has started, once. A sender shows that by the boot of the
//! receiver, which it knows from what that has sent; who names none, or another, is greeted, and sends again.
//! Invariants: one key seals a number once; nothing that is not authentic changes anything or is answered. Leaves to others: what a datagram
//! says, and that it comes from its member's address.

use crate::aead::{Aead as _, ChaCha};
use crate::crypto::agreed;
use crate::key::{PublicKey, SecretKey};
use crate::record::Key;
use blake2::Blake2s256;
use cistern_link::{Freshness, ReplayWindow};
use cistern_wire::limits::TAG_LEN;
use hkdf::SimpleHkdf;
use std::fmt;
use zeroize::Zeroizing;

/// First bytes of a sealed datagram between members.
pub const MAGIC: [u8; 4] = *b"CFLZ";
const VERSION: u8 = 1;
/// Bytes in clear before the text.
const HEADER_LEN: usize = 56;

/// Bytes by which a sealed datagram is longer than its text.
pub const AROUND: usize = HEADER_LEN + TAG_LEN;

/// Names a process: random bytes of its start. Zeros: none is known.
type Boot = [u8; 16];
const NONE: Boot = [0; 16];

/// A member's place in the list.
type Place = u8;

/// Why a list of keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKeysError {
    /// The list has another key for this member than this process has.
    NotOurs,
    /// The key of this place is none that a secret can be agreed on with.
    Unusable(u8),
    /// Two members have one key: what one sends, the other could have sent.
    Twice(u8),
}

impl fmt::Display for GroupKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("the list has another key for this member than this host has"),
            Self::Unusable(place) => write!(f, "the key of member {place} of the list is not usable"),
            Self::Twice(place) => write!(f, "member {place} of the list has the key of one before it"),
        }
    }
}

impl std::error::Error for GroupKeysError {}

/// Why a datagram was dropped; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It has not the form of a sealed datagram to this member.
    Malformed,
    /// It is not from the member that it names, or was changed; or one of the two has another key in its list.
    NotAuthentic,
    /// It came before.
    Repeated,
}

/// What an authentic datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is for this process: its text is in the buffer. One without text is a greeting.
    Text(Place),
    /// Its sender does not know this process, or is none that is known to live: it is to be greeted by [`GroupSealer::greet`], at the address that it sent from.
    Stranger(Place),
}

/// The process of another member that is believed.
struct Heard {
    boot: Boot,
    key: Key,
    window: ReplayWindow,
    /// What was sent to the member before this process was believed.
    since: u64,
}

/// What is shared with another member.
struct Pair {
    /// Where it is in the list; `None`: in a former one. It is kept, because its key has sealed numbers.
    place: Option<Place>,
    key: PublicKey,
    secret: Zeroizing<[u8; 32]>,
    /// Of what this process sends to it.
    send: Key,
    sent: u64,
    heard: Option<Heard>,
}

/// Seals and opens for one process of a group. Keys are wiped when it is dropped.
pub struct GroupSealer {
    me: Place,
    boot: Boot,
    own: PublicKey,
    pairs: Vec<Pair>,
}

impl fmt::Debug for GroupSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupSealer").field("me", &self.me).finish_non_exhaustive()
    }
}

impl GroupSealer {
    /// For the member at `me` of a list with these keys. `boot` is 16 bytes of the system's random source, drawn for this start.
    ///
    /// # Errors
    /// A key of the list cannot be used.
    pub fn new(own: &SecretKey, me: u8, keys: Vec<PublicKey>, boot: [u8; 16]) -> Result<Self, GroupKeysError> {
        let mut this = Self { me, boot, own: own.public(), pairs: Vec::new() };
        this.change(own, me, &keys.into_iter().map(Some).collect::<Vec<_>>())?;
        Ok(this)
    }

    /// Another list: `own` is at `me` in it, and nothing passes to or from a place without a key. Members that were in the former go on as they were.
    ///
    /// # Errors
    /// A key of the list cannot be used; then the former list stays.
    pub fn change(&mut self, own: &SecretKey, me: u8, keys: &[Option<PublicKey>]) -> Result<(), GroupKeysError> {
        if self.own != own.public() || keys.get(usize::from(me)) != Some(&Some(self.own)) {
            return Err(GroupKeysError::NotOurs);
        }
        let mut fresh = Vec::new();
        for (place, key) in (0..).zip(keys).filter_map(|(place, key)| Some((place, (*key)?))) {
            if keys[..usize::from(place)].contains(&Some(key)) {
                return Err(GroupKeysError::Twice(place));
            }
            if place != me && !self.pairs.iter().any(|pair| pair.key == key) {
                let secret = agreed(own.expose(), key.as_bytes()).ok_or(GroupKeysError::Unusable(place))?;
                let send = key_of(&secret, &self.own, &key, &self.boot);
                fresh.push(Pair { place: None, key, secret, send, sent: 0, heard: None });
            }
        }
        self.me = me;
        self.pairs.extend(fresh);
        for pair in &mut self.pairs {
            pair.place = (0..).zip(keys).find_map(|(place, key)| (*key == Some(pair.key)).then_some(place));
        }
        Ok(())
    }

    /// Seals `datagram` in place, for the member at `to`; false: there is no such member, or it was sent all that a key may seal.
    #[must_use]
    pub fn seal(&mut self, to: u8, datagram: &mut Vec<u8>) -> bool {
        let heard = self.pairs.iter().find(|pair| pair.place == Some(to)).and_then(|pair| pair.heard.as_ref());
        let knows = heard.map_or((NONE, 0), |heard| (heard.boot, heard.window.highest()));
        self.seal_for(to, knows, datagram)
    }

    /// Makes the datagram that tells this process to the one that has sent `datagram`, which was a [`Opened::Stranger`] at `to`.
    pub fn greet(&mut self, to: u8, datagram: &[u8]) -> Option<Vec<u8>> {
        let (header, _) = Header::of(datagram)?;
        let mut greeting = Vec::new();
        self.seal_for(to, (header.boot, header.number), &mut greeting).then_some(greeting)
    }

    fn seal_for(&mut self, to: Place, (knows, heard): (Boot, u64), datagram: &mut Vec<u8>) -> bool {
        let Some(pair) = self.pairs.iter_mut().find(|pair| pair.place == Some(to)) else { return false };
        let Some(number) = pair.sent.checked_add(1) else { return false };
        pair.sent = number;
        let header = Header { from: self.me, to, boot: self.boot, knows, number, heard }.to_bytes();
        //= docs/flease.md#sealed-datagrams
        //# A number MUST seal one datagram under a key.
        let tag = ChaCha.seal(&pair.send, number, &header, datagram);
        datagram.splice(..0, header);
        datagram.extend_from_slice(&tag);
        true
    }

    /// Opens a datagram; its text is in `text` then.
    ///
    /// # Errors
    /// It is dropped.
    pub fn open(&mut self, datagram: &[u8], text: &mut Vec<u8>) -> Result<Opened, Unopened> {
        let (header, rest) = Header::of(datagram).ok_or(Unopened::Malformed)?;
        let (sealed, tag) = rest.split_last_chunk().ok_or(Unopened::Malformed)?;
        let Self { me, boot, own, pairs } = self;
        let pair = pairs.iter_mut().find(|pair| header.to == *me && pair.place == Some(header.from)).ok_or(Unopened::Malformed)?;
        let known = pair.heard.as_ref().filter(|heard| heard.boot == header.boot);
        //= docs/flease.md#sealed-datagrams
        //# A member MUST drop what has come before.
        if known.is_some_and(|heard| matches!(heard.window.classify(header.number), Freshness::Duplicate | Freshness::Stale)) {
            return Err(Unopened::Repeated);
        }
        let key = known.map_or_else(|| key_of(&pair.secret, &pair.key, own, &header.boot), |heard| heard.key.clone());
        text.clear();
        text.resize(sealed.len(), 0);
        //= docs/flease.md#sealed-datagrams
        //# Nothing of a datagram that does not open MUST be believed, and it MUST NOT be answered.
        if ChaCha.open(&key, header.number, &datagram[..HEADER_LEN], sealed, tag, text).is_err() {
            text.clear();
            return Err(Unopened::NotAuthentic);
        }
        //= docs/flease.md#sealed-datagrams
        //# A datagram that does not name the boot of its receiver MUST NOT be believed; its sender is greeted.
        //= docs/flease.md#sealed-datagrams
        //# Nor MUST one of another process than is believed, unless its sender has heard what was sent after that one was believed.
        let follows = pair.heard.as_ref().is_none_or(|heard| heard.boot == header.boot || header.heard > heard.since);
        if header.knows != *boot || !follows {
            text.clear();
            return Ok(Opened::Stranger(header.from));
        }
        let fresh = || Heard { boot: header.boot, key, window: ReplayWindow::starting_at(1), since: pair.sent };
        let heard = match &mut pair.heard {
            Some(heard) if heard.boot == header.boot => heard,
            other => other.insert(fresh()),
        };
        if heard.window.receive(header.number) == Freshness::Ahead {
            // It is authentic, and so no jump that somebody else made: numbers go on for as long as their process lives.
            heard.window = ReplayWindow::starting_at(header.number);
            heard.window.note(header.number);
        }
        Ok(Opened::Text(header.from))
    }
}

/// The key of what a process of `from` sends to `to`.
fn key_of(secret: &[u8; 32], from: &PublicKey, to: &PublicKey, boot: &Boot) -> Key {
    let mut info = Vec::with_capacity(96);
    info.extend_from_slice(b"cistern1 group");
    info.extend_from_slice(from.as_bytes());
    info.extend_from_slice(to.as_bytes());
    info.extend_from_slice(boot);
    Key::expand(&SimpleHkdf::<Blake2s256>::new(None, secret), &info)
}

struct Header {
    from: Place,
    to: Place,
    boot: Boot,
    /// The boot of the receiver, as far as the sender knows.
    knows: Boot,
    number: u64,
    /// The highest number that the sender has heard of that boot.
    heard: u64,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[VERSION, self.from, self.to, 0]);
        bytes[8..24].copy_from_slice(&self.boot);
        bytes[24..40].copy_from_slice(&self.knows);
        bytes[40..48].copy_from_slice(&self.number.to_be_bytes());
        bytes[48..].copy_from_slice(&self.heard.to_be_bytes());
        bytes
    }

    /// A header, and what follows it.
    fn of(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let [from, to] = [header[5], header[6]];
        if header[..5] != [&MAGIC[..], &[VERSION]].concat() || header[7] != 0 {
            return None;
        }
        let boot = |at: usize| header[at..at + 16].try_into().ok();
        let number = |at: usize| header[at..at + 8].try_into().ok().map(u64::from_be_bytes);
        let header = Self { from, to, boot: boot(8)?, knows: boot(24)?, number: number(40)?, heard: number(48)? };
        (header.number > 0).then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(place: u8) -> SecretKey {
        SecretKey::from_bytes([place + 1; 32])
    }

    fn keys() -> Vec<PublicKey> {
        (0..3).map(|place| secret(place).public()).collect()
    }

    /// A process of the member at this place.
    fn process(place: u8, boot: u8) -> GroupSealer {
        GroupSealer::new(&secret(place), place, keys(), [boot; 16]).unwrap()
    }

    fn sealed(from: &mut GroupSealer, to: u8, text: &[u8]) -> Vec<u8> {
        let mut datagram = text.to_vec();
        assert!(from.seal(to, &mut datagram));
        assert_eq!(datagram.len(), text.len() + AROUND);
        datagram
    }

    fn opened(at: &mut GroupSealer, datagram: &[u8]) -> Result<(Opened, Vec<u8>), Unopened> {
        let mut text = Vec::new();
        at.open(datagram, &mut text).map(|opened| (opened, text))
    }

    /// `a` says something, is greeted, and says it again: then both know each other.
    fn meet(a: &mut GroupSealer, b: &mut GroupSealer) {
        let first = sealed(a, b.me, b"first");
        assert_eq!(opened(b, &first), Ok((Opened::Stranger(a.me), Vec::new())));
        let greeting = b.greet(a.me, &first).unwrap();
        assert_eq!(opened(a, &greeting), Ok((Opened::Text(b.me), Vec::new())), "a greeting has no text");
        let again = sealed(a, b.me, b"first");
        assert_eq!(opened(b, &again), Ok((Opened::Text(a.me), b"first".to_vec())));
    }

    //= docs/flease.md#sealed-datagrams
    //= type=test
    //# A datagram that does not name the boot of its receiver MUST NOT be believed; its sender is greeted.
    #[test]
    fn a_process_is_believed_once_it_knows_its_receiver() {
        let (mut a, mut b) = (process(0, 10), process(1, 20));
        meet(&mut a, &mut b);
        let answer = sealed(&mut b, 0, b"answer");
        assert_eq!(opened(&mut a, &answer), Ok((Opened::Text(1), b"answer".to_vec())));
    }

    //= docs/flease.md#sealed-datagrams
    //= type=test
    //# A member MUST drop what has come before.
    #[test]
    fn what_was_recorded_is_believed_neither_again_nor_after_a_restart_of_either() {
        let (mut a, mut b) = (process(0, 10), process(1, 20));
        meet(&mut a, &mut b);
        let recorded = sealed(&mut a, 1, b"mine");
        assert!(opened(&mut b, &recorded).is_ok());
        assert_eq!(opened(&mut b, &recorded), Err(Unopened::Repeated));
        let late = sealed(&mut a, 1, b"late");
        // a starts again: what its former process sent is not taken any more, also if it had not come yet.
        let mut again = process(0, 11);
        meet(&mut again, &mut b);
        assert_eq!(opened(&mut b, &late), Ok((Opened::Stranger(0), Vec::new())));
        let now = sealed(&mut again, 1, b"now");
        assert_eq!(opened(&mut b, &now), Ok((Opened::Text(0), b"now".to_vec())));
        // b starts again: what was sent to its former process is not for it.
        let before = sealed(&mut again, 1, b"before");
        let mut b = process(1, 21);
        for recorded in [&recorded, &late, &now, &before] {
            assert_eq!(opened(&mut b, recorded), Ok((Opened::Stranger(0), Vec::new())));
        }
        // Greeted for a recording, the living process greets back, and is known.
        let greeting = b.greet(0, &recorded).unwrap();
        assert_eq!(opened(&mut again, &greeting), Ok((Opened::Stranger(1), Vec::new())));
        let back = again.greet(1, &greeting).unwrap();
        assert_eq!(opened(&mut b, &back), Ok((Opened::Text(0), Vec::new())));
        assert_eq!(opened(&mut b, &recorded), Ok((Opened::Stranger(0), Vec::new())));
    }

    //= docs/flease.md#sealed-datagrams
    //= type=test
    //# Nor MUST one of another process than is believed, unless its sender has heard what was sent after that one was believed.
    #[test]
    fn what_a_dead_process_said_last_does_not_unseat_the_living_one() {
        let (mut first, mut b) = (process(0, 10), process(1, 20));
        // All that the first says once it knows b is held back: a datagram, and the greeting for one that b sent unasked.
        let unasked = sealed(&mut b, 0, b"unasked");
        assert_eq!(opened(&mut first, &unasked), Ok((Opened::Stranger(1), Vec::new())));
        let greeting = first.greet(1, &unasked).unwrap();
        let asked = sealed(&mut first, 1, b"asked");
        assert_eq!(opened(&mut b, &asked), Ok((Opened::Stranger(0), Vec::new())));
        let back = b.greet(0, &asked).unwrap();
        assert!(opened(&mut first, &back).is_ok());
        let held_back = sealed(&mut first, 1, b"held back");
        let mut second = process(0, 11);
        meet(&mut second, &mut b);
        for late in [&greeting, &held_back, &greeting] {
            assert_eq!(opened(&mut b, late), Ok((Opened::Stranger(0), Vec::new())));
        }
        let now = sealed(&mut second, 1, b"now");
        assert_eq!(opened(&mut b, &now), Ok((Opened::Text(0), b"now".to_vec())));
        // Where the dead one was believed, the living one is greeted and follows it.
        let (mut first, mut b) = (process(0, 10), process(1, 20));
        let unasked = sealed(&mut b, 0, b"unasked");
        assert!(opened(&mut first, &unasked).is_ok());
        let greeting = first.greet(1, &unasked).unwrap();
        assert_eq!(opened(&mut b, &greeting), Ok((Opened::Text(0), Vec::new())));
        let mut second = process(0, 11);
        meet(&mut second, &mut b);
        assert_eq!(opened(&mut b, &greeting), Ok((Opened::Stranger(0), Vec::new())));
    }

    #[test]
    fn numbers_go_on_however_many_were_lost_or_sent_before() {
        let (mut a, mut b) = (process(0, 10), process(1, 20));
        meet(&mut a, &mut b);
        for gap in [1 << 20, 1 << 21, 1 << 40] {
            a.pairs[0].sent += gap;
            let after = sealed(&mut a, 1, b"after");
            assert_eq!(opened(&mut b, &after), Ok((Opened::Text(0), b"after".to_vec())), "{gap}");
            assert_eq!(opened(&mut b, &after), Err(Unopened::Repeated));
        }
        // b starts again.
        let mut b = process(1, 21);
        meet(&mut b, &mut a);
        for _ in 0..3 {
            let more = sealed(&mut a, 1, b"more");
            assert_eq!(opened(&mut b, &more), Ok((Opened::Text(0), b"more".to_vec())));
            assert_eq!(opened(&mut b, &more), Err(Unopened::Repeated));
        }
    }

    //= docs/flease.md#sealed-datagrams
    //= type=test
    //# Nothing of a datagram that does not open MUST be believed, and it MUST NOT be answered.
    #[test]
    fn what_was_changed_or_is_of_or_for_somebody_else_is_dropped() {
        let (mut a, mut b, mut c) = (process(0, 10), process(1, 20), process(2, 30));
        meet(&mut a, &mut b);
        let good = sealed(&mut a, 1, b"text");
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut changed = good.clone();
                changed[at] ^= 1 << bit;
                assert!(opened(&mut b, &changed).is_err(), "byte {at}, bit {bit}");
            }
        }
        assert!((0..good.len()).all(|len| opened(&mut b, &good[..len]).is_err()));
        assert_eq!(opened(&mut c, &good), Err(Unopened::Malformed), "it is for another");
        // c knows its own keys and those of all, and not those of a and b.
        let mut forged = sealed(&mut c, 1, b"text");
        forged[5] = 0;
        assert_eq!(opened(&mut b, &forged), Err(Unopened::NotAuthentic));
        // What a sent is not what b sent.
        let mut turned = good.clone();
        turned[5..7].copy_from_slice(&[1, 0]);
        assert_eq!(opened(&mut a, &turned), Err(Unopened::NotAuthentic));
        assert_eq!(opened(&mut b, &good), Ok((Opened::Text(0), b"text".to_vec())), "all of this has changed nothing");
    }

    //= docs/flease.md#sealed-datagrams
    //= type=test
    //# A number MUST seal one datagram under a key.
    #[test]
    fn each_datagram_has_a_number_of_its_own_and_each_start_a_key() {
        let (mut a, mut again) = (process(0, 10), process(0, 11));
        let datagrams =
            [sealed(&mut a, 1, b"text"), sealed(&mut a, 1, b"text"), sealed(&mut again, 1, b"text"), sealed(&mut a, 2, b"text")];
        let texts: std::collections::BTreeSet<&[u8]> = datagrams.iter().map(|datagram| &datagram[HEADER_LEN..]).collect();
        assert_eq!(texts.len(), 4);
        assert_eq!(datagrams[..2].iter().map(|datagram| datagram[47]).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn members_that_stay_go_on_over_another_list_and_no_number_is_used_again() {
        let (mut a, mut b) = (process(0, 10), process(1, 20));
        meet(&mut a, &mut b);
        let before = sealed(&mut a, 1, b"text")[47];
        // One is new at the second place, and b at the third.
        let keys = [Some(secret(0).public()), Some(secret(3).public()), Some(secret(1).public())];
        a.change(&secret(0), 0, &keys).unwrap();
        b.change(&secret(1), 2, &keys).unwrap();
        let next = sealed(&mut a, 2, b"text");
        assert_eq!((next[47], opened(&mut b, &next)), (before + 1, Ok((Opened::Text(0), b"text".to_vec()))));
        // It is removed, and comes back: its key has sealed numbers before.
        a.change(&secret(0), 0, &[keys[0], keys[1], None]).unwrap();
        assert!(!a.seal(2, &mut b"text".to_vec()));
        assert_eq!(a.change(&secret(0), 0, &[keys[0], keys[0], keys[2]]), Err(GroupKeysError::Twice(1)));
        a.change(&secret(0), 0, &keys).unwrap();
        let again = sealed(&mut a, 2, b"text");
        assert_eq!((again[47], opened(&mut b, &again)), (before + 2, Ok((Opened::Text(0), b"text".to_vec()))));
        assert_eq!(a.change(&secret(0), 1, &keys), Err(GroupKeysError::NotOurs));
    }

    #[test]
    fn lists_that_cannot_be_used_are_told() {
        let new = |own: u8, me: u8, keys: Vec<PublicKey>| GroupSealer::new(&secret(own), me, keys, [1; 16]).map(drop);
        assert_eq!(new(1, 0, keys()), Err(GroupKeysError::NotOurs));
        assert_eq!(new(0, 3, keys()), Err(GroupKeysError::NotOurs));
        let twice = vec![secret(0).public(), secret(1).public(), secret(1).public()];
        assert_eq!(new(0, 0, twice), Err(GroupKeysError::Twice(2)));
        let zero = vec![secret(0).public(), PublicKey::from_bytes([0; 32])];
        assert_eq!(new(0, 0, zero), Err(GroupKeysError::Unusable(1)));
    }
}
