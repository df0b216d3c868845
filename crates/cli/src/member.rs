//! `cistern member`: an ephemeral file as long as the command runs.
//!
//! Decides: what is done when the file is there already (another one's end is waited for), and when it is lost (made again).
//! The file always belongs to an agent of this process's own, never to the host's: its session ends when this process is gone.
//! Leaves to others: removing the file (the server), who hears of it (`changes`).

use crate::args::Member;
use crate::backend::own_client;
use crate::execute::{EXIT_FAILED, ownership};
use crate::local::{Failure, millis};
use crate::show;
use crate::signals::End;
use crate::text::Text;
use cistern_client::{Attr, Client, ObjectId, Seen, Status, WatchEvent, Watcher};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for the clean end of the session, for which the server may wait a delivery timeout where others cache the directory; what is not
/// confirmed by then ends by the lease.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// How long news are waited for at a time: as long as a signal may take to be noticed.
const STEP: Duration = Duration::from_millis(100);

struct Membership<'a> {
    args: &'a Member,
    path: Text,
    client: &'a Client,
    end: &'a End,
    watcher: Watcher,
}

/// Is a member until it is asked to end; the exit status.
pub(crate) fn member(args: &Member) -> Result<u8, Failure> {
    if args.common.agent.is_some() {
        return Err(Failure::usage("`cistern member` has an agent of its own; --agent is for the other commands"));
    }
    let end = End::catch()?;
    let path = Text::from(args.path.as_os_str());
    let client = own_client(&args.common, Some(format!("member {path}")))?;
    let mut membership = Membership { args, path, client: &client, end: &end, watcher: client.watcher() };
    let result = membership.run();
    drop(membership);
    // With the session the file goes, at once.
    if let Err(error) = client.close(CLOSE_TIME) {
        log::warn!("the session was not closed, and ends by its lease: {error}");
    }
    match result {
        // Whoever read the lines has had enough.
        Err(failure) if failure.message.is_empty() => Ok(0),
        other => other.map(|()| 0),
    }
}

impl Membership<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        while !self.end.is_asked() {
            let Some(attr) = self.join()? else { break };
            self.tell("joined", Some(attr.object))?;
            if self.stay(attr.object)? {
                break;
            }
            self.tell("lost", None)?;
        }
        Ok(())
    }

    /// Makes the file; `None`: asked to end before that could be.
    fn join(&mut self) -> Result<Option<Attr>, Failure> {
        let mut told = false;
        loop {
            match self.client.create_ephemeral(self.path.as_os(), ownership(self.args.mode)).wait() {
                Ok(attr) => return self.fill(attr).map(Some),
                Err(error) if error.status() == Some(Status::EEXIST) => {}
                // A server that was started anew lets nobody begin anything for a moment.
                Err(error) if error.status() == Some(Status::IN_GRACE) => {
                    if self.end.wait(STEP) {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let there = match self.client.lstat(self.path.as_os()).wait() {
                Ok(attr) => attr,
                Err(error) if error.status() == Some(Status::ENOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            if !there.is_ephemeral() {
                let why = format!("{}: is there, and is no ephemeral file; remove it, or choose another name", self.path);
                return Err(Failure::new("EEXIST", EXIT_FAILED, why));
            }
            if !std::mem::replace(&mut told, true) {
                self.tell("waiting", Some(there.object))?;
            }
            if self.wait_for_end(there.object)? {
                return Ok(None);
            }
        }
    }

    fn fill(&self, attr: Attr) -> Result<Attr, Failure> {
        let Some(data) = &self.args.data else { return Ok(attr) };
        let file = self.client.open(self.path.as_os()).wait()?;
        if file.object() != attr.object {
            return Err(Failure::failed(format!("{}: was renamed or replaced by somebody", self.path)));
        }
        let data = Text::from(data.as_os_str()).0;
        Ok(file.write(0, data, None).wait()?)
    }

    /// Waits until another one's file is gone; true: asked to end before.
    fn wait_for_end(&mut self, object: ObjectId) -> Result<bool, Failure> {
        self.watcher.watch(object)?;
        while !self.end.is_asked() {
            if self.watcher.wait_event(STEP) == Some(Seen { object, what: WatchEvent::Gone }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Is a member; true: until it was asked to end; false: until the file was gone.
    fn stay(&mut self, object: ObjectId) -> Result<bool, Failure> {
        self.watcher.watch(object)?;
        let mut uncertain = false;
        while !self.end.is_asked() {
            match self.watcher.wait_event(STEP).filter(|seen| seen.object == object).map(|seen| seen.what) {
                Some(WatchEvent::Gone) => return Ok(false),
                Some(WatchEvent::Uncertain) => {
                    uncertain = true;
                    self.tell("uncertain", Some(object))?;
                }
                Some(WatchEvent::Certain { .. }) if std::mem::take(&mut uncertain) => self.tell("certain", Some(object))?,
                Some(WatchEvent::Certain { .. } | WatchEvent::Changed { .. }) | None => {}
            }
        }
        Ok(true)
    }

    fn tell(&self, event: &str, object: Option<ObjectId>) -> Result<(), Failure> {
        if self.args.common.json {
            let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis);
            return show::json(&json!({ "event": event, "path": self.path, "object": object.map(|object| object.0), "unix_ms": unix_ms }));
        }
        show::line(format!("{event:<9} {}", self.path))
    }
}
