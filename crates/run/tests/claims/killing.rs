//! Claims about the command's end when the lock, its holder or the guardian goes away.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use cistern_run::At;

use super::world::{Probe, World};

/// A tree with what is hard to end: a daemonised branch (another session, no parent of the tree above it) that ignores
/// SIGTERM and SIGHUP, and a plain child.
const TREE: [&str; 3] =
    ["sh", "-c", r#"(setsid sh -c 'trap "" TERM HUP; sleep 1000 & wait; sleep 1000' &) ; sleep 1000 & exec sleep 1000"#];

/// Processes of [`TREE`]: the command, its child, the branch's shell and its child.
const TREE_SIZE: usize = 4;

fn start_tree(options: &str) -> Probe {
    let probe = World::new().start(options, &TREE);
    probe.world.wait_for_record("ready");
    probe.world.wait_until("the whole tree", |world| world.members().len() == TREE_SIZE);
    probe
}

/// The tree was gone at `now`, before the lock can have been anyone else's. The last instant written down may not have
/// been given any more, so the one before it counts as well.
fn assert_in_time(world: &World, now: At) {
    let instants = world.instants("until");
    for until in &instants[instants.len().saturating_sub(2)..] {
        assert!(!until.reached(now), "gone {now:?}, certain until {until:?}");
    }
}

/// Waits until nothing of the tree is left; the instant is read after the look that found nothing.
fn wait_gone(world: &World) -> At {
    world.wait_until("the end of the tree", |world| world.members().is_empty());
    At::now()
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn a_tree_whose_holder_is_killed_is_gone_before_the_lock_can_be_anyone_elses() {
    let mut probe = start_tree("--lease-ms 30000 --kill-lead-ms 25000 --renew yes");
    probe.signal(probe.pid(), Signal::SIGKILL);
    probe.child.wait().expect("the probe has ended");
    let now = wait_gone(&probe.world);
    assert_in_time(&probe.world, now);
}

#[test]
fn a_tree_whose_whole_job_is_killed_is_gone_before_the_lock_can_be_anyone_elses() {
    let mut probe = start_tree("--lease-ms 30000 --kill-lead-ms 25000 --renew yes");
    killpg(Pid::from_raw(probe.pid()), Signal::SIGKILL).expect("the job is there");
    probe.child.wait().expect("the probe has ended");
    let now = wait_gone(&probe.world);
    assert_in_time(&probe.world, now);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn a_tree_whose_holder_is_stopped_is_gone_before_the_lock_can_be_anyone_elses() {
    let probe = start_tree("--lease-ms 30000 --term-lead-ms 25500 --kill-lead-ms 25000 --renew yes");
    probe.signal(probe.pid(), Signal::SIGSTOP);
    let now = wait_gone(&probe.world);
    assert_in_time(&probe.world, now);
    probe.signal(probe.pid(), Signal::SIGCONT);
    let (_, status, _) = probe.finish();
    assert_eq!(status, 79);
}

#[test]
fn a_holder_that_is_killed_asks_the_command_to_end_first() {
    let command = ["sh", "-c", r#"trap ': > DIR/asked; exit 0' TERM; : > DIR/up; while :; do sleep 0.05; done"#];
    let mut probe = World::new().start("--lease-ms 600000 --renew yes", &command);
    probe.world.wait_until("the trap", |world| world.file("up").exists());
    probe.world.wait_for_record("ready");
    probe.signal(probe.pid(), Signal::SIGKILL);
    probe.child.wait().expect("the probe has ended");
    wait_gone(&probe.world);
    assert!(probe.world.file("asked").exists());
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn a_lease_not_renewed_ends_a_command_that_ignores_sigterm_between_the_kill_instant_and_the_end() {
    let command = ["sh", "-c", r#"trap 'echo asked' TERM; : > DIR/up; while :; do sleep 0.05; done"#];
    let (world, status, text) =
        World::new().start("--lease-ms 20000 --term-lead-ms 17000 --kill-lead-ms 16000 --renew yes --mute-when DIR/up", &command).finish();
    assert_eq!(status, 79);
    assert!(text.lines().any(|line| line == "asked"), "{text}");
    let gone = world.instants("gone")[0];
    let kill = world.instants("kill");
    assert!(kill.last().is_some_and(|kill| kill.reached(gone)), "not before its time");
    assert_in_time(&world, gone);
    assert!(world.record().contains("Killing(NotRenewed)"));
}

#[test]
fn a_command_that_obeys_sigterm_is_not_killed_and_does_not_look_like_a_success() {
    let command = ["sh", "-c", r#"trap 'exit 0' TERM; while :; do sleep 0.05; done"#];
    let (world, status, _) = World::new().start("--lease-ms 30000 --term-lead-ms 29000", &command).finish();
    assert_eq!(status, 79);
    let record = world.record();
    assert!(record.contains("Stopping(NotRenewed)") && !record.contains("Killing"), "{record}");
}

#[test]
fn a_lost_lock_kills_the_tree_at_once() {
    let probe = start_tree("--lease-ms 600000 --renew yes --lost-when DIR/lost");
    std::fs::write(probe.world.file("lost"), "").expect("a file");
    let (world, status, _) = probe.finish();
    assert_eq!(world.members(), []);
    assert_eq!(status, 79);
    let record = world.record();
    assert!(record.contains("Killing(Lost)") && !record.contains("Stopping"), "{record}");
}

#[test]
fn an_uncertain_lock_asks_the_tree_to_end() {
    let command = ["sh", "-c", r#"trap 'exit 0' TERM; : > DIR/up; while :; do sleep 0.05; done"#];
    let (world, status, _) = World::new().start("--lease-ms 600000 --uncertain-when DIR/up", &command).finish();
    assert_eq!(status, 79);
    assert!(world.record().contains("Stopping(Uncertain)"));
}

#[test]
fn a_suspended_command_is_woken_to_be_asked() {
    let command = ["sh", "-c", r#"trap 'exit 0' TERM; : > DIR/up; kill -STOP $$; sleep 1000"#];
    let (world, status, _) = World::new().start("--lease-ms 600000 --uncertain-when DIR/up", &command).finish();
    assert_eq!(status, 79);
    assert!(world.record().contains("Ended(Exited(0))"), "{}", world.record());
}

#[test]
fn a_guardian_that_is_killed_takes_the_command_with_it_and_the_holder_ends_the_rest() {
    let probe = start_tree("--lease-ms 600000 --renew yes");
    probe.signal(probe.world.pid("guardian"), Signal::SIGKILL);
    let (world, status, _) = probe.finish();
    assert_eq!(world.members(), []);
    assert_eq!(status, 125);
    assert!(world.record().contains("event GuardianGone"));
    assert!(world.record().contains("status: Some(Signalled(9)), stopped: Some(GuardianGone)"));
}

#[test]
fn the_command_dies_with_its_guardian_even_if_the_holder_can_do_nothing() {
    let probe = start_tree("--lease-ms 600000 --renew yes");
    let command = probe.world.pid("command");
    probe.signal(probe.pid(), Signal::SIGSTOP);
    probe.signal(probe.world.pid("guardian"), Signal::SIGKILL);
    probe.world.wait_until("the end of the command", |world| !world.members().contains(&command));
    probe.signal(probe.pid(), Signal::SIGCONT);
    let (world, status, _) = probe.finish();
    assert_eq!((status, world.members()), (125, vec![]));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn a_guardian_that_is_stopped_is_helped_before_the_lock_can_be_anyone_elses() {
    let probe = start_tree("--lease-ms 14000 --kill-lead-ms 10000 --renew yes --mute-when DIR/mute");
    probe.signal(probe.world.pid("guardian"), Signal::SIGSTOP);
    std::fs::write(probe.world.file("mute"), "").expect("a file");
    let (world, status, _) = probe.finish();
    assert_eq!(world.members(), []);
    assert_eq!(status, 79);
    let gone = world.instants("gone")[0];
    assert_in_time(&world, gone);
}

/// Stops the guardian for longer than its lease, while the holder renews, and lets it go on when `meanwhile` has been done.
fn stand_still(probe: &Probe, meanwhile: impl FnOnce()) {
    let guardian = probe.world.pid("guardian");
    probe.signal(guardian, Signal::SIGSTOP);
    let known = probe.world.instants("until");
    meanwhile();
    // Whatever instant it has read by now has come, and so have many that it has not read.
    probe
        .world
        .wait_until("the end of all instants that the guardian knows", |_| known.last().is_some_and(|until| until.reached(At::now())));
    // The holder may have helped it, and all be over.
    let _ = kill(Pid::from_raw(guardian), Signal::SIGCONT);
}

#[test]
fn a_guardian_that_stood_still_while_the_lease_was_renewed_lets_the_command_run_and_says_so() {
    let command = ["sh", "-c", ": > DIR/up; while [ ! -e DIR/end ]; do sleep 0.05; done; exit 7"];
    let probe = World::new().start("--lease-ms 8000 --term-lead-ms 1600 --kill-lead-ms 960 --renew yes", &command);
    probe.world.wait_until("the command", |world| world.file("up").exists());
    probe.world.wait_for_record("ready");
    stand_still(&probe, || {});
    probe.world.wait_until("the guardian's word", |world| world.record().contains("event StoodStill"));
    std::fs::write(probe.world.file("end"), "").expect("a file");
    let (world, status, _) = probe.finish();
    assert_eq!(status, 7, "{}", world.record());
    assert!(!world.record().contains("Stopping"), "{}", world.record());
}

#[test]
fn a_command_that_ends_by_itself_while_the_guardian_stands_still_gives_its_own_status() {
    let command = ["sh", "-c", ": > DIR/up; while [ ! -e DIR/end ]; do sleep 0.05; done; exit 7"];
    for renewed in ["--mute-when DIR/none", "--mute-when DIR/end"] {
        let options = format!("--lease-ms 8000 --term-lead-ms 1600 --kill-lead-ms 960 --renew yes {renewed}");
        let probe = World::new().start(&options, &command);
        probe.world.wait_until("the command", |world| world.file("up").exists());
        probe.world.wait_for_record("ready");
        stand_still(&probe, || std::fs::write(probe.world.file("end"), "").expect("a file"));
        let (world, status, _) = probe.finish();
        assert_eq!(status, 7, "{renewed}: {}", world.record());
    }
}

#[test]
fn a_chain_of_processes_that_fork_and_exit_does_not_outrun_the_killing() {
    // Ends by itself after some time, so that a failure does not run for ever; then the file tells.
    let chain = r#"chain() { if [ $1 -lt 50000 ]; then chain $(($1 + 1)) & else : > DIR/outrun; fi; }; chain 0; : > DIR/up; sleep 1000"#;
    let (world, status, _) = World::new().start("--lease-ms 600000 --lost-when DIR/up", &["sh", "-c", chain]).finish();
    assert_eq!(world.members(), []);
    assert_eq!(status, 79);
    assert!(!world.file("outrun").exists());
}

#[test]
fn the_guardian_has_a_name_that_killing_the_program_by_name_does_not_hit() {
    let probe = World::new().start("", &["sh", "-c", ": > DIR/up; exec sleep 1000"]);
    probe.world.wait_for_record("ready");
    let guardian = probe.world.pid("guardian");
    let name = std::fs::read_to_string(format!("/proc/{guardian}/comm")).expect("the guardian lives");
    let line = std::fs::read(format!("/proc/{guardian}/cmdline")).expect("the guardian lives");
    assert_eq!(name, "lock-guardian\n");
    assert!(!String::from_utf8_lossy(&line).contains("run-probe"));
    probe.signal(probe.world.pid("command"), Signal::SIGTERM);
    assert_eq!(probe.finish().1, 143);
}
