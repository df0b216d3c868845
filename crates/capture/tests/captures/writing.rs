//! What is written is read back the same, also by others and after a kill.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use cistern_capture::{Datagram, Reader, Recorder, Writer};
use proptest::prelude::*;

use super::read;

fn datagram() -> impl Strategy<Value = Datagram> {
    let ip = prop_oneof![any::<[u8; 4]>().prop_map(std::net::IpAddr::from), any::<[u8; 16]>().prop_map(std::net::IpAddr::from)];
    let address = (ip, any::<u16>()).prop_map(SocketAddr::from);
    let payload = prop::collection::vec(any::<u8>(), 0..1_500);
    (any::<u32>(), 0..1_000_000_000_u32, address.clone(), address, payload).prop_map(|(seconds, nanoseconds, from, to, payload)| Datagram {
        number: 0,
        at: Duration::new(seconds.into(), nanoseconds),
        from,
        to,
        payload: payload.into(),
    })
}

/// An address as a packet of IPv6 has it.
fn in_v6(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) => address,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_datagrams_are_read_back_the_same(datagrams in prop::collection::vec(datagram(), 0..20)) {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        for datagram in &datagrams {
            writer.write(datagram.at, datagram.from, datagram.to, &datagram.payload).unwrap();
        }
        drop(writer);
        let (found, tally) = read(&file);
        prop_assert!(tally.is_clean(), "{tally}");
        let expected: Vec<_> = (1..).zip(datagrams).map(|(number, datagram)| {
            let mixed = datagram.from.is_ipv4() != datagram.to.is_ipv4();
            let (from, to) = if mixed { (in_v6(datagram.from), in_v6(datagram.to)) } else { (datagram.from, datagram.to) };
            Datagram { number, from, to, ..datagram }
        }).collect();
        prop_assert_eq!(found, expected);
    }
}

const FROM: &str = "127.0.0.1:4000";
const TO: &str = "[::1]:7311";

#[test]
fn the_largest_datagram_fits_and_a_larger_payload_is_refused_and_leaves_no_trace() {
    let (v4, v6): (SocketAddr, SocketAddr) = (FROM.parse().unwrap(), TO.parse().unwrap());
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    writer.write(Duration::ZERO, v4, v4, &[1; 65_507]).unwrap();
    writer.write(Duration::ZERO, v6, v6, &[1; 65_527]).unwrap();
    assert_eq!(writer.write(Duration::ZERO, v4, v4, &[2; 65_508]).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
    writer.write(Duration::ZERO, v4, v4, b"small").unwrap();
    drop(writer);
    let (found, tally) = read(&file);
    assert_eq!(found.iter().map(|datagram| datagram.payload.len()).collect::<Vec<_>>(), [65_507, 65_527, 5], "{tally}");
    assert!(tally.is_clean());
}

#[test]
fn what_was_flushed_is_readable_while_the_writer_lives_and_after_a_kill_in_the_middle_of_a_write() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let address: SocketAddr = FROM.parse().unwrap();
    let mut writer = Writer::create(path.path()).unwrap();
    let mut reader = Reader::new(File::open(path.path()).unwrap());
    assert!(reader.next_datagram().unwrap().is_none(), "the header alone is a capture");
    writer.write(Duration::from_secs(1), address, address, b"one").unwrap();
    writer.flush().unwrap();
    assert_eq!(reader.next_datagram().unwrap().expect("the first").payload, "one");
    // As if the process had died when a part of its next write was in the file.
    let mut torn = std::fs::OpenOptions::new().append(true).open(path.path()).unwrap();
    torn.write_all(&[1, 0, 0, 0, 9, 0]).unwrap();
    assert!(reader.next_datagram().unwrap().is_none());
    assert_eq!(reader.tally().unfinished_bytes, 6);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let path = std::path::Path::new("/nowhere/at/all.pcap");
    let error = Writer::create(path).expect_err("there is no such directory");
    assert!(error.to_string().contains("/nowhere/at/all.pcap"), "{error}");
    let error = Recorder::create(path).expect_err("there is no such directory");
    assert!(error.to_string().contains("/nowhere/at/all.pcap"), "{error}");
}

#[test]
fn what_many_threads_record_is_all_in_the_file_each_thread_in_its_order() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let recorder = Recorder::create(path.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u16 {
            let recorder = &recorder;
            scope.spawn(move || {
                let address = SocketAddr::from(([127, 0, 0, 1], thread));
                (0..500_u32).for_each(|n| recorder.record(Duration::from_secs(n.into()), address, address, &n.to_be_bytes()));
            });
        }
    });
    let recorded = recorder.finish();
    assert_eq!((recorded.written, recorded.left_out), (2_000, 0));
    let mut reader = Reader::new(File::open(path.path()).unwrap());
    let datagrams: Vec<_> = reader.by_ref().map(|datagram| datagram.unwrap()).collect();
    assert!(reader.tally().is_clean());
    for thread in 0..4 {
        let mine = datagrams.iter().filter(|datagram| datagram.from.port() == thread);
        assert!(mine.map(|datagram| datagram.payload.to_vec()).eq((0..500_u32).map(|n| n.to_be_bytes().to_vec())));
    }
}

#[test]
fn a_full_disk_is_told_and_later_datagrams_are_written_again() {
    /// Takes a number of bytes, then refuses once.
    struct Disk<'a>(&'a mut Vec<u8>, bool);
    impl Write for Disk<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if std::mem::take(&mut self.1) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let address: SocketAddr = FROM.parse().unwrap();
    let mut full = Vec::new();
    assert!(Writer::new(Disk(&mut full, true)).is_err());
    let mut file = Vec::new();
    let mut writer = Writer::new(Disk(&mut file, false)).unwrap();
    for text in [&b"one"[..], b"two"] {
        writer.write(Duration::from_secs(1), address, address, text).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    assert_eq!(read(&file).0.len(), 2);
}

/// What tshark says of each frame; nothing where it is not installed.
fn tshark(path: &std::path::Path) -> Option<String> {
    let fields =
        ["frame.number", "frame.time_epoch", "ip.src", "ipv6.src", "udp.srcport", "udp.dstport", "udp.payload", "udp.checksum.status"];
    let mut command = Command::new("tshark");
    command.args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=,", "-r"]).arg(path);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn wireshark_reads_what_was_written_and_finds_the_checksums_right() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let (v4, v6): (SocketAddr, SocketAddr) = (FROM.parse().unwrap(), TO.parse().unwrap());
    let mut writer = Writer::create(path.path()).unwrap();
    writer.write(Duration::new(1_700_000_000, 123_456_789), v4, v4, b"one").unwrap();
    writer.write(Duration::new(1_700_000_001, 1), v6, v6, b"two").unwrap();
    drop(writer);
    let Some(said) = tshark(path.path()) else {
        println!("skipped: no tshark here");
        return;
    };
    let expected = "1,1700000000.123456789,127.0.0.1,,4000,4000,6f6e65,1\n2,1700000001.000000001,,::1,7311,7311,74776f,1\n";
    assert_eq!(said, expected);
}
