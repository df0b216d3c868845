//! The networks from which sessions were opened: an IPv4 /24, an IPv6 /64.
//!
//! Decides: what one network is, so that whoever has the addresses of one cannot take all places for sessions. Addresses of this computer are
//! no network: who can use them has other ways to harm it, and a test opens a million sessions from one. Part of the table of sessions, which
//! counts a session where it was opened, whatever address it moves to. Invariant: a place is listed once, where its row says.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use hashbrown::HashMap;

/// An IPv4 /24, or an IPv6 /64, which is what one site or one host is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Network {
    V4([u8; 3]),
    V6([u8; 8]),
}

impl Network {
    /// The network of an address; of one of this computer's own there is none.
    pub(crate) fn of(address: SocketAddr) -> Option<Self> {
        match address.ip().to_canonical() {
            ip if ip.is_loopback() => None,
            IpAddr::V4(ip) => ip.octets().first_chunk().copied().map(Self::V4),
            IpAddr::V6(ip) => ip.octets().first_chunk().copied().map(Self::V6),
        }
    }
}

/// Where a session is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    network: Network,
    at: u32,
}

/// The places of the sessions of each network.
#[derive(Debug, Default)]
pub(crate) struct Networks(HashMap<Network, Vec<u32>>);

impl Networks {
    /// The places of a network's sessions, in no order.
    pub(crate) fn places(&self, network: Network) -> &[u32] {
        self.0.get(&network).map_or(&[], Vec::as_slice)
    }

    /// Lists a session.
    pub(crate) fn insert(&mut self, network: Network, place: u32) -> Listing {
        let places = self.0.entry(network).or_default();
        places.push(place);
        Listing { network, at: u32::try_from(places.len() - 1).unwrap_or(u32::MAX) }
    }

    /// Takes a session off the list; the place that is listed at its row now, if there is one.
    pub(crate) fn remove(&mut self, row: Listing) -> Option<u32> {
        let places = self.0.get_mut(&row.network)?;
        places.swap_remove(row.at as usize);
        if places.is_empty() {
            self.0.remove(&row.network);
            return None;
        }
        places.get(row.at as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> Option<Network> {
        Network::of(SocketAddr::new(address.parse().unwrap(), 1))
    }

    #[test]
    fn a_network_is_a_24_or_a_64_and_this_computer_is_none() {
        assert_eq!(network("10.1.2.3"), network("10.1.2.250"));
        assert_ne!(network("10.1.2.3"), network("10.1.3.3"));
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:10.1.2.9"), network("10.1.2.3"), "the same address in another form");
        assert_eq!([network("127.0.0.1"), network("127.9.9.9"), network("::1")], [None; 3]);
    }

    #[test]
    fn a_place_is_listed_once_whichever_goes_first() {
        let (mut networks, net) = (Networks::default(), network("10.1.2.3").unwrap());
        let rows = [7, 8, 9].map(|place| networks.insert(net, place));
        assert_eq!(networks.remove(rows[0]), Some(9), "the last one has its row now");
        assert_eq!(networks.places(net), [9, 8]);
        assert_eq!(networks.remove(rows[1]), None);
        assert_eq!(networks.remove(rows[0]), None);
        assert!(networks.places(net).is_empty() && networks.0.is_empty());
    }
}
