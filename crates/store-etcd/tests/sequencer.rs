//! The writer against a model of etcd: random schedules of losses, delays, repetitions, changes of servers, restores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod model;

use model::World;

#[test]
fn what_is_durable_is_a_prefix_of_what_was_executed_under_any_order_of_answers() {
    for seed in 0..1_000 {
        World::new(seed).run(300).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}
