//! How addresses are shown: as they are, or by a label that the user or the agent gave.
//!
//! Decides: that an address with its port goes before one without, the user's word before the agent's; and that labels from the wire are
//! escaped. Leaves to others: where labels come from (`args`, `notes`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Most labels that agents gave themselves that are remembered.
const LEARNED: usize = 65_536;

/// A label for an address: `10.0.0.1:7311=server`, or `10.0.0.5=web-1` for all its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAddress {
    ip: IpAddr,
    port: Option<u16>,
    label: String,
}

impl FromStr for NamedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names nothing: write 10.0.0.1:7311=server, [fd00::1]:7311=server or 10.0.0.5=web-1");
        let (address, label) = text.split_once('=').filter(|(_, label)| !label.is_empty()).ok_or_else(wrong)?;
        let label = label.to_owned();
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(Self { ip: address.ip(), port: Some(address.port()), label });
        }
        let ip = address.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| wrong())?;
        Ok(Self { ip, port: None, label })
    }
}

/// All labels.
#[derive(Debug, Default)]
pub struct Labels {
    given: Vec<NamedAddress>,
    /// By agents, if they are to be used.
    learned: Option<BTreeMap<SocketAddr, String>>,
}

impl Labels {
    /// Those that the user gave; `learn` whether agents' own are used as well.
    #[must_use]
    pub fn new(given: Vec<NamedAddress>, learn: bool) -> Self {
        Self { given, learned: learn.then(BTreeMap::new) }
    }

    /// The agent at this address calls itself so.
    pub fn learn(&mut self, address: SocketAddr, label: &str) {
        if let Some(learned) = &mut self.learned
            && (learned.len() < LEARNED || learned.contains_key(&address))
            && learned.get(&address).is_none_or(|known| known != label)
        {
            learned.insert(address, label.to_owned());
        }
    }

    /// How the address is shown.
    #[must_use]
    pub fn show(&self, address: SocketAddr) -> String {
        self.label(address).unwrap_or_else(|| address.to_string())
    }

    /// The address's label, if it has one.
    #[must_use]
    pub fn label(&self, address: SocketAddr) -> Option<String> {
        let exact = self.given.iter().find(|named| named.ip == address.ip() && named.port == Some(address.port()));
        if let Some(named) = exact {
            return Some(named.label.clone());
        }
        if let Some(named) = self.given.iter().find(|named| named.ip == address.ip() && named.port.is_none()) {
            return Some(format!("{}:{}", named.label, address.port()));
        }
        self.learned.as_ref().and_then(|learned| learned.get(&address)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_exact_label_goes_first_and_the_users_before_the_agents() {
        let given = ["10.0.0.1=host", "10.0.0.1:7311=server", "[fd00::1]:7311=six"].map(|text| text.parse().unwrap());
        let mut labels = Labels::new(given.to_vec(), true);
        let show = |labels: &Labels, text: &str| labels.show(text.parse().unwrap());
        labels.learn("10.0.0.1:7311".parse().unwrap(), "cheat");
        labels.learn("10.0.0.2:9".parse().unwrap(), "web-1:42");
        assert_eq!(show(&labels, "10.0.0.1:7311"), "server");
        assert_eq!(show(&labels, "10.0.0.1:99"), "host:99");
        assert_eq!(show(&labels, "[fd00::1]:7311"), "six");
        assert_eq!(show(&labels, "10.0.0.2:9"), "web-1:42");
        assert_eq!(show(&labels, "10.0.0.3:9"), "10.0.0.3:9");
        assert!("10.0.0.1".parse::<NamedAddress>().is_err() && "x=y".parse::<NamedAddress>().is_err());
    }
}
