//! The Wireshark dissector on what real programs said: tshark reads every field of it as `cistern-dump` does.

use cistern_capture::{Datagram, Reader};
use cistern_testkit::{Agent, Server};
use cistern_wire::{Kind, Message};
use cistern_wireshark::view::compare::assert_alike;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;

#[test]
fn wireshark_reads_what_the_programs_said() {
    let mut server = Server::start();
    let file = server.captures.file("server", 1);
    let [mut one, mut other] = ["A", "B"].map(|label| Agent::start(&server, label));
    one.put("/f", "some text");
    one.put("/g", "some more");
    other.read("/f").unwrap();
    other.put("/f", "another text");
    one.read("/f").unwrap();
    let (hold, _) = one.lock("/f");
    server.ok(&["locks"]);
    server.ok(&["mkdir", "-p", "/d/e"]);
    server.ok(&["ln", "-s", "/f", "/d/l"]);
    server.ok(&["xattr", "set", "/f", "user.a", "value"]);
    server.ok(&["xattr", "get", "/f", "user.a"]);
    server.ok(&["mv", "/g", "/d/g"]);
    server.ok(&["ls", "-l", "/d"]);
    server.ok(&["ping"]);
    assert!(!server.cistern(&["cat", "/nowhere"]).status.success());
    one.unlock(hold);
    let (hold, _) = other.lock("/f");
    other.unlock(hold);
    one.ok(json!({ "op": "ping" }));
    assert_eq!((one.process.end(), other.process.end(), server.process.end()), (Some(0), Some(0), Some(0)));
    let datagrams: Vec<Datagram> = Reader::new(File::open(&file).unwrap()).map(Result::unwrap).collect();
    let sound = datagrams.iter().map(|datagram| cistern_wire::Datagram::seen(&datagram.payload).unwrap());
    let kinds: BTreeSet<Kind> =
        sound.flat_map(|datagram| datagram.messages().map(|message: Message<'_>| message.kind()).collect::<Vec<_>>()).collect();
    for kind in [Kind::Hello, Kind::Welcome, Kind::Demand, Kind::Receipt, Kind::Release, Kind::Lock, Kind::SetXattr, Kind::Ack] {
        assert!(kinds.contains(&kind), "no {} among {kinds:?}", kind.name());
    }
    assert_alike(&file, &[], &datagrams);
}
