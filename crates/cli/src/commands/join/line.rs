//! Joining by a line: the socket and the time around a [`Joiner`].
//!
//! Decides for how long an address is asked before the next. Leaves to others: what is asked (`cistern_agent::Joiner`), what is believed of the
//! answer (`cistern_credentials::join`).

use cistern_agent::{JoinRefused, Joiner, Keys, Membership};
use cistern_credentials::{Asked, JoinRefusal};
use cistern_driver::{Address, Clock, DEFAULT_PORT, seed};
use cistern_seal::work::KeyHolder;
use cistern_seal::{Entropy, PublicKey, SecretKey};
use cistern_trust::{ClusterKey, Grant, Invite, Name, Pinned, ServerAddress};
use cistern_wire::JoinOutcome;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// An address that does not answer is asked for so long.
const PATIENCE: Duration = Duration::from_secs(6);
/// Larger than any datagram of a server.
const DATAGRAM: usize = 2_048;

/// Asks one server, in a session with `own`, opened by the invite's secret.
pub(in crate::commands) fn ask(
    own: &SecretKey,
    invite: &Invite,
    server: &PublicKey,
    address: &ServerAddress,
    label: &str,
) -> Result<Grant, Asked> {
    let silent = |what: &dyn std::fmt::Display| Asked::Silent(what.to_string());
    let address = address.as_str().parse::<Address>().map_err(|e| silent(&e))?;
    let mut said = Vec::new();
    for remote in address.resolve(Some(DEFAULT_PORT)).map_err(|e| silent(&e))? {
        let keys = Keys::new(KeyHolder::new(own.clone(), ephemeral), *server).with_psk(invite.id.0, invite.secret.psk());
        match converse(keys, remote, label) {
            Ok(Ok(member)) => return granted(own, &member).map_err(|what| silent(&what)),
            Ok(Err(refused)) => match refusal(refused) {
                Asked::Silent(what) => said.push(what),
                ends => return Err(ends),
            },
            Err(what) => said.push(what),
        }
    }
    Err(Asked::Silent(said.join(", ")))
}

/// Talks with whoever is at an address, until there is an end, or none comes.
fn converse(keys: Keys, remote: SocketAddr, label: &str) -> Result<Result<Membership, JoinRefused>, String> {
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    let any: IpAddr = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(remote).map(|()| socket)).map_err(|e| failed(&e))?;
    let clock = Clock::new().map_err(|e| failed(&e))?;
    let began = clock.now();
    let mut joiner = Joiner::new(began, keys, *seed().map_err(|e| failed(&e))?, label.as_bytes());
    let (mut out, mut room, mut why) = (Vec::new(), [0; DATAGRAM], "no answer");
    loop {
        while joiner.poll_transmit(clock.now(), &mut out) {
            // It is tried again: a server that is being started refuses, too.
            if let Err(e) = socket.send(&out) {
                note(&mut why, e.kind());
            }
        }
        if let Some(end) = joiner.end() {
            return Ok(end.clone());
        }
        let now = clock.now();
        if now.since(began) >= PATIENCE {
            return Err(why.to_owned());
        }
        let pause = joiner.wake_after(now).clamp(Duration::from_millis(1), PATIENCE);
        socket.set_read_timeout(Some(pause)).map_err(|e| failed(&e))?;
        match socket.recv(&mut room) {
            Ok(length) => joiner.handle_datagram(clock.now(), room.get(..length).unwrap_or_default()),
            Err(e) => note(&mut why, e.kind()),
        }
    }
}

/// What the socket says of the way to the server; what it says of nothing having come is nothing.
fn note(why: &mut &'static str, kind: ErrorKind) {
    match kind {
        ErrorKind::ConnectionRefused => *why = "the port is closed (ICMP)",
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => *why = "the network is not reached",
        _ => {}
    }
}

fn granted(own: &SecretKey, member: &Membership) -> Result<Grant, String> {
    let name = String::from_utf8_lossy(&member.name).parse::<Name>().map_err(|e| format!("its answer has no name: {e}"))?;
    let pinned = Pinned::new(ClusterKey::from_array(member.cluster), &member.roster)
        .map_err(|e| format!("its roster is not to be believed: {e}"))?;
    Ok(Grant { key: own.public(), principal: member.principal, name, pinned })
}

/// Why the server refuses, or why another is to be asked.
fn refusal(refused: JoinRefused) -> Asked {
    let silent = |why: &str| Asked::Silent(why.to_owned());
    match refused {
        JoinRefused::Outcome(outcome, at_s, from) => match outcome {
            JoinOutcome::Joined | JoinOutcome::Unknown => Asked::Refused(JoinRefusal::Unknown),
            JoinOutcome::Spent => Asked::Refused(JoinRefusal::Spent { at_s, from: Ipv6Addr::from(from).to_canonical() }),
            JoinOutcome::Revoked => Asked::Refused(JoinRefusal::Revoked),
            JoinOutcome::NameTaken => Asked::Refused(JoinRefusal::NameTaken),
            JoinOutcome::Full => silent("it has as many agents as it may have"),
        },
        JoinRefused::Version => silent("it speaks other versions of the protocol"),
        JoinRefused::Busy => silent("it has reached a limit; try again"),
        JoinRefused::Standby => Asked::Standby,
    }
}

/// For one handshake.
fn ephemeral() -> Entropy {
    Entropy::from_bytes(seed().expect("the system's random source does not go away"))
}
