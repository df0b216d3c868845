//! What docs/two-hosts.md shows, as it stands there: packages of this build are installed by apt on hosts of their own, one server's and two others, and a
//! job in Python runs on one of them at a time.
//!
//! Decides: what a host is here. A network namespace, and in namespaces of processes, mounts and host names all files of this machine below changes of its own,
//! which go with the test. No systemd runs there: a stand-in starts what the installed unit starts, as its user, with its settings and credentials, and waits
//! until that is ready. The addresses of the page are replaced by the test's.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so, and what was counted is told")]

use cistern_testkit::network::{Host, Network};
use cistern_testkit::{CISTERN, Process, eventually, program, said};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `systemctl enable --now UNIT`.
const SYSTEMCTL: &str = r##"#!/usr/bin/python3
import grp, os, pwd, re, shutil, socket, subprocess, sys, tempfile
assert sys.argv[1:3] == ["enable", "--now"], sys.argv
name = sys.argv[3].removesuffix(".service")
lines = [line.partition("=") for line in open(f"/lib/systemd/system/{name}.service") if "=" in line and line[0] != "#"]
all_of = lambda key: [value.strip() for found, _, value in lines if found == key]
(user,), (group,) = all_of("User"), all_of("Group")
uid, gid = pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
state = "/var/lib/" + all_of("StateDirectory")[0]
os.makedirs(state, exist_ok=True)
os.chown(state, uid, gid)
os.chmod(state, int(all_of("StateDirectoryMode")[0], 8))
passed = tempfile.mkdtemp(dir="/run")
os.chown(passed, uid, gid)
for credential in all_of("LoadCredential"):
    to, _, source = credential.partition(":")
    shutil.copyfile(source, f"{passed}/{to}")
    os.chown(f"{passed}/{to}", uid, gid)
    os.chmod(f"{passed}/{to}", 0o400)
# Of a service's own: nothing of the shell's.
environment = {"PATH": os.environ["PATH"], "HOME": pwd.getpwnam(user).pw_dir, "CREDENTIALS_DIRECTORY": passed, "NOTIFY_SOCKET": f"@{name}"}
for file in all_of("EnvironmentFile"):
    set_there = re.findall(r"^(\w+)=\"?(.*?)\"?$", open(file.removeprefix("-")).read(), re.M)
    environment.update(set_there)
command = [word for part in all_of("ExecStart")[0].split() for word in (environment.get(part[1:], "").split() if part[0] == "$" else [part])]
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.bind(f"\0{name}")
ready.settimeout(60)
log = open(f"/var/log/{name}.log", "ab")
subprocess.Popen(command, env=environment, user=uid, group=gid, extra_groups=[], umask=int(all_of("UMask")[0], 8), stdin=subprocess.DEVNULL,
                 stdout=log, stderr=log, start_new_session=True, cwd="/")
assert all_of("Type") == ["notify"] and ready.recv(100) == b"READY=1"
"##;

/// Makes the host's files, and a shell in them that reads commands. What is mounted is gone with its namespace, and every process with the first one.
const ENTER: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none "$0"
mkdir "$0/changed" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/changed,workdir=$0/work" "$0/root"
cd "$0/root"
for own in tmp run; do mount -t tmpfs none $own; done
mount -t proc none proc
mount --rbind /dev dev
mkdir run/packages
mount --bind "$2" run/packages
hostname "$1"
exec chroot . env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash
"#;

/// Root's shell on a host.
struct Shell {
    process: Process,
    name: &'static str,
    /// How many commands were run, and how long they took.
    commands: u32,
    took: Duration,
}

impl Shell {
    /// `None`, with the reason told, where such a host cannot be made.
    fn on(host: &Host, files: &Path, packages: &Path) -> Option<Self> {
        fs::create_dir(files).unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER]).arg(files).arg(host.name).arg(packages);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn_at(&host.place(), &mut unshare).unwrap();
        let mut shell = Self { process, name: host.name, commands: 0, took: Duration::ZERO };
        let able = shell.process.tell("exec 2>&1; echo able").is_ok() && shell.process.line().as_deref() == Some("able");
        if !able {
            eprintln!("skipped: a host with files of its own cannot be made here (overlayfs in a mount namespace)");
        }
        able.then_some(shell)
    }

    fn start(&mut self, command: &str) {
        self.process.tell(&format!("{{ {command}\n}}; echo \"= $?\"")).unwrap();
    }

    /// Waits for the end of what was started; what it printed, if it succeeded.
    fn end(&mut self) -> String {
        let mut told = String::new();
        loop {
            let line = self.process.line().unwrap_or_else(|| panic!("{}: no end of it: {told}", self.name));
            match line.strip_prefix("= ") {
                Some("0") => return told,
                Some(status) => panic!("{}: status {status}: {told}", self.name),
                None => told = told + &line + "\n",
            }
        }
    }

    fn run(&mut self, command: &str) -> String {
        let begun = Instant::now();
        self.start(command);
        let told = self.end();
        (self.commands, self.took) = (self.commands + 1, self.took + begun.elapsed());
        told
    }

    /// The page's commands, one after the other; what the last printed.
    fn follow(&mut self, block: &str) -> String {
        let commands = block.replace("\\\n", " ");
        commands.lines().map(|line| self.run(line)).last().unwrap_or_default()
    }
}

/// The packages of this build; `None`, with the reason told, where they cannot be made or installed.
fn packages(dir: &Path) -> Option<()> {
    for tool in ["dpkg-deb", "apt-get", "unshare", "/usr/bin/python3"] {
        if !Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {tool} is not installed");
            return None;
        }
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut package = Command::new(top.join("tools/package"));
    let output = package.arg("deb").arg(program(CISTERN).parent().unwrap()).arg(dir).env("DEB_COMPRESSION", "none").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let systemctl = dir.join("systemctl");
    fs::write(&systemctl, SYSTEMCTL).unwrap();
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
    Some(())
}

#[test]
fn the_packages_lead_to_a_lock_in_python_on_two_hosts_as_the_page_shows() {
    let Some(network) = Network::of(&["meta", "web1", "web2"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("packages");
    let Some(()) = packages(&out) else { return };
    let shell = |name| Shell::on(network.host(name), &dir.path().join(name), &out);
    let (Some(mut meta), Some(mut web1), Some(mut web2)) = (shell("meta"), shell("web1"), shell("web2")) else { return };
    for host in [&mut meta, &mut web1, &mut web2] {
        // Nobody reads manuals there: their index is not made.
        host.start("rm -f /var/lib/man-db/auto-update; cp /run/packages/systemctl /usr/local/bin/; ln -sf /usr/bin/python3 /usr/local/bin/python3; cd /run/packages; useradd --create-home alice");
        host.end();
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/two-hosts.md")).unwrap();
    let page = page.replace("10.0.0.1", &network.host("meta").v4.to_string()).replace("apt install ", "apt install --yes ");
    let blocks = |language: &str| -> Vec<String> {
        page.split(&format!("```{language}\n")).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
    };
    let (shown, job) = (blocks("sh"), &blocks("python")[0]);
    let [server, host, work] = &shown[..] else { panic!("{} blocks of commands", shown.len()) };
    let invited = |told: String| told.lines().find(|line| line.starts_with("cistern-invite-")).unwrap().to_owned();
    let line = invited(meta.follow(server));
    web1.follow(&host.replace("LINE", &line));
    let counted = [(meta.commands, meta.took), (web1.commands, web1.took)];
    let line = invited(meta.run("cistern admin invite web2"));
    web2.follow(&host.replace("LINE", &line));
    eprintln!("server's host, other host: {counted:?} (commands, time)");
    // The job, on both at once.
    for host in [&mut web1, &mut web2] {
        fs::write(out.join("nightly.py"), job).unwrap();
        host.start("cp nightly.py /root; cd /root");
        host.end();
    }
    web1.start(work);
    let token = |line: String| line.strip_prefix("begins under token ").unwrap_or_else(|| panic!("{line}")).parse::<u64>().unwrap();
    let first = token(web1.process.line().unwrap());
    web2.start(work);
    eventually("the second waits", || meta_waits(&mut meta).then_some(()));
    assert_eq!(web1.end(), "is done\n");
    let second = token(web2.process.line().unwrap());
    assert!(second > first, "{first}, {second}");
    // Whoever has the lock is killed with its agent: the next has it when its lease is over.
    web1.start(work);
    web2.process.signal(Signal::SIGKILL);
    assert!(token(web1.process.line().unwrap()) > second);
    assert_eq!(web1.end(), "is done\n");
    // Another user, when she is a member of the group; on the server's host, too, beside the server.
    let line = invited(meta.run("cistern admin invite meta"));
    meta.run(&format!("cistern join {line} && systemctl enable --now cistern-agent"));
    for host in [&mut web1, &mut meta] {
        let as_alice = "runuser -u alice -- cistern --timeout 20s cat /nightly";
        host.start(&format!("! {as_alice}"));
        host.end();
        host.run("usermod -a -G cistern alice");
        assert_eq!(host.run(as_alice), "");
    }
}

fn meta_waits(meta: &mut Shell) -> bool {
    meta.start("cistern admin status --json");
    meta.end().contains("\"waiting\":1")
}
