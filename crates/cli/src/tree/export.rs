//! `cistern export`: a tree of the namespace into a local directory.
//!
//! Decides: what a server may make of this machine's files, which is no more than it must: nothing outside of the directory, no
//! set-uid, set-gid or sticky bits, and no link that leads out of the tree, unless the user asks for them.
//! Leaves to others: how the local tree is entered and files are replaced (`beneath`).

use super::beneath::{Directory, Meta, leaves};
use super::{Tally, shown};
use crate::backend::Backend;
use crate::commands::export::Export;
use crate::execute::EXIT_FAILED;
use crate::local::{EntryRow, Failure, Request, Response};
use crate::text::Text;
use cistern_client::FileType;
use cistern_text::Progress;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Permission bits that need no flag.
const ORDINARY: u16 = 0o777;

/// Copies a tree to a local directory.
pub(crate) fn export_tree(backend: &mut Backend, args: &Export, progress: &mut Progress) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut todo = vec![(Text::from(args.path.as_os_str()), PathBuf::new())];
    let mut top = None;
    while let Some((path, way)) = todo.pop() {
        let rows = match backend.list(&path, true) {
            Err(failure) if failure.exit == EXIT_FAILED && top.is_some() => {
                tally.left_out(&path.to_string(), &failure.message);
                continue;
            }
            other => other?,
        };
        let top = match &mut top {
            Some(top) => top,
            None => top.insert(open_top(&args.dir)?),
        };
        let dir = match top.descend(&way) {
            Ok(dir) => dir,
            Err(e) => {
                tally.left_out(&path.to_string(), &failed(&args.dir.join(&way), &e).message);
                continue;
            }
        };
        tally.directories += 1;
        for row in rows {
            let (from, way) = (path.join(&row.name.0), way.join(row.name.as_os()));
            match export_one(backend, args, (&dir, &way), &from, &row, &mut tally) {
                Err(failure) if failure.exit != EXIT_FAILED => return Err(failure),
                Err(failure) => tally.left_out(&from.to_string(), &failure.message),
                Ok(()) if row.kind == FileType::Directory.name() => todo.push((from, way)),
                Ok(()) => {}
            }
            tally.progress(progress);
        }
    }
    Ok(tally)
}

fn open_top(path: &Path) -> Result<Directory, Failure> {
    fs::create_dir_all(path).and_then(|()| Directory::open(path)).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", shown(path)))
}

/// Copies one thing; `to` is the open directory that gets it, and its way from the top.
fn export_one(
    backend: &mut Backend,
    args: &Export,
    (dir, way): (&Directory, &Path),
    from: &Text,
    row: &EntryRow,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let io_failure = |e: io::Error| failed(&args.dir.join(way), &e);
    let name = row.name.as_os();
    if row.kind == FileType::Directory.name() {
        let mode = row.attr.as_ref().map_or(0o700, |attr| attr.mode);
        return dir.make(name, mode).map_err(io_failure);
    }
    let link = row.kind == FileType::Symlink.name();
    let request = if link { Request::ReadLink { path: from.clone() } } else { Request::Read { path: from.clone() } };
    let (attr, data) = match backend.call(request)? {
        Response::Data { attr, data } => (attr, data),
        Response::Link(target) => {
            let depth = way.components().count() - 1;
            if !args.unsafe_links && leaves(depth, target.as_os()) {
                let why = format!("a symbolic link to {target}, which may lead out of the tree; --unsafe-links makes it");
                return Err(Failure::failed(why));
            }
            dir.link(name, target.as_os()).map_err(io_failure)?;
            tally.symlinks += 1;
            return Ok(());
        }
        other => return Err(other.unexpected()),
    };
    let mode = if args.preserve_special { attr.mode } else { attr.mode & ORDINARY };
    dir.put(name, &data.0, Meta { mode, mtime_ns: attr.mtime_ns }).map_err(io_failure)?;
    tally.files += 1;
    tally.bytes += data.0.len() as u64;
    Ok(())
}
