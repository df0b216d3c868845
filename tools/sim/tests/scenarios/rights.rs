//! Scenarios of rights, told by users: what may be done in which realm, and what ends when that changes.

use bytes::Bytes;
use cistern_agent::api::{Command, Output, Ownership, Target};
use cistern_server::principals::{PrincipalId, Rights};
use cistern_sim::script::{Agent, Op, Script, Setting};
use cistern_wire::{ObjectId, Realm, Status};

const OWNER: Ownership = Ownership { mode: 0o755, uid: 0, gid: 0 };

fn bytes(path: &str) -> Bytes {
    Bytes::copy_from_slice(path.as_bytes())
}

/// Begins a realm; its number.
fn realm(agent: &Agent, path: &str) -> Realm {
    let Output::Attr(attr) = agent.does(Command::MakeRealm { path: bytes(path), owner: OWNER }).done() else { panic!("no attributes") };
    attr.realm
}

fn object(agent: &Agent, path: &str) -> ObjectId {
    let Output::Attr(attr) = agent.stat(path).done() else { panic!("no attributes") };
    attr.object
}

fn stat(agent: &Agent, object: ObjectId) -> Op {
    agent.does(Command::Stat { target: Target::Object(object), follow: true })
}

fn rmdir(agent: &Agent, path: &str) -> Op {
    agent.does(Command::Rmdir { path: bytes(path) })
}

/// A principal with rights in realms, as which the agent opens its session.
fn principal(s: &Script, agent: &Agent, rights: &[(Realm, &str)]) -> PrincipalId {
    let who = s.server.add_principal("web");
    rights.iter().for_each(|(realm, letters)| s.server.grant(who, *realm, Rights::from_letters(letters).expect("letters")));
    s.server.plain_principal(who);
    agent.ping().done();
    s.server.plain_principal(PrincipalId::ANYBODY);
    who
}

/// B knows the number of a file that it may not see. By its path it cannot come to it; by its number neither.
#[test]
fn a_number_leads_to_nothing_that_is_hidden() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/f"]).agents(["a", "b"]);
    let team = realm(&a, "/team");
    a.create("/team/f").done();
    let (hidden, own) = (object(&a, "/f"), object(&a, "/team/f"));
    principal(&s, &b, &[(team, "r")]);
    b.stat("/f").refused(Status::EACCES);
    stat(&b, hidden).refused(Status::ESTALE);
    stat(&b, own).done();
    b.stat("/team/f").done();
    s.finish();
}

/// B reads a file, and may read no more: its cache is demanded, and what it asks from then on is refused.
#[test]
fn rights_that_are_withdrawn_are_gone_at_once() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/f"]).agents(["a", "b"]);
    a.put("/f", "secret").done();
    let who = principal(&s, &b, &[(Realm::TREE, "r")]);
    assert_eq!(b.text_of("/f"), "secret");
    b.read("/f").done_at_once();
    s.server.grant(who, Realm::TREE, Rights::NONE);
    s.pass(50);
    b.read("/f").refused(Status::ESTALE);
    s.finish();
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# A directory that begins a realm MUST NOT be renamed, replaced, exchanged or removed by who does not own that realm.
/// B may change what is in the tree, and has no right in a realm there: it can neither move that away nor put something in its place.
#[test]
fn a_realm_is_moved_by_who_owns_it() {
    let (s, [a, b]) = Setting::default().in_clear().agents(["a", "b"]);
    let team = realm(&a, "/team");
    a.mkdir("/other").done();
    let who = principal(&s, &b, &[(Realm::TREE, "rw")]);
    b.rename("/team", "/mine").refused(Status::ESTALE);
    b.exchange("/other", "/team").refused(Status::ESTALE);
    b.rename("/other", "/team").refused(Status::ESTALE);
    s.server.grant(who, team, Rights::READ);
    b.rename("/team", "/mine").refused(Status::EACCES);
    rmdir(&b, "/team").refused(Status::EACCES);
    s.server.grant(who, team, Rights::OWN);
    b.rename("/team", "/mine").done();
    rmdir(&b, "/mine").done();
    s.finish();
}

/// B lists locks: those in a realm that it may not read are neither shown nor counted.
#[test]
fn hidden_locks_are_not_listed() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/f"]).agents(["a", "b"]);
    let team = realm(&a, "/team");
    a.create("/team/f").done();
    let (of_tree, of_team) = (a.lock("/f").exclusive().granted(), a.lock("/team/f").exclusive().granted());
    principal(&s, &b, &[(team, "r")]);
    let Output::Locks(rows) = b.does(Command::ListLocks { target: None }).done() else { panic!("no locks") };
    assert_eq!(rows.iter().map(|row| &row.place[..]).collect::<Vec<_>>(), [b"/team/f"]);
    assert!(of_tree.is_certain() && of_team.is_certain());
    s.finish();
}

/// B holds a lock in a realm that it may not read any more: what it guards by it is refused as if the lock were gone.
#[test]
fn nothing_hidden_guards() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/f"]).agents(["a", "b"]);
    let team = realm(&a, "/team");
    a.create("/team/lock").done();
    let who = principal(&s, &b, &[(Realm::TREE, "rw"), (team, "rl")]);
    let held = b.lock("/team/lock").exclusive().granted();
    b.put_under(&held, "/f", "one").done();
    s.server.grant(who, team, Rights::NONE);
    b.put_under(&held, "/f", "two").refused(Status::STALE_GUARD);
    assert_eq!(a.text_of("/f"), "one");
    s.finish();
}
