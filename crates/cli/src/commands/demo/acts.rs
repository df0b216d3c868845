//! The acts: import, reading cold and from cache, hand-over by demand, renewals, failure, steal and recovery.
//!
//! Decides: what each act does and which claims it checks by the processes' own counters.
//! Waiting is bounded everywhere; instants are read when this process sees an event, so a bound that the protocol keeps is checked
//! with the time between two looks as tolerance.

use super::cast::{AgentPlayer, Cast};
use super::report::DemoReport;
use super::scenery::Tree;
use crate::backend::{Backend, Line, own_client};
use crate::execute::Own;
use crate::local::{Failure, Request, Response, millis};
use crate::options::Options;
use crate::text::Text;
use crate::tree::import_tree;
use cistern_client::FileType;
use cistern_text::Progress;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(2);
const TREE: &str = "/tree";
const JOB: &str = "/nightly";

pub(crate) fn import(cast: &Cast, tree: &Tree, report: &mut DemoReport) -> Result<(), Failure> {
    let (server, key_file) = (vec![cast.server.to_string()], Some(cast.key_file.clone()));
    let options = Options { server, key_file, config: Some("/dev/null".into()), ..Options::default() };
    let mut backend = Backend::Own(own_client(&options, Some("import".to_owned()))?, Own::default());
    let tally = import_tree(&mut backend, &tree.dir, &TREE.into(), &mut Progress::default())?;
    backend.call(Request::Create { path: JOB.into(), exclusive: true, mode: 0o644 })?;
    backend.close();
    report.say(&format!(
        "{} imported: {} directories, {} files, {} links, {} KiB{}",
        tree.dir.display(),
        tally.directories,
        tally.files,
        tally.symlinks,
        tally.bytes / 1_024,
        if tally.left_out.is_empty() { String::new() } else { format!(" ({} entries left out)", tally.left_out.len()) }
    ))
}

/// What reading a whole tree took.
#[derive(PartialEq, Eq)]
struct Reading {
    operations: u64,
    bytes: u64,
}

/// Lists every directory and reads every file and link.
fn read_all(agent: &mut AgentPlayer) -> Result<Reading, Failure> {
    let mut reading = Reading { operations: 0, bytes: 0 };
    let mut todo = vec![Text::from(TREE)];
    while let Some(dir) = todo.pop() {
        let rows = agent.ask(Request::List { path: dir.clone(), detail: false })?.listing()?;
        reading.operations += 1;
        for row in rows {
            let path = dir.join(&row.name.0);
            if row.kind == FileType::Directory.name() {
                todo.push(path);
                continue;
            }
            let request = if row.kind == FileType::Symlink.name() { Request::ReadLink { path } } else { Request::Read { path } };
            match agent.ask(request)? {
                Response::Data { data, .. } => reading.bytes += data.0.len() as u64,
                Response::Link(target) => reading.bytes += target.0.len() as u64,
                other => return Err(other.unexpected()),
            }
            reading.operations += 1;
        }
    }
    Ok(reading)
}

pub(crate) fn read_cold_and_cached(cast: &mut Cast, report: &mut DemoReport) -> Result<(), Failure> {
    for (agent, name) in [(&mut cast.a, "A"), (&mut cast.b, "B")] {
        let start = agent.lease()?;
        let cold = read_all(agent)?;
        let middle = agent.lease()?;
        let cached = read_all(agent)?;
        let end = agent.lease()?;
        let (first, second) = (middle.requests - start.requests, end.requests - middle.requests);
        report.say(&format!(
            "agent {name} read it all: cold {} operations, {} KiB, {first} requests; then from cache {} operations, {second} requests",
            cold.operations,
            cold.bytes / 1_024,
            cached.operations
        ))?;
        let seen =
            format!("{second} requests for {} operations, {} of them from cache", cached.operations, end.cache_hits - middle.cache_hits);
        report.claim(
            &format!("agent {name} answers all of it from cache with no message"),
            first > 0 && second == 0 && cached == cold,
            seen,
        )?;
    }
    Ok(())
}

fn lock(line: &mut Line, wait: Duration) -> Result<(u64, u64), Failure> {
    line.call(&Request::Lock { path: JOB.into(), shared: false, slots: None, wait_ms: Some(millis(wait)), linger: false, events: false })?
        .locked()
}

pub(crate) fn hand_over(cast: &mut Cast, report: &mut DemoReport) -> Result<(), Failure> {
    let wait = Duration::from_secs(5);
    let (mut a, mut b) = (cast.a.connect()?, cast.b.connect()?);
    let (hold, first) = lock(&mut a, wait)?;
    a.call(&Request::Unlock { hold })?;
    let before = cast.a.lease()?;
    let (hold, again) = lock(&mut a, wait)?;
    let after = cast.a.lease()?;
    a.call(&Request::Unlock { hold })?;
    report.say(&format!(
        "A locked {JOB} twice: tokens {first} and {again}, the second time with {} requests",
        after.requests - before.requests
    ))?;
    report.claim(
        "a lock that the agent still has is taken again with no message, under a larger token",
        after.requests == before.requests && again > first,
        format!("{again} > {first}"),
    )?;
    let asked = Instant::now();
    let (hold, token) = lock(&mut b, wait)?;
    let took = asked.elapsed();
    let demanded = cast.a.lease()?.demands - after.demands;
    report.say(&format!("B locked it: A was demanded to give it back, B has it after {} µs under token {token}", took.as_micros()))?;
    report.claim(
        "a lock passes by demand, under a larger token, without waiting for a lease",
        demanded > 0 && token > again,
        format!("{demanded} demand, {token} > {again}"),
    )?;
    b.call(&Request::Unlock { hold })?;
    Ok(())
}

pub(crate) fn renewals(cast: &mut Cast, report: &mut DemoReport) -> Result<(), Failure> {
    let start = cast.a.lease()?;
    let lease = Duration::from_millis(start.lease_ms);
    let busy_until = Instant::now() + lease;
    while Instant::now() < busy_until {
        cast.a.ask(Request::Ping)?;
        thread::sleep(lease / 20);
    }
    let busy = cast.a.lease()?;
    let (busy_implicit, busy_explicit) =
        (busy.renewals_opportunistic - start.renewals_opportunistic, busy.renewals_explicit - start.renewals_explicit);
    thread::sleep(lease.mul_f64(1.5));
    let idle = cast.a.lease()?;
    let (implicit, explicit) = (idle.renewals_opportunistic - busy.renewals_opportunistic, idle.renewals_explicit - busy.renewals_explicit);
    report.say(&format!(
        "A's renewals: while it worked for one lease period {busy_implicit} by the way and {busy_explicit} on purpose, while it was idle for 1.5 periods {implicit} and {explicit}"
    ))?;
    report.claim(
        "ordinary requests renew the lease; keep-alives are sent only when there are none",
        busy_implicit > 0 && busy_explicit == 0 && explicit > 0,
        format!("{busy_explicit} keep-alives while busy, {explicit} while idle"),
    )
}

/// Looks again and again until there is an answer.
fn until<T>(what: &str, most: Duration, mut look: impl FnMut() -> Result<Option<T>, Failure>) -> Result<(Instant, T), Failure> {
    let end = Instant::now() + most;
    loop {
        let found = look()?;
        let now = Instant::now();
        if let Some(value) = found {
            return Ok((now, value));
        }
        if now >= end {
            return Err(Failure::failed(format!("waited {} ms in vain until {what}", most.as_millis())));
        }
        thread::sleep(LOOK);
    }
}

fn hold_state(line: &mut Line, hold: u64) -> Result<String, Failure> {
    Ok(line.call(&Request::Hold { hold })?.hold()?.state)
}

fn number(status: &Value, name: &str) -> Result<u64, Failure> {
    status[name].as_u64().ok_or_else(|| Failure::failed(format!("the server's status has no number {name:?}: {status}")))
}

/// The instants of a failure as they were seen from outside.
struct Failover {
    cut: Instant,
    decided: Instant,
    a_stopped: Instant,
    b_has_it: Instant,
    a_token: u64,
    b_token: u64,
}

pub(crate) fn failure_and_recovery(cast: &mut Cast, report: &mut DemoReport) -> Result<(), Failure> {
    let view = cast.a.lease()?;
    let lease = Duration::from_millis(view.lease_ms);
    let status = cast.server_status()?;
    report.claim(
        "without a failure the server runs no lease timer",
        number(&status, "timing_out")? == 0 && number(&status, "lease_timers")? == 0,
        format!("{} sessions, 0 lease timers", number(&status, "sessions")?),
    )?;
    let most = lease * 4;
    let mut a = cast.a.connect()?;
    let (hold, a_token) = lock(&mut a, most)?;
    report.say(&format!("A holds {JOB} under token {a_token}; its datagrams are cut from now on, both ways"))?;
    let failover = fail(cast, &mut a, hold, a_token, most)?;
    tell_failover(&failover, &status, lease, report)?;
    recover(cast, &mut a, hold, &view, most, report)
}

fn fail(cast: &Cast, a: &mut Line, hold: u64, a_token: u64, most: Duration) -> Result<Failover, Failure> {
    cast.relay.cut();
    let cut = Instant::now();
    let mut b = cast.b.connect()?;
    let b_waits = thread::spawn(move || lock(&mut b, most).map(|(_, token)| (Instant::now(), token, b)));
    let (decided, ()) =
        until("the server saw the delivery fail", most, || Ok((number(&cast.server_status()?, "timing_out")? == 1).then_some(())))?;
    let (a_stopped, _) = until("A stopped by its own clock", most, || Ok(Some(hold_state(a, hold)?).filter(|s| s != "certain")))?;
    let (b_has_it, b_token, _b) = b_waits.join().map_err(|_| Failure::failed("the thread that waits for B's lock has panicked"))??;
    Ok(Failover { cut, decided, a_stopped, b_has_it, a_token, b_token })
}

fn tell_failover(f: &Failover, status: &Value, lease: Duration, report: &mut DemoReport) -> Result<(), Failure> {
    let timer = Duration::from_micros(number(status, "timer_us")?);
    let since_cut = |at: Instant| at.saturating_duration_since(f.cut);
    report.say_at(
        f.decided,
        &format!("the server saw the delivery fail, {} ms after the cut, and waits", since_cut(f.decided).as_millis()),
    )?;
    report.say_at(f.a_stopped, &format!("A stopped by its own clock, {} ms after the cut", since_cut(f.a_stopped).as_millis()))?;
    report
        .say_at(f.b_has_it, &format!("B has the lock under token {}, {} ms after the cut", f.b_token, since_cut(f.b_has_it).as_millis()))?;
    let waited = f.b_has_it.saturating_duration_since(f.decided);
    // The decision was seen at most one look and one round of the control socket after it was made.
    let tolerance = Duration::from_millis(50);
    report.claim(
        "the server waits τ(1+δ) after the failed delivery before it steals",
        waited + tolerance >= timer,
        format!("{} ms waited ({} τ), timer {} ms", waited.as_millis(), report.leases(waited), timer.as_millis()),
    )?;
    report.claim(
        "A stopped before B could have the lock",
        f.a_stopped < f.b_has_it,
        format!("{} ms before", f.b_has_it.saturating_duration_since(f.a_stopped).as_millis()),
    )?;
    report.claim(
        "A stopped within τ of the cut, without hearing from anybody",
        since_cut(f.a_stopped) <= lease + tolerance,
        format!("{} τ", report.leases(since_cut(f.a_stopped))),
    )?;
    report.claim("B's token is larger than A's", f.b_token > f.a_token, format!("{} > {}", f.b_token, f.a_token))
}

fn recover(
    cast: &mut Cast,
    a: &mut Line,
    hold: u64,
    before: &crate::local::Lease,
    most: Duration,
    report: &mut DemoReport,
) -> Result<(), Failure> {
    let lost = cast.relay.heal();
    report.say(&format!("the cut heals; {lost} datagrams were lost in it"))?;
    cast.a.ask(Request::Stat { path: TREE.into(), follow: true })?;
    let (_, _) = until("A knows that its lock is lost", most, || Ok(Some(hold_state(a, hold)?).filter(|s| s == "lost")))?;
    let after = cast.a.lease()?;
    report.say(&format!(
        "A was told that its session is over, told its user, and works again in session {}",
        after.session.as_deref().unwrap_or("?")
    ))?;
    report.claim(
        "A is NACKed, told what it lost, and recovers in a new session",
        after.nacks > before.nacks && after.session.is_some() && after.session != before.session,
        format!(
            "{} NACK, session {} became {}",
            after.nacks - before.nacks,
            short(before.session.as_deref()),
            short(after.session.as_deref())
        ),
    )?;
    let status = cast.server_status()?;
    report.claim(
        "the steal is the server's only one, and no lease timer is left",
        number(&status, "steals")? == 1 && number(&status, "lease_timers")? == 0,
        format!("{} steal, {} lease timers", number(&status, "steals")?, number(&status, "lease_timers")?),
    )
}

fn short(session: Option<&str>) -> &str {
    session.map_or("none", |s| s.get(..8).unwrap_or(s))
}
