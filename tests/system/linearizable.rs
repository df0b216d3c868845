//! Linearizability: several threads act through two agents with caches on, and what they saw must be what one order of instants explains.
//!
//! Decides: the operations (on two names, their contents, attributes and versions), the plain state that they mean, and the search for an
//! order (Wing and Gong's, with the states seen remembered, after Lowe). Each operation takes effect once, between its call and its return.
//! As in POSIX, contents are written and read in the file to which the path led when it was walked: the answer says which.

use crate::posix::status;
use crate::relay::Relay;
use cistern_client::{Client, Error, Metadata, Version};
use cistern_testkit::Server;
use cistern_wire::Status;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const NAMES: [&str; 2] = ["/d/0", "/d/1"];

/// What a thread does; every number that is written is written once.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create(usize),
    Put(usize, u64),
    /// Puts both in one batch.
    PutBoth(u64),
    /// Puts if the contents are still those of the version that was read: these.
    Cas(usize, u64, u64),
    Read(usize),
    Unlink(usize),
    Exchange,
    /// Moves the first name over the second.
    Move,
    SetXattr(usize, u64),
    GetXattr(usize),
    List,
}

/// What it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    /// Of the file with this number.
    On(u64),
    /// Of both files: these.
    OnBoth([u64; 2]),
    /// Of the file with this number, what was read.
    Number(u64, u64),
    Missing,
    Exists,
    /// Of the file with this number, or of one that is gone.
    NoAttribute,
    Names([bool; 2]),
    /// It had no effect, for a reason that says nothing of the state.
    Nothing,
}

/// An operation and when it was called and returned, by one clock.
#[derive(Clone, Copy, Debug)]
struct Op {
    act: Act,
    told: Told,
    called: u64,
    returned: u64,
}

/// A file: its number, contents (0: none) and attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct File {
    number: u64,
    contents: u64,
    attribute: Option<u64>,
}

/// What each name names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    files: [Option<File>; 2],
}

impl State {
    /// The state after an operation, if this is what it would have been told.
    fn after(mut self, act: Act, told: Told) -> Option<Self> {
        (self.run(act, told) == Some(told)).then_some(self)
    }

    /// The file with a number, wherever its name has gone.
    fn file(&mut self, number: u64) -> Option<&mut File> {
        self.files.iter_mut().flatten().find(|file| file.number == number)
    }

    /// Writes the file with a number, or makes it under a name that is free.
    fn put(&mut self, n: usize, number: u64, contents: u64) -> Option<()> {
        if let Some(file) = self.file(number) {
            file.contents = contents;
        } else if self.files[n].is_none() {
            self.files[n] = Some(File { number, contents, attribute: None });
        } else {
            return None;
        }
        Some(())
    }

    fn run(&mut self, act: Act, told: Told) -> Option<Told> {
        match (act, told) {
            (Act::Create(n), _) if self.files[n].is_some() => return Some(Told::Exists),
            (Act::Create(n) | Act::Put(n, _), Told::On(number)) => {
                let contents = if let Act::Put(_, value) = act { value } else { 0 };
                self.put(n, number, contents)?;
                return Some(told);
            }
            (Act::PutBoth(value), Told::OnBoth(numbers)) => {
                self.put(0, numbers[0], value)?;
                self.put(1, numbers[1], value)?;
                return Some(told);
            }
            (Act::Cas(_, old, value), Told::On(number)) => {
                let file = self.file(number).filter(|file| file.contents == old)?;
                file.contents = value;
                return Some(told);
            }
            (Act::SetXattr(_, value), Told::On(number)) => {
                self.file(number)?.attribute = Some(value);
                return Some(told);
            }
            (Act::Read(_), Told::Number(number, _)) => return self.file(number).map(|file| Told::Number(file.number, file.contents)),
            (Act::Read(n), _) => return self.files[n].is_none().then_some(Told::Missing),
            (Act::GetXattr(n), _) => {
                return Some(
                    self.files[n]
                        .map_or(Told::Missing, |file| file.attribute.map_or(Told::NoAttribute, |value| Told::Number(file.number, value))),
                );
            }
            (Act::SetXattr(n, _), Told::Missing) => return self.files[n].is_none().then_some(told),
            (Act::Unlink(n), _) => return Some(self.files[n].take().map_or(Told::Missing, |_| Told::Done)),
            (Act::Exchange, _) if self.files.iter().any(Option::is_none) => return Some(Told::Missing),
            (Act::Exchange, _) => self.files.swap(0, 1),
            (Act::Move, _) => match self.files[0].take() {
                Some(file) => self.files[1] = Some(file),
                None => return Some(Told::Missing),
            },
            (Act::List, _) => return Some(Told::Names(self.files.map(|file| file.is_some()))),
            _ => return None,
        }
        Some(Told::Done)
    }
}

/// Whether one order explains all; otherwise how far the best one came.
fn explained(mut history: Vec<Op>) -> Result<(), String> {
    history.retain(|op| op.told != Told::Nothing);
    history.sort_by_key(|op| op.called);
    let mut order: Vec<(usize, State)> = Vec::new();
    let mut done = vec![false; history.len()];
    let mut seen: HashSet<(Vec<bool>, State)> = HashSet::new();
    let (mut state, mut from, mut best) = (State::default(), 0, 0);
    loop {
        let open: Vec<usize> = (0..history.len()).filter(|at| !done[*at]).collect();
        let Some(deadline) = open.iter().map(|at| history[*at].returned).min() else { return Ok(()) };
        let possible = open.into_iter().filter(|at| *at >= from).take_while(|at| history[*at].called < deadline);
        let next = possible.into_iter().find_map(|at| {
            let after = state.after(history[at].act, history[at].told)?;
            done[at] = true;
            let new = seen.insert((done.clone(), after));
            done[at] = false;
            new.then_some((at, after))
        });
        if let Some((at, after)) = next {
            order.push((at, state));
            done[at] = true;
            best = best.max(order.len());
            (state, from) = (after, 0);
        } else if let Some((at, before)) = order.pop() {
            done[at] = false;
            (state, from) = (before, at + 1);
        } else {
            let around = &history[best.saturating_sub(8)..(best + 4).min(history.len())];
            return Err(format!("no order explains more than {best} of {} operations; near there: {around:#?}", history.len()));
        }
    }
}

fn told<T>(result: Result<T, Error>, good: impl FnOnce(T) -> Told) -> Told {
    match result {
        Ok(value) => good(value),
        Err(error) => match status(&error) {
            Some(Status::ENOENT) => Told::Missing,
            Some(Status::EEXIST) => Told::Exists,
            Some(Status::ENODATA) => Told::NoAttribute,
            // It changed or vanished as often as it was tried.
            Some(Status::VERSION_CHANGED | Status::ESTALE) => Told::Nothing,
            _ => panic!("{error}"),
        },
    }
}

fn number(bytes: &[u8]) -> u64 {
    if bytes.is_empty() { 0 } else { std::str::from_utf8(bytes).unwrap().parse().unwrap() }
}

/// What a thread has seen of a file: its contents, and under which version.
type Seen = Option<(u64, Version)>;

fn act(client: &Client, act: Act, seen: &mut [Seen; 2]) -> Told {
    let put = |n: usize, value: u64| client.write(NAMES[n], value.to_string());
    let on = |metadata: Metadata| Told::On(metadata.id().0);
    match act {
        Act::Create(n) => told(client.create_new(NAMES[n]).wait(), |made| Told::On(made.file.0)),
        Act::Put(n, value) => told(client.batch().add(put(n, value)).wait(), |done| Told::On(done[0].file.0)),
        Act::PutBoth(value) => {
            let both = client.batch().add(put(0, value)).add(put(1, value));
            told(both.wait(), |done| Told::OnBoth([done[0].file.0, done[1].file.0]))
        }
        Act::Cas(n, _, value) => match seen[n].take() {
            Some((_, version)) => told(put(n, value).if_version(version).wait(), on),
            None => Told::Nothing,
        },
        Act::Read(n) => told(client.read(NAMES[n]).wait(), |contents| {
            let (version, read) = (contents.metadata.version(), number(&contents.bytes));
            seen[n] = Some((read, version));
            Told::Number(version.file.0, read)
        }),
        Act::Unlink(n) => told(client.remove_file(NAMES[n]).wait(), |()| Told::Done),
        Act::Exchange => told(client.rename(NAMES[0], NAMES[1]).exchange().wait(), |()| Told::Done),
        Act::Move => told(client.rename(NAMES[0], NAMES[1]).wait(), |()| Told::Done),
        Act::SetXattr(n, value) => told(client.set_xattr(NAMES[n], "a", value.to_string()).wait(), on),
        Act::GetXattr(n) => told(client.get_xattr(NAMES[n], "a").wait(), |got| Told::Number(got.version.file.0, number(&got.value))),
        Act::List => told(client.read_dir("/d").wait(), |listed| {
            Told::Names(NAMES.map(|name| listed.entries.iter().any(|entry| name.ends_with(entry.file_name.to_str().unwrap()))))
        }),
    }
}

/// A stream of numbers for one thread.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*, which is enough to choose operations.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % sides
    }

    fn choose(&mut self, values: &AtomicU64, seen: &[Seen; 2]) -> Act {
        let n = usize::try_from(self.roll(2)).unwrap();
        let value = || values.fetch_add(1, Ordering::SeqCst);
        match self.roll(20) {
            0 => Act::Create(n),
            1 | 2 => Act::Put(n, value()),
            3 => Act::PutBoth(value()),
            4 | 5 => Act::Cas(n, seen[n].map_or(0, |(old, _)| old), value()),
            6 => Act::Unlink(n),
            7 => Act::Exchange,
            8 => Act::Move,
            9 => Act::SetXattr(n, value()),
            10 => Act::GetXattr(n),
            11 | 12 => Act::List,
            _ => Act::Read(n),
        }
    }
}

fn play(addresses: [SocketAddr; 2], threads_each: u64, acts: usize) -> Vec<Op> {
    let clients = addresses.map(|address| Client::builder().insecure().server(address.to_string()).connect().unwrap());
    clients[0].create_dir("/d").mode(0o755).wait().unwrap();
    let (clock, values) = (AtomicU64::new(1), AtomicU64::new(1));
    let run = |client: &Client, seed: u64| {
        let (mut dice, mut seen, mut history) = (Dice(seed), [None, None], Vec::new());
        for _ in 0..acts {
            let chosen = dice.choose(&values, &seen);
            let called = clock.fetch_add(1, Ordering::SeqCst);
            let told = act(client, chosen, &mut seen);
            let returned = clock.fetch_add(1, Ordering::SeqCst);
            history.push(Op { act: chosen, told, called, returned });
        }
        history
    };
    thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..2 * threads_each)
            .map(|thread| {
                let client = &clients[usize::try_from(thread % 2).unwrap()];
                scope.spawn(move || run(client, 0x9E37_79B9 + thread))
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# An answer made from several cached objects MUST be true at one instant: when the last was read, all locks used are held, and the objects
//# have the versions read.
#[test]
fn what_two_agents_with_caches_see_is_explained_by_one_order() {
    let server = Server::with(&["--lease", "4s"]);
    let history = play([server.address; 2], 2, 250);
    let informative = history.iter().filter(|op| op.told != Told::Nothing).count();
    assert!(informative > history.len() * 9 / 10, "only {informative} of {} operations say anything", history.len());
    if let Err(why) = explained(history) {
        panic!("{why}");
    }
}

#[test]
fn what_they_see_over_a_network_that_loses_and_repeats_is_explained_by_one_order() {
    let server = Server::with(&["--lease", "4s"]);
    let relays = [Relay::start(server.address), Relay::start(server.address)];
    relays.iter().for_each(|relay| relay.disturb(5, 10));
    if let Err(why) = explained(play([relays[0].address, relays[1].address], 2, 60)) {
        panic!("{why}");
    }
}

#[test]
fn the_search_finds_what_no_order_explains() {
    let op = |act, told, called, returned| Op { act, told, called, returned };
    let stale = vec![
        op(Act::Put(0, 1), Told::On(7), 1, 2),
        op(Act::Put(0, 2), Told::On(7), 3, 6),
        op(Act::Read(0), Told::Number(7, 2), 4, 5),
        op(Act::Read(0), Told::Number(7, 1), 7, 8),
    ];
    assert!(explained(stale.clone()).is_err());
    assert!(explained(stale[..3].to_vec()).is_ok());
    let torn = vec![
        op(Act::PutBoth(1), Told::OnBoth([7, 8]), 1, 2),
        op(Act::PutBoth(2), Told::OnBoth([7, 8]), 3, 8),
        op(Act::Read(0), Told::Number(7, 2), 4, 5),
        op(Act::Read(1), Told::Number(8, 1), 6, 7),
    ];
    assert!(explained(torn).is_err(), "half a batch");
    let lost =
        vec![op(Act::Put(0, 1), Told::On(7), 1, 2), op(Act::Cas(0, 1, 2), Told::On(7), 3, 5), op(Act::Cas(0, 1, 3), Told::On(7), 4, 6)];
    assert!(explained(lost.clone()).is_err(), "two of one version");
    assert!(explained(lost[..2].to_vec()).is_ok());
}
