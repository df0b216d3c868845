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

/// Copies the directory `dir` to `path`.
pub(crate) fn import_tree(backend: &mut Backend, dir: &Path, path: &Text, progress: &mut Progress) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    mkdir_parents(backend, path, 0o755)?;
    tally.directories += 1;
    // A list of directories still to do, not recursion: trees can be deeper than a stack.
    let mut todo = vec![(dir.to_owned(), path.clone())];
    while let Some((dir, path)) = todo.pop() {
        let mut entries = match fs::read_dir(&dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(e) => {
                tally.left_out(&dir.display().to_string(), &e.to_string());
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let to = path.join(entry.file_name().as_bytes());
            let from = entry.path();
            match import_one(backend, &entry, &to, &mut tally) {
                Ok(true) => todo.push((from, to)),
                Ok(false) => {}
                Err(failure) if failure.exit != crate::execute::EXIT_FAILED => return Err(failure),
                Err(failure) => tally.left_out(&from.display().to_string(), &failure.message),
            }
            tally.progress(progress);
        }
    }
    Ok(tally)
}

/// Copies one entry; says whether it is a directory whose entries are still to be copied.
fn import_one(backend: &mut Backend, entry: &fs::DirEntry, to: &Text, tally: &mut Tally) -> Result<bool, Failure> {
    let io_failure = |e: io::Error| Failure::failed(e.to_string());
    let kind = entry.file_type().map_err(io_failure)?;
    if kind.is_symlink() {
        let target = fs::read_link(entry.path()).map_err(io_failure)?;
        attr(backend, Request::Symlink { target: target.as_os_str().into(), path: to.clone() })?;
        tally.symlinks += 1;
        return Ok(false);
    }
    let meta = entry.metadata().map_err(io_failure)?;
    let mode = u16::try_from(meta.permissions().mode() & 0o7777).unwrap_or(0o755);
    if kind.is_dir() {
        match attr(backend, Request::Mkdir { path: to.clone(), mode }) {
            Err(failure) if failure.code != "EEXIST" => return Err(failure),
            _ => tally.directories += 1,
        }
        return Ok(true);
    }
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
    tally.files += 1;
    tally.bytes += bytes;
    Ok(false)
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
