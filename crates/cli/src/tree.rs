//! Whole trees: import from and export to a local directory.
//!
//! Decides: what is copied (directories, regular files, symbolic links; with permission bits and modification times), what is
//! left out and told (other kinds, files too large), and that one failure does not stop the rest.
//! Leaves to others: single operations (`files`, `backend`).

use crate::args::{Export, Import};
use crate::backend::Backend;
use crate::files::{attr, listing, mkdir_parents, mtime_ns, unexpected};
use crate::local::{Failure, Request, Response};
use crate::show::{self, Progress};
use crate::text::{Blob, Text};
use cistern_client::ObjectKind;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What was copied.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) directories: u64,
    pub(crate) files: u64,
    pub(crate) symlinks: u64,
    pub(crate) bytes: u64,
    /// What was not copied, and why.
    pub(crate) left_out: Vec<String>,
}

impl Tally {
    fn left_out(&mut self, what: &str, why: &str) {
        self.left_out.push(format!("{what}: {why}"));
    }

    fn progress(&self, progress: &mut Progress) {
        progress.tell(&format!("{} directories, {} files, {} KiB", self.directories, self.files, self.bytes / 1_024));
    }

    fn report(&self, json: bool) -> Result<(), Failure> {
        if json {
            show::json(self)?;
        } else {
            for line in &self.left_out {
                show::error("cistern", &Failure::failed(format!("left out: {line}")));
            }
            show::line(format!(
                "{} directories, {} files, {} symbolic links, {} bytes",
                self.directories, self.files, self.symlinks, self.bytes
            ))?;
        }
        if self.left_out.is_empty() { Ok(()) } else { Err(Failure::failed("")) }
    }
}

pub(crate) fn import(args: &Import) -> Result<(), Failure> {
    let meta = fs::metadata(&args.dir).map_err(|e| Failure::failed(format!("{}: {e}", args.dir.display())))?;
    if !meta.is_dir() {
        return Err(Failure::failed(format!("{}: not a directory", args.dir.display())));
    }
    let mut backend = Backend::open(&args.common)?;
    let mut progress = Progress::new();
    let result = import_tree(&mut backend, &args.dir, &args.path.as_os_str().into(), &mut progress);
    progress.done();
    backend.close();
    result?.report(args.common.json)
}

/// Copies the directory `dir` to `path`: directories one after the other, so that each is there before what is in it; all else by
/// several workers, so that many changes are made durable together.
pub(crate) fn import_tree(backend: &mut Backend, dir: &Path, path: &Text, progress: &mut Progress) -> Result<Tally, Failure> {
    mkdir_parents(backend, path, 0o755)?;
    let common = Common::default();
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
        let walked = walk(backend, dir, path, &send, &common, progress);
        drop(send);
        walked
    })?;
    common.result()
}

/// Changes in flight at once: half of the window that a server grants by default.
const WORKERS: usize = 32;

/// Something to be copied that is not a directory.
struct Job {
    entry: fs::DirEntry,
    to: Text,
}

/// What the workers have done so far.
#[derive(Default)]
struct Common {
    tally: Mutex<Tally>,
    /// Why everything stops.
    stop: Mutex<Option<Failure>>,
}

impl Common {
    fn add(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn failed(&self, from: &Path, failure: Failure) {
        if failure.exit == crate::execute::EXIT_FAILED {
            self.add(|tally| tally.left_out(&from.display().to_string(), &failure.message));
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
    dir: &Path,
    path: &Text,
    jobs: &SyncSender<Job>,
    common: &Common,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // A list of directories still to do, not recursion: trees can be deeper than a stack.
    let mut todo = vec![(dir.to_owned(), path.clone())];
    while let Some((dir, path)) = todo.pop() {
        let mut entries = match fs::read_dir(&dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(e) => {
                common.add(|tally| tally.left_out(&dir.display().to_string(), &e.to_string()));
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if common.stopped() {
                return Ok(());
            }
            let to = path.join(entry.file_name().as_bytes());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let from = entry.path();
                match import_directory(backend, &entry, &to) {
                    Ok(()) => {
                        common.add(|tally| tally.directories += 1);
                        todo.push((from, to));
                    }
                    Err(failure) => common.failed(&from, failure),
                }
            } else if jobs.send(Job { entry, to }).is_err() {
                return Err(Failure::new("INTERNAL", crate::execute::EXIT_SOFTWARE, "the workers have ended"));
            }
            common.add(|tally| tally.progress(progress));
        }
    }
    Ok(())
}

/// Copies one thing after the other until there is no more.
fn work(mut backend: Backend, jobs: &Mutex<Receiver<Job>>, common: &Common) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { entry, to }) = job else { return };
        // What is left is taken and dropped, so that whoever hands it out is not kept.
        if common.stopped() {
            continue;
        }
        if let Err(failure) = import_one(&mut backend, &entry, &to, common) {
            common.failed(&entry.path(), failure);
        }
    }
}

fn import_directory(backend: &mut Backend, entry: &fs::DirEntry, to: &Text) -> Result<(), Failure> {
    let meta = entry.metadata().map_err(|e| Failure::failed(e.to_string()))?;
    match attr(backend, Request::Mkdir { path: to.clone(), mode: mode_of(&meta) }) {
        Err(failure) if failure.code != "EEXIST" => Err(failure),
        _ => Ok(()),
    }
}

fn mode_of(meta: &fs::Metadata) -> u16 {
    u16::try_from(meta.permissions().mode() & 0o7777).unwrap_or(0o755)
}

/// Copies one file or symbolic link.
fn import_one(backend: &mut Backend, entry: &fs::DirEntry, to: &Text, common: &Common) -> Result<(), Failure> {
    let io_failure = |e: io::Error| Failure::failed(e.to_string());
    let kind = entry.file_type().map_err(io_failure)?;
    if kind.is_symlink() {
        let target = fs::read_link(entry.path()).map_err(io_failure)?;
        attr(backend, Request::Symlink { target: target.as_os_str().into(), path: to.clone() })?;
        common.add(|tally| tally.symlinks += 1);
        return Ok(());
    }
    let meta = entry.metadata().map_err(io_failure)?;
    let mode = mode_of(&meta);
    if !kind.is_file() {
        return Err(Failure::failed("neither file, directory nor symbolic link"));
    }
    if meta.len() > cistern_wire::limits::CONTENT_MAX as u64 {
        return Err(Failure::failed(format!("{} bytes are more than a file can hold", meta.len())));
    }
    let data = fs::read(entry.path()).map_err(io_failure)?;
    let bytes = data.len() as u64;
    attr(backend, Request::Put { path: to.clone(), data: Blob(data), mode, if_version: None })?;
    attr(backend, Request::SetAttr { path: to.clone(), mode: Some(mode), mtime_ns: mtime_ns(&meta), atime_ns: None, size: None })?;
    common.add(|tally| {
        tally.files += 1;
        tally.bytes += bytes;
    });
    Ok(())
}

pub(crate) fn export(args: &Export) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let mut progress = Progress::new();
    let result = export_tree(&mut backend, &args.path.as_os_str().into(), &args.dir, &mut progress);
    progress.done();
    backend.close();
    result?.report(args.common.json)
}

fn export_tree(backend: &mut Backend, path: &Text, dir: &Path, progress: &mut Progress) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut todo = vec![(path.clone(), dir.to_owned())];
    while let Some((path, dir)) = todo.pop() {
        let rows = listing(backend, &path, true)?;
        fs::create_dir_all(&dir).map_err(|e| Failure::failed(format!("{}: {e}", dir.display())))?;
        tally.directories += 1;
        for row in rows {
            let from = path.join(&row.name.0);
            let to = dir.join(row.name.as_os());
            if row.kind == ObjectKind::Directory.name() {
                todo.push((from, to));
                continue;
            }
            match export_one(backend, &from, &to, &row.kind, &mut tally) {
                Err(failure) if failure.exit != crate::execute::EXIT_FAILED => return Err(failure),
                Err(failure) => tally.left_out(&from.to_string(), &failure.message),
                Ok(()) => {}
            }
            tally.progress(progress);
        }
    }
    Ok(tally)
}

fn export_one(backend: &mut Backend, from: &Text, to: &Path, kind: &str, tally: &mut Tally) -> Result<(), Failure> {
    let io_failure = |e: io::Error| Failure::failed(format!("{}: {e}", to.display()));
    let link = kind == ObjectKind::Symlink.name();
    let request = if link { Request::ReadLink { path: from.clone() } } else { Request::Read { path: from.clone() } };
    let (attr, data) = match backend.call(request)? {
        Response::Data { attr, data } => (attr, data),
        other => return unexpected(&other),
    };
    if link {
        std::os::unix::fs::symlink(Text(data.0).as_os(), to).map_err(io_failure)?;
        tally.symlinks += 1;
        return Ok(());
    }
    let file = fs::File::create(to).map_err(io_failure)?;
    io::Write::write_all(&mut &file, &data.0).map_err(io_failure)?;
    let nanos = u64::try_from(attr.mtime_ns).unwrap_or(0);
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(nanos);
    file.set_modified(modified).map_err(io_failure)?;
    file.set_permissions(fs::Permissions::from_mode(u32::from(attr.mode))).map_err(io_failure)?;
    tally.files += 1;
    tally.bytes += data.0.len() as u64;
    Ok(())
}
