//! The keys of a store in etcd, and the records of the store's own: who it is, who has it, how far it is written.
//!
//! Decides: the layout under the prefix. `c`: identity · `o`: owner · `s`: sequence · `j/…`: journal · `d/…`: the server's keys, as
//! [`Key`] encodes them. Records that an operator may look at are text.

use bytes::{BufMut as _, Bytes, BytesMut};
use cistern_server::store::Key;
use cistern_wire::StoreId;
use std::fmt;

/// Version of this layout.
const FORMAT: &str = "1";

/// The keys under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
}

impl Keyspace {
    /// Under a prefix, which ends with a slash.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')) }
    }

    fn key(&self, rest: &[u8]) -> Bytes {
        [self.prefix.as_bytes(), rest].concat().into()
    }

    /// Key of the [`Identity`].
    #[must_use]
    pub fn identity(&self) -> Bytes {
        self.key(b"c")
    }

    /// Key of the owner's name.
    #[must_use]
    pub fn owner(&self) -> Bytes {
        self.key(b"o")
    }

    /// Key of the sequence: which start wrote last, and its number.
    #[must_use]
    pub fn sequence(&self) -> Bytes {
        self.key(b"s")
    }

    /// What the keys of all journals begin with.
    #[must_use]
    pub fn journals(&self) -> Bytes {
        self.key(b"j/")
    }

    /// Key of a journal's part.
    #[must_use]
    pub fn part(&self, of: (u64, u64), part: u32) -> Bytes {
        self.key(format!("j/{:016x}.{:016x}/{part:08x}", of.0, of.1).as_bytes())
    }

    /// What the server's keys begin with.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.key(b"d/")
    }

    /// Length of that.
    pub(crate) const fn data_len(&self) -> usize {
        self.prefix.len() + b"d/".len()
    }

    /// Where a key of the server is.
    #[must_use]
    pub fn of(&self, key: &Key) -> Bytes {
        let mut bytes = Vec::with_capacity(self.data_len() + key.encoded_len());
        bytes.extend_from_slice(self.prefix.as_bytes());
        bytes.extend_from_slice(b"d/");
        key.put(&mut bytes);
        bytes.into()
    }
}

impl fmt::Display for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)
    }
}

/// The first key after all that begin so.
pub(crate) fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    // To etcd: to the last key of all.
    Bytes::from_static(&[0])
}

/// The servers of a group, as their store has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerList {
    /// Of the list, from 1: each change has the next.
    pub number: u32,
    /// The servers, without blanks, as those write it who read it; here it means nothing.
    pub servers: String,
}

/// Which store this is, in which etcd it was made, and who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the store.
    pub store: StoreId,
    /// Id of etcd's cluster. A restored etcd has another one, so that a store that went back is noticed.
    pub cluster: u64,
    /// The servers of the group that shares it; none before one of a group has served.
    pub servers: Option<ServerList>,
}

impl Identity {
    /// As it is kept.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut text = format!("cistern format {FORMAT} store {} cluster {:016x}", hex(&self.store.0), self.cluster);
        if let Some(ServerList { number, servers }) = &self.servers {
            text += &format!(" servers {number} {servers}");
        }
        text.into()
    }

    /// Reads it.
    ///
    /// # Errors
    /// In words: it is something else, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(bytes).unwrap_or_default();
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["cistern", "format", FORMAT, "store", store, "cluster", cluster, ref rest @ ..] => {
                let damaged = || format!("it is damaged: {text}");
                let (store, cluster) = (u128::from_str_radix(store, 16), u64::from_str_radix(cluster, 16));
                let (store, cluster) = store.ok().zip(cluster.ok()).ok_or_else(damaged)?;
                let servers = match rest {
                    [] => None,
                    ["servers", number, servers] => {
                        Some(ServerList { number: number.parse().map_err(|_| damaged())?, servers: (*servers).to_owned() })
                    }
                    _ => return Err(damaged()),
                };
                Ok(Self { store: StoreId(store.to_be_bytes()), cluster, servers })
            }
            ["cistern", "format", format, ..] => Err(format!("it has format {format}, and this version knows {FORMAT}")),
            _ => Err("what is there is no store of cistern".to_owned()),
        }
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// A journal that is committed, and still to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    /// Its name: the owner's revision and the number of the COMMIT that committed its first part, or the first parts.
    pub(crate) of: (u64, u64),
    /// The last part; the first is 1.
    pub(crate) last: u32,
}

/// How far a store is written: the value that each COMMIT compares and raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// Revision at which the writer became the owner.
    pub(crate) owner: u64,
    /// Number of the COMMIT among those of this owner.
    pub(crate) number: u64,
    /// What is committed, and still to be applied.
    pub(crate) journal: Option<Journal>,
}

impl Sequence {
    /// As it is kept: numbers in network byte order.
    #[must_use]
    pub(crate) fn to_bytes(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(36);
        bytes.put_u64(self.owner);
        bytes.put_u64(self.number);
        if let Some(Journal { of, last }) = self.journal {
            bytes.put_u64(of.0);
            bytes.put_u64(of.1);
            bytes.put_u32(last);
        }
        bytes.freeze()
    }

    /// Reads it; nothing for bytes that [`Self::to_bytes`] never makes.
    #[must_use]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let u32_at = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let journal = match bytes.len() {
            16 => None,
            36 => Some(Journal { of: (u64_at(16)?, u64_at(24)?), last: u32_at(32)? }),
            _ => return None,
        };
        Some(Self { owner: u64_at(0)?, number: u64_at(8)?, journal }).filter(|this| this.journal.is_none_or(|journal| journal.last > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_bytes_and_nothing_else_does() {
        let alone = Identity { store: StoreId([0xa5; 16]), cluster: 0x77, servers: None };
        let shared = Identity { servers: Some(ServerList { number: 3, servers: "a:7311,b:7311".to_owned() }), ..alone.clone() };
        for identity in [alone, shared] {
            assert_eq!(Identity::from_bytes(&identity.to_bytes()), Ok(identity.clone()));
            assert!(Identity::from_bytes(&[&identity.to_bytes()[..], b" more"].concat()).unwrap_err().contains("damaged"));
        }
        assert!(Identity::from_bytes(b"cistern format 2 store").unwrap_err().contains("format 2"));
        assert!(Identity::from_bytes(b"value of somebody else").unwrap_err().contains("no store"));
        let journal = Some(Journal { of: (7, 3), last: 5 });
        for sequence in [Sequence { owner: 7, number: 9, journal: None }, Sequence { owner: 7, number: 9, journal }] {
            let bytes = sequence.to_bytes();
            assert_eq!(Sequence::from_bytes(&bytes), Some(sequence));
            assert!((0..bytes.len()).filter(|len| *len != 16).all(|len| Sequence::from_bytes(&bytes[..len]).is_none()));
        }
        let empty = Sequence { owner: 1, number: 1, journal: Some(Journal { of: (1, 1), last: 0 }) };
        assert_eq!(Sequence::from_bytes(&empty.to_bytes()), None);
    }

    #[test]
    fn the_end_of_a_prefix_is_after_each_of_its_keys_and_before_the_next() {
        assert_eq!(end_of(b"a/")[..], b"a0"[..]);
        assert_eq!(end_of(&[1, 0xff, 0xff])[..], [2][..]);
        assert_eq!(end_of(&[0xff])[..], [0][..]);
    }
}
