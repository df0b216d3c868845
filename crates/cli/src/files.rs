//! The commands that people know: ls, stat, cat, put, mkdir, rm, mv, ln, status.
//!
//! Decides: what each shows and how it treats several paths: one that fails is told, the others go on, the exit status says so.
//! Leaves to others: through whom they act (`backend`), trees (`tree`), locks (`locks`).

use crate::args::{Ln, Ls, Mkdir, Mv, Paths, Put, Rm, ServerStatus};
use crate::backend::Backend;
use crate::execute::EXIT_SOFTWARE;
use crate::holder;
use crate::local::{Attributes, EntryRow, Failure, Request, Response, Rule};
use crate::show;
use crate::text::{Blob, Text};
use cistern_client::FileType;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::Read;

/// The same command for several paths: failures are told at once, the worst exit status is the command's.
pub(crate) fn each(paths: &[OsString], mut act: impl FnMut(Text) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut worst: Option<Failure> = None;
    for path in paths {
        if let Err(failure) = act(path.as_os_str().into()) {
            if failure.message.is_empty() {
                return Err(failure);
            }
            show::error("cistern", &failure);
            let exit = worst.as_ref().map_or(0, |f| f.exit).max(failure.exit);
            worst = Some(Failure { exit, message: String::new(), ..failure });
        }
    }
    worst.map_or(Ok(()), Err)
}

/// What cannot happen unless this program and the agent are of different versions.
pub(crate) fn unexpected<T>(response: &Response) -> Result<T, Failure> {
    Err(Failure::new("INTERNAL", EXIT_SOFTWARE, format!("the agent answered something else than was asked: {response:?}")))
}

pub(crate) fn attr(backend: &mut Backend, request: Request) -> Result<Attributes, Failure> {
    match backend.call(request)? {
        Response::Attr(attr) => Ok(attr),
        other => unexpected(&other),
    }
}

pub(crate) fn listing(backend: &mut Backend, path: &Text, detail: bool) -> Result<Vec<EntryRow>, Failure> {
    match backend.call(Request::List { path: path.clone(), detail })? {
        Response::Listing(rows) => Ok(rows),
        other => unexpected(&other),
    }
}

pub(crate) fn ls(args: &Ls) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let several = args.paths.len() > 1;
    let result = each(&args.paths, |path| ls_one(&mut backend, args, &path, several));
    backend.close();
    result
}

fn ls_one(backend: &mut Backend, args: &Ls, path: &Text, several: bool) -> Result<(), Failure> {
    let attr = attr(backend, Request::Stat { path: path.clone(), follow: true })?;
    let rows = if attr.is(FileType::Directory) {
        listing(backend, path, args.long || args.common.json)?
    } else {
        vec![EntryRow { name: path.clone(), object: attr.object, kind: attr.kind.clone(), attr: Some(attr) }]
    };
    if args.common.json {
        return rows.iter().try_for_each(show::json);
    }
    if several {
        show::line(format!("{path}:"))?;
    }
    if !args.long {
        return rows.iter().try_for_each(|row| show::line(row.name.to_string()));
    }
    let cells = |row: &EntryRow| -> Vec<String> {
        let name = row.name.to_string();
        match &row.attr {
            Some(a) => vec![
                show::mode(a),
                a.nlink.to_string(),
                a.uid.to_string(),
                a.gid.to_string(),
                format!("{:>9}", a.size),
                show::time(a.mtime_ns),
                name,
            ],
            None => vec!["?".to_owned(), name],
        }
    };
    show::table(&rows.iter().map(cells).collect::<Vec<_>>())
}

pub(crate) fn stat(args: &Paths) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| {
        let a = attr(&mut backend, Request::Stat { path: path.clone(), follow: false })?;
        if args.common.json {
            return show::json(&json!({ "path": path, "attr": a }));
        }
        show::line(format!("  File: {path}"))?;
        show::line(format!("  Size: {:<12} {:<12} Links: {}", a.size, a.kind, a.nlink))?;
        show::line(format!("Object: #{:<11} Version: {}", a.object, a.version))?;
        show::line(format!("Access: ({:04o}/{})  Uid: {}  Gid: {}", a.mode, show::mode(&a), a.uid, a.gid))?;
        show::line(format!("Modify: {} UTC", show::time(a.mtime_ns)))?;
        show::line(format!("Change: {} UTC", show::time(a.ctime_ns)))?;
        match &a.made_by {
            Some(session) => show::line(format!("Ephemeral: goes with session {session}, or with the one that took it over")),
            None => Ok(()),
        }
    });
    backend.close();
    result
}

pub(crate) fn cat(args: &Paths) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| match backend.call(Request::Read { path: path.clone() })? {
        Response::Data { attr, data } if args.common.json => show::json(&json!({ "path": path, "attr": attr, "data": data })),
        Response::Data { data, .. } => show::bytes(&data.0),
        other => unexpected(&other),
    });
    backend.close();
    result
}

pub(crate) fn put(args: &Put) -> Result<(), Failure> {
    // Read before anything is asked of the server: a local mistake costs nobody anything.
    let data = read_local(&args.from)?;
    let mut backend = Backend::open(&args.common)?;
    let path = into(&args.path, &args.from)?;
    let result = attr(&mut backend, Request::Put { path: path.clone(), data: Blob(data), mode: args.mode, if_version: args.if_version })
        .and_then(|a| {
            if args.common.json {
                show::json(&json!({ "path": path, "attr": a }))
            } else {
                show::line(format!("{path}: version {}", a.version))
            }
        });
    backend.close();
    result
}

/// Where a file goes: a path that ends in `/` is the directory that gets it.
fn into(path: &OsStr, from: &OsStr) -> Result<Text, Failure> {
    let path = Text::from(path);
    if !path.0.ends_with(b"/") {
        return Ok(path);
    }
    let name = std::path::Path::new(from).file_name().filter(|_| from != "-");
    let name = name.ok_or_else(|| Failure::usage(format!("{path}: what comes from standard input needs a name of its own")))?;
    Ok(path.join(name.as_encoded_bytes()))
}

pub(crate) fn read_local(from: &OsStr) -> Result<Vec<u8>, Failure> {
    let most = cistern_wire::limits::CONTENT_MAX as u64;
    let shown = from.to_string_lossy();
    let mut data = Vec::new();
    let read = if from == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut data)
    } else {
        std::fs::File::open(from).and_then(|file| file.take(most + 1).read_to_end(&mut data))
    };
    read.map_err(|e| Failure::new("LOCAL", crate::execute::EXIT_FAILED, format!("local file {shown}: {e}")))?;
    if data.len() as u64 > most {
        return Err(Failure::new(
            "EFBIG",
            crate::execute::EXIT_FAILED,
            format!("local file {shown}: larger than {most} bytes, the most that a file can hold"),
        ));
    }
    Ok(data)
}

pub(crate) fn mkdir(args: &Mkdir) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| {
        let made = if args.parents { mkdir_parents(&mut backend, &path, args.mode)? } else { mkdir_one(&mut backend, &path, args.mode)? };
        if args.common.json { show::json(&json!({ "path": path, "attr": made })) } else { Ok(()) }
    });
    backend.close();
    result
}

fn mkdir_one(backend: &mut Backend, path: &Text, mode: u16) -> Result<Attributes, Failure> {
    attr(backend, Request::Mkdir { path: path.clone(), mode })
}

/// Makes a directory and those above it; an existing directory is no error.
pub(crate) fn mkdir_parents(backend: &mut Backend, path: &Text, mode: u16) -> Result<Attributes, Failure> {
    let mut at = Text(if path.0.starts_with(b"/") { b"/".to_vec() } else { Vec::new() });
    for name in path.0.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        at = if at.0.is_empty() { Text(name.to_vec()) } else { at.join(name) };
        match mkdir_one(backend, &at, mode) {
            Err(failure) if failure.code != "EEXIST" => return Err(failure),
            _ => {}
        }
    }
    let found = attr(backend, Request::Stat { path: path.clone(), follow: true })?;
    if found.is(FileType::Directory) {
        Ok(found)
    } else {
        Err(Failure::new("EEXIST", crate::execute::EXIT_FAILED, format!("{path}: file exists and is not a directory")))
    }
}

pub(crate) fn rm(args: &Rm) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| match rm_one(&mut backend, args, &path) {
        Err(failure) if args.force && failure.code == "ENOENT" => Ok(()),
        other => other,
    });
    backend.close();
    result
}

fn rm_one(backend: &mut Backend, args: &Rm, path: &Text) -> Result<(), Failure> {
    let found = attr(backend, Request::Stat { path: path.clone(), follow: false })?;
    if !found.is(FileType::Directory) {
        let removed = backend.call(Request::Unlink { path: path.clone(), force: args.override_locks }).and_then(done);
        return removed.map_err(|failure| holder::named(backend, failure, &[path], "; --override-locks removes it nevertheless"));
    }
    if args.recursive {
        // A name that vanishes meanwhile is what was wanted.
        for row in listing(backend, path, false)? {
            match rm_one(backend, args, &path.join(&row.name.0)) {
                Err(failure) if failure.code == "ENOENT" => {}
                other => other?,
            }
        }
    } else if !args.dir {
        let message = format!("{path}: is a directory (use -r to remove it and what is in it, -d if it is empty)");
        return Err(Failure::new("EISDIR", crate::execute::EXIT_FAILED, message));
    }
    let removed = backend.call(Request::Rmdir { path: path.clone() }).and_then(done);
    removed.map_err(|failure| holder::named(backend, failure, &[path], ""))
}

pub(crate) fn done(response: Response) -> Result<(), Failure> {
    match response {
        Response::Done => Ok(()),
        other => unexpected(&other),
    }
}

pub(crate) fn mv(args: &Mv) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let from = Text::from(args.from.as_os_str());
    let mut to = Text::from(args.to.as_os_str());
    let rule = match (args.no_clobber, args.exchange) {
        (true, _) => Rule::NoReplace,
        (_, true) => Rule::Exchange,
        _ => Rule::Replace,
    };
    let result = (|| {
        if rule != Rule::Exchange && into_directory(&mut backend, &to)? {
            let name = from.0.rsplit(|b| *b == b'/').find(|name| !name.is_empty()).unwrap_or_default();
            to = to.join(name);
        }
        let moved = backend.call(Request::Rename { from: from.clone(), to: to.clone(), rule, force: args.override_locks }).and_then(done);
        let moved = moved.map_err(|failure| if args.no_clobber { failure.precondition("EEXIST") } else { failure });
        moved.map_err(|failure| holder::named(&mut backend, failure, &[&from, &to], "; --override-locks moves it nevertheless"))
    })();
    backend.close();
    result
}

fn into_directory(backend: &mut Backend, to: &Text) -> Result<bool, Failure> {
    match attr(backend, Request::Stat { path: to.clone(), follow: true }) {
        Ok(found) => Ok(found.is(FileType::Directory)),
        Err(failure) if failure.code == "ENOENT" => Ok(false),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn ln(args: &Ln) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let (target, path) = (Text::from(args.target.as_os_str()), Text::from(args.path.as_os_str()));
    let request = if args.symbolic { Request::Symlink { target, path } } else { Request::Link { existing: target, path } };
    let path = Text::from(args.path.as_os_str());
    let result =
        attr(&mut backend, request).and_then(|a| if args.common.json { show::json(&json!({ "path": path, "attr": a })) } else { Ok(()) });
    backend.close();
    result
}

pub(crate) fn status(args: &ServerStatus) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = backend.call(Request::Server).and_then(|response| match response {
        Response::Server(report) if args.common.json => show::json(&report),
        Response::Server(r) => show::table(
            &[
                ("store", format!("{} epoch {}", r.store, r.epoch)),
                ("incarnation", r.incarnation.to_string()),
                ("up for", show::span(r.uptime_ms)),
                ("sessions", format!("{} in good standing, {} timing out", r.sessions, r.timing_out)),
                ("locks", format!("{} held, {} waiting", r.locks, r.waiters)),
                ("objects", r.objects.to_string()),
                ("requests", r.requests.to_string()),
                ("demands", r.demands.to_string()),
                ("failures", format!("{} deliveries failed, {} sessions stolen from", r.delivery_failures, r.steals)),
                ("dropped", format!("{} datagrams", r.drops)),
            ]
            .map(|(name, value)| vec![name.to_owned(), value]),
        ),
        other => unexpected(&other),
    });
    backend.close();
    result
}
