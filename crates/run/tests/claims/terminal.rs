//! Claims about commands at a terminal: a pseudo-terminal whose session leader is a shell with job control, as a person has it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::openpty;

use super::world::{PROBE, World, with_default_signals};

/// A person at a terminal.
struct Person {
    world: World,
    terminal: File,
    shell: Child,
    seen: Arc<Mutex<String>>,
}

impl Person {
    /// Has a shell with job control run `script`, in which PROBE stands for the probe with its options and the word `--`.
    fn types(options: &str, script: &str) -> Person {
        let world = World::new();
        let probe = format!("{PROBE} {}", world.command_line(options, &[]).join(" "));
        let script = script.replace("PROBE", &probe).replace("DIR", world.file("").to_str().expect("a plain name"));
        let pty = openpty(None, None).expect("a pseudo-terminal");
        let end = || pty.slave.try_clone().expect("another descriptor");
        let mut shell = with_default_signals("setsid");
        shell.args(["--ctty", "--wait", "sh", "-mc", &script]).stdin(end()).stdout(end()).stderr(end());
        let shell = shell.spawn().expect("setsid of util-linux");
        let terminal = File::from(pty.master);
        let seen = Arc::new(Mutex::new(String::new()));
        watch(terminal.try_clone().expect("another descriptor"), Arc::clone(&seen), pty.slave);
        Person { world, terminal, shell, seen }
    }

    fn sees(&self, text: &str) {
        let seen = || self.seen.lock().expect("no watcher panics").clone();
        self.world.wait_until(&format!("`{text}` on the terminal"), |_| seen().contains(text));
    }

    fn presses(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    fn leaves(mut self) -> (World, String) {
        self.shell.wait().expect("the shell ends");
        let seen = self.seen.lock().expect("no watcher panics").clone();
        (self.world, seen)
    }
}

/// Collects what the terminal shows. The slave end is held until then, so that the last output is not lost with it.
fn watch(mut terminal: File, seen: Arc<Mutex<String>>, slave: OwnedFd) {
    thread::spawn(move || {
        let _held = slave;
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = terminal.read(&mut chunk) {
            seen.lock().expect("no reader panics").push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    });
}

#[test]
fn an_interactive_command_reads_from_the_terminal() {
    let mut person = Person::types("", r#"PROBE sh -c 'echo rea''dy; read line; echo "<$line>"; exit 3'; echo status $?"#);
    person.sees("ready");
    person.presses("hello\n");
    person.sees("<hello>");
    person.sees("status 3");
    person.leaves();
}

#[test]
fn an_interrupt_typed_at_the_terminal_ends_the_command_not_the_holder_and_comes_once() {
    let script = r#"PROBE sh -c 'trap "echo caught" INT; trap "exit 4" USR1; echo rea''dy; while :; do sleep 0.05; done'; echo status $?"#;
    let mut person = Person::types("", script);
    person.sees("ready");
    person.world.wait_for_record("ready");
    person.presses("\u{3}");
    person.sees("caught");
    let command = person.world.pid("command");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(command), nix::sys::signal::Signal::SIGUSR1).expect("it lives");
    person.sees("status 4");
    let (world, seen) = person.leaves();
    assert_eq!(seen.matches("caught").count(), 1, "{seen}");
    assert!(!world.record().contains("PassedOn"));
}

#[test]
fn a_stop_typed_at_the_terminal_is_undone() {
    let mut person = Person::types("--renew yes", r#"PROBE sh -c 'echo rea''dy; read line; echo "<$line>"'; echo status $?"#);
    person.sees("ready");
    person.world.wait_for_record("ready");
    person.presses("\u{1a}");
    person.world.wait_for_record("event StopUndone");
    person.presses("hello\n");
    person.sees("<hello>");
    person.sees("status 0");
    person.leaves();
}

#[test]
fn a_command_in_the_background_that_wants_the_terminal_gets_it_in_the_foreground() {
    let script = r#"PROBE sh -c 'read line </dev/tty; echo "<$line>"' & until grep -q ready DIR/record; do sleep 0.05; done; sleep 0.3; fg; echo status $?"#;
    let mut person = Person::types("--renew yes", script);
    person.sees("read line");
    person.presses("hello\n");
    person.sees("<hello>");
    person.sees("status 0");
    person.leaves();
}

#[test]
fn a_terminal_left_in_raw_mode_by_a_killed_command_is_put_back() {
    let script = r#"PROBE sh -c 'stty raw -echo; : > DIR/up; sleep 1000'; echo status $?; stty -a; echo d''one"#;
    let person = Person::types("--lost-when DIR/up", script);
    person.sees("done");
    let (_, seen) = person.leaves();
    assert!(seen.contains("status 79"), "{seen}");
    assert!(seen.contains(" icanon") && seen.contains(" echo "), "{seen}");
}

#[test]
fn a_killed_shell_with_job_control_gives_the_foreground_back() {
    // The inner shell takes the foreground for its job, which is killed with it.
    let script = r#"PROBE sh -mc 'sh -c ": > DIR/up; sleep 1000"'; echo status $?; read line; echo "<$line>""#;
    let mut person = Person::types("--lost-when DIR/up", script);
    person.sees("status 79");
    person.presses("hello\n");
    person.sees("<hello>");
    person.leaves();
}
