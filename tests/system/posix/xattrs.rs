//! Extended attributes through the client: rules, bounds, large values, and both agents.

use super::{World, code, os};
use cistern_wire::{Status, XattrRule};
use std::ffi::OsString;

#[test]
fn extended_attributes_are_what_linux_has() {
    World::start().run(&[
        ("rules", attributes_are_made_replaced_and_taken_away),
        ("names", names_and_values_have_bounds),
        ("large", large_values_and_many_names_come_whole),
        ("kinds", every_kind_of_object_has_them_and_links_are_followed),
    ]);
}

fn attributes_are_made_replaced_and_taken_away(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.file(&f);
    let set = |value: &'static str, rule| {
        let set = w.a.set_xattr(&f, "user.a", value);
        let set = match rule {
            XattrRule::Any => set,
            XattrRule::Create => set.if_absent(),
            XattrRule::Replace => set.if_present(),
        };
        code(set.wait())
    };
    assert_eq!(set("x", XattrRule::Replace), Status::ENODATA);
    assert_eq!(set("x", XattrRule::Create), Status::OK);
    assert_eq!(set("y", XattrRule::Create), Status::EEXIST);
    assert_eq!(w.b.get_xattr(&f, "user.a").wait().unwrap().value, "x");
    assert_eq!(set("y", XattrRule::Replace), Status::OK);
    assert_eq!(set("", XattrRule::Any), Status::OK);
    let got = w.b.get_xattr(&f, "user.a").wait().unwrap();
    assert_eq!((got.value.len(), got.version), (0, w.stat(&f).unwrap().version()));
    w.a.set_xattr(&f, "user.0", "z").wait().unwrap();
    assert_eq!(w.b.list_xattr(&f).wait().unwrap().names, ["user.0", "user.a"]);
    assert_eq!(code(w.b.remove_xattr(&f, "user.a").wait()), Status::OK);
    assert_eq!(code(w.a.remove_xattr(&f, "user.a").wait()), Status::ENODATA);
    assert_eq!(code(w.a.get_xattr(&f, "user.a").wait()), Status::ENODATA);
}

fn names_and_values_have_bounds(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.file(&f);
    let set = |name: Vec<u8>, value: Vec<u8>| code(w.a.set_xattr(&f, os(&name), value).wait());
    assert_eq!(set(vec![], vec![]), Status::ERANGE);
    assert_eq!(set(vec![b'n'; 256], vec![]), Status::ERANGE);
    assert_eq!(set(b"a\0".to_vec(), vec![]), Status::EINVAL);
    assert_eq!(set(vec![b'n'; 255], vec![0; 65_537]), Status::E2BIG);
    assert_eq!(set(vec![b'n'; 255], vec![1; 65_536]), Status::OK);
    assert_eq!(set(b"m".to_vec(), vec![1]), Status::ENOSPC);
    assert_eq!(w.b.get_xattr(&f, os(&[b'n'; 255])).wait().unwrap().value, vec![1; 65_536]);
    for name in [&b""[..], b"a\0", &[b'n'; 256]] {
        assert_ne!(code(w.a.get_xattr(&f, os(name)).wait()), Status::OK);
        assert_ne!(code(w.a.remove_xattr(&f, os(name)).wait()), Status::OK);
    }
    for byte in 1..=127u8 {
        assert_eq!(set(vec![0xFF - byte + 1, b'x'], vec![]), Status::OK, "any byte but NUL");
    }
    assert_eq!(set(b"one more".to_vec(), vec![]), Status::ENOSPC);
}

fn large_values_and_many_names_come_whole(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.file(&f);
    let names: Vec<OsString> = (0..128).map(|n| format!("user.{n:03}-{}", "x".repeat(200)).into()).collect();
    for (n, name) in (0u8..).zip(&names) {
        w.a.set_xattr(&f, name, vec![n; 300]).if_absent().wait().unwrap();
    }
    assert_eq!(code(w.a.set_xattr(&f, "one more", "").wait()), Status::ENOSPC);
    assert_eq!(w.b.list_xattr(&f).wait().unwrap().names, names);
    w.a.set_xattr(&f, &names[5], vec![9; 20_000]).if_present().wait().unwrap();
    assert_eq!(w.b.get_xattr(&f, &names[5]).wait().unwrap().value, vec![9; 20_000]);
    assert_eq!(w.b.get_xattr(&f, &names[6]).wait().unwrap().value, vec![6; 300]);
}

fn every_kind_of_object_has_them_and_links_are_followed(w: &World, d: &str) {
    let (f, s) = (format!("{d}/f"), format!("{d}/s"));
    w.file(&f);
    w.a.symlink("f", &s).wait().unwrap();
    w.a.set_xattr(&s, "a", "by the link").wait().unwrap();
    assert_eq!(w.b.get_xattr(&f, "a").wait().unwrap().value, "by the link");
    w.a.set_xattr(d, "a", "directory").wait().unwrap();
    assert_eq!(w.b.get_xattr(d, "a").wait().unwrap().value, "directory");
    w.a.set_xattr("/", "a", "root").wait().unwrap();
    assert_eq!(w.b.get_xattr("/", "a").wait().unwrap().value, "root");
}
