//! Addresses as people write them: `host`, `host:port`, `[v6]:port`, or a port alone, which is one of this computer's own.
//!
//! Decides: what is an address, for every program and settings file, and that names are resolved when the address is used, not when it is
//! read.

use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// UDP port of a server when none is given.
pub const DEFAULT_PORT: u16 = 7311;

/// An address that may be a name, and may be without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Without brackets.
    host: String,
    port: Option<u16>,
}

/// Why a text is no address, or an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is none.
    #[error("{0:?} is no address: write host, host:port, [v6]:port, or a port alone for one of this computer (127.0.0.1)")]
    Form(String),
    /// A port is needed, and there is none by default.
    #[error("{0} names no port: write {0}:PORT")]
    NoPort(Address),
    /// Its host cannot be found.
    #[error("{address}: cannot find the host: {source}")]
    Unknown {
        /// As given.
        address: Address,
        /// What the resolver said.
        source: io::Error,
    },
}

impl Address {
    /// The host as it was given, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same, with this port if it names none.
    #[must_use]
    pub fn with_port(&self, default_port: u16) -> Self {
        Self { port: self.port.or(Some(default_port)), ..self.clone() }
    }

    /// The addresses that the host has, in the resolver's order and each once; at least one. It may ask a name server, and block meanwhile.
    ///
    /// # Errors
    /// There is no port; the host cannot be found.
    pub fn resolve(&self, default_port: Option<u16>) -> Result<Vec<SocketAddr>, AddressError> {
        let port = self.port.or(default_port).ok_or_else(|| AddressError::NoPort(self.clone()))?;
        let unknown = |source| AddressError::Unknown { address: self.clone(), source };
        let mut found = Vec::new();
        for address in (self.host.as_str(), port).to_socket_addrs().map_err(unknown)? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
        }
        Ok(found)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        read(text).ok_or_else(|| AddressError::Form(text.to_owned()))
    }
}

fn read(text: &str) -> Option<Address> {
    if let Some(port) = read_port(text) {
        return Some(Address { host: "127.0.0.1".to_owned(), port: Some(port) });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            if !is_v6(host) {
                return None;
            }
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None if is_v6(text) => (text, None),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            // A number is no host: the resolver would make some address of it.
            let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if host.is_empty() || !is_name || host.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (host, port)
        }
    };
    let port = port.map(|port| read_port(port).ok_or(())).transpose().ok()?;
    Some(Address { host: host.to_owned(), port })
}

/// Digits alone: the standard library takes a sign, too.
fn read_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// With or without a zone: `fe80::1%eth0`.
fn is_v6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_graphic()))
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: Some(address.port()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (true, None) => write!(f, "[{}]", self.host),
            (false, None) => f.write_str(&self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_in_every_form() {
        for (text, shown) in [
            ("meta.example.net", "meta.example.net"),
            ("meta.example.net:4096", "meta.example.net:4096"),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("::1", "[::1]"),
            ("[::1]", "[::1]"),
            ("[::1]:4096", "[::1]:4096"),
            ("[fe80::1%eth0]:4096", "[fe80::1%eth0]:4096"),
            ("4096", "127.0.0.1:4096"),
            ("0", "127.0.0.1:0"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<Address>().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_what_one_is() {
        let wrong = [
            "",
            ":",
            ":80",
            "host:",
            "host:port",
            "host:70000",
            "host:+80",
            "70000",
            "12:80",
            "a b",
            "a/b",
            "a:1:2",
            "[::1",
            "::1]:80",
            "[::1]80",
            "[host]:80",
            "[[::1]]:80",
            "fe80::1%",
            "http://host",
            "host\n",
        ];
        for text in wrong {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("host:port"), "{error}");
        }
    }

    #[test]
    fn names_are_resolved_and_ports_are_the_default_where_none_is_written() {
        let resolve = |text: &str, port| text.parse::<Address>().unwrap().resolve(port);
        assert_eq!(resolve("127.0.0.1", Some(7)).unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(resolve("[::1]:9", Some(7)).unwrap(), ["[::1]:9".parse().unwrap()]);
        let local = resolve("localhost:9", None).unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 9), "{local:?}");
        assert_eq!(resolve("localhost", None).unwrap_err().to_string(), "localhost names no port: write localhost:PORT");
        // Reserved for names that do not exist (RFC 6761).
        assert!(matches!(resolve("nowhere.invalid:9", None), Err(AddressError::Unknown { .. })));
    }
}
