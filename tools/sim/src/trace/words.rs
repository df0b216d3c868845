//! Messages, commands and batches in words.
//!
//! Decides how much of each is shown: names from the registry of the wire format, the numbers by which a person follows a request
//! through a trace, and the rest of the fields cut short. Leaves to others: lines (`trace`).

use cistern_agent::api::{Command, Event, LockEvent, OpError, Output, Target};
use cistern_server::store::Batch;
use cistern_wire::{Datagram, Message};

/// Most characters of what is not a message's fields.
const WORDS_MAX: usize = 110;

/// A datagram: its session, packet number, and messages.
pub(super) fn datagram(bytes: &[u8], fields_max: usize) -> String {
    let datagram = match Datagram::seen(bytes) {
        Ok(datagram) => datagram,
        Err(reason) => return format!("{} bytes that are no datagram: {}", bytes.len(), reason.name()),
    };
    let header = datagram.header;
    let messages: Vec<String> = datagram.messages().map(|message| self::message(&message, fields_max)).collect();
    format!("s{:04x} p{} {}", header.session.0 & 0xFFFF, header.packet, messages.join(" + "))
}

fn message(message: &Message<'_>, fields_max: usize) -> String {
    let fields = format!("{message:?}");
    // The registry's name says what the outer two names of the structure say.
    let fields = fields.split_once(" { ").map_or("", |(_, fields)| fields);
    format!("{} {}", message.kind().name(), cut(fields.trim_end_matches([' ', '}', ')']), fields_max))
}

fn cut(text: &str, max: usize) -> String {
    let short: String = text.chars().take(max).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// A command.
pub(super) fn command(command: &Command) -> String {
    let place = |target: &Target| match target {
        Target::Path(path) => String::from_utf8_lossy(path).into_owned(),
        Target::Object(object) => format!("object {}", object.0),
    };
    match command {
        Command::Lock { target, mode, wait } => format!("lock {} {mode:?} {wait:?}", place(target)),
        Command::Unlock { holder } => format!("unlock holder {}", holder.0),
        Command::Write { target, offset, data, truncate } => {
            format!("write {} bytes to {} at {offset}, truncate {truncate}", data.len(), place(target))
        }
        Command::Put { path, data, .. } => format!("put {} bytes as {}", data.len(), String::from_utf8_lossy(path)),
        Command::Expecting { guard, expect, command: change } => {
            format!("{}, guard {guard:?}, expects {}", self::command(change), cut(&format!("{expect:?}"), WORDS_MAX))
        }
        other => cut(&format!("{other:?}"), WORDS_MAX),
    }
}

/// How a command ended.
pub(super) fn result(result: Option<&Result<Output, OpError>>) -> String {
    match result {
        None => "died with its agent".to_owned(),
        Some(Ok(Output::Locked(locked))) => format!(
            "holder {} of object {} {:?}, generation {}, token {}",
            locked.holder.0, locked.object.0, locked.mode, locked.generation.0, locked.token
        ),
        Some(Ok(output)) => cut(&format!("{output:?}"), WORDS_MAX),
        Some(Err(error)) => format!("fails: {error:?}"),
    }
}

/// What an agent tells its users.
pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Lock { holder, object, what } => {
            let what = match what {
                LockEvent::Suspect { .. } => "suspect",
                LockEvent::Uncertain => "uncertain",
                LockEvent::Certain { .. } => "certain again",
                LockEvent::Lost => "lost",
            };
            format!("holder {} of object {}: {what}", holder.0, object.0)
        }
        Event::SessionOpened { session } => format!("session {:04x} is open", session.0 & 0xFFFF),
        Event::SessionEnded { session, why } => format!("session {:04x} is over: {why}", session.0 & 0xFFFF),
        other => format!("{other:?}"),
    }
}

/// A batch that the server hands to its store.
pub(super) fn batch(batch: &Batch) -> String {
    let keys: Vec<String> = batch.writes.iter().map(|(key, value)| format!("{}{key:?}", if value.is_some() { "" } else { "-" })).collect();
    format!("batch {}: {}", batch.id, cut(&keys.join(", "), WORDS_MAX))
}
