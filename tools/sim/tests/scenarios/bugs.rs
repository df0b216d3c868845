//! Each deliberate bug against the scenario that is about it: a scenario which its mistake does not fail would prove nothing.
//!
//! Runs this test binary again, one scenario at a time, with the bug chosen by the variable `CISTERN_BUG` (a bug is on in a whole process).
//! Only with the feature `bugs`: `cargo test -p cistern-sim --features bugs --test scenarios`.
//! Leaves to others: bugs that no honest agent and no wire shows (M54: the codec's tests; M55: the event hash of campaigns).

use cistern_link::bugs::Bug;
use std::process::{Command, Stdio};

/// Each bug and a scenario that minds it.
const MINDED_BY: &[(&str, &str)] = &[
    ("M1", "lease::lease_counts_from_the_transmission_that_was_answered"),
    ("M2", "lease::lease_counts_from_the_transmission_that_was_answered"),
    ("M3", "lease::slowest_holder_is_done_before_the_fastest_server_has_waited"),
    ("M3b", "lease::slowest_holder_is_done_before_the_fastest_server_has_waited"),
    ("M3c", "lease::slowest_holder_is_done_before_the_fastest_server_has_waited"),
    ("M4", "cache::lost_nack_revives_no_cache"),
    ("M5", "identity::eviction_frees_nothing_before_t"),
    ("M6", "lease::what_the_server_sends_of_itself_renews_nothing"),
    ("M7", "lease::what_the_server_sends_of_itself_renews_nothing"),
    ("M8", "reclaim::answers_of_the_former_incarnation_renew_nothing"),
    ("M9", "cache::operation_that_outlasts_the_lease_is_not_finished_from_cache"),
    ("M10", "lease::agent_that_slept_uses_nothing_when_it_wakes_up"),
    ("M11", "cache::lost_nacks_after_the_steal_revive_no_cache"),
    ("M12", "failure::nothing_rescues_a_session_after_a_nack"),
    ("M13", "cache::lost_nack_revives_no_cache"),
    ("M14", "failure::late_release_frees_its_lock_and_rescues_nothing_while_something_is_missing"),
    ("M16", "cache::demand_that_overtakes_a_cache_grant_leaves_nothing_stale"),
    ("M17", "failure::dead_waiters_in_a_row_fail_together"),
    ("M18", "locks::every_holder_has_a_larger_token_than_the_one_before"),
    ("M19", "delivery::late_release_frees_no_later_grant"),
    ("M20", "delivery::demand_that_overtakes_its_grant_leaves_one_holder"),
    ("M22", "failure::agent_that_died_after_it_receipted_a_demand_is_found_out"),
    ("M23", "locks::readers_queue_behind_a_writer_that_waits"),
    ("M24", "failure::session_that_times_out_delays_nobody_who_wants_other_locks"),
    ("M25", "delivery::request_whose_queued_was_lost_has_one_place_in_the_queue"),
    ("M26", "cache::name_known_to_be_absent_is_seen_when_somebody_makes_it"),
    ("M27", "delivery::no_reply_is_dropped_that_can_still_be_asked_for"),
    ("M28", "failure::nothing_rescues_a_session_after_a_nack"),
    ("M29", "disk::stalled_disk_holds_up_mutations_and_no_lease"),
    ("M30", "delivery::transmission_that_comes_after_its_answer_was_taken_executes_nothing"),
    ("M31", "reclaim::mutation_whose_answer_was_lost_in_a_crash_is_not_done_twice_and_ends_with_its_true_outcome"),
    ("M32", "delivery::retransmission_of_a_refused_mutation_is_refused_again"),
    ("M34", "restart::two_restarts_within_tau_lose_no_lock"),
    ("M35", "restart::nothing_is_granted_in_grace_and_nobody_is_told_an_error"),
    ("M36", "restart::nothing_is_granted_in_grace_and_nobody_is_told_an_error"),
    ("M37", "restart::nfs_edge_1_a_lock_stolen_before_a_restart_is_not_reclaimed_after_it"),
    ("M38", "restart::nfs_edge_2_who_missed_a_whole_grace_reclaims_nothing_in_the_next"),
    ("M38b", "restart::evicted_agent_reclaims_nothing_after_a_crash"),
    ("M39", "restart::two_restarts_within_tau_lose_no_lock"),
    ("M40", "disk::nobody_is_shown_what_is_not_durable"),
    ("M41", "disk::failed_write_stops_the_server_and_acknowledges_nothing"),
    ("M42", "restart::restart_is_a_pause_in_which_a_holder_keeps_its_lock"),
    ("M43", "failure::time_in_which_the_server_stood_still_counts_against_nobody"),
    ("M46", "cache::cache_kept_over_a_lapse_is_good_again_at_the_next_answer"),
    ("M47", "locks::request_that_was_withdrawn_is_not_in_the_queue"),
    ("M48", "failure::keep_alives_are_answered_while_many_writes_wait"),
    ("M49", "delivery::silent_server_is_not_hammered"),
    ("M51", "delivery::copy_of_the_newest_packet_is_dropped"),
    ("M53", "restart::nfs_edge_2_who_missed_a_whole_grace_reclaims_nothing_in_the_next"),
    ("L1", "lease::renewal_leaves_nothing_behind_at_the_server"),
    ("H1", "identity::session_that_the_server_holds_is_not_replaced_by_its_own_agent"),
    ("H2", "identity::session_that_the_server_holds_is_not_replaced_by_its_own_agent"),
    ("H3", "identity::session_that_the_server_holds_is_not_replaced_by_its_own_agent"),
    ("H4", "attack::session_that_is_offered_ends_nothing_and_answers_nothing"),
    ("H5", "attack::welcome_held_back_until_a_later_hello_is_sent_renews_nothing"),
    ("H6", "attack::session_that_is_offered_ends_nothing_and_answers_nothing"),
    ("U1", "identity::who_guesses_packet_numbers_is_not_heard_in_either_direction"),
    ("S1", "sealed::record_that_does_not_open_changes_nothing"),
    ("S2", "sealed::record_that_does_not_open_changes_nothing"),
    ("S3", "sealed::record_that_does_not_open_changes_nothing"),
    ("S4", "sealed::cookie_pays_for_one_computation"),
    ("S5", "sealed::second_challenge_begins_another_handshake"),
    ("S6", "failure::nothing_rescues_a_session_after_a_nack"),
    ("S7", "cache::lost_nacks_after_the_steal_revive_no_cache"),
    ("S8", "locks::readers_queue_behind_a_writer_that_waits"),
    ("S9", "sealed::side_that_hears_nothing_stays_in_its_generation"),
    ("S10", "sealed::revoked_key_loses_its_locks_after_t_and_opens_nothing"),
    ("S11", "sealed::revoked_key_loses_its_locks_after_t_and_opens_nothing"),
    ("S12", "sealed::what_anybody_can_say_ends_nothing"),
    ("S13", "sealed::late_record_opens_after_a_change_of_keys"),
    ("S14", "sealed::forgeries_without_number_end_the_session"),
    ("S15", "sealed::forged_key_phases_change_no_generation"),
    ("S16", "sealed::late_record_opens_after_a_change_of_keys"),
    ("H5", "sealed::welcome_held_back_until_a_later_open_is_sent_renews_nothing"),
    ("E1", "membership::dead_owner_of_a_watched_file_is_found_out_in_time_and_not_too_early"),
    ("E2", "membership::restart_of_the_server_takes_no_living_member_away"),
    ("Q1", "locks::lock_whose_granting_answer_was_lost_is_given_back_by_who_no_longer_wants_it"),
    ("G1", "locks::user_who_gave_the_lock_back_writes_nothing_under_it_although_its_agent_holds_it"),
    ("T1", "restart::each_agent_fails_over_by_its_own_lease_and_a_long_one_outlives_an_outage_that_costs_nobody_else"),
    ("T2", "restart::each_agent_fails_over_by_its_own_lease_and_a_long_one_outlives_an_outage_that_costs_nobody_else"),
    ("T3", "lease::who_waits_for_a_long_lease_waits_until_it_is_over_and_no_longer_than_was_told"),
    ("W1", "membership::nobody_is_told_of_a_change_that_is_not_durable"),
    ("W2", "membership::what_changed_between_two_sessions_is_not_missed"),
    ("A1", "attack::nothing_from_an_address_that_is_not_proven_acts"),
    ("A2", "attack::agent_takes_nothing_from_a_foreign_address"),
    ("A3", "attack::cookie_of_one_agent_opens_no_session_for_another"),
    ("A4", "attack::surrender_from_another_address_frees_nothing_before_t"),
    ("A5", "attack::incarnation_far_above_is_refused_and_the_agent_goes_on"),
    ("A6", "attack::lock_that_was_never_granted_is_not_reclaimed"),
    ("A7", "attack::jumps_are_dropped_and_the_session_goes_on"),
    ("A8", "attack::jumps_are_dropped_and_the_session_goes_on"),
    ("P1", "failure::waiter_that_is_gone_delays_the_next_one_by_no_t"),
    ("F1", "delivery::requests_that_are_shed_come_again_and_are_executed"),
    ("N2", "named_leases::slowest_holder_finds_its_files_until_its_own_clock_says_that_the_lease_is_over"),
    ("N3", "named_leases::lease_outlives_its_maker_as_long_as_anybody_keeps_it"),
    ("N4", "named_leases::restart_gives_a_lease_its_whole_time_again"),
    ("N5", "named_leases::ended_lease_does_not_come_back"),
    ("N6", "named_leases::file_that_a_dead_reader_has_cached_goes_when_its_locks_are_free_and_the_lease_stays_ended"),
    ("N7", "named_leases::nobody_keeps_a_lease_without_its_secret"),
    ("N8", "named_leases::kept_lease_lasts_its_time_and_no_longer"),
    ("N1", "locks::locked_file_stays_at_its_path_under_its_holder"),
    ("B1", "shares::one_host_leaves_locks_to_others"),
    ("B2", "shares::who_did_not_comply_caches_nothing_for_a_while_in_whichever_session"),
    ("B3", "shares::who_asks_without_end_leaves_answers_to_others"),
    ("F3", "turns::who_asks_little_does_not_wait_for_who_asks_much"),
    ("F4", "turns::control_messages_are_paid_for"),
    ("R1", "realms::no_name_leads_out_of_a_realm"),
    ("R2", "realms::a_quota_holds_for_all_realms_within"),
    ("R3", "realms::a_quota_holds_for_all_realms_within"),
    ("R4", "rights::a_number_leads_to_nothing_that_is_hidden"),
    ("R5", "rights::rights_that_are_withdrawn_are_gone_at_once"),
    ("R6", "rights::a_realm_is_moved_by_who_owns_it"),
    ("R7", "rights::hidden_locks_are_not_listed"),
    ("R8", "rights::nothing_hidden_guards"),
    ("R9", "rights::rights_that_are_withdrawn_are_gone_at_once"),
    ("R20", "resuming::a_key_that_was_withdrawn_while_the_server_was_down_resumes_nothing"),
    ("R21", "resuming::a_session_that_was_stolen_from_is_not_resumed"),
    ("C1", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C2", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C3", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C4", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C6", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("K1", "joining::each_use_of_an_invite_registers_one_key_whatever_dies"),
    ("K2", "joining::each_use_of_an_invite_registers_one_key_whatever_dies"),
    ("C5", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C7", "group::never_two_servers_renew_and_one_serves_when_all_is_mended"),
    ("C8", "group::never_two_servers_renew_while_servers_are_added_and_removed"),
    ("C9", "group::never_two_servers_renew_while_servers_are_added_and_removed"),
];

/// Whether a scenario passes with this bug.
fn passes(bug: &str, scenario: &str) -> bool {
    let binary = std::env::current_exe().expect("a test knows its own binary");
    let mut command = Command::new(binary);
    command.args(["--exact", scenario]).env("CISTERN_BUG", bug).env("RUST_BACKTRACE", "0");
    if bug.starts_with('S') {
        command.env("CISTERN_SEALED", "1");
    }
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed") || text.contains("1 failed"), "{scenario} is no scenario: {text}");
    output.status.success()
}

#[test]
fn every_bug_fails_the_scenario_that_is_about_it() {
    let missed: Vec<_> = MINDED_BY.iter().filter(|(bug, scenario)| passes(bug, scenario)).collect();
    assert!(missed.is_empty(), "{missed:?}");
    let failing: Vec<_> = MINDED_BY.iter().filter(|(_, scenario)| !passes("none", scenario)).collect();
    assert!(failing.is_empty(), "without a bug, too: {failing:?}");
}

#[test]
fn every_bug_has_its_scenario() {
    let elsewhere = ["M54", "M55"];
    let built: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    let without = built.iter().filter(|bug| !elsewhere.contains(bug) && MINDED_BY.iter().all(|(of, _)| of != *bug));
    assert_eq!(without.collect::<Vec<_>>(), Vec::<&&str>::new());
    let unknown = MINDED_BY.iter().filter(|(bug, _)| !built.contains(bug));
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());
}
