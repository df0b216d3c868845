//! What a program did to the files in a directory, from strace's log of it.
//!
//! Decides: which file every call is about, and what it changes. Names and descriptors are followed as the kernel does it: a descriptor
//! has a file and a place, which its copies share; with `O_APPEND` a write goes to the end. A change counts from the end of its call, and
//! a sync covers what had ended when it began, so a file is never taken for more durable than it is.
//! Place: between `strace` and `disk`. Invariant: a call that could change the directory in a way that is not understood is an error;
//! that the rest was understood is seen when the outcome is compared with the real files ([`Replay::compare`]).
//! Leaves to others: what is durable when (`disk`).

use super::disk::{Change, Content, Disk, Name, Naming, Node, PAGE_LEN, Step, Thing};
use super::strace::{self, Call, Calls};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Calls that strace is asked for: all that change files or descriptors, and those that would change files unseen.
pub(super) const CALLS: &str = "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,\
    fallocate,lseek,fsync,fdatasync,sync,syncfs,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat,\
    copy_file_range,sendfile,splice,mmap,io_uring_setup";

/// What an open file is.
struct Open {
    node: Node,
    at: Cell<u64>,
    append: bool,
}

/// A directory, and what programs did in it.
pub(super) struct Replay {
    /// Where it was.
    root: PathBuf,
    /// As it is now.
    pub(super) disk: Disk,
    /// What was done.
    pub(super) steps: Vec<Step>,
    /// What each file and directory was called first.
    pub(super) names: Vec<String>,
    descriptors: HashMap<u64, Rc<Open>>,
    /// What a sync under way will have synced.
    syncs: HashMap<u32, u64>,
}

/// What a path leads to.
enum Found {
    /// Something else than the directory and what is in it.
    Elsewhere,
    /// The directory itself.
    Root,
    /// A name in a directory.
    Place(Node, Name),
}

impl Replay {
    /// An empty directory.
    pub(super) fn new(root: &Path) -> Self {
        Self::on(root, Disk::new(), vec![String::new()])
    }

    /// A directory that is known.
    pub(super) fn on(root: &Path, disk: Disk, names: Vec<String>) -> Self {
        Self { root: root.to_owned(), disk, steps: Vec::new(), names, descriptors: HashMap::new(), syncs: HashMap::new() }
    }

    /// Takes in what one program did, from its beginning to its end.
    pub(super) fn take(&mut self, log: &Path) -> Result<(), String> {
        let file = File::open(log).map_err(|e| format!("{}: {e}", log.display()))?;
        self.descriptors.clear();
        strace::read(BufReader::with_capacity(1 << 20, file), self)
    }

    fn step(&mut self, step: Step) {
        self.disk.step(&step);
        self.steps.push(step);
    }

    fn find(&self, at: &str, path: &[u8]) -> Result<Found, String> {
        let path = std::str::from_utf8(path).map_err(|_| "a path is no text")?;
        let (mut node, relative) = if let Ok(relative) = Path::new(path).strip_prefix(&self.root) {
            (0, relative)
        } else {
            match at.parse().ok().and_then(|at: u64| self.descriptors.get(&at)) {
                Some(open) if !path.starts_with('/') => (open.node, Path::new(path)),
                _ => return Ok(Found::Elsewhere),
            }
        };
        let mut names: Vec<&str> = relative.iter().filter_map(|name| name.to_str()).collect();
        let Some(last) = names.pop() else { return Ok(if node == 0 { Found::Root } else { Found::Elsewhere }) };
        for name in names {
            node = self.named(node, name).ok_or_else(|| format!("{path}: no {name}"))?;
        }
        Ok(Found::Place(node, last.into()))
    }

    fn named(&self, directory: Node, name: &str) -> Option<Node> {
        match &self.disk.things[directory] {
            Thing::Directory(names) => names.now.get(name).copied(),
            Thing::File(_) => None,
        }
    }

    fn make(&mut self, place: Node, name: Name, directory: bool) -> Node {
        let node = self.disk.things.len();
        self.names.push(format!("{}/{name}", self.names[place]).trim_start_matches('/').to_owned());
        self.step(Step::Make { directory });
        self.step(Step::Name(place, Naming::Add(name, node)));
        node
    }

    fn len(&self, node: Node) -> u64 {
        match &self.disk.things[node] {
            Thing::File(file) => file.now.len,
            Thing::Directory(_) => 0,
        }
    }

    fn opened(&mut self, call: &Call, at: &str, path: usize, flags: &str, descriptor: u64) -> Result<(), String> {
        let has = |flag| flags.split('|').any(|has| has == flag);
        let node = match self.find(at, call.bytes(path)?)? {
            Found::Elsewhere => {
                self.descriptors.remove(&descriptor);
                return Ok(());
            }
            Found::Root => 0,
            Found::Place(_, _) if has("O_TMPFILE") => return Err("a file without a name".to_owned()),
            Found::Place(place, name) => match self.named(place, &name) {
                Some(node) => node,
                None => self.make(place, name, false),
            },
        };
        if has("O_TRUNC") && self.len(node) > 0 {
            self.step(Step::Change(node, Change::Resize(0)));
        }
        self.descriptors.insert(descriptor, Rc::new(Open { node, at: Cell::new(0), append: has("O_APPEND") }));
        Ok(())
    }

    fn open(&self, call: &Call, at: usize) -> Result<Option<Rc<Open>>, String> {
        Ok(self.descriptors.get(&call.number(at)?).map(Rc::clone))
    }

    fn wrote(&mut self, call: &Call, written: u64) -> Result<(), String> {
        let Some(open) = self.open(call, 0)? else { return Ok(()) };
        let len = usize::try_from(written).map_err(|_| "a write that is too long")?;
        let data = call.bytes(1)?.get(..len).ok_or("a write without all its bytes")?;
        // Linux appends to a file opened so even if the call names a place.
        let at = match (open.append, call.name == "pwrite64") {
            (true, _) => self.len(open.node),
            (false, true) => call.number(3)?,
            (false, false) => open.at.get(),
        };
        if call.name == "write" {
            open.at.set(at + written);
        }
        self.step(Step::Change(open.node, Change::Write(at, Bytes::copy_from_slice(data))));
        Ok(())
    }

    fn renamed(&mut self, call: &Call, from: (&str, usize), to: (&str, usize)) -> Result<(), String> {
        let (from, to) = (self.find(from.0, call.bytes(from.1)?)?, self.find(to.0, call.bytes(to.1)?)?);
        match (from, to) {
            (Found::Elsewhere, Found::Elsewhere) => Ok(()),
            (Found::Place(place, from), Found::Place(other, to)) if place == other => {
                let node = self.named(place, &from).ok_or_else(|| format!("{from} is renamed, and was never made"))?;
                self.step(Step::Name(place, Naming::Rename(from, to, node)));
                Ok(())
            }
            _ => Err("a rename from one directory to another".to_owned()),
        }
    }

    fn removed(&mut self, at: &str, path: &[u8]) -> Result<(), String> {
        if let Found::Place(place, name) = self.find(at, path)? {
            self.named(place, &name).ok_or_else(|| format!("{name} is removed, and was never made"))?;
            self.step(Step::Name(place, Naming::Remove(name)));
        }
        Ok(())
    }

    fn made_directory(&mut self, at: &str, path: &[u8]) -> Result<(), String> {
        if let Found::Place(place, name) = self.find(at, path)? {
            self.make(place, name, true);
        }
        Ok(())
    }

    /// A call that would change files in a way that is not followed here.
    fn refuse(&self, call: &Call, descriptor: usize) -> Result<(), String> {
        // Of a mapping without a file the descriptor is -1.
        let ours = call.number(descriptor).is_ok_and(|descriptor| self.descriptors.contains_key(&descriptor));
        if ours { Err(format!("{} is not understood", call.name)) } else { Ok(()) }
    }

    fn refuse_path(&self, at: &str, path: &[u8]) -> Result<(), String> {
        match self.find(at, path)? {
            Found::Elsewhere => Ok(()),
            _ => Err("a link".to_owned()),
        }
    }

    /// Whether the directory is what all of it must have made of it.
    pub(super) fn compare(&self) -> Result<(), String> {
        self.compare_directory(0, &self.root)
    }

    fn compare_directory(&self, node: Node, path: &Path) -> Result<(), String> {
        let differs = |what: &str| Err(format!("the replay is wrong: {} {what}", path.display()));
        match &self.disk.things[node] {
            Thing::Directory(names) => {
                let entries = fs::read_dir(path).map_err(|e| format!("the replay is wrong: {}: {e}", path.display()))?;
                let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
                found.sort();
                if !found.iter().map(String::as_str).eq(names.now.keys().map(|name| &**name)) {
                    return differs(&format!("has {found:?} and should have {:?}", names.now.keys()));
                }
                names.now.iter().try_for_each(|(name, node)| self.compare_directory(*node, &path.join(&**name)))
            }
            Thing::File(file) => match read(path) {
                Ok(content) if content == *file.now => Ok(()),
                Ok(content) => differs(&format!("differs: {} bytes, and should have {}", content.len, file.now.len)),
                Err(e) => differs(&e.to_string()),
            },
        }
    }
}

/// A file as it is.
fn read(path: &Path) -> std::io::Result<Content> {
    let (mut file, mut content, mut chunk) = (File::open(path)?, Content::default(), vec![0; PAGE_LEN * 64]);
    loop {
        let len = file.read(&mut chunk)?;
        if len == 0 {
            return Ok(content);
        }
        content.write(content.len, &chunk[..len]);
    }
}

impl Calls for Replay {
    fn begins(&mut self, call: &Call) -> Result<(), String> {
        match call.name.as_str() {
            // From here on the kernel may give the number to somebody else.
            "close" => {
                self.descriptors.remove(&call.number(0)?);
            }
            "fsync" | "fdatasync" => {
                if let Some(open) = self.open(call, 0)? {
                    self.syncs.insert(call.thread, self.disk.count(open.node));
                }
            }
            // Whoever reads it may know it from here on.
            "write" if call.word(0) == "1" => {
                let said = String::from_utf8_lossy(call.bytes(1)?).into_owned();
                let number = |name| said.strip_prefix(name).and_then(|rest| rest.trim_end().parse().ok());
                if let Some(batches) = number("promised ") {
                    self.step(Step::Promise(batches));
                } else if let Some(value) = number("extra ") {
                    self.step(Step::PromiseExtra(value));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn ends(&mut self, call: Call, result: u64) -> Result<(), String> {
        let here = "AT_FDCWD";
        match call.name.as_str() {
            "openat" => self.opened(&call, call.word(0), 1, call.word(2), result),
            "open" => self.opened(&call, here, 0, call.word(1), result),
            "creat" => self.opened(&call, here, 0, "O_TRUNC", result),
            "write" | "pwrite64" => self.wrote(&call, result),
            "ftruncate" => {
                if let Some(open) = self.open(&call, 0)? {
                    self.step(Step::Change(open.node, Change::Resize(call.number(1)?)));
                }
                Ok(())
            }
            // Of a new file, whose bytes are zeros.
            "fallocate" if call.word(1) == "0" && call.word(2) == "0" => {
                if let Some(open) = self.open(&call, 0)? {
                    self.step(Step::Change(open.node, Change::Resize(call.number(3)?)));
                }
                Ok(())
            }
            "lseek" => {
                if let Some(open) = self.open(&call, 0)? {
                    open.at.set(result);
                }
                Ok(())
            }
            "fsync" | "fdatasync" => {
                if let (Some(open), Some(count)) = (self.open(&call, 0)?, self.syncs.remove(&call.thread)) {
                    self.step(Step::Sync(open.node, count));
                }
                Ok(())
            }
            "dup" | "dup2" | "dup3" | "fcntl" => {
                if call.name != "fcntl" || call.word(1).starts_with("F_DUPFD") {
                    let copied = self.open(&call, 0)?;
                    self.descriptors.remove(&result);
                    self.descriptors.extend(copied.map(|open| (result, open)));
                }
                Ok(())
            }
            "rename" => self.renamed(&call, (here, 0), (here, 1)),
            "renameat" | "renameat2" if matches!(call.word(4), "" | "0" | "RENAME_NOREPLACE") => {
                self.renamed(&call, (call.word(0), 1), (call.word(2), 3))
            }
            "unlink" | "rmdir" => self.removed(here, call.bytes(0)?),
            "unlinkat" => self.removed(call.word(0), call.bytes(1)?),
            "mkdir" => self.made_directory(here, call.bytes(0)?),
            "mkdirat" => self.made_directory(call.word(0), call.bytes(1)?),
            "close" => Ok(()),
            "mmap" if call.word(3).contains("MAP_SHARED") && call.word(2).contains("PROT_WRITE") => self.refuse(&call, 4),
            "mmap" => Ok(()),
            "truncate" => self.refuse_path(here, call.bytes(0)?),
            "link" | "symlink" => self.refuse_path(here, call.bytes(1)?),
            "linkat" => self.refuse_path(call.word(2), call.bytes(3)?),
            "symlinkat" => self.refuse_path(call.word(1), call.bytes(2)?),
            "copy_file_range" | "splice" => self.refuse(&call, 2),
            "writev" | "pwritev" | "pwritev2" | "fallocate" | "sendfile" | "syncfs" => self.refuse(&call, 0),
            other => Err(format!("{other} is not understood")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(log: &str) -> Result<Replay, String> {
        let mut replay = Replay::new(Path::new("/r"));
        strace::read(log.as_bytes(), &mut replay).map(|()| replay)
    }

    fn text(replay: &Replay, name: &str) -> String {
        let node = replay.named(0, name).unwrap();
        let Thing::File(file) = &replay.disk.things[node] else { panic!("{name} is a directory") };
        let parts = file.now.parts().map(|(_, bytes)| String::from_utf8_lossy(bytes).replace('\0', "."));
        parts.collect()
    }

    #[test]
    fn descriptors_have_a_place_that_copies_share_and_appends_go_to_the_end() {
        let log = r#"1 openat(AT_FDCWD, "/r/a", O_RDWR|O_CREAT, 0666) = 3
1 fcntl(3, F_DUPFD_CLOEXEC, 3) = 4
1 write(3, "ab", 2) = 2
1 write(4, "cdef", 4) = 2
1 pwrite64(3, "X", 1, 0) = 1
1 lseek(3, 6, SEEK_SET) = 6
1 write(4, "g", 1) = 1
1 openat(AT_FDCWD, "/r/a", O_WRONLY|O_APPEND) = 5
1 write(3, "h", 1) = 1
1 write(5, "i", 1) = 1
1 close(5) = 0
1 write(5, "elsewhere", 9) = 9
"#;
        assert_eq!(text(&replayed(log).unwrap(), "a"), "Xbcd..ghi");
    }

    #[test]
    fn names_follow_their_files() {
        let log = r#"1 mkdir("/r/d", 0777) = 0
1 openat(AT_FDCWD, "/r/d", O_RDONLY|O_DIRECTORY) = 3
1 openat(3, "x", O_RDWR|O_CREAT, 0666) = 4
1 renameat(3, "x", 3, "y") = 0
1 write(4, "z", 1) = 1
1 unlinkat(3, "y", 0) = 0
1 rmdir("/r/d") = 0
1 openat(AT_FDCWD, "/elsewhere", O_RDWR|O_CREAT, 0666) = 5
1 unlink("/r/none") = -1 ENOENT (No such file or directory)
"#;
        let replay = replayed(log).unwrap();
        assert_eq!(replay.names, ["", "d", "d/x"]);
        assert!(replay.named(0, "d").is_none());
    }

    #[test]
    fn what_would_change_files_unseen_is_refused() {
        let open = "1 openat(AT_FDCWD, \"/r/a\", O_RDWR|O_CREAT, 0666) = 3\n";
        for call in [
            "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3, 0) = 0x7f0000000000",
            "copy_file_range(9, NULL, 3, NULL, 4, 0) = 4",
            "rename(\"/r/a\", \"/elsewhere\") = 0",
            "io_uring_setup(8, {flags=0}) = 4",
        ] {
            assert!(replayed(&format!("{open}1 {call}\n")).is_err(), "{call}");
        }
        assert!(replayed(&format!("{open}1 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3, 0) = 0x7f0000000000\n")).is_ok());
    }
}
