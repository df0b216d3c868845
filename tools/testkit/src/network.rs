//! Hosts: network namespaces joined by a bridge, and what can be done to the wires between them.
//!
//! Decides: names and addresses; that every namespace goes when its test ends, also by a panic, and when its test program was killed
//! before it could do that. Each host has one wire, `eth0`, to a switch, which is a namespace of its own: cuts and losses happen
//! there, so that no host can see them but by what does not arrive.
//! Invariant: nothing outside of namespaces made here is touched, and no process is killed but in those.

use crate::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where `ip netns` keeps namespaces that have a name.
const NAMESPACES: &str = "/run/netns";

/// What every namespace of these tests is called first.
const PREFIX: &str = "cistern";

/// The server's port on every host.
pub const PORT: u16 = 7311;

/// A namespace, gone with its value.
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new(name: String) -> Self {
        must(Command::new("ip").args(["netns", "add", &name]));
        let this = Self { name };
        this.ip("link set lo up");
        this
    }

    /// What `ip` calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where processes of this host are started.
    pub fn place(&self) -> Place {
        Place::in_namespace(Path::new(NAMESPACES).join(&self.name))
    }

    /// Runs `ip` with these words in the namespace.
    pub fn ip(&self, words: &str) {
        must(Command::new("ip").args(["-n", &self.name]).args(words.split(' ')));
    }

    /// Gives a script to `nft` in the namespace; gives what it printed.
    pub fn nft(&self, script: &str) -> String {
        self.place().run(|| must(Command::new("nft").arg(script)))
    }

    /// Runs a program in the namespace.
    pub fn exec(&self, words: &str) {
        let (program, rest) = words.split_once(' ').unwrap();
        self.place().run(|| must(Command::new(program).args(rest.split(' '))));
    }

    /// Writes a setting of the kernel that each namespace has for itself, such as `ipv4/ip_forward`.
    pub fn set(&self, name: &str, value: &str) {
        self.place().run(|| fs::write(format!("/proc/sys/net/{name}"), value).unwrap());
    }

    /// All processes in the namespace.
    pub fn processes(&self) -> Vec<Pid> {
        processes(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// A host: its namespace, and its addresses on the wire to the switch.
pub struct Host {
    /// What tests call it.
    pub name: &'static str,
    /// Its own.
    pub namespace: Namespace,
    /// Its first address.
    pub v4: Ipv4Addr,
    /// Its second.
    pub v6: Ipv6Addr,
}

impl Host {
    /// Where its processes are started.
    pub fn place(&self) -> Place {
        self.namespace.place()
    }

    /// A server's address on this host.
    pub fn server(&self) -> SocketAddr {
        (self.v4, PORT).into()
    }

    /// The same for IPv6.
    pub fn server_v6(&self) -> SocketAddr {
        (self.v6, PORT).into()
    }
}

/// Hosts on one switch.
pub struct Network {
    prefix: String,
    hosts: Vec<Host>,
    switch: Namespace,
}

impl Network {
    /// Makes hosts of these names, with addresses 10.77.0.1, fd77::1 and on; `None`, with the reason told, where that cannot be.
    pub fn of(names: &[&'static str]) -> Option<Self> {
        static ABLE: OnceLock<Result<(), String>> = OnceLock::new();
        if let Err(why) = ABLE.get_or_init(able) {
            // Not captured as the output of passed tests is.
            let _ = std::io::stderr().write_all(format!("skipped: tests on separate hosts {why}\n").as_bytes());
            return None;
        }
        let prefix = fresh_prefix();
        let switch = Namespace::new(format!("{prefix}-switch"));
        switch.ip("link add bridge type bridge");
        switch.ip("link set bridge up");
        switch.nft("add table bridge wire; add chain bridge wire pass { type filter hook forward priority 0; }");
        let mut network = Self { prefix, hosts: Vec::new(), switch };
        for (name, number) in names.iter().zip(1..) {
            let host = network.add(name, number);
            network.hosts.push(host);
        }
        Some(network)
    }

    fn add(&self, name: &'static str, number: u8) -> Host {
        let namespace = Namespace::new(format!("{}-{name}", self.prefix));
        let (v4, v6) = (Ipv4Addr::new(10, 77, 0, number), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()));
        self.switch.ip(&format!("link add name {name} type veth peer name eth0 netns {}", namespace.name));
        self.switch.ip(&format!("link set dev {name} master bridge up"));
        namespace.ip(&format!("addr add {v4}/24 dev eth0"));
        namespace.ip(&format!("addr add {v6}/64 dev eth0 nodad"));
        // Else several datagrams of one send call travel as one packet that no limit of size and no loss divides.
        namespace.ip("link set eth0 up gso_max_segs 1");
        Host { name, namespace, v4, v6 }
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// One more namespace of this test, joined to nothing.
    pub fn beside(&self, name: &str) -> Namespace {
        Namespace::new(format!("{}-{name}", self.prefix))
    }

    /// From now on nothing passes from one host to the other; the other direction is as it was.
    pub fn cut(&self, from: &str, to: &str) {
        self.rule(&format!("iifname \"{from}\" oifname \"{to}\" drop"));
    }

    /// From now on nothing passes between a host and any other.
    pub fn isolate(&self, host: &str) {
        self.rule(&format!("iifname \"{host}\" drop"));
        self.rule(&format!("oifname \"{host}\" drop"));
    }

    /// From now on nothing passes to or from an address.
    pub fn drop_address(&self, address: Ipv4Addr) {
        self.rule(&format!("ip saddr {address} drop"));
        self.rule(&format!("ip daddr {address} drop"));
    }

    /// Sets something of the switch's end of a host's wire, which the host does not see.
    pub fn switch_port(&self, host: &str, setting: &str) {
        self.switch.ip(&format!("link set dev {host} {setting}"));
    }

    /// From now on each datagram, whoever sends it, is lost with this probability.
    pub fn lose(&self, percent: u32) {
        self.rule(&format!("meta l4proto udp numgen random mod 100 < {percent} drop"));
    }

    /// Counts what passes and fits an expression of nftables; see [`Network::counted`].
    pub fn count(&self, name: &str, matching: &str) {
        self.switch.nft(&format!("add counter bridge wire {name}; insert rule bridge wire pass {matching} counter name {name}"));
    }

    /// How many packets a counter has seen.
    pub fn counted(&self, name: &str) -> u64 {
        let listed = self.switch.nft(&format!("list counter bridge wire {name}"));
        let packets = listed.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        packets.and_then(|packets| packets.parse().ok()).unwrap_or_else(|| panic!("no count of packets in {listed:?}"))
    }

    /// Everything passes again; what was counted is forgotten.
    pub fn heal(&self) {
        self.switch.nft("flush chain bridge wire pass");
    }

    fn rule(&self, rule: &str) {
        self.switch.nft(&format!("add rule bridge wire pass {rule}"));
    }
}

/// A home behind a router that translates addresses, and what the router does it with.
pub struct Home<'n> {
    /// The router.
    pub router: &'n Host,
    inside: Namespace,
}

impl<'n> Home<'n> {
    /// A host behind the one named, which has nothing of its own but an address inside.
    pub fn behind(network: &'n Network, router: &'static str) -> Self {
        let router = network.host(router);
        let inside = network.beside("home");
        router.namespace.ip(&format!("link add inside type veth peer name eth0 netns {}", inside.name()));
        router.namespace.ip("addr add 192.168.77.1/24 dev inside");
        router.namespace.ip("link set inside up");
        router.namespace.set("ipv4/ip_forward", "1");
        inside.ip("addr add 192.168.77.2/24 dev eth0");
        inside.ip("link set eth0 up gso_max_segs 1");
        inside.ip("route add default via 192.168.77.1");
        router.namespace.nft("add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }");
        let home = Self { router, inside };
        home.map_to("20000-20999");
        home
    }

    /// Where processes of the home are started.
    pub fn place(&self) -> Place {
        self.inside.place()
    }

    /// Sets something of the wire between home and router, at both ends.
    pub fn wire(&self, setting: &str) {
        self.inside.ip(&format!("link set eth0 {setting}"));
        self.router.namespace.ip(&format!("link set inside {setting}"));
    }

    /// From now on datagrams from inside come from one of these ports, those of old flows, too.
    pub fn map_to(&self, ports: &str) {
        let rule = format!("flush chain ip nat post; add rule ip nat post oifname eth0 meta l4proto udp masquerade to :{ports}");
        self.router.namespace.nft(&rule);
        self.router.namespace.exec("conntrack -F");
    }
}

/// Whether namespaces can be made here; if not, why not.
fn able() -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("need root".to_owned());
    }
    for (program, package) in [("ip", "iproute2"), ("nft", "nftables"), ("conntrack", "conntrack")] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return Err(format!("need the program {program}: apt-get install {package}"));
        }
    }
    sweep();
    let name = format!("{}-probe", fresh_prefix());
    let script = "add table bridge t; add chain bridge t c { type filter hook forward priority 0; }; add table ip t; \
                  add chain ip t c { type nat hook postrouting priority 100; }; add rule ip t c masquerade";
    let steps: [&[&str]; 3] = [
        &["ip", "netns", "add", &name],
        &["ip", "-n", &name, "link", "add", "bridge", "type", "bridge"],
        &["ip", "netns", "exec", &name, "nft", script],
    ];
    let failed = steps.iter().find_map(|step| {
        let output = Command::new(step[0]).args(&step[1..]).output().unwrap();
        (!output.status.success()).then(|| format!("cannot be made here: {} says {}", step.join(" "), told(&output)))
    });
    remove(&name);
    failed.map_or(Ok(()), Err)
}

/// The beginning of the names of one test's namespaces: whose they are, and which.
fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let owner = std::process::id();
    let started = started(owner).unwrap();
    format!("{PREFIX}-{owner}-{started}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// When a process was started, in ticks since the machine was; with its number that names it for ever.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have spaces; the 20th field after it is the start.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Removes what test programs left that were killed.
fn sweep() {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let mut parts = name.split('-');
        if parts.next() != Some(PREFIX) {
            continue;
        }
        let mut number = || parts.next()?.parse::<u64>().ok();
        if let (Some(owner), Some(since)) = (number(), number())
            && u32::try_from(owner).ok().and_then(started) != Some(since)
        {
            remove(&name);
        }
    }
}

/// Ends what runs in a namespace made here, and removes it. Never panics: it runs also while a test fails.
fn remove(name: &str) {
    for process in processes(name) {
        let _ = kill(process, Signal::SIGKILL);
    }
    let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
}

fn processes(namespace: &str) -> Vec<Pid> {
    let output = Command::new("ip").args(["netns", "pids", namespace]).output();
    let listed = output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    listed.lines().filter_map(|pid| pid.parse().ok().map(Pid::from_raw)).collect()
}

/// Runs a program that must succeed; gives what it printed.
fn must(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
