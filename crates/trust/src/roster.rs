//! The roster: which servers a cluster has, signed by the cluster's key. File and wire carry the same bytes.
//!
//! Decides: that only a roster of the pinned key is taken, and only a higher version replaces one: rosters grow and are never taken back.
//! Layout: version u32; count u8; of each server its key (32), state u8, count of addresses u8, each address behind a byte with its length;
//! signature (64) over `cistern1 roster` and all before.

use crate::cluster::{ClusterKey, ClusterSecret, NotSigned, SIGNATURE_LEN};
use crate::read::{self, BAD_VALUE, TOO_LONG};
use crate::text::{self, TextError, TextForm};
use cistern_seal::PublicKey;
use cistern_wire::{Bytes8, Fault, Field as _, Malformed, Reader, Writer};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Longest roster, in bytes: it fits a datagram of the usual size beside what comes with it.
pub const ROSTER_LEN_MAX: usize = 1_024;
/// Most servers in a roster, those that are retired included.
pub const SERVERS_MAX: usize = 16;
/// Most addresses of one server.
pub const ADDRESSES_MAX: usize = 4;

const CONTEXT: &[u8] = b"cistern1 roster";
const PREFIX: &str = "cistern-roster-1.";
const CHECK_LEN: usize = 2;

/// Where a server is reached: `host:port` or `[v6]:port`, at most 255 bytes. Whether the host exists is seen when it is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerAddress(String);

impl ServerAddress {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        read::text(r)?.parse().map_err(|_| BAD_VALUE)
    }

    pub(crate) fn put(&self, w: &mut Writer) {
        Bytes8(self.0.as_bytes()).put(w);
    }
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is written as host:port or [v6]:port")]
pub struct NoAddress;

impl FromStr for ServerAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NoAddress)?;
        let is_port = port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bracketed {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c)),
        };
        if is_port && is_host && text.len() <= usize::from(u8::MAX) { Ok(Self(text.to_owned())) } else { Err(NoAddress) }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a server's key is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ServerState {
    /// Agents open sessions with it.
    Serving = 1,
    /// It will serve: agents know it before they meet it.
    Next = 2,
    /// It is good no more. It stays in the list, so that nobody takes it for a new one.
    Retired = 3,
}

impl ServerState {
    const ALL: [Self; 3] = [Self::Serving, Self::Next, Self::Retired];
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Serving => "serving",
            Self::Next => "next",
            Self::Retired => "retired",
        })
    }
}

/// One server of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// Who it is.
    pub key: PublicKey,
    /// What the key is good for.
    pub state: ServerState,
    /// Where it is reached: 1 to 4 addresses; a retired one may have none.
    pub addresses: Vec<ServerAddress>,
}

/// The servers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// From 1 on; a higher one replaces a lower one.
    pub version: u32,
    /// At least one of them is serving; no key stands twice.
    pub servers: Vec<ServerEntry>,
}

impl Roster {
    /// The first one: one server, serving.
    #[must_use]
    pub fn first(key: PublicKey, addresses: Vec<ServerAddress>) -> Self {
        Self { version: 1, servers: vec![ServerEntry { key, state: ServerState::Serving, addresses }] }
    }

    /// The one that replaces this one, with these servers; of too many the oldest that are retired are left out.
    #[must_use]
    pub fn next(&self, mut servers: Vec<ServerEntry>) -> Self {
        while servers.len() > SERVERS_MAX
            && let Some(oldest) = servers.iter().position(|server| server.state == ServerState::Retired)
        {
            servers.remove(oldest);
        }
        Self { version: self.version.saturating_add(1), servers }
    }

    /// What it says of a key.
    #[must_use]
    pub fn server(&self, key: &PublicKey) -> Option<&ServerEntry> {
        self.servers.iter().find(|server| server.key == *key)
    }

    /// Servers that sessions may be opened with: first those that serve, then those that will.
    pub fn usable(&self) -> impl Iterator<Item = &ServerEntry> {
        let of = |state| self.servers.iter().filter(move |server| server.state == state);
        of(ServerState::Serving).chain(of(ServerState::Next))
    }

    /// Signs it.
    ///
    /// # Errors
    /// It breaks a bound above, or is longer than [`ROSTER_LEN_MAX`].
    pub fn sign(self, cluster: &ClusterSecret) -> Result<SignedRoster, Malformed> {
        self.check()?;
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        let signature = cluster.sign(&signed(&bytes));
        bytes.extend_from_slice(&signature);
        if bytes.len() > ROSTER_LEN_MAX {
            return Err(TOO_LONG.within("Roster", "servers"));
        }
        Ok(SignedRoster { roster: self, bytes: bytes.into() })
    }

    fn put(&self, w: &mut Writer) {
        self.version.put(w);
        let count = |len: usize| u8::try_from(len).expect("the counts were checked");
        w.push(count(self.servers.len()));
        for server in &self.servers {
            w.extend_from_slice(server.key.as_bytes());
            w.push(server.state as u8);
            w.push(count(server.addresses.len()));
            server.addresses.iter().for_each(|address| address.put(w));
        }
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = r.get()?;
        let count: u8 = r.get()?;
        let servers = (0..count).map(|_| get_server(r)).collect::<Result<_, _>>()?;
        let roster = Self { version, servers };
        roster.check().map(|()| roster)
    }

    fn check(&self) -> Result<(), Malformed> {
        let bad = |field| Err(BAD_VALUE.within("Roster", field));
        if self.version == 0 {
            return bad("version");
        }
        if self.servers.len() > SERVERS_MAX || self.servers.iter().any(|server| server.addresses.len() > ADDRESSES_MAX) {
            return Err(TOO_LONG.within("Roster", "servers"));
        }
        let twice = self.servers.iter().enumerate().any(|(n, server)| self.servers[..n].iter().any(|other| other.key == server.key));
        let nowhere = self.servers.iter().any(|server| server.state != ServerState::Retired && server.addresses.is_empty());
        let serving = self.servers.iter().any(|server| server.state == ServerState::Serving);
        if twice || nowhere || !serving { bad("servers") } else { Ok(()) }
    }
}

fn get_server(r: &mut Reader<'_>) -> Result<ServerEntry, Malformed> {
    let key = read::public_key(r)?;
    let code: u8 = r.get()?;
    let state = ServerState::ALL.into_iter().find(|state| *state as u8 == code).ok_or(BAD_VALUE)?;
    let count: u8 = r.get()?;
    let addresses = (0..count).map(|_| ServerAddress::get(r)).collect::<Result<_, _>>()?;
    Ok(ServerEntry { key, state, addresses })
}

fn signed(bytes: &[u8]) -> Vec<u8> {
    [CONTEXT, bytes].concat()
}

/// Why a roster is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// It is none, or of a newer version of cistern.
    #[error("the roster cannot be read: {0}")]
    Form(#[from] Malformed),
    /// It is not one of this cluster.
    #[error("the roster {0}")]
    NotSigned(#[from] NotSigned),
    /// The cluster's key has signed two rosters with this version: whoever has the key must sign one with a higher version.
    #[error("there are two different rosters with version {0}; sign one with a higher version")]
    Conflict(u32),
}

/// A roster that the cluster has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRoster {
    roster: Roster,
    bytes: Box<[u8]>,
}

impl SignedRoster {
    /// Reads one, and checks that `cluster` has signed it.
    ///
    /// # Errors
    /// It cannot be read, or is not signed by that key.
    pub fn verify(bytes: &[u8], cluster: &ClusterKey) -> Result<Self, RosterError> {
        if bytes.len() > ROSTER_LEN_MAX {
            return Err(TOO_LONG.within("Roster", "servers").into());
        }
        let (body, signature) = bytes.split_last_chunk::<SIGNATURE_LEN>().ok_or(Malformed::new(Fault::Truncated))?;
        cluster.verify(&signed(body), signature)?;
        let mut r = Reader::new(body);
        let roster = Roster::get(&mut r)?;
        read::end(&r)?;
        Ok(Self { roster, bytes: bytes.into() })
    }

    /// What it says.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Its bytes with the signature, as files and messages carry them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its text.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::encode(PREFIX, CHECK_LEN, &self.bytes).to_string()
    }
}

/// What became of a roster that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is newer and was taken.
    Taken,
    /// It is the one that is known.
    Known,
    /// It is older.
    Older,
}

/// The cluster that an agent or server belongs to, and the newest roster that it has seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    cluster: ClusterKey,
    roster: SignedRoster,
}

impl Pinned {
    /// Pins a cluster with a roster of it.
    ///
    /// # Errors
    /// The roster cannot be read, or the cluster has not signed it.
    pub fn new(cluster: ClusterKey, roster: &[u8]) -> Result<Self, RosterError> {
        Ok(Self { cluster, roster: SignedRoster::verify(roster, &cluster)? })
    }

    /// The same from texts: of the key, and of the roster.
    ///
    /// # Errors
    /// As [`new`](Self::new), or a text is damaged. The name of the text at fault comes with it.
    pub fn from_texts(cluster: &str, roster: &str) -> Result<Self, PinnedTextError> {
        let cluster = ClusterKey::from_text(cluster).map_err(|e| PinnedTextError::Text("cluster", e))?;
        let bytes = text::decode(PREFIX, CHECK_LEN, roster).map_err(|e| PinnedTextError::Text("roster", e))?;
        Ok(Self::new(cluster, &bytes)?)
    }

    /// The cluster's key.
    #[must_use]
    pub const fn cluster(&self) -> &ClusterKey {
        &self.cluster
    }

    /// The newest roster.
    #[must_use]
    pub const fn signed(&self) -> &SignedRoster {
        &self.roster
    }

    /// What it says.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster.roster
    }

    /// Takes a roster if it is newer.
    ///
    /// # Errors
    /// It is not one of this cluster, or another one has the same version; the known one stays.
    pub fn offer(&mut self, bytes: &[u8]) -> Result<Offered, RosterError> {
        if bytes == &*self.roster.bytes {
            return Ok(Offered::Known);
        }
        //= docs/sealed.md#joining-rosters
        //# Whoever has a roster MUST take another one only if the pinned key has signed it and its version is higher.
        let offered = SignedRoster::verify(bytes, &self.cluster)?;
        let (known, new) = (self.roster().version, offered.roster.version);
        if new == known {
            return Err(RosterError::Conflict(new));
        }
        if new < known {
            return Ok(Offered::Older);
        }
        self.roster = offered;
        Ok(Offered::Taken)
    }
}

/// The line that a host takes that knows neither a cluster nor its newest roster.
impl TextForm for Pinned {
    const PREFIX: &'static str = "cistern-trust-1.";
    const CHECK_LEN: usize = 4;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        [&self.cluster.as_bytes()[..], self.signed().as_bytes()].concat().into()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let cluster = ClusterKey::from_array(read::array(&mut r)?);
        Self::new(cluster, r.rest()).map_err(|_| BAD_VALUE.within("Pinned", "roster"))
    }
}

/// Why two texts are no cluster and its roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinnedTextError {
    /// One of them cannot be read.
    #[error("`{0}` {1}")]
    Text(&'static str, TextError),
    /// They do not belong together.
    #[error(transparent)]
    Roster(#[from] RosterError),
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    pub(crate) fn address(text: &str) -> ServerAddress {
        text.parse().unwrap()
    }

    pub(crate) fn secret() -> ClusterSecret {
        ClusterSecret::from_seed([3; 32])
    }

    pub(crate) fn roster() -> Roster {
        let first = Roster::first(key(1), vec![address("meta.example.net:7311"), address("[::1]:7311")]);
        let mut servers = first.servers.clone();
        servers.push(ServerEntry { key: key(2), state: ServerState::Next, addresses: vec![address("10.0.0.2:7311")] });
        servers.push(ServerEntry { key: key(3), state: ServerState::Retired, addresses: Vec::new() });
        first.next(servers)
    }

    #[test]
    fn what_is_signed_is_read_and_every_change_of_it_is_refused() {
        let (cluster, roster) = (secret().public(), roster());
        let signed = roster.clone().sign(&secret()).unwrap();
        let read = SignedRoster::verify(signed.as_bytes(), &cluster).unwrap();
        assert_eq!((read.roster(), read.as_bytes()), (&roster, signed.as_bytes()));
        assert_eq!(SignedRoster::verify(signed.as_bytes(), &ClusterSecret::from_seed([4; 32]).public()), Err(NotSigned.into()));
        for bit in 0..signed.as_bytes().len() * 8 {
            let mut changed = signed.as_bytes().to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(SignedRoster::verify(&changed, &cluster).is_err(), "bit {bit}");
        }
        for end in 0..signed.as_bytes().len() {
            assert!(SignedRoster::verify(&signed.as_bytes()[..end], &cluster).is_err(), "{end} bytes");
        }
        assert!(SignedRoster::verify(&[signed.as_bytes(), &[0]].concat(), &cluster).is_err());
        // What the cluster's key has signed for another purpose is no roster.
        let mut bare = Vec::new();
        roster.put(&mut bare);
        let signature = secret().sign(&bare);
        bare.extend_from_slice(&signature);
        assert_eq!(SignedRoster::verify(&bare, &cluster), Err(NotSigned.into()));
    }

    //= docs/sealed.md#joining-rosters
    //= type=test
    //# Whoever has a roster MUST take another one only if the pinned key has signed it and its version is higher.
    #[test]
    fn only_a_higher_version_of_the_pinned_cluster_replaces_one() {
        let sign = |version, secret: &ClusterSecret| Roster { version, ..roster() }.sign(secret).unwrap();
        let mut pinned = Pinned::new(secret().public(), sign(5, &secret()).as_bytes()).unwrap();
        assert_eq!(pinned.offer(sign(5, &secret()).as_bytes()), Ok(Offered::Known));
        assert_eq!(pinned.offer(sign(4, &secret()).as_bytes()), Ok(Offered::Older));
        assert_eq!(pinned.offer(sign(9, &ClusterSecret::from_seed([4; 32])).as_bytes()), Err(NotSigned.into()));
        let other = Roster { version: 5, ..Roster::first(key(7), vec![address("a:1")]) }.sign(&secret()).unwrap();
        assert_eq!(pinned.offer(other.as_bytes()), Err(RosterError::Conflict(5)));
        assert_eq!(pinned.roster().version, 5);
        assert_eq!(pinned.offer(sign(6, &secret()).as_bytes()), Ok(Offered::Taken));
        assert_eq!(pinned.roster().version, 6);
        let (cluster, text) = (pinned.cluster().to_string(), pinned.signed().to_text());
        assert_eq!(Pinned::from_texts(&cluster, &text).as_ref(), Ok(&pinned));
        text::tests::has_one_text(&pinned);
        assert!(Pinned::from_texts(&text, &cluster).unwrap_err().to_string().contains("`cluster` is something else"));
    }

    #[test]
    fn a_roster_names_servers_that_can_be_used() {
        let roster = roster();
        assert_eq!(roster.usable().map(|server| server.key).collect::<Vec<_>>(), [key(1), key(2)]);
        assert_eq!(roster.server(&key(3)).unwrap().state, ServerState::Retired);
        let refused = |change: fn(&mut Roster)| {
            let mut changed = roster.clone();
            change(&mut changed);
            changed.sign(&secret()).unwrap_err()
        };
        refused(|r| r.version = 0);
        refused(|r| r.servers.clear());
        refused(|r| r.servers[0].state = ServerState::Retired);
        refused(|r| r.servers[0].addresses.clear());
        refused(|r| r.servers[1].key = key(1));
        refused(|r| r.servers[0].addresses = vec![address("a:1"); ADDRESSES_MAX + 1]);
        refused(|r| r.servers.extend((10..30).map(|n| ServerEntry { key: key(n), state: ServerState::Retired, addresses: vec![] })));
        let long: ServerAddress = format!("{}:1", "a".repeat(253)).parse().unwrap();
        let mut most = roster.clone();
        most.servers[0].addresses = vec![long; ADDRESSES_MAX];
        assert_eq!(most.sign(&secret()).unwrap_err(), TOO_LONG.within("Roster", "servers"));
    }

    #[test]
    fn a_server_may_change_its_key_for_ever() {
        let mut roster = Roster::first(key(0), vec![address("a:1")]);
        for n in 1..40 {
            let mut servers = roster.servers.clone();
            servers.iter_mut().for_each(|server| (server.state, server.addresses) = (ServerState::Retired, Vec::new()));
            servers.push(ServerEntry { key: key(n), state: ServerState::Serving, addresses: vec![address("a:1")] });
            roster = roster.next(servers);
            roster.clone().sign(&secret()).unwrap();
        }
        assert_eq!((roster.servers.len(), roster.servers[0].key), (SERVERS_MAX, key(24)));
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for right in ["a:1", "meta-1.example.net:65535", "10.0.0.1:7311", "[::1]:7311"] {
            assert_eq!(address(right).to_string(), right);
        }
        for wrong in ["", "a", "a:", ":1", "a:0", "a:65536", "a:01", "::1:7", "[::1:7", "a b:1", "ä:1", "[x]:1"] {
            assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong:?}");
        }
        assert!(format!("{}:1", "a".repeat(254)).parse::<ServerAddress>().is_err());
    }

    proptest! {
        #[test]
        fn any_roster_survives_the_way_through_bytes(version in 1_u32.., states in prop::collection::vec((1_u8..=3, 0_usize..4), 0..8)) {
            let mut roster = Roster { version, ..Roster::first(key(0), vec![address("a:1")]) };
            for (n, (state, addresses)) in (1..).zip(states) {
                let state = ServerState::ALL[usize::from(state) - 1];
                let least = usize::from(state != ServerState::Retired);
                roster.servers.push(ServerEntry { key: key(n), state, addresses: vec![address("host:7311"); addresses.max(least)] });
            }
            let signed = roster.clone().sign(&secret()).unwrap();
            let read = SignedRoster::verify(signed.as_bytes(), &secret().public()).unwrap();
            prop_assert_eq!(read.roster(), &roster);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Roster::get(&mut Reader::new(&bytes));
            prop_assert!(SignedRoster::verify(&bytes, &secret().public()).is_err());
        }
    }
}
