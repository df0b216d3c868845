//! Path resolution as POSIX does it: from cache as far as that goes, then by LOOKUP for all that is left.
//!
//! Decides: what `.`, `..`, symbolic links and slashes mean, when a path is refused, and what is asked for.
//! Place in the walk: first step of nearly every command; `tasks` sends what it asks for and gives it the answers.
//! Implements `wire-spec.md` section 6.2 (LOOKUP). Invariant: `..` goes up the directories walked, never up the text.
//! Leaves to others: what a word is (`text`), whether the end is of one instant (`trace`), what is done with the object found
//! (`tasks`), what may be cached (`cache`).

mod straight;
mod text;
mod trace;

pub(crate) use straight::straight;
pub(crate) use text::Last;

use crate::cache::{Body, Directory, Known, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{NAME_MAX, ROOT};
use cistern_wire::{Attr, ObjectId, ObjectKind, Status, Walked};
use text::{Text, Word};
use trace::Trace;

/// Most symbolic links in one walk, as in Linux.
const LINKS_MAX: u32 = 40;
/// Longest path, in bytes: PATH_MAX of Linux less its final zero.
const PATH_MAX: usize = 4_095;
/// What a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The object; a symbolic link at the end is followed.
    Follow,
    /// The object; a symbolic link at the end is what is looked for, unless a slash stands after it.
    NoFollow,
    /// The object, or the name under which it would be made; symbolic links are followed.
    Create,
    /// The directory of the last name, and the name; whether it exists is not asked.
    Name,
    /// The same, of an existing directory (a slash stood after the name where only a directory may).
    NameOfDirectory,
}

/// Where a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// At an object; with what the last answer told of it, if this is still that instant.
    Object {
        /// The object.
        object: ObjectId,
        /// What it is; `None` when it was given by its number.
        kind: Option<ObjectKind>,
        /// Its attributes.
        attr: Option<Attr>,
        /// Where it points, if it is a symbolic link and the same answer told that, too.
        target: Option<Bytes>,
    },
    /// At a name in a directory.
    Name {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Bytes,
    },
    /// A name was looked for, but the path ends otherwise.
    NoName(Last),
}

/// What a walk needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// Nothing: it is there.
    At(Found),
    /// Nothing: it failed.
    Failed(Status),
    /// An answer to LOOKUP.
    Lookup {
        /// Where it starts.
        start: ObjectId,
        /// The names.
        names: Vec<Bytes>,
    },
    /// The target of a symbolic link.
    Target {
        /// The link.
        link: ObjectId,
    },
}

/// One walk. Every function is given the path, always the same: it stays with the command.
#[derive(Debug)]
pub(crate) struct Walk {
    end: End,
    text: Text,
    trace: Trace,
    /// The directories walked through, root first; the last is where the next name is looked up.
    trail: Vec<ObjectId>,
    /// What is no directory and was reached: the end, or a link to be followed.
    reached: Option<(ObjectId, ObjectKind)>,
    /// Directory and name that the path ends with, for [`End::NameOfDirectory`].
    last_name: Option<(ObjectId, Bytes)>,
    /// Directory and name that the path ends with and that do not exist, for [`End::Create`].
    missing: Option<(ObjectId, Bytes)>,
    links: u32,
    /// Attributes of the object that the newest answer ended with.
    told: Option<Attr>,
    /// Target of the link that the newest answer ended with, if it is not followed.
    told_target: Option<Bytes>,
}

impl Walk {
    /// A walk that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            end: End::Follow,
            text: Text::new(),
            trace: Trace::default(),
            trail: Vec::new(),
            reached: None,
            last_name: None,
            missing: None,
            links: 0,
            told: None,
            told_target: None,
        }
    }

    /// Begins, or begins again, at the root.
    pub(crate) fn begin(&mut self, end: End) {
        self.end = end;
        self.text.begin();
        self.trace.begin();
        self.trail.clear();
        self.trail.push(ObjectId(ROOT));
        self.reached = None;
        self.last_name = None;
        self.missing = None;
        self.links = 0;
        self.told = None;
        self.told_target = None;
    }

    /// Refuses paths that cannot be walked.
    pub(crate) fn check(path: &[u8]) -> Result<(), Status> {
        if path.is_empty() {
            return Err(Status::ENOENT);
        }
        if path.len() > PATH_MAX {
            return Err(Status::ENAMETOOLONG);
        }
        if path.contains(&0) { Err(Status::EINVAL) } else { Ok(()) }
    }

    /// Goes on as far as the cache carries.
    pub(crate) fn advance(&mut self, path: &Bytes, view: &mut View<'_>) -> Advance {
        loop {
            if let Some((dir, name)) = self.missing.take() {
                return Advance::At(Found::Name { dir, name });
            }
            if let Some((object, kind)) = self.reached {
                if !self.follows(path) {
                    return self.arrived(path, object, kind);
                }
                let Some((target, version)) = cached_target(view, object) else {
                    return Advance::Target { link: object };
                };
                self.trace.read(object, version);
                if let Err(status) = self.splice(target) {
                    return Advance::Failed(status);
                }
                continue;
            }
            let Some(word) = self.text.word(path) else {
                let dir = self.here();
                return self.arrived(path, dir, ObjectKind::Directory);
            };
            match word.kind {
                Last::DotDot if self.trail.len() > 1 => {
                    self.text.take(word);
                    self.trail.pop();
                }
                Last::Name => {
                    if let Some(stop) = self.name(path, word, view) {
                        return stop;
                    }
                }
                _ => self.text.take(word),
            }
        }
    }

    /// Takes in the answer to a LOOKUP of `names` that this walk asked for.
    ///
    /// # Errors
    /// Why the walk cannot go on.
    pub(crate) fn walked(&mut self, path: &Bytes, view: &mut View<'_>, names: &[Bytes], answer: &Walked<'_>) -> Result<(), Status> {
        self.hear();
        let mut asked = names.iter();
        // The object that the next name is looked up in, and whether that name may be cached.
        let mut last: Option<(Attr, bool)> = None;
        for step in answer.steps {
            let current = view.install(&step.attr, step.grant, None);
            if let Some((dir, cacheable)) = last {
                let name = asked.next().ok_or(NOT_AN_ANSWER)?;
                if cacheable {
                    learn(view, &dir, name, Known::Object(step.attr.object, step.attr.kind));
                }
                self.reach(path, step.attr.object, step.attr.kind)?;
            }
            self.trace.told(view, &step, current);
            self.told = Some(step.attr);
            last = Some((step.attr, current));
        }
        let Some((last, current)) = last else {
            return Err(if answer.status.is_ok() { NOT_AN_ANSWER } else { answer.status });
        };
        if answer.status == Status::ENOENT && last.kind == ObjectKind::Directory {
            let name = asked.next().ok_or(NOT_AN_ANSWER)?;
            if current {
                learn(view, &last, name, Known::Absent);
            }
            return self.absent(path);
        }
        if !answer.status.is_ok() {
            return Err(answer.status);
        }
        if asked.len() == names.len() {
            // A walk that stands still would ask for ever.
            return Err(NOT_AN_ANSWER);
        }
        if last.kind == ObjectKind::Symlink && !answer.target.0.is_empty() {
            let target = Bytes::copy_from_slice(answer.target.0);
            if current {
                let body = Body::Link(target.clone());
                view.cache.fill(last.object, last.version, |place| *place = body);
            }
            if self.follows(path) {
                return self.splice(target);
            }
            self.told_target = Some(target);
        }
        Ok(())
    }

    /// Takes in the target of the link that this walk asked for.
    ///
    /// # Errors
    /// Why the walk cannot go on.
    pub(crate) fn target(&mut self, target: &[u8]) -> Result<(), Status> {
        self.hear();
        self.splice(Bytes::copy_from_slice(target))
    }

    /// Whether the end of the walk is of one instant, now that it is reached (section 11.5).
    pub(crate) fn holds(&self, view: &mut View<'_>) -> bool {
        self.trace.holds(view)
    }

    /// Whether the end of the walk is of this very instant, too, so that something cached can be told together with it.
    pub(crate) fn is_current(&self, view: &mut View<'_>) -> bool {
        self.trace.is_current(view)
    }

    /// The same, for an operation that has waited since the walk ended.
    pub(crate) fn unchanged(&self, view: &mut View<'_>) -> bool {
        self.trace.unchanged(view)
    }

    fn here(&self) -> ObjectId {
        self.trail.last().copied().unwrap_or(ObjectId(ROOT))
    }

    /// An answer has come.
    fn hear(&mut self) {
        self.told = None;
        self.told_target = None;
        self.trace.hear();
    }

    /// Looks up one plain name; `None`: the walk goes on.
    fn name(&mut self, path: &Bytes, word: Word, view: &mut View<'_>) -> Option<Advance> {
        if word.len() > NAME_MAX {
            return Some(Advance::Failed(Status::ENAMETOOLONG));
        }
        let dir = self.here();
        if self.end == End::Name && self.text.is_last(path, word) {
            let name = self.text.copy(path, word);
            self.text.take(word);
            return Some(Advance::At(Found::Name { dir, name }));
        }
        let name = self.text.bytes(path, word);
        let known = view.get(dir).and_then(|cached| match &cached.body {
            Body::Directory(names) => names.find(name).map(|known| (known, cached.attr.version)),
            _ => None,
        });
        let Some((known, version)) = known else {
            return Some(Advance::Lookup { start: dir, names: self.text.names(path, self.end == End::Name) });
        };
        self.trace.read(dir, version);
        let taken = match known {
            Known::Object(object, kind) => self.reach(path, object, kind),
            Known::Absent => self.absent(path),
        };
        taken.err().map(Advance::Failed)
    }

    /// The next name leads to this object.
    fn reach(&mut self, path: &Bytes, object: ObjectId, kind: ObjectKind) -> Result<(), Status> {
        let word = self.text.name(path).ok_or(NOT_AN_ANSWER)?;
        if self.end == End::NameOfDirectory && self.text.is_last(path, word) {
            self.last_name = Some((self.here(), self.text.copy(path, word)));
        }
        self.text.take(word);
        match kind {
            ObjectKind::Directory => self.trail.push(object),
            ObjectKind::File if !self.text.at_end(path) => return Err(Status::ENOTDIR),
            _ => self.reached = Some((object, kind)),
        }
        Ok(())
    }

    /// The next name leads nowhere.
    fn absent(&mut self, path: &Bytes) -> Result<(), Status> {
        let word = self.text.name(path).ok_or(NOT_AN_ANSWER)?;
        if self.end != End::Create || !self.text.is_last(path, word) {
            return Err(Status::ENOENT);
        }
        let name = self.text.copy(path, word);
        self.text.take(word);
        if self.text.slash_follows(path) {
            // What is made is a file; only a directory could have the slash.
            return Err(Status::EISDIR);
        }
        self.missing = Some((self.here(), name));
        Ok(())
    }

    /// Whether what was reached is a link that has to be followed.
    fn follows(&self, path: &Bytes) -> bool {
        let Some((_, ObjectKind::Symlink)) = self.reached else { return false };
        match self.end {
            End::Follow | End::Create => true,
            End::NoFollow => !self.text.at_end(path) || self.text.slash_follows(path),
            End::Name | End::NameOfDirectory => !self.text.at_end(path),
        }
    }

    /// Goes on in the target of the link reached.
    fn splice(&mut self, target: Bytes) -> Result<(), Status> {
        self.reached = None;
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Status::ELOOP);
        }
        match target.first() {
            None => return Err(Status::ENOENT),
            Some(b'/') => self.trail.truncate(1),
            Some(_) => {}
        }
        self.text.splice(target);
        Ok(())
    }

    /// The walk has come to its end at this object.
    fn arrived(&mut self, path: &Bytes, object: ObjectId, kind: ObjectKind) -> Advance {
        if kind != ObjectKind::Directory && (!self.text.at_end(path) || self.text.slash_follows(path) || self.end == End::NameOfDirectory) {
            return Advance::Failed(Status::ENOTDIR);
        }
        Advance::At(match (self.end, self.last_name.take()) {
            (End::NameOfDirectory, Some((dir, name))) => Found::Name { dir, name },
            (End::Name | End::NameOfDirectory, _) => Found::NoName(self.text.last),
            _ => {
                let attr = self.told.filter(|attr| attr.object == object);
                Found::Object { object, kind: Some(kind), attr, target: attr.and(self.told_target.take()) }
            }
        })
    }
}

/// What a server says that cannot be an answer to what was asked.
//= wire-spec.md#7-3-peers-that-break-the-rules
//# An agent MUST take nothing from it but that its request is over.
pub(crate) const NOT_AN_ANSWER: Status = Status::EPROTO;

fn learn(view: &mut View<'_>, dir: &Attr, name: &Bytes, known: Known) {
    // A copy: the name is a part of a whole path, which must not live as long as the cache remembers the name.
    let name = Bytes::copy_from_slice(name);
    view.cache.fill(dir.object, dir.version, |body| match body {
        Body::Directory(directory) => directory.learn(name, known),
        _ => {
            let mut directory = Directory::default();
            directory.learn(name, known);
            *body = Body::Directory(directory);
        }
    });
}

fn cached_target(view: &mut View<'_>, link: ObjectId) -> Option<(Bytes, u64)> {
    let cached = view.get(link)?;
    match &cached.body {
        Body::Link(target) => Some((target.clone(), cached.attr.version)),
        _ => None,
    }
}
