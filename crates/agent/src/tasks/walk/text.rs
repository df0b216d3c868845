//! The text that a walk reads: the path, and in it the targets of the symbolic links on the way.
//!
//! Decides: what a word is, what comes next, what is left, and which names one LOOKUP takes. Invariant: the path itself is borrowed from
//! the command and no text is joined to another, so reading costs no memory; a target is read to its end before what stood after the link.

use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::NAME_MAX;

/// Most bytes of names in one LOOKUP, with their length bytes: it must fit the smallest datagram, 548, less the headers (20 + 4), the
/// tag of a sealed datagram (16) and LOOKUP's own fields (23).
const LOOKUP_BYTES: usize = 480;

/// What kind of word stands somewhere in a path, or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// Nothing: the path is the root.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name.
    Name,
}

/// A word: a part between slashes, by its place in the piece of text being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    start: usize,
    end: usize,
    pub(super) kind: Last,
}

impl Word {
    /// Its length in bytes.
    pub(super) const fn len(self) -> usize {
        self.end - self.start
    }
}

/// How far a path has been read. Every function is given the path, always the same.
#[derive(Debug)]
pub(super) struct Text {
    /// How far the path itself has been read, in bytes.
    at: usize,
    /// Targets of links being read, innermost last, each with how far it has been read.
    targets: Vec<(Bytes, usize)>,
    /// The kind of the word taken last.
    pub(super) last: Last,
}

impl Text {
    pub(super) const fn new() -> Self {
        Self { at: 0, targets: Vec::new(), last: Last::Root }
    }

    /// Begins at the start of the path.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        self.targets.clear();
        self.last = Last::Root;
    }

    /// Goes on in the target of a link.
    pub(super) fn splice(&mut self, target: Bytes) {
        self.targets.push((target, 0));
    }

    /// The next word, not yet taken; targets that are read to their end are left.
    pub(super) fn word(&mut self, path: &Bytes) -> Option<Word> {
        loop {
            let (text, at) = self.targets.last().map_or((path, self.at), |(target, at)| (target, *at));
            if let Some(start) = text[at..].iter().position(|byte| *byte != b'/').map(|skip| at + skip) {
                let end = text[start..].iter().position(|byte| *byte == b'/').map_or(text.len(), |length| start + length);
                let kind = match &text[start..end] {
                    b"." => Last::Dot,
                    b".." => Last::DotDot,
                    _ => Last::Name,
                };
                return Some(Word { start, end, kind });
            }
            // Slashes at the end of a target mean a directory, and one it is if the walk has gone on to here.
            self.targets.pop()?;
        }
    }

    /// The next word that is a name: dots before it say nothing about where it is looked up.
    pub(super) fn name(&mut self, path: &Bytes) -> Option<Word> {
        loop {
            let word = self.word(path)?;
            match word.kind {
                Last::Name => return Some(word),
                Last::Dot => self.take(word),
                _ => return None,
            }
        }
    }

    /// Takes the word that is next.
    pub(super) fn take(&mut self, word: Word) {
        self.last = word.kind;
        match self.targets.last_mut() {
            Some((_, at)) => *at = word.end,
            None => self.at = word.end,
        }
    }

    /// The bytes of the word that is next.
    pub(super) fn bytes<'t>(&'t self, path: &'t Bytes, word: Word) -> &'t [u8] {
        &self.piece(path)[word.start..word.end]
    }

    /// The same, to be kept.
    pub(super) fn copy(&self, path: &Bytes, word: Word) -> Bytes {
        self.piece(path).slice(word.start..word.end)
    }

    fn piece<'t>(&'t self, path: &'t Bytes) -> &'t Bytes {
        self.targets.last().map_or(path, |(target, _)| target)
    }

    /// What is left of each piece of text, the one being read first.
    fn left<'t>(&'t self, path: &'t Bytes) -> impl Iterator<Item = &'t [u8]> {
        self.targets.iter().rev().map(|(target, at)| &target[*at..]).chain(core::iter::once(&path[self.at..]))
    }

    /// Whether no word is left.
    pub(super) fn at_end(&self, path: &Bytes) -> bool {
        self.left(path).all(blank)
    }

    /// Whether no word is left, but a slash is.
    pub(super) fn slash_follows(&self, path: &Bytes) -> bool {
        self.at_end(path) && self.left(path).any(|text| !text.is_empty())
    }

    /// Whether the word that is next is the last.
    pub(super) fn is_last(&self, path: &Bytes, word: Word) -> bool {
        let skip = word.end - self.targets.last().map_or(self.at, |(_, at)| *at);
        let mut left = self.left(path);
        left.next().is_none_or(|text| blank(&text[skip..])) && left.all(blank)
    }

    /// The names from here on that one LOOKUP can take: up to the next `..`, for which the agent must know where it is; and without
    /// the name at the end of the path, if only its directory is looked for.
    pub(super) fn names(&self, path: &Bytes, without_last: bool) -> Vec<Bytes> {
        let mut names = Vec::new();
        let mut bytes = 0;
        let mut ends_in_name = false;
        for word in self.left(path).flat_map(|text| text.split(|byte| *byte == b'/')).filter(|word| !word.is_empty()) {
            ends_in_name = word != b".";
            if !ends_in_name {
                continue;
            }
            bytes += 1 + word.len();
            if word == b".." || word.len() > NAME_MAX || bytes > LOOKUP_BYTES {
                return names;
            }
            names.push(Bytes::copy_from_slice(word));
        }
        if without_last && ends_in_name {
            names.pop();
        }
        names
    }
}

fn blank(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// The words of a path, and what was said at each of being the last.
    fn words(path: &'static str, splice: Option<(usize, &'static str)>) -> Vec<(String, bool)> {
        let path = Bytes::from_static(path.as_bytes());
        let mut text = Text::new();
        let mut seen = Vec::new();
        while let Some(word) = text.word(&path) {
            let bytes = String::from_utf8(text.bytes(&path, word).to_vec()).unwrap();
            seen.push((bytes, text.is_last(&path, word)));
            text.take(word);
            if let Some((_, target)) = splice.filter(|(at, _)| *at == seen.len()) {
                text.splice(Bytes::from_static(target.as_bytes()));
            }
        }
        assert!(text.at_end(&path));
        seen
    }

    fn named(list: &[(&str, bool)]) -> Vec<(String, bool)> {
        list.iter().map(|(word, last)| (String::from(*word), *last)).collect()
    }

    #[test]
    fn words_stand_between_slashes() {
        assert_eq!(words("//a/./b//", None), named(&[("a", false), (".", false), ("b", true)]));
        assert_eq!(words("///", None), named(&[]));
        assert_eq!(words("a", None), named(&[("a", true)]));
    }

    #[test]
    fn a_target_is_read_before_what_stood_after_the_link() {
        assert_eq!(words("a/l/b", Some((2, "x/y/"))), named(&[("a", false), ("l", false), ("x", false), ("y", false), ("b", true)]));
        assert_eq!(words("l/", Some((1, "x"))), named(&[("l", true), ("x", true)]));
    }

    #[test]
    fn a_slash_at_the_end_is_seen_through_links() {
        let path = Bytes::from_static(b"l/");
        let mut text = Text::new();
        let word = text.word(&path).unwrap();
        text.take(word);
        assert!(text.slash_follows(&path));
        text.splice(Bytes::from_static(b"x"));
        assert!(!text.at_end(&path));
        let word = text.word(&path).unwrap();
        text.take(word);
        assert!(text.slash_follows(&path), "the slash after the link");
    }

    #[test]
    fn a_lookup_takes_names_up_to_where_the_way_must_be_known() {
        let text = Text::new();
        let names = |path: &'static str, without_last| -> Vec<Bytes> { text.names(&Bytes::from_static(path.as_bytes()), without_last) };
        assert_eq!(names("/a/./b/../c", false), ["a", "b"]);
        assert_eq!(names("/a/b/c/", true), ["a", "b"]);
        assert_eq!(names("/a/b/.", true), ["a", "b"], "what is at the end is no name");
        assert_eq!(names("/a/b/..", true), ["a", "b"]);
        assert_eq!(names("/", true), [""; 0]);
    }
}
