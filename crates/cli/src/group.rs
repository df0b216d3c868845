//! The list of a group's members, as people write it: `a:7312,b:7312,c:7312`, or a file with a member a line, and its key behind it.
//!
//! Decides: what names a group on the command line, and where the control socket of this host's member is. The same members give the same
//! socket, so that a command finds the member of the group that it names, with keys or without. Leaves to others: what members do
//! (`commands::peer`, `commands::serve`).

mod report;
mod resolve;
mod troubles;

pub(crate) use report::member_rows;
pub(crate) use resolve::{Found, LookFor, look_for_others};
pub(crate) use troubles::Troubles;

use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::places;
use cistern_driver::{Address, DEFAULT_PORT, PortOptions, UdpPort, seed};
use cistern_flease::{Header, MEMBERS_MAX, MemberSet};
use cistern_seal::key::Role;
use cistern_seal::{GroupSealer, PublicKey, SecretKey};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// UDP port of a member when none is given.
pub(crate) const PEER_PORT: u16 = 7312;

/// Longest file of members.
const FILE_MAX: usize = 64 << 10;

/// Begins the name of a server that was removed, in the list that the store has: the others keep their places.
const REMOVED: char = '-';

/// Members in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupList {
    members: Vec<Address>,
    /// Places whose members were removed.
    removed: MemberSet,
    /// One for each member, or none.
    keys: Vec<PublicKey>,
    /// The port of members whose names have none.
    port: u16,
}

impl GroupList {
    /// Reads a list of members without a server, or the file of one: a word with a slash in it is a file's path.
    ///
    /// # Errors
    /// For whoever wrote it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_with(text, PEER_PORT)
    }

    /// As [`Self::parse`], of servers that share a store; their keys are those of the cluster's roster.
    ///
    /// # Errors
    /// For whoever wrote it.
    pub(crate) fn of_servers(text: &str) -> Result<Self, String> {
        let mut list = Self::parse_with(text, DEFAULT_PORT)?;
        // As the roster writes them.
        list.members = list.members.iter().map(|member| member.with_port(DEFAULT_PORT)).collect();
        match list.keys.is_empty() {
            true => Ok(list),
            false => Err("the keys of servers are those of the cluster's roster: leave them out of the list".to_owned()),
        }
    }

    /// Reads the list that the store of a group of servers has.
    ///
    /// # Errors
    /// It is of another version.
    pub(crate) fn of_store(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = text.split(',').collect();
        let mut list = Self::of(names.iter().map(|name| name.trim_start_matches(REMOVED)), DEFAULT_PORT)?;
        let removed = (0..MEMBERS_MAX).zip(names).filter(|(_, name)| name.starts_with(REMOVED));
        removed.for_each(|(place, _)| list.removed.insert(place));
        Ok(list)
    }

    /// As [`Self::of_store`] reads it.
    pub(crate) fn to_store(&self) -> String {
        let named = |(place, member): (u8, &Address)| match self.removed.contains(place) {
            true => format!("{REMOVED}{member}"),
            false => member.to_string(),
        };
        (0..).zip(&self.members).map(named).collect::<Vec<_>>().join(",")
    }

    /// With one more server: at its former place, else at that of one that was removed, else at the end.
    ///
    /// # Errors
    /// It is in it, or there is no room.
    pub(crate) fn with(&self, named: &Address) -> Result<Self, Failure> {
        let mut list = self.clone();
        let named = named.with_port(self.port);
        if self.present().any(|(_, member)| *member == named) {
            return Err(Failure::usage(format!("{named} is one of the servers {self}")));
        }
        let former = self.members.iter().position(|member| *member == named);
        match former.or_else(|| self.removed.iter().next().map(usize::from)) {
            Some(place) => {
                list.members[place] = named;
                list.removed = self.removed.without(MemberSet::one(u8::try_from(place).expect("members are few")));
            }
            None if self.members.len() < usize::from(MEMBERS_MAX) => list.members.push(named),
            None => return Err(Failure::usage(format!("a group has {MEMBERS_MAX} servers at most"))),
        }
        Ok(list)
    }

    /// Without one of the servers.
    ///
    /// # Errors
    /// It is not in it, or the only one.
    pub(crate) fn without(&self, named: &Address) -> Result<Self, Failure> {
        let place = self.place_of(named)?;
        if self.present().count() == 1 {
            return Err(Failure::usage(format!("{named} is the only server")));
        }
        let mut list = self.clone();
        list.removed.insert(place);
        Ok(list)
    }

    /// The members that were not removed, and their places.
    pub(crate) fn present(&self) -> impl Iterator<Item = (u8, &Address)> {
        (0..).zip(&self.members).filter(|(place, _)| !self.removed.contains(*place))
    }

    fn parse_with(text: &str, port: u16) -> Result<Self, String> {
        if !text.contains('/') {
            return Self::of(text.split(','), port);
        }
        let file = std::fs::read(text).map_err(|e| format!("{text}: {e}"))?;
        if file.len() > FILE_MAX {
            return Err(format!("{text}: larger than {FILE_MAX} bytes"));
        }
        let lines = String::from_utf8(file).map_err(|_| format!("{text}: not UTF-8"))?;
        let lines = lines.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        Self::of(lines.filter(|line| !line.is_empty()), port).map_err(|e| format!("{text}: {e}"))
    }

    fn of<'a>(words: impl Iterator<Item = &'a str>, port: u16) -> Result<Self, String> {
        let (mut members, mut keys) = (Vec::new(), Vec::new());
        for word in words {
            let (name, key) =
                word.trim().split_once(char::is_whitespace).map_or((word.trim(), None), |(name, key)| (name, Some(key.trim())));
            let member: Address = name.parse().map_err(|e: cistern_driver::AddressError| e.to_string())?;
            if members.contains(&member) {
                return Err(format!("{member} is named twice"));
            }
            if let Some(key) = key {
                keys.push(PublicKey::from_text(key, Role::Agent).map_err(|e| format!("{member}: {e}"))?);
            }
            members.push(member);
        }
        if !(1..=usize::from(MEMBERS_MAX)).contains(&members.len()) {
            return Err(format!("a group has 1 to {MEMBERS_MAX} members, and {} are named", members.len()));
        }
        if !keys.is_empty() && keys.len() != members.len() {
            return Err(format!("{} of {} members have a key: all have one, or none has", keys.len(), members.len()));
        }
        Ok(Self { members, removed: MemberSet::default(), keys, port })
    }

    /// The members' keys, in their order; none: the list has no keys.
    pub(crate) fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The port of members whose names have none.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The members by place, those that were removed too.
    pub(crate) fn members(&self) -> &[Address] {
        &self.members
    }

    /// The members' names by place, as their datagrams vouch for them; empty ones of those that were removed.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        let named = |(place, member): (u8, &Address)| match self.removed.contains(place) {
            true => Vec::new(),
            false => member.to_string().into_bytes(),
        };
        (0..).zip(&self.members).map(named).collect()
    }

    /// The place of a member in the list.
    ///
    /// # Errors
    /// It is not in it.
    pub(crate) fn place_of(&self, named: &Address) -> Result<u8, Failure> {
        let found = self.present().find(|(_, member)| member.with_port(self.port) == named.with_port(self.port));
        found.map(|(place, _)| place).ok_or_else(|| Failure::usage(format!("{named}: no member of the group {self}")))
    }

    /// The place of the one member whose address is this host's.
    ///
    /// # Errors
    /// None is, or several.
    pub(crate) fn place_of_this_host(&self) -> Result<u8, Failure> {
        let own = own_addresses();
        // All of 127.0.0.0/8 is this host's, and one of them is an interface's address.
        let is_ours = |ip: IpAddr| own.contains(&ip) || ip.is_loopback();
        let here = |member: &Address| member.resolve(Some(self.port)).is_ok_and(|found| found.iter().any(|address| is_ours(address.ip())));
        let found: Vec<usize> = (0..self.members.len()).filter(|place| here(&self.members[*place])).collect();
        match found[..] {
            [one] => Ok(u8::try_from(one).expect("members are few")),
            [] => Err(Failure::usage(format!("no member of the group {self} has an address of this host: --me MEMBER says which it is"))),
            _ => Err(Failure::usage(format!(
                "several members of the group {self} have addresses of this host: --me MEMBER says which it is"
            ))),
        }
    }

    /// Where a member of this host listens: at the address of its name. A name that leads to loopback here, and whose group is on other hosts, is
    /// this host's own name in its own `hosts` file, and no address at which others are reached: then it is all addresses.
    ///
    /// # Errors
    /// The name leads nowhere.
    pub(crate) fn address(&self, me: u8) -> Result<SocketAddr, Failure> {
        let resolved = self.members[usize::from(me)].resolve(Some(self.port));
        let address = *resolved.map_err(|e| Failure::usage(format!("--group {e}")))?.first().expect("a name that is found has an address");
        let is_local = |found: Vec<SocketAddr>| found.iter().all(|address| address.ip().is_loopback());
        let others_too = self.members.iter().all(|member| member.resolve(Some(self.port)).is_ok_and(is_local));
        Ok(match address {
            SocketAddr::V4(own) if own.ip().is_loopback() && !others_too => SocketAddr::from((Ipv4Addr::UNSPECIFIED, own.port())),
            SocketAddr::V6(own) if own.ip().is_loopback() && !others_too => SocketAddr::from((Ipv6Addr::UNSPECIFIED, own.port())),
            address => address,
        })
    }

    /// The socket of a member of this host.
    ///
    /// # Errors
    /// The name leads nowhere, or the address cannot be used.
    pub(crate) fn open(&self, me: u8) -> Result<UdpPort, Failure> {
        UdpPort::open(self.address(me)?, &PortOptions::default()).map_err(|e| Failure::new("ADDRESS", EXIT_FAILED, e.to_string()))
    }

    /// What seals the datagrams of member `me`, whose key is `own` in the file `at`, to those with the other `keys`, in the order of the list.
    ///
    /// # Errors
    /// A key of the list cannot be used, or the list has another one for this member.
    pub(crate) fn sealer(&self, me: u8, keys: Vec<PublicKey>, own: &SecretKey, at: &Path) -> Result<GroupSealer, Failure> {
        let boot = seed().map_err(|e| Failure::failed(e.to_string()))?;
        let boot = boot.first_chunk().copied().expect("a seed is longer");
        GroupSealer::new(own, me, keys, boot).map_err(|e| {
            let member = &self.members[usize::from(me)];
            Failure::new("KEYS", EXIT_FAILED, format!("{e} ({member} here, key {})", at.display()))
        })
    }

    /// The control socket of this host's member, unless another one is named.
    ///
    /// # Errors
    /// The environment names no directory for it.
    pub(crate) fn socket(&self, named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
        let default = || places::peer_socket(Header::hash_of(&self.names()));
        named.map_or_else(default, |socket| Ok(socket.clone()))
    }
}

/// The addresses of this host; none where the system does not tell.
fn own_addresses() -> BTreeSet<IpAddr> {
    let ip = |interface: InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    getifaddrs().map(|interfaces| interfaces.filter_map(ip).collect()).unwrap_or_default()
}

impl fmt::Display for GroupList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.present().enumerate().try_for_each(|(nth, (_, member))| match nth {
            0 => write!(f, "{member}"),
            _ => write!(f, ",{member}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_from_the_command_line_or_from_a_file() {
        let list = GroupList::parse("a:7312, b,[::1]:9").unwrap();
        assert_eq!(list.to_string(), "a:7312,b,[::1]:9");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("group");
        std::fs::write(&file, "# three\na:7312\n\n b   # here\n[::1]:9\n").unwrap();
        assert_eq!(GroupList::parse(file.to_str().unwrap()).unwrap(), list);
        assert_eq!(list.place_of(&"b".parse().unwrap()).unwrap(), 1);
        assert!(list.place_of(&"c".parse().unwrap()).unwrap_err().message.contains("no member"));
        let key = |n: u8| PublicKey::from_bytes([n; 32]);
        std::fs::write(&file, format!("a:7312 {}\nb\t{}  # here\n", key(1).to_text(Role::Agent), key(2).to_text(Role::Agent))).unwrap();
        let sealed = GroupList::parse(file.to_str().unwrap()).unwrap();
        assert_eq!((sealed.to_string().as_str(), sealed.keys(), list.keys()), ("a:7312,b", &[key(1), key(2)][..], &[][..]));
        std::fs::write(&file, format!("a:7312 {}\nb\n", key(1).to_text(Role::Agent))).unwrap();
        assert!(GroupList::parse(file.to_str().unwrap()).unwrap_err().contains("1 of 2 members have a key"));
    }

    #[test]
    fn servers_keep_their_places_when_one_is_removed_or_added() {
        let list = GroupList::of_servers("a,b,c").unwrap();
        let named = |name: &str| name.parse::<Address>().unwrap();
        let without = list.without(&named("a")).unwrap();
        assert_eq!((without.to_store().as_str(), without.to_string().as_str()), ("-a:7311,b:7311,c:7311", "b:7311,c:7311"));
        assert_eq!(GroupList::of_store(&without.to_store()), Ok(without.clone()));
        assert_eq!(without.names()[0], b"");
        assert_eq!((without.place_of(&named("c:7311")).unwrap(), without.place_of(&named("a")).is_err()), (2, true));
        assert_eq!(without.with(&named("d")).unwrap().to_store(), "d:7311,b:7311,c:7311");
        assert_eq!(without.with(&named("a")).unwrap(), list);
        let two = without.without(&named("b")).unwrap();
        assert_eq!(two.with(&named("b")).unwrap(), without, "at its former place");
        assert!(two.without(&named("c")).unwrap_err().message.contains("only server"));
        assert!(list.with(&named("b:7311")).unwrap_err().message.contains("is one of the servers"));
        assert_eq!(list.with(&named("d")).unwrap().to_string(), "a:7311,b:7311,c:7311,d:7311");
    }

    #[test]
    fn what_is_no_group_is_told() {
        let sixteen = (1..=16).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        for (text, why) in [
            ("", "is no address"),
            ("a,a", "named twice"),
            ("a,,b", "is no address"),
            ("a cistern-agent-1.x,b", "a: "),
            (&sixteen, "1 to 15"),
            ("/no/such/file", "No such file"),
        ] {
            let error = GroupList::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn the_member_of_this_host_is_found_unless_there_are_several() {
        // Reserved for documentation: no host has it (RFC 5737).
        let place = |text| GroupList::parse(text).unwrap().place_of_this_host().map_err(|failure| failure.message);
        assert_eq!(place("203.0.113.1:7312,127.0.0.1:7312,203.0.113.2:7312"), Ok(1));
        assert!(place("203.0.113.1,203.0.113.2").unwrap_err().contains("--me"));
        assert!(place("127.0.0.1:1,127.0.0.1:2").unwrap_err().contains("--me"));
    }
}
