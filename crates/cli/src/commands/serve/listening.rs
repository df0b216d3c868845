//! The sockets of a server: for each address that it is to listen on.
//!
//! Decides: that an address named twice is meant once, and that of a name's addresses those are enough that this computer has.

use super::failed;
use crate::local::Failure;
use cistern_client::{Address, DEFAULT_PORT};
use cistern_driver::{OpenError, PortOptions, UdpPort};
use std::collections::HashSet;
use std::net::SocketAddr;

/// The addresses of each name to listen on.
pub(super) fn resolved(listen: &[Address]) -> Result<Vec<Vec<SocketAddr>>, Failure> {
    let of = |address: &Address| address.resolve(Some(DEFAULT_PORT)).map_err(|e| Failure::usage(format!("--listen {e}")));
    listen.iter().map(of).collect()
}

/// A socket for each address; of a name that has several, those that this computer can have are enough.
pub(super) fn open_ports(listen: &[Vec<SocketAddr>]) -> Result<Vec<UdpPort>, Failure> {
    let mut ports = Vec::new();
    let mut named = HashSet::new();
    for addresses in listen {
        let (mut opened, mut lacking) = (false, None);
        for address in addresses {
            // Named twice is meant once; with port 0 every one is another.
            if address.port() != 0 && !named.insert(*address) {
                opened = true;
                continue;
            }
            match UdpPort::open(*address, &PortOptions::default()) {
                Ok(port) => {
                    opened = true;
                    ports.push(port);
                }
                // `localhost` where there is no IPv6, say.
                Err(e @ (OpenError::NotLocal { .. } | OpenError::NoFamily { .. })) => lacking = lacking.or(Some(e)),
                Err(e) => return Err(failed("ADDRESS", &e)),
            }
        }
        if let Some(e) = lacking {
            if !opened {
                return Err(failed("ADDRESS", &e));
            }
            log::info!("{e}; the name's other addresses are listened on");
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_named_twice_is_opened_once() {
        let free = UdpPort::open(SocketAddr::from(([127, 0, 0, 1], 0)), &PortOptions::default()).unwrap().local_addr();
        assert_eq!(open_ports(&[vec![free], vec![free, free]]).unwrap().len(), 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(open_ports(&[vec![any], vec![any]]).unwrap().len(), 2);
    }

    #[test]
    fn of_a_name_those_addresses_are_enough_that_this_computer_has() {
        // Reserved for documentation (RFC 5737), so nobody's.
        let (here, elsewhere) = (SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([192, 0, 2, 1], 0)));
        assert_eq!(open_ports(&[vec![elsewhere, here]]).unwrap().len(), 1);
        assert!(open_ports(&[vec![here], vec![elsewhere]]).err().unwrap().message.contains("192.0.2.1"));
    }

    #[test]
    fn an_address_in_use_is_told_by_name() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let failure = open_ports(&[vec![address]]).err().unwrap();
        assert!(failure.message.contains(&address.to_string()) && failure.message.contains("in use"), "{}", failure.message);
    }
}
