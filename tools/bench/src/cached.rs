//! What the host has already: attributes under a cache lock, and an advisory lock that the agent keeps. Nanoseconds a call, in process.
//!
//! Decides the calls: stat by path and by object, taking a lock that is held here anyway, giving it back. They are timed a hundred at a
//! time on the agent as it is, without the clock reads that its caller makes (locks also with them), and through the client library.
//! Place: a workload, over `fleet` and `cistern-client`. Invariant: the agent's own counters say that no datagram went or came.
//! Leaves to others: allocations, which a test of the agent counts.

use crate::aims::HELD;
use crate::cases::Plan;
use crate::figures::{Spread, count};
use crate::fleet::Member;
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_agent::api::{Command, HolderId, LeaseView, Output, Ownership, Submitted, Target, Wait};
use cistern_client::{Client, File, Guard};
use cistern_wire::{Mode, ObjectId};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Calls timed together.
const TOGETHER: usize = 100;
/// Batches of a round that calls are timed in.
const BATCHES: usize = 200;
/// Files that locks are on: as many as calls timed together, for a lock that is held is not taken again by the same holder.
const FILES: usize = TOGETHER;

/// How long between two looks at what should be in the cache, and how many.
const WARMING: (Duration, u32) = (Duration::from_millis(10), 200);

const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

/// Measures the calls on the agent and through the client library.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    progress.say("cached answers in process");
    let host = Host::start(Role::Server, plan.cores)?;
    let mut member = Member::new(host.address, 0)?;
    let files = prepare(&mut member)?;
    let mut section = Section::new("cached", "what the host has already: ns a call in process, a hundred calls timed together");
    let rounds = plan.rounds as usize * BATCHES;
    section.rows.push(stat(&mut member, rounds, "stat of an object", &Target::Object(files[0]))?);
    section.rows.push(stat(&mut member, rounds, "stat of /d/file-0 by path", &Target::Path("/d/file-0".into()))?);
    for with_clock in [false, true] {
        section.rows.extend(locks(&mut member, rounds, &files, with_clock)?);
    }
    let clock = member.clock().clone();
    let clocks = (0..rounds).map(|_| timed(|| (0..TOGETHER).for_each(|_| _ = black_box(clock.now()))));
    section.rows.push(Row::new("(one reading of the two lease clocks)").with("ns", "ns/call", spread(clocks.collect())));
    progress.say("cached answers through the client library");
    for sealed in [false, true] {
        section.rows.extend(by_client(plan, rounds, sealed)?);
    }
    Ok(section)
}

/// A directory of files, all in the agent's cache.
fn prepare(member: &mut Member) -> Result<Vec<ObjectId>, Trouble> {
    member.run(Command::Mkdir { path: "/d".into(), owner: OWNER })?;
    let mut files = Vec::with_capacity(FILES);
    for number in 0..FILES {
        let path = format!("/d/file-{number}").into();
        let made = member.run(Command::Create { path, exclusive: true, ephemeral: false, owner: OWNER })?;
        let Output::Attr(attr) = made else { return Err(unexpected(&made)) };
        files.push(attr.object);
    }
    // Looking asks for the cache locks. A directory that has just changed often gets none for some milliseconds.
    for _ in 0..WARMING.1 {
        let stat = Command::Stat { target: Target::Path("/d/file-0".into()), follow: true };
        if matches!(member.submit(stat.clone()), Submitted::Now(Ok(_))) {
            return Ok(files);
        }
        member.run(stat)?;
        thread::sleep(WARMING.0);
    }
    Err(not_cached("a path that was looked at again and again"))
}

fn stat(member: &mut Member, rounds: usize, name: &str, target: &Target) -> Result<Row, Trouble> {
    let before = Sent::of(&member.view());
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        member.turn()?;
        let now = member.clock().now();
        let agent = member.agent();
        let mut hits = 0;
        times.push(timed(|| {
            for _ in 0..TOGETHER {
                let submitted = agent.submit(now, Command::Stat { target: target.clone(), follow: true });
                hits += usize::from(matches!(black_box(submitted), Submitted::Now(Ok(Output::Attr(_)))));
            }
        }));
        if hits < TOGETHER {
            return Err(not_cached(name));
        }
    }
    Ok(messages(Row::new(name).with("ns", "ns/call", spread(times)), before, Sent::of(&member.view()), rounds * TOGETHER))
}

/// Locks that the host has and nobody holds at the moment are taken and given back, each call at the time that the clocks say, or all
/// of a batch at one.
fn locks(member: &mut Member, rounds: usize, files: &[ObjectId], with_clock: bool) -> Result<[Row; 2], Trouble> {
    let lock = |object: &ObjectId| Command::Lock { target: Target::Object(*object), mode: Mode::Exclusive, wait: Wait::Try };
    for object in files {
        let taken = member.run(lock(object))?;
        let Output::Locked(locked) = taken else { return Err(unexpected(&taken)) };
        member.run(Command::Unlock { holder: locked.holder })?;
    }
    let before = Sent::of(&member.view());
    let (mut taking, mut giving) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    let mut holders: Vec<HolderId> = Vec::with_capacity(files.len());
    let clock = member.clock().clone();
    for _ in 0..rounds {
        member.turn()?;
        let once = clock.now();
        let now = || if with_clock { clock.now() } else { once };
        let agent = member.agent();
        holders.clear();
        taking.push(timed(|| {
            for object in files {
                if let Submitted::Now(Ok(Output::Locked(locked))) = agent.submit(now(), lock(object)) {
                    holders.push(locked.holder);
                }
            }
        }));
        if holders.len() < files.len() {
            return Err(not_cached("a lock that the host already holds"));
        }
        giving.push(timed(|| {
            for holder in &holders {
                drop(black_box(agent.submit(now(), Command::Unlock { holder: *holder })));
            }
        }));
        while member.ended().is_some() {}
    }
    let (after, calls) = (Sent::of(&member.view()), rounds * files.len());
    let [lock, unlock] = if with_clock {
        [HELD, "unlock of it, with its clock reading"]
    } else {
        ["lock again that the host has", "unlock of it, kept by the host"]
    };
    Ok([
        messages(Row::new(lock).with("ns", "ns/call", spread(taking)), before, after, calls),
        messages(Row::new(unlock).with("ns", "ns/call", spread(giving)), before, after, calls),
    ])
}

/// The same as an application calls it, from another thread than the agent's, with its clock reads. At a server of its own: the agent
/// measured before stands still, and would not give back what it has.
fn by_client(plan: &Plan, rounds: usize, sealed: bool) -> Result<Vec<Row>, Trouble> {
    let host = Host::start_with(Role::Server, plan.cores, &Setup { sealed, ..Setup::default() })?;
    let wrong = |error: cistern_client::Error| Trouble::starting("using the client library")(error);
    let builder = Client::builder().insecure().server(host.address.to_string());
    let builder = if let Some(by) = host.sealed_by() { builder.key(by.agent, by.server) } else { builder };
    let client = builder.connect().map_err(wrong)?;
    let library = if sealed { "client library, sealed" } else { "client library" };
    let paths: Vec<String> = (0..FILES).map(|number| format!("/d/file-{number}")).collect();
    client.create_dir("/d").wait().map_err(wrong)?;
    for path in &paths {
        client.create_new(path).wait().map_err(wrong)?;
    }
    let is_cached = || -> Result<bool, Trouble> {
        let requests = client.lease().map_err(wrong)?.requests;
        client.metadata(&paths[0]).wait().map_err(wrong)?;
        Ok(client.lease().map_err(wrong)?.requests == requests)
    };
    let mut looks = 0;
    while !is_cached()? {
        looks += 1;
        if looks == WARMING.1 {
            return Err(not_cached("a path that the client library was asked for again and again"));
        }
        thread::sleep(WARMING.0);
    }
    let before = Sent::of_client(&client).map_err(wrong)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let mut found = Ok(());
        times.push(timed(|| found = (0..TOGETHER).try_for_each(|_| client.metadata(&paths[0]).wait().map(|attr| _ = black_box(attr)))));
        found.map_err(wrong)?;
    }
    let after = Sent::of_client(&client).map_err(wrong)?;
    let stat =
        messages(Row::new(format!("{library}: stat by path")).with("ns", "ns/call", spread(times)), before, after, rounds * TOGETHER);
    let opened: Vec<File> = paths.iter().map(|path| client.open(path).wait()).collect::<Result<_, _>>().map_err(wrong)?;
    for path in &paths {
        client.lock(path).wait().map_err(wrong)?;
    }
    let mut rows = vec![stat];
    for of_open_files in [false, true] {
        let before = Sent::of_client(&client).map_err(wrong)?;
        let (mut taking, mut giving) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        for _ in 0..rounds {
            let mut guards: Vec<Result<Guard, _>> = Vec::with_capacity(paths.len());
            taking.push(timed(|| {
                if of_open_files {
                    guards.extend(opened.iter().map(|file| file.lock().wait()));
                } else {
                    guards.extend(paths.iter().map(|path| client.lock(path).wait()));
                }
            }));
            let guards = guards.into_iter().collect::<Result<Vec<_>, _>>().map_err(wrong)?;
            giving.push(timed(|| drop(guards)));
        }
        let (after, calls) = (Sent::of_client(&client).map_err(wrong)?, rounds * paths.len());
        let [lock, unlock] = if of_open_files {
            ["lock again, of an open file", "unlock of it, an open file"]
        } else {
            ["lock again that the host has", "unlock of it"]
        };
        rows.push(messages(Row::new(format!("{library}: {lock}")).with("ns", "ns/call", spread(taking)), before, after, calls));
        rows.push(messages(Row::new(format!("{library}: {unlock}")).with("ns", "ns/call", spread(giving)), before, after, calls));
    }
    Ok(rows)
}

/// Nanoseconds for one of `TOGETHER` calls.
fn timed(calls: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    calls();
    begin.elapsed().as_secs_f64() * 1e9 / count(TOGETHER as u64)
}

fn spread(values: Vec<f64>) -> Spread {
    Spread::of(values).expect("the command line lets no plan without rounds through")
}

/// What an agent has sent.
#[derive(Clone, Copy)]
struct Sent {
    datagrams: u64,
    renewals: u64,
}

impl Sent {
    const fn of(view: &LeaseView) -> Self {
        Self { datagrams: view.datagrams_out, renewals: view.renewals_explicit }
    }

    fn of_client(client: &Client) -> Result<Self, cistern_client::Error> {
        let view = client.lease()?;
        Ok(Self { datagrams: view.datagrams_out, renewals: view.renewals_explicit })
    }
}

/// What was sent for it, but for what renews the lease by itself.
fn messages(row: Row, before: Sent, after: Sent, calls: usize) -> Row {
    let sent = after.datagrams - before.datagrams;
    let renewing = after.renewals - before.renewals;
    row.with("datagrams", "datagrams", sent.saturating_sub(renewing)).with("keep_alives", "keep-alives", renewing).with(
        "calls",
        "calls",
        calls as u64,
    )
}

fn not_cached(what: &str) -> Trouble {
    Trouble::Answer { while_doing: "asking what the host has", expected: "an answer at once", got: format!("none: {what}") }
}

fn unexpected(output: &Output) -> Trouble {
    Trouble::Answer { while_doing: "preparing what the host has", expected: "attributes or a lock", got: format!("{output:?}") }
}
