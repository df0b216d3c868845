//! ADMIN: operators' lines, which the driver executes.
//!
//! Decides who may give one (an operator; anybody with a key two lines about that, and grants, which are judged when they are executed), at the moment at
//! which it is given out, and in which pages it is answered. Implements `wire-spec.md` sections 6.2 and 11.9. Invariant: a line that was given out is executed, whatever becomes of its session; its answer waits until everything that
//! it may show is durable.
//! Leaves to others: what a line means and what it changes (the driver, by the calls of `rights`, `joining` and others).

use crate::lines::{ANSWER_MAX, LineId};
use crate::principals::PrincipalId;
use crate::requests::{Blocked, Call};
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::answers::Repeatable;
use crate::server::durability::OnDurable;
use crate::server::execute::{Done, Run};
use alloc::boxed::Box;
use alloc::string::String;
use cistern_link::Instant;
use cistern_wire::{Ack, Admin, AdminAnswer, Bytes16, Field as _, Form, Reply, SessionId, Status};

/// What an ADMIN_ANSWER has besides its text.
const TEXT_AROUND: usize = Reply::KIND_LEN + AdminAnswer::MIN_LEN;

/// The lines that any principal may give, each word for word: about its own key alone. The first asks for an invite for its next key, the second
/// ends the time for which its former one is good.
const OWN_KEY_LINES: [&str; 2] = [ROTATE_LINE, RETIRE_LINE];
/// Asks for an invite for the next key of who asks.
pub const ROTATE_LINE: &str = r#"{"op":"rotate"}"#;
/// What a line has, byte for byte, by which somebody who is no operator may grant rights: no string in a line of JSON can have it.
const GRANT_OP: &str = r#""op":"grant""#;
/// Ends the time for which the former key of who asks is good.
pub const RETIRE_LINE: &str = r#"{"op":"retire"}"#;

/// A line that an operator has given, or a principal about its own key or what it may grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminLine {
    /// By which it is answered.
    pub id: LineId,
    /// Whose it is.
    pub who: PrincipalId,
    /// Whether that is an operator. Any other may have asked for its own key, or for a grant, which [`Server::grant_by`] judges.
    pub operator: bool,
    /// The principal's name.
    pub name: String,
    /// The session in which it came.
    pub session: SessionId,
    /// The line, without control characters.
    pub line: Box<str>,
}

impl Server {
    //= wire-spec.md#11-9-realms-and-rights
    //# A server MUST execute the line of an ADMIN only for an operator, unless it is a grant or one of those about the sender's own key, and
    //# only in a sealed session.
    fn may_give(&self, who: PrincipalId, line: &str) -> bool {
        let is_own = OWN_KEY_LINES.contains(&line) || line.contains(GRANT_OP);
        // Not whoever may do everything because nobody asks for keys, nor who has none yet.
        self.form() == Form::Record && self.principals.get(who).is_some_and(|record| record.operator || is_own && !record.revoked)
    }

    /// ADMIN.
    pub(crate) fn admin(&mut self, call: Call, message: &Admin<'_>) -> Run {
        let line = core::str::from_utf8(message.line.0).ok().filter(|line| !line.chars().any(char::is_control));
        if !self.may_give(call.who, line.unwrap_or_default()) {
            return Err(Status::EPERM.into());
        }
        if message.answer != 0 {
            return self.admin_page(call, message);
        }
        let line = line.ok_or(Status::EINVAL)?;
        if !self.lines.push(call, line, self.principals.asker(call.who).is_operator()) {
            return Err(Status::BUSY.into());
        }
        self.scheduler.charge(call.flow, prices::LINE);
        Ok(Done::Silent)
    }

    fn admin_page(&mut self, call: Call, message: &Admin<'_>) -> Run {
        let batch = self.newest_batch();
        if batch > self.durable_up_to() && !call.progress.settled {
            return Err(Blocked::Durable(batch).into());
        }
        let text = self.lines.kept(call.key.id(), message.answer).ok_or(Status::ESTALE)?;
        let page = page(text, message.answer, message.offset, usize::from(call.limit) - Ack::around(self.form()));
        self.reply_buffer.clear();
        Reply::AdminAnswer(page).put(&mut self.reply_buffer);
        Ok(Done::Reply(Repeatable::Changes))
    }

    /// Takes the next line to execute; the driver calls it in each turn until it gives `None`, and answers each by [`Self::line_answered`].
    pub fn poll_line(&mut self, now: Instant) -> Option<AdminLine> {
        self.step(now, |server| {
            loop {
                let (call, line) = server.lines.next()?;
                //= wire-spec.md#11-3-failure-and-ending
                //# The server MUST check the standing at the instant at which it executes a request.
                if !server.is_good(call.key) {
                    server.discard(&call);
                    continue;
                }
                //= wire-spec.md#11-9-realms-and-rights
                //# The server MUST check the rights of a request each time that it executes it.
                if !server.may_give(call.who, &line) {
                    server.put_failure(Status::EPERM, None);
                    server.reply_now(call, Repeatable::Changes);
                    continue;
                }
                let name = server.principals.get(call.who).map(|record| String::from_utf8_lossy(&record.name).into_owned());
                let (who, name, session) = (call.who, name.unwrap_or_default(), call.key.id());
                let operator = server.principals.asker(who).is_operator();
                return Some(AdminLine { id: server.lines.begin(call), who, operator, name, session, line });
            }
        })
    }

    /// A line is executed, and this is its answer.
    pub fn line_answered(&mut self, now: Instant, id: LineId, text: String) {
        self.step(now, |server| {
            let Some(call) = server.lines.end(id) else { return };
            server.scheduler.charge(call.flow, prices::listed(text.len()));
            server.reply_buffer.clear();
            if text.len() > ANSWER_MAX {
                server.put_failure(Status::E2BIG, None);
            } else {
                let page = page(&text, call.nonce, 0, usize::from(call.limit) - Ack::around(server.form()));
                Reply::AdminAnswer(page).put(&mut server.reply_buffer);
                if page.text.0.len() < text.len() {
                    server.lines.keep(call.key.id(), call.nonce, text.into_boxed_str());
                }
            }
            //= wire-spec.md#11-7-restart-and-recovery
            //# A message that shows an effect of a transaction MUST wait until the transaction is durable.
            let batch = server.newest_batch();
            if batch <= server.durable_up_to() {
                return server.reply_now(call, Repeatable::Changes);
            }
            let reply = Box::from(server.reply_buffer.as_slice());
            server.after_commit(batch, OnDurable::Reply { call, reply, repeatable: Repeatable::Changes });
        });
    }
}

/// What of an answer fits a reply of so many bytes.
fn page(text: &str, answer: u64, offset: u32, room: usize) -> AdminAnswer<'_> {
    let rest = text.as_bytes().get(offset as usize..).unwrap_or_default();
    let text_len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    AdminAnswer { answer, total: text_len, offset, text: Bytes16(&rest[..rest.len().min(room.saturating_sub(TEXT_AROUND))]) }
}
