//! What a loss of power may leave of a disk.
//!
//! Decides, for every file and directory, what is left of the changes that were not synced:
//!
//! | [`Way`] | files | names |
//! |---|---|---|
//! | `Seen` | all changes, as when a process is killed | all |
//! | `Synced` | none | none |
//! | `Named` | none: what is new is empty | all |
//! | `Grown` | the length alone, zeros where the bytes were not synced | all |
//! | `Mixed` | by chance, each file for itself: one of these; the first changes; the first changes and a part of the next; of every sector (512 bytes, or 4 KiB) what it was after any number of the changes, and any of the lengths that there were | by chance, each directory for itself: all, none, the first, or any of them |
//!
//! Place: between a state of the disk and the judge. Invariant: what was synced is in every image.
//! Leaves to others: what the store makes of it (`judge`).

use super::disk::{Cached, Change, Content, Disk, Names, Naming, Node, PAGE, Thing};
use cistern_link::Rng;
use std::path::PathBuf;
use std::sync::Arc;

/// What is left of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Seen,
    Synced,
    Named,
    Grown,
    /// By chance, of this seed.
    Mixed(u64),
}

/// Directories and files as they are after a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<(PathBuf, Arc<Content>)>,
}

impl Image {
    /// The disk after a crash.
    pub(super) fn of(disk: &Disk, way: Way) -> Self {
        let mut image = Self::default();
        let seed = if let Way::Mixed(seed) = way { seed } else { 0 };
        image.add(disk, 0, PathBuf::new(), way, &mut crate::worker::rng(seed, 0));
        image
    }

    fn add(&mut self, disk: &Disk, node: Node, path: PathBuf, way: Way, rng: &mut Rng) {
        match &disk.things[node] {
            Thing::File(file) => self.files.push((path, content(file, way, rng))),
            Thing::Directory(directory) => {
                let names = names(directory, way, rng);
                self.directories.push(path.clone());
                for (name, node) in &*names {
                    self.add(disk, *node, path.join(&**name), way, rng);
                }
            }
        }
    }

    /// The disk on which it is all there is, and what everything is called.
    pub(super) fn disk(&self) -> (Disk, Vec<String>) {
        let (mut disk, mut known) = (Disk::new(), vec![String::new()]);
        let mut add = |path: &PathBuf, thing: Thing| {
            let text = path.to_string_lossy().into_owned();
            let (above, name) = text.rsplit_once('/').unwrap_or(("", &text));
            let node = disk.things.len();
            let above = known.iter().position(|known| known == above).unwrap_or(0);
            if let Thing::Directory(names) = &mut disk.things[above] {
                Arc::make_mut(&mut names.now).insert(name.into(), node);
            }
            disk.things.push(thing);
            known.push(text);
        };
        self.directories.iter().skip(1).for_each(|path| add(path, Thing::Directory(Cached::default())));
        for (path, content) in &self.files {
            let mut file = Cached::default();
            file.now = Arc::clone(content);
            add(path, Thing::File(file));
        }
        disk.sync_all();
        (disk, known)
    }
}

/// Names that a directory has afterwards.
fn names(directory: &Cached<Names, Naming>, way: Way, rng: &mut Rng) -> Arc<Names> {
    let changes = &directory.changes;
    match way {
        Way::Seen | Way::Named | Way::Grown => return Arc::clone(&directory.now),
        Way::Synced => return Arc::clone(&directory.synced),
        Way::Mixed(_) => {}
    }
    let mut names = Arc::clone(&directory.synced);
    let (how, first) = (rng.below(4), below(rng, changes.len() + 1));
    for (at, change) in changes.iter().enumerate() {
        let kept = match how {
            0 => true,
            1 => false,
            2 => at < first,
            _ => rng.below(2) == 0,
        };
        if kept {
            change.apply(Arc::make_mut(&mut names));
        }
    }
    names
}

/// Bytes that a file has afterwards.
fn content(file: &Cached<Content, Change>, way: Way, rng: &mut Rng) -> Arc<Content> {
    let way = match way {
        Way::Mixed(_) => rng.below(8),
        Way::Seen => 0,
        Way::Synced | Way::Named => 1,
        Way::Grown => 2,
    };
    let mut left = Arc::clone(&file.synced);
    if file.changes.is_empty() {
        return left;
    }
    match way {
        0 => return Arc::clone(&file.now),
        1 => {}
        2 => Arc::make_mut(&mut left).resize(file.now.len),
        3 | 4 => {
            let whole = below(rng, file.changes.len() + 1);
            for change in file.changes.iter().take(whole) {
                change.apply(Arc::make_mut(&mut left));
            }
            if let (4, Some(Change::Write(at, data))) = (way, file.changes.get(whole)) {
                Arc::make_mut(&mut left).write(*at, &data[..below(rng, data.len() + 1)]);
            }
        }
        _ => sectors(file, Arc::make_mut(&mut left), if way == 5 { PAGE } else { 512 }, rng),
    }
    left
}

/// Every sector is as it was after some number of the changes; so is the length.
fn sectors(file: &Cached<Content, Change>, left: &mut Content, sector: u64, rng: &mut Rng) {
    let most = file.changes.len() as u64;
    let key = rng.next_u64();
    // The same for all changes of one sector, without a table: a file has many. Half of them are all or nothing.
    let after = |sector: u64| {
        let chance = crate::worker::rng(key, sector).next_u64();
        match chance % 4 {
            0 => 0,
            1 => most,
            _ => (chance >> 2) % (most + 1),
        }
    };
    let (mut len, len_after) = (left.len, rng.below(most + 1));
    for (at, change) in file.changes.iter().enumerate() {
        let at = at as u64;
        match change {
            Change::Write(start, data) => {
                let (mut start, mut data) = (*start, &data[..]);
                if at < len_after {
                    len = len.max(start + data.len() as u64);
                }
                while !data.is_empty() {
                    let room = usize::try_from(sector - start % sector).unwrap_or(usize::MAX);
                    let (now, rest) = data.split_at(data.len().min(room));
                    if at < after(start / sector) {
                        left.put(start, now);
                    }
                    start += now.len() as u64;
                    data = rest;
                }
            }
            Change::Resize(to) => {
                if at < len_after {
                    len = *to;
                }
                let cut: Vec<u64> = left.pages.keys().copied().filter(|page| (page + 1) * PAGE > *to).collect();
                for start in cut.iter().flat_map(|page| (page * PAGE..(page + 1) * PAGE).step_by(512)) {
                    if start >= *to && at < after(start / sector) {
                        left.put(start, &[0; 512]);
                    }
                }
            }
        }
    }
    left.resize(len);
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::disk::Step;
    use super::*;
    use bytes::Bytes;
    use std::collections::BTreeSet;

    /// A file `a` with `old` synced and two writes after it, and a second name not synced.
    fn disk() -> Disk {
        let mut disk = Disk::new();
        let write = |at, byte: u8| Step::Change(1, Change::Write(at, Bytes::from(vec![byte; 600])));
        for step in [Step::Make { directory: false }, write(0, b'o'), Step::Name(0, Naming::Add("a".into(), 1))] {
            disk.step(&step);
        }
        disk.sync_all();
        for step in [write(0, b'1'), write(600, b'2'), Step::Name(0, Naming::Rename("a".into(), "b".into(), 1))] {
            disk.step(&step);
        }
        disk
    }

    fn file(image: &Image) -> (String, Vec<u8>) {
        let (path, content) = &image.files[0];
        let mut bytes = vec![b'-'; usize::try_from(content.len).unwrap()];
        for (at, part) in content.parts() {
            bytes[usize::try_from(at).unwrap()..][..part.len()].copy_from_slice(part);
        }
        (path.to_string_lossy().into_owned(), bytes)
    }

    #[test]
    fn each_way_leaves_what_it_says() {
        let of = |way| file(&Image::of(&disk(), way));
        let all = [[b'1'; 600], [b'2'; 600]].concat();
        assert_eq!(of(Way::Seen), ("b".to_owned(), all));
        assert_eq!(of(Way::Synced), ("a".to_owned(), vec![b'o'; 600]));
        assert_eq!(of(Way::Named), ("b".to_owned(), vec![b'o'; 600]));
        assert_eq!(of(Way::Grown), ("b".to_owned(), [[b'o'; 600], [0; 600]].concat()));
    }

    #[test]
    fn chance_leaves_each_sector_as_it_was_at_some_time_and_finds_every_name() {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let (name, bytes) = file(&Image::of(&disk(), Way::Mixed(seed)));
            assert!((600..=1_200).contains(&bytes.len()));
            // The second sector has parts of both writes: never the later without the earlier.
            let (first, second) = (bytes.get(599), bytes.get(600));
            assert!(second != Some(&b'2') || first == Some(&b'1'), "seed {seed}");
            seen.insert((name, bytes));
        }
        let names: BTreeSet<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(seen.len() > 20, "only {} images", seen.len());
    }

    #[test]
    fn an_image_is_a_disk_of_its_own() {
        let (disk, names) = Image::of(&disk(), Way::Seen).disk();
        assert_eq!(names, ["", "b"]);
        assert_eq!(file(&Image::of(&disk, Way::Synced)).0, "b");
    }
}
