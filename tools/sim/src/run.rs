//! One run, whatever becomes of it: a plan goes in, an outcome comes out, also when a core's assertion fails.
//!
//! Decides that a panic in a core is a violation like any other, with the text and the place of the assertion. Place: around `world`.
//! Invariant: a run leaves nothing behind that another could see.
//! Leaves to others: what happens in the run (`world`), what to do with a violation (`campaign`, `shrink`).

use crate::counters::Counters;
use crate::net::NetCounts;
use crate::observe::Violation;
use crate::plan::Plan;
use crate::trace::Trace;
use crate::world::{Outcome, World};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// What the last panic on this thread said, while a run is on.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether a run is on.
    static RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a plan to its end or to its first violation.
#[must_use]
pub fn run(plan: &Plan, trace: Option<&mut Trace>) -> Outcome {
    catch_panics();
    RUNNING.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| World::new(plan, trace).run()));
    RUNNING.set(false);
    result.unwrap_or_else(|_| {
        let what = PANIC.take().unwrap_or_else(|| "a panic without words".to_owned());
        Outcome {
            hash: 0,
            sim_ns: 0,
            steps: 0,
            commands: 0,
            net: NetCounts::default(),
            heal_ppm: 0,
            violation: Some(Violation { invariant: "core", check: "assertion", what }),
            counters: Counters::default(),
        }
    })
}

/// Panics of runs are kept, all others go where they went before.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if RUNNING.with_borrow(|running| *running) {
                let place = info.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
                let text = info.payload_as_str().unwrap_or("a panic");
                PANIC.set(Some(format!("{text}{place}")));
            } else {
                before(info);
            }
        }));
    });
}
