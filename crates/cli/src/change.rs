//! Small changes: touch, chmod, truncate, xattr.
//!
//! Decides: what each shows, and that several paths are treated as in `files`. Leaves to others: through whom they act (`backend`).

use crate::args::{Chmod, Paths, Truncate, Xattr, XattrAct, XattrName, XattrSet};
use crate::backend::Backend;
use crate::execute::EXIT_FAILED;
use crate::files::{attr, each, read_local, unexpected};
use crate::local::{AttrRule, Attributes, Failure, Request, Response};
use crate::show;
use crate::text::{Blob, Text};
use cistern_wire::limits::CONTENT_MAX;
use serde_json::json;
use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn touch(args: &Paths) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| {
        let made = attr(&mut backend, Request::Create { path: path.clone(), exclusive: false, mode: 0o644 });
        match made {
            // A directory has times, too.
            Err(failure) if failure.code != "EISDIR" => return Err(failure),
            _ => {}
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|span| i64::try_from(span.as_nanos()).ok());
        let set = Request::SetAttr { path: path.clone(), mode: None, mtime_ns: now, atime_ns: now, size: None };
        let changed = attr(&mut backend, set)?;
        told(args.common.json, &path, &changed)
    });
    backend.close();
    result
}

pub(crate) fn chmod(args: &Chmod) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| {
        let set = Request::SetAttr { path: path.clone(), mode: Some(args.mode), mtime_ns: None, atime_ns: None, size: None };
        let changed = attr(&mut backend, set)?;
        told(args.common.json, &path, &changed)
    });
    backend.close();
    result
}

pub(crate) fn truncate(args: &Truncate) -> Result<(), Failure> {
    if args.size > CONTENT_MAX as u64 {
        let path = args.paths.first().map_or_else(|| Text(Vec::new()), |path| Text::from(path.as_os_str()));
        let what = format!("{path}: --size is {}; the most that a file can hold is {CONTENT_MAX} bytes", args.size);
        return Err(Failure::new("EFBIG", EXIT_FAILED, what));
    }
    let mut backend = Backend::open(&args.common)?;
    let result = each(&args.paths, |path| {
        let set = Request::SetAttr { path: path.clone(), mode: None, mtime_ns: None, atime_ns: None, size: Some(args.size) };
        let changed = attr(&mut backend, set)?;
        told(args.common.json, &path, &changed)
    });
    backend.close();
    result
}

fn told(json: bool, path: &Text, attr: &Attributes) -> Result<(), Failure> {
    if json { show::json(&json!({ "path": path, "attr": attr })) } else { Ok(()) }
}

pub(crate) fn xattr(args: &Xattr) -> Result<(), Failure> {
    match &args.act {
        XattrAct::Get(args) => get(args),
        XattrAct::Set(args) => set(args),
        XattrAct::List(args) => list(args),
        XattrAct::Rm(args) => rm(args),
    }
}

fn get(args: &XattrName) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let (path, name) = (Text::from(args.path.as_os_str()), Text::from(args.name.as_os_str()));
    let result = backend.call(Request::GetXattr { path: path.clone(), name: name.clone() }).and_then(|response| match response {
        Response::Xattr { object, version, value } if args.common.json => {
            show::json(&json!({ "path": path, "object": object, "version": version, "name": name, "value": value }))
        }
        Response::Xattr { mut value, .. } => {
            // Only a person needs the end of the line.
            if std::io::stdout().is_terminal() && !value.0.ends_with(b"\n") {
                value.0.push(b'\n');
            }
            show::bytes(&value.0)
        }
        other => unexpected(&other),
    });
    backend.close();
    result
}

fn set(args: &XattrSet) -> Result<(), Failure> {
    let value = match (&args.from, &args.value) {
        (Some(file), _) => read_local(file)?,
        (None, Some(value)) => Text::from(value.as_os_str()).0,
        (None, None) => return Err(Failure::usage("a value is needed, or --from FILE")),
    };
    let rule = match (args.create, args.replace) {
        (true, _) => AttrRule::Create,
        (_, true) => AttrRule::Replace,
        _ => AttrRule::Any,
    };
    let mut backend = Backend::open(&args.common)?;
    let (path, name) = (Text::from(args.path.as_os_str()), Text::from(args.name.as_os_str()));
    let result = attr(&mut backend, Request::SetXattr { path: path.clone(), name, value: Blob(value), rule })
        .map_err(|failure| match rule {
            AttrRule::Any => failure,
            AttrRule::Create => failure.precondition("EEXIST"),
            AttrRule::Replace => failure.precondition("ENODATA"),
        })
        .and_then(|changed| told(args.common.json, &path, &changed));
    backend.close();
    result
}

fn list(args: &Paths) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let several = args.paths.len() > 1;
    let result = each(&args.paths, |path| match backend.call(Request::ListXattr { path: path.clone() })? {
        Response::Xattrs { object, version, names } if args.common.json => {
            show::json(&json!({ "path": path, "object": object, "version": version, "names": names }))
        }
        Response::Xattrs { names, .. } => {
            if several {
                show::line(format!("{path}:"))?;
            }
            names.iter().try_for_each(|name| show::line(name.to_string()))
        }
        other => unexpected(&other),
    });
    backend.close();
    result
}

fn rm(args: &XattrName) -> Result<(), Failure> {
    let mut backend = Backend::open(&args.common)?;
    let (path, name) = (Text::from(args.path.as_os_str()), Text::from(args.name.as_os_str()));
    let result =
        attr(&mut backend, Request::RemoveXattr { path: path.clone(), name }).and_then(|changed| told(args.common.json, &path, &changed));
    backend.close();
    result
}
