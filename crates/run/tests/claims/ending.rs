//! Claims about commands that end by themselves, or never start.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::world::{World, run};

#[test]
fn the_status_of_the_command_is_the_status_of_the_run() {
    for code in [0, 1, 7, 255] {
        let (world, status, _) = run("", &["sh", "-c", &format!("exit {code}")]);
        assert_eq!(status, code);
        assert!(world.record().contains("stopped: None"));
    }
}

#[test]
fn a_command_ended_by_a_signal_gives_128_and_the_signal_also_for_real_time_signals() {
    for (signal, status) in [(15, 143), (9, 137), (37, 165)] {
        assert_eq!(run("", &["sh", "-c", &format!("kill -{signal} $$")]).1, status);
    }
}

#[test]
fn the_command_gets_its_arguments_as_they_are_and_its_environment() {
    let (_, status, text) = run("", &["sh", "-c", r#"printf '<%s>' "$@"; test -n "$CISTERN_TOKEN""#, "sh", "a b", "", "--", "-x"]);
    assert_eq!((status, text.as_str()), (0, "<a b><><--><-x>"));
}

#[test]
fn a_command_that_is_not_there_gives_127_and_one_that_cannot_be_run_126() {
    let world = World::new();
    let script = |name: &str, text: &str, mode: u32| {
        let path = world.file(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
        path.to_str().expect("a plain name").to_owned()
    };
    let plain = script("plain", "text", 0o644);
    let lost_interpreter = script("lost", "#!/no/such/interpreter\n", 0o755);
    let headless = script("headless", "exit 5\n", 0o755);
    for (command, status, words) in [
        ("no-such-command-anywhere", 127, "no-such-command-anywhere: command not found"),
        ("/no/such/file", 127, "/no/such/file: command not found"),
        ("", 127, "command not found"),
        (&lost_interpreter, 127, "interpreter"),
        (&plain, 126, "Permission denied"),
        ("/", 126, "cannot be run"),
        (&headless, 5, ""),
    ] {
        let (after, code, text) = run("", &[command]);
        assert_eq!(code, status, "{command}: {text}");
        assert!(text.contains(words), "{command}: {text}");
        assert_eq!(after.members(), []);
    }
}

#[test]
fn the_run_ends_only_when_what_the_command_left_behind_has_ended_and_keeps_the_commands_status() {
    let stubborn = r#"setsid sh -c 'trap "" TERM HUP; : > DIR/up; sleep 1000 & wait; sleep 1000' &
        sleep 1000 & until test -e DIR/up; do sleep 0.05; done; exit 3"#;
    let (world, status, _) = run("--left-settle-ms 0", &["sh", "-c", stubborn]);
    assert_eq!(world.members(), []);
    assert_eq!(status, 3);
    let record = world.record();
    let order = ["Ended(Exited(3))", "Stopping(LeftBehind)", "Killing(LeftBehind)", "TreeGone"];
    let found: Vec<usize> = order.iter().map(|event| record.find(event).unwrap_or_else(|| panic!("no {event} in {record}"))).collect();
    assert!(found.is_sorted(), "{record}");
}

#[test]
fn what_is_left_behind_may_finish_by_itself_first() {
    let (world, status, text) = run("--left-settle-ms 50000", &["sh", "-c", "(sleep 0.2; echo flushed) & exit 0"]);
    assert_eq!((status, text.as_str()), (0, "flushed\n"));
    assert!(!world.record().contains("Stopping"), "{}", world.record());
}

#[test]
fn the_command_inherits_no_descriptor_of_the_runner() {
    let look = ["sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"];
    let (_, status, under) = run("", &look);
    let alone = Command::new(look[0]).args(&look[1..]).stdin(std::process::Stdio::null()).output().expect("sh");
    assert_eq!((status, under), (0, String::from_utf8_lossy(&alone.stdout).into_owned()));
}

#[test]
fn what_is_started_by_hand_with_the_hidden_options_does_nothing() {
    for hidden in ["--internal-lock-guardian", "--internal-lock-starter"] {
        for rest in [&[][..], &["0", "1", "touch", "/"], &["x", "y", "z", "1", "1", "1", "true"]] {
            let output = Command::new(super::world::PROBE).arg(hidden).args(rest).output().expect("the probe starts");
            assert_eq!(output.status.code(), Some(125));
            assert!(String::from_utf8_lossy(&output.stderr).contains("does nothing by hand"));
        }
    }
}
