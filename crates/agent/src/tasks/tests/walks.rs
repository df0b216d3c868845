//! Paths: dots, links, slashes, partial answers, and that a path's end is of one instant.

use super::bench::{Bench, OWNER, at, attr, bytes, data, list, names, put, read, stat};
use super::toy::{Node, decode};
use crate::api::{Command, OpError, Output, Submitted};
use crate::call::Answer;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_wire::{Bytes16, Kind, List, Message, ObjectId, Reply, Status, Walked};

fn err(status: Status) -> Result<Output, OpError> {
    Err(OpError::Status(status))
}

fn dir() -> Node {
    Node::Dir(BTreeMap::new())
}

fn link(to: &str) -> Node {
    Node::Link(to.as_bytes().to_vec())
}

/// Numbers of `/other` and `/other/g`.
const OTHER: u64 = 6;
const G: u64 = 7;

/// `/a/b/c/f` with "deep", `/other/g` with "other"; links: `/a/jump` → `/other`, `/other/back` → `../a/b`, `/a/b/l` → `c/f`.
fn bench() -> Bench {
    let mut bench = Bench::new();
    let space = &mut bench.toy.space;
    let a = space.plant(1, "a", dir());
    let b = space.plant(a, "b", dir());
    let c = space.plant(b, "c", dir());
    space.plant(c, "f", Node::File(b"deep".to_vec()));
    let other = space.plant(1, "other", dir());
    space.plant(other, "g", Node::File(b"other".to_vec()));
    assert_eq!(other, OTHER);
    space.plant(a, "jump", link("/other"));
    space.plant(other, "back", link("../a/b"));
    space.plant(b, "l", link("c/f"));
    bench
}

/// What every path of these tests leads to; asked of a cold cache, of a warm one, and of one that may keep nothing.
fn leads_to(path: &str, wanted: &Result<&[u8], Status>) {
    let same = |got: &Result<Output, OpError>, how: &str| match wanted {
        Ok(bytes) => assert_eq!(data(got), *bytes, "{path}, {how}"),
        Err(status) => assert_eq!(*got, err(*status), "{path}, {how}"),
    };
    let mut bench = bench();
    same(&bench.run(read(path)), "cold");
    same(&bench.run(read(path)), "warm");
    for steps in 1..4 {
        let mut bench = self::bench();
        bench.toy.steps = steps;
        same(&bench.run(read(path)), "in partial walks");
        bench.toy.grants = false;
        bench.end_session();
        same(&bench.run(read(path)), "with nothing cached");
    }
}

#[test]
fn paths_lead_where_posix_says() {
    let cases: &[(&str, Result<&[u8], Status>)] = &[
        ("/a/b/c/f", Ok(b"deep")),
        ("a/b/c/f", Ok(b"deep")),
        ("//a///b/./c/././f", Ok(b"deep")),
        ("/a/b/c/../c/f", Ok(b"deep")),
        ("/../../a/b/c/f", Ok(b"deep")),
        ("/a/jump/g", Ok(b"other")),
        ("/a/b/l", Ok(b"deep")),
        // `..` goes up from where the link led to, not from where it stands.
        ("/a/jump/../a/b/l", Ok(b"deep")),
        ("/a/jump/back/../jump/g", Ok(b"other")),
        ("/a/jump/back/c/f", Ok(b"deep")),
        ("/a/jump/../other/back/l", Ok(b"deep")),
        ("/a/b/c/f/", Err(Status::ENOTDIR)),
        ("/a/b/l/", Err(Status::ENOTDIR)),
        ("/a/b/c/f/.", Err(Status::ENOTDIR)),
        ("/a/b/c/f/..", Err(Status::ENOTDIR)),
        ("/a/b/c/f/x", Err(Status::ENOTDIR)),
        ("/a/none/../b/l", Err(Status::ENOENT)),
        ("/a/b/", Err(Status::EISDIR)),
        ("/", Err(Status::EISDIR)),
        ("/..", Err(Status::EISDIR)),
        (".", Err(Status::EISDIR)),
        ("", Err(Status::ENOENT)),
        ("/a\0b", Err(Status::EINVAL)),
    ];
    for (path, wanted) in cases {
        leads_to(path, wanted);
    }
}

#[test]
fn names_and_paths_have_their_longest() {
    let long = "n".repeat(255);
    leads_to(&format!("/{long}"), &Err(Status::ENOENT));
    leads_to(&format!("/{long}n"), &Err(Status::ENAMETOOLONG));
    leads_to(&format!("/a/b/c/f/{long}n"), &Err(Status::ENOTDIR));
    leads_to(&format!("/none/{long}n"), &Err(Status::ENOENT));
    leads_to(&format!("/a/{}b/c/f", "./".repeat(2_000)), &Ok(b"deep"));
    leads_to(&"/".repeat(4_096), &Err(Status::ENAMETOOLONG));
}

#[test]
fn links_that_never_end_are_an_error() {
    let mut bench = bench();
    bench.toy.space.plant(1, "self", link("self"));
    bench.toy.space.plant(1, "ping", link("/pong/x"));
    bench.toy.space.plant(1, "pong", link("ping"));
    for path in ["/self", "/ping", "/pong/y", "/self/x"] {
        assert_eq!(bench.run(stat(path)), err(Status::ELOOP), "{path}");
        assert_eq!(bench.cached(stat(path)), err(Status::ELOOP), "{path}");
    }
}

#[test]
fn forty_links_are_followed_and_one_more_is_not() {
    let mut bench = bench();
    for n in 0..=40 {
        bench.toy.space.plant(1, &format!("l{n}"), link(&if n == 0 { String::from("a/b/l") } else { format!("l{}", n - 1) }));
    }
    assert_eq!(data(&bench.run(read("/l38"))), b"deep", "39 of them, and a/b/l");
    assert_eq!(bench.run(read("/l39")), err(Status::ELOOP));
}

#[test]
fn a_link_at_the_end_is_what_is_looked_at_unless_followed() {
    let mut bench = bench();
    let look = |path| Command::Stat { target: at(path), follow: false };
    for round in 0..2 {
        assert_eq!(attr(&bench.run(look("/a/b/l"))).size, 3, "round {round}");
        assert_eq!(attr(&bench.run(stat("/a/b/l"))).size, 4);
        assert_eq!(attr(&bench.run(look("/a/jump/"))).object, attr(&bench.run(stat("/other"))).object);
        assert_eq!(data(&bench.run(Command::ReadLink { target: at("/a/jump") })), b"/other");
        assert_eq!(data(&bench.run(Command::ReadLink { target: at("/a/jump/back") })), b"../a/b");
    }
}

#[test]
fn what_a_dangling_link_points_to_can_be_made_through_it() {
    let mut bench = bench();
    bench.toy.space.plant(1, "dangling", link("other/made"));
    assert_eq!(bench.run(read("/dangling")), err(Status::ENOENT));
    bench.run(put("/dangling", b"now")).unwrap();
    assert_eq!(names(&bench.run(list("/other"))), ["back", "g", "made"]);
    assert_eq!(data(&bench.cached(read("/other/made"))), b"now");
}

#[test]
fn a_link_that_comes_between_walk_and_creation_is_followed() {
    let mut bench = bench();
    for command in [put("/new", b"x"), Command::Create { path: bytes("/new2"), exclusive: false, ephemeral: false, owner: OWNER }] {
        let op = bench.start(command.clone());
        let answer = bench.execute();
        bench.deliver(&answer);
        let name = if matches!(command, Command::Put { .. }) { "new" } else { "new2" };
        bench.others(&[1], |toy| toy.space.plant(1, name, link("other/g")));
        bench.pump();
        assert_eq!(attr(&bench.ended(op).unwrap()).object, ObjectId(G), "{command:?}");
    }
    assert_eq!(data(&bench.run(read("/other/g"))), b"x");
}

#[test]
fn one_lookup_asks_for_all_that_is_left_and_fits_the_smallest_datagram() {
    let mut bench = bench();
    bench.run(stat("/a/b")).unwrap();
    bench.start(read("/a/b/./c/f"));
    let Message::Lookup(message) = decode(&bench.out[0].message) else { panic!("a LOOKUP") };
    let asked: Vec<&[u8]> = message.names.iter().map(|name| name.0).collect();
    assert_eq!(asked, [b"c", b"f"]);
    bench.out.clear();
    bench.start(stat(&"/some-name".repeat(300)));
    assert!(bench.out[0].message.len() <= 548 - 20 - 16);
    bench.out.clear();
    bench.start(stat("/other/x/../y"));
    let Message::Lookup(message) = decode(&bench.out[0].message) else { panic!("a LOOKUP") };
    assert_eq!(message.names.len(), 2, "up to the next `..`");
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# An answer made from several cached objects MUST be true at one instant: when the last was read, all locks used are held, and the objects
//# have the versions read.
#[test]
fn an_edge_that_was_moved_while_the_walk_waited_does_not_count() {
    // A has /d → b cached and waits for b's names; B moves d away, then makes the name that A is looking for.
    let mut bench = Bench::new();
    let b = bench.toy.space.plant(1, "d", dir());
    let space = &mut bench.toy.space;
    let decoy = space.plant(1, "decoy", dir());
    bench.run(stat("/d")).unwrap();
    let op = bench.start(stat("/d/c"));
    bench.others(&[1, b, decoy], |toy| {
        let names = match &mut toy.space.objects.get_mut(&1).unwrap().node {
            Node::Dir(names) => names,
            _ => panic!("the root is a directory"),
        };
        names.remove(b"d".as_slice());
        names.insert(b"moved".to_vec(), b);
        toy.space.plant(b, "c", Node::File(Vec::new()));
    });
    bench.pump();
    assert_eq!(bench.ended(op), Some(err(Status::ENOENT)), "/d/c never existed");
    assert!(bench.run(stat("/moved/c")).is_ok());
}

#[test]
fn a_name_and_its_attributes_are_of_one_instant() {
    let mut bench = bench();
    bench.run(list("/other")).unwrap();
    bench.seen.clear();
    let op = bench.start(stat("/other/g"));
    let answer = bench.execute();
    assert_eq!(bench.seen, [Kind::GetAttr]);
    bench.others(&[OTHER, G], |toy| match &mut toy.space.objects.get_mut(&OTHER).unwrap().node {
        Node::Dir(names) => names.remove(b"g".as_slice()),
        _ => panic!("a directory"),
    });
    bench.deliver(&answer);
    bench.pump();
    assert_eq!(bench.ended(op), Some(err(Status::ENOENT)));
}

#[test]
fn a_directory_that_changes_all_the_time_is_walked_by_the_server_in_the_end() {
    let mut bench = bench();
    bench.run(list("/other")).unwrap();
    let op = bench.start(stat("/other/g"));
    let mut rounds = 0;
    while !bench.out.is_empty() {
        rounds += 1;
        let answer = bench.execute();
        bench.others(&[OTHER], |_| ());
        bench.deliver(&answer);
    }
    assert_eq!(attr(&bench.ended(op).unwrap()).size, 5);
    assert!(rounds < 12, "{rounds} rounds");
}

#[test]
fn a_walk_that_stands_still_ends() {
    let mut bench = bench();
    let op = bench.start(stat("/a/b"));
    let steps = [];
    let nothing = Walked { status: Status::OK, steps: List::of(&steps), target: Bytes16(b"") };
    bench.answer_next(&Answer::Reply(Reply::Walked(nothing)));
    assert_eq!(bench.ended(op), Some(err(Status::EPROTO)));
    bench.toy.steps = 0;
    let op = bench.start(stat("/a/b"));
    bench.pump();
    assert_eq!(bench.ended(op), Some(err(Status::EPROTO)));
}

#[test]
fn the_root_is_found_without_a_lookup() {
    let mut bench = bench();
    assert_eq!(attr(&bench.run(stat("/"))).object, ObjectId(1));
    assert_eq!(bench.seen, [Kind::GetAttr]);
    assert!(matches!(bench.submit(stat("/..")), Submitted::Now(Ok(_))));
    assert_eq!(bench.cached(Command::Rmdir { path: bytes("/") }), err(Status::EBUSY));
}
