//! Contents: offsets, holes, growing and shrinking, and what is no file.

use super::{World, code};
use cistern_wire::Status;

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
    a.write("abc").at(3).wait().unwrap();
    assert_eq!(w.read(&f), b"012abc6789");
    a.write("xyz").at(8).wait().unwrap();
    assert_eq!(w.read(&f), b"012abc67xyz");
    let version = w.stat(&f).unwrap().version();
    a.write("").at(5).wait().unwrap();
    assert_eq!(w.stat(&f).unwrap().version(), version, "no byte is no change");
    let none = u64::MAX;
    for (from, to, expected) in
        [(0, none, &b"012abc67xyz"[..]), (9, none, b"yz"), (9, 10, b"y"), (3, 6, b"abc"), (6, 3, b""), (11, none, b""), (none, none, b"")]
    {
        for read in [a.read(), b.read(), w.a.read(&f)] {
            assert_eq!(read.range(from..to).wait().unwrap().bytes, expected, "{from} to {to}");
        }
    }
    assert_eq!(a.read().range(..=2).wait().unwrap().bytes, "012");
    assert_eq!(a.read().range(9..).wait().unwrap().bytes, "yz");
}

fn holes_read_as_zeros(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, b"a");
    let file = w.a.open(&f).wait().unwrap();
    file.write("z").at(200_000).wait().unwrap();
    let whole = w.read(&f);
    assert_eq!((whole.len(), whole[0], whole[200_000]), (200_001, b'a', b'z'));
    assert!(whole[1..200_000].iter().all(|byte| *byte == 0));
    let block = 65_536;
    file.write("xy").at(block - 1).wait().unwrap();
    assert_eq!(w.b.open(&f).wait().unwrap().read().range(block - 2..block + 2).wait().unwrap().bytes, &b"\0xy\0"[..]);
}

fn files_are_cut_off_and_extended(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, &vec![7; 150_000]);
    let resize = |size: u64| w.a.set_metadata(&f).len(size).wait().unwrap();
    for size in [150_000, 140_000, 65_536, 65_535, 10, 0, 5, 0] {
        let before = w.stat(&f).unwrap();
        let after = resize(size);
        assert_eq!(after.len(), size);
        assert!(after.modified() > before.modified() && after.changed() == after.modified());
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
    assert_eq!(code(file.write("x").at(MIB).wait()), Status::EFBIG);
    assert_eq!(code(file.write("x").at(u64::MAX).wait()), Status::EFBIG);
    assert_eq!(code(w.a.set_metadata(&f).len(MIB + 1).wait()), Status::EFBIG);
    assert_eq!(code(w.a.write(&f, vec![0; (1 << 20) + 1]).wait()), Status::EFBIG);
    file.write("x").at(MIB - 1).wait().unwrap();
    assert_eq!(w.stat(&f).unwrap().len(), MIB);
}

fn only_files_have_contents(w: &World, d: &str) {
    w.a.symlink("x", format!("{d}/s")).wait().unwrap();
    assert_eq!(code(w.a.read(d).wait()), Status::EISDIR);
    assert_eq!(code(w.a.write(d, "x").wait()), Status::EISDIR);
    assert_eq!(code(w.a.set_metadata(d).len(0).wait()), Status::EISDIR);
    let dir = w.a.open(d).wait().unwrap();
    assert_eq!((code(dir.write("x").wait()), code(dir.read().wait())), (Status::EISDIR, Status::EISDIR));
    w.put(&format!("{d}/f"), b"");
    assert_eq!(code(w.a.read_dir(format!("{d}/f")).wait()), Status::ENOTDIR);
}

fn an_opened_file_goes_on_when_its_name_moves_and_ends_with_its_last_name(w: &World, d: &str) {
    let (f, g) = (format!("{d}/f"), format!("{d}/g"));
    w.put(&f, b"text");
    let opened = w.b.open(&f).wait().unwrap();
    assert_eq!(w.rename(&f, &g, cistern_wire::RenameRule::Replace), Status::OK);
    w.put(&f, b"another");
    assert_eq!(opened.read().wait().unwrap().bytes, "text");
    assert_eq!(w.unlink(&g), Status::OK);
    assert_eq!(code(opened.read().wait()), Status::ESTALE);
    assert_eq!(code(opened.write("x").wait()), Status::ESTALE);
    assert_eq!(w.read(&f), b"another");
}
