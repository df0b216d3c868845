//! Scenarios of realms, told by users: what belongs to which, and what is counted.

use bytes::Bytes;
use cistern_agent::api::{Command, OpError, Output, Ownership, Target};
use cistern_sim::script::{Agent, Setting};
use cistern_wire::{Limit, Limited, Realm, Status, Whose};

const OWNER: Ownership = Ownership { mode: 0o755, uid: 0, gid: 0 };

fn bytes(path: &str) -> Bytes {
    Bytes::copy_from_slice(path.as_bytes())
}

/// Begins a realm; its number.
fn realm(agent: &Agent, path: &str) -> Realm {
    let Output::Attr(attr) = agent.does(Command::MakeRealm { path: bytes(path), owner: OWNER }).done() else { panic!("no attributes") };
    attr.realm
}

fn quota(agent: &Agent, path: &str, objects: u64) {
    agent.does(Command::SetQuota { target: Target::Path(bytes(path)), objects: Some(objects), bytes: None }).done();
}

/// A moves a file out of a realm, and gives it a name outside: whoever counts or grants by realms would be passed by.
#[test]
fn no_name_leads_out_of_a_realm() {
    let (s, [a]) = Setting::default().agents(["a"]);
    realm(&a, "/team");
    a.put("/team/f", "text").done();
    a.rename("/team/f", "/f").refused(Status::EXDEV);
    a.does(Command::Link { existing: bytes("/team/f"), path: bytes("/f") }).refused(Status::EXDEV);
    a.rename("/team", "/group").done();
    assert_eq!(a.text_of("/group/f"), "text");
    s.finish();
}

/// A fills a realm within another up to the quota of the one around it. What is counted in the inner one alone, or bounded nowhere, grows on.
#[test]
fn a_quota_holds_for_all_realms_within() {
    let (s, [a]) = Setting::default().agents(["a"]);
    let team = realm(&a, "/team");
    realm(&a, "/team/inner");
    quota(&a, "/team", 3);
    a.create("/team/inner/f").done();
    let full = OpError::Limited(Limited { limit: Limit::Objects, whose: Whose::Realm, realm: team, used: 3, bound: 3, retry_ms: 0 });
    assert_eq!(a.create("/team/inner/g").ends(), Err(full));
    a.unlink("/team/inner/f").done();
    a.create("/team/inner/g").done();
    s.finish();
}
