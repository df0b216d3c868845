//! A disk that fails or is full, under a real server (R61, R62).

use crate::world::{Server, base64, eventually, said};
use nix::unistd::geteuid;
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Puts files of 64 KiB until one is refused; how many there are, and what the refusal said.
fn fill(server: &Server, dir: &str) -> (u32, String) {
    let agent = crate::world::Agent::start(server, dir);
    let (mut line, data) = (agent.line(), base64(&vec![0x5A; 1 << 16]));
    line.ok(json!({ "op": "mkdir", "path": format!("/{dir}"), "mode": 0o755 }));
    for n in 0..4_000 {
        if let Err(error) = line.ask(&json!({ "op": "put", "path": format!("/{dir}/{n}"), "data": data, "mode": 0o644 })) {
            return (n, error.to_string());
        }
    }
    panic!("never full");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# After a write or a sync of the store has failed the server MUST stop.
#[test]
fn a_server_whose_disk_fails_a_write_ends_and_has_lost_nothing_that_it_answered() {
    let mut server = Server::durable(&["--lease", "500ms"]);
    server.ok(&["mkdir", "/before"]);
    assert_eq!(server.process.end(), Some(0));
    // Files may not grow beyond 4 MiB (8,192 blocks of 512 bytes): a write that would make them is refused by the kernel.
    server.start_again_after("trap '' XFSZ; ulimit -f 8192");
    let mut made = 0;
    while made < 100 {
        let path = format!("/f{made}");
        let mut put = server.prepared(&["put", "--give-up", "1s", "-", &path]);
        let block = fs::File::open("/dev/zero").map(|zero| std::io::Read::take(zero, 1 << 17)).unwrap();
        let mut child = put.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::io::copy(&mut { block }, &mut child.stdin.take().unwrap()).unwrap();
        if !child.wait().unwrap().success() {
            break;
        }
        made += 1;
    }
    assert!((5..100).contains(&made), "{made} files of 128 KiB fitted into 4 MiB");
    assert_eq!(server.process.ended(), Some(74));
    server.start_again();
    for n in 0..made {
        assert_eq!(server.ok(&["cat", &format!("/f{n}")]).len(), 1 << 17, "answered and lost: /f{n}");
    }
    server.ok(&["ls", "/before"]);
}

#[test]
fn without_room_what_grows_is_refused_and_everything_else_goes_on_until_there_is_room_again() {
    if !geteuid().is_root() {
        println!("skipped: a small file system of one's own needs root");
        return;
    }
    let mut server = Server::durable(&["--store-reserve", "16M", "--lease", "1s"]);
    assert_eq!(server.process.end(), Some(0));
    let store = server.store();
    // A namespace of its own for mounts: gone with the server.
    let shell = format!(
        "exec unshare -m sh -c 'mount -t tmpfs -o size=96m none {0} && head -c 64m /dev/zero > {0}.ballast && mv {0}.ballast {0}/lost+found && \
         exec \"$0\" \"$@\"' \"$0\" \"$@\"",
        store.display()
    );
    server.start_again_after(&shell);
    let (made, why) = fill(&server, "full");
    assert!(why.contains("ENOSPC"), "{why}");
    assert!(made > 10, "only {made} files of 64 KiB fitted");
    assert_eq!(server.status()["room"], false);
    // Reads, locks and removals go on.
    assert_eq!(server.ok(&["cat", "/full/0"]).len(), 1 << 16);
    server.ok(&["lock", "/full/0", "--", "true"]);
    server.ok(&["rm", "/full/1"]);
    let refused = server.cistern(&["mkdir", "/more"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("space"), "{}", said(&refused));
    let ballast = PathBuf::from(format!("/proc/{}/root{}/lost+found", server.process.id(), store.display()));
    fs::remove_file(ballast).unwrap();
    eventually("the server has seen that there is room", || (server.status()["room"] == true).then_some(()));
    server.ok(&["mkdir", "/more"]);
    // The one that was refused may have been made before there was no room for what is in it.
    let (there, made) = (server.ok(&["ls", "/full"]).lines().count(), usize::try_from(made).unwrap());
    assert!((made - 1..=made).contains(&there), "{there} files are there, {made} were made and one removed");
}

/// A small file system on the directory of a store, in a namespace of its own: it goes when this is dropped, not with the server.
struct Small {
    holder: Child,
    store: PathBuf,
}

impl Small {
    fn mount(store: PathBuf, size: &str) -> Self {
        let script = format!("mount -t tmpfs -o size={size} none {} && echo ready && exec cat", store.display());
        let mut command = Command::new("unshare");
        let mut holder = command.args(["-m", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { holder, store }
    }

    /// What a shell does to run the rest in it.
    fn enter(&self) -> String {
        format!("exec nsenter -t {} -m \"$0\" \"$@\"", self.holder.id())
    }

    fn resize(&self, size: &str) {
        let id = self.holder.id().to_string();
        let status =
            Command::new("nsenter").args(["-t", &id, "-m", "mount", "-o", &format!("remount,size={size}")]).arg(&self.store).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_disk_that_is_full_all_the_same_ends_the_server_which_has_lost_nothing_that_it_answered() {
    if !geteuid().is_root() {
        println!("skipped: a small file system of one's own needs root");
        return;
    }
    // More than one table, and less than two: it is full in the middle of writing one.
    let mut server = Server::durable(&["--store-reserve", "0", "--lease", "500ms"]);
    assert_eq!(server.process.end(), Some(0));
    let small = Small::mount(server.store(), "56m");
    server.start_again_after(&small.enter());
    let mut made = 0;
    while made < 100 {
        let path = format!("/f{made}");
        let mut child =
            server.prepared(&["put", "--give-up", "1s", "-", &path]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0x5A), 1 << 20), &mut child.stdin.take().unwrap()).unwrap();
        if !child.wait().unwrap().success() {
            break;
        }
        made += 1;
    }
    assert!((20..100).contains(&made), "{made} files of 1 MiB fitted into 56 MiB");
    assert_eq!(server.process.ended(), Some(74));
    small.resize("300m");
    server.start_again_after(&small.enter());
    for n in 0..made {
        assert_eq!(server.ok(&["cat", &format!("/f{n}")]).len(), 1 << 20, "answered and lost: /f{n}");
    }
    server.ok(&["mkdir", "/more"]);
}
