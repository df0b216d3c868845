//! Link types and headers: which frames give their datagram, and what the others are called.

use std::time::Duration;

use cistern_capture::Skip;
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder, VlanId,
    ip_number,
};

use super::{LITTLE, Layout, packet, payloads, read, skipped};

/// What one frame of this link type gives: its payload, or why it gives none.
fn look(link: u32, frame: &[u8]) -> Result<Vec<u8>, Skip> {
    look_at(link, frame, frame.len())
}

fn look_at(link: u32, frame: &[u8], original: usize) -> Result<Vec<u8>, Skip> {
    let layout = Layout { link, ..LITTLE };
    let (datagrams, tally) = read(&[layout.header(), layout.record(Duration::from_secs(1), frame, original)].concat());
    assert_eq!(tally.frames, 1, "{tally}");
    match payloads(&datagrams)[..] {
        [payload] => Ok(payload.to_vec()),
        _ => Err(skipped(&tally)[0].0),
    }
}

fn packet_v6(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(4_000, 7_311).write(&mut out, payload).unwrap();
    out
}

fn behind(header: &[u8], packet: Vec<u8>) -> Vec<u8> {
    [header.to_vec(), packet].concat()
}

#[test]
fn every_usual_link_type_gives_its_datagrams() {
    let mut sll = [0; 16];
    sll[14] = 8;
    let mut sll_v6 = [0; 16];
    sll_v6[14..].copy_from_slice(&[0x86, 0xDD]);
    let mut sll2 = [0; 20];
    sll2[0] = 8;
    let frames = [
        (1, behind(&[&[0; 12][..], &[8, 0]].concat(), packet(b"x"))),
        (1, behind(&[&[0; 12][..], &[0x86, 0xDD]].concat(), packet_v6(b"x"))),
        (1, behind(&[&[0; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat(), packet(b"x"))),
        (1, behind(&[&[0; 12][..], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xDD]].concat(), packet_v6(b"x"))),
        (113, behind(&sll, packet(b"x"))),
        (113, behind(&sll_v6, packet_v6(b"x"))),
        (276, behind(&sll2, packet(b"x"))),
        (101, packet(b"x")),
        (101, packet_v6(b"x")),
        (12, packet(b"x")),
        (14, packet_v6(b"x")),
        (228, packet(b"x")),
        (229, packet_v6(b"x")),
        (0, behind(&[2, 0, 0, 0], packet(b"x"))),
        (0, behind(&[0, 0, 0, 2], packet(b"x"))),
        (0, behind(&[30, 0, 0, 0], packet_v6(b"x"))),
        (108, behind(&[0, 0, 0, 24], packet_v6(b"x"))),
    ];
    for (link, frame) in frames {
        assert_eq!(look(link, &frame), Ok(b"x".to_vec()), "link type {link}");
    }
}

#[test]
fn frame_check_sequence_and_padding_behind_the_packet_are_left_out() {
    let frame = behind(&[&[0; 12][..], &[8, 0]].concat(), packet(b"x"));
    assert_eq!(look(1, &[frame, vec![0xEE; 32]].concat()), Ok(b"x".to_vec()));
    assert_eq!(
        look(0x5000_0001, &behind(&[&[0; 12][..], &[8, 0]].concat(), packet(b"x"))),
        Ok(b"x".to_vec()),
        "its length in the link type"
    );
}

#[test]
fn an_empty_datagram_is_one() {
    assert_eq!(look(101, &packet(b"")), Ok(Vec::new()));
}

#[test]
fn ip_options_and_extension_headers_are_passed_over() {
    let options =
        Ipv4Header { options: [1; 8].into(), protocol: ip_number::UDP, ..Ipv4Header::new(0, 64, ip_number::UDP, [1; 4], [2; 4]).unwrap() };
    let mut v4 = Vec::new();
    PacketBuilder::ip(IpHeaders::Ipv4(options, Default::default())).udp(1, 2).write(&mut v4, b"x").unwrap();
    assert_eq!((look(101, &v4), v4[0] & 15), (Ok(b"x".to_vec()), 7));

    let raw = |next| Ipv6RawExtHeader::new_raw(next, &[0; 6]).unwrap();
    let extensions = Ipv6Extensions {
        hop_by_hop_options: Some(raw(IpNumber(60))),
        destination_options: Some(raw(ip_number::UDP)),
        ..Ipv6Extensions::default()
    };
    let header = Ipv6Header { hop_limit: 64, source: [1; 16], destination: [2; 16], ..Ipv6Header::default() };
    let mut v6 = Vec::new();
    PacketBuilder::ip(IpHeaders::Ipv6(header, extensions)).udp(1, 2).write(&mut v6, b"x").unwrap();
    assert_eq!((look(101, &v6), v6[6]), (Ok(b"x".to_vec()), 0));
}

#[test]
fn fragments_are_named() {
    let mut first = packet(&[0; 16]);
    first[6] = 0x20;
    assert_eq!(look(101, &first), Err(Skip::Fragment));
    let mut last = packet(&[0; 16]);
    last[7] = 2;
    assert_eq!(look(101, &last), Err(Skip::Fragment));
    let fragment = Ipv6FragmentHeader::new(ip_number::UDP, IpFragOffset::try_new(4).unwrap(), false, 7);
    let extensions = Ipv6Extensions { fragment: Some(fragment), ..Ipv6Extensions::default() };
    let header = Ipv6Header { hop_limit: 64, ..Ipv6Header::default() };
    let mut v6 = Vec::new();
    PacketBuilder::ip(IpHeaders::Ipv6(header, extensions)).udp(1, 2).write(&mut v6, b"x").unwrap();
    assert_eq!(look(101, &v6), Err(Skip::Fragment));
}

#[test]
fn other_protocols_are_named() {
    let mut tcp = Vec::new();
    PacketBuilder::ipv4([1; 4], [2; 4], 64).tcp(1, 2, 3, 4).write(&mut tcp, b"x").unwrap();
    assert_eq!(look(101, &tcp), Err(Skip::NotUdp(6)));
    assert_eq!(look(101, &tcp[..30]), Err(Skip::NotUdp(6)), "also when its own header is cut");
    let mut icmp = Vec::new();
    PacketBuilder::ipv6([1; 16], [2; 16], 64).icmpv6_echo_request(1, 2).write(&mut icmp, b"x").unwrap();
    assert_eq!(look(101, &icmp), Err(Skip::NotUdp(58)));
    let mut tagged_arp = Vec::new();
    PacketBuilder::ethernet2([0; 6], [0; 6])
        .single_vlan(VlanId::ZERO)
        .arp(
            etherparse::ArpPacket::new(
                etherparse::ArpHardwareId::ETHERNET,
                etherparse::EtherType::IPV4,
                etherparse::ArpOperation::REQUEST,
                &[0; 6],
                &[0; 4],
                &[0; 6],
                &[0; 4],
            )
            .unwrap(),
        )
        .write(&mut tagged_arp)
        .unwrap();
    assert_eq!(look(1, &tagged_arp), Err(Skip::NotIp(Some(0x0806))));
    assert_eq!(look(0, &[7, 0, 0, 0, 1, 2, 3]), Err(Skip::NotIp(None)));
    assert_eq!(look(105, &[0; 40]), Err(Skip::LinkType(105)));
}

#[test]
fn a_frame_cut_by_the_capture_is_told_from_a_broken_one() {
    let ethernet = behind(&[&[0; 12][..], &[8, 0]].concat(), packet(b"payload"));
    for cut in 14..ethernet.len() {
        assert_eq!(look_at(1, &ethernet[..cut], ethernet.len()), Err(Skip::Snapped), "captured {cut} bytes");
        let broken = look(1, &ethernet[..cut]).expect_err("there is no whole datagram");
        assert!(matches!(broken, Skip::BrokenIp | Skip::BrokenUdp), "{cut} bytes: {broken}");
    }
    let padded = [ethernet.clone(), vec![0; 8]].concat();
    assert_eq!(look_at(1, &ethernet, padded.len()), Ok(b"payload".to_vec()), "only padding was cut off");
}

#[test]
fn headers_that_contradict_themselves_are_named() {
    let with = |at: usize, byte: u8| {
        let mut packet = packet(b"payload");
        packet[at] = byte;
        look(101, &packet)
    };
    assert_eq!(with(0, 0x95), Err(Skip::BrokenIp), "version 9");
    assert_eq!(with(0, 0x41), Err(Skip::BrokenIp), "a header of 4 bytes");
    assert_eq!(with(3, 200), Err(Skip::BrokenIp), "longer than the frame");
    assert_eq!(with(25, 7), Err(Skip::BrokenUdp), "UDP of 7 bytes");
    assert_eq!(with(25, 99), Err(Skip::BrokenUdp), "UDP longer than the packet");
    for (link, length) in [(1, 13), (113, 15), (276, 19), (0, 3)] {
        assert_eq!(look(link, &vec![0; length]), Err(Skip::BrokenLink), "link type {link}");
    }
}
