//! Packages, archive and site: made by the tools that make releases, from the programs of this build; installed and removed by dpkg itself.

use cistern_testkit::{CISTERN, program, said};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the programs of this build are.
fn programs() -> PathBuf {
    program(CISTERN).parent().unwrap().to_owned()
}

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

fn package(what: &str, out: &Path) -> Output {
    let mut command = Command::new(top().join("tools/package"));
    command
        .arg(what)
        .arg(programs())
        .arg(out)
        .env("DEB_COMPRESSION", "none")
        .env("ARCHIVE_LEVEL", "1")
        .env("SOURCE_DATE_EPOCH", "1700000000");
    command.output().unwrap()
}

fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Files below a directory, without it.
fn files(root: &Path) -> BTreeSet<String> {
    let listed = ok(Command::new("find").arg(root).args(["(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\n"]));
    listed.lines().map(str::to_owned).collect()
}

/// dpkg, for an installation in a directory, whose scripts run out here and are told of it by DPKG_ROOT. Its libraries are this system's.
fn dpkg(root: &Path, args: &[&str]) -> String {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display())).args(["--force-script-chrootless", "--force-depends", "--force-confold"]);
    ok(command.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

#[test]
fn packages_are_built_installed_used_and_removed() {
    if !has("dpkg-deb") || !has("dpkg") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: dpkg installs as root alone");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (out, root) = (dir.path().join("out"), dir.path().join("root"));
    let built = package("deb", &out);
    assert!(built.status.success(), "{}", said(&built));
    for part in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(part)).unwrap();
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").unwrap();
    }
    let packages: Vec<String> = files(&out).into_iter().map(|name| out.join(name).to_str().unwrap().to_owned()).collect();
    assert!(packages.len() >= 2, "{packages:?}");
    let named: Vec<&str> = packages.iter().map(String::as_str).collect();
    dpkg(&root, &[&["--install"], &named[..]].concat());
    let there = files(&root);
    for file in [
        "usr/bin/cistern",
        "usr/bin/cisternd",
        "lib/systemd/system/cisternd.service",
        "lib/systemd/system/cistern-agent.service",
        "usr/lib/sysusers.d/cistern.conf",
        "etc/cistern/agent.env",
        "etc/cistern/cisternd.env",
        "usr/share/man/man1/cistern-lock.1.gz",
        "usr/share/man/man8/cisternd.8.gz",
        "usr/share/bash-completion/completions/cistern",
        "usr/share/zsh/vendor-completions/_cistern",
        "usr/share/fish/vendor_completions.d/cistern.fish",
        "usr/share/doc/cistern-server/changelog.gz",
        "usr/lib/python3/dist-packages/cistern/py.typed",
    ] {
        assert!(there.contains(file), "{file} in {there:#?}");
    }
    let unit = fs::read_to_string(root.join("lib/systemd/system/cisternd.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/cisternd ") && !unit.contains("/usr/local"), "{unit}");
    assert_eq!(fs::metadata(root.join("var/lib/cistern")).unwrap().permissions().mode() & 0o777, 0o710);
    let version = ok(Command::new(root.join("usr/bin/cistern")).arg("--version"));
    let declared = ok(Command::new("dpkg-deb").args(["--field", named[0], "Version"]));
    assert!(version.starts_with(&format!("cistern {} ", declared.trim())), "{version}");
    if has("python3") {
        let modules = root.join("usr/lib/python3/dist-packages");
        ok(Command::new("python3").args(["-c", "import cistern, cistern.aio, cistern.fence"]).env("PYTHONPATH", modules));
    }
    // What an operator has changed, and what cannot be made again.
    fs::write(root.join("etc/cistern/cisternd.env"), "CISTERND_ARGS=mine\n").unwrap();
    fs::write(root.join("var/lib/cistern/store"), "kept").unwrap();
    dpkg(&root, &[&["--install"], &named[..]].concat());
    assert_eq!(fs::read_to_string(root.join("etc/cistern/cisternd.env")).unwrap(), "CISTERND_ARGS=mine\n", "an upgrade keeps it");
    let names: Vec<String> =
        named.iter().map(|file| ok(Command::new("dpkg-deb").args(["--field", file, "Package"])).trim().to_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    dpkg(&root, &[&["--remove"], &names[..]].concat());
    assert!(root.join("etc/cistern/cisternd.env").exists() && !root.join("usr/bin/cistern").exists());
    dpkg(&root, &[&["--purge"], &names[..]].concat());
    let left: Vec<_> =
        files(&root).into_iter().filter(|file| !file.starts_with("var/lib/dpkg/") && !file.starts_with("etc/passwd")).collect();
    let ours: Vec<_> = left.iter().filter(|file| file.contains("cistern")).collect();
    assert_eq!(ours, ["var/lib/cistern/store"], "store and keys stay, nothing else: {left:?}");
}

#[test]
fn an_archive_is_the_same_each_time_it_is_made() {
    if ["cistern-dump", "cistern-netfault"].iter().any(|tool| !programs().join(tool).exists()) {
        eprintln!("skipped: cistern-dump and cistern-netfault were not built with this test");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sums: Vec<String> = ["one", "two"]
        .map(|name| {
            let out = dir.path().join(name);
            let made = package("archive", &out);
            assert!(made.status.success(), "{}", said(&made));
            let sum = files(&out).into_iter().find(|file| file.ends_with(".sha256")).unwrap();
            ok(Command::new("sha256sum").args(["--check", &sum]).current_dir(&out));
            fs::read_to_string(out.join(sum)).unwrap()
        })
        .into();
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn the_site_has_no_broken_link() {
    if !has("mdbook") || !has("python3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let told = ok(Command::new(top().join("tools/site")).arg(dir.path().join("site")));
    assert!(told.contains("pages in"), "{told}");
    assert!(dir.path().join("site/docs/page.html").exists() && dir.path().join("site/wire-spec.html").exists());
}

#[test]
fn the_containers_start_makes_a_server_once() {
    let home = tempfile::tempdir().unwrap();
    let place = |command: &mut Command| {
        let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("CISTERN_HOME", home.path()).env("CISTERN_CREDENTIALS", home.path().join("own"));
        command.env("CISTERN_LISTEN", "127.0.0.1:0");
    };
    let start = || {
        let mut command = Command::new(top().join("dist/container/start"));
        place(&mut command);
        command
    };
    let refused = start().output().unwrap();
    assert!(!refused.status.success() && said(&refused).contains("CISTERN_ADDRESS"), "{}", said(&refused));
    let ids: Vec<String> = (0..2)
        .map(|_| {
            let mut child = start().env("CISTERN_ADDRESS", "127.0.0.1:7311").arg("--json").stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let ready = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok()).find(|line| line["ready"] == true).unwrap();
            let mut invite = Command::new(program(CISTERN));
            place(&mut invite);
            let line = ok(invite.args(["admin", "invite", "web1", "--control", ready["control"].as_str().unwrap()]));
            assert!(line.starts_with("cistern-invite-1."), "{line}");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGTERM).unwrap();
            assert!(child.wait().unwrap().success());
            ready["key"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids[0], ids[1], "the second start has the keys of the first");
}
