//! Changes of files, as local requests ask for them.
//!
//! Decides: which call of the client library each change is, and that all of them take the same guard.
//! Leaves to others: requests that change nothing, and the order of a request (`execute`).

use super::{EXIT_FAILED, EXIT_PRECONDITION, EXIT_SOFTWARE, User, Waits, under};
use crate::local::{AttrRule, Failure, Item, NewLease, Request, Response, Rule, SecretText, Version, time};
use crate::text::Text;
use cistern_client::{Client, Error, ErrorKind, Guard, Mutation, Op, Version as FileVersion, kinds};
use cistern_wire::Status;
use std::time::Duration;

/// A change that is made.
pub(super) struct Changing<'a, W> {
    pub(super) client: &'a Client,
    pub(super) user: User,
    pub(super) waits: &'a mut W,
    pub(super) guard: Option<&'a Guard>,
}

impl<W: Waits> Changing<'_, W> {
    /// Makes it.
    pub(super) fn change(mut self, request: Request) -> Result<Response, Failure> {
        let (client, user) = (self.client, self.user);
        let attr = match request {
            Request::Put { path, data, mode, if_version } => {
                let write = user.makes(client.write(path.as_os(), data.0), mode);
                match if_version {
                    None => self.make(write),
                    Some(0) => return self.put_new(&path, write),
                    Some(version) => {
                        let expected = self.expectation(&Version { path, version })?;
                        self.make(write.if_version(expected))
                    }
                }
            }
            Request::SetXattr { path, name, value, rule } => {
                self.make(with_rule(client.set_xattr(path.as_os(), name.as_os(), value.0), rule))
            }
            Request::RemoveXattr { path, name } => self.make(client.remove_xattr(path.as_os(), name.as_os())),
            Request::Create { path, exclusive: false, mode } => self.make(user.makes(client.create(path.as_os()), mode)),
            Request::Create { path, exclusive: true, mode } => {
                self.make(user.makes(client.create_new(path.as_os()), mode))?;
                self.waits.wait(client.metadata(path.as_os()))
            }
            Request::Mkdir { path, mode, realm: false } => self.make(user.makes(client.create_dir(path.as_os()), mode)),
            Request::Mkdir { path, mode, realm: true } => self.make(user.makes(client.create_realm(path.as_os()), mode)),
            Request::SetQuota { path, objects, bytes } => {
                let mut set = client.set_quota(path.as_os());
                if let Some(most) = objects {
                    set = set.objects(most);
                }
                if let Some(most) = bytes {
                    set = set.bytes(most);
                }
                self.make(set)
            }
            Request::Symlink { target, path } => self.make(user.makes(client.symlink(target.as_os(), path.as_os()), 0o777)),
            Request::Link { existing, path } => self.make(client.hard_link(existing.as_os(), path.as_os())),
            Request::SetAttr { path, mode, mtime_ns, atime_ns, size } => {
                let mut set = set_metadata(client, &path, mode, size);
                if let Some(ns) = mtime_ns {
                    set = set.modified(time(ns));
                }
                if let Some(ns) = atime_ns {
                    set = set.accessed(time(ns));
                }
                self.make(set)
            }
            Request::Unlink { path, force } => return Ok(self.make(unlink(client, &path, force)).map(|()| Response::Done {})?),
            Request::Rmdir { path } => return Ok(self.make(client.remove_dir(path.as_os())).map(|()| Response::Done {})?),
            Request::Rename { from, to, rule, force } => {
                return Ok(self.make(rename(client, &from, &to, rule, force)).map(|()| Response::Done {})?);
            }
            Request::LeaseCreate { path, ttl_ms, secret, data, mode } => {
                let secret = secret.map_or_else(cistern_client::lease_secret, |secret| secret.0);
                let lease = client.create_lease(path.as_os(), Duration::from_millis(ttl_ms.into()), &secret);
                let lease = if let Some(data) = data { lease.contents(data.0) } else { lease };
                let made = self.make(user.makes(lease, mode))?;
                return Ok(Response::NewLease(NewLease { object: made.file.0, secret: SecretText(secret) }));
            }
            Request::LeaseAttach { path, lease, secret } => self.make(client.attach(path.as_os(), lease.as_os(), &secret.0)),
            Request::LeaseRevoke { lease } => return self.revoke(&lease),
            Request::Batch { items, if_versions } => return self.batch(items, &if_versions),
            other => return Err(Failure::new("INTERNAL", EXIT_SOFTWARE, format!("{other:?} is not a change"))),
        };
        Ok(Response::Attr(attr?.into()))
    }

    fn make<K: Mutation>(&mut self, op: Op<K>) -> Result<K::Output, Error> {
        self.waits.wait(under(op, self.guard))
    }

    /// The file of a path, which must have that version now and when the change is made.
    fn expectation(&mut self, wanted: &Version) -> Result<FileVersion, Failure> {
        let Version { path, version } = wanted;
        let now = self.waits.wait(self.client.metadata(path.as_os()))?.version();
        if now.number == *version {
            return Ok(now);
        }
        let message = format!("{path}: it has version {now}, not {version}; nothing was changed");
        let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
        Err(Failure { path: Some(path.clone()), ..failure })
    }

    /// Removes the file of a named lease, and nothing else that may have its name by now.
    fn revoke(&mut self, lease: &Text) -> Result<Response, Failure> {
        let now = self.waits.wait(self.client.metadata(lease.as_os()))?;
        if !now.is_lease() {
            let failure = Failure::new(Status::EINVAL.name(), EXIT_FAILED, format!("{lease}: it is no named lease; nothing was changed"));
            return Err(Failure { path: Some(lease.clone()), ..failure });
        }
        let remove = self.client.remove_file(lease.as_os()).even_if_locked().if_unchanged(&now);
        Ok(self.make(remove).map(|()| Response::Done {})?)
    }

    /// A file that must not exist yet, made with its contents as one.
    fn put_new(&mut self, path: &Text, write: Op<kinds::Write>) -> Result<Response, Failure> {
        match self.make(write.if_absent()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let message = format!("{path}: it exists; nothing was changed");
                let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
                Err(Failure { path: Some(path.clone()), ..failure })
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Response::Attr(self.waits.wait(self.client.metadata(path.as_os()))?.into())),
        }
    }

    fn batch(&mut self, items: Vec<Item>, if_versions: &[Version]) -> Result<Response, Failure> {
        let (client, user) = (self.client, self.user);
        let mut batch = client.batch();
        for wanted in if_versions {
            batch = batch.if_version(self.expectation(wanted)?);
        }
        let batch = items.into_iter().fold(batch, |batch, item| match item {
            Item::LeaseAttach { path, lease, secret } => batch.add(client.attach(path.as_os(), lease.as_os(), &secret.0)),
            Item::Create { path, exclusive: false, mode } => batch.add(user.makes(client.create(path.as_os()), mode)),
            Item::Create { path, exclusive: true, mode } => batch.add(user.makes(client.create_new(path.as_os()), mode)),
            Item::Mkdir { path, mode } => batch.add(user.makes(client.create_dir(path.as_os()), mode)),
            Item::Symlink { target, path } => batch.add(user.makes(client.symlink(target.as_os(), path.as_os()), 0o777)),
            Item::Link { existing, path } => batch.add(client.hard_link(existing.as_os(), path.as_os())),
            Item::Unlink { path, force } => batch.add(unlink(client, &path, force)),
            Item::Rmdir { path } => batch.add(client.remove_dir(path.as_os())),
            Item::Rename { from, to, rule, force } => batch.add(rename(client, &from, &to, rule, force)),
            Item::SetAttr { path, mode, size } => batch.add(set_metadata(client, &path, mode, size)),
            Item::Write { path, offset, data, truncate } => {
                let write = client.write(path.as_os(), data.0).at(offset);
                batch.add(if truncate { write.truncate() } else { write })
            }
            Item::SetXattr { path, name, value, rule } => batch.add(with_rule(client.set_xattr(path.as_os(), name.as_os(), value.0), rule)),
            Item::RemoveXattr { path, name } => batch.add(client.remove_xattr(path.as_os(), name.as_os())),
        });
        Ok(Response::Batched(self.make(batch)?.into_iter().map(Into::into).collect()))
    }
}

fn unlink(client: &Client, path: &Text, force: bool) -> Op<kinds::Remove> {
    let remove = client.remove_file(path.as_os());
    if force { remove.even_if_locked() } else { remove }
}

fn rename(client: &Client, from: &Text, to: &Text, rule: Rule, force: bool) -> Op<kinds::Rename> {
    let rename = client.rename(from.as_os(), to.as_os());
    let rename = match rule {
        Rule::Replace => rename,
        Rule::NoReplace => rename.no_replace(),
        Rule::Exchange => rename.exchange(),
    };
    if force { rename.even_if_locked() } else { rename }
}

fn with_rule(set: Op<kinds::SetXattr>, rule: AttrRule) -> Op<kinds::SetXattr> {
    match rule {
        AttrRule::Any => set,
        AttrRule::Create => set.if_absent(),
        AttrRule::Replace => set.if_present(),
    }
}

fn set_metadata(client: &Client, path: &Text, mode: Option<u16>, size: Option<u64>) -> Op<kinds::SetMetadata> {
    let mut set = client.set_metadata(path.as_os());
    if let Some(mode) = mode {
        set = set.mode(mode.into());
    }
    if let Some(size) = size {
        set = set.len(size);
    }
    set
}
