//! The port at which metrics and the page are fetched, by HTTP.
//!
//! Decides: what is answered to which request, and that nobody can hold the port: each connection has a thread, and a bound on time and
//! bytes; where there are too many, of one address or in all, the oldest gives way. Place in the walk: threads of its own. They ask the
//! server's loop for a snapshot by a flag and a wake, one at a time, and get it by a channel; the loop waits for nobody.
//! Invariant: the server is not affected by anything that is sent to this port, but for one copy of its counters a request, and for an
//! overview twice a second.
//! Leaves to others: heads (`crate::http`), parsing (`httparse`), what is shown (`families`, `overview`), who may see the page (`page`).

use super::page::{self, Asset};
use super::{Published, families, process, text};
use crate::execute::EXIT_FAILED;
use crate::http::{FIELDS_MAX, HEAD_TIME, field, is_asked_as, read_head, write_all};
use crate::local::Failure;
use crate::overview::OverviewReport;
use cistern_driver::Handle;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take to read the answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long the server's loop may take to give a snapshot: it does so in its next turn.
const SNAPSHOT_TIME: Duration = Duration::from_secs(5);
/// For how long an overview is shown to others who ask for one.
const OVERVIEW_LIFE: Duration = Duration::from_millis(500);
/// Most connections of one address.
const OF_ONE_MAX: usize = 4;
/// Most connections in all.
const OPEN_MAX: usize = 16;
/// Most threads, with those whose connection was closed and which have not noticed yet.
const THREADS_MAX: usize = 2 * OPEN_MAX;
/// After accepting has failed (no descriptors left, say) it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What is wanted of the loop.
const NOTHING: u8 = 0;
const FIGURES: u8 = 1;
const OVERVIEW: u8 = 2;

/// The loop's end: whether somebody wants a snapshot, and where it goes.
pub(crate) struct Publisher {
    wanted: Arc<AtomicU8>,
    snapshots: SyncSender<Published>,
}

impl Publisher {
    /// Called in every turn: gives a snapshot to who waits for one; `snapshot` is told whether with an overview.
    pub(crate) fn publish(&self, snapshot: impl FnOnce(bool) -> Published) {
        if self.wanted.load(Ordering::Relaxed) == NOTHING {
            return;
        }
        let wanted = self.wanted.swap(NOTHING, Ordering::Acquire);
        match self.snapshots.try_send(snapshot(wanted == OVERVIEW)) {
            // Who asked has given up, and will find a snapshot at its next try, which it throws away.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => {
                log::error!("the thread of the HTTP port is gone; restart the server to have it back");
            }
        }
    }
}

/// A port that listens and is not served yet.
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
    /// The host by which it was named, by which browsers may ask, too.
    host: String,
    /// Whether the page names files, hosts and agents.
    named: bool,
}

impl Port {
    /// Listens on the first of a host's addresses that can be had.
    ///
    /// # Errors
    /// None can; whoever named the host is at fault.
    pub(crate) fn listen(addresses: &[SocketAddr], host: &str, named: bool) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            let tried: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let message = format!("cannot listen for HTTP on {}: {e}; --http names another address", tried.join(", "));
            Failure::new("HTTP", EXIT_FAILED, message)
        };
        let listener = TcpListener::bind(addresses).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, host: host.to_owned(), named })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it from a thread of its own, which lives as long as the process; `handle` wakes the loop that publishes.
    ///
    /// # Errors
    /// The system has no thread to spare.
    pub(crate) fn serve(self, handle: Handle) -> Result<Publisher, Failure> {
        let (sender, snapshots) = sync_channel(1);
        let Self { listener, host, named, .. } = self;
        let wanted = Arc::new(AtomicU8::new(NOTHING));
        let asked = Mutex::new(Snapshots { arriving: snapshots, overview: None });
        let asker = Asker { wanted: Arc::clone(&wanted), asked, handle, host, named };
        let guests = Arc::new(Guests { asker, open: Mutex::default(), ended: Condvar::new() });
        let run = move || serve(&listener, &guests);
        thread::Builder::new()
            .name("http".to_owned())
            .spawn(run)
            .map_err(|e| Failure::new("HTTP", EXIT_FAILED, format!("no thread for the HTTP port: {e}")))?;
        Ok(Publisher { wanted, snapshots: sender })
    }
}

/// The threads' end.
struct Asker {
    wanted: Arc<AtomicU8>,
    asked: Mutex<Snapshots>,
    handle: Handle,
    host: String,
    named: bool,
}

struct Snapshots {
    arriving: Receiver<Published>,
    /// The newest overview, as JSON, and when it was asked for.
    overview: Option<(Instant, Arc<str>)>,
}

impl Asker {
    fn figures(&self) -> Option<Published> {
        self.ask(&self.asked(), FIGURES)
    }

    /// An overview, as JSON: one for all who ask at about the same time.
    fn overview(&self) -> Option<Arc<str>> {
        let mut asked = self.asked();
        let now = Instant::now();
        if let Some((_, text)) = asked.overview.as_ref().filter(|(at, _)| now.saturating_duration_since(*at) < OVERVIEW_LIFE) {
            return Some(Arc::clone(text));
        }
        let report = match self.ask(&asked, OVERVIEW)? {
            Published::Core(mut snapshot) => {
                let overview = snapshot.overview.take()?;
                OverviewReport::new(&snapshot, overview)
            }
            Published::Standby(snapshot) => OverviewReport::of_standby(&snapshot),
        };
        let report = if self.named { report } else { report.without_names() };
        let text: Arc<str> = serde_json::to_string(&report).ok()?.into();
        asked.overview = Some((now, Arc::clone(&text)));
        Some(text)
    }

    fn asked(&self) -> MutexGuard<'_, Snapshots> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, asked: &Snapshots, what: u8) -> Option<Published> {
        // What came too late for an earlier request is old.
        while asked.arriving.try_recv().is_ok() {}
        self.wanted.store(what, Ordering::Release);
        self.handle.wake();
        asked.arriving.recv_timeout(SNAPSHOT_TIME).ok()
    }
}

/// The connections.
struct Guests {
    asker: Asker,
    open: Mutex<Open>,
    /// Rung when a thread ends.
    ended: Condvar,
}

#[derive(Default)]
struct Open {
    /// From the oldest to the newest.
    streams: Vec<(u64, IpAddr, TcpStream)>,
    next: u64,
    threads: usize,
}

impl Guests {
    /// Serves a connection from a thread of its own.
    fn admit(self: &Arc<Self>, stream: TcpStream, from: IpAddr) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses: Vec<_> = open.streams.iter().map(|(_, ip, _)| *ip).collect();
        if let Some(at) = gives_way(&addresses, from) {
            let (_, _, stream) = open.streams.remove(at);
            // Its thread notices; a connection that is broken already has, too.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Those whose connection was closed end soon, and all others in their time.
        while open.threads >= THREADS_MAX {
            open = self.ended.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        let number = open.next;
        open.next += 1;
        let (guests, own) = (Arc::clone(self), stream.try_clone()?);
        let run = move || {
            if let Err(e) = connection(&own, &guests.asker) {
                log::debug!("HTTP port: {from}: {e}");
            }
            let mut open = guests.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.streams.retain(|(other, ..)| *other != number);
            open.threads -= 1;
            guests.ended.notify_one();
        };
        thread::Builder::new().name("http-guest".to_owned()).spawn(run)?;
        open.threads += 1;
        open.streams.push((number, from, stream));
        Ok(())
    }
}

/// Which of the open connections, given by their addresses from the oldest on, is closed for one more from an address: of an address with
/// too many its oldest, else of too many in all the oldest of the address that has most.
fn gives_way(open: &[IpAddr], from: IpAddr) -> Option<usize> {
    let count = |address: IpAddr| open.iter().filter(|other| **other == address).count();
    let whose = if count(from) >= OF_ONE_MAX {
        from
    } else if open.len() >= OPEN_MAX {
        *open.iter().max_by_key(|address| count(**address))?
    } else {
        return None;
    };
    open.iter().position(|address| *address == whose)
}

fn serve(listener: &TcpListener, guests: &Arc<Guests>) {
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                if let Err(e) = guests.admit(stream, from.ip().to_canonical()) {
                    log::debug!("HTTP port: {from}: {e}");
                }
            }
            Err(e) => {
                log::warn!("HTTP port: cannot accept a connection: {e}; trying again");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn connection(stream: &TcpStream, asker: &Asker) -> io::Result<()> {
    let (answer, bodiless) = match read_head(stream, Instant::now() + HEAD_TIME)? {
        Some(head) => answer_to(&head, &asker.host),
        None => (HttpAnswer::Refused("431 Request Header Fields Too Large", "the head of the request is too long\n"), false),
    };
    let stalled = ("503 Service Unavailable", PLAIN, Body::from("the server's loop gives no figures: it stands still, or has ended\n"));
    let (status, kind, body) = match answer {
        HttpAnswer::Metrics => asker.figures().map_or(stalled, |snapshot| {
            let mut all = match &snapshot {
                Published::Core(snapshot) => families::all(snapshot),
                Published::Standby(snapshot) => families::of_standby(snapshot),
            };
            all.extend(process::families());
            ("200 OK", text::CONTENT_TYPE, text::write(&all).into())
        }),
        HttpAnswer::Overview => asker.overview().map_or(stalled, |text| ("200 OK", "application/json", Body::Shared(text))),
        HttpAnswer::Asset(asset) => ("200 OK", asset.kind, asset.body.into()),
        HttpAnswer::Refused(status, why) => (status, PLAIN, why.into()),
    };
    let body = body.bytes();
    let mut response =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n{}", body.len(), page::HEADERS);
    if status.starts_with("405") {
        response.push_str("Allow: GET, HEAD\r\n");
    }
    response.push_str("\r\n");
    let end = Instant::now() + ANSWER_TIME;
    write_all(stream, response.as_bytes(), end)?;
    if !bodiless {
        write_all(stream, body, end)?;
    }
    stream.shutdown(Shutdown::Write)
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// What follows the head of an answer.
enum Body {
    Fixed(&'static str),
    Made(String),
    Shared(Arc<str>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Fixed(text) => text.as_bytes(),
            Self::Made(text) => text.as_bytes(),
            Self::Shared(text) => text.as_bytes(),
        }
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Made(text)
    }
}

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
enum HttpAnswer {
    Metrics,
    Overview,
    Asset(&'static Asset),
    Refused(&'static str, &'static str),
}

/// What a request gets at a port that was named by `host`, and whether without its body.
fn answer_to(head: &[u8], host: &str) -> (HttpAnswer, bool) {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let (method, path) = match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => (request.method.unwrap_or_default(), request.path.unwrap_or_default()),
        Ok(httparse::Status::Partial) | Err(_) => return (HttpAnswer::Refused("400 Bad Request", "not a request of HTTP/1\n"), false),
    };
    let bodiless = method == "HEAD";
    if !bodiless && method != "GET" {
        return (HttpAnswer::Refused("405 Method Not Allowed", "there are GET and HEAD\n"), false);
    }
    let path = path.split('?').next().unwrap_or_default();
    if path == "/metrics" {
        return (HttpAnswer::Metrics, bodiless);
    }
    let asset = page::asset(path);
    if asset.is_none() && path != page::OVERVIEW {
        return (HttpAnswer::Refused("404 Not Found", "there are / and /metrics\n"), bodiless);
    }
    if !is_asked_as(field(&request, "host"), host) {
        return (HttpAnswer::Refused("421 Misdirected Request", page::ASK_BY_ADDRESS), bodiless);
    }
    (asset.map_or(HttpAnswer::Overview, HttpAnswer::Asset), bodiless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: &str) -> (HttpAnswer, bool) {
        answer_to(head.as_bytes(), "meta.example")
    }

    fn refused(head: &str) -> &'static str {
        match answer(head).0 {
            HttpAnswer::Refused(status, _) => status,
            _ => "answered",
        }
    }

    #[test]
    fn metrics_have_one_path_and_two_methods() {
        assert_eq!(answer("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), (HttpAnswer::Metrics, false));
        assert_eq!(answer("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), (HttpAnswer::Metrics, true));
        assert_eq!(refused("GET /elsewhere HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(refused("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
    }

    #[test]
    fn the_page_is_for_who_asks_by_an_address_or_by_the_name_that_the_port_was_given() {
        for path in ["/", "/page.js", "/page.css", "/overview.json"] {
            for host in ["127.0.0.1:9311", "[::1]:9311", "10.0.0.1", "localhost:9311", "LOCALHOST", "meta.example:80", "META.example"] {
                assert_eq!(refused(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")), "answered", "{path} {host}");
            }
            // A web page whose name was made to lead here asks by that name.
            for host in ["evil.example", "evil.example:9311", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "x\u{e9}"] {
                let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
                assert_eq!(refused(&head), "421 Misdirected Request", "{path} {host}");
            }
            assert_eq!(refused(&format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")), "405 Method Not Allowed");
        }
    }

    #[test]
    fn the_oldest_of_the_greediest_gives_way() {
        let ip = |n: u8| IpAddr::from([127, 0, 0, n]);
        assert_eq!(gives_way(&[ip(1), ip(1), ip(1)], ip(1)), None);
        assert_eq!(gives_way(&[ip(2), ip(1), ip(1), ip(1), ip(1)], ip(1)), Some(1));
        assert_eq!(gives_way(&[ip(2), ip(1), ip(1), ip(1), ip(1)], ip(2)), None);
        let full: Vec<_> = (0..16).map(|n| ip(if n % 5 == 1 { 9 } else { n })).collect();
        assert_eq!(gives_way(&full, ip(100)), Some(1));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in ["", "\r\n\r\n", "GET", "GET /metrics\r\n\r\n", "\u{0}\u{1}\r\n\r\n", "GET /metrics HTTP/3.9\r\n\r\n"] {
            assert_eq!(refused(head), "400 Bad Request", "{head:?}");
        }
        let many: String = (0..FIELDS_MAX + 1).map(|n| format!("X-{n}: 1\r\n")).collect();
        assert_eq!(refused(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")), "400 Bad Request");
    }
}
