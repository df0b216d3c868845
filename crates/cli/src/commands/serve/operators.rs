//! Operators' lines: on the control socket, and in ADMIN.
//!
//! Decides: that both are one language, answered alike, but that what writes files on this host is asked for on this host; that a change is
//! answered when it is durable, a revocation also in its own log; and what the log shows of each line, and of whom: nobody hides what a line has
//! changed behind others.
//! Place in the walk: a guest of the server's loop (`serve`). Leaves to others: what lines mean (`server_control`), who may send them
//! (`cistern_server`; the mode of the socket's file).

use super::backups::Backups;
use super::in_force::InForce;
use super::kept::{Bell, Kept};
use super::revoked::RevokedLog;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::server_control::{self, Answered, Logged};
use cistern_driver::{AUDIT, ConnectionId, ControlServer, Registry, Response, Stats, Token};
use cistern_link::Instant;
use cistern_server::store::BatchId;
use cistern_server::{AdminLine, LineId, RETIRE_LINE, ROTATE_LINE, Server};
use serde_json::json;
use std::io;

/// Who has asked by a line, and where the answer goes.
#[derive(Clone, Copy, Debug)]
enum AskedBy {
    Control(ConnectionId),
    Wire(LineId),
}

/// What answers need besides the server.
pub(super) struct Around<'a> {
    pub(super) now: Instant,
    pub(super) stats: &'a Stats,
    pub(super) store: &'a Kept,
    pub(super) in_force: &'a InForce,
}

/// The control socket, and what is asked on it or by ADMIN and not yet answered.
pub(super) struct Operators {
    control: ControlServer,
    backups: Backups,
    /// Answers that wait for their batch.
    changes: Vec<(BatchId, AskedBy, String)>,
}

impl Operators {
    pub(super) fn new(control: ControlServer, bell: Bell) -> Self {
        Self { control, backups: Backups::new(bell), changes: Vec::new() }
    }

    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        self.control.register(registry, 0)
    }

    /// The control socket is ready.
    pub(super) fn on_ready(&mut self, token: Token, server: &mut Server, around: &Around<'_>) {
        let Self { control, backups, changes } = self;
        let mut answer = |asked, line: &str| {
            match server_control::logged(line) {
                Some(Logged { line, reads: true }) => log::debug!("control socket: {line}"),
                Some(Logged { line, reads: false }) => log::info!(target: AUDIT, "control socket: {line}"),
                None => {}
            }
            if let Some(dir) = server_control::backup_wanted(line) {
                return match around.store.backup_source().and_then(|source| backups.begin(asked, dir, source)) {
                    Ok(()) => Response::Later,
                    Err(failure) => Response::Line(error(&failure)),
                };
            }
            match answered(server, around, AskedBy::Control(asked), line, changes) {
                Some(line) => Response::Line(line),
                None => Response::Later,
            }
        };
        control.on_ready(token, &mut answer);
    }

    /// Executes what came by ADMIN, in the turn in which it came, so that its writes are in this turn's batch.
    pub(super) fn take_lines(&mut self, server: &mut Server, around: &Around<'_>) {
        while let Some(asked) = server.poll_line(around.now) {
            let answer = match server_control::backup_wanted(&asked.line) {
                Some(_) => Some(error(&Failure::new(
                    "ON_ITS_HOST",
                    EXIT_FAILED,
                    "a backup is written by the server, on its host: ask for it there, through the control socket",
                ))),
                None => match server_control::of_own_key(server, around.now, asked.who, &asked.line) {
                    Some(done) => later(done, AskedBy::Wire(asked.id), &mut self.changes),
                    None => answered(server, around, AskedBy::Wire(asked.id), &asked.line, &mut self.changes),
                },
            };
            // What waits has changed something; of the rest an eviction has, if it was done.
            note(&asked, answer.as_ref().is_none_or(|answer| answer.starts_with(r#"{"ok""#)));
            if let Some(answer) = answer {
                server.line_answered(around.now, asked.id, answer);
            }
        }
    }

    /// Gives the answers that waited, as far as what they tell of is durable.
    pub(super) fn tell(&mut self, server: &mut Server, now: Instant, revoked: &mut RevokedLog) {
        self.backups.tell(&mut self.control);
        let durable = server.durable_up_to();
        if !self.changes.iter().any(|(batch, ..)| *batch <= durable) {
            return;
        }
        let failed = revoked.unite(server).err().map(|failure| error(&failure));
        for (_, asked, line) in self.changes.extract_if(.., |(batch, ..)| *batch <= durable) {
            let line = failed.as_deref().unwrap_or(&line);
            match asked {
                AskedBy::Control(connection) => {
                    // Who asked may be gone; the log has it.
                    self.control.push(connection, line);
                }
                AskedBy::Wire(id) => server.line_answered(now, id, line.to_owned()),
            }
        }
    }
}

/// What the log shows of a line that came by ADMIN. Lines that have changed something are as few as commits and sessions, so all of them are shown;
/// others are for debugging, or as many as one place may log.
fn note(asked: &AdminLine, done: bool) {
    let who = format!("\"{}\" (principal {}, session {})", asked.name.escape_debug(), asked.who.0, asked.session);
    match server_control::logged(&asked.line) {
        Some(Logged { line, .. }) if [ROTATE_LINE, RETIRE_LINE].contains(&&*asked.line) => log::info!("agent {who}: {line}"),
        Some(Logged { line, reads: true }) => log::debug!("operator {who}: {line}"),
        Some(Logged { line, .. }) if done => log::info!(target: AUDIT, "operator {who}: {line}"),
        Some(Logged { line, .. }) => log::info!("operator {who}: refused: {line}"),
        None => log::debug!("operator {who}: no request"),
    }
}

/// The answer to a line; `None`: it is told when what it changed is durable.
fn answered(
    server: &mut Server,
    around: &Around<'_>,
    asked: AskedBy,
    line: &str,
    changes: &mut Vec<(BatchId, AskedBy, String)>,
) -> Option<String> {
    if server_control::settings_wanted(line) {
        return Some(json!({ "ok": around.in_force.rows() }).to_string());
    }
    later(server_control::answer(server, around.now, &around.stats.read(), around.store.stats(), line), asked, changes)
}

/// The answer, if it waits for no batch.
fn later(answer: Answered, asked: AskedBy, changes: &mut Vec<(BatchId, AskedBy, String)>) -> Option<String> {
    match answer {
        (line, Some(batch)) => {
            changes.push((batch, asked, line));
            None
        }
        (line, None) => Some(line),
    }
}

fn error(failure: &Failure) -> String {
    json!({ "error": failure }).to_string()
}
