//! The lines of an agent's socket: requests with their ids, answers, events.
//!
//! Decides: what stands around a request and its answer, the version of the whole, and the longest line.
//! Leaves to others: what is asked (`request`), what is answered (`local`).

use super::{Failure, Request, Response};
use crate::execute::EXIT_USAGE;
use cistern_client::WatchEvent;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the interface. One more with each change that a program of the version before would misunderstand; what is only added,
/// fields of answers, operations, codes, changes nothing.
pub(crate) const API: u32 = 1;

/// Longest line that an agent takes, in bytes: the largest contents as base64 (4/3 of 1 MiB) and the path they go to.
pub(crate) const LINE_MAX: usize = 2 << 20;

/// A request as it stands in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestLine {
    /// The program's number for it, which its answer has, too.
    pub(crate) id: u64,
    /// Given up when it is not answered so long after it was read.
    pub(crate) deadline_ms: Option<u64>,
    /// Of a change: the hold of this connection under whose token it is made, or not at all.
    pub(crate) guard: Option<u64>,
    pub(crate) request: Request,
}

/// Why a line is no request.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The id, where that was understood.
    pub(crate) id: Option<u64>,
    pub(crate) failure: Failure,
}

impl RequestLine {
    pub(crate) const fn new(id: u64, request: Request) -> Self {
        Self { id, deadline_ms: None, guard: None, request }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// It is no request.
    pub(crate) fn read(line: &[u8]) -> Result<Self, Unread> {
        let unread = |id, why: String| Unread { id, failure: Failure::usage(format!("not a request: {why}")) };
        let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|e| unread(None, e.to_string()))?;
        let id = fields.remove("id").and_then(|id| id.as_u64());
        let mut number = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| unread(id, format!("{name} is no number"))),
        };
        let (deadline_ms, guard) = (number("deadline_ms")?, number("guard")?);
        let known = id.ok_or_else(|| unread(id, "it has no id that is a number".to_owned()))?;
        let request = serde_json::from_value(Value::Object(fields)).map_err(|e| unread(id, e.to_string()))?;
        Ok(Self { id: known, deadline_ms, guard, request })
    }

    /// The line, without its end.
    ///
    /// # Errors
    /// Never: everything in a request can be written.
    pub(crate) fn written(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Fields<'a> {
            id: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            deadline_ms: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            guard: Option<u64>,
            #[serde(flatten)]
            request: &'a Request,
        }
        let Self { id, deadline_ms, guard, request } = self;
        serde_json::to_string(&Fields { id: *id, deadline_ms: *deadline_ms, guard: *guard, request })
    }
}

/// A line of an agent: an answer, which has `ok` or `error`, or an event. An error without an id is of a line that was no request, or of the
/// connection.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Said {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ok: Option<Response>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) event: Option<Event>,
}

impl Said {
    pub(crate) fn answer(id: Option<u64>, result: Result<Response, Failure>) -> Self {
        match result {
            Ok(response) => Self { id, ok: Some(response), ..Self::default() },
            Err(failure) => Self { id, error: Some(failure), ..Self::default() },
        }
    }

    pub(crate) fn event(event: Event) -> Self {
        Self { event: Some(event), ..Self::default() }
    }
}

/// What an agent is, as it answers `hello`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The version that is spoken.
    pub(crate) api: u32,
    /// `agent`, or `member`: of a group, which has locks and no files.
    pub(crate) kind: String,
    /// Of the program.
    pub(crate) version: String,
    /// Longest line that is taken, in bytes.
    pub(crate) line_max: usize,
}

impl Greeting {
    /// The answer to a program that was written to version `api`.
    ///
    /// # Errors
    /// That one is not spoken.
    pub(crate) fn to(api: u32, kind: &str, line_max: usize) -> Result<Response, Failure> {
        if api == API {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            return Ok(Response::Hello(Self { api, kind: kind.to_owned(), version, line_max }));
        }
        Err(Failure::new("API_VERSION", EXIT_USAGE, format!("this {kind} speaks version {API} of the interface, and not {api}")))
    }

    /// Why nothing is done for a program that has not said hello.
    pub(crate) fn missing() -> Failure {
        Failure::usage(format!("the first request of a connection is {{\"id\":1,\"op\":\"hello\",\"api\":{API}}}"))
    }
}

/// What an agent says unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// Of a lock that was taken with `events`: the state it has come to: `certain`, `suspect`, `uncertain`, `lost`.
    Lock { hold: u64, state: String },
    /// Of a watched object.
    Watch(News),
}

/// Something known of a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) object: u64,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum What {
    /// It has this version, and changes from now on are told.
    Certain { version: u64 },
    /// It has changed.
    Changed { version: u64 },
    /// Changes may be missed from now on.
    Uncertain,
    /// It is gone.
    Gone,
}

impl From<WatchEvent> for News {
    fn from(event: WatchEvent) -> Self {
        let what = match event {
            WatchEvent::Current(version) => What::Certain { version: version.number },
            WatchEvent::Changed(version) => What::Changed { version: version.number },
            WatchEvent::Removed(_) => What::Gone,
            _ => What::Uncertain,
        };
        Self { object: event.file().0, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_the_page_of_the_interface() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
        let unknown = RequestLine::read(br#"{"id":1,"op":"none"}"#).unwrap_err().failure.message;
        let operations: Vec<_> = unknown.split('`').skip(3).step_by(2).collect();
        assert!(operations.len() > 30, "{unknown}");
        for operation in operations {
            assert!(page.contains(&format!("`{operation}`")), "docs/api.md does not name {operation}");
        }
        assert!(page.contains(&format!("This is version {API}.")));
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_what_is_absent_is_as_the_page_says() {
        let read = |line: &str| RequestLine::read(line.as_bytes()).unwrap();
        let put = read(r#"{"op":"put","id":9,"guard":2,"deadline_ms":50,"path":"/a","data":{"b64":"/w=="}}"#);
        assert_eq!((put.id, put.guard, put.deadline_ms), (9, Some(2), Some(50)));
        assert!(matches!(&put.request, Request::Put { mode: 0o644, if_version: None, data, .. } if data.0 == [0xff]));
        assert_eq!(RequestLine::read(put.written().unwrap().as_bytes()).unwrap(), put);
        let attr = read(r#"{"id":1,"op":"set_attr","path":"/a","mode":"0600"}"#);
        assert!(matches!(attr.request, Request::SetAttr { mode: Some(0o600), size: None, mtime_ns: None, .. }));
        for (id, line) in [
            (None, "[]"),
            (None, r#"{"op":"ping"}"#),
            (Some(1), r#"{"id":1,"op":"read","path":"/a","more":1}"#),
            (Some(2), r#"{"id":2,"guard":"x","op":"ping"}"#),
        ] {
            assert_eq!(RequestLine::read(line.as_bytes()).unwrap_err().id, id, "{line}");
        }
    }
}
