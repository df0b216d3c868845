//! A disk that fails or is full, under a real server (section 11.7).

use cistern_testkit::{Server, base64, eventually, said};
use nix::unistd::geteuid;
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Puts files of 64 KiB, which no compression makes smaller, until one is refused; how many there are, and what the refusal said.
fn fill(server: &Server, dir: &str) -> (u32, String) {
    let agent = cistern_testkit::Agent::start(server, dir);
    let mut state = 7u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(1 << 16)
    .collect();
    let (mut line, data) = (agent.line(), base64(&bytes));
    line.ok(json!({ "op": "mkdir", "path": format!("/{dir}"), "mode": "0755" }));
    for n in 0..4_000 {
        if let Err(error) = line.ask(&json!({ "op": "put", "path": format!("/{dir}/{n}"), "data": { "b64": data } })) {
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
        let mut put = server.prepared(&["put", "--timeout", "1s", "-", &path]);
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
    let mut server = Server::durable(&["--store-reserve", "192M", "--lease", "1s"]);
    assert_eq!(server.process.end(), Some(0));
    let store = server.store();
    // A namespace of its own for mounts: gone with the server.
    let shell = format!(
        "exec unshare -m sh -c 'mount -t tmpfs -o size=288m none {0} && \"$0\" init --new-cluster --state {0}.keys --credentials {0}.keys {0} > /dev/null && head -c 64m /dev/zero > {0}.ballast && mv {0}.ballast {0}/lost+found && \
         exec \"$0\" \"$@\"' \"$0\" \"$@\"",
        store.display()
    );
    server.start_again_after(&shell);
    let (made, why) = fill(&server, "full");
    assert!(why.contains("ENOSPC"), "{why}");
    assert!(made > 10, "only {made} files of 64 KiB fitted");
    assert_eq!(server.status()["room"], false);
    // Reads, locks and removals go on.
    assert_eq!(server.cistern(&["cat", "/full/0"]).stdout.len(), 1 << 16);
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

    /// As [`Self::enter`], for the server that finds nothing there.
    fn enter_new(&self) -> String {
        format!(
            "nsenter -t {0} -m \"$0\" init --new-cluster --state {1}.keys --credentials {1}.keys {1} > /dev/null; {2}",
            self.holder.id(),
            self.store.display(),
            self.enter()
        )
    }

    /// A path in it, as seen from outside.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}/{name}", self.holder.id(), self.store.display()))
    }

    /// Somebody else takes all that is free; given back when the file is removed.
    fn fill(&self) -> PathBuf {
        let path = self.path("lost+found");
        let mut file = fs::File::create(&path).unwrap();
        let error = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_server_on_a_disk_that_others_filled_serves_reads_locks_and_removals_also_after_a_start() {
    if !geteuid().is_root() {
        println!("skipped: a small file system of one's own needs root");
        return;
    }
    // Long enough for a command to begin under a lock, on whatever machine; each start waits for it.
    let mut server = Server::durable(&["--store-reserve", "192M", "--lease", "2s"]);
    assert_eq!(server.process.end(), Some(0));
    let small = Small::mount(server.store(), "288m");
    server.start_again_after(&small.enter_new());
    let agent = cistern_testkit::Agent::start(&server, "A");
    let mut line = agent.line();
    for n in 0..40 {
        line.ok(json!({ "op": "put", "path": format!("/f{n}"), "data": { "b64": base64(&vec![b'a' + n % 26; 200_000]) } }));
    }
    eventually("space is taken in advance", || small.path("spare").exists().then_some(()));
    let ballast = small.fill();
    for round in 0..3_u8 {
        eventually("the server has seen that there is no room", || (server.status()["room"] == false).then_some(()));
        for n in 0..10 {
            let n = round * 10 + n;
            let path = format!("/f{n}");
            assert_eq!(server.ok(&["cat", &path]).len(), 200_000);
            server.ok(&["lock", &path, "--", "true"]);
            server.ok(&["rm", &path]);
        }
        let refused = server.cistern(&["mkdir", "/more"]);
        assert!(refused.status.code() == Some(1) && said(&refused).contains("space"), "{}", said(&refused));
        server.process.kill();
        server.start_again_after(&small.enter());
    }
    fs::remove_file(&ballast).unwrap();
    eventually("the server has seen that there is room", || (server.status()["room"] == true).then_some(()));
    server.ok(&["mkdir", "/more"]);
    assert_eq!(server.ok(&["ls", "/"]).lines().filter(|name| name.starts_with('f')).count(), 10);
}

#[test]
fn room_that_removals_made_is_found_by_the_running_server() {
    if !geteuid().is_root() {
        println!("skipped: a small file system of one's own needs root");
        return;
    }
    let mut server = Server::durable(&["--store-reserve", "192M", "--lease", "1s"]);
    assert_eq!(server.process.end(), Some(0));
    let small = Small::mount(server.store(), "288m");
    server.start_again_after(&small.enter_new());
    let (made, why) = fill(&server, "full");
    assert!(why.contains("ENOSPC") && made > 100, "{made} files of 64 KiB: {why}");
    let agent = cistern_testkit::Agent::start(&server, "A");
    let mut line = agent.line();
    for n in 0..made * 3 / 4 {
        line.ok(json!({ "op": "unlink", "path": format!("/full/{n}"), "force": false }));
    }
    let begun = std::time::Instant::now();
    while server.status()["room"] == false {
        assert!(begun.elapsed().as_secs() < 60, "no room is found within a minute of what three quarters of all files took");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    server.ok(&["mkdir", "/more"]);
}

#[test]
fn a_reserve_that_the_store_cannot_keep_is_refused() {
    let output = cistern_testkit::command(cistern_testkit::CISTERND, &["--store", "/nowhere", "--store-reserve", "16M"]).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("must be at least 192M"), "{}", said(&output));
}
