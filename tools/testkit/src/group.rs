//! A group of peers without a server, each a process, and commands under its locks.

use crate::{CISTERN, Daemon, Place, Process, command, said};
use cistern_seal::SecretKey;
use cistern_seal::key::Role;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Addresses of loopback with ports that are free.
pub(crate) fn free_names(count: usize) -> Vec<String> {
    let free: Vec<UdpSocket> = (0..count).map(|_| UdpSocket::bind(("127.0.0.1", 0)).unwrap()).collect();
    free.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect()
}

fn key_file(dir: &TempDir, member: usize) -> String {
    dir.path().join(format!("key-{member}")).to_str().unwrap().to_owned()
}

/// A group, and the directory of its sockets, its state and its trace.
pub struct Group {
    /// As the command line names it.
    pub list: String,
    /// One process for each member; `None`: it was ended.
    pub peers: Vec<Option<Daemon>>,
    places: Vec<Place>,
    names: Vec<String>,
    args: Vec<String>,
    is_sealed: bool,
    dir: TempDir,
}

impl Group {
    /// Members on loopback, at ports that are free, each with a key of its own.
    pub fn start(members: usize, args: &[&str]) -> Self {
        Self::at(vec![Place::default(); members], free_names(members), args)
    }

    /// The same without keys.
    pub fn in_clear(members: usize, args: &[&str]) -> Self {
        let names = free_names(members);
        Self::of(names.join(","), vec![Place::default(); members], names, args, tempfile::tempdir().unwrap())
    }

    /// Members in these networks, by these names, each with a key of its own.
    pub fn at(places: Vec<Place>, names: Vec<String>, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("group");
        let lines = names.iter().enumerate().map(|(member, name)| {
            let made = command(CISTERN, &["key", "new", &key_file(&dir, member)]).output().unwrap();
            assert!(made.status.success(), "{}", said(&made));
            let secret = fs::read_to_string(key_file(&dir, member)).unwrap();
            format!("{name} {}\n", SecretKey::from_text(&secret, Role::Agent).unwrap().public().to_text(Role::Agent))
        });
        fs::write(&list, lines.collect::<String>()).unwrap();
        Self::of(list.to_str().unwrap().to_owned(), places, names, args, dir)
    }

    fn of(list: String, places: Vec<Place>, names: Vec<String>, args: &[&str], dir: TempDir) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (peers, is_sealed) = (names.iter().map(|_| None).collect(), list.contains('/'));
        let mut group = Self { list, peers, places, names, args, is_sealed, dir };
        (0..group.names.len()).for_each(|member| group.start_member(member));
        group
    }

    /// By what a member speaks: its key, or none.
    pub fn key_options(&self, member: usize) -> Vec<String> {
        if self.is_sealed { vec!["--key-file".to_owned(), key_file(&self.dir, member)] } else { vec!["--insecure".to_owned()] }
    }

    /// A member's name.
    pub fn name(&self, member: usize) -> &str {
        &self.names[member]
    }

    /// Starts a member, again if it was ended.
    pub fn start_member(&mut self, member: usize) {
        let socket = self.socket(member);
        let (list, me) = (self.list.clone(), self.names[member].clone());
        let key = self.key_options(member);
        let mut args = vec!["peer", "--json", "--group", &list, "--me", &me, "--socket", &socket];
        args.extend(key.iter().map(String::as_str));
        let state = self.dir.path().join(format!("state-{member}"));
        for arg in &self.args {
            args.push(if arg == "STATE" { state.to_str().unwrap() } else { arg });
        }
        self.peers[member] = Some(Daemon::start(&self.places[member], CISTERN, &args));
    }

    /// A member's process.
    pub fn peer(&self, member: usize) -> &Daemon {
        self.peers[member].as_ref().unwrap()
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.peers[member].take().unwrap().kill();
    }

    /// The control socket of a member.
    pub fn socket(&self, member: usize) -> String {
        self.dir.path().join(format!("{member}.sock")).to_str().unwrap().to_owned()
    }

    /// `cistern lock` at a member, with these words behind the group.
    pub fn lock(&self, member: usize, words: &[&str]) -> Command {
        let socket = self.socket(member);
        let mut args = vec!["lock", "--group", &self.list, "--socket", &socket];
        args.extend(words);
        command(CISTERN, &args)
    }

    /// Starts a command under the lock `job` at a member that writes its token to the trace, again and again, until it is stopped.
    pub fn beat(&self, member: usize) -> Process {
        let script = format!("while :; do echo $CISTERN_TOKEN >> {}; sleep 0.01; done", self.trace().display());
        let mut lock = self.lock(member, &["job", "--", "sh", "-c", &script]);
        Process::spawn_at(&self.places[member], lock.stdout(Stdio::null()).stderr(Stdio::null())).unwrap()
    }

    /// The file in which the holders' tokens are, in the order in which they were written.
    pub fn trace(&self) -> PathBuf {
        self.dir.path().join("trace")
    }

    /// The token that was written last.
    pub fn newest(&self) -> Option<u64> {
        self.tokens().last().copied()
    }

    fn tokens(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.trace()).unwrap_or_default();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Panics if a holder wrote after a later one, or a later one had a smaller token; gives how many holders there were.
    pub fn holders(&self) -> usize {
        let mut tokens = self.tokens();
        assert!(tokens.is_sorted(), "two held at once, or tokens went back: {tokens:?}");
        tokens.dedup();
        tokens.len()
    }
}
