//! Import and export: that they can be repeated, and that what comes out of a hostile server or from a hostile user of a good one
//! touches nothing outside of the directory that was named.

use cistern_testkit::{CISTERN, Server, command, said};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Duration;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tree with a file, a directory and links; gives the directory that it is in.
fn local_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/file"), "text").unwrap();
    symlink("sub/file", from.join("link")).unwrap();
    symlink("../link", from.join("sub/up")).unwrap();
    dir
}

#[test]
fn imports_and_exports_can_be_repeated_links_included() {
    let server = Server::start();
    let dir = local_tree();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let looks = [(); 2].map(|()| {
        server.ok(&["import", text(&from), "/tree"]);
        server.ok(&["export", "/tree", text(&to)]);
        ["/tree", "/tree/sub", "/tree/sub/file", "/tree/link"].map(|path| server.ok(&["stat", "--json", path]))
    });
    assert_eq!(looks[0], looks[1], "the second import has changed something");
    // The same size, time and permission bits, but other contents.
    let times = fs::metadata(from.join("sub/file")).unwrap().modified().unwrap();
    fs::write(from.join("sub/file"), "TEXT").unwrap();
    fs::File::options().write(true).open(from.join("sub/file")).unwrap().set_modified(times).unwrap();
    server.ok(&["import", text(&from), "/tree"]);
    assert_eq!(server.ok(&["cat", "/tree/sub/file"]), "TEXT");
    // What has changed meanwhile is changed there, too.
    fs::remove_file(from.join("link")).unwrap();
    symlink("sub", from.join("link")).unwrap();
    fs::write(from.join("sub/file"), "other").unwrap();
    server.ok(&["import", text(&from), "/tree"]);
    server.ok(&["export", "/tree", text(&to)]);
    let diff = std::process::Command::new("diff").args(["-r", "--no-dereference"]).args([&from, &to]).output().unwrap();
    assert!(diff.status.success(), "{}", said(&diff));
}

#[test]
fn an_export_follows_no_link_of_the_one_before() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (to, outside) = (dir.path().join("to"), dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), "kept").unwrap();
    server.ok(&["mkdir", "/t"]);
    server.ok(&["ln", "-s", text(&outside), "/t/a"]);
    server.ok(&["ln", "-s", text(&outside.join("keep")), "/t/f"]);
    let refused = server.cistern(&["export", "/t", text(&to)]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(error(&refused).contains("--unsafe-links"), "{}", said(&refused));
    assert!(fs::symlink_metadata(to.join("a")).is_err());
    server.ok(&["export", "--unsafe-links", "/t", text(&to)]);
    assert_eq!(fs::read_link(to.join("a")).unwrap(), outside);
    // Now a directory and a file have those names.
    server.ok(&["rm", "/t/a"]);
    server.ok(&["rm", "/t/f"]);
    server.ok(&["mkdir", "/t/a"]);
    for path in ["/t/a/authorized_keys", "/t/f"] {
        server.ok(&["touch", path]);
    }
    let second = server.cistern(&["export", "/t", text(&to)]);
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    assert_eq!(fs::read(outside.join("keep")).unwrap(), b"kept");
    assert!(!outside.join("authorized_keys").exists());
    assert!(error(&second).contains("symbolic link"), "{}", said(&second));
    assert_eq!(fs::read(to.join("f")).unwrap(), b"", "the file has replaced the link");
}

#[test]
fn an_export_makes_no_program_that_runs_as_somebody_else() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    server.ok(&["mkdir", "/t"]);
    for (path, mode) in [("/t/suid", "4755"), ("/t/all", "7777"), ("/t/mine", "600")] {
        server.ok(&["touch", path]);
        server.ok(&["chmod", mode, path]);
    }
    server.ok(&["export", "/t", text(&to)]);
    assert_eq!([mode(&to.join("suid")), mode(&to.join("all")), mode(&to.join("mine"))], [0o755, 0o777, 0o600]);
    server.ok(&["export", "--preserve-special", "/t", text(&to)]);
    assert_eq!(mode(&to.join("suid")), 0o4755);
}

#[test]
fn an_import_takes_a_link_as_a_link_and_waits_for_no_pipe() {
    let server = Server::start();
    let dir = local_tree();
    let from = dir.path().join("from");
    symlink("/etc", from.join("etc")).unwrap();
    nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(from.join("large"), vec![0; (1 << 20) + 1]).unwrap();
    let output = server.cistern(&["import", text(&from), "/t"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(error(&output).contains("pipe") && error(&output).contains("1048577 bytes"), "{}", said(&output));
    // A program is told by an error, too.
    let output = server.cistern(&["import", "--json", text(&from), "/t"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    assert_eq!((output.status.code(), &error["error"]["code"]), (Some(1), &"LEFT_OUT".into()), "{}", said(&output));
    assert_eq!(server.ok(&["ls", "/t"]), "etc\nlink\nsub\n");
    assert!(server.ok(&["stat", "/t/etc"]).contains("symlink"));
}

#[test]
fn names_of_a_hostile_server_make_no_file_anywhere() {
    let server = Server::start();
    server.captures.have_hostile_datagrams();
    server.ok(&["mkdir", "/t"]);
    server.ok(&["touch", "/t/AA_dotdot"]);
    server.ok(&["mkdir", "/u"]);
    server.ok(&["touch", "/u/BB\u{1b}_"]);
    let dir = tempfile::tempdir().unwrap();
    let hostile = renaming(server.address, b"AA_dotdot", b"../dotdot");
    let export = |path: &str, to: &str| {
        let to = dir.path().join("in").join(to);
        let args = ["export", "--server", &hostile.to_string(), path, text(&to)];
        command(CISTERN, &args).output().unwrap()
    };
    let output = export("/t", "to");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!dir.path().join("in/dotdot").exists() && !dir.path().join("dotdot").exists());
    // A name may have an escape sequence in it; a terminal does not see it.
    let output = export("/u", "esc\u{1b}[31m\u{202e}");
    assert!(output.status.success(), "{}", said(&output));
    fs::create_dir(dir.path().join("in/esc\u{1b}[31m\u{202e}/d")).unwrap();
    fs::create_dir_all(dir.path().join("in/there/BB\u{1b}_")).unwrap();
    let output = export("/u", "there");
    assert!(error(&output).contains("\\x1b"), "{}", said(&output));
    assert!(!output.stderr.contains(&0x1b) && !error(&output).contains('\u{202e}'), "{}", said(&output));
}

/// The address of a server that gives another name, of the same length, wherever the true one gives `name`.
fn renaming(server: SocketAddr, name: &'static [u8], other: &'static [u8]) -> SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap();
    back.connect(server).unwrap();
    // The threads end with the process of the tests.
    let (to_agent, from_server) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let agent = std::sync::Arc::new(std::sync::Mutex::new(None));
    let known = std::sync::Arc::clone(&agent);
    thread::spawn(move || {
        let mut bytes = [0; 9_000];
        while let Ok((count, from)) = front.recv_from(&mut bytes) {
            *known.lock().unwrap() = Some(from);
            let _ = back.send(&bytes[..count]);
        }
    });
    thread::spawn(move || {
        let mut bytes = [0; 9_000];
        loop {
            let Ok(count) = from_server.recv(&mut bytes) else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let datagram = &mut bytes[..count];
            if let Some(at) = datagram.windows(name.len()).position(|bytes| bytes == name) {
                datagram[at..at + name.len()].copy_from_slice(other);
                let checked = count - 4;
                let sum = crc32(&datagram[..checked]).to_be_bytes();
                datagram[checked..].copy_from_slice(&sum);
            }
            if let Some(agent) = *agent.lock().unwrap() {
                let _ = to_agent.send_to(datagram, agent);
            }
        }
    });
    address
}

/// The checksum of `wire-spec.md` section 3.3.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
