//! Contents: offsets, holes, growing and shrinking, and what is no file.

use super::{OWNER, World, code};
use cistern_client::{AttrChange, Status};

const MIB: u64 = 1 << 20;

#[test]
fn contents_are_read_and_written_as_posix_says() {
    World::start().run(&[
        ("offsets", bytes_are_written_and_read_at_offsets),
        ("holes", holes_read_as_zeros),
        ("truncate", files_are_cut_off_and_extended),
        ("bounds", contents_have_at_most_one_mebibyte),
        ("kinds", only_files_have_contents),
        ("open", an_opened_file_goes_on_when_its_name_moves_and_ends_with_its_last_name),
    ]);
}

fn bytes_are_written_and_read_at_offsets(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, b"0123456789");
    let (a, b) = (w.a.open(&f).wait().unwrap(), w.b.open(&f).wait().unwrap());
    a.write(3, "abc", None).wait().unwrap();
    assert_eq!(w.read(&f), b"012abc6789");
    a.write(8, "xyz", None).wait().unwrap();
    assert_eq!(w.read(&f), b"012abc67xyz");
    let version = w.stat(&f).unwrap().version;
    a.write(5, "", None).wait().unwrap();
    assert_eq!(w.stat(&f).unwrap().version, version, "no byte is no change");
    for (offset, length, expected) in
        [(0, None, &b"012abc67xyz"[..]), (9, None, b"yz"), (9, Some(1), b"y"), (3, Some(3), b"abc"), (11, None, b""), (u64::MAX, None, b"")]
    {
        for file in [&a, &b] {
            assert_eq!(file.read(offset, length).wait().unwrap().data, expected, "{offset} {length:?}");
        }
    }
}

fn holes_read_as_zeros(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, b"a");
    let file = w.a.open(&f).wait().unwrap();
    file.write(200_000, "z", None).wait().unwrap();
    let whole = w.read(&f);
    assert_eq!((whole.len(), whole[0], whole[200_000]), (200_001, b'a', b'z'));
    assert!(whole[1..200_000].iter().all(|byte| *byte == 0));
    let block = 65_536;
    file.write(block - 1, "xy", None).wait().unwrap();
    assert_eq!(w.b.open(&f).wait().unwrap().read(block - 2, Some(4)).wait().unwrap().data, &b"\0xy\0"[..]);
}

fn files_are_cut_off_and_extended(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, &vec![7; 150_000]);
    let resize = |size| w.a.set_attr(&f, AttrChange { size: Some(size), ..AttrChange::default() }).wait().unwrap();
    for size in [150_000, 140_000, 65_536, 65_535, 10, 0, 5, 0] {
        let before = w.stat(&f).unwrap();
        let after = resize(size);
        assert_eq!(after.size, size);
        assert!(after.mtime_ns > before.mtime_ns && after.ctime_ns == after.mtime_ns);
        assert_eq!(w.read(&f).len() as u64, size);
    }
    w.put(&f, b"abcdef");
    resize(3);
    resize(6);
    assert_eq!(w.read(&f), b"abc\0\0\0", "what was cut off does not come back");
    resize(MIB);
    assert_eq!(w.read(&f).len() as u64, MIB);
    resize(2);
    assert_eq!(w.read(&f), b"ab");
}

fn contents_have_at_most_one_mebibyte(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, &vec![1; 1 << 20]);
    let file = w.a.open(&f).wait().unwrap();
    assert_eq!(code(file.write(MIB, "x", None).wait()), Status::EFBIG);
    assert_eq!(code(file.write(u64::MAX, "x", None).wait()), Status::EFBIG);
    assert_eq!(code(w.a.set_attr(&f, AttrChange { size: Some(MIB + 1), ..AttrChange::default() }).wait()), Status::EFBIG);
    assert_eq!(code(w.a.put(&f, vec![0; (1 << 20) + 1], OWNER).wait()), Status::EFBIG);
    file.write(MIB - 1, "x", None).wait().unwrap();
    assert_eq!(w.stat(&f).unwrap().size, MIB);
}

fn only_files_have_contents(w: &World, d: &str) {
    w.a.symlink("x", format!("{d}/s"), OWNER).wait().unwrap();
    let size = AttrChange { size: Some(0), ..AttrChange::default() };
    assert_eq!(code(w.a.read(d).wait()), Status::EISDIR);
    assert_eq!(code(w.a.put(d, "x", OWNER).wait()), Status::EISDIR);
    assert_eq!(code(w.a.set_attr(d, size).wait()), Status::EISDIR);
    let dir = w.a.open(d).wait().unwrap();
    assert_eq!((code(dir.write(0, "x", None).wait()), code(dir.read(0, None).wait())), (Status::EISDIR, Status::EISDIR));
    w.put(&format!("{d}/f"), b"");
    assert_eq!(code(w.a.list(format!("{d}/f"), false).wait()), Status::ENOTDIR);
}

fn an_opened_file_goes_on_when_its_name_moves_and_ends_with_its_last_name(w: &World, d: &str) {
    let (f, g) = (format!("{d}/f"), format!("{d}/g"));
    w.put(&f, b"text");
    let opened = w.b.open(&f).wait().unwrap();
    assert_eq!(w.rename(&f, &g, cistern_client::RenameRule::Replace), Status::OK);
    w.put(&f, b"another");
    assert_eq!(opened.read(0, None).wait().unwrap().data, "text");
    assert_eq!(w.unlink(&g), Status::OK);
    assert_eq!(code(opened.read(0, None).wait()), Status::ESTALE);
    assert_eq!(code(opened.write(0, "x", None).wait()), Status::ESTALE);
    assert_eq!(w.read(&f), b"another");
}
