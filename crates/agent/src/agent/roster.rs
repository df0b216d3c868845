//! The roster of the cluster's servers: fetched when the server has a newer one, taken up when whoever keeps it believes it (`docs/sealed.md`).
//!
//! Decides when ROSTER is asked: if WELCOME or OPENED names a version above the one that is known, and once an hour in a session, for sessions last longer
//! than keys. Decides when keys and addresses are taken up: at the next handshake, so that none is torn between two servers; the session goes on.
//! Leaves to others: the signature (whoever takes [`Event::Roster`]), the parts (`roster`).

use crate::agent::Agent;
use crate::api::Event;
use crate::call::Timer;
use crate::keys::{KeyAt, Keys};
use crate::roster::{Collected, RosterParts};
use crate::session::handshake::Handshake;
use crate::stats::Dropped;
use crate::transport::Channel;
use alloc::vec::Vec;
use cistern_link::{Instant, Question};
use cistern_wire::{Opened, RosterPart};
use core::net::SocketAddr;
use core::time::Duration;
use log::debug;

/// A session asks so often whether there is a newer roster.
const PERIOD: Duration = Duration::from_secs(3_600);

/// The servers of a roster, as an agent is told of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The roster's version.
    pub version: u32,
    /// Keys by which the server may be addressed, and where, in the order in which they are tried; empty: they stay.
    pub keys: Vec<KeyAt>,
    /// Where it is, besides where it was.
    pub addresses: Vec<SocketAddr>,
}

/// What an agent knows of rosters.
#[derive(Debug)]
pub(super) struct RosterWatch {
    /// The version that is known.
    known: u32,
    parts: RosterParts,
    /// What the next handshake takes up.
    next: Option<Servers>,
}

impl Agent {
    /// Has the agent ask for rosters above this version; what comes is told by [`Event::Roster`], and taken by [`Agent::set_servers`].
    pub fn know_roster(&mut self, now: Instant, version: u32) {
        self.enter(now, |agent| agent.roster = Some(RosterWatch { known: version, parts: RosterParts::default(), next: None }));
    }

    /// Takes the servers of a roster, for the handshakes that begin from now on. Of one that is not newer than what is known nothing is taken.
    pub fn set_servers(&mut self, now: Instant, servers: Servers) {
        self.enter(now, |agent| {
            if let Some(roster) = agent.roster.as_mut().filter(|roster| roster.known < servers.version) {
                roster.known = servers.version;
                roster.next = Some(servers);
            }
        });
    }

    /// The version that OPEN names.
    pub(super) fn roster_version(&self) -> u32 {
        self.roster.as_ref().map_or(0, |roster| roster.known)
    }

    /// The server offers a session, and names its roster: who asks with CONFIRM has it when the first request is answered, and may end then.
    pub(super) fn roster_offered(&mut self, version: u32) {
        let is_news = self.is_newer(version);
        let offered = self.handshake.as_mut().and_then(Handshake::offer).map(|offer| &mut *offer.channel);
        if let Some(channel) = offered.or_else(|| self.sessions.channel_mut()).filter(|channel| is_news && channel.is_confirming()) {
            channel.ask_roster(0);
        }
    }

    /// The server has opened a session, and named its roster.
    pub(super) fn roster_named(&mut self, opened: &Opened<'_>) {
        if self.roster.is_none() {
            return;
        }
        if self.is_newer(opened.roster) {
            self.ask_roster(0);
        }
        self.time(Timer::Roster, Some(self.now.plus(PERIOD)), Question::Waited);
    }

    /// The session has been asked for nothing of the kind for long.
    pub(super) fn roster_is_due(&mut self) {
        // An offset behind every roster: the answer names the version, and has nothing of it.
        self.ask_roster(u16::MAX);
        if self.sessions.channel().is_some() {
            self.time(Timer::Roster, Some(self.now.plus(PERIOD)), Question::Waited);
        }
    }

    /// Whether a session that begins names a roster to read: what was read of one in a session before is given up, as it is asked for from its beginning.
    fn is_newer(&mut self, version: u32) -> bool {
        let Some(roster) = self.roster.as_mut().filter(|roster| roster.known < version) else { return false };
        roster.parts = RosterParts::default();
        true
    }

    fn ask_roster(&mut self, offset: u16) {
        if let Some(channel) = self.sessions.channel_mut().filter(|channel| channel.roster_asked().is_none()) {
            channel.ask_roster(offset);
            self.dirty = true;
        }
    }

    pub(super) fn roster_part(&mut self, part: &RosterPart<'_>) {
        let asked = |channel: &Channel| channel.was_sent(part.echo) && channel.roster_asked() == Some(part.serial);
        let (true, Some(roster)) = (self.sessions.channel().is_some_and(asked), &mut self.roster) else {
            return self.dropped(Dropped::UnknownEcho);
        };
        let is_news = roster.known < part.version;
        let collected = if is_news { roster.parts.take(part) } else { Collected::Stray };
        let whole = if matches!(collected, Collected::Next(_)) { None } else { Some(core::mem::take(&mut roster.parts)) };
        self.control_answered(part.serial);
        match (collected, whole) {
            (Collected::Next(offset), _) => self.ask_roster(offset),
            (Collected::Whole, Some(parts)) => {
                debug!("{}: the server has roster {}", self.who, part.version);
                self.events.push_back(Event::Roster { signed: parts.into_bytes() });
            }
            _ => {}
        }
    }

    /// A handshake begins, or has been tried in vain at every address: it is for the servers of the newest roster. Whether that changed anything.
    pub(super) fn take_up_servers(&mut self) -> bool {
        let Some(Servers { keys, addresses, .. }) = self.roster.as_mut().and_then(|roster| roster.next.take()) else { return false };
        if let Some(own) = &mut self.keys {
            own.replace_servers(&keys);
        }
        // A session knows its server by its place among the addresses, so the former ones stay.
        let more: Vec<SocketAddr> = addresses.into_iter().filter(|address| !self.servers.contains(address)).collect();
        self.servers.extend(more);
        true
    }

    /// Every address was tried in vain: another key may be the server's. Whether there is one.
    pub(super) fn try_other_key(&mut self) -> bool {
        self.take_up_servers() || self.keys.as_mut().is_some_and(Keys::turn)
    }
}
