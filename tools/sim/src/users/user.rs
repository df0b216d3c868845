//! One user of an agent: a program that does one thing after the other.
//!
//! Decides what it does next from what it is in the middle of: thinking, waiting for a command, or holding a lock, under which it
//! reads and writes until it has held it for long enough or is told that it is uncertain or lost (section 11.3).
//! Invariants: at most one command is outstanding beside an unlock; every write carries the number of its own [`UserOp`] and the
//! token under which it was done, so that whoever reads it knows which write was seen; names under `/u/` are never used twice.
//! Leaves to others: numbering commands and time (`Users`), judging what comes of them (`judge`).

use super::workload::Workload;
use crate::observe::{True, UserOp};
use crate::rng::SimRng;
use bytes::Bytes;
use cistern_agent::api::{AttrChange, Command, Guard, HolderId, LockEvent, Locked, OpError, Output, Ownership, Target, Wait, WatchId};
use cistern_seal::LeaseSecret;
use cistern_wire::{Expect, Mode, ObjectId, ObjectKind, RenameRule, Status, XattrRule};
use std::time::Duration;

/// Who owns what users make.
const OWNER: Ownership = Ownership { mode: 0o644, uid: 1, gid: 1 };

/// Most objects that one user watches at a time.
const WATCHES_MAX: usize = 3;

/// How the paths of named leases begin.
const LEASES: &str = "/u/lease";

/// Whether a path is that of a named lease.
#[must_use]
pub fn is_lease(path: &[u8]) -> bool {
    path.starts_with(LEASES.as_bytes())
}

/// The secret of the named lease of a path.
#[must_use]
pub fn secret_of(path: &[u8]) -> LeaseSecret {
    let mut secret = [0; LeaseSecret::LEN];
    secret.iter_mut().zip(path.iter().rev()).for_each(|(place, byte)| *place = *byte);
    LeaseSecret::from_array(secret)
}

/// Path of a file that everybody uses.
#[must_use]
pub fn hot_path(n: usize) -> Bytes {
    Bytes::from(format!("/hot/h{n}"))
}

/// A name that is made and taken away again and again.
pub const FLAG: &[u8] = b"/hot/flag";
/// Where it is moved to.
const FLAG_AWAY: &[u8] = b"/hot/flag-away";
/// Stands for it in the place of the number of a hot file.
const FLAG_HOT: usize = usize::MAX;

/// What a write writes: its own number, the token under which it is done (0: none), and padding.
#[must_use]
pub fn content(op: UserOp, token: u64, large: bool) -> Bytes {
    let mut text = format!("{} {} ", op.0, token);
    if large {
        text.extend(std::iter::repeat_n('.', 3_000));
    }
    Bytes::from(text)
}

/// The write that wrote these bytes, and its token; `None`: nobody wrote them (an empty file).
#[must_use]
pub fn written_by(content: &[u8]) -> Option<(UserOp, u64)> {
    let mut parts = content.splitn(3, |byte| *byte == b' ').map(|part| std::str::from_utf8(part).ok());
    let op = parts.next()??.parse().ok()?;
    let token = parts.next()??.parse().ok()?;
    Some((UserOp(op), token))
}

/// A lock in a user's hands.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserHold {
    pub(super) locked: Locked,
    hot: usize,
    /// When it is given back on purpose.
    until: True,
    /// Whether the user was told that it is not certain.
    uncertain: bool,
    /// Told that it is gone.
    lost: bool,
}

/// What the outstanding command is for.
#[derive(Clone, Debug)]
enum Doing {
    Lock {
        hot: usize,
    },
    Create(Bytes),
    Rename {
        from: Bytes,
        to: Bytes,
    },
    Unlink(Bytes),
    Link(Bytes),
    Mkdir(Bytes),
    Rmdir(Bytes),
    /// Makes an ephemeral file.
    Appear(Bytes),
    /// Makes a named lease, or a file that goes with one.
    Lease(Bytes),
    Attach(Bytes),
    /// Looks at what it is to watch.
    Look,
    Watch,
    Setup,
    Other,
}

/// One user.
#[derive(Debug)]
pub(super) struct User {
    rng: SimRng,
    /// When it acts next, if nothing happens before.
    pub(super) due: Option<True>,
    doing: Option<(UserOp, Doing)>,
    pub(super) held: Option<UserHold>,
    /// Locks got beside the one in hand (by an upgrade): given back at once.
    extra: Vec<HolderId>,
    /// What of the setting is still to be made by this user.
    setup: Vec<Command>,
    /// Own files, and own directories, that certainly exist.
    files: Vec<Bytes>,
    dirs: Vec<Bytes>,
    /// Named leases that it has made, of which some may have ended.
    leases: Vec<Bytes>,
    /// What it is about to watch, and what it watches.
    to_watch: Option<ObjectId>,
    watches: Vec<WatchId>,
    /// The version of a file as it was read last.
    seen: Option<Expect>,
    /// The lock that it gave back last.
    former: Option<Guard>,
}

impl User {
    pub(super) fn new(mut rng: SimRng, work: &Workload) -> Self {
        let mkdir = |path: &'static [u8]| Command::Mkdir { path: Bytes::from_static(path), owner: Ownership { mode: 0o755, ..OWNER } };
        let files = (0..work.hot).map(|n| Command::Create { path: hot_path(n), exclusive: false, ephemeral: false, owner: OWNER });
        let mut setup: Vec<Command> = [mkdir(b"/hot"), mkdir(b"/u")].into_iter().chain(files).collect();
        setup.reverse();
        let due = Some(True(rng.between(0, work.think_ns.1)));
        Self {
            rng,
            due,
            doing: None,
            held: None,
            extra: Vec::new(),
            setup,
            files: Vec::new(),
            dirs: Vec::new(),
            leases: Vec::new(),
            to_watch: None,
            watches: Vec::new(),
            seen: None,
            former: None,
        }
    }

    /// Whether it holds nothing and waits for nothing.
    pub(super) fn is_at_rest(&self) -> bool {
        self.doing.is_none() && self.held.is_none() && self.extra.is_empty() && self.watches.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.doing.is_some()
    }

    /// What it does now; `op` is the number of the next command. `None`: it waits for something.
    pub(super) fn act(&mut self, work: &Workload, now: True, op: UserOp, known: &[Bytes], healed: bool) -> Option<Command> {
        self.due = None;
        if let Some(holder) = self.extra.pop() {
            self.think(work, now);
            return Some(Command::Unlock { holder });
        }
        if let Some(held) = self.held {
            if healed || now >= held.until || held.lost {
                self.held = None;
                self.former = Some(Guard { object: held.locked.object, token: held.locked.token });
                self.think(work, now);
                return Some(Command::Unlock { holder: held.locked.holder });
            }
            if self.doing.is_some() || held.uncertain {
                self.due = Some(held.until);
                return None;
            }
            return self.use_lock(work, now, op, held);
        }
        if self.doing.is_some() {
            return None;
        }
        if healed {
            let watch = self.watches.pop()?;
            self.think(work, now);
            return Some(Command::Unwatch { watch });
        }
        let (doing, command) = match (self.setup.last(), self.to_watch.take()) {
            (Some(command), _) => (Doing::Setup, command.clone()),
            (None, Some(object)) => (Doing::Watch, Command::Watch { object }),
            (None, None) => self.choose(work, op, known),
        };
        self.doing = Some((op, doing));
        Some(command)
    }

    fn think(&mut self, work: &Workload, now: True) {
        let idle = work.idle_ns > 0 && self.rng.chance(20_000);
        let pause = if idle { self.rng.between(0, work.idle_ns) } else { self.rng.between(work.think_ns.0, work.think_ns.1) };
        self.due = Some(True(now.0 + pause));
    }

    /// Something under the lock in hand.
    fn use_lock(&mut self, work: &Workload, now: True, op: UserOp, held: UserHold) -> Option<Command> {
        let pause = self.rng.between(1, work.think_ns.1);
        self.due = Some(True((now.0 + pause).min(held.until.0)));
        if held.hot == FLAG_HOT {
            self.doing = Some((op, Doing::Other));
            return Some(Command::Stat { target: Target::Path(Bytes::from_static(FLAG)), follow: true });
        }
        let target = Target::Path(hot_path(held.hot));
        let exclusive = held.locked.mode == Mode::Exclusive;
        if !exclusive && self.rng.chance(work.upgrade_ppm) {
            self.doing = Some((op, Doing::Lock { hot: held.hot }));
            return Some(Command::Lock { target, mode: Mode::Exclusive, wait: Wait::AtMost(Duration::from_nanos(work.patience_ns / 4)) });
        }
        self.doing = Some((op, Doing::Other));
        if !exclusive || self.rng.chance(300_000) {
            return Some(Command::Read { target, offset: 0, length: None });
        }
        let guard = Guard { object: held.locked.object, token: held.locked.token };
        let guard = self.rng.chance(work.guard_ppm).then_some(guard);
        let data = content(op, held.locked.token, self.rng.chance(work.large_ppm));
        Some(write(target, data, guard))
    }

    fn choose(&mut self, work: &Workload, op: UserOp, known: &[Bytes]) -> (Doing, Command) {
        let hot = self.rng.index(work.hot);
        let target = Target::Path(hot_path(hot));
        let mut left = self.rng.below(work.weights.total().max(1));
        let mut falls = |weight: u64| {
            let hit = left < weight;
            left = left.saturating_sub(weight);
            hit
        };
        if falls(work.weights.lock) {
            return (Doing::Lock { hot }, self.lock(work, target));
        }
        if falls(work.weights.read) {
            return (Doing::Other, self.read(target, known));
        }
        if falls(work.weights.write) {
            let data = content(op, 0, self.rng.chance(work.large_ppm));
            // Now and then one does not know that it has given the lock back.
            let guard = self.former.filter(|_| self.rng.chance(work.guard_ppm / 2));
            return (Doing::Other, write(target, data, guard));
        }
        if falls(work.weights.set_attr) {
            let change = AttrChange { mtime_ns: i64::try_from(op.0).ok(), ..AttrChange::default() };
            return (Doing::Other, Command::SetAttr { target, follow: true, change });
        }
        if falls(work.weights.list) {
            let path: &'static [u8] = if self.rng.chance(800_000) { b"/hot" } else { b"/u" };
            let detail = self.rng.chance(400_000);
            return (Doing::Other, Command::List { target: Target::Path(Bytes::from_static(path)), detail });
        }
        if falls(work.weights.names) {
            return self.names(op);
        }
        if falls(work.weights.whole) {
            return self.whole(op, target);
        }
        if falls(work.weights.flag) {
            let path = Bytes::from_static(FLAG);
            return match self.rng.below(6) {
                0 => (Doing::Other, Command::Create { path, exclusive: true, ephemeral: false, owner: OWNER }),
                1 => (Doing::Other, Command::Unlink { path, force: false }),
                2 => {
                    let to = Bytes::from_static(FLAG_AWAY);
                    (Doing::Other, Command::Rename { from: path, to, rule: RenameRule::Replace, force: false })
                }
                3 => {
                    let (target, mode, wait) = (Target::Path(path), Mode::Exclusive, Wait::Try);
                    (Doing::Lock { hot: FLAG_HOT }, Command::Lock { target, mode, wait })
                }
                _ => (Doing::Other, Command::Stat { target: Target::Path(path), follow: true }),
            };
        }
        if falls(work.weights.presence) {
            return self.presence(target, op, known);
        }
        if falls(work.weights.leases) {
            return self.leases(op, known);
        }
        match self.rng.below(3) {
            0 => (Doing::Other, Command::Ping),
            1 => (Doing::Other, Command::ServerStatus),
            _ => (Doing::Other, Command::ListLocks { target: self.rng.chance(500_000).then_some(target) }),
        }
    }

    /// Attributes, several changes as one, and changes that depend on what was read.
    fn whole(&mut self, op: UserOp, target: Target) -> (Doing, Command) {
        let (name, value) = (Bytes::from_static(b"user.op"), Bytes::from(op.0.to_string()));
        let set = |target| Command::SetXattr { target, follow: true, name: name.clone(), value, rule: XattrRule::Any };
        let write = |target| Command::Write { target, offset: 0, data: content(op, 0, false), truncate: true };
        let command = match self.rng.below(6) {
            0 => set(target),
            1 => Command::GetXattr { target, follow: true, name },
            2 => Command::Batch { items: vec![write(target.clone()), set(target)] },
            3 | 4 => match self.seen.take() {
                Some(expect) => Command::Expecting { guard: None, expect: vec![expect], command: Box::new(write(target)) },
                None => Command::Read { target, offset: 0, length: None },
            },
            _ => {
                let path = Bytes::from(format!("/u/b{}", op.0));
                let make = Command::Create { path: path.clone(), exclusive: true, ephemeral: false, owner: OWNER };
                let items = vec![make, write(Target::Path(path.clone())), set(Target::Path(path.clone()))];
                return (Doing::Create(path), Command::Batch { items });
            }
        };
        (Doing::Other, command)
    }

    fn lock(&mut self, work: &Workload, target: Target) -> Command {
        let mode = if self.rng.chance(work.shared_ppm) { Mode::Shared } else { Mode::Exclusive };
        let wait = match self.rng.below(1_000_000) {
            n if n < work.try_ppm => Wait::Try,
            n if n < work.try_ppm + work.forever_ppm => Wait::Forever,
            _ => Wait::AtMost(Duration::from_nanos(self.rng.between(1_000_000, work.patience_ns.max(1_000_000)))),
        };
        Command::Lock { target, mode, wait }
    }

    fn read(&mut self, target: Target, known: &[Bytes]) -> Command {
        match self.rng.below(4) {
            0 => Command::Stat { target, follow: true },
            1 if !known.is_empty() => Command::Stat { target: Target::Path(self.rng.pick(known).clone()), follow: true },
            _ => Command::Read { target, offset: 0, length: None },
        }
    }

    /// Something for others to see that it is here, or to see whether others are.
    fn presence(&mut self, target: Target, op: UserOp, known: &[Bytes]) -> (Doing, Command) {
        let dir = |path: &'static [u8]| Target::Path(Bytes::from_static(path));
        match self.rng.below(4) {
            0 | 1 => {
                let path = Bytes::from(format!("/u/e{}", op.0));
                (Doing::Appear(path.clone()), Command::Create { path, exclusive: true, ephemeral: true, owner: OWNER })
            }
            2 if self.watches.len() < WATCHES_MAX => {
                let target = match self.rng.below(4) {
                    0 => target,
                    1 => dir(b"/hot"),
                    2 if !known.is_empty() => Target::Path(self.rng.pick(known).clone()),
                    _ => dir(b"/u"),
                };
                (Doing::Look, Command::Stat { target, follow: true })
            }
            _ => match self.watches.pop() {
                Some(watch) => (Doing::Other, Command::Unwatch { watch }),
                None => (Doing::Other, Command::Ping),
            },
        }
    }

    /// Something with a named lease, its own or another's.
    fn leases(&mut self, op: UserOp, known: &[Bytes]) -> (Doing, Command) {
        let choice = self.rng.below(12);
        let others: Vec<&Bytes> = known.iter().filter(|path| is_lease(path)).collect();
        let lease = match self.leases.is_empty() {
            _ if !others.is_empty() && self.rng.chance(300_000) => (*self.rng.pick(&others)).clone(),
            true => Bytes::new(),
            false => self.rng.pick(&self.leases).clone(),
        };
        if choice < 2 || lease.is_empty() {
            let path = Bytes::from(format!("{LEASES}{}", op.0));
            let ttl_ms = u32::try_from(self.rng.between(500, 3_000)).unwrap_or(500);
            let command = Command::MakeLease { secret: secret_of(&path), path: path.clone(), ttl_ms, owner: OWNER };
            return (Doing::Lease(path), command);
        }
        let secret = secret_of(&lease);
        match choice {
            2 | 3 => {
                let path = Bytes::from(format!("/u/a{}", op.0));
                let make = Command::Create { path: path.clone(), exclusive: true, ephemeral: false, owner: OWNER };
                let attach = Command::Attach { path: path.clone(), lease, secret };
                (Doing::Attach(path), Command::Batch { items: vec![make, attach] })
            }
            4 => {
                self.leases.retain(|own| *own != lease);
                (Doing::Other, Command::Unlink { path: lease, force: true })
            }
            5 => (Doing::Other, Command::ListLeases { lease: self.rng.chance(500_000).then_some(Target::Path(lease)) }),
            6 => {
                let (secret, lease) = (secret_of(b"another"), Target::Path(lease));
                (Doing::Other, Command::KeepLease { lease, secret })
            }
            7 | 8 => (Doing::Other, Command::Stat { target: Target::Path(lease), follow: true }),
            _ => (Doing::Other, Command::KeepLease { lease: Target::Path(lease), secret }),
        }
    }

    /// Something with a name of its own.
    fn names(&mut self, op: UserOp) -> (Doing, Command) {
        let fresh = |letter: char| Bytes::from(format!("/u/{letter}{}", op.0));
        let choice = self.rng.below(10);
        if choice < 4 || self.files.is_empty() && choice < 8 {
            let path = fresh('n');
            return (Doing::Create(path.clone()), Command::Create { path, exclusive: true, ephemeral: false, owner: OWNER });
        }
        if choice >= 8 {
            return match self.dirs.pop() {
                Some(path) => (Doing::Rmdir(path.clone()), Command::Rmdir { path }),
                None => {
                    let path = fresh('d');
                    (Doing::Mkdir(path.clone()), Command::Mkdir { path, owner: Ownership { mode: 0o755, ..OWNER } })
                }
            };
        }
        let at = self.rng.index(self.files.len());
        match choice {
            4 | 5 => {
                let (from, to) = (self.files.swap_remove(at), fresh('r'));
                let command = Command::Rename { from: from.clone(), to: to.clone(), rule: RenameRule::NoReplace, force: false };
                (Doing::Rename { from, to }, command)
            }
            6 => {
                let path = fresh('l');
                (Doing::Link(path.clone()), Command::Link { existing: self.files[at].clone(), path })
            }
            _ => {
                let path = self.files.swap_remove(at);
                (Doing::Unlink(path.clone()), Command::Unlink { path, force: false })
            }
        }
    }
}

/// What it learns.
impl User {
    /// Its command ended. Gives a name that others may now look at, too.
    pub(super) fn ended(
        &mut self,
        work: &Workload,
        now: True,
        op: UserOp,
        result: Option<&Result<Output, OpError>>,
        healed: bool,
    ) -> Option<Bytes> {
        let (_, doing) = self.doing.take_if(|doing| doing.0 == op)?;
        self.think(work, now);
        if healed {
            self.due = Some(now);
        }
        if let Some(Ok(Output::Data { attr, .. })) = result
            && attr.kind == ObjectKind::File
        {
            self.seen = Some(Expect { object: attr.object, version: attr.version });
        }
        match (doing, result) {
            (Doing::Lock { hot }, Some(Ok(Output::Locked(locked)))) => self.got(work, now, hot, *locked, healed),
            (Doing::Setup, Some(Ok(_) | Err(OpError::Status(Status::EEXIST)))) => {
                self.setup.pop();
            }
            (Doing::Appear(path) | Doing::Attach(path), Some(Ok(_))) => return Some(path),
            (Doing::Lease(path), Some(Ok(_))) => {
                self.leases.push(path.clone());
                return Some(path);
            }
            (Doing::Look, Some(Ok(Output::Attr(attr)))) => self.to_watch = Some(attr.object),
            (Doing::Watch, Some(Ok(Output::Watching(watch)))) => self.watches.push(*watch),
            (Doing::Create(path) | Doing::Link(path), Some(Ok(_))) => {
                self.files.push(path.clone());
                return Some(path);
            }
            (Doing::Rename { from, to }, Some(Ok(_))) => {
                self.files.push(to);
                return Some(from);
            }
            (Doing::Mkdir(path), Some(Ok(_))) | (Doing::Rmdir(path), Some(Err(OpError::Unreachable))) => self.dirs.push(path),
            // Nothing was changed: the name is as it was.
            (Doing::Rename { from: path, .. } | Doing::Unlink(path), Some(Err(OpError::Unreachable))) => self.files.push(path),
            (Doing::Unlink(path), Some(Ok(_))) => return Some(path),
            // A directory of whose end nothing is known, and a name of which nothing is known, are left alone for ever.
            _ => {}
        }
        if let Some(held) = self.held.filter(|held| self.due.is_some_and(|due| due > held.until)) {
            self.due = Some(held.until);
        }
        None
    }

    fn got(&mut self, work: &Workload, now: True, hot: usize, locked: Locked, healed: bool) {
        if self.held.is_some() {
            self.extra.push(locked.holder);
            self.due = Some(now);
            return;
        }
        let hold = if healed { 0 } else { self.rng.between(0, work.hold_ns) };
        let until = True(now.0 + hold);
        self.held = Some(UserHold { locked, hot, until, uncertain: false, lost: false });
        self.due = Some(True((now.0 + self.rng.between(0, work.think_ns.0)).min(until.0)));
    }

    /// Something happened to a lock; whether it was this user's.
    pub(super) fn told(&mut self, work: &Workload, now: True, holder: HolderId, what: LockEvent) {
        if what == LockEvent::Lost && self.extra.contains(&holder) {
            self.due = Some(now);
        }
        let hasty = self.rng.chance(200_000);
        let stubborn = self.rng.chance(work.stubborn_ppm);
        let later = True(now.0 + self.rng.between(1, work.hold_ns.max(1)));
        let Some(held) = self.held.as_mut().filter(|held| held.locked.holder == holder) else { return };
        match what {
            LockEvent::Suspect { .. } if hasty => held.until = now,
            LockEvent::Suspect { .. } => {}
            LockEvent::Uncertain => {
                held.uncertain = true;
                if hasty {
                    held.until = now;
                }
            }
            LockEvent::Certain { .. } => held.uncertain = false,
            LockEvent::Lost => {
                held.lost = true;
                held.uncertain = true;
                held.until = if stubborn { later } else { now };
            }
        }
        let until = held.until;
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
        if held.lost && stubborn {
            self.due = Some(until);
            // It confirms then, and not before.
            held.lost = false;
        }
    }

    /// Its agent's process died: nothing of what it asked for or held is known to the next one.
    pub(super) fn crashed(&mut self, work: &Workload, now: True) {
        if let Some((_, Doing::Rename { .. } | Doing::Unlink(_) | Doing::Create(_))) = self.doing.take() {
            // The name is left alone for ever.
        }
        self.held = None;
        self.extra.clear();
        self.to_watch = None;
        self.watches.clear();
        self.think(work, now);
    }
}

/// Replaces the contents of a file, under a guard if there is one.
fn write(target: Target, data: Bytes, guard: Option<Guard>) -> Command {
    let write = Command::Write { target, offset: 0, data, truncate: true };
    match guard {
        Some(guard) => write.guarded(guard),
        None => write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_who_wrote_it_and_under_which_token() {
        assert_eq!(written_by(&content(UserOp(7), 99, false)), Some((UserOp(7), 99)));
        assert_eq!(written_by(&content(UserOp(7), 0, true)), Some((UserOp(7), 0)));
        assert_eq!(written_by(b""), None);
        assert!(content(UserOp(1), 0, true).len() > 1_232);
    }
}
