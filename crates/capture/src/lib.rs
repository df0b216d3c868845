//! Capture files: the UDP datagrams in a pcap or pcapng file, and datagrams written as one.
//!
//! Decides what can be read of a capture and what is named instead; used by everything that looks at captures (the inspector, the
//! auditor, tests) and by everything that writes one (`--pcap` of every program, the simulator, the fault proxy). The way of a frame:
//! `feed` (bytes, bounded) → `classic` or `blocks` (the file format: one frame with its time and link type) → `frame` (link, IP and UDP
//! headers off) → `Datagram`; what falls out on the way is counted by reason in the `Tally`. The way back: [`Writer`], or [`Recorder`] where
//! the disk must not be waited for.
//! Invariants: no bytes make it panic; memory is bounded however long the capture is; a source that ends in the middle, or has ended
//! only for now (a file that grows, a pipe), gives everything that is whole; of a damaged one, everything before the damage.
//! Leaves to others: what a datagram says (`cistern-wire`), what datagrams mean together (`cistern-audit`).
//!
//! Formats: pcap and pcapng are described in the drafts of the IETF's opsawg group (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng),
//! link types in draft-ietf-opsawg-pcaplinktype.

mod blocks;
mod classic;
mod datagram;
mod feed;
mod frame;
pub mod private;
mod reader;
mod record;
mod recorder;
mod tally;
mod writer;

pub use datagram::Datagram;
pub use reader::{ReadError, Reader};
pub use recorder::{Recorded, Recorder};
pub use tally::{Skip, Tally};
pub use writer::{CreateError, Writer};
