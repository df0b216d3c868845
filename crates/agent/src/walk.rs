//! Path resolution as POSIX does it: from cache as far as that goes, then by LOOKUP for all that is left.
//!
//! Decides: what `.`, `..`, symbolic links and slashes mean, when a path is refused, and which names one LOOKUP asks for.
//! Place in the walk: first step of nearly every command; `ops` sends what it asks for and gives it the answers.
//! Implements `wire-spec.md` section 11.5. Invariants: `..` goes up the directories walked, never up the text; every directory and
//! link that was read from cache is remembered with its version, so that the end of the walk can be checked to be of one
//! instant (R77, [`Walk::holds`]).
//! Leaves to others: what is done with the object found (`ops`), what may be cached (`cache`).

use crate::cache::{Body, Directory, Known, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::{NAME_MAX, ROOT};
use cistern_wire::{Attr, Generation, ObjectId, ObjectKind, Status, Step, Walked};

/// Most symbolic links in one walk, as in Linux.
const LINKS_MAX: u32 = 40;
/// Longest path, in bytes: PATH_MAX of Linux less its final zero.
const PATH_MAX: usize = 4_095;
/// Most bytes of names in one LOOKUP, with their length bytes, so that it fits the smallest datagram (548) beside the headers,
/// the tag of a sealed datagram and LOOKUP's own fields (20 + 4 + 16 + 23).
const LOOKUP_BYTES: usize = 480;

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
    NoName(LastWord),
}

/// What stands at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWord {
    /// Nothing: the path is the root.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name.
    Name,
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

/// One walk.
#[derive(Debug)]
pub(crate) struct Walk {
    end: End,
    /// How far the path itself has been walked, in bytes.
    at: usize,
    /// Targets of links being walked, innermost last, each with how far it has been walked.
    targets: Vec<(Bytes, usize)>,
    /// The directories walked through, root first; the last is where the next name is looked up.
    trail: Vec<ObjectId>,
    /// What is no directory and was reached: the end, or a link to be followed.
    reached: Option<(ObjectId, ObjectKind)>,
    /// Directory and name that the path ends with, for [`End::NameOfDirectory`].
    last_name: Option<(ObjectId, Bytes)>,
    /// Directory and name that the path ends with and that do not exist, for [`End::Create`].
    missing: Option<(ObjectId, Bytes)>,
    last_word: LastWord,
    links: u32,
    /// What was read from cache: object and version.
    used: Vec<(ObjectId, u64)>,
    /// Attributes of the object that the newest answer ended with.
    told: Option<Attr>,
    /// Target of the link that the newest answer ended with, if it is not followed.
    told_target: Option<Bytes>,
    /// How much of `used` was there before the newest answer, and with that answer's own.
    before_answer: usize,
    with_answer: usize,
    /// Whether the newest answer told names under a lock that was gone when it came; and whether an earlier one did.
    slipped: bool,
    slipped_before: bool,
    /// Whether it has waited for an answer, so that what was read from cache before may have changed meanwhile.
    waited: bool,
}

impl Walk {
    /// A walk that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            end: End::Follow,
            at: 0,
            targets: Vec::new(),
            trail: Vec::new(),
            reached: None,
            last_name: None,
            missing: None,
            last_word: LastWord::Root,
            links: 0,
            used: Vec::new(),
            told: None,
            told_target: None,
            before_answer: 0,
            with_answer: 0,
            slipped: false,
            slipped_before: false,
            waited: false,
        }
    }

    /// Begins, or begins again, at the root.
    pub(crate) fn begin(&mut self, end: End) {
        self.end = end;
        self.at = 0;
        self.targets.clear();
        self.trail.clear();
        self.trail.push(ObjectId(ROOT));
        self.reached = None;
        self.last_name = None;
        self.missing = None;
        self.last_word = LastWord::Root;
        self.links = 0;
        self.used.clear();
        self.told = None;
        self.told_target = None;
        self.before_answer = 0;
        self.with_answer = 0;
        self.slipped = false;
        self.slipped_before = false;
        self.waited = false;
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
                self.used.push((object, version));
                if let Err(status) = self.splice(target) {
                    return Advance::Failed(status);
                }
                continue;
            }
            let Some(word) = self.word(path) else {
                let dir = self.here();
                return self.arrived(path, dir, ObjectKind::Directory);
            };
            match word.kind {
                LastWord::DotDot if self.trail.len() > 1 => {
                    self.take(word);
                    self.trail.pop();
                }
                LastWord::Name => {
                    if let Some(stop) = self.name(path, word, view) {
                        return stop;
                    }
                }
                _ => self.take(word),
            }
        }
    }

    /// Takes in the answer to a LOOKUP of `names` that this walk asked for.
    ///
    /// # Errors
    /// Why the walk cannot go on.
    pub(crate) fn walked(&mut self, path: &Bytes, view: &mut View<'_>, names: &[Bytes], answer: &Walked<'_>) -> Result<(), Status> {
        self.hear();
        let taken = self.take_in(path, view, names, answer);
        self.with_answer = self.used.len();
        taken
    }

    fn take_in(&mut self, path: &Bytes, view: &mut View<'_>, names: &[Bytes], answer: &Walked<'_>) -> Result<(), Status> {
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
            self.rests_on(view, &step, current);
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
        self.with_answer = self.used.len();
        self.splice(Bytes::copy_from_slice(target))
    }

    /// Whether the end of the walk is of one instant, now that it is reached (R77). A walk that never waited read all of it in this
    /// very call of the agent, in which nothing else can happen. One that ends with an answer is of the instant of that answer, if
    /// what it went by before is still so; what the answer told needs no lock for that, unless the walk has gone on from it.
    ///
    /// What was told without a lock, where the server gives none, cannot be checked: there a path through links or `..` is
    /// resolved name by name, each at its own instant, as POSIX has it.
    pub(crate) fn holds(&self, view: &mut View<'_>) -> bool {
        if !self.waited {
            true
        } else if self.used.len() == self.with_answer {
            !self.slipped_before && unchanged(&self.used[..self.before_answer], view)
        } else {
            self.unchanged(view)
        }
    }

    /// Whether the end of the walk is of this very instant, too, so that something cached can be told together with it.
    pub(crate) fn is_current(&self, view: &mut View<'_>) -> bool {
        !self.waited || self.unchanged(view)
    }

    /// The same, for an operation that has waited since the walk ended.
    pub(crate) fn unchanged(&self, view: &mut View<'_>) -> bool {
        !self.slipped && !self.slipped_before && unchanged(&self.used, view)
    }

    /// A new answer has come: what was known so far must outlast the wait for it.
    fn hear(&mut self) {
        self.told = None;
        self.told_target = None;
        self.waited = true;
        self.before_answer = self.used.len();
        self.slipped_before |= self.slipped;
        self.slipped = false;
    }

    /// If the walk goes on from this answer, its end is of one instant only if this object is still the same then.
    fn rests_on(&mut self, view: &View<'_>, step: &Step, current: bool) {
        if view.open && current {
            self.used.push((step.attr.object, step.attr.version));
        } else if view.open {
            self.slipped |= step.grant.generation != Generation(0);
        }
    }

    /// Looks up one plain name; `None`: the walk goes on.
    fn name(&mut self, path: &Bytes, word: Word, view: &mut View<'_>) -> Option<Advance> {
        if word.end - word.start > NAME_MAX {
            return Some(Advance::Failed(Status::ENAMETOOLONG));
        }
        let dir = self.here();
        if self.end == End::Name && self.is_last(path, word) {
            let name = self.copy(path, word);
            self.take(word);
            return Some(Advance::At(Found::Name { dir, name }));
        }
        let name = &self.piece(path)[word.start..word.end];
        let known = view.get(dir).and_then(|cached| match &cached.body {
            Body::Directory(names) => names.find(name).map(|known| (known, cached.attr.version)),
            _ => None,
        });
        let Some((known, version)) = known else {
            return Some(Advance::Lookup { start: dir, names: self.names_left(path) });
        };
        self.used.push((dir, version));
        let taken = match known {
            Known::Object(object, kind) => self.reach(path, object, kind),
            Known::Absent => self.absent(path),
        };
        taken.err().map(Advance::Failed)
    }

    /// The next name leads to this object.
    fn reach(&mut self, path: &Bytes, object: ObjectId, kind: ObjectKind) -> Result<(), Status> {
        let word = self.plain_word(path).ok_or(NOT_AN_ANSWER)?;
        if self.end == End::NameOfDirectory && self.is_last(path, word) {
            self.last_name = Some((self.here(), self.copy(path, word)));
        }
        self.take(word);
        match kind {
            ObjectKind::Directory => self.trail.push(object),
            ObjectKind::File if !self.at_end(path) => return Err(Status::ENOTDIR),
            _ => self.reached = Some((object, kind)),
        }
        Ok(())
    }

    /// The next name leads nowhere.
    fn absent(&mut self, path: &Bytes) -> Result<(), Status> {
        let word = self.plain_word(path).ok_or(NOT_AN_ANSWER)?;
        if self.end != End::Create || !self.is_last(path, word) {
            return Err(Status::ENOENT);
        }
        let name = self.copy(path, word);
        self.take(word);
        if self.slash_follows(path) {
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
            End::NoFollow => !self.at_end(path) || self.slash_follows(path),
            End::Name | End::NameOfDirectory => !self.at_end(path),
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
        self.targets.push((target, 0));
        Ok(())
    }

    /// The walk has come to its end at this object.
    fn arrived(&mut self, path: &Bytes, object: ObjectId, kind: ObjectKind) -> Advance {
        if kind != ObjectKind::Directory && (!self.at_end(path) || self.slash_follows(path) || self.end == End::NameOfDirectory) {
            return Advance::Failed(Status::ENOTDIR);
        }
        Advance::At(match (self.end, self.last_name.take()) {
            (End::NameOfDirectory, Some((dir, name))) => Found::Name { dir, name },
            (End::Name | End::NameOfDirectory, _) => Found::NoName(self.last_word),
            _ => {
                let attr = self.told.filter(|attr| attr.object == object);
                Found::Object { object, kind: Some(kind), attr, target: attr.and(self.told_target.take()) }
            }
        })
    }
}

/// What a server says that cannot be an answer to what was asked.
pub(crate) const NOT_AN_ANSWER: Status = Status::EIO;

fn unchanged(used: &[(ObjectId, u64)], view: &mut View<'_>) -> bool {
    used.iter().all(|(object, version)| view.unchanged(*object, *version))
}

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

/// A word of a path: a part between slashes, by its place in the piece of text being walked.
#[derive(Clone, Copy, Debug)]
struct Word {
    start: usize,
    end: usize,
    kind: LastWord,
}

/// The text: the path, and the targets of links that stand in it.
impl Walk {
    fn here(&self) -> ObjectId {
        self.trail.last().copied().unwrap_or(ObjectId(ROOT))
    }

    fn piece<'t>(&'t self, path: &'t Bytes) -> &'t Bytes {
        self.targets.last().map_or(path, |(target, _)| target)
    }

    /// The next word, not yet taken; targets that are walked to their end are left.
    fn word(&mut self, path: &Bytes) -> Option<Word> {
        loop {
            let (text, at) = self.targets.last().map_or((path, self.at), |(target, at)| (target, *at));
            if let Some(start) = text[at..].iter().position(|byte| *byte != b'/').map(|skip| at + skip) {
                let end = text[start..].iter().position(|byte| *byte == b'/').map_or(text.len(), |length| start + length);
                let kind = match &text[start..end] {
                    b"." => LastWord::Dot,
                    b".." => LastWord::DotDot,
                    _ => LastWord::Name,
                };
                return Some(Word { start, end, kind });
            }
            // Slashes at the end of a target mean a directory, and one it is if the walk has gone on to here.
            self.targets.pop()?;
        }
    }

    /// The next word that is a name: dots before it say nothing about where it is looked up.
    fn plain_word(&mut self, path: &Bytes) -> Option<Word> {
        loop {
            let word = self.word(path)?;
            match word.kind {
                LastWord::Name => return Some(word),
                LastWord::Dot => self.take(word),
                _ => return None,
            }
        }
    }

    fn take(&mut self, word: Word) {
        self.last_word = word.kind;
        match self.targets.last_mut() {
            Some((_, at)) => *at = word.end,
            None => self.at = word.end,
        }
    }

    fn copy(&self, path: &Bytes, word: Word) -> Bytes {
        self.piece(path).slice(word.start..word.end)
    }

    /// What is left of each piece of text, the one being walked first.
    fn left<'t>(&'t self, path: &'t Bytes) -> impl Iterator<Item = &'t [u8]> {
        self.targets.iter().rev().map(|(target, at)| &target[*at..]).chain(core::iter::once(&path[self.at..]))
    }

    fn at_end(&self, path: &Bytes) -> bool {
        self.left(path).all(|text| text.iter().all(|byte| *byte == b'/'))
    }

    fn slash_follows(&self, path: &Bytes) -> bool {
        self.at_end(path) && self.left(path).any(|text| !text.is_empty())
    }

    fn is_last(&self, path: &Bytes, word: Word) -> bool {
        let skip = word.end - self.targets.last().map_or(self.at, |(_, at)| *at);
        let mut left = self.left(path);
        left.next().is_none_or(|text| text[skip..].iter().all(|byte| *byte == b'/')) && left.all(|text| text.iter().all(|byte| *byte == b'/'))
    }

    /// The plain names from here on that one LOOKUP can take: up to the next `..`, for which the agent must know where it is.
    fn names_left(&self, path: &Bytes) -> Vec<Bytes> {
        let mut names = Vec::new();
        let mut bytes = 0;
        let mut to_the_end = true;
        let mut plain_end = false;
        for name in self.left(path).flat_map(|text| text.split(|byte| *byte == b'/')).filter(|name| !name.is_empty()) {
            plain_end = name != b".";
            if !plain_end {
                continue;
            }
            bytes += 1 + name.len();
            if name == b".." || name.len() > NAME_MAX || bytes > LOOKUP_BYTES {
                to_the_end = false;
                break;
            }
            names.push(Bytes::copy_from_slice(name));
        }
        if self.end == End::Name && to_the_end && plain_end {
            names.pop();
        }
        names
    }
}
