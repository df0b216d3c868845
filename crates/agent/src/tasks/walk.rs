//! Path resolution as POSIX does it: from cache as far as that goes, then by LOOKUP for all that is left.
//!
//! Decides: what `.`, `..`, symbolic links and slashes mean, when a path is refused, what is asked for, and whether the end of a walk is of one
//! instant: what was read from cache is so now, what an answer tells was so when the server made it, and the two go together if the cached part
//! was so from before the answer was asked for until now. Invariants: `..` goes up the directories walked, never up the text; what was told
//! under a lock that is gone counts for nothing but the instant of its answer. Implements `wire-spec.md` sections 6.2 (LOOKUP) and 11.5.

mod text;

use crate::cache::{Body, Directory, Known, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{NAME_MAX, ROOT};
use cistern_wire::{Attr, Generation, ObjectId, ObjectKind, Stated, Status, Walked};
pub(crate) use text::Last;
use text::{Text, Word};

/// Most symbolic links in one walk, as in Linux.
const LINKS_MAX: u32 = 40;
/// Longest path, in bytes: PATH_MAX of Linux less its final zero.
pub(super) const PATH_MAX: usize = 4_095;
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

/// The trace of one walk.
#[derive(Debug, Default)]
struct Trace {
    /// What was read from cache or cached on the way: object and version.
    used: Vec<(ObjectId, u64)>,
    /// How much of it there was before the newest answer, and with that answer's own.
    before_answer: usize,
    with_answer: usize,
    /// Whether the newest answer told something under a lock that was gone when it came; and whether an earlier one did.
    slipped: bool,
    slipped_before: bool,
    /// Whether the walk has waited for an answer, so that what was read from cache before may have changed meanwhile.
    waited: bool,
}

impl Trace {
    fn begin(&mut self) {
        self.used.clear();
        self.before_answer = 0;
        self.with_answer = 0;
        self.slipped = false;
        self.slipped_before = false;
        self.waited = false;
    }

    /// An object was read from cache at this version.
    fn read(&mut self, object: ObjectId, version: u64) {
        self.used.push((object, version));
    }

    /// An answer has come: what was known so far must outlast the wait for it.
    fn hear(&mut self) {
        self.waited = true;
        self.before_answer = self.used.len();
        self.with_answer = self.used.len();
        self.slipped_before |= self.slipped;
        self.slipped = false;
    }

    /// The answer tells an object: if the walk goes on from there, its end is of one instant only if the object is the same then.
    /// `kept`: a lock makes it current.
    fn told(&mut self, view: &View<'_>, step: &Stated, kept: bool) {
        if view.open && kept {
            self.used.push((step.attr.object, step.attr.version));
            self.with_answer = self.used.len();
        } else if view.open {
            self.slipped |= step.grant.generation != Generation(0);
        }
    }

    /// Whether the end of the walk is of one instant, now that it is reached. A walk that never waited read all of it in this very call
    /// of the agent, in which nothing else can happen. One that ends with an answer is of the instant of that answer, if what it
    /// went by before is still so; what the answer told needs no lock for that, unless the walk has gone on from it.
    ///
    /// What was told without a lock, because the server gives none, cannot be checked: there a path through links or `..` is resolved
    /// name by name, each at its own instant, as POSIX has it.
    fn holds(&self, view: &mut View<'_>) -> bool {
        //= wire-spec.md#11-5-caching-and-metadata
        //# An answer made from several cached objects MUST be true at one instant: when the last was read, all locks used are held, and the
        //# objects have the versions read.
        if !self.waited {
            true
        } else if self.used.len() == self.with_answer {
            !self.slipped_before && unchanged(&self.used[..self.before_answer], view)
        } else {
            self.unchanged(view)
        }
    }

    /// Whether the end of the walk is of this very instant, too, so that something cached can be told together with it.
    fn is_current(&self, view: &mut View<'_>) -> bool {
        !self.waited || self.unchanged(view)
    }

    /// The same, for an operation that has waited since the walk ended.
    fn unchanged(&self, view: &mut View<'_>) -> bool {
        !self.slipped && !self.slipped_before && unchanged(&self.used, view)
    }
}

fn unchanged(used: &[(ObjectId, u64)], view: &mut View<'_>) -> bool {
    used.iter().all(|(object, version)| view.unchanged(*object, *version))
}
