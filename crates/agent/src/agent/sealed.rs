//! The sealed mode: handshake datagrams, and records before they are opened (`docs/sealed.md`).
//!
//! What comes in a record acts as what comes in a plain datagram; what comes in a handshake datagram changes when the agent acts, never what
//! it believes, but for the WELCOME that answers its own OPEN. Leaves to others: what CHALLENGE, WELCOME and HINT lead to (`handshake`,
//! `contact`).

use crate::agent::Agent;
use crate::agent::recovery::Fates;
use crate::api::OpError;
use crate::keys::sealer;
use crate::session::handshake::Handshake;
use crate::stats::Dropped;
use crate::transport::Channel;
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_link::bugs::{self, Bug};
use cistern_wire::sealed::{OpenStatus, SealedDatagram, SealedHandshake, SealedRefusal, SealedRefuse, SealedWelcome, WelcomePayload};
use cistern_wire::{Bytes8, Challenge, Envelope, Limit, Limited, Realm, RefuseReason, SessionId, Welcome, Whose};

/// An agent that was refused by somebody, perhaps not the server, tries again after this at the earliest, in milliseconds.
const REFUSED_MS: u32 = 1_000;
/// The same where all servers say that they are standbys: one of them serves soon.
const STANDBY_MS: u32 = 20;

impl Agent {
    /// A handshake datagram.
    pub(super) fn sealed_handshake(&mut self, path: Path, bytes: &[u8]) {
        let datagram = match SealedDatagram::at_agent(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        let is_checked = datagram.body.kind().has_mac1();
        if is_checked && !self.keys.as_ref().is_some_and(|keys| keys.hold(bytes)) {
            return self.dropped(Dropped::NotAuthentic);
        }
        (self.dirty, self.output_due) = (true, true);
        match datagram.body {
            SealedHandshake::Challenge(challenge) => {
                let (handshake, echo) = (challenge.handshake, challenge.echo);
                self.challenged(path, &Challenge { handshake, echo, cookie: Bytes8(&challenge.cookie) });
            }
            SealedHandshake::Welcome(welcome) => self.sealed_welcome(path, &welcome, bytes),
            SealedHandshake::Refuse(refuse) => self.sealed_refuse(&refuse),
            SealedHandshake::Hint(hint) => self.sealed_hint(path, datagram.header.session, hint.echo),
            // The decoder lets no agent's through.
            SealedHandshake::Ask(_) | SealedHandshake::Open(_) | SealedHandshake::Resume(_) => {}
        }
    }

    fn sealed_welcome(&mut self, path: Path, welcome: &SealedWelcome, bytes: &[u8]) {
        let asked = self.handshake.as_ref().filter(|opening| !opening.is_confirming());
        if asked.and_then(|opening| opening.sent_at(welcome.handshake, welcome.echo)).is_none() {
            return self.dropped(Dropped::StrayHandshake);
        }
        let Some((payload, chain)) = self.keys.as_mut().and_then(|keys| keys.finish(bytes)) else {
            return self.dropped(Dropped::NotAuthentic);
        };
        match refused(&payload) {
            None => {
                let sealer = sealer(&chain, self.now);
                self.welcomed(path, &welcome_of(welcome, &payload), sealer);
                self.roster_offered(payload.roster);
            }
            Some(error) => self.no_session_here(error, payload.retry_ms),
        }
        if let Some(opening) = self.handshake.as_mut().filter(|opening| !opening.is_confirming()) {
            // There is one answer to a message, and this was it.
            opening.begin_anew();
        }
    }

    fn sealed_refuse(&mut self, refuse: &SealedRefuse) {
        let reason = match refuse.reason {
            SealedRefusal::Version => RefuseReason::Version,
            SealedRefusal::Busy => RefuseReason::Busy,
            SealedRefusal::Stopping => RefuseReason::Stopping,
            SealedRefusal::Standby => RefuseReason::Standby,
            SealedRefusal::Resume => return self.resume_refused(refuse),
            // This agent names no invite.
            SealedRefusal::Invite => return self.dropped(Dropped::StrayHandshake),
        };
        if self.answer_to(refuse.handshake, refuse.echo).is_none() {
            return self.dropped(Dropped::StrayHandshake);
        }
        //= docs/sealed.md#the-handshake
        //# They MUST change only when an agent acts, never what it believes of a lease, a session or a version.
        // Whoever knows the server's key can say so: it is a reason to wait, and none to give up.
        let least = if reason == RefuseReason::Standby { STANDBY_MS } else { REFUSED_MS };
        self.refused_by(reason, refuse.serving, refuse.retry_ms.max(least));
    }

    /// The server cannot resume the session, or somebody says so: OPEN proves more.
    fn resume_refused(&mut self, refuse: &SealedRefuse) {
        let resuming = self.handshake.as_ref().is_some_and(Handshake::is_resuming);
        if !resuming || self.answer_to(refuse.handshake, refuse.echo).is_none() {
            return self.dropped(Dropped::StrayHandshake);
        }
        self.handshake.iter_mut().for_each(Handshake::cannot_resume);
    }

    fn sealed_hint(&mut self, path: Path, session: SessionId, echo: u64) {
        if self.sessions.present() == Some(session) {
            if bugs::is(Bug::S12) {
                return self.session_over("a hint", &Fates::default());
            }
            if !self.hinted(path, echo) {
                self.dropped(Dropped::StrayHint);
            }
        } else if let Some(offer) = self.handshake.as_mut().filter(|opening| opening.offers(session)).and_then(Handshake::offer) {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers, or is a call (section
            //# 11.10).
            let own = offer.channel.sent_at(echo).is_some();
            if own { self.start_over() } else { self.dropped(Dropped::StrayHint) }
        } else {
            self.dropped(Dropped::UnknownSession);
        }
    }

    /// Opens a record; gives its messages, which are in `text`. `None`: it was dropped.
    pub(super) fn open_record<'a>(&mut self, envelope: Envelope, bytes: &'a [u8], text: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let (id, now) = (envelope.header.session, self.now.uptime());
        let Self { sessions, handshake, cipher, .. } = self;
        let offered = handshake.as_mut().filter(|opening| opening.offers(id)).and_then(Handshake::offer);
        let sealer = offered.map(|offer| offer.channel.sealer()).or_else(|| sessions.sealer(id));
        let Some(sealer) = sealer.filter(|sealer| sealer.form() == envelope.form) else {
            self.dropped(Dropped::UnknownSession);
            return None;
        };
        let opened = sealer.open(cipher, now, bytes, text).ok();
        if opened.is_none() {
            let is_worn_out = sealer.is_worn_out(cipher);
            self.dropped(Dropped::NotAuthentic);
            if is_worn_out && self.sessions.channel().map(Channel::session) == Some(id) {
                self.dirty = true;
                self.session_over("too many datagrams that were not authentic", &Fates::default());
            }
        }
        opened
    }
}

/// Why there is no session, if there is none.
fn refused(payload: &WelcomePayload) -> Option<OpError> {
    let WelcomePayload { status, used, bound, retry_ms, .. } = *payload;
    Some(match status {
        OpenStatus::Opened => return None,
        OpenStatus::UnknownKey | OpenStatus::Revoked => OpError::NotAdmitted(status),
        OpenStatus::Superseded => OpError::Refused(RefuseReason::Superseded),
        OpenStatus::Busy => OpError::Refused(RefuseReason::Busy),
        OpenStatus::Limit => OpError::Limited(Limited {
            limit: Limit::Sessions,
            whose: Whose::Host,
            realm: Realm(0),
            used: used.into(),
            bound: bound.into(),
            retry_ms,
        }),
        OpenStatus::Ahead => OpError::Refused(RefuseReason::Ahead),
    })
}

/// What a plain WELCOME would say. The packet numbers of a sealed session begin at 1.
const fn welcome_of(welcome: &SealedWelcome, payload: &WelcomePayload) -> Welcome {
    Welcome {
        handshake: welcome.handshake,
        echo: welcome.echo,
        version: payload.version,
        session: payload.session,
        handle: payload.handle,
        store: payload.store,
        epoch: payload.epoch,
        server_incarnation: payload.server_incarnation,
        features: payload.features,
        lease_us: payload.lease_us,
        delta_ppm: payload.delta_ppm,
        epsilon_us: payload.epsilon_us,
        delivery_timeout_us: payload.delivery_timeout_us,
        window: payload.window,
        max_datagram: payload.max_datagram,
        first_packet: 1,
    }
}
