//! Operators' lines: on the control socket, and in ADMIN.
//!
//! Decides: that both are one language, answered alike, but for where a backup goes (`backups`) and what is asked of the group, on this host alone; that a
//! change is answered when it is durable, a revocation also in its own log; and what the log shows of each line, and of whom: nobody hides what an operator's
//! line has changed behind others, and who is no operator fills no disk.
//! Place in the walk: a guest of the server's loop (`serve`). Leaves to others: what lines mean (`server_control`), who may send them
//! (`cistern_server`; the mode of the socket's file).

use super::backups::Backups;
use super::in_force::InForce;
use super::kept::Kept;
use super::revoked::RevokedLog;
use crate::execute::{EXIT_FAILED, EXIT_UNAVAILABLE};
use crate::local::Failure;
use crate::server_control::{self, Answered, Beside, GroupRequest, Logged};
use cistern_driver::{AUDIT, ConnectionId, ControlServer, Registry, Response, Stats, Token};
use cistern_link::Instant;
use cistern_server::store::BatchId;
use cistern_server::{AdminLine, LineId, RETIRE_LINE, ROTATE_LINE, Server};
use serde_json::{Value, json};
use std::io;

/// Who has asked by a line, and where the answer goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum AskedBy {
    Control(ConnectionId),
    Wire(LineId),
}

/// What there is to say of the group; made when it is asked for.
pub(super) type GroupView<'a> = &'a dyn Fn() -> Value;

/// What answers need besides the server.
pub(super) struct Around<'a> {
    pub(super) now: Instant,
    pub(super) stats: &'a Stats,
    pub(super) in_force: &'a InForce,
    pub(super) group: Option<GroupView<'a>>,
}

/// The server that is asked, and its store.
pub(super) struct AskedCore<'a> {
    pub(super) server: &'a mut Server,
    pub(super) store: &'a Kept,
}

/// Who wants something of the group, and what.
type AskedOfGroup = (ConnectionId, GroupRequest);

/// The control socket, and what is asked on it or by ADMIN and not yet answered.
pub(super) struct Operators {
    control: ControlServer,
    backups: Backups,
    /// Answers that wait for their batch.
    changes: Vec<(BatchId, AskedBy, String)>,
    group: Option<AskedOfGroup>,
}

impl Operators {
    pub(super) fn new(control: ControlServer, backups: Backups) -> Self {
        Self { control, backups, changes: Vec::new(), group: None }
    }

    pub(super) fn register(&mut self, registry: &Registry) -> io::Result<()> {
        self.control.register(registry, 0)
    }

    /// The control socket is ready. Without a core the server stands by.
    pub(super) fn on_ready(&mut self, token: Token, mut core: Option<AskedCore<'_>>, around: &Around<'_>) {
        let Self { control, backups, changes, group } = self;
        let mut answer = |asked, line: &str| {
            match server_control::logged(line) {
                Some(Logged { line, reads: true }) => log::debug!("control socket: {line}"),
                Some(Logged { line, reads: false }) => log::info!(target: AUDIT, "control socket: {line}"),
                None => {}
            }
            if let Some(wanted) = server_control::group_wanted(line) {
                return match begin_group_request(group, (asked, wanted), around.group.is_some(), core.is_some()) {
                    Ok(()) => Response::Later,
                    Err(failure) => Response::Line(error(&failure)),
                };
            }
            let Some(core) = &mut core else { return Response::Line(standby_answer(around, line)) };
            if let Some(begun) = begin_backup(backups, AskedBy::Control(asked), core, line) {
                return begun.map_or_else(|failure| Response::Line(error(&failure)), |()| Response::Later);
            }
            match answered(core, around, AskedBy::Control(asked), line, changes) {
                Some(line) => Response::Line(line),
                None => Response::Later,
            }
        };
        control.on_ready(token, &mut answer);
    }

    /// Executes what came by ADMIN, in the turn in which it came, so that its writes are in this turn's batch.
    pub(super) fn take_lines(&mut self, mut core: AskedCore<'_>, around: &Around<'_>) {
        while let Some(asked) = core.server.poll_line(around.now) {
            let by = AskedBy::Wire(asked.id);
            let answer = match server_control::of_own_key(core.server, around.now, asked.who, &asked.line) {
                Some(done) => later(done, by, &mut self.changes),
                None if !asked.operator => {
                    later(server_control::of_grant(core.server, around.now, asked.who, &asked.line), by, &mut self.changes)
                }
                None => match begin_backup(&mut self.backups, by, &core, &asked.line).or_else(|| on_its_host(&asked.line)) {
                    Some(begun) => begun.err().map(|failure| error(&failure)),
                    None => answered(&mut core, around, by, &asked.line, &mut self.changes),
                },
            };
            // What waits has changed something; of the rest an eviction has, if it was done.
            note(&asked, answer.as_ref().is_none_or(|answer| answer.starts_with(r#"{"ok""#)));
            if let Some(answer) = answer {
                core.server.line_answered(around.now, asked.id, answer);
            }
        }
    }

    /// Gives the answers that waited, as far as what they tell of is durable.
    pub(super) fn tell(&mut self, server: &mut Server, now: Instant, revoked: &mut RevokedLog) {
        if let Some((asked, line)) = self.backups.ended() {
            self.answer(server, now, asked, &line);
        }
        let durable = server.durable_up_to();
        if !self.changes.iter().any(|(batch, ..)| *batch <= durable) {
            return;
        }
        let failed = revoked.unite(server).err().map(|failure| error(&failure));
        let done: Vec<_> = self.changes.extract_if(.., |(batch, ..)| *batch <= durable).collect();
        done.into_iter().for_each(|(_, asked, line)| self.answer(server, now, asked, failed.as_deref().unwrap_or(&line)));
    }

    /// Gives an answer that was awaited. Who asked may be gone; the log has it.
    fn answer(&mut self, server: &mut Server, now: Instant, asked: AskedBy, line: &str) {
        match asked {
            AskedBy::Control(connection) => {
                self.control.push(connection, line);
            }
            AskedBy::Wire(id) => server.line_answered(now, id, line.to_owned()),
        }
    }
}

/// What the log shows of a line that came by ADMIN. Those of operators that have changed something are as few as commits and sessions, so all of them
/// are shown; others are for debugging, or as many as one place may log.
fn note(asked: &AdminLine, done: bool) {
    let role = if asked.operator { "operator" } else { "agent" };
    let who = format!("\"{}\" (principal {}, session {})", asked.name.escape_debug(), asked.who.0, asked.session);
    match server_control::logged(&asked.line) {
        Some(Logged { line, .. }) if [ROTATE_LINE, RETIRE_LINE].contains(&&*asked.line) => log::info!("agent {who}: {line}"),
        Some(Logged { line, reads: true }) => log::debug!("{role} {who}: {line}"),
        Some(Logged { line, .. }) if done && asked.operator => log::info!(target: AUDIT, "operator {who}: {line}"),
        // The server tells of each grant that has changed something, and who made it: nobody hides those behind grants of what is given.
        Some(Logged { line, .. }) if done => log::debug!("agent {who}: {line}"),
        Some(Logged { line, .. }) if asked.operator => log::info!("operator {who}: refused: {line}"),
        Some(Logged { line, .. }) => log::info!("agent {who}: refused: {line}"),
        None => log::debug!("{role} {who}: no request"),
    }
}

/// What is asked of the group, and the end of a core.
impl Operators {
    /// What somebody wants of the group.
    pub(super) const fn take_group_request(&mut self) -> Option<AskedOfGroup> {
        self.group.take()
    }

    /// Tells who has asked for that what came of it.
    pub(super) fn group_answered(&mut self, asked: ConnectionId, came: Result<Value, Failure>) {
        let line = match came {
            Ok(value) => json!({ "ok": value }),
            Err(failure) => json!({ "error": failure }),
        };
        // Who asked may be gone; the log has it.
        self.control.push(asked, &line.to_string());
    }

    /// The core has ended before what these wait for was durable.
    pub(super) fn core_ended(&mut self) {
        let failure = Failure::new(
            "NOT_SERVING",
            EXIT_UNAVAILABLE,
            "the server stopped serving before the change was durable: ask the one that serves whether it was done",
        );
        self.backups.core_ended();
        for (_, asked, _) in self.changes.drain(..) {
            if let AskedBy::Control(connection) = asked {
                self.control.push(connection, &error(&failure));
            }
        }
    }
}

fn begin_group_request(pending: &mut Option<AskedOfGroup>, wanted: AskedOfGroup, in_group: bool, serves: bool) -> Result<(), Failure> {
    let refused = |code, what| Err(Failure::new(code, EXIT_FAILED, what));
    match (in_group, serves) {
        (false, _) => refused("NO_GROUP", "this server has no group (cisternd --group), so there are no others"),
        (true, false) => refused("NOT_SERVING", "this server stands by: ask the one that serves, on its host"),
        (true, true) if pending.is_some() => refused("BUSY", "something is asked of the group already: ask again"),
        (true, true) => {
            *pending = Some(wanted);
            Ok(())
        }
    }
}

/// Begins a backup, if a line asks for one: it is answered when that has ended.
fn begin_backup(backups: &mut Backups, asked: AskedBy, core: &AskedCore<'_>, line: &str) -> Option<Result<(), Failure>> {
    let place = server_control::backup_wanted(line)?;
    Some(place.and_then(|place| backups.begin(asked, place, || core.store.backup_source())))
}

/// Why a line is not answered over the network, if it is not.
fn on_its_host(line: &str) -> Option<Result<(), Failure>> {
    let what = "this is asked of a server on its host, through the control socket: the session of who asks may end with it";
    server_control::group_wanted(line).map(|_| Err(Failure::new("ON_ITS_HOST", EXIT_FAILED, what)))
}

/// The answer of a server that stands by.
fn standby_answer(around: &Around<'_>, line: &str) -> String {
    if server_control::settings_wanted(line) {
        return json!({ "ok": around.in_force.rows() }).to_string();
    }
    server_control::standby_answer(around.group.map(|view| view()), &around.stats.read(), line)
}

/// The answer to a line; `None`: it is told when what it changed is durable.
fn answered(
    core: &mut AskedCore<'_>,
    around: &Around<'_>,
    asked: AskedBy,
    line: &str,
    changes: &mut Vec<(BatchId, AskedBy, String)>,
) -> Option<String> {
    if server_control::settings_wanted(line) {
        return Some(json!({ "ok": around.in_force.rows() }).to_string());
    }
    let is_local = matches!(asked, AskedBy::Control(_));
    let beside = Beside { driver: &around.stats.read(), store: core.store.stats(), group: around.group, is_local };
    later(server_control::answer(core.server, around.now, &beside, line), asked, changes)
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
