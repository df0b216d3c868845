//! What a capture is about: UDP datagrams.
//!
//! Decides what is known of each. Leaves to others: finding them (`reader`), what they say (`cistern-wire`).

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

/// A UDP datagram of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Which frame of the capture brought it, the first is 1 (as Wireshark counts); 0 if it comes from no capture.
    pub number: u64,
    /// When it was captured, since 1970-01-01 UTC, to the nanosecond as far as the capture says it; zero if the capture does not.
    pub at: Duration,
    /// Who sent it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// The UDP payload, whole.
    pub payload: Bytes,
}
