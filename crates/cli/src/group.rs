//! The list of a group's members, as people write it: `a:7312,b:7312,c:7312`, or a file with a member a line, and its key behind it.
//!
//! Decides: what names a group on the command line, and where the control socket of this host's member is. The same members give the same
//! socket, so that a command finds the member of the group that it names, with keys or without. Leaves to others: what members do
//! (`commands::peer`, `commands::serve`).

mod report;
mod resolve;
mod troubles;

pub(crate) use report::member_rows;
pub(crate) use resolve::{Found, look_for_others};
pub(crate) use troubles::Troubles;

use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::places;
use cistern_driver::{Address, DEFAULT_PORT, PortOptions, UdpPort, seed};
use cistern_flease::{Header, MEMBERS_MAX};
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

/// Members in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupList {
    members: Vec<Address>,
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
        Ok(Self { members, keys, port })
    }

    /// The members' keys, in their order; none: the list has no keys.
    pub(crate) fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The port of members whose names have none.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The members.
    pub(crate) fn members(&self) -> &[Address] {
        &self.members
    }

    /// The members' names as their datagrams vouch for them.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.members.iter().map(|member| member.to_string().into_bytes()).collect()
    }

    /// The place of a member in the list.
    ///
    /// # Errors
    /// It is not in it.
    pub(crate) fn place_of(&self, named: &Address) -> Result<u8, Failure> {
        let found = self.members.iter().position(|member| member.with_port(self.port) == named.with_port(self.port));
        let found = found.ok_or_else(|| Failure::usage(format!("{named}: no member of the group {self}")))?;
        Ok(u8::try_from(found).expect("members are few"))
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
        self.members.iter().enumerate().try_for_each(|(place, member)| match place {
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
