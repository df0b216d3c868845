//! A worker: one agent and its users, who never stop.
//!
//! Decides the load. Each user has a directory and a file of records of its own: it makes files, gives them names and contents, takes
//! names away, and looks now and then at what it has; it raises counters under locks, and steps tallies by compare-and-set without one,
//! that the users of all agents share.
//! Invariant: what is asked for is written down before, what is answered after; a user that finds a file in a state that no history
//! allows says so and ends the process with [`EXIT_VIOLATION`].
//! Leaves to others: being killed (`campaign`), the last judgement (`judge`).

use crate::life::{Answer, Life, NAMES, Op, State, letter};
use crate::record::{Record, Records};
use cistern_client::{Builder, Client, Config, ErrorKind, Guard};
use cistern_link::Rng;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Exit status of a worker that has found something that must not be.
pub(crate) const EXIT_VIOLATION: u8 = 3;
/// Lives in one directory.
pub(crate) const LIVES_PER_DIRECTORY: u64 = 256;
/// Locks, each with a counter, that all users share.
pub(crate) const LOCKS: u8 = 3;
/// Most operations in a life.
const OPS_MAX: u64 = 8;
/// Tallies, which all users share and step by compare-and-set, without a lock.
pub(crate) const TALLIES: u8 = 2;
/// Of so many things that a user does one is to raise a counter, and one to step a tally.
const SHARED_SHARE: u64 = 8;
/// A holder goes on for up to so many beats, most holders for none.
const BEATS_MAX: u64 = 40;
/// Between two of them.
const BEAT: Duration = Duration::from_millis(15);
/// How long a lock is waited for: longer than a steal takes.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long an operation may take: longer than a restart of the server with its grace.
const GIVE_UP: Duration = Duration::from_secs(10);
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(20);

/// The command line of a worker.
#[derive(clap::Args, Debug)]
pub(crate) struct WorkerArgs {
    /// The server's address, or those of a group, separated by commas
    #[arg(long)]
    pub(crate) server: String,
    /// The directory of the campaign
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Number of the agent
    #[arg(long)]
    pub(crate) agent: u8,
    /// How many users
    #[arg(long)]
    pub(crate) users: u8,
    /// What chance begins with
    #[arg(long)]
    pub(crate) seed: u64,
}

/// Where the records of a user are.
pub(crate) fn records_of(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("records-{user}"))
}

/// Where the records of what all users share are.
pub(crate) fn shared_records(dir: &Path) -> PathBuf {
    dir.join("records-shared")
}

/// The file that tells workers to end.
pub(crate) fn stop_file(dir: &Path) -> PathBuf {
    dir.join("stop")
}

/// Names of users: agent and number.
pub(crate) fn user_name(agent: u8, user: u8) -> String {
    format!("w{agent}u{user}")
}

/// The directory of a life.
pub(crate) fn directory_of(user: &str, life: u64) -> String {
    format!("/{user}/{}", life / LIVES_PER_DIRECTORY)
}

/// A path of a file.
pub(crate) fn path_of(user: &str, life: u64, name: u8) -> String {
    format!("{}/{life}{}", directory_of(user, life), letter(name))
}

/// What stands in a file.
pub(crate) fn contents_of(life: u64, contents: u32) -> String {
    if contents == 0 { String::new() } else { format!("{life}:{contents}") }
}

/// A number from a seed and its place.
pub(crate) fn rng(seed: u64, place: u64) -> Rng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.to_le_bytes());
    Rng::from_seed(bytes)
}

pub(crate) fn main(args: &WorkerArgs) -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("CISTERN_LOG", "warn")).init();
    let label = format!("w{}", args.agent);
    let config = Config { give_up_after: GIVE_UP, ..Config::default() };
    let builder = client_of(&args.server).label(&label).state_dir(args.dir.join(&label)).config(config);
    let client = match builder.start() {
        Ok(client) => client,
        Err(e) => {
            let _ = writeln!(io::stderr(), "{label}: {e}");
            return ExitCode::FAILURE;
        }
    };
    let found = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..args.users {
            let (client, found) = (client.clone(), &found);
            scope.spawn(move || {
                let name = user_name(args.agent, number);
                let mut user = match User::new(client, args, &name, number) {
                    Ok(user) => user,
                    Err(e) => return end(found, &name, &e.to_string()),
                };
                if let Err(e) = user.work(found) {
                    end(found, &name, &e.to_string());
                }
            });
        }
    });
    if found.load(Ordering::Relaxed) { ExitCode::from(EXIT_VIOLATION) } else { ExitCode::SUCCESS }
}

/// A client of these servers, separated by commas.
pub(crate) fn client_of(servers: &str) -> Builder {
    servers.split(',').fold(Client::builder().insecure(), Builder::server)
}

fn end(found: &AtomicBool, name: &str, why: &str) {
    found.store(true, Ordering::Relaxed);
    let _ = writeln!(io::stderr(), "{name}: {why}");
}

struct User {
    name: String,
    /// Among the users of all agents.
    number: u64,
    client: Client,
    rng: Rng,
    records: Records,
    shared: Records,
    dir: PathBuf,
    next_life: u64,
    /// The directory that was made last.
    made: Option<u64>,
}

impl User {
    fn new(client: Client, args: &WorkerArgs, name: &str, number: u8) -> io::Result<Self> {
        let path = records_of(&args.dir, name);
        let records = Records::append_to(&path)?;
        // Lives that an earlier process of this user began are over: nobody knows what it has asked for last.
        let begun =
            Record::read_all(&path)?.iter().filter_map(|record| if let Record::Begin(life, _) = record { Some(*life) } else { None }).max();
        let next_life = begun.map_or(0, |last| last + 1);
        let rng = rng(args.seed, u64::from(number));
        let shared = Records::append_shared(&shared_records(&args.dir))?;
        let number = u64::from(args.agent) << 8 | u64::from(number);
        Ok(Self { name: name.to_owned(), number, client, rng, records, shared, dir: args.dir.clone(), next_life, made: None })
    }

    /// Works until it is told to stop, or until somebody has found something.
    fn work(&mut self, found: &AtomicBool) -> io::Result<()> {
        while !found.load(Ordering::Relaxed) && !stop_file(&self.dir).exists() {
            let found = match self.rng.below(SHARED_SHARE) {
                0 => self.raise_a_counter()?,
                1 => self.step_a_tally()?,
                _ => self.live()?,
            };
            if let Some(why) = found {
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    /// The life of a file. Gives what must not be.
    fn live(&mut self) -> io::Result<Option<String>> {
        let number = self.next_life;
        if !self.make_directory(number) {
            thread::sleep(PAUSE);
            return Ok(None);
        }
        self.next_life += 1;
        let mut life = Life::default();
        for _ in 0..1 + self.rng.below(OPS_MAX) {
            let Some(state) = life.certain() else { break };
            let op = self.choose(state);
            self.records.write(Record::Begin(number, op))?;
            let (answer, clear) = self.perform(number, op);
            self.records.write(Record::End(number, answer))?;
            life.answered(op, answer);
            if !life.is_possible() {
                return Ok(Some(format!("file {number}: {op} was answered {answer:?}, which cannot be of {state}")));
            }
            // What may still be executed later is left alone, and judged in the end.
            if !clear {
                break;
            }
            if answer == Answer::Refused {
                thread::sleep(PAUSE);
            }
            if (answer == Answer::Unknown || self.rng.below(3) == 0)
                && let Some(seen) = self.look(number)
            {
                self.records.write(Record::Seen(number, seen))?;
                let before = life.to_string();
                life.seen(seen);
                if !life.is_possible() {
                    return Ok(Some(format!("file {number} after {op}: it must be {before}, and it is {seen}")));
                }
            }
        }
        Ok(None)
    }

    /// An operation that a file in this state allows, most of the time.
    fn choose(&mut self, state: State) -> Op {
        let any = |rng: &mut Rng| u8::try_from(rng.below(u64::from(NAMES))).unwrap_or(0);
        let has: Vec<u8> = (0..NAMES).filter(|name| state.names & 1 << name != 0).collect();
        let Some(from) = has.get(usize::try_from(self.rng.below(has.len().max(1) as u64)).unwrap_or(0)).copied() else {
            return Op::Create(any(&mut self.rng));
        };
        let other = (from + 1 + u8::try_from(self.rng.below(u64::from(NAMES) - 1)).unwrap_or(0)) % NAMES;
        match self.rng.below(10) {
            0..3 => Op::Put(from, state.contents + 1),
            3..5 => Op::Link(from, other),
            5..8 => Op::Rename(from, other),
            8 => Op::Unlink(from),
            // Often refused: EEXIST and ENOENT are answers, too.
            _ => {
                if self.rng.below(2) == 0 {
                    Op::Create(from)
                } else {
                    Op::Unlink(other)
                }
            }
        }
    }

    /// Asks for an operation; what it was answered, and whether it is certain that it will not be executed later.
    fn perform(&self, life: u64, op: Op) -> (Answer, bool) {
        let path = |name| path_of(&self.name, life, name);
        let (client, begun) = (&self.client, Instant::now());
        let result = match op {
            Op::Create(name) => client.create_new(path(name)).wait().map(drop),
            Op::Link(from, to) => client.hard_link(path(from), path(to)).wait().map(drop),
            Op::Rename(from, to) => client.rename(path(from), path(to)).no_replace().wait(),
            Op::Unlink(name) => client.remove_file(path(name)).wait(),
            // By its object: a put by path would make a file that is missing.
            // What is written is never shorter than what is there, so one write replaces all of it.
            Op::Put(name, contents) => {
                client.open(path(name)).wait().and_then(|file| file.write(contents_of(life, contents)).at(0).wait().map(drop))
            }
        };
        match result {
            Ok(()) => (Answer::Done, true),
            // Its session has ended; or its time was up, and then it may be executed as long as the session lives.
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => (Answer::Unknown, begun.elapsed() < GIVE_UP),
            Err(e) => match e.code() {
                "ENOENT" => (Answer::NoEntry, true),
                "EEXIST" => (Answer::Exists, true),
                "BUSY" | "IN_GRACE" => (Answer::Refused, true),
                // The object is gone under it: only what was opened before can meet that.
                _ => (Answer::Unknown, false),
            },
        }
    }

    /// What the file is; `None`: it cannot be said now.
    fn look(&self, number: u64) -> Option<State> {
        let mut seen = State::default();
        for name in 0..NAMES {
            match self.client.read(path_of(&self.name, number, name)).wait() {
                Ok(contents) => {
                    seen.names |= 1 << name;
                    seen.contents = read_contents(number, &contents.bytes).unwrap_or(u32::MAX);
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
        Some(seen)
    }

    fn make_directory(&mut self, life: u64) -> bool {
        let number = life / LIVES_PER_DIRECTORY;
        if self.made == Some(number) {
            return true;
        }
        for path in [format!("/{}", self.name), directory_of(&self.name, life)] {
            // Each begins a realm: what it holds is counted in it, and in the one around it.
            match self.client.create_realm(path).wait() {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(_) => return false,
            }
        }
        self.made = Some(number);
        true
    }

    /// Takes one of the locks and raises its counter by one.
    fn raise_a_counter(&mut self) -> io::Result<Option<String>> {
        let lock = u8::try_from(self.rng.below(u64::from(LOCKS))).unwrap_or(0);
        let (lock_path, counter) = (format!("/lock{lock}"), format!("/counter{lock}"));
        if self.client.create(&lock_path).wait().is_err() {
            thread::sleep(PAUSE);
            return Ok(None);
        }
        let Ok(guard) = self.client.lock(&lock_path).timeout(LOCK_WAIT).wait() else { return Ok(None) };
        let value = match self.client.read(&counter).wait() {
            Ok(contents) => match number(&contents.bytes) {
                Some(value) => value,
                None => return Ok(Some(format!("{counter} has {:?}", contents.bytes))),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => 0,
            Err(_) => return Ok(None),
        };
        if !guard.is_valid() {
            return Ok(None);
        }
        self.shared.write(Record::Held(lock, guard.token().0, value))?;
        if !guard.is_valid() {
            return Ok(None);
        }
        self.shared.write(Record::Certain(lock, guard.token().0, 0))?;
        if self.client.write(&counter, (value + 1).to_string()).guarded_by(&guard).wait().is_ok() {
            self.shared.write(Record::Raised(lock, guard.token().0, value + 1))?;
        }
        self.beat(lock, &guard)?;
        Ok(None)
    }

    /// Goes on for a while, as long as the lock is certain, and writes that down: nobody else may have it meanwhile.
    fn beat(&mut self, lock: u8, guard: &Guard) -> io::Result<()> {
        let beats = if self.rng.below(4) == 0 { self.rng.below(BEATS_MAX) } else { 0 };
        for beat in 1..=beats {
            thread::sleep(BEAT);
            if !guard.is_valid() {
                break;
            }
            self.shared.write(Record::Beat(lock, guard.token().0, beat))?;
            if !guard.is_valid() {
                break;
            }
            self.shared.write(Record::Certain(lock, guard.token().0, beat))?;
        }
        Ok(())
    }

    /// Reads one of the tallies, and sets it to one more if nobody has changed it since.
    fn step_a_tally(&mut self) -> io::Result<Option<String>> {
        let tally = u8::try_from(self.rng.below(u64::from(TALLIES))).unwrap_or(0);
        let path = tally_path(tally);
        if self.client.create(&path).wait().is_err() {
            thread::sleep(PAUSE);
            return Ok(None);
        }
        self.shared.write(Record::Looking(tally, self.number, 0))?;
        let Ok(contents) = self.client.read(&path).wait() else { return Ok(None) };
        let Some(value) = number(&contents.bytes) else { return Ok(Some(format!("{path} has {:?}", contents.bytes))) };
        self.shared.write(Record::Looked(tally, self.number, value))?;
        if self.rng.below(3) == 0 {
            return Ok(None);
        }
        let version = contents.metadata.version();
        self.shared.write(Record::Trying(tally, value + 1, version.number))?;
        let stepped = self.client.write(&path, (value + 1).to_string()).if_version(version).wait();
        if stepped.is_ok() {
            self.shared.write(Record::Stepped(tally, value + 1, version.number))?;
        }
        Ok(None)
    }
}

/// Where a tally is.
pub(crate) fn tally_path(tally: u8) -> String {
    format!("/tally{tally}")
}

/// A number as it stands in a file; an empty one is 0.
pub(crate) fn number(data: &[u8]) -> Option<u64> {
    if data.is_empty() { Some(0) } else { std::str::from_utf8(data).ok()?.parse().ok() }
}

/// The number of a file's contents; `None`: they are not what this life wrote.
pub(crate) fn read_contents(life: u64, data: &[u8]) -> Option<u32> {
    if data.is_empty() {
        return Some(0);
    }
    let (of, contents) = std::str::from_utf8(data).ok()?.split_once(':')?;
    if of.parse() == Ok(life) { contents.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_those_of_their_own_life_or_nobodys() {
        assert_eq!(read_contents(7, contents_of(7, 3).as_bytes()), Some(3));
        assert_eq!(read_contents(7, b""), Some(0));
        for foreign in ["8:3", "7:", "7", "\u{fffd}"] {
            assert_eq!(read_contents(7, foreign.as_bytes()), None, "{foreign}");
        }
    }
}
