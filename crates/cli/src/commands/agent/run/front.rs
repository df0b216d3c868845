//! The HTTP front of the host's agent: the calls of its socket for `curl` and scripts, on loopback.
//!
//! Decides: who may ask (whoever can read the token's file; no web page), and that a request of HTTP is a connection of the agent's socket: its body
//! is the program's lines, its answer the agent's, and what it holds goes back when it ends. `/v1/call` ends with the last answer, `/v1/hold` with
//! the client. Place in the walk: threads of their own, before `connection`. Invariant: nothing is given to the agent of who has not shown the
//! token; each connection has bounds of time and bytes, but for how long it holds.
//! Leaves to others: what requests mean (`local`, `execute`), heads (`http`).

use crate::execute::EXIT_FAILED;
use crate::http::{FIELDS_MAX, HEAD_TIME, field, is_asked_as, left, read_head, write_all};
use crate::local::{API, Failure, LINE_MAX};
use crate::signals::wait_for;
use cistern_capture::private::{self, Others};
use cistern_client::Address;
use cistern_driver::seed;
use nix::poll::{PollFd, PollFlags};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a client may take to send the body of a request, or to take each part of an answer.
const PART_TIME: Duration = Duration::from_secs(10);
/// Longest body: the longest line of the socket.
const BODY_MAX: usize = LINE_MAX;
/// Most bytes of answers to one `/v1/call`.
const ANSWERS_MAX: usize = 4 * LINE_MAX;
/// Most connections: half of what the agent's socket serves.
const OPEN_MAX: usize = 128;
/// What the token's file begins with: a whole header, so that `curl -H @FILE` sends it, and no command line has it.
const HEADER: &str = "Authorization: Bearer ";
/// After accepting has failed (no descriptors left, say) it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A front that listens, and is not served yet.
pub(super) struct Front {
    listener: TcpListener,
    door: Door,
}

/// What each connection is served with.
struct Door {
    /// What the field `Authorization` has to say.
    wanted: String,
    /// The agent's socket.
    socket: PathBuf,
}

impl Front {
    /// Listens on an address of loopback, with the token of a file, which is made if it is not there.
    ///
    /// # Errors
    /// The address is not loopback's or in use; the file can be read by others, or cannot be made.
    pub(super) fn listen(address: &Address, token: &Path, socket: &Path) -> Result<Self, Failure> {
        let addresses = address.resolve(None).map_err(|e| Failure::usage(format!("--http {e}")))?;
        if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
            return Err(Failure::usage(format!(
                "--http {open}: what is asked there is not encrypted, so only addresses of loopback are served"
            )));
        }
        let failed = |e: io::Error| {
            Failure::new("HTTP", EXIT_FAILED, format!("cannot listen for HTTP on {address}: {e}; --http names another address"))
        };
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let wanted = token_of(token).map_err(|e| Failure::new("HTTP", EXIT_FAILED, format!("{}: {e}", token.display())))?;
        Ok(Self { listener, door: Door { wanted, socket: socket.to_owned() } })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves it from a thread of its own, which lives as long as the process.
    ///
    /// # Errors
    /// The system has no thread to spare.
    pub(super) fn serve(self) -> Result<(), Failure> {
        let Self { listener, door } = self;
        let door = Arc::new(door);
        let run = move || receive(&listener, &door);
        let started = std::thread::Builder::new().name("cistern-http".to_owned()).spawn(run);
        started.map(drop).map_err(|e| Failure::new("HTTP", EXIT_FAILED, format!("no thread for HTTP: {e}")))
    }
}

/// What the header has to say, by the file of the token.
fn token_of(file: &Path) -> io::Result<String> {
    let text = match private::read(file, Others::Nothing, 4_096) {
        Ok(text) => String::from_utf8(text).map_err(io::Error::other)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let mut text = HEADER.to_owned();
            for byte in &*seed().map_err(|e| io::Error::other(e.to_string()))? {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
            private::write_new(file, text.as_bytes())?;
            text
        }
        Err(e) => return Err(e),
    };
    let value = text.trim_end().strip_prefix(HEADER).filter(|token| token.len() >= 32);
    value.map(|token| format!("Bearer {token}")).ok_or_else(|| {
        io::Error::other(format!(
            "it is no token: a line {HEADER:?} and at least 32 characters; remove it, and a new one is made at the next start"
        ))
    })
}

/// A place, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn receive(listener: &TcpListener, door: &Arc<Door>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                log::warn!("HTTP: cannot accept a connection: {e}; trying again");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        open.fetch_add(1, Ordering::AcqRel);
        let place = Place(Arc::clone(&open));
        if open.load(Ordering::Acquire) > OPEN_MAX {
            // Dropped with its place: a client that is refused is not waited for.
            let _ = stream.set_nonblocking(true).and_then(|()| answer(&stream, &Refusal::BUSY.response(), Instant::now() + PART_TIME));
            continue;
        }
        let door = Arc::clone(door);
        let serve = move || {
            let _place = place;
            if let Err(e) = connection(&stream, &door) {
                log::debug!("HTTP: {e}");
            }
        };
        if let Err(e) = std::thread::Builder::new().name("cistern-http-client".to_owned()).spawn(serve) {
            log::warn!("HTTP: no thread for one more connection: {e}");
        }
    }
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    why: &'static str,
}

impl Refusal {
    const BUSY: Self = Self { status: "503 Service Unavailable", why: "the agent serves as many connections as it can" };
    const GONE: Self =
        Self { status: "503 Service Unavailable", why: "the agent does not serve this connection: it ends, or has too many" };
    const TOO_LONG: Self = Self { status: "431 Request Header Fields Too Large", why: "the head of the request is too long" };
    const NO_REQUEST: Self = Self { status: "400 Bad Request", why: "not a request of HTTP/1, with objects of JSON as its body" };
    const OTHER_NAME: Self = Self { status: "421 Misdirected Request", why: "ask by an IP address or by localhost" };
    const BROWSER: Self = Self { status: "403 Forbidden", why: "this is for programs of this host, not for web pages" };
    const NO_TOKEN: Self = Self { status: "401 Unauthorized", why: "the header Authorization must have the agent's token: curl -H @FILE" };
    const NO_SUCH: Self = Self { status: "404 Not Found", why: "there are /v1/call and /v1/hold" };
    const NO_POST: Self = Self { status: "405 Method Not Allowed", why: "there is POST" };
    const NO_LENGTH: Self = Self { status: "411 Length Required", why: "the request must have a body and its Content-Length" };
    const TOO_LARGE: Self = Self { status: "413 Content Too Large", why: "a body has at most 2 MiB" };
    const NO_JSON: Self = Self { status: "415 Unsupported Media Type", why: "Content-Type must be application/json" };

    fn response(self) -> String {
        let extra = match self {
            Self::NO_TOKEN => "WWW-Authenticate: Bearer\r\n",
            Self::NO_POST => "Allow: POST\r\n",
            _ => "",
        };
        let body = json!({ "error": { "code": "HTTP", "message": self.why, "exit": EXIT_FAILED } });
        response(self.status, extra, &format!("{body}\n"))
    }
}

fn response(status: &str, extra: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{}{extra}Content-Length: {}\r\n\r\n{body}", FIELDS, body.len())
}

/// Fields of every answer.
const FIELDS: &str =
    "Content-Type: application/x-ndjson\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n";

/// How long a request lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// Until all is answered.
    Call,
    /// Until its client ends it.
    Hold,
}

/// What a head says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    lasts: Lasts,
    /// Bytes of the head, and of the body.
    head_len: usize,
    body_len: usize,
    /// The client waits for leave to send the body.
    expects: bool,
}

/// Reads a head, and judges who asks.
fn read(bytes: &[u8], wanted: &str) -> Result<Head, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head_len)) = request.parse(bytes) else { return Err(Refusal::NO_REQUEST) };
    if !is_asked_as(field(&request, "host"), "") {
        return Err(Refusal::OTHER_NAME);
    }
    if field(&request, "origin").is_some() || field(&request, "sec-fetch-site").is_some() {
        return Err(Refusal::BROWSER);
    }
    if !field(&request, "authorization").is_some_and(|shown| are_equal(shown, wanted.as_bytes())) {
        return Err(Refusal::NO_TOKEN);
    }
    let lasts = match request.path.unwrap_or_default() {
        "/v1/call" => Lasts::Call,
        "/v1/hold" => Lasts::Hold,
        _ => return Err(Refusal::NO_SUCH),
    };
    if request.method != Some("POST") {
        return Err(Refusal::NO_POST);
    }
    let is_json = |kind: &[u8]| {
        str::from_utf8(kind).is_ok_and(|kind| kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case("application/json"))
    };
    if !field(&request, "content-type").is_some_and(is_json) {
        return Err(Refusal::NO_JSON);
    }
    let body_len =
        field(&request, "content-length").and_then(|len| str::from_utf8(len).ok()?.trim().parse().ok()).ok_or(Refusal::NO_LENGTH)?;
    if body_len > BODY_MAX {
        return Err(Refusal::TOO_LARGE);
    }
    let expects = field(&request, "expect").is_some_and(|what| what.eq_ignore_ascii_case(b"100-continue"));
    Ok(Head { lasts, head_len, body_len, expects })
}

/// Whether two texts are equal, in a time that tells nothing of where they differ.
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The requests of a body, as lines of the socket: each has an id.
fn lines_of(body: &[u8]) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for (request, n) in serde_json::Deserializer::from_slice(body).into_iter::<Map<String, Value>>().zip(1..) {
        let mut request = request.ok()?;
        request.entry("id").or_insert_with(|| json!(n));
        lines.push(Value::Object(request).to_string());
    }
    Some(lines).filter(|lines| !lines.is_empty())
}

fn connection(stream: &TcpStream, door: &Door) -> io::Result<()> {
    let refuse = |refusal: Refusal| answer(stream, &refusal.response(), Instant::now() + PART_TIME);
    let Some(mut bytes) = read_head(stream, Instant::now() + HEAD_TIME)? else { return refuse(Refusal::TOO_LONG) };
    let head = match read(&bytes, &door.wanted) {
        Ok(head) => head,
        Err(refusal) => return refuse(refusal),
    };
    let end = Instant::now() + PART_TIME;
    if head.expects {
        write_all(stream, b"HTTP/1.1 100 Continue\r\n\r\n", end)?;
    }
    let mut body = bytes.split_off(head.head_len);
    read_body(stream, &mut body, head.body_len, end)?;
    let Some(lines) = lines_of(&body) else { return refuse(Refusal::NO_REQUEST) };
    let asked = UnixStream::connect(&door.socket).and_then(|agent| {
        let hello = json!({ "id": 0, "op": "hello", "api": API }).to_string();
        let mut text = hello;
        lines.iter().for_each(|line| text.extend(["\n", line]));
        text.push('\n');
        (&agent).write_all(text.as_bytes())?;
        Ok(agent)
    });
    let Ok(agent) = asked else { return refuse(Refusal::GONE) };
    match head.lasts {
        Lasts::Call => match answers(agent, lines.len())? {
            Some((status, text)) => answer(stream, &response(status, "", &text), Instant::now() + PART_TIME),
            None => refuse(Refusal::GONE),
        },
        Lasts::Hold => hold(stream, &agent),
    }
}

fn read_body(mut stream: &TcpStream, body: &mut Vec<u8>, len: usize, end: Instant) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    while body.len() < len {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => body.extend_from_slice(&chunk[..count]),
        }
    }
    body.truncate(len);
    Ok(())
}

fn answer(stream: &TcpStream, text: &str, end: Instant) -> io::Result<()> {
    write_all(stream, text.as_bytes(), end)?;
    stream.shutdown(Shutdown::Write)
}

/// What a line of the agent is.
enum Heard {
    /// The answer to `hello`.
    Greeting,
    /// An answer; whether it has `error`.
    Answer { is_error: bool },
    /// It is of no request: the agent refuses the connection.
    Refused,
    /// An event.
    Event,
}

fn heard(line: &str) -> Heard {
    let said: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
    match said.get("id") {
        Some(id) if *id == json!(0) => Heard::Greeting,
        Some(_) => Heard::Answer { is_error: said.contains_key("error") },
        None if said.contains_key("event") => Heard::Event,
        None => Heard::Refused,
    }
}

/// All answers, and the status that tells whether each request was carried out; `None`: the agent refuses.
fn answers(agent: UnixStream, count: usize) -> io::Result<Option<(&'static str, String)>> {
    let mut lines = BufReader::new(agent.take(ANSWERS_MAX as u64));
    let (mut text, mut status, mut left) = (String::new(), "200 OK", count);
    while left > 0 {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match heard(&line) {
            Heard::Greeting | Heard::Event => continue,
            Heard::Refused => return Ok(None),
            Heard::Answer { is_error } if is_error => status = "422 Unprocessable Content",
            Heard::Answer { .. } => {}
        }
        text += &line;
        left -= 1;
    }
    Ok(Some((status, text)))
}

/// Gives the agent's lines to the client until either ends, or a request is refused.
fn hold(stream: &TcpStream, agent: &UnixStream) -> io::Result<()> {
    write_all(stream, format!("HTTP/1.1 200 OK\r\n{FIELDS}\r\n").as_bytes(), Instant::now() + PART_TIME)?;
    let mut kept = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN), PollFd::new(agent.as_fd(), PollFlags::POLLIN)];
        wait_for(&mut fds, None);
        let [client, lines] = fds.map(|fd| fd.any().unwrap_or(false));
        // What a client sends after its body means nothing; its end does.
        if client && (&*stream).read(&mut chunk)? == 0 {
            return Ok(());
        }
        if !lines {
            continue;
        }
        match (&*agent).read(&mut chunk)? {
            0 => return stream.shutdown(Shutdown::Write),
            count => kept.extend_from_slice(&chunk[..count]),
        }
        while let Some(at) = kept.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = kept.drain(..=at).collect();
            let what = heard(&String::from_utf8_lossy(&line));
            if !matches!(what, Heard::Greeting) {
                write_all(stream, &line, Instant::now() + PART_TIME)?;
            }
            if matches!(what, Heard::Refused | Heard::Answer { is_error: true }) {
                return stream.shutdown(Shutdown::Write);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "Bearer 0123456789abcdef0123456789abcdef";

    fn head(line: &str, fields: &str) -> Result<Head, Refusal> {
        read(format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:7313\r\nContent-Type: application/json\r\n{fields}\r\n{{}}").as_bytes(), TOKEN)
    }

    #[test]
    fn who_shows_the_token_is_served_and_no_web_page_is() {
        let good = format!("Authorization: {TOKEN}\r\nContent-Length: 2\r\n");
        let read_as = |lasts| move |head: Result<Head, Refusal>| head.is_ok_and(|head| (head.lasts, head.body_len) == (lasts, 2));
        assert!(read_as(Lasts::Call)(head("POST /v1/call", &good)));
        assert!(read_as(Lasts::Hold)(head("POST /v1/hold", &good)));
        for (line, fields, refusal) in [
            ("POST /v1/call", String::new(), Refusal::NO_TOKEN),
            ("POST /v1/call", good.replace("def\r", "dee\r"), Refusal::NO_TOKEN),
            ("POST /v1/call", good.replace("def\r", "def0\r"), Refusal::NO_TOKEN),
            ("POST /v1/call", format!("{good}Origin: http://evil.example\r\n"), Refusal::BROWSER),
            ("POST /v1/call", format!("{good}Sec-Fetch-Site: same-origin\r\n"), Refusal::BROWSER),
            ("GET /v1/call", good.clone(), Refusal::NO_POST),
            ("POST /v1/other", good.clone(), Refusal::NO_SUCH),
            ("POST /v1/call", format!("Authorization: {TOKEN}\r\n"), Refusal::NO_LENGTH),
            ("POST /v1/call", good.replace(": 2", ": 2097153"), Refusal::TOO_LARGE),
            ("POST", good.clone(), Refusal::NO_REQUEST),
        ] {
            assert_eq!(head(line, &fields), Err(refusal), "{line} {fields}");
        }
        let led = format!("POST /v1/call HTTP/1.1\r\nHost: evil.example\r\n{good}\r\n");
        assert_eq!(read(led.as_bytes(), TOKEN), Err(Refusal::OTHER_NAME));
        let form = format!("POST /v1/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n{good}\r\n");
        assert_eq!(read(form.as_bytes(), TOKEN), Err(Refusal::NO_JSON));
    }

    #[test]
    fn requests_without_an_id_are_numbered() {
        let lines = lines_of(b"{\"op\":\"ping\"}\n{\"op\":\"ping\",\n \"id\":7}").unwrap();
        assert_eq!(lines, ["{\"id\":1,\"op\":\"ping\"}", "{\"id\":7,\"op\":\"ping\"}"]);
        assert!(["", "[]", "{", "{} x"].iter().all(|body| lines_of(body.as_bytes()).is_none()));
    }

    #[test]
    fn a_token_is_made_once_and_not_taken_from_a_file_that_others_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("http.token");
        let token = token_of(&file).unwrap();
        assert_eq!((token.len(), token_of(&file).unwrap()), ("Bearer ".len() + 64, token));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(token_of(&file).is_err());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "Authorization: Bearer short\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(token_of(&file).unwrap_err().to_string().contains("32 characters"));
    }
}
