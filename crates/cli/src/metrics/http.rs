//! The port at which metrics are fetched, by HTTP.
//!
//! Decides: what is answered to which request, and that nobody can hold the port: each connection has a thread, and a bound on time and
//! bytes; where there are too many, of one address or in all, the oldest gives way. Place in the walk: threads of its own. They ask the
//! server's loop for a snapshot by a flag and a wake, one at a time, and get it by a channel; the loop waits for nobody.
//! Invariant: the server is not affected by anything that is sent to this port, but for one copy of its counters a request.
//! Leaves to others: parsing (`httparse`), what is shown (`families`).

use super::{Snapshot, families, process, text};
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use cistern_driver::Handle;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connection may take to send the head of its request.
const HEAD_TIME: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long the server's loop may take to give a snapshot: it does so in its next turn.
const SNAPSHOT_TIME: Duration = Duration::from_secs(5);
/// Longest head of a request, in bytes.
const HEAD_MAX: usize = 8 << 10;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;
/// Most connections of one address.
const OF_ONE_MAX: usize = 4;
/// Most connections in all.
const OPEN_MAX: usize = 16;
/// Most threads, with those whose connection was closed and which have not noticed yet.
const THREADS_MAX: usize = 2 * OPEN_MAX;
/// After accepting has failed (no descriptors left, say) it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The loop's end: whether somebody wants a snapshot, and where it goes.
pub(crate) struct Publisher {
    wanted: Arc<AtomicBool>,
    snapshots: SyncSender<Box<Snapshot>>,
}

impl Publisher {
    /// Called in every turn: gives a snapshot to who waits for one.
    pub(crate) fn publish(&self, snapshot: impl FnOnce() -> Snapshot) {
        if !self.wanted.load(Ordering::Relaxed) || !self.wanted.swap(false, Ordering::Acquire) {
            return;
        }
        match self.snapshots.try_send(Box::new(snapshot())) {
            // Who asked has given up, and will find a snapshot at its next try, which it throws away.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => {
                log::error!("metrics: the thread of the HTTP port is gone; restart the server to have it back");
            }
        }
    }
}

/// A port that listens and is not served yet.
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Listens on the first of a host's addresses that can be had.
    ///
    /// # Errors
    /// None can; whoever named the host is at fault.
    pub(crate) fn listen(addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            let named: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let message = format!("cannot listen for metrics on {}: {e}; --metrics names another address", named.join(", "));
            Failure::new("METRICS", EXIT_FAILED, message)
        };
        let listener = TcpListener::bind(addresses).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
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
        let wanted = Arc::new(AtomicBool::new(false));
        let asker = Asker { wanted: Arc::clone(&wanted), snapshots: Mutex::new(snapshots), handle };
        let guests = Arc::new(Guests { asker, open: Mutex::default(), ended: Condvar::new() });
        let run = move || serve(&self.listener, &guests);
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(run)
            .map_err(|e| Failure::new("METRICS", EXIT_FAILED, format!("no thread for metrics: {e}")))?;
        Ok(Publisher { wanted, snapshots: sender })
    }
}

/// The threads' end.
struct Asker {
    wanted: Arc<AtomicBool>,
    snapshots: Mutex<Receiver<Box<Snapshot>>>,
    handle: Handle,
}

impl Asker {
    fn ask(&self) -> Option<Box<Snapshot>> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        // What came too late for an earlier request is old.
        while snapshots.try_recv().is_ok() {}
        self.wanted.store(true, Ordering::Release);
        self.handle.wake();
        snapshots.recv_timeout(SNAPSHOT_TIME).ok()
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
                log::debug!("metrics: {from}: {e}");
            }
            let mut open = guests.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.streams.retain(|(other, ..)| *other != number);
            open.threads -= 1;
            guests.ended.notify_one();
        };
        thread::Builder::new().name("metrics-guest".to_owned()).spawn(run)?;
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
                    log::debug!("metrics: {from}: {e}");
                }
            }
            Err(e) => {
                log::warn!("metrics: cannot accept a connection: {e}; trying again");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn connection(stream: &TcpStream, asker: &Asker) -> io::Result<()> {
    let head = match read_head(stream, Instant::now() + HEAD_TIME)? {
        Some(head) => answer_to(&head),
        None => HttpAnswer::Refused("431 Request Header Fields Too Large", "the head of the request is too long\n"),
    };
    let (status, kind, body, bodiless) = match head {
        HttpAnswer::Metrics { bodiless } => match asker.ask() {
            Some(snapshot) => {
                let mut all = families::all(&snapshot);
                all.extend(process::families());
                ("200 OK", text::CONTENT_TYPE, text::write(&all), bodiless)
            }
            None => {
                ("503 Service Unavailable", PLAIN, "the server's loop gives no figures: it stands still, or has ended\n".to_owned(), false)
            }
        },
        HttpAnswer::Refused(status, why) => (status, PLAIN, why.to_owned(), false),
    };
    let mut response = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    if status.starts_with("405") {
        response.push_str("Allow: GET, HEAD\r\n");
    }
    response.push_str("\r\n");
    if !bodiless {
        response.push_str(&body);
    }
    write_all(stream, response.as_bytes(), Instant::now() + ANSWER_TIME)?;
    stream.shutdown(Shutdown::Write)
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
enum HttpAnswer {
    Metrics { bodiless: bool },
    Refused(&'static str, &'static str),
}

fn answer_to(head: &[u8]) -> HttpAnswer {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let (method, path) = match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => (request.method.unwrap_or_default(), request.path.unwrap_or_default()),
        Ok(httparse::Status::Partial) | Err(_) => return HttpAnswer::Refused("400 Bad Request", "not a request of HTTP/1\n"),
    };
    let path = path.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => HttpAnswer::Metrics { bodiless: method == "HEAD" },
        ("GET" | "HEAD", _) => HttpAnswer::Refused("404 Not Found", "there is /metrics\n"),
        _ => HttpAnswer::Refused("405 Method Not Allowed", "there are GET and HEAD\n"),
    }
}

/// The head of a request, with the empty line at its end; `None`: it is too long.
fn read_head(mut stream: &TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut chunk = [0; 1_024];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut chunk)? {
            // What is there is judged as it is.
            0 => return Ok(Some(head)),
            count => head.extend_from_slice(&chunk[..count]),
        }
        // Before the end is looked for: with its end, too, it may be too long.
        if head.len() > HEAD_MAX {
            return Ok(None);
        }
        if head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n") {
            return Ok(Some(head));
        }
    }
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let written = stream.write(bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What is left of the time until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &str) -> &'static str {
        match answer_to(head.as_bytes()) {
            HttpAnswer::Refused(status, _) => status,
            HttpAnswer::Metrics { .. } => "metrics",
        }
    }

    #[test]
    fn metrics_have_one_path_and_two_methods() {
        assert_eq!(answer_to(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), HttpAnswer::Metrics { bodiless: false });
        assert_eq!(answer_to(b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), HttpAnswer::Metrics { bodiless: true });
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(refused("POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
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
