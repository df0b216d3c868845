//! Claims about signals sent to the process that holds the lock.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::Signal;

use super::world::{PROBE, World};

const WAITS: &str = r#": > DIR/up; while :; do sleep 0.05; done"#;

#[test]
fn signals_to_the_holder_are_passed_on_and_the_command_decides() {
    for (name, signal) in [("TERM", Signal::SIGTERM), ("HUP", Signal::SIGHUP), ("INT", Signal::SIGINT), ("USR1", Signal::SIGUSR1)] {
        let command = format!("trap 'echo {name}; exit 5' {name}; {WAITS}");
        let probe = World::new().start("", &["sh", "-c", &command]);
        probe.world.wait_until("the trap", |world| world.file("up").exists());
        probe.world.wait_for_record("ready");
        probe.signal(probe.pid(), signal);
        let (world, status, text) = probe.finish();
        assert_eq!((status, text.as_str()), (5, format!("{name}\n").as_str()));
        assert!(world.record().contains(&format!("event PassedOn({})", signal as i32)));
        assert!(world.record().contains("stopped: None"), "the command's own decision, not the lock's");
    }
}

#[test]
fn a_signal_that_everybody_gets_reaches_the_command_once() {
    let command = "trap 'echo got' TERM; trap ': > DIR/usr' USR1; : > DIR/up; until test -e DIR/end; do sleep 0.05; done; exit 6";
    let probe = World::new().start("", &["sh", "-c", command]);
    probe.world.wait_until("the trap", |world| world.file("up").exists());
    probe.world.wait_for_record("ready");
    // As a service manager does it: the command has handled its own copy long before the holder's could arrive.
    probe.signal(probe.world.pid("command"), Signal::SIGTERM);
    std::thread::sleep(std::time::Duration::from_millis(200));
    probe.signal(probe.world.pid("guardian"), Signal::SIGTERM);
    probe.signal(probe.pid(), Signal::SIGTERM);
    probe.world.wait_for_record("event PassedOn(15)");
    // What comes after it in the same pipe has arrived, so the SIGTERM would have, too.
    probe.signal(probe.pid(), Signal::SIGUSR1);
    probe.world.wait_until("the second signal", |world| world.file("usr").exists());
    std::fs::write(probe.world.file("end"), "").expect("a file");
    let (_, status, text) = probe.finish();
    assert_eq!((status, text.as_str()), (6, "got\n"));
}

#[test]
fn a_signal_ignored_at_the_start_stays_ignored_for_the_command_and_the_holder() {
    let world = World::new();
    let command = format!("trap 'exit 6' USR1; {WAITS}");
    let line = world.command_line("", &["sh", "-c", &command]);
    let mut shell = Command::new("sh");
    let child = shell.args(["-c", r#"trap "" HUP; exec "$@""#, "sh", PROBE]).args(line).process_group(0).spawn().expect("sh");
    let probe = super::world::Probe { world, child };
    probe.world.wait_until("the trap", |world| world.file("up").exists());
    probe.world.wait_for_record("ready");
    for pid in [probe.pid(), probe.world.pid("guardian"), probe.world.pid("command")] {
        probe.signal(pid, Signal::SIGHUP);
    }
    probe.signal(probe.pid(), Signal::SIGUSR1);
    let (world, status, _) = probe.finish();
    assert_eq!(status, 6);
    assert!(!world.record().contains("PassedOn(1)"));
}

#[test]
fn a_holder_started_with_sigchld_ignored_still_learns_the_status() {
    // Some shells take `trap "" CHLD` for nothing, so env of coreutils does it.
    let status = Command::new("env").args(["--ignore-signal=CHLD", PROBE, "--", "sh", "-c", "exit 9"]).status();
    assert_eq!(status.expect("env").code(), Some(9));
}

#[test]
fn the_command_starts_with_no_signal_blocked() {
    let (_, status, text) = super::world::run("", &["grep", "^SigBlk:", "/proc/self/status"]);
    assert_eq!((status, text.as_str()), (0, "SigBlk:\t0000000000000000\n"));
}
