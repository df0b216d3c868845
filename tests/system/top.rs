//! `cistern top`: what it prints, and what it does with a terminal.

use cistern_testkit::{Agent, CISTERN, Server, command, eventually};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

#[test]
fn one_look_has_sessions_and_locks_as_text_and_as_json() {
    let server = Server::start();
    let mut a = Agent::start(&server, "host\u{1b}[31mA");
    a.put("/job", "");
    let mut user = a.line();
    let (_, token) = user.lock("/job");
    let control = server.control().to_str().unwrap();
    let text = server.ok(&["top", "--once", "--control", control]);
    assert!(text.contains("Failovers of the last hour: none") && text.contains("/job") && text.contains(&token.to_string()), "{text}");
    assert!(text.contains("host\\x1b[31mA") && !text.contains('\u{1b}'), "a label cannot write to the terminal: {text:?}");
    let json: Value = serde_json::from_str(&server.ok(&["top", "--once", "--json", "--control", control])).unwrap();
    assert_eq!((&json["locks"][0]["path"], &json["totals"]["sessions"]), (&Value::from("/job"), &Value::from(1)));
    let lines = server.ok(&["top", "-n", "3", "-i", "100ms", "--json", "--control", control]);
    assert_eq!(lines.lines().count(), 3);
    let none = server.cistern(&["top", "--control", "/nonexistent/control.sock"]);
    assert_eq!(none.status.code(), Some(69));
}

/// `cistern top` on a terminal of its own.
struct Terminal {
    child: Child,
    keys: File,
    ours: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(server: &Server) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        // The copies are closed in the child, which else would keep its own terminal open.
        let (master, slave) = (pty.master.try_clone().unwrap(), pty.slave.try_clone().unwrap());
        drop(pty);
        let ours = slave.try_clone().unwrap();
        let mut top = command(CISTERN, &["top", "-i", "100ms", "--control", server.control().to_str().unwrap()]);
        top.env("TERM", "xterm").stdin(Stdio::from(slave.try_clone().unwrap())).stdout(Stdio::from(slave));
        let child = top.spawn().unwrap();
        let (keys, mut screen) = (File::from(master.try_clone().unwrap()), File::from(master));
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keys, ours, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn waits_for_lines(&self) -> bool {
        tcgetattr(&self.ours).unwrap().local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    /// Insists that the command ends well, and has left the terminal as it was.
    fn ends(&mut self) {
        let status = eventually("it ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        assert!(self.waits_for_lines(), "keys are read by lines again");
        eventually("the screen is given back", || self.shown().trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l").then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_is_drawn_within_its_size_and_given_back_by_key_and_by_signal() {
    let server = Server::start();
    let mut agents: Vec<Agent> = (0..6).map(|n| Agent::start(&server, &format!("agent{n}"))).collect();
    let mut held = Vec::new();
    for (n, agent) in agents.iter_mut().enumerate() {
        for file in 0..6 {
            let path = format!("/a-file-with-a-name-that-is-longer-than-usual-{n}-{file}");
            agent.put(&path, "");
            let mut line = agent.line();
            line.lock(&path);
            held.push(line);
        }
    }
    let mut terminal = Terminal::start(&server);
    let whole = |shown: &str| {
        shown.split("\u{1b}[H").skip(1).find(|frame| frame.contains("requests ") && frame.contains("\u{1b}[J")).map(str::to_owned)
    };
    let frame = eventually("rates are shown", || whole(&terminal.shown()));
    assert!(!terminal.waits_for_lines());
    let shown = terminal.shown();
    assert!(shown.starts_with("\u{1b}[?1049h\u{1b}[?25l"), "a screen of its own: {shown:?}");
    let lines: Vec<&str> = frame.split("\u{1b}[J").next().unwrap().split("\r\n").map(|line| line.trim_end_matches("\u{1b}[K")).collect();
    assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(frame.contains("Sessions") && frame.contains("agent0") && frame.contains(" more") && frame.contains("q quits"), "{lines:#?}");
    terminal.keys.write_all(b"xq").unwrap();
    terminal.ends();
    let mut terminal = Terminal::start(&server);
    eventually("it draws", || terminal.shown().contains("q quits").then_some(()));
    // SIGINT would be ignored where the tests run in the background of a shell.
    kill(Pid::from_raw(terminal.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    terminal.ends();
}

#[test]
fn a_server_that_is_gone_for_a_while_is_waited_for() {
    let mut server = Server::start();
    let mut terminal = Terminal::start(&server);
    eventually("it draws", || terminal.shown().contains("q quits").then_some(()));
    server.process.kill();
    eventually("it says so", || terminal.shown().contains("no answer: ").then_some(()));
    terminal.keys.write_all(b"q").unwrap();
    terminal.ends();
}
