//! The control socket: lines in pieces, bounds, several clients, answers later, and what dead processes leave.

use std::fs;
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cistern_driver::{
    ClientError, ConnectionId, ControlClient, ControlError, ControlHandler, ControlLimits, ControlServer, Handle, Owned, Response, Services,
};
use cistern_link::Instant;
use mio::{Registry, Token};
use tempfile::TempDir;

use crate::machines::{Echo, PATIENCE, Running, around, eventually};

const FIRST_TOKEN: usize = 100;

/// What the test and the application behind the socket share.
#[derive(Default)]
struct Shared {
    /// Lines to push to everyone who asked for them.
    news: Vec<String>,
    /// Connections that ended.
    closed: usize,
}

/// An application: `echo X` is answered with X, `watch` gets the news, `bye` is answered and closed.
struct Application {
    server: ControlServer,
    desk: Desk,
}

struct Desk {
    watchers: Vec<ConnectionId>,
    shared: Arc<Mutex<Shared>>,
}

impl ControlHandler for Desk {
    fn line(&mut self, connection: ConnectionId, line: &str) -> Response {
        match line {
            "watch" => {
                self.watchers.push(connection);
                Response::Later
            }
            "bye" => Response::Last("bye".to_owned()),
            "lots" => Response::Line("x".repeat(100_000)),
            _ => Response::Line(line.strip_prefix("echo ").unwrap_or("?").to_owned()),
        }
    }

    fn closed(&mut self, connection: ConnectionId) {
        self.watchers.retain(|watcher| *watcher != connection);
        self.shared.lock().expect("not poisoned").closed += 1;
    }
}

impl Services<Echo> for Application {
    fn register(&mut self, registry: &Registry, _: &Handle) -> std::io::Result<()> {
        self.server.register(registry, FIRST_TOKEN)
    }

    fn on_ready(&mut self, _: &mut Echo, _: Instant, token: Token) {
        self.server.on_ready(token, &mut self.desk);
    }

    fn after_turn(&mut self, _: &mut Echo, _: Instant) -> ControlFlow<()> {
        let news = std::mem::take(&mut self.desk.shared.lock().expect("not poisoned").news);
        for line in news {
            let server = &mut self.server;
            self.desk.watchers.retain(|watcher| server.push(*watcher, &line));
        }
        ControlFlow::Continue(())
    }
}

/// A control socket served on a thread, in a directory of its own.
struct Daemon {
    running: Running<Owned<Echo>, Application>,
    shared: Arc<Mutex<Shared>>,
    path: PathBuf,
    _directory: TempDir,
}

impl Daemon {
    fn start(limits: ControlLimits) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("control");
        let shared = Arc::default();
        let application = Application {
            server: ControlServer::bind(&path, limits).expect("a control socket"),
            desk: Desk { watchers: Vec::new(), shared: Arc::clone(&shared) },
        };
        Self { running: Running::start(around(Vec::new(), Owned(Echo::default()), application)), shared, path, _directory: directory }
    }

    fn client(&self) -> ControlClient {
        ControlClient::connect(&self.path, PATIENCE).expect("a connection")
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        stream
    }

    fn publish(&self, line: &str) {
        self.shared.lock().expect("not poisoned").news.push(line.to_owned());
        self.running.handle.wake();
    }

    fn closed(&self) -> usize {
        self.shared.lock().expect("not poisoned").closed
    }
}

fn read_to_end(stream: &mut UnixStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the server closes in time");
    text
}

#[test]
fn line_in_pieces_is_one_line_and_lines_in_one_piece_are_many() {
    let daemon = Daemon::start(ControlLimits::default());
    let mut stream = daemon.raw();
    for piece in [&b"ec"[..], b"ho spl", b"it\r\necho two\necho thr"] {
        stream.write_all(piece).expect("write");
        thread::sleep(Duration::from_millis(20));
    }
    stream.write_all(b"ee\nbye\necho never\n").expect("write");
    assert_eq!(read_to_end(&mut stream), "split\ntwo\nthree\nbye\n");
}

#[test]
fn socket_file_belongs_to_its_owner_alone_and_goes_with_the_server() {
    let daemon = Daemon::start(ControlLimits::default());
    let mode = fs::metadata(&daemon.path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    daemon.running.handle.stop();
    let Daemon { running, path, _directory, .. } = daemon;
    drop(running.join());
    assert!(!path.exists());
}

#[test]
fn too_long_line_is_refused_and_others_are_served() {
    let daemon = Daemon::start(ControlLimits { line_max: 64, ..ControlLimits::default() });
    let mut other = daemon.client();
    let mut stream = daemon.raw();
    stream.write_all(&[b'x'; 65]).expect("write");
    let answer = read_to_end(&mut stream);
    assert!(answer.contains("longer than 64 bytes"), "{answer}");
    let exact = "x".repeat(64 - "echo ".len());
    let answer = other.request(&format!("echo {exact}"), PATIENCE);
    assert_eq!(answer.expect("an answer"), exact);
}

#[test]
fn line_of_a_mebibyte_is_served() {
    let daemon = Daemon::start(ControlLimits::default());
    let text = "y".repeat(ControlLimits::default().line_max - "echo ".len());
    let answer = daemon.client().request(&format!("echo {text}"), PATIENCE);
    assert!(answer.expect("an answer") == text);
}

#[test]
fn line_that_is_not_text_is_answered_with_an_error() {
    let daemon = Daemon::start(ControlLimits::default());
    let mut stream = daemon.raw();
    stream.write_all(b"\xff\xfe\nbye\n").expect("write");
    let answer = read_to_end(&mut stream);
    assert_eq!(answer, "{\"error\":\"the line is not UTF-8\"}\nbye\n");
}

#[test]
fn two_clients_get_their_own_answers() {
    let daemon = Daemon::start(ControlLimits::default());
    let (mut one, mut two) = (daemon.client(), daemon.client());
    one.send_line("echo one", PATIENCE).expect("send");
    two.send_line("echo two", PATIENCE).expect("send");
    assert_eq!(two.read_line(PATIENCE).expect("an answer"), "two");
    assert_eq!(one.read_line(PATIENCE).expect("an answer"), "one");
}

#[test]
fn answer_later_reaches_those_who_asked_and_nobody_else() {
    let daemon = Daemon::start(ControlLimits::default());
    let (mut watcher, mut other) = (daemon.client(), daemon.client());
    watcher.send_line("watch", PATIENCE).expect("send");
    assert_eq!(watcher.request("echo sync", PATIENCE).expect("an answer"), "sync");
    daemon.publish("first");
    daemon.publish("second");
    assert_eq!(watcher.read_line(PATIENCE).expect("pushed"), "first");
    assert_eq!(watcher.read_line(PATIENCE).expect("pushed"), "second");
    assert_eq!(other.request("echo mine", PATIENCE).expect("an answer"), "mine");
    drop(watcher);
    eventually("the application hears that the watcher left", || daemon.closed() == 1);
}

#[test]
fn consumer_that_does_not_read_is_dropped_and_delays_nobody() {
    let daemon = Daemon::start(ControlLimits { output_max: 200_000, ..ControlLimits::default() });
    let mut lazy = daemon.raw();
    let mut other = daemon.client();
    // Far more than the socket's buffers and the bound together; the write ends when the server has had enough.
    for _ in 0..1_000 {
        if lazy.write_all(b"lots\n").is_err() {
            break;
        }
    }
    eventually("the lazy consumer is dropped", || daemon.closed() == 1);
    assert_eq!(other.request("echo fine", PATIENCE).expect("an answer"), "fine");
}

#[test]
fn large_answer_arrives_whole_when_it_is_read_slowly() {
    let daemon = Daemon::start(ControlLimits::default());
    let mut client = daemon.client();
    for _ in 0..20 {
        client.send_line("lots", PATIENCE).expect("send");
    }
    thread::sleep(Duration::from_millis(50));
    for _ in 0..20 {
        assert_eq!(client.read_line(PATIENCE).expect("a line").len(), 100_000);
    }
}

#[test]
fn the_connection_that_was_idle_longest_gives_way_to_one_above_the_bound() {
    let daemon = Daemon::start(ControlLimits { connections_max: 2, ..ControlLimits::default() });
    let (mut first, mut second) = (daemon.client(), daemon.client());
    let echoes = |client: &mut ControlClient| assert_eq!(client.request("echo x", PATIENCE).expect("an answer"), "x");
    echoes(&mut first);
    echoes(&mut second);
    echoes(&mut first);
    assert_eq!(daemon.client().request("echo me, too", PATIENCE).expect("an answer"), "me, too");
    let closed = second.read_line(PATIENCE).expect("a reason");
    assert!(closed.contains("idle longest"), "{closed}");
    assert_eq!(first.request("echo still here", PATIENCE).expect("an answer"), "still here");
    eventually("the application knows", || daemon.closed() >= 1);
}

#[test]
fn connections_that_await_an_answer_give_way_last_and_a_free_place_is_used_again() {
    let daemon = Daemon::start(ControlLimits { connections_max: 2, ..ControlLimits::default() });
    let waiting = || {
        let mut stream = daemon.raw();
        stream.write_all(b"echo in\nwatch\n").expect("written");
        let mut answer = [0; 3];
        stream.read_exact(&mut answer).expect("an answer");
        stream
    };
    let echoes = |client: &mut ControlClient| assert_eq!(client.request("echo x", PATIENCE).expect("an answer"), "x");
    let mut first = waiting();
    let mut idle = daemon.client();
    echoes(&mut idle);
    let second = waiting();
    let closed = idle.read_line(PATIENCE).expect("a reason");
    assert!(closed.contains("idle longest"), "{closed}");
    // All places are taken by who awaits something, and an operator comes.
    let mut operator = daemon.client();
    echoes(&mut operator);
    let closed = read_to_end(&mut first);
    assert!(closed.contains("all await an answer"), "{closed}");
    drop(second);
    eventually("a place is free", || daemon.closed() == 3);
    echoes(&mut daemon.client());
    echoes(&mut operator);
}

#[test]
fn socket_that_a_dead_process_left_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control");
    // Closing a listener leaves its file behind, as a killed process does.
    drop(UnixListener::bind(&path).expect("a listener"));
    assert!(path.exists());
    ControlServer::bind(&path, ControlLimits::default()).expect("the stale file is replaced");
}

#[test]
fn socket_that_somebody_listens_on_is_left_alone() {
    let daemon = Daemon::start(ControlLimits::default());
    let error = bind_error(&daemon.path);
    assert!(matches!(error, ControlError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&*daemon.path.to_string_lossy()), "{error}");
    assert_eq!(daemon.client().request("echo on", PATIENCE).expect("an answer"), "on");
}

#[test]
fn what_cannot_be_a_control_socket_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, b"precious").expect("a file");
    assert!(matches!(bind_error(&file), ControlError::InTheWay { .. }));
    assert_eq!(fs::read(&file).expect("still there"), b"precious");
    let nowhere = directory.path().join("missing").join("control");
    assert!(matches!(bind_error(&nowhere), ControlError::NoDirectory { .. }));
    let long = directory.path().join("l".repeat(120));
    assert!(matches!(bind_error(&long), ControlError::TooLong { .. }));
}

fn bind_error(path: &Path) -> ControlError {
    ControlServer::bind(path, ControlLimits::default()).err().expect("this path is not to be had")
}

#[test]
fn client_says_that_no_daemon_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control");
    let missing = ControlClient::connect(&path, PATIENCE).expect_err("no file");
    assert!(matches!(missing, ClientError::NotRunning { .. }));
    drop(UnixListener::bind(&path).expect("a listener"));
    let stale = ControlClient::connect(&path, PATIENCE).expect_err("nobody listens");
    assert!(stale.to_string().contains("not running"), "{stale}");
}

#[test]
fn client_waits_no_longer_than_it_was_told_and_can_go_on_after() {
    let daemon = Daemon::start(ControlLimits::default());
    let mut client = daemon.client();
    client.send_line("watch", PATIENCE).expect("send");
    let error = client.read_line(Duration::from_millis(30)).expect_err("nothing was pushed");
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    daemon.publish("at last");
    assert_eq!(client.read_line(PATIENCE).expect("pushed"), "at last");
}

#[test]
fn client_hears_that_the_daemon_ended() {
    let daemon = Daemon::start(ControlLimits::default());
    let mut client = daemon.client();
    assert_eq!(client.request("echo a", PATIENCE).expect("an answer"), "a");
    drop(daemon);
    let error = client.read_line(PATIENCE).expect_err("closed");
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
}
