//! Random requests of several principals in nested realms, by path, number and batch, while rights are given and withdrawn: each is answered as
//! a plain table of rights says.

use super::world::{Peer, ROOT, World, advisory, lock};
use crate::principals::PrincipalId;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Batch, Bytes8, Create, Expect, GetAttr, Item, Keep, Kind, List, ListLocks, ListRealms, LockWait, Lookup, Message, Mkdir, ObjectId,
    Realm, Release, ReleaseItem, Rename, RenameRule, Reply, SetAttr, SetMask, Status, Terms, Want,
};
use proptest::prelude::*;

const READ: u8 = 1;
const WRITE: u8 = 2;
const LOCK: u8 = 4;
const OWN: u8 = 8;
const PASS: u8 = 16;

/// Principals.
const WHO: usize = 3;
/// The tree's realm, `/a`, `/a/b` within that, `/c`.
const REALMS: [Realm; 4] = [Realm(1), Realm(2), Realm(3), Realm(4)];

/// Directories, each with a file `f`, and the realms that they are in.
const DIRS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Move {
    Grant {
        who: usize,
        realm: usize,
        rights: u8,
    },
    Get {
        who: usize,
        at: usize,
    },
    SetMode {
        who: usize,
        at: usize,
    },
    Batch {
        who: usize,
        items: [usize; 2],
    },
    /// Sets attributes of one if there is no other.
    Unless {
        who: usize,
        at: usize,
        other: usize,
    },
    Lookup {
        who: usize,
        dir: usize,
        file: bool,
        missing: bool,
    },
    Lock {
        who: usize,
        dir: usize,
    },
    ListLocks {
        who: usize,
    },
    ListRealms {
        who: usize,
    },
    RenameRealm {
        who: usize,
    },
    Mkdir {
        who: usize,
        dir: usize,
    },
}

fn any_move() -> impl Strategy<Value = Move> {
    let (who, at, dir) = (0..WHO, 0..2 * DIRS, 0..DIRS);
    prop_oneof![
        6 => (who.clone(), 0..REALMS.len(), 0..16u8).prop_map(|(who, realm, rights)| Move::Grant { who, realm, rights }),
        3 => (who.clone(), at.clone()).prop_map(|(who, at)| Move::Get { who, at }),
        3 => (who.clone(), at.clone()).prop_map(|(who, at)| Move::SetMode { who, at }),
        3 => (who.clone(), at.clone(), at.clone()).prop_map(|(who, a, b)| Move::Batch { who, items: [a, b] }),
        2 => (who.clone(), at.clone(), at).prop_map(|(who, at, other)| Move::Unless { who, at, other }),
        5 => (who.clone(), dir.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, dir, file, missing)| Move::Lookup { who, dir, file, missing }),
        2 => (who.clone(), dir.clone()).prop_map(|(who, dir)| Move::Lock { who, dir }),
        2 => who.clone().prop_map(|who| Move::ListLocks { who }),
        2 => who.clone().prop_map(|who| Move::ListRealms { who }),
        2 => who.clone().prop_map(|who| Move::RenameRealm { who }),
        1 => (who, dir).prop_map(|(who, dir)| Move::Mkdir { who, dir }),
    ]
}

struct Model {
    /// What was given, by principal and realm.
    given: BTreeMap<(usize, Realm), u8>,
    /// Directories, then their files: object and realm.
    objects: Vec<(ObjectId, Realm)>,
    /// What `/a` is called now.
    name: &'static [u8],
}

fn around(realm: Realm) -> Option<Realm> {
    match realm.0 {
        2 | 4 => Some(Realm(1)),
        3 => Some(Realm(2)),
        _ => None,
    }
}

impl Model {
    fn has(&self, who: usize, realm: Realm) -> u8 {
        let of = |realm| self.given.get(&(who, realm)).copied().unwrap_or(0);
        let within = |at: Realm| core::iter::successors(Some(at), |at| around(*at)).any(|at| at == realm);
        let passes = REALMS.iter().any(|at| of(*at) != 0 && within(*at));
        of(realm) | if passes { PASS } else { 0 }
    }

    /// Whether an object may be used so; if not, how that is answered.
    fn check(&self, who: usize, at: usize, need: u8) -> Result<(), Status> {
        let has = self.has(who, self.objects[at].1);
        match has & need == need {
            true => Ok(()),
            false if has == 0 || has == PASS && at >= DIRS => Err(Status::ESTALE),
            false => Err(Status::EACCES),
        }
    }

    /// The directories on the way from the root, and their names.
    fn way(&self, dir: usize) -> Vec<(usize, &'static [u8])> {
        match dir {
            0 => Vec::new(),
            1 => [(1, &b"d"[..])].to_vec(),
            2 => [(2, self.name)].to_vec(),
            3 => [(2, self.name), (3, b"b")].to_vec(),
            _ => [(4, &b"c"[..])].to_vec(),
        }
    }

    /// How far a walk comes, and why it ends; or why it does not begin.
    fn walk(&self, who: usize, way: &[(Option<usize>, &[u8])]) -> Result<(usize, Status), Status> {
        let has = self.has(who, Realm::TREE);
        if has & (READ | PASS) == 0 {
            return Err(if has == 0 { Status::ESTALE } else { Status::EACCES });
        }
        let mut realm = Realm::TREE;
        for (steps, (next, _)) in way.iter().enumerate() {
            let reads = self.has(who, realm) & READ != 0;
            let Some(next) = next else { return Ok((steps + 1, if reads { Status::ENOENT } else { Status::EACCES })) };
            let of = self.objects[*next].1;
            let shown = reads && of == realm || *next < DIRS && self.has(who, of) != 0;
            if !shown {
                return Ok((steps + 1, Status::EACCES));
            }
            realm = of;
        }
        Ok((way.len() + 1, Status::OK))
    }
}

struct Bench {
    world: World,
    /// Who asks for nothing and may do everything.
    all: Peer,
    peers: Vec<(Peer, PrincipalId)>,
    model: Model,
    made: usize,
}

/// Why a request fails, and by which item of a batch.
type Refused = (Status, Option<u16>);

/// Sends a request; what `read` makes of its answer, or why it fails.
fn asked<T>(
    world: &mut World,
    peer: &mut Peer,
    message: impl FnOnce(Ask) -> Vec<u8>,
    read: impl FnOnce(&Reply<'_>) -> Option<T>,
) -> Result<T, Refused> {
    let bytes = message(peer.ask_only());
    let message = Message::decode(Kind::of(bytes[0]).unwrap(), &bytes[4..]).unwrap();
    world.send(peer, &[message]);
    let got = world.got_one(peer);
    match got.reply() {
        Reply::Failed(failed) => Err((failed.status, None)),
        Reply::BatchFailed(failed) => Err((failed.status, Some(failed.item))),
        other => Ok(read(&other).unwrap_or_else(|| panic!("{other:?}"))),
    }
}

fn mode_of(ask: Ask, object: ObjectId) -> SetAttr<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    SetAttr { ask, object, mask, mode: 0o700, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }
}

fn mkdir(ask: Ask, dir: ObjectId, name: &str) -> Vec<u8> {
    Message::from(Mkdir { ask, dir, name: Bytes8(name.as_bytes()), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE }).to_bytes()
}

fn file(ask: Ask, dir: ObjectId) -> Vec<u8> {
    let (name, exclusive, ephemeral) = (Bytes8(b"f"), true, false);
    Message::from(Create { ask, dir, name, exclusive, mode: 0o644, uid: 0, gid: 0, ephemeral, terms: Terms::NONE }).to_bytes()
}

/// The object that a mutation made.
fn made(reply: &Reply<'_>) -> Option<ObjectId> {
    match reply {
        Reply::Changed(changed) => changed.effects.iter().nth(1).map(|effect| effect.attr.object),
        _ => None,
    }
}

impl Bench {
    fn new() -> Self {
        let mut world = World::new();
        let mut all = world.open(9);
        let (a, ra) = world.realm(&mut all, ROOT, "a");
        let (b, rb) = world.realm(&mut all, a, "b");
        let (c, rc) = world.realm(&mut all, ROOT, "c");
        assert_eq!([ra, rb, rc], REALMS[1..]);
        let d = asked(&mut world, &mut all, |ask| mkdir(ask, ROOT, "d"), made).unwrap();
        let mut objects = Vec::from([(ROOT, REALMS[0]), (d, REALMS[0]), (a, ra), (b, rb), (c, rc)]);
        for dir in 0..DIRS {
            let (at, realm) = objects[dir];
            let made = asked(&mut world, &mut all, |ask| file(ask, at), made).unwrap();
            world.lock(&mut all, made);
            objects.push((made, realm));
        }
        let peers = ["web", "db", "ops"].into_iter().zip(1..).map(|(name, n)| {
            let who = world.principal(name, &[]);
            (world.open_as(n, who), who)
        });
        let peers = peers.collect();
        Self { world, all, peers, model: Model { given: BTreeMap::new(), objects, name: b"a" }, made: 0 }
    }

    fn ask<T>(
        &mut self,
        who: usize,
        message: impl FnOnce(Ask) -> Vec<u8>,
        read: impl FnOnce(&Reply<'_>) -> Option<T>,
    ) -> Result<T, Refused> {
        asked(&mut self.world, &mut self.peers[who].0, message, read)
    }

    /// Sends a request that is refused as expected, or not at all.
    fn judge(&mut self, who: usize, expected: Result<(), Status>, message: impl FnOnce(Ask) -> Vec<u8>) -> Result<(), Status> {
        let came = self.ask(who, message, |_| Some(()));
        assert_eq!(came, expected.map_err(|status| (status, None)));
        expected
    }

    fn run(&mut self, step: Move) {
        let objects = self.model.objects.clone();
        let at = |n: usize| objects[n].0;
        match step {
            Move::Grant { who, realm, rights } => {
                self.model.given.insert((who, REALMS[realm]), rights);
                let all = [('r', READ), ('w', WRITE), ('l', LOCK), ('o', OWN)];
                let letters: String = all.iter().filter(|(_, bit)| rights & bit != 0).map(|(letter, _)| *letter).collect();
                self.world.grant(self.peers[who].1, REALMS[realm], &letters);
            }
            Move::Get { who, at: n } => {
                let expected = self.model.check(who, n, READ);
                let get = |ask| Message::from(GetAttr { ask, object: at(n), want: Want::Nothing }).to_bytes();
                let _told = self.judge(who, expected, get);
            }
            Move::SetMode { who, at: n } => {
                let expected = self.model.check(who, n, WRITE);
                let _told = self.judge(who, expected, |ask| Message::from(mode_of(ask, at(n))).to_bytes());
            }
            Move::Batch { who, items } => {
                let allowed = |(n, item): (&usize, u16)| self.model.check(who, *n, WRITE).map_err(|status| (status, Some(item)));
                let expected = items.iter().zip(0..).try_for_each(allowed);
                let items = items.map(|n| Item::SetAttr(mode_of(Ask::NONE, at(n))));
                let batch = |ask| Message::from(Batch { ask, items: List::of(&items), terms: Terms::NONE }).to_bytes();
                assert_eq!(self.ask(who, batch, |_| Some(())), expected);
            }
            Move::Unless { who, at: n, other } => {
                let expected = match self.model.check(who, other, READ) {
                    Err(Status::ESTALE) => self.model.check(who, n, WRITE),
                    Err(status) => Err(status),
                    Ok(()) => Err(Status::VERSION_CHANGED),
                };
                let expect = [Expect { object: at(other), version: 0 }];
                let terms = Terms { expect: List::of(&expect), ..Terms::NONE };
                let _told = self.judge(who, expected, |ask| Message::from(SetAttr { terms, ..mode_of(ask, at(n)) }).to_bytes());
            }
            Move::Lookup { who, dir, file, missing } => self.look_up(who, dir, file, missing),
            Move::Lock { who, dir } => self.lock(who, dir),
            Move::ListLocks { who } => {
                let files = (DIRS..2 * DIRS).filter(|n| self.model.check(who, *n, READ).is_ok());
                let expected: Vec<ObjectId> = files.map(at).collect();
                let (object, after_object) = (ObjectId(0), ObjectId(0));
                let list = |ask| Message::from(ListLocks { ask, object, after_object, after_row: 0, places: true }).to_bytes();
                let came = self.ask(who, list, |reply| match reply {
                    Reply::LockRows(rows) => Some((rows.rows.iter().map(|row| row.lock.object).collect(), rows.end)),
                    _ => None,
                });
                assert_eq!(came, Ok((expected, true)));
            }
            Move::ListRealms { who } => {
                let seen = |realm: &Realm| self.model.has(who, *realm) & (READ | OWN) != 0;
                let expected: Vec<Realm> = REALMS.iter().copied().filter(seen).collect();
                let list = |ask| Message::from(ListRealms { ask, realm: Realm(0), after: Realm(0) }).to_bytes();
                let came = self.ask(who, list, |reply| match reply {
                    Reply::RealmRows(rows) => Some(rows.rows.iter().map(|row| row.realm).collect::<Vec<_>>()),
                    _ => None,
                });
                assert_eq!(came, Ok(expected));
            }
            Move::RenameRealm { who } => {
                let (from, to): (&[u8], &'static [u8]) = (self.model.name, if self.model.name == b"a" { b"moved" } else { b"a" });
                let expected = self.model.check(who, 0, WRITE).and_then(|()| self.model.check(who, 2, OWN));
                let (from_dir, from_name, to_dir, to_name) = (ROOT, Bytes8(from), ROOT, Bytes8(to));
                let (rule, force, terms) = (RenameRule::NoReplace, false, Terms::NONE);
                let rename = |ask| Message::from(Rename { ask, from_dir, from_name, to_dir, to_name, rule, force, terms }).to_bytes();
                if self.judge(who, expected, rename).is_ok() {
                    self.model.name = to;
                }
            }
            Move::Mkdir { who, dir } => {
                let expected = self.model.check(who, dir, WRITE);
                self.made += 1;
                let name = alloc::format!("n{}", self.made);
                let _told = self.judge(who, expected, |ask| mkdir(ask, at(dir), &name));
            }
        }
    }

    fn look_up(&mut self, who: usize, dir: usize, file: bool, missing: bool) {
        let way = self.model.way(dir).into_iter().map(|(dir, name)| (Some(dir), name));
        let last: Option<(Option<usize>, &[u8])> = match (missing, file) {
            (true, _) => Some((None, b"missing")),
            (false, true) => Some((Some(DIRS + dir), b"f")),
            (false, false) => None,
        };
        let way: Vec<_> = way.chain(last).collect();
        let names: Vec<Bytes8<'_>> = way.iter().map(|(_, name)| Bytes8(name)).collect();
        let expected = self.model.walk(who, &way).map_err(|status| (status, None));
        let walk = |ask| Message::from(Lookup { ask, start: ROOT, want: Want::Nothing, names: List::of(&names) }).to_bytes();
        let came = self.ask(who, walk, |reply| match reply {
            Reply::Walked(walked) => Some((walked.steps.len(), walked.status)),
            _ => None,
        });
        assert_eq!(came, expected);
    }

    fn lock(&mut self, who: usize, dir: usize) {
        let (object, expected) = (self.model.objects[dir].0, self.model.check(who, dir, LOCK));
        let take = |ask| Message::from(lock(ask, object, LockWait::Try)).to_bytes();
        let came = self.ask(who, take, |reply| match reply {
            Reply::Granted(granted) => Some(granted.generation),
            _ => None,
        });
        assert_eq!(came.map(|_| ()), expected.map_err(|status| (status, None)));
        if let Ok(generation) = came {
            let (peer, _) = &mut self.peers[who];
            let items = [ReleaseItem { lock: advisory(object), generation, keep: Keep::Nothing }];
            let release = Release { serial: peer.serial(), items: List::of(&items) };
            self.world.send(peer, &[release.into()]);
            assert_eq!(self.world.got_one(peer).message().kind(), Kind::Released);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_request_is_answered_by_the_rights_of_that_instant(moves in proptest::collection::vec(any_move(), 1..80)) {
        let mut bench = Bench::new();
        for step in moves {
            bench.run(step);
        }
        assert!(bench.world.got(&bench.all).is_empty(), "who may do everything is not disturbed");
    }
}
