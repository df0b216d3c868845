//! What the HTTP ports of server and agent have in common: heads of requests, bounded in time and bytes, and who a browser may be led by.
//!
//! Leaves to others: what is answered (`metrics::http`, `commands::agent::run::front`), parsing (`httparse`).

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may take to send the head of its request.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(2);
/// Longest head of a request, in bytes.
const HEAD_MAX: usize = 8 << 10;
/// Most header fields of a request.
pub(crate) const FIELDS_MAX: usize = 64;

/// The head of a request, with the empty line at its end, and what has come of its body with that; `None`: the head is too long.
///
/// # Errors
/// The connection broke, or `end` has passed.
pub(crate) fn read_head(mut stream: &TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
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

/// Writes all bytes.
///
/// # Errors
/// The connection broke, or `end` has passed.
pub(crate) fn write_all(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let written = stream.write(bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What is left of the time until `end`.
///
/// # Errors
/// Nothing is.
pub(crate) fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
}

/// A field of a head, the first of its name.
pub(crate) fn field<'h>(request: &httparse::Request<'_, 'h>, name: &str) -> Option<&'h [u8]> {
    request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Whether what the field `Host` says is an IP address, localhost, or `host`: by any other name a browser may have been led here by a web page
/// that is somebody else's (DNS rebinding). Who sends no such field is no browser.
pub(crate) fn is_asked_as(asked: Option<&[u8]>, host: &str) -> bool {
    let Some(asked) = asked else { return true };
    let Ok(asked) = str::from_utf8(asked) else { return false };
    let name = match asked.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => asked.split_once(':').map_or(asked, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || !name.is_empty() && name.eq_ignore_ascii_case(host)
}
