//! Invites: exactly one key a use, and a clock that never goes back.

use super::*;
use alloc::vec;
use proptest::prelude::*;

const ID: InviteId = InviteId(7);
const NOW: u64 = 1_700_000_000;

fn record(uses: u16) -> InviteRecord {
    let (name, rights) = ((*b"web").into(), Vec::new());
    InviteRecord { secret: [2; 16].into(), name, operator: false, rights, uses, expires_s: NOW + 3_600, rotates: None, used: vec![] }
}

fn invites(uses: u16) -> Invites {
    let mut invites = Invites::new(Instant::new(1, 1));
    invites.put(ID, record(uses));
    invites
}

fn used_by(n: u8, at_s: u64) -> InviteUse {
    InviteUse { key: [n; 32], principal: PrincipalId(n.into()), at_s, from: [10, 0, 0, n].into() }
}

fn spend(invites: &mut Invites, new: InviteUse) {
    let mut record = invites.get(ID).unwrap().clone();
    record.used.push(new);
    invites.put(ID, record);
}

fn later(s: u64) -> Instant {
    let ns = 1 + s * 1_000_000_000;
    Instant::new(ns, ns)
}

//= docs/sealed.md#joining-rosters
//= type=test
//# The same key MUST be answered alike again until the invite expires; another key MUST NOT be registered beyond the uses of the invite.
#[test]
fn an_invite_is_for_one_key_which_may_ask_again() {
    let mut invites = invites(1);
    assert_eq!((invites.judge(ID, &[1; 32]), invites.judge(ID, &[2; 32])), (Judgement::Admit, Judgement::Admit), "asking spends nothing");
    spend(&mut invites, used_by(1, 5));
    assert_eq!(invites.judge(ID, &[1; 32]), Judgement::Again(PrincipalId(1)));
    assert_eq!(invites.judge(ID, &[2; 32]), Judgement::Spent { at_s: 5, from: [10, 0, 0, 1].into() });
    assert_eq!((invites.expire(NOW + 3_599), invites.expire(NOW + 3_600)), (vec![], vec![ID]));
    assert_eq!(invites.judge(ID, &[1; 32]), Judgement::Unknown);
}

#[test]
fn hosts_of_one_invite_are_numbered() {
    assert_eq!(names(&record(1)).collect::<Vec<_>>(), ["web"]);
    let mut three = record(3);
    three.used.push(used_by(1, 5));
    assert_eq!(names(&three).next().unwrap(), "web-2");
    assert!(names(&three).count() >= 3, "a name that is taken is passed over");
}

//= docs/sealed.md#joining-rosters
//= type=test
//# An invite MUST expire by the largest time that the server's wall clock has shown and the time since, also over restarts.
#[test]
fn a_clock_that_is_set_back_and_a_restart_prolong_nothing() {
    let mut invites = invites(1);
    assert_eq!(invites.clock(later(0), NOW), NOW);
    assert_eq!(invites.clock(later(10), NOW - 5_000), NOW + 10, "set back");
    assert_eq!(invites.clock(later(20), NOW + 100), NOW + 100, "set forward");
    assert_eq!(invites.clock(later(30), NOW), NOW + 110);
    // What a start reads is what was written: never more than a minute less.
    assert_eq!(
        (invites.to_write(NOW + 110), invites.to_write(NOW + 169), invites.to_write(NOW + 170)),
        (Some(NOW + 110), None, Some(NOW + 170))
    );
    let mut again = Invites::new(later(0));
    again.load(vec![(ID, record(1))], NOW + 170, later(0));
    assert_eq!(again.clock(later(5), 0), NOW + 175);
    assert_eq!(again.expire(NOW + 3_600), [ID]);
    assert_eq!(again.to_write(NOW + 9_999), None, "nothing is written when there are none");
    again.need_clock(NOW + 10_000);
    assert_eq!((again.to_write(NOW + 9_999), again.to_write(NOW + 10_060)), (Some(NOW + 9_999), None), "but for what else ends by it");
}

#[test]
fn withdrawn_invites_admit_nobody() {
    let mut invites = invites(2);
    assert!(!invites.has_room_for(ID) && invites.has_room_for(InviteId(8)));
    assert_eq!((invites.withdraw(|one| *one.name == *b"we"), invites.withdraw(|one| *one.name == *b"web")), (vec![], vec![ID]));
    assert_eq!(invites.judge(ID, &[1; 32]), Judgement::Unknown);
}

proptest! {
    /// However keys come, and as often: never more than the uses are admitted, and whoever was is told the same.
    #[test]
    fn uses_are_exact(uses in 1_u16..5, comers in prop::collection::vec(0_u8..8, 0..40)) {
        let mut invites = invites(uses);
        let mut admitted = std::collections::BTreeSet::new();
        for who in comers {
            match invites.judge(ID, &[who; 32]) {
                Judgement::Admit => {
                    prop_assert!(admitted.insert(who));
                    spend(&mut invites, used_by(who, 1));
                }
                Judgement::Again(principal) => prop_assert!(admitted.contains(&who) && principal == PrincipalId(who.into())),
                Judgement::Spent { .. } => prop_assert!(!admitted.contains(&who) && admitted.len() == usize::from(uses)),
                Judgement::Unknown => prop_assert!(false, "it is good"),
            }
            prop_assert!(admitted.len() <= usize::from(uses));
        }
    }
}
