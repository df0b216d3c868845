//! What the small model claims about the rules, and about itself.
//!
//! The explorations are complete where they say nothing else: all of time, any number of requests. `cargo run --release -p
//! cistern-small-model -- bugs` does the same and more, and prints it.

use cistern_small_model::bugs::{Bug, LEDGER, Row};
use cistern_small_model::check::{self, Until, Verdict};
use cistern_small_model::properties::Name;
use cistern_small_model::rules::Rules;
use cistern_small_model::trace::{self, Line};
use clap::ValueEnum;
use std::process::Command;

fn explored(rules: Rules) -> Verdict {
    check::explore(rules, 1, Until::AnyBreaks)
}

fn assert_clean(verdict: &Verdict) {
    assert!(verdict.broken.is_empty(), "{:?} by {:?}", verdict.broken, verdict.rules);
    assert!(verdict.unseen.is_empty(), "never: {:?} by {:?}", verdict.unseen, verdict.rules);
    assert!(verdict.complete);
}

#[test]
fn nothing_breaks_in_all_of_time() {
    assert_clean(&explored(Rules::default()));
}

#[test]
fn nothing_breaks_in_all_of_time_with_rescue_surrender_and_last_heard() {
    assert_clean(&explored(Rules { rescue: true, surrender: true, last_heard: true, ..Rules::default() }));
}

#[test]
fn each_combination_of_the_options_is_clean_with_a_short_lease() {
    for bits in 0..8_u8 {
        let rules = Rules { tau: 1, rescue: bits & 1 != 0, surrender: bits & 2 != 0, last_heard: bits & 4 != 0, ..Rules::default() };
        assert_clean(&explored(rules));
    }
}

#[test]
fn nothing_breaks_within_a_horizon() {
    assert_clean(&explored(Rules { horizon: Some(2), requests: Some(1), ..Rules::default() }));
}

#[test]
fn nothing_breaks_without_the_reductions() {
    let small = Rules { tau: 1, reduce: false, ..Rules::default() };
    assert_clean(&explored(small.clone()));
    assert_clean(&explored(Rules { requests: Some(1), rescue: true, surrender: true, last_heard: true, ..small }));
}

#[test]
fn every_bug_breaks_what_the_ledger_says() {
    for row in LEDGER {
        let verdict = check::hunt(*row, row.rules(&Rules::default()), Some(row.breaks));
        assert!(verdict.breaking(row.breaks).is_some(), "{} was missed in {} states", row.bug.name(), verdict.states);
    }
}

#[test]
fn the_reductions_hide_no_bug() {
    // Those that are found soon also without the reductions. A lease of one tick leaves no room for a timer too short and not zero.
    let slow = [
        Bug::NoDelta,
        Bug::NackIgnored,
        Bug::RescueKeepsTimer,
        Bug::RecoverAnyState,
        Bug::ClearedOnNack,
        Bug::HeardFirstOnly,
        Bug::NoticeRenews,
    ];
    for row in LEDGER.iter().filter(|row| !slow.contains(&row.bug)) {
        let rules = |reduce| row.rules(&Rules { tau: 1, requests: Some(2), reduce, ..Rules::default() });
        let length = |reduce| check::hunt(*row, rules(reduce), Some(row.breaks)).breaking(row.breaks).map(|broken| broken.length);
        let (reduced, whole) = (length(true), length(false));
        assert!(reduced.is_some() && whole.is_some(), "{}: {reduced:?} and {whole:?}", row.bug.name());
        assert!(
            reduced <= whole,
            "{}: sends are steps of their own only without the reductions, yet {reduced:?} > {whole:?}",
            row.bug.name()
        );
    }
}

#[test]
fn a_defence_behind_another_is_seen_to_be_gone() {
    for bug in [Bug::StealAtOnce, Bug::NoDelta, Bug::AckWhileTiming, Bug::NackIgnored, Bug::ClearedOnNack] {
        let verdict = check::hunt(Row::of(bug), Row::of(bug).rules(&Rules::default()), None);
        let exclusion = verdict.breaking(Name::Exclusion).map(|broken| broken.length);
        let first = verdict.broken.first().map(|broken| broken.length);
        assert!(first < exclusion, "{}: its white-box property breaks no earlier than exclusion", bug.name());
    }
}

#[test]
fn a_release_that_cancels_the_timer_never_breaks_exclusion() {
    let row = Row::of(Bug::ReleaseCancelsTimer);
    let verdict = check::hunt(row, row.rules(&Rules { tau: 1, ..Rules::default() }), None);
    assert!(verdict.complete && verdict.breaking(Name::Exclusion).is_none());
    assert!(verdict.breaking(Name::NoComeback).is_some());
}

#[test]
fn clocks_beyond_the_bound_break_exclusion() {
    let rules = Rules { server_rate: 4, ..Rules::default() };
    assert!(check::explore(rules, 1, Until::Breaks(Name::Exclusion)).breaking(Name::Exclusion).is_some());
}

#[test]
fn a_run_in_which_too_little_happens_is_not_clean() {
    let verdict = explored(Rules { horizon: Some(1), requests: Some(1), ..Rules::default() });
    assert!(verdict.broken.is_empty());
    assert!(verdict.unseen.contains(&"a lock is stolen") && !verdict.is_clean(), "never: {:?}", verdict.unseen);
}

#[test]
fn an_option_that_is_off_does_nothing() {
    let verdict = explored(Rules { tau: 1, ..Rules::default() });
    let on = Rules { rescue: true, surrender: true, last_heard: true, ..verdict.rules.clone() };
    assert_ne!(verdict.states, explored(on).states);
}

#[test]
fn every_bug_has_one_row() {
    for bug in Bug::value_variants() {
        assert_eq!(LEDGER.iter().filter(|row| row.bug == *bug).count(), 1, "{}", bug.name());
    }
}

/// The end that an agent's column shows for the lock in use, if any.
fn used_until(told: &str) -> Option<(String, u32)> {
    let (lock, rest) = told.strip_suffix(" *")?.split_once(" to ")?;
    Some((lock.to_owned(), rest.parse().ok()?))
}

#[test]
fn a_schedule_keeps_the_names_of_agents_and_generations() {
    for bug in [Bug::NoDelta, Bug::SameGeneration, Bug::RecoverAnyState, Bug::RescueKeepsTimer] {
        let row = Row::of(bug);
        let rules = row.rules(&Rules::default());
        let verdict = check::hunt(row, rules.clone(), None);
        let broken = verdict.breaking(Name::Exclusion).expect("it breaks exclusion");
        let schedule = trace::tell(&rules, &broken.schedule);
        assert_eq!(schedule.lines.len(), broken.length);
        for pair in schedule.lines.windows(2) {
            only_the_one_who_acts_changes(&pair[0], &pair[1]);
        }
        let last = schedule.lines.last().expect("it has steps");
        let (a, b) = (used_until(&last.a).expect("A uses the lock"), used_until(&last.b).expect("B uses the lock"));
        assert_ne!(a.0, b.0, "two generations: {last:?}");
        assert!(last.agent_clock < a.1 && last.agent_clock < b.1, "both are valid: {last:?}");
    }
}

/// A step of one agent, or of the server, leaves the other agent's lock and lease as they were.
fn only_the_one_who_acts_changes(before: &Line, after: &Line) {
    let unchanged = |who| after.who != who && after.who != '-';
    assert!(!unchanged('A') || before.a == after.a, "{before:?} then {after:?}");
    assert!(!unchanged('B') || before.b == after.b, "{before:?} then {after:?}");
    let time = u32::from(after.who == '-');
    assert_eq!((after.agent_clock, after.server_clock), (before.agent_clock + time, before.server_clock + 2 * time));
}

#[test]
fn the_columns_of_a_schedule_are_aligned() {
    let row = Row::of(Bug::StealAtOnce);
    let rules = row.rules(&Rules::default());
    let verdict = check::hunt(row, rules.clone(), None);
    let table = trace::tell(&rules, &verdict.breaking(Name::Exclusion).expect("it breaks").schedule).table();
    let mut lines = table.lines();
    let what = lines.next().and_then(|head| head.find("what")).expect("a column of what is done");
    assert!(lines.clone().count() > 5);
    assert!(lines.all(|line| &line[what - 2..what] == "  " && &line[what..=what] != " "), "{table}");
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_cistern-small-model")).args(args).output().expect("the program runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("it prints UTF-8"))
}

#[test]
fn the_exit_status_says_what_came_of_it() {
    assert_eq!(run(&["check", "--lease", "1"]).0, Some(0));
    assert_eq!(run(&["check", "--server-rate", "4"]).0, Some(1), "a property broke");
    assert_eq!(run(&["check", "--horizon", "1"]).0, Some(1), "nothing could be stolen");
    assert_eq!(run(&["trace", "no-delta", "--lease", "1"]).0, Some(1), "the bug cannot show");
    assert_eq!(run(&["check", "--lease", "0"]).0, Some(2));
    assert_eq!(run(&["trace", "no-such-bug"]).0, Some(2));
    assert_eq!(run(&["--help"]).0, Some(0));
}

#[test]
fn json_has_what_the_text_has() {
    let (status, text) = run(&["trace", "no-delta", "--json"]);
    let schedule: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!((status, schedule["ticks"].as_u64()), (Some(0), Some(1)));
    let (status, text) = run(&["check", "--lease", "1", "--rescue", "--json"]);
    let verdicts: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!((status, verdicts[0]["rules"]["rescue"].as_bool(), verdicts[0]["complete"].as_bool()), (Some(0), Some(true), Some(true)));
}
