//! A disk as a crash sees it: what is synced, and what was changed since.
//!
//! Decides: what a sync makes durable, and nothing more. A file's bytes and length are durable after a sync of the file; a name is
//! durable after a sync of the directory that it is in. Nothing else is promised by POSIX, so nothing else is counted on; file systems
//! promise more.
//! Place: `replay` makes [`Step`]s of what strace saw, this applies them, `crash` makes images of the state between two of them.
//! Invariant: `now` is what programs see, `synced` what every crash leaves, and the changes lead from the one to the other, in order.
//! Leaves to others: what a crash leaves of the changes (`crash`).

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_LEN as u64;
pub(super) const PAGE_LEN: usize = 4096;
type Page = [u8; PAGE_LEN];

/// Number of a file or directory; never used again. 0 is the directory in which everything happens.
pub(super) type Node = usize;
pub(super) type Name = Arc<str>;

/// The bytes of a file. Pages of zeros are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) len: u64,
    pub(super) pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    /// Puts bytes at a place; the file grows if it must.
    pub(super) fn write(&mut self, at: u64, data: &[u8]) {
        self.put(at, data);
        self.len = self.len.max(at + data.len() as u64);
    }

    /// Puts bytes at a place; the length stays.
    pub(super) fn put(&mut self, mut at: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (page, offset) = (at / PAGE, usize::try_from(at % PAGE).unwrap_or_default());
            let (now, rest) = data.split_at(data.len().min(PAGE_LEN - offset));
            self.change(page, |bytes| bytes[offset..offset + now.len()].copy_from_slice(now), now.iter().all(|byte| *byte == 0));
            at += now.len() as u64;
            data = rest;
        }
    }

    /// Makes the file longer or shorter; nothing is left beyond its new end, also of what was [`put`](Self::put) there.
    pub(super) fn resize(&mut self, len: u64) {
        self.pages.split_off(&len.div_ceil(PAGE));
        let offset = usize::try_from(len % PAGE).unwrap_or_default();
        if offset > 0 {
            self.change(len / PAGE, |bytes| bytes[offset..].fill(0), true);
        }
        self.len = len;
    }

    /// Changes a page; one that has only zeros afterwards is forgotten, which is looked for if zeros came into it.
    fn change(&mut self, page: u64, change: impl FnOnce(&mut Page), zeros: bool) {
        if zeros && !self.pages.contains_key(&page) {
            return;
        }
        let bytes = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_LEN])));
        change(bytes);
        if zeros && bytes.iter().all(|byte| *byte == 0) {
            self.pages.remove(&page);
        }
    }

    /// Parts of the file that are not all zeros: place and bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().filter_map(|(page, bytes)| {
            let start = page * PAGE;
            let len = usize::try_from(self.len.saturating_sub(start).min(PAGE)).unwrap_or_default();
            (len > 0).then(|| (start, &bytes[..len]))
        })
    }
}

/// A change of a file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes at a place.
    Write(u64, Bytes),
    /// A new length.
    Resize(u64),
}

impl Change {
    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Self::Write(at, data) => content.write(*at, data),
            Self::Resize(len) => content.resize(*len),
        }
    }
}

/// A change of a directory.
#[derive(Clone, Debug)]
pub(super) enum Naming {
    /// A name for a new file or directory.
    Add(Name, Node),
    /// A name goes.
    Remove(Name),
    /// A file gets another name, in place of the one that had it.
    Rename(Name, Name, Node),
}

pub(super) type Names = BTreeMap<Name, Node>;

impl Naming {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(name, node) => {
                names.insert(Arc::clone(name), *node);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(Arc::clone(to), *node);
            }
        }
    }
}

/// What is synced, what is seen, and the changes between.
#[derive(Clone, Debug)]
pub(super) struct Cached<T, C> {
    pub(super) synced: Arc<T>,
    pub(super) now: Arc<T>,
    /// Changes that are not synced, oldest first.
    pub(super) changes: VecDeque<C>,
    /// Changes that were synced.
    done: u64,
}

impl<T: Default, C> Default for Cached<T, C> {
    fn default() -> Self {
        Self { synced: Arc::default(), now: Arc::default(), changes: VecDeque::new(), done: 0 }
    }
}

impl<T: Clone, C> Cached<T, C> {
    fn change(&mut self, change: C, apply: impl FnOnce(&C, &mut T)) {
        apply(&change, Arc::make_mut(&mut self.now));
        self.changes.push_back(change);
    }

    /// The first `up_to` changes since the beginning are durable.
    fn sync(&mut self, up_to: u64, apply: impl Fn(&C, &mut T)) {
        while self.done < up_to
            && let Some(change) = self.changes.pop_front()
        {
            apply(&change, Arc::make_mut(&mut self.synced));
            self.done += 1;
        }
        if self.changes.is_empty() {
            self.synced = Arc::clone(&self.now);
        }
    }
}

/// A file or a directory.
#[derive(Clone, Debug)]
pub(super) enum Thing {
    File(Cached<Content, Change>),
    Directory(Cached<Names, Naming>),
}

/// Something that happens to the disk, or is said about it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A file or directory comes to be; its number is the next one.
    Make { directory: bool },
    /// A directory changes.
    Name(Node, Naming),
    /// A file changes.
    Change(Node, Change),
    /// So many changes of a file or directory, since the beginning, are durable.
    Sync(Node, u64),
    /// What the store promises from now on: this many batches.
    Promise(u64),
    /// What it promises from now on: this value of the judge's own key.
    PromiseExtra(u64),
}

/// Files and directories.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) things: Vec<Thing>,
}

impl Disk {
    /// An empty directory.
    pub(super) fn new() -> Self {
        Self { things: vec![Thing::Directory(Cached::default())] }
    }

    /// Takes a step.
    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Make { directory: true } => self.things.push(Thing::Directory(Cached::default())),
            Step::Make { directory: false } => self.things.push(Thing::File(Cached::default())),
            Step::Name(node, naming) => {
                if let Thing::Directory(names) = &mut self.things[*node] {
                    names.change(naming.clone(), Naming::apply);
                }
            }
            Step::Change(node, change) => {
                if let Thing::File(content) = &mut self.things[*node] {
                    content.change(change.clone(), Change::apply);
                }
            }
            Step::Sync(node, up_to) => match &mut self.things[*node] {
                Thing::File(content) => content.sync(*up_to, Change::apply),
                Thing::Directory(names) => names.sync(*up_to, Naming::apply),
            },
            Step::Promise(_) | Step::PromiseExtra(_) => {}
        }
    }

    /// Everything is durable.
    pub(super) fn sync_all(&mut self) {
        for thing in &mut self.things {
            match thing {
                Thing::File(content) => content.sync(u64::MAX, Change::apply),
                Thing::Directory(names) => names.sync(u64::MAX, Naming::apply),
            }
        }
    }

    /// How many changes of a file or directory there were.
    pub(super) fn count(&self, node: Node) -> u64 {
        match &self.things[node] {
            Thing::File(content) => content.done + content.changes.len() as u64,
            Thing::Directory(names) => names.done + names.changes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_what_was_written_and_zeros_in_between() {
        let mut content = Content::default();
        content.write(PAGE - 2, b"abcd");
        content.resize(PAGE * 3);
        content.write(10, &[0; 10]);
        let parts: Vec<_> = content.parts().map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!((parts, content.len), (vec![(0, 4096), (PAGE, 4096)], PAGE * 3));
        content.resize(PAGE - 1);
        content.resize(PAGE * 2);
        let last = content.parts().next().unwrap().1;
        assert_eq!((content.parts().count(), &last[4094..]), (1, &b"a\0"[..]));
        content.write(0, &[0; PAGE_LEN]);
        assert_eq!(content.parts().count(), 0);
    }

    #[test]
    fn what_a_torn_write_left_beyond_the_end_is_gone_with_the_next_length() {
        let mut torn = Content::default();
        torn.put(0, b"12345\n");
        torn.resize(0);
        torn.write(0, b"678\n");
        let mut whole = Content::default();
        whole.write(0, b"678\n");
        assert_eq!(torn, whole);
    }

    #[test]
    fn what_comes_after_a_sync_began_is_not_synced_by_it() {
        let mut disk = Disk::new();
        let write = |text: &'static str| Step::Change(1, Change::Write(0, Bytes::from_static(text.as_bytes())));
        for step in [Step::Make { directory: false }, write("one"), Step::Name(0, Naming::Add("a".into(), 1))] {
            disk.step(&step);
        }
        let before = disk.count(1);
        disk.step(&write("two"));
        disk.step(&Step::Sync(1, before));
        let Thing::File(file) = &disk.things[1] else { panic!() };
        assert_eq!((file.synced.parts().next().unwrap().1, file.now.parts().next().unwrap().1), (&b"one"[..], &b"two"[..]));
        let Thing::Directory(names) = &disk.things[0] else { panic!() };
        assert_eq!((names.synced.len(), names.now.len()), (0, 1), "a name is not its file's");
        disk.sync_all();
        let Thing::Directory(names) = &disk.things[0] else { panic!() };
        assert_eq!((names.synced.len(), disk.count(1)), (1, 2));
    }
}
