//! An address in a record.

use alloc::vec::Vec;
use cistern_wire::{Bytes8, Fault, Field as _, Malformed, Reader};
use core::net::{IpAddr, SocketAddr};

/// An address: how many bytes its IP has (none: there is no address), these, and the port.
pub(super) fn put_address(address: Option<SocketAddr>, w: &mut Vec<u8>) {
    let Some(address) = address else { return Bytes8(b"").put(w) };
    match address.ip() {
        IpAddr::V4(ip) => Bytes8(&ip.octets()).put(w),
        IpAddr::V6(ip) => Bytes8(&ip.octets()).put(w),
    }
    address.port().put(w);
}

/// Reads one.
pub(super) fn get_address(r: &mut Reader<'_>) -> Result<Option<SocketAddr>, Malformed> {
    let ip: Bytes8<'_> = r.get()?;
    let ip = match *ip.0 {
        [] => return Ok(None),
        _ => <[u8; 4]>::try_from(ip.0).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(ip.0).map(IpAddr::from)),
    };
    let port = r.get()?;
    ip.map(|ip| Some(SocketAddr::new(ip, port))).map_err(|_| Malformed::new(Fault::BadValue))
}
