//! What is fed, with what it must keep besides not panicking.

use crate::{credentials, joiner, outcome};
use cistern_audit::{Auditor, Side, Terms, Vantage};
use cistern_capture::{Reader, Writer};
use cistern_seal::{Chain, Cipher, SessionKeys};
use cistern_server::store::Key;
use cistern_wire::limits::{DATAGRAM_MAX, HEADER_LEN};
use cistern_wire::sealed::{OpenPayload, SealedDatagram, WelcomePayload};
use cistern_wire::{
    Datagram, DatagramTree, Direction, DropReason, Envelope, Form, Header, KeepAlive, Lane, Message, Packer, SessionId,
    open_payload_sample, samples, sealed_samples, welcome_payload_sample,
};
use std::mem::discriminant;
use std::time::Duration;

/// A decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Reads an input; what it came to.
    pub run: fn(&[u8]) -> u64,
    /// Sound inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Makes right what holds an input together (a checksum), so that what is behind it is reached.
    pub mend: fn(&mut [u8]),
}

/// All of them.
pub const TARGETS: [Target; 14] = [
    Target { name: "server", about: "datagrams, as a server receives them", run: at_server, seeds: datagrams, mend: seal },
    Target { name: "agent", about: "datagrams, as an agent receives them", run: at_agent, seeds: datagrams, mend: seal },
    Target { name: "sealed", about: "handshakes and records of the sealed mode", run: sealed, seeds: sealed_datagrams, mend: leave },
    Target { name: "joiner", about: "what a server says to a host that joins", run: joiner::told, seeds: joiner::words, mend: leave },
    Target { name: "capture", about: "capture files, and the auditor behind them", run: capture, seeds: captures, mend: leave },
    Target { name: "control", about: "lines on a server's control socket", run: control, seeds: control_lines, mend: leave },
    Target { name: "host-agent", about: "lines on a host agent's socket", run: host_agent, seeds: agent_lines, mend: leave },
    Target { name: "settings", about: "settings files", run: settings, seeds: settings_files, mend: leave },
    Target { name: "script", about: "scripts of cistern-netfault", run: script, seeds: scripts, mend: leave },
    Target { name: "key", about: "keys of a store", run: key, seeds: keys, mend: leave },
    Target {
        name: "credentials",
        about: "texts and bytes of keys, invites, requests and grants",
        run: credentials::forms,
        seeds: credentials::texts,
        mend: leave,
    },
    Target {
        name: "cluster",
        about: "cluster.toml, with the roster in it",
        run: credentials::cluster,
        seeds: credentials::clusters,
        mend: leave,
    },
    Target {
        name: "roster",
        about: "rosters, signed anew",
        run: credentials::roster,
        seeds: credentials::rosters,
        mend: credentials::sign,
    },
    Target { name: "revoked", about: "logs of revoked keys", run: credentials::revoked, seeds: credentials::revoked_logs, mend: leave },
];

fn leave(_: &mut [u8]) {}

/// Puts the right checksum at the end.
fn seal(input: &mut [u8]) {
    if let Some(covered) = input.len().checked_sub(4) {
        let checksum = crc32fast::hash(&input[..covered]);
        input[covered..].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn at_server(input: &[u8]) -> u64 {
    received(input, Datagram::at_server(input))
}

fn at_agent(input: &[u8]) -> u64 {
    received(input, Datagram::at_agent(input))
}

/// A receiver takes what an onlooker finds sound, and drops the rest for the same reason; what is taken is written again as it was.
fn received(input: &[u8], received: Result<Datagram<'_>, DropReason>) -> u64 {
    let seen = Datagram::seen(input).err();
    assert_eq!(DatagramTree::of(input).reason, seen, "the inspector and the receiver disagree");
    match received {
        Err(reason) => {
            assert!(Some(reason) == seen || reason == DropReason::WrongDirection, "dropped for {reason:?}, but seen as {seen:?}");
            outcome((reason.name(), format!("{reason:?}").len()))
        }
        Ok(datagram) => {
            assert_eq!(seen, None);
            let messages: Vec<Message<'_>> = datagram.messages().collect();
            let mut again = Vec::new();
            let mut packer = Packer::new(&mut again, datagram.header, DATAGRAM_MAX);
            for message in &messages {
                assert!(packer.push(message), "what was read does not fit into a datagram");
            }
            packer.finish();
            assert_eq!(again, input, "what was read is written otherwise");
            outcome(messages.iter().map(|message| message.kind() as u8).collect::<Vec<_>>())
        }
    }
}

fn datagrams() -> Vec<Vec<u8>> {
    let datagram = |message: &Message<'_>| {
        let kind = message.kind();
        let session = if kind.lane() == Lane::Handshake { 0 } else { 9 };
        let header = Header { from_server: kind.direction() == Direction::Server, session: SessionId(session), packet: 7 };
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MAX);
        packer.push(message);
        packer.finish();
        bytes
    };
    samples().iter().map(datagram).collect()
}

/// What is read of a handshake is written again as it was, from either side; no record opens but the sound one.
fn sealed(input: &[u8]) -> u64 {
    let handshakes = [SealedDatagram::at_server(input), SealedDatagram::at_agent(input)];
    for datagram in handshakes.iter().flatten() {
        let mut again = Vec::new();
        datagram.write(&mut again);
        assert_eq!(again, input, "what was read is written otherwise");
    }
    let (mut keys, mut text) = (SessionKeys::new(&chain(), Direction::Server, Duration::ZERO), Vec::new());
    let opened = keys.open(&mut Cipher::default(), Duration::ZERO, input, &mut text).ok();
    assert_eq!(opened.is_some(), input == sealed_record(), "what nobody sealed opens");
    let kinds = handshakes.map(|read| read.map(|datagram| datagram.body.kind() as u8).map_err(|reason| reason.name()));
    // Whether or not it opens: what is behind it is reached.
    let messages = opened.or(input.get(HEADER_LEN..)).unwrap_or_default();
    let decoded = Envelope::of_record(input, Direction::Agent).and_then(|envelope| envelope.decode_messages(messages).map(|_| ()));
    outcome((
        kinds,
        decoded.map_err(|reason| reason.name()),
        opened.is_some(),
        OpenPayload::of(input).is_ok(),
        WelcomePayload::of(input).is_ok(),
    ))
}

fn sealed_datagrams() -> Vec<Vec<u8>> {
    let written = |datagram: &SealedDatagram| {
        let mut bytes = Vec::new();
        datagram.write(&mut bytes);
        bytes
    };
    let payloads = [open_payload_sample().padded::<{ OpenPayload::OPEN_LEN }>().to_vec(), welcome_payload_sample().padded().to_vec()];
    sealed_samples().iter().map(written).chain(payloads).chain([sealed_record()]).collect()
}

/// A record that opens.
fn sealed_record() -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { from_server: false, session: SessionId(9), packet: 7 };
    let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MAX, Form::Record);
    packer.push(&Message::KeepAlive(KeepAlive { serial: 1, clock_us: 1 }));
    packer.finish();
    SessionKeys::new(&chain(), Direction::Agent, Duration::ZERO).seal(&mut Cipher::default(), Duration::ZERO, &mut bytes);
    bytes
}

fn chain() -> Chain {
    Chain::from_bytes([7; 32])
}

fn capture(input: &[u8]) -> u64 {
    let mut auditor = Auditor::new(Vantage { side: Side::Server, ..Vantage::default() }, Terms::default());
    let (mut reader, mut datagrams) = (Reader::new(input), 0_u32);
    let end = loop {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                auditor.take((&datagram).into());
                datagrams += 1;
            }
            Ok(None) => break None,
            Err(error) => break Some(discriminant(&error)),
        }
    };
    let report = auditor.report();
    outcome((datagrams.min(16), end, report.violations.len().min(16), report.tally.sessions.min(4), report.tally.foreign.min(4)))
}

fn captures() -> Vec<Vec<u8>> {
    let (agent, server) = (([10, 0, 0, 2], 40_000).into(), ([10, 0, 0, 1], 7_311).into());
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).expect("memory takes all");
    for (n, datagram) in (0_u64..).zip(datagrams().iter().take(6)) {
        let from_server = Datagram::seen(datagram).is_ok_and(|datagram| datagram.header.from_server);
        let (from, to) = if from_server { (server, agent) } else { (agent, server) };
        writer.write(Duration::from_millis(n), from, to, datagram).expect("memory takes all");
    }
    writer.flush().expect("memory takes all");
    drop(writer);
    let recorded = ["normal", "contended", "partition"].map(|name| {
        let file = format!("{}/../dump/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
        // The beginning: what is cut off is broken, too.
        std::fs::read(file).map(|bytes| bytes[..bytes.len().min(8 << 10)].to_vec()).unwrap_or_default()
    });
    [bytes].into_iter().chain(recorded).collect()
}

fn control(input: &[u8]) -> u64 {
    outcome(std::str::from_utf8(input).map(cistern_cli::decode::control_line).ok())
}

fn control_lines() -> Vec<Vec<u8>> {
    lines(&[r#"{"op":"status"}"#, r#"{"op":"evict","agent":"web-1"}"#, r#"{"op":"backup","dir":"/var/backup"}"#, r#"{"op":"settings"}"#])
}

/// What is understood is written so that it is understood as the same.
fn host_agent(input: &[u8]) -> u64 {
    outcome(cistern_cli::decode::host_agent_line(input).map(|written| {
        assert_eq!(cistern_cli::decode::host_agent_line(written.as_bytes()).as_deref(), Ok(&written[..]));
        written.split("\"op\":\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    }))
}

fn agent_lines() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"id":1,"op":"lock","path":"/a","shared":false,"wait_ms":20000}"#,
        r#"{"id":2,"op":"unlock","hold":3}"#,
        r#"{"id":3,"guard":1,"op":"put","path":"/a","data":"text","mode":"0644"}"#,
        r#"{"id":4,"deadline_ms":50,"op":"put","path":{"b64":"L2E="},"data":{"b64":"AAEC"}}"#,
        r#"{"id":5,"op":"stat","path":"/a","follow":true}"#,
        r#"{"id":6,"op":"read","path":"/a"}"#,
        r#"{"id":7,"op":"lease"}"#,
    ])
}

fn settings(input: &[u8]) -> u64 {
    outcome(std::str::from_utf8(input).map(cistern_cli::decode::settings_file).ok())
}

fn settings_files() -> Vec<Vec<u8>> {
    lines(&[
        "[server]\nlease = \"12s\"\ndelta = 0.01\nsessions-max = 1000\n[agent]\nidle = \"lazy\"\nphase-valid = 0.5\n",
        "# a remark\n[client]\nserver = [\"127.0.0.1:7311\", \"[::1]:7311\"]\n[log]\nfilter = \"info\"\n",
        "server.lease = \"1m\"\nserver.network-sessions-max = 1\n",
    ])
}

fn script(input: &[u8]) -> u64 {
    let read = std::str::from_utf8(input).ok().map(cistern_netfault::script::parse);
    outcome(read.map(|script| script.map(|events| events.len()).map_err(|mistake| mistake.to_string().len())))
}

fn scripts() -> Vec<Vec<u8>> {
    lines(&[
        "0s delay 5ms jitter 2ms\n1s loss 10% a->s\n2s cut agent web-1 s->a\n3s heal\n",
        "1m30s rate 4mbit queue 500ms # a remark\n2m flap 300ms\n2m duplicate 5% within 5ms\n3m end\n",
        "0s reorder 10% by 10ms\n0s corrupt 2% kind DEMAND\n0s loss 100% agent 10.0.0.2:4001\n",
    ])
}

fn key(input: &[u8]) -> u64 {
    match Key::from_bytes(input) {
        Ok(key) => {
            assert_eq!(key.to_bytes(), input, "a key is written otherwise than it was read");
            outcome(discriminant(&key))
        }
        Err(error) => outcome(format!("{error:?}").len()),
    }
}

fn keys() -> Vec<Vec<u8>> {
    use cistern_server::store::Counter;
    use cistern_wire::ObjectId;
    let keys = [Key::Counter(Counter::Epoch), Key::Session(SessionId(9)), Key::Entry(ObjectId(2), (*b"name").into())];
    keys.iter().map(Key::to_bytes).collect()
}

fn lines(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
