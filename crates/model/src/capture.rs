//! What a capture says of an agent's requests: how they come, and how many were sent again.
//!
//! Decides: what counts as a request that renews (a request with a nonce, or giving back or cancelling with a serial: all that the server
//! answers with a renewal, but for keep-alives, which are sent for nothing else), that one sent again is the same one, and that a copy of a
//! datagram, as the network or a second place of capture makes them, counts for nothing. Each session is an agent by itself; gaps are
//! between requests of one session. Times are those of the capture; datagrams that it shows as one packet, as segmentation offload makes
//! them, are counted one by one.
//! The auditor's story is not used: what ships depends on no tool, and of all that the story knows only which numbers are new is wanted.
//! Leaves to others: capture files (`cistern_capture`), messages (`cistern_wire`), what follows from the gaps (`arrivals`).

use crate::arrivals::Gaps;
use cistern_capture::{ReadError, Reader};
use cistern_wire::{Datagram, Kind, Message, Number, SessionId, segments};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// What was seen.
#[derive(Debug, Serialize)]
pub struct Seen {
    /// Sessions with two requests or more, so with a gap.
    pub sessions: usize,
    /// Datagrams of Cistern, in both directions.
    pub datagrams: u64,
    /// Datagrams that are something else, or broken.
    pub foreign: u64,
    /// What of the capture could not be read, if anything.
    pub unread: Option<String>,
    /// Requests, each counted once.
    pub requests: u64,
    /// Keep-alives, each counted once.
    pub keep_alives: u64,
    /// Requests and keep-alives that were sent again.
    pub sent_again: u64,
    /// Share of all transmissions of requests and keep-alives that were sent again.
    pub loss: f64,
    /// Requests of one session in a second, as the gaps have it.
    pub rate: Option<f64>,
    /// Squared coefficient of variation of the gaps: 1 for random requests, more for bursts.
    pub burstiness: Option<f64>,
    /// The longest gap of 99 in 100, s.
    pub gap_99: Option<f64>,
    /// The gaps between requests, counted.
    #[serde(skip)]
    pub gaps: Gaps,
    /// The gaps as they came, session by session, s.
    #[serde(skip)]
    pub in_order: Vec<f64>,
}

/// One session's requests.
#[derive(Debug, Default)]
struct Session {
    times: Vec<f64>,
    packets: Numbers,
    nonces: Numbers,
    serials: Numbers,
    keep_alives: u64,
    again: u64,
}

/// Numbers that were seen; they come nearly in order, so only the latest are kept.
#[derive(Debug, Default)]
struct Numbers {
    recent: BTreeSet<u64>,
}

impl Numbers {
    /// Twice the largest window, so that whatever is still sent again is known.
    const KEPT: usize = 8_192;

    /// Whether a number is new.
    fn note(&mut self, number: u64) -> bool {
        if self.recent.len() >= Self::KEPT && self.recent.first().is_some_and(|lowest| number < *lowest) {
            return false;
        }
        let new = self.recent.insert(number);
        if self.recent.len() > Self::KEPT {
            self.recent.pop_first();
        }
        new
    }
}

/// Reads a capture to its end.
///
/// # Errors
/// The file cannot be opened or is no capture.
pub fn read(path: &Path) -> Result<Seen, String> {
    read_within(path, Duration::ZERO..Duration::MAX)
}

/// Reads what a capture has of some time since 1970.
///
/// # Errors
/// As [`read`].
pub fn read_within(path: &Path, time: Range<Duration>) -> Result<Seen, String> {
    let failed = |e: String| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| failed(e.to_string()))?;
    let mut reader = Reader::new(file);
    let mut sessions: BTreeMap<SessionId, Session> = BTreeMap::new();
    let (mut datagrams, mut foreign) = (0, 0);
    while let Some(seen) = reader.next_datagram().map_err(|e: ReadError| failed(e.to_string()))? {
        if !time.contains(&seen.at) {
            continue;
        }
        for payload in segments::split(&seen.payload) {
            let Ok(datagram) = Datagram::seen(payload) else {
                foreign += 1;
                continue;
            };
            datagrams += 1;
            if !datagram.header.from_server {
                let session = sessions.entry(datagram.header.session).or_default();
                if session.packets.note(datagram.header.packet) {
                    datagram.messages().for_each(|message| session.note(&message, seen.at));
                }
            }
        }
    }
    let tally = reader.tally();
    let unread = (!tally.is_clean()).then(|| tally.to_string());
    Ok(Seen { unread, ..summary(sessions.values(), datagrams, foreign) })
}

impl Session {
    fn note(&mut self, message: &Message<'_>, at: Duration) {
        let new = match message.numbers().name {
            Some(Number::Serial(serial)) if message.kind().is_renewing() => self.serials.note(serial),
            Some(Number::Nonce(nonce)) => self.nonces.note(nonce),
            _ => return,
        };
        match message.kind() {
            _ if !new => {}
            Kind::KeepAlive => self.keep_alives += 1,
            _ => self.times.push(at.as_secs_f64()),
        }
        self.again += u64::from(!new);
    }
}

fn summary<'a>(sessions: impl Iterator<Item = &'a Session>, datagrams: u64, foreign: u64) -> Seen {
    let (mut gaps, mut with_gaps) = (Vec::new(), 0);
    let (mut requests, mut keep_alives, mut sent_again) = (0u64, 0u64, 0u64);
    for session in sessions {
        requests += session.times.len() as u64;
        keep_alives += session.keep_alives;
        sent_again += session.again;
        if session.times.len() > 1 {
            with_gaps += 1;
            gaps.extend(session.times.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)));
        }
    }
    let in_order = gaps;
    let gaps: Gaps = in_order.iter().copied().collect();
    let all = requests + keep_alives + sent_again;
    #[expect(clippy::cast_precision_loss, reason = "a share, of fewer than 2^53")]
    let loss = if all == 0 { 0.0 } else { sent_again as f64 / all as f64 };
    Seen {
        sessions: with_gaps,
        datagrams,
        foreign,
        unread: None,
        requests,
        keep_alives,
        sent_again,
        loss,
        rate: gaps.rate(),
        burstiness: gaps.burstiness(),
        gap_99: gaps.quantile(0.99),
        gaps,
        in_order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_capture::Writer;
    use cistern_wire::{Ask, Header, KeepAlive, Packer, ServerStatus};
    use std::net::SocketAddr;

    fn datagram(session: u64, packet: u64, message: &Message<'_>) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut packer = Packer::new(&mut buf, Header { from_server: false, session: SessionId(session), packet }, 1_232);
        assert!(packer.push(message));
        packer.finish();
        buf
    }

    #[test]
    fn requests_are_counted_once_keep_alives_apart_and_copies_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcap");
        let mut writer = Writer::create(&path).unwrap();
        let (agent, server): (SocketAddr, SocketAddr) = ("127.0.0.1:1000".parse().unwrap(), "127.0.0.1:7311".parse().unwrap());
        let request = |nonce| Message::ServerStatus(ServerStatus { ask: Ask { nonce, back: 0, limit: 1_232 } });
        let keep_alive = |serial| Message::KeepAlive(KeepAlive { serial, clock_us: 0 });
        let mut write = |ms: u64, bytes: Vec<u8>| writer.write(Duration::from_millis(ms), agent, server, &bytes).unwrap();
        for (ms, session, packet, message) in [
            (0, 1, 1, request(1)),
            (100, 1, 2, request(2)),
            (150, 1, 3, request(2)),
            (151, 1, 3, request(2)),
            (200, 2, 1, request(1)),
            (300, 1, 4, keep_alive(1)),
            (400, 1, 5, request(3)),
        ] {
            write(ms, datagram(session, packet, &message));
        }
        write(500, b"something else".to_vec());
        writer.flush().unwrap();
        let seen = read(&path).unwrap();
        assert_eq!((seen.sessions, seen.requests, seen.keep_alives, seen.sent_again), (1, 4, 1, 1));
        assert_eq!((seen.datagrams, seen.foreign), (7, 1));
        assert_eq!(seen.gaps.count(), 2, "0.1 s and 0.3 s");
        assert!((seen.rate.unwrap() - 5.0).abs() < 1e-9 && (seen.loss - 1.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn requests_in_one_packet_are_counted_one_by_one_and_what_was_cut_off_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pcap");
        let mut writer = Writer::create(&path).unwrap();
        let request = |nonce| datagram(1, nonce, &Message::ServerStatus(ServerStatus { ask: Ask { nonce, back: 0, limit: 1_232 } }));
        let (agent, server) = ("127.0.0.1:1000".parse().unwrap(), "127.0.0.1:7311".parse().unwrap());
        for second in [1, 2] {
            let together = [request(2 * second), request(2 * second + 1)].concat();
            writer.write(Duration::from_secs(second), agent, server, &together).unwrap();
        }
        writer.flush().unwrap();
        let seen = read(&path).unwrap();
        assert_eq!((seen.datagrams, seen.requests, seen.foreign, seen.unread), (4, 4, 0, None));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let seen = read(&path).unwrap();
        assert_eq!((seen.datagrams, seen.unread.is_some_and(|unread| unread.contains("not whole"))), (2, true));
    }

    #[test]
    fn what_is_no_capture_is_said_so() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"#!/bin/sh\n").unwrap();
        assert!(read(file.path()).unwrap_err().contains("no capture file"));
        assert!(read(Path::new("/nowhere/at/all")).is_err());
    }
}
