//! Joining: who comes with the line of an invite is registered once, or told who was, whatever is lost and whenever the server dies.

use cistern_agent::JoinRefused;
use cistern_sim::bugs::choose_named;
use cistern_sim::joining::{InvitedHost, InvitedOutcome, InvitedPlan, admit};
use cistern_wire::JoinOutcome;
use std::convert::Infallible;

const MS: u64 = 1_000_000;

fn run(plan: &InvitedPlan) -> InvitedOutcome {
    let Ok(outcome) = admit(plan, &mut |_, _| Ok::<(), Infallible>(()));
    outcome
}

/// One invite, and hosts with these keys that begin at these times, in milliseconds; nothing is lost.
fn plan(uses: u16, hosts: &[(usize, u64)]) -> InvitedPlan {
    let hosts = hosts.iter().map(|&(key, at)| InvitedHost { invite: 0, key, at: at * MS, killed_at: None }).collect();
    let (crashes, heal_ns) = (Vec::new(), 3_000 * MS);
    InvitedPlan { seed: 5, uses: vec![uses], hosts, loss_ppm: 0, crashes, sync_ns: 100 * MS, reached_ppm: 500_000, heal_ns }
}

fn numbers(outcome: &InvitedOutcome) -> Vec<Option<u32>> {
    outcome.told.iter().map(|told| told.as_ref().and_then(|told| told.as_ref().ok()).map(|member| member.principal)).collect()
}

#[test]
fn each_use_of_an_invite_registers_one_key_whatever_dies() {
    choose_named();
    for seed in 0..120 {
        let outcome = run(&InvitedPlan::draw(seed));
        assert_eq!(outcome.violation, None, "seed {seed}: cargo run --release -p cistern-sim -- join --seed {seed}");
    }
}

/// Two hosts come with one line at one moment: one joins, and the other is told when and from where the line was used.
#[test]
fn of_two_hosts_at_once_one_joins_and_the_other_is_told_of_it() {
    let outcome = run(&plan(1, &[(0, 500), (1, 500)]));
    assert_eq!(outcome.violation, None);
    let [Some(first), Some(second)] = &outcome.told[..] else { panic!("{:?}", outcome.told) };
    let (joined, other) = if first.is_ok() { (first, second) } else { (second, first) };
    let by = if first.is_ok() { 10 } else { 11 };
    assert!(joined.is_ok(), "{:?}", outcome.told);
    match other {
        Err(JoinRefused::Outcome(JoinOutcome::Spent, at_s, from)) => assert!(*at_s > 0 && from[12..] == [10, 0, 0, by]),
        other => panic!("{other:?}"),
    }
}

/// The command is given twice at once, and again when it has joined: it is the same host each time, and the invite has uses left for others.
#[test]
fn repeated_by_the_same_key_it_is_the_same_host() {
    let outcome = run(&plan(2, &[(0, 500), (0, 501), (0, 2_000), (1, 2_500)]));
    assert_eq!(outcome.violation, None);
    let numbers = numbers(&outcome);
    assert!(numbers[0].is_some() && numbers[..3].iter().all(|number| *number == numbers[0]), "{numbers:?}");
    assert!(numbers[3].is_some() && numbers[3] != numbers[0], "{numbers:?}");
}

/// The server dies in each moment between the first datagram and the last, and comes back soon after.
#[test]
fn server_that_dies_at_any_moment_registers_a_host_once() {
    for died in 0..80 {
        let mut plan = plan(1, &[(0, 500), (0, 900), (1, 2_800)]);
        let at = 500 * MS + died * 4 * MS;
        plan.crashes = vec![(at, at + 20 * MS)];
        plan.reached_ppm = if died % 2 == 0 { 0 } else { 1_000_000 };
        let outcome = run(&plan);
        assert_eq!(outcome.violation, None, "died {} ms after the beginning", died * 4);
        let numbers = numbers(&outcome);
        assert!(numbers[0].is_some() && numbers[0] == numbers[1] && numbers[2].is_none(), "{numbers:?}");
    }
}
