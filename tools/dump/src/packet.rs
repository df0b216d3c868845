//! A captured datagram, decoded; and whether it is Cistern's at all.
//!
//! Decides: when a datagram that does not decode is Cistern's and broken, and when it is somebody else's: by its first two bytes, or
//! because one of its ends was seen to be a server. Place in the walk: between the capture and everything that looks at it.
//! Leaves to others: decoding (`cistern-wire`), what was said before (`notes`).

use crate::filter::SessionPrefix;
use cistern_wire::limits::{MAGIC, VERSION};
use cistern_wire::{Datagram, DropReason, Message, SessionId};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Most servers that are remembered.
const SERVERS: usize = 4_096;

/// A datagram with its content.
#[derive(Debug)]
pub struct Packet<'d> {
    /// Which input it comes from, by index.
    pub input: usize,
    /// Its number there, from 1.
    pub number: u64,
    /// When it was captured, since 1970.
    pub at: Duration,
    /// From whom.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: &'d [u8],
    /// What is in it, or why its receiver drops it.
    pub content: Result<Datagram<'d>, DropReason>,
}

impl<'d> Packet<'d> {
    /// Decodes.
    #[must_use]
    pub fn new(input: usize, datagram: &'d cistern_capture::Datagram) -> Self {
        let bytes = &datagram.payload[..];
        let cistern_capture::Datagram { number, at, from, to, .. } = *datagram;
        Self { input, number, at, from, to, bytes, content: Datagram::seen(bytes) }
    }

    /// The session that it offers, if it is a WELCOME.
    fn offered(&self) -> Option<SessionId> {
        self.content.as_ref().ok()?.messages().find_map(|message| match message {
            Message::Welcome(m) => Some(m.session),
            _ => None,
        })
    }

    /// The session that it is of, or offers; 0 in other handshakes, and where that cannot be read.
    #[must_use]
    pub fn session(&self) -> SessionId {
        let Ok(datagram) = &self.content else { return SessionId(0) };
        self.offered().unwrap_or(datagram.header.session)
    }

    /// Whether it is of this session, or offers it, or says what becomes of it.
    #[must_use]
    pub fn concerns(&self, session: &SessionPrefix) -> bool {
        let Ok(datagram) = &self.content else { return false };
        session.fits(datagram.header.session)
            || datagram.messages().any(|message| match message {
                Message::Welcome(m) => session.fits(m.session),
                Message::Confirm(m) => m.former.iter().any(|former| session.fits(former.session)),
                Message::Opened(m) => m.former.iter().any(|former| session.fits(former.session)),
                Message::Known(m) => session.fits(m.session),
                _ => false,
            })
    }
}

/// Tells Cistern's datagrams from others.
#[derive(Debug, Default)]
pub struct Recogniser {
    servers: BTreeSet<SocketAddr>,
}

impl Recogniser {
    /// Whether the datagram is Cistern's, be it sound or broken.
    pub fn is_ours(&mut self, packet: &Packet<'_>) -> bool {
        match &packet.content {
            Ok(datagram) => {
                let server = if datagram.header.from_server { packet.from } else { packet.to };
                if self.servers.len() < SERVERS {
                    self.servers.insert(server);
                }
                true
            }
            Err(_) => {
                packet.bytes.starts_with(&[MAGIC, VERSION]) || self.servers.contains(&packet.from) || self.servers.contains(&packet.to)
            }
        }
    }
}
