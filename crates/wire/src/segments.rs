//! Several datagrams in one captured packet: what segmentation offload does to captures.
//!
//! Decides: where one datagram ends and the next begins. A sender may hand its kernel several datagrams of one size (the last may be
//! shorter) to be cut apart by the network card; on the sending host, on loopback and between containers a capture shows them uncut, as
//! one UDP packet. The size is not in the capture: it is where the first datagram is sound, checksum included. Place in the walk: between
//! the capture and the decoder; nothing that acts on a datagram comes here. Implements no section of `wire-spec.md`, whose datagrams are
//! never put together. Invariant: a packet that is sound as it is stays as it is, no byte is lost, and no datagram is sought that is longer
//! than any can be.
//! Leaves to others: what is in them (`datagram`), and capture files.

use crate::datagram::Datagram;
use crate::limits::{CHECKSUM_LEN, DATAGRAM_MAX};
use crate::tree::DatagramTree;
use alloc::vec;
use alloc::vec::Vec;

/// The datagrams in a captured payload, in order; one that is the payload itself, if it is sound or cannot be cut.
#[must_use]
pub fn split(payload: &[u8]) -> Vec<&[u8]> {
    match size(payload) {
        Some(size) => payload.chunks(size).collect(),
        None => vec![payload],
    }
}

/// The size of the datagrams that were put together.
fn size(payload: &[u8]) -> Option<usize> {
    if Datagram::seen(payload).is_ok() {
        return None;
    }
    // A datagram ends with its checksum behind a message. What looks like messages behind the first datagram's end is none, and does no
    // harm: there is no sound end before the right one but by a chance of one in 2^32.
    let tree = DatagramTree::of(payload);
    let ends = tree.messages.iter().map(|message| message.node.at + message.node.len + CHECKSUM_LEN);
    let mut ends = ends.take_while(|end| *end < payload.len() && *end <= DATAGRAM_MAX);
    ends.find(|end| payload.get(..*end).is_some_and(|first| Datagram::seen(first).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Header, Lane, Message, Packer, Probe, SessionId, samples};

    fn datagram(packet: u64, messages: &[Message<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: true, session: SessionId(0x1122), packet }, DATAGRAM_MAX + 100);
        assert!(messages.iter().all(|message| packer.push(message)));
        packer.finish();
        bytes
    }

    #[test]
    fn what_was_put_together_is_cut_where_it_was() {
        let notices: Vec<_> = samples().into_iter().filter(|message| message.kind().lane() == Lane::Notice).collect();
        assert!(notices.iter().all(|message| message.kind().direction() == Direction::Server));
        let large: Vec<Vec<u8>> = (1..=3).map(|packet| datagram(packet, &notices)).collect();
        let small = datagram(4, &notices[..1]);
        for parts in [vec![large[0].clone()], vec![large[0].clone(), small.clone()], [large, vec![small]].concat()] {
            assert_eq!(split(&parts.concat()), parts, "{} together", parts.len());
        }
    }

    #[test]
    fn what_cannot_be_cut_stays_whole() {
        let sound = datagram(1, &samples()[..0]);
        for payload in [&b""[..], b"\xC5", b"anything", &sound] {
            assert_eq!(split(payload), [payload]);
        }
        let mut broken = [datagram(1, &[Message::Probe(Probe { seq: 1 })]), vec![1, 2, 3]].concat();
        broken[25] ^= 1;
        assert_eq!(split(&broken), [&broken[..]]);
    }

    #[test]
    fn a_broken_one_among_them_does_not_hide_the_others() {
        let mut parts: Vec<_> = (1..=3).map(|packet| datagram(packet, &[Message::Probe(Probe { seq: packet })])).collect();
        parts[1][25] ^= 1;
        assert_eq!(split(&parts.concat()), parts);
    }

    #[test]
    fn no_datagram_is_sought_that_is_longer_than_any_can_be() {
        let probe = Message::Probe(Probe { seq: 1 });
        let each = datagram(1, &[probe, probe]).len() - datagram(1, &[probe]).len();
        let around = datagram(1, &[probe]).len() - each;
        let most = (DATAGRAM_MAX - around) / each;
        let (largest, longer) = (datagram(1, &vec![probe; most]), datagram(1, &vec![probe; most + 1]));
        assert!(largest.len() <= DATAGRAM_MAX && longer.len() > DATAGRAM_MAX);
        let small = datagram(2, &[probe]);
        assert_eq!(split(&[&largest[..], &small].concat()), [&largest[..], &small]);
        let together = [longer, small].concat();
        assert_eq!(split(&together), [&together[..]]);
    }
}
