//! `cistern import`: a local tree into the namespace.
//!
//! Decides: that directories are made one after the other, so that each is there before what is in it, and all else by several
//! workers, so that many changes are made durable together; and that a second import of the same tree changes nothing.
//! Leaves to others: how the local tree is entered (`beneath`).

use super::beneath::{Directory, Entry};
use super::{Tally, shown};
use crate::backend::Backend;
use crate::execute::EXIT_FAILED;
use crate::local::{Failure, Item, Request, Response};
use crate::text::{Blob, Text};
use cistern_client::FileType;
use cistern_text::Progress;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Copies the directory `dir` to `path`.
pub(crate) fn import_tree(backend: &mut Backend, dir: &Path, path: &Text, progress: &mut Progress) -> Result<Tally, Failure> {
    let top = Directory::open(dir).map_err(|e| Failure::failed(format!("{}: {e}", shown(dir))))?;
    backend.mkdir_parents(path, 0o755)?;
    let common = Shared::new(dir);
    common.add(|tally| tally.directories += 1);
    let (send, jobs) = sync_channel::<Job>(WORKERS * 2);
    let jobs = Mutex::new(jobs);
    thread::scope(|scope| {
        for n in 0..WORKERS {
            let own = match backend.again() {
                Ok(own) => own,
                Err(failure) if n == 0 => return Err(failure),
                // A host's agent that is busy: fewer do it, too.
                Err(_) => break,
            };
            let (jobs, common) = (&jobs, &common);
            scope.spawn(move || work(own, jobs, common));
        }
        let walked = walk(backend, &top, path, &send, &common, progress);
        drop(send);
        walked
    })?;
    common.result()
}

/// Changes in flight at once: half of the window that a server grants by default.
const WORKERS: usize = 32;

/// Something to be copied, with the open directory in which it is.
struct Job {
    dir: Arc<Directory>,
    /// Its name.
    name: OsString,
    /// Its way from the top, for messages.
    from: PathBuf,
    to: Text,
}

/// What the workers have done so far.
struct Shared<'a> {
    top: &'a Path,
    tally: Mutex<Tally>,
    /// Why everything stops.
    stop: Mutex<Option<Failure>>,
}

impl<'a> Shared<'a> {
    fn new(top: &'a Path) -> Self {
        Self { top, tally: Mutex::default(), stop: Mutex::default() }
    }

    fn add(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, from: &Path, failure: Failure) {
        if failure.exit == EXIT_FAILED {
            self.add(|tally| tally.left_out(&shown(&self.top.join(from)), &failure.message));
        } else {
            self.stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn result(self) -> Result<Tally, Failure> {
        let stop = self.stop.into_inner().unwrap_or_else(PoisonError::into_inner);
        stop.map_or_else(|| Ok(self.tally.into_inner().unwrap_or_else(PoisonError::into_inner)), Err)
    }
}

fn walk(
    backend: &mut Backend,
    top: &Directory,
    path: &Text,
    jobs: &SyncSender<Job>,
    common: &Shared<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // A list of directories still to do, not recursion: trees can be deeper than a stack. Closed ones, too: they can be many.
    let mut todo = vec![(PathBuf::new(), path.clone())];
    while let Some((way, path)) = todo.pop() {
        let opened = top.descend(&way).and_then(|dir| Ok((dir.names()?, dir)));
        let (names, dir) = match opened {
            Ok((names, dir)) => (names, Arc::new(dir)),
            Err(e) => {
                common.failed(&way, Failure::failed(e.to_string()));
                continue;
            }
        };
        for name in names {
            if common.stopped() {
                return Ok(());
            }
            let (from, to) = (way.join(&name), path.join(name.as_bytes()));
            // Only to know what is a directory: what it is when it is copied is looked at then.
            match dir.mode_of_directory(&name) {
                Some(mode) => match import_directory(backend, mode, &to) {
                    Ok(()) => {
                        common.add(|tally| tally.directories += 1);
                        todo.push((from, to));
                    }
                    Err(failure) => common.failed(&from, failure),
                },
                None => {
                    if jobs.send(Job { dir: Arc::clone(&dir), name, from, to }).is_err() {
                        return Err(Failure::new("INTERNAL", crate::execute::EXIT_SOFTWARE, "the workers have ended"));
                    }
                }
            }
            common.add(|tally| tally.progress(progress));
        }
    }
    Ok(())
}

/// Copies one thing after the other until there is no more.
fn work(mut backend: Backend, jobs: &Mutex<Receiver<Job>>, common: &Shared<'_>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // What is left is taken and dropped, so that whoever hands it out is not kept.
        if common.stopped() {
            continue;
        }
        if let Err(failure) = import_one(&mut backend, &job, common) {
            common.failed(&job.from, failure);
        }
    }
}

fn import_directory(backend: &mut Backend, mode: u16, to: &Text) -> Result<(), Failure> {
    match backend.mkdir(to, mode) {
        Err(failure) if failure.code != "EEXIST" => Err(failure),
        _ => Ok(()),
    }
}

/// Copies one file or symbolic link.
fn import_one(backend: &mut Backend, job: &Job, common: &Shared<'_>) -> Result<(), Failure> {
    let to = &job.to;
    match job.dir.read(&job.name)? {
        Entry::Directory => Err(Failure::failed("has become a directory; import it again")),
        Entry::Symlink(target) => {
            import_link(backend, &target.into(), to)?;
            common.add(|tally| tally.symlinks += 1);
            Ok(())
        }
        Entry::File(meta, bytes) => {
            let (mode, mtime_ns, count) = (meta.mode, meta.mtime_ns, bytes.len() as u64);
            if !is_there(backend, to, (mode, mtime_ns), &bytes) {
                backend.change(Request::Put { path: to.clone(), data: Blob(bytes), mode, if_version: None })?;
                let times = Request::SetAttr { path: to.clone(), mode: Some(mode), mtime_ns: Some(mtime_ns), atime_ns: None, size: None };
                backend.change(times)?;
            }
            common.add(|tally| {
                tally.files += 1;
                tally.bytes += count;
            });
            Ok(())
        }
    }
}

/// Whether a file is as it is to be: then it is left alone. What cannot be seen is as good as different.
fn is_there(backend: &mut Backend, path: &Text, (mode, mtime_ns): (u16, i64), bytes: &[u8]) -> bool {
    let Ok(there) = backend.stat(path, false) else { return false };
    let alike = there.is(FileType::File) && (there.size, there.mode, there.mtime_ns) == (bytes.len() as u64, mode, mtime_ns);
    alike && matches!(backend.call(Request::Read { path: path.clone() }), Ok(Response::Data { data, .. }) if data.0 == bytes)
}

/// Makes a link, or finds it as it is to be. Another link or a file of that name is replaced, in one step.
fn import_link(backend: &mut Backend, target: &Text, to: &Text) -> Result<(), Failure> {
    let made = match backend.change(Request::Symlink { target: target.clone(), path: to.clone() }) {
        Err(failure) if failure.code == "EEXIST" => failure,
        other => return other.map(drop),
    };
    let there = backend.stat(to, false)?;
    if there.is(FileType::Directory) {
        return Err(made);
    }
    if there.is(FileType::Symlink) {
        let there = backend.call(Request::ReadLink { path: to.clone() })?.link()?;
        if there == *target {
            return Ok(());
        }
    }
    let items = vec![Item::Unlink { path: to.clone(), force: false }, Item::Symlink { target: target.clone(), path: to.clone() }];
    backend.call(Request::Batch { items, if_versions: Vec::new() }).map(drop)
}
