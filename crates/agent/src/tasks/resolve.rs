//! From what a command names to the objects it is about: one walk for each path, then the command's own work.
//!
//! Decides: which paths a command walks and what each walk looks for; what is checked when a walk ends. Implements `wire-spec.md` section
//! 11.5. Invariant: a walk's end counts only if everything it read from cache is still so at that instant; otherwise it begins again.

use super::change;
use super::request::Request;
use super::task::{Call, Desk, Flow, Task};
use crate::api::{Command, OpError, Target};
use crate::cache::Body;
use crate::tasks::walk::{Advance, End, Found, NOT_AN_ANSWER, Walk};
use bytes::Bytes;
use cistern_wire::limits::SYMLINK_MAX;
use cistern_wire::{Data, ObjectKind, Reply, Status, Want};

/// One object that a command names.
pub(super) enum Leg<'a> {
    Number(cistern_wire::ObjectId),
    Path(&'a Bytes, End),
}

/// The object that a command names in the place `nth`; `None`: it names no more.
pub(super) fn leg(command: &Command, nth: usize) -> Option<Leg<'_>> {
    if let Command::Batch { items, .. } = command {
        return match (items.get(nth / change::LEGS)?, nth % change::LEGS) {
            // Whether it exists is for the server to see, in the order of the items.
            (Command::Create { path, .. }, 0) => Some(Leg::Path(path, End::Name)),
            (item, nth) => leg(item, nth),
        };
    }
    let of = |target, end| match target {
        &Target::Object(object) => Leg::Number(object),
        Target::Path(path) => Leg::Path(path, end),
    };
    let end = |follow: bool| if follow { End::Follow } else { End::NoFollow };
    Some(match (command, nth) {
        (Command::Stat { target, follow } | Command::SetAttr { target, follow, .. }, 0) => of(target, end(*follow)),
        (Command::GetXattr { target, follow, .. } | Command::ListXattr { target, follow }, 0) => of(target, end(*follow)),
        (Command::SetXattr { target, follow, .. } | Command::RemoveXattr { target, follow, .. }, 0) => of(target, end(*follow)),
        (Command::Read { target, .. } | Command::List { target, .. } | Command::Write { target, .. }, 0) => of(target, End::Follow),
        (Command::Lock { target, .. } | Command::ListLocks { target: Some(target) }, 0) => of(target, End::Follow),
        (Command::SetQuota { target, .. }, 0) => of(target, End::Follow),
        (Command::ReadLink { target }, 0) => of(target, End::NoFollow),
        (Command::Put { path, .. } | Command::Create { path, exclusive: false, .. }, 0) => Leg::Path(path, End::Create),
        (Command::Create { path, .. } | Command::Symlink { path, .. }, 0) => Leg::Path(path, End::Name),
        (Command::Mkdir { path, .. } | Command::MakeRealm { path, .. }, 0) => Leg::Path(path, End::Name),
        (Command::MakeLease { path, .. }, 0) => Leg::Path(path, End::Name),
        (Command::Attach { path, .. }, 0) => Leg::Path(path, End::NoFollow),
        (Command::Attach { lease, .. }, 1) => Leg::Path(lease, End::Follow),
        (Command::KeepLease { lease, .. } | Command::ListLeases { lease: Some(lease) }, 0) => of(lease, End::Follow),
        (Command::Rmdir { path }, 0) | (Command::Link { path, .. }, 1) => Leg::Path(path, End::Name),
        (Command::Link { existing, .. }, 0) => Leg::Path(existing, End::NoFollow),
        (Command::Unlink { path, .. }, 0) => Leg::Path(path, name_end(&[path])),
        // Only a directory may be moved from or to a name with a slash after it.
        (Command::Rename { from, to, .. }, 0) => Leg::Path(from, name_end(&[from, to])),
        (Command::Rename { to, .. }, 1) => Leg::Path(to, End::Name),
        _ => return None,
    })
}

fn name_end(paths: &[&Bytes]) -> End {
    if paths.iter().any(|path| path.ends_with(b"/")) { End::NameOfDirectory } else { End::Name }
}

impl Task {
    /// Whether the command names its object by its number.
    pub(super) fn names_a_number(&self) -> bool {
        matches!(leg(&self.command, 0), Some(Leg::Number(_)))
    }

    /// Goes on with the walks, and with the command when they are done.
    pub(super) fn resolve(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let count = self.found.len();
        for nth in 0..count {
            if self.found[nth].is_some() {
                continue;
            }
            if let Some(flow) = self.resolve_one(desk, nth) {
                return flow;
            }
        }
        self.act(desk)
    }

    /// Walks to one object; `None`: it is found, or there is none to look for.
    fn resolve_one(&mut self, desk: &mut Desk<'_, '_>, nth: usize) -> Option<Flow> {
        if let Command::Batch { items, .. } = &self.command
            && let Some(found) = change::made_before(items, nth / change::LEGS, nth % change::LEGS)
        {
            self.found[nth] = Some(found);
            return None;
        }
        let mut view = self.view(desk);
        let (path, end) = match leg(&self.command, nth)? {
            Leg::Number(object) => {
                self.walk.begin(End::Follow);
                self.found[nth] = Some(Found::Object { object, kind: None, attr: None, target: None });
                return None;
            }
            Leg::Path(path, end) => (path, end),
        };
        if !self.walking {
            if let Err(status) = Walk::check(path) {
                return Some(self.walk_failed(nth, status));
            }
            self.walk.begin(end);
            self.walking = true;
        }
        let request = match self.walk.advance(path, &mut view) {
            //= wire-spec.md#11-1-lease
            //# An operation still running when the lease ends MUST fail, and its result MUST NOT be given out as valid.
            Advance::At(_) | Advance::Failed(_) if !self.walk.holds(&mut view) => return Some(Flow::Again),
            Advance::Failed(status) => return Some(self.walk_failed(nth, status)),
            Advance::At(found) => {
                self.found[nth] = Some(found);
                self.walking = false;
                return None;
            }
            Advance::Lookup { start, names } => Request::Lookup { start, names },
            Advance::Target { link } => Request::Read { object: link, offset: 0, length: LINK_LENGTH, version: 0, want: Want::Shared },
        };
        self.ask(desk, request);
        Some(Flow::Wait)
    }

    /// Takes in an answer that the walk waited for.
    pub(super) fn heard_walking(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        let mut view = self.view(desk);
        // Places that are not found yet, but name something: the first is the one walked to.
        let unfound = |nth: &usize| self.found[*nth].is_none() && leg(&self.command, *nth).is_some();
        let Some((nth, Leg::Path(path, _))) = (0..self.found.len()).find(unfound).and_then(|nth| Some((nth, leg(&self.command, nth)?)))
        else {
            return Flow::failed(NOT_AN_ANSWER);
        };
        let taken = match (&call.request, reply) {
            (Request::Lookup { names, .. }, Reply::Walked(walked)) => self.walk.walked(path, &mut view, names, walked),
            (Request::Read { object, .. }, Reply::Data(data)) => {
                let is_link = is_target(data);
                if is_link && view.install(&data.attr, data.grant, call.covered) {
                    let target = Bytes::copy_from_slice(data.data.0);
                    view.cache.fill(*object, data.attr.version, |body| *body = Body::Link(target));
                }
                if is_link { self.walk.target(data.data.0) } else { Err(NOT_AN_ANSWER) }
            }
            (_, Reply::Failed(failed)) => Err(failed.status),
            _ => Err(NOT_AN_ANSWER),
        };
        match taken {
            Ok(()) => self.resolve(desk),
            // What the walk went by was moved or taken away meanwhile, so this is not the answer to the path as it is now.
            Err(_) if !self.walk.holds(&mut view) => Flow::Again,
            Err(Status::ESTALE) => self.stale(),
            Err(status) => self.walk_failed(nth, status),
        }
    }

    /// A path leads nowhere; of a batch, with the item that names it.
    fn walk_failed(&self, nth: usize, status: Status) -> Flow {
        match self.command {
            Command::Batch { .. } => {
                let item = u16::try_from(nth / change::LEGS).unwrap_or(u16::MAX);
                Flow::End(Err(OpError::Item { item, status }))
            }
            _ => Flow::failed(status),
        }
    }

    /// The command's own work, all its objects being known.
    fn act(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        match &self.command {
            Command::Stat { .. } => self.stat(desk),
            Command::Read { .. } => self.read(desk),
            Command::ReadLink { .. } => self.read_link(desk),
            Command::List { .. } => self.list(desk),
            Command::Write { .. } | Command::Put { .. } => self.put(desk),
            Command::GetXattr { .. } | Command::ListXattr { .. } => self.read_xattr(desk),
            Command::SetXattr { .. } | Command::RemoveXattr { .. } => self.change_xattr(desk),
            Command::Batch { .. } => self.batch(desk),
            Command::Lock { .. } => self.lock(desk),
            Command::ListLocks { .. } => self.list_locks(desk),
            Command::ListRealms { .. } => self.list_realms(desk),
            Command::KeepLease { .. } => self.keep_lease(desk),
            Command::ListLeases { .. } => self.list_leases(desk),
            Command::Admin { .. } => self.administer(desk),
            Command::ServerStatus | Command::Ping => self.ask_server(desk),
            _ => self.change(desk),
        }
    }
}

/// Whether these are the target of a symbolic link, and all of it.
pub(super) fn is_target(data: &Data<'_>) -> bool {
    data.attr.kind == ObjectKind::Symlink && data.offset == 0 && data.attr.size == data.data.0.len() as u64
}

/// Longest link target, as READ's length.
#[expect(clippy::cast_possible_truncation, reason = "400")]
pub(super) const LINK_LENGTH: u32 = SYMLINK_MAX as u32;
