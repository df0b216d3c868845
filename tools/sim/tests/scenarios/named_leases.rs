//! Scenarios of named leases: how long each lasts by whose clock, over restarts, and what goes with it.

use bytes::Bytes;
use cistern_agent::api::{Command, OpError, Output, Ownership, Target, WatchEvent};
use cistern_seal::LeaseSecret;
use cistern_sim::clock::{Rates, UNIT};
use cistern_sim::script::{Agent, Op, Setting};
use cistern_wire::{Kind, Status};

const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };
/// Time to live, in milliseconds.
const TTL_MS: u32 = 5_000;
const TTL: u64 = TTL_MS as u64;

fn secret() -> LeaseSecret {
    LeaseSecret::from_array([7; 16])
}

fn bytes(path: &str) -> Bytes {
    Bytes::copy_from_slice(path.as_bytes())
}

fn makes(agent: &Agent, path: &str) -> Op {
    agent.does(Command::MakeLease { path: bytes(path), ttl_ms: TTL_MS, secret: secret(), owner: OWNER })
}

fn keeps(agent: &Agent, path: &str) -> Op {
    agent.does(Command::KeepLease { lease: Target::Path(bytes(path)), secret: secret() })
}

/// A lease at `/l` with `/f` attached.
fn lease(agent: &Agent) {
    makes(agent, "/l").done();
    agent.create("/f").done();
    agent.does(Command::Attach { path: bytes("/f"), lease: bytes("/l"), secret: secret() }).done();
}

/// The holder's clock is as slow, and the server's as fast, as δ allows. The holder keeps the lease each time that its own clock has come to
/// what it was told: nothing of it may have gone before (section 11.11).
#[test]
fn slowest_holder_finds_its_files_until_its_own_clock_says_that_the_lease_is_over() {
    let (slow, fast) = (Rates::both(UNIT - UNIT / 250), Rates::both(UNIT + UNIT / 250));
    let (s, [a, b]) = Setting::default().files(["/plain"]).clocks("a", slow).clocks("server", fast).agents(["a", "b"]);
    lease(&a);
    keeps(&a, "/l").done();
    // 10 ms before the holder's clock has come to it.
    s.pass(TTL * 1_000 / 996 - 10);
    b.stat("/l").done();
    b.stat("/f").done();
    s.pass(TTL);
    b.stat("/l").refused(Status::ENOENT);
    b.stat("/f").refused(Status::ENOENT);
    s.finish();
}

/// Its maker is gone for good, and its session stolen from; another agent, which has the secret, keeps the lease.
#[test]
fn lease_outlives_its_maker_as_long_as_anybody_keeps_it() {
    let (s, [a, b]) = Setting::default().files(["/plain"]).agents(["a", "b"]);
    lease(&a);
    a.crash();
    for _ in 0..4 {
        s.pass(TTL - 500);
        let Output::LeaseKept { .. } = keeps(&b, "/l").done() else { panic!("it was kept") };
    }
    b.stat("/f").done();
    s.pass(2 * TTL);
    b.stat("/l").refused(Status::ENOENT);
    assert_eq!(keeps(&b, "/l").fails(), OpError::Status(Status::ENOENT));
    s.finish();
}

/// Neither a secret of another lease nor none that anybody knows keeps anything.
#[test]
fn nobody_keeps_a_lease_without_its_secret() {
    let (s, [a, b]) = Setting::default().files(["/plain"]).agents(["a", "b"]);
    lease(&a);
    s.pass(TTL - 500);
    let other = LeaseSecret::from_array([8; 16]);
    b.does(Command::KeepLease { lease: Target::Path(bytes("/l")), secret: other }).refused(Status::EACCES);
    s.pass(2 * TTL);
    b.stat("/f").refused(Status::ENOENT);
    s.finish();
}

/// The server is away for longer than the lease lasts. Nobody could keep it meanwhile, and nobody is to blame: it has its whole time again.
#[test]
fn restart_gives_a_lease_its_whole_time_again() {
    let (s, [a, b]) = Setting::default().files(["/plain"]).agents(["a", "b"]);
    lease(&a);
    s.pass(TTL - 500);
    s.server.crash();
    s.pass(2 * TTL);
    s.server.start();
    s.until_so("grace is over", || !s.server.is_in_grace());
    s.pass(TTL - 500);
    keeps(&a, "/l").done();
    b.stat("/f").done();
    s.pass(3 * TTL);
    b.stat("/f").refused(Status::ENOENT);
    assert_eq!(s.server.status().named_leases, 0);
    s.finish();
}

/// A reader has cached an attached file, and is dead when the lease ends. The lease ends in time; its file when the reader's locks are free; and
/// neither comes back over a restart in between.
#[test]
fn file_that_a_dead_reader_has_cached_goes_when_its_locks_are_free_and_the_lease_stays_ended() {
    let (s, [a, b, c]) = Setting::default().files(["/plain"]).agents(["a", "b", "c"]);
    lease(&a);
    let watched = c.watches("/l");
    b.stat("/f").done();
    s.pass(TTL - 500);
    b.crash();
    s.pass(1_000);
    assert_eq!(s.server.status().named_leases, 0);
    c.stat("/f").done();
    assert!(matches!(keeps(&a, "/l").fails(), OpError::Status(Status::ESTALE)));
    s.server.restart();
    s.until_so("C hears that it is gone", || c.heard_of(watched).last() == Some(&WatchEvent::Gone));
    s.pass(1_000);
    c.stat("/f").refused(Status::ENOENT);
    s.finish();
}

/// The lease ends, and the server dies right after that is durable: the file that was in nobody's way is gone with it, and nothing of it comes back.
#[test]
fn ended_lease_does_not_come_back() {
    let (s, [a, b]) = Setting::default().files(["/plain"]).agents(["a", "b"]);
    lease(&a);
    s.pass(TTL + 500);
    s.server.restart();
    s.until_so("grace is over", || !s.server.is_in_grace());
    assert_eq!(s.server.status().named_leases, 0);
    b.stat("/l").refused(Status::ENOENT);
    b.stat("/f").refused(Status::ENOENT);
    assert_eq!(s.sent(Kind::Nack, cistern_sim::script::to(&a)), 0);
    s.finish();
}

/// It lasts no longer than was asked for.
#[test]
fn kept_lease_lasts_its_time_and_no_longer() {
    let (s, [a, b]) = Setting::default().files(["/plain"]).agents(["a", "b"]);
    lease(&a);
    s.pass(TTL / 2);
    keeps(&a, "/l").done();
    s.pass(TTL - 100);
    b.stat("/l").done();
    s.pass(TTL / 2);
    b.stat("/l").refused(Status::ENOENT);
    s.finish();
}
