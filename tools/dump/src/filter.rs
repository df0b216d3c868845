//! Which traffic is shown.
//!
//! Decides: what each condition means. Some are about a datagram (hosts, ports, sessions, times), some about a message (kinds, object,
//! nonce): of a datagram only the messages that meet the latter are shown, and a datagram of which none does is hidden. What does not
//! parse has no messages: it is shown if no condition asks for something in a message, or if kinds ask for MALFORMED.
//! Leaves to others: what else is known of a datagram (`notes` sees what is hidden, too).

use crate::args::Select;
use crate::fields;
use crate::packet::Packet;
use crate::time::When;
use cistern_wire::{DatagramTree, Kind, Message, SessionId};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// What the pseudo-kind of datagrams that do not parse is called.
pub const MALFORMED: &str = "MALFORMED";

/// An IP address; IPv4 also matches as it looks inside IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFilter(IpAddr);

impl FromStr for HostFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ip: IpAddr = text.parse().map_err(|_| format!("{text:?} is no IP address (names are not looked up)"))?;
        Ok(Self(ip.to_canonical()))
    }
}

/// The first digits of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPrefix(String);

impl SessionPrefix {
    /// Whether the session begins so.
    #[must_use]
    pub fn fits(&self, session: SessionId) -> bool {
        format!("{:016x}", session.0).starts_with(&self.0)
    }
}

impl std::fmt::Display for SessionPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text).to_ascii_lowercase();
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("{text:?} is no session: write its first hexadecimal digits, up to 16, as lines show them"));
        }
        Ok(Self(digits))
    }
}

/// A list of kinds, or of all but these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindFilter {
    others: bool,
    kinds: BTreeSet<Kind>,
    malformed: bool,
}

impl KindFilter {
    fn shows(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind) != self.others
    }

    const fn shows_malformed(&self) -> bool {
        self.malformed != self.others
    }
}

impl FromStr for KindFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (others, list) = text.strip_prefix('!').map_or((false, text), |list| (true, list));
        let mut filter = Self { others, kinds: BTreeSet::new(), malformed: false };
        for name in list.split(',') {
            // Each may have its own mark, as long as all have.
            let name = if others { name.strip_prefix('!').unwrap_or(name) } else { name };
            let wanted = name.trim().to_ascii_uppercase().replace('-', "_");
            match Kind::ALL.iter().find(|kind| kind.name() == wanted) {
                Some(kind) => {
                    filter.kinds.insert(*kind);
                }
                None if wanted == MALFORMED => filter.malformed = true,
                None => return Err(unknown_kind(name, &wanted)),
            }
        }
        Ok(filter)
    }
}

fn unknown_kind(name: &str, wanted: &str) -> String {
    let names = Kind::ALL.iter().map(|kind| kind.name());
    let nearest = names.map(|name| (strsim::damerau_levenshtein(name, wanted), name)).min().filter(|(distance, _)| *distance <= 3);
    let hint = nearest.map_or(String::new(), |(_, name)| format!("; {name}, perhaps?"));
    format!("there is no kind {name:?}{hint} (wire-spec.md section 6 has them all)")
}

/// All conditions.
#[derive(Debug)]
pub struct Filter<'a> {
    select: &'a Select,
    first: Option<Duration>,
}

/// What is shown of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// Nothing, nor of any later one: its time is over.
    NothingMore,
    /// The datagram, with the messages that are marked.
    Messages(Vec<bool>),
}

impl<'a> Filter<'a> {
    /// The conditions of the command line.
    #[must_use]
    pub const fn new(select: &'a Select) -> Self {
        Self { select, first: None }
    }

    /// What is shown of a datagram; datagrams come in order of time.
    pub fn look(&mut self, packet: &Packet<'_>) -> Shown {
        let first = *self.first.get_or_insert(packet.at);
        let instant = |when: Option<When>| when.map(|when| when.instant(first));
        if instant(self.select.until).is_some_and(|to| packet.at > to) {
            return Shown::NothingMore;
        }
        if instant(self.select.since).is_some_and(|from| packet.at < from) || !self.concerns(packet) {
            return Shown::Nothing;
        }
        let Ok(datagram) = &packet.content else {
            let asked = self.select.object.is_none() && self.select.nonce.is_none();
            let kind = self.select.kind.as_ref().is_none_or(KindFilter::shows_malformed);
            return if asked && kind { Shown::Messages(Vec::new()) } else { Shown::Nothing };
        };
        let has_object: Option<Vec<_>> = self.select.object.map(|object| {
            DatagramTree::of(packet.bytes).messages.iter().map(|message| fields::has_object(&message.node, object)).collect()
        });
        let object = |at: usize| has_object.as_ref().is_none_or(|has| has.get(at) == Some(&true));
        let shown: Vec<_> = datagram.messages().enumerate().map(|(at, message)| self.shows(&message) && object(at)).collect();
        if shown.contains(&true) { Shown::Messages(shown) } else { Shown::Nothing }
    }

    /// The conditions on the datagram, but for its time.
    fn concerns(&self, packet: &Packet<'_>) -> bool {
        let ends = [packet.from, packet.to];
        let hosts = &self.select.host;
        let host = hosts.is_empty() || ends.iter().any(|end| hosts.contains(&HostFilter(end.ip().to_canonical())));
        let ports = &self.select.port;
        let port = ports.is_empty() || ends.iter().any(|end| ports.contains(&end.port()));
        let sessions = &self.select.session;
        let session = sessions.is_empty() || sessions.iter().any(|prefix| packet.concerns(prefix));
        host && port && session
    }

    /// The conditions on a message, but for the object.
    fn shows(&self, message: &Message<'_>) -> bool {
        let select = self.select;
        select.kind.as_ref().is_none_or(|kinds| kinds.shows(message.kind()))
            && select.nonce.is_none_or(|nonce| message.numbers().nonce == Some(nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_in_the_specification_and_misspelt_ones_are_helped() {
        let filter: KindFilter = "lock,GRANT,end-session".parse().unwrap();
        assert!(filter.shows(Kind::Lock) && filter.shows(Kind::EndSession) && !filter.shows(Kind::Ack) && !filter.shows_malformed());
        let others: KindFilter = "!KEEPALIVE,!ALIVE".parse().unwrap();
        assert!(!others.shows(Kind::KeepAlive) && !others.shows(Kind::Alive) && others.shows(Kind::Ack) && others.shows_malformed());
        assert!("MALFORMED".parse::<KindFilter>().unwrap().shows_malformed());
        let error = "KEEPALIV".parse::<KindFilter>().unwrap_err();
        assert!(error.contains("KEEPALIVE, perhaps?"), "{error}");
        assert!("".parse::<KindFilter>().is_err());
    }

    #[test]
    fn a_session_is_named_by_its_first_digits() {
        let prefix: SessionPrefix = "0x1122AA".parse().unwrap();
        assert!(prefix.fits(SessionId(0x1122_AA00_0000_0001)) && !prefix.fits(SessionId(0x1122_AB00_0000_0001)));
        assert!("".parse::<SessionPrefix>().is_err() && "xyz".parse::<SessionPrefix>().is_err());
        assert!("00112233445566778".parse::<SessionPrefix>().is_err());
    }
}
