//! The ledger of deliberate bugs: which there are, under which faults each is looked for, and how soon it was found.
//!
//! Decides what counts as caught: in every campaign a violation within the seeds and the time allowed. A bug that one campaign misses
//! is missed. Invariant: exactly one bug is on while its campaigns run, and none afterwards. The page that is written is made from
//! what was seen and from nothing else.
//! Leaves to others: single campaigns (`bugs`), smaller failures (`shrink`), what each bug does (`cistern_link::bugs`).

use crate::bugs::campaign;
use crate::observe::Violation;
use crate::plan::{Plan, Profile};
use crate::report;
use crate::run::run;
use crate::shrink::{Limits, shrink};
use cistern_link::bugs::{Bug, choose};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seeds between the beginnings of two campaigns: more than any of them may use.
const STRIDE: u64 = 1_000_000;

/// A bug of the list that is not built, and why.
pub const NOT_BUILT: &[(&str, &str, &str)] = &[
    ("M10b", "the lease clock is the wall clock", "the cores are never given the wall clock for a lease; a look at the driver shows it"),
    ("M15", "keep-alives are answered by the network thread", "there is no network thread: one loop receives, works and answers"),
    ("M21", "a downgrade is answered before dirty data is flushed", "there is no write-back before the mount"),
    (
        "M28b",
        "kept replies are found without comparing the request",
        "no agent sends two requests under one nonce; packet scripts of the server do",
    ),
    (
        "F2",
        "debt is forgiven who had nothing to do for a while",
        "no script shows it yet; the scheduler's own tests do (`cargo test -p cistern-server --lib scheduler`)",
    ),
    ("M33", "a deposed server goes on", "in a group it is C2, behind whose fence it writes nothing"),
    ("M44", "a node of a replicated lease rejoins too early", "`cargo test -p cistern-flease --features bugs --test bugs`"),
    ("M45", "a promoted replica serves too early", "it is C1"),
    ("M50", "a forged message is believed", "plain mode has no proof of a message; in the sealed mode it is S1"),
    ("M52", "one replay window for two keys", "numbers go on through all keys of a session, which has one window by design"),
    (
        "S17",
        "cookies stay good over an early change of the sets of used ones",
        "no run uses 57,344 cookies; tests of the cookies do (`cargo test -p cistern-seal`)",
    ),
    ("B3", "demands are bounded for all in common", "no script asks for so much; `cargo test -p cistern-server --lib owners` does"),
    ("B4", "staged bytes count as they are announced", "`cargo test -p cistern-server --lib staging`"),
    ("K3", "a restored store forgets revocations", "`cargo test --test system revoked`: a key stays revoked whatever is restored or lost"),
    (
        "M54",
        "bytes behind the last field are ignored",
        "no sender makes such bytes; the codec's own tests do (`cargo test -p cistern-wire`)",
    ),
];

/// Bugs that scenarios alone find: users that are drawn may all do everything, begin no realms, and seldom ask for more than there is time or
/// room for; nobody withdraws a key. Groups and joining are worlds of their own.
pub const SCRIPTED: &[(Bug, &str)] = &[
    (Bug::B1, "a share bounds nothing"),
    (Bug::B2, "strikes end with the session"),
    (Bug::B3, "one host uses up what strangers may be answered"),
    (Bug::F3, "requests are executed as they come whatever their host owes"),
    (Bug::F4, "control messages cost nothing"),
    (Bug::S10, "the handshake of a revoked key goes through"),
    (Bug::S11, "a revocation frees locks at once"),
    (Bug::S14, "forgeries wear no key out"),
    (Bug::R1, "a name leads from one realm into another"),
    (Bug::R2, "a quota bounds nothing"),
    (Bug::R3, "what a realm holds counts in itself alone"),
    (Bug::R4, "rights are checked by path, not by number"),
    (Bug::R5, "rights are looked up once for a session"),
    (Bug::R6, "a realm is moved by who may write around it"),
    (Bug::R7, "locks that are hidden are listed"),
    (Bug::R8, "a lock guards that may not be read"),
    (Bug::R9, "withdrawn rights leave caches"),
    (Bug::R20, "a key that was withdrawn resumes its sessions"),
    (Bug::R21, "a session that has ended is resumed"),
    (Bug::C1, "a standby takes over without waiting"),
    (Bug::C2, "a server answers after the end of its lease of the group"),
    (Bug::C3, "what was known is kept over a lapse"),
    (Bug::C4, "grace counts from before the election"),
    (Bug::C6, "every hint of who serves is followed"),
    (Bug::C7, "grace is not whole at the second take-over"),
    (Bug::C8, "servers are changed again before that is agreed on"),
    (Bug::C9, "what was granted is forgotten when servers are changed"),
    (Bug::K1, "an invite is spent before the key is registered"),
    (Bug::K2, "a second key is admitted by a spent invite"),
];

/// The bugs for which campaigns look.
#[must_use]
pub fn drawn() -> Vec<Bug> {
    Bug::ALL.iter().copied().filter(|bug| SCRIPTED.iter().all(|(scripted, _)| scripted != bug)).collect()
}

/// What is run for each bug.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The bugs.
    pub bugs: Vec<Bug>,
    /// Campaigns for each.
    pub campaigns: u64,
    /// Most seeds of a campaign.
    pub seeds: u64,
    /// Most time of a campaign.
    pub budget: Duration,
    /// Threads.
    pub jobs: usize,
    /// Whether a failure of each bug is shrunk to a minimal scenario.
    pub shrink: bool,
}

/// What came of one bug.
#[derive(Clone, Debug)]
pub struct Row {
    /// The bug.
    pub bug: Bug,
    /// Where it was looked for.
    pub profile: Profile,
    /// Seeds to detect of each campaign that found it, ascending.
    pub seeds: Vec<u64>,
    /// Campaigns that found nothing.
    pub missed: u64,
    /// Which checks fired, how often.
    pub checks: BTreeMap<String, u64>,
    /// The smallest failing run known, and what failed in it.
    pub minimal: Option<(Plan, Violation)>,
}

impl Row {
    /// Whether every campaign found it.
    #[must_use]
    pub fn caught(&self) -> bool {
        self.missed == 0 && !self.seeds.is_empty()
    }

    /// Seeds to detect in the middle campaign.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        self.seeds.get(self.seeds.len() / 2).copied()
    }
}

/// Where a bug is looked for, and the mistake in words.
#[must_use]
pub const fn about(bug: Bug) -> (Profile, &'static str) {
    use Profile::{Attack, Calm, Clocks, Crash, Disk, Kinds, Lossy, Partition, Pauses, Restart, Swarm};
    match bug {
        Bug::M1 => (Clocks, "lease counted from the receipt of the answer"),
        Bug::M2 => (Clocks, "lease counted from the last transmission"),
        Bug::M3 => (Clocks, "server's timer without δ"),
        Bug::M3b => (Clocks, "δ lengthens the lease instead of the timer"),
        Bug::M3c => (Clocks, "server's timer rounded down"),
        Bug::M4 => (Partition, "a session that is timing out is answered"),
        Bug::M5 => (Partition, "timer counted from the first demand"),
        Bug::M6 => (Partition, "locks taken as soon as the demand failed"),
        Bug::M7 => (Kinds, "the lease is renewed by a demand"),
        Bug::M8 => (Restart, "answers of a former session renew"),
        Bug::M9 => (Pauses, "lease checked only at the start of an operation"),
        Bug::M10 => (Pauses, "lease clock stands still in sleep"),
        Bug::M11 => (Partition, "cache kept over the end of the session"),
        Bug::M12 => (Partition, "NACK ignored by the agent"),
        Bug::M13 => (Partition, "a failed session is taken back when its NACK is sent"),
        Bug::M14 => (Partition, "any packet cancels the timer"),
        Bug::M16 => (Kinds, "a grant is installed that was demanded before"),
        Bug::M17 => (Partition, "a waiter of a failed session is granted the lock"),
        Bug::M18 => (Swarm, "a new acquire gets the old generation"),
        Bug::M19 => (Kinds, "a release frees whatever generation is held"),
        Bug::M20 => (Swarm, "a receipt of a demand counts as the release"),
        Bug::M22 => (Partition, "a failed demand is given up without a timer"),
        Bug::M23 => (Swarm, "shared requests pass a waiting exclusive one"),
        Bug::M24 => (Partition, "a steal leaves the session in good standing"),
        Bug::M25 => (Kinds, "a repeated request gets a second place in the queue"),
        Bug::M26 => (Swarm, "names kept when the directory's lock goes"),
        Bug::M27 => (Kinds, "kept replies dropped by count"),
        Bug::M28 => (Crash, "a new session begins with the former one's kept replies"),
        Bug::M29 => (Disk, "a duplicate of an executing request is executed"),
        Bug::M30 => (Kinds, "a request below the floor is executed"),
        Bug::M31 => (Restart, "a mutation's outcome is not in its transaction"),
        Bug::M32 => (Kinds, "error replies are not kept"),
        Bug::M34 => (Restart, "tokens begin anew at a restart"),
        Bug::M35 => (Restart, "grace shorter than T"),
        Bug::M36 => (Restart, "locks granted in grace"),
        Bug::M37 => (Restart, "the end of a session is not durable before the next grant"),
        Bug::M38 => (Restart, "an agent that missed a grace may reclaim in the next"),
        Bug::M38b => (Restart, "reclaims accepted after RECLAIM_COMPLETE"),
        Bug::M39 => (Restart, "session record written after the session was opened"),
        Bug::M40 => (Disk, "mutations answered before they are durable"),
        Bug::M41 => (Disk, "a failed write counts as done"),
        Bug::M42 => (Restart, "incarnation raised in memory only"),
        Bug::M43 => (Pauses, "the server's own stall counts against its agents"),
        Bug::M46 => (Calm, "a lease timer for every session"),
        Bug::M47 => (Swarm, "a cancelled waiter stays in the queue"),
        Bug::M48 => (Disk, "keep-alives shed under load"),
        Bug::M49 => (Partition, "retransmissions without back-off"),
        Bug::M51 => (Swarm, "replay window off by one"),
        Bug::M53 => (Restart, "an answer without a session larger than its cause"),
        Bug::M55 => (Calm, "behaviour depends on what the process did before"),
        Bug::T1 => (Restart, "the locks of a long session are granted without a record of them"),
        Bug::T2 => (Restart, "the common grace ends long sessions, too"),
        Bug::T3 => (Swarm, "the timer of a longer lease runs for T of the server's own"),
        Bug::L1 => (Calm, "renewals are noted although last-heard is off"),
        Bug::H1 => (Lossy, "a session that its agent continues is taken as lost"),
        Bug::H2 => (Lossy, "KNOWN renews the lease"),
        Bug::H3 => (Lossy, "only the first CONFIRM is answered KNOWN"),
        Bug::H4 => (Lossy, "HELLO ends the sessions of its agent"),
        Bug::H5 => (Calm, "WELCOME renews the lease"),
        Bug::H6 => (Attack, "a half-open session is opened by whatever comes first"),
        Bug::S1 => (Attack, "a record that does not open acts"),
        Bug::S2 => (Attack, "a packet number is noted before its record opens"),
        Bug::S3 => (Attack, "a record that does not open moves its session"),
        Bug::S4 => (Attack, "a cookie pays for many Diffie-Hellman computations"),
        Bug::S5 => (Restart, "an ephemeral key is kept over a second CHALLENGE"),
        Bug::S6 => (Partition, "copies to former addresses reuse a packet number"),
        Bug::S7 => (Partition, "an ended session's packet numbers begin anew"),
        Bug::S8 => (Calm, "both directions have one key"),
        Bug::S12 => (Attack, "a session is given up because of a HINT"),
        Bug::S13 => (Lossy, "an old key is gone when the next generation begins"),
        Bug::S9 => (Lossy, "a side begins generations without hearing in the present one"),
        Bug::S15 => (Attack, "a key phase is believed although its record does not open"),
        Bug::S16 => (Lossy, "the next key is tried before the old one"),
        Bug::U1 => (Calm, "packet numbers begin with 1"),
        Bug::E1 => (Partition, "ephemeral files go when their session fails"),
        Bug::E2 => (Restart, "a reclaim does not take ephemeral files over"),
        Bug::Q1 => (Kinds, "a cancellation does not name the grant whose answer was lost"),
        Bug::P1 => (Crash, "a waiter is granted a lock without being asked whether it is there"),
        Bug::W1 => (Disk, "a change is told before it is durable"),
        Bug::W2 => (Partition, "watches of a former session are counted on"),
        Bug::G1 => (Swarm, "the token of a user who has given the lock back is let through"),
        Bug::A1 => (Attack, "messages from an address that is not proven act"),
        Bug::A2 => (Attack, "an agent takes datagrams of any address"),
        Bug::A3 => (Attack, "a cookie is good for any agent at its address"),
        Bug::A4 => (Attack, "\"surrendered\" is believed from any address"),
        Bug::A5 => (Attack, "an incarnation far above the last is believed"),
        Bug::A6 => (Attack, "a reclaim of what was never granted is believed"),
        Bug::A7 => (Attack, "a packet number far above the highest is believed"),
        Bug::A8 => (Attack, "a floor far above the last is believed"),
        Bug::C5 => (Restart, "a hint renews the lease"),
        Bug::F1 => (Swarm, "a request that is shed counts as executing"),
        Bug::N2 => (Clocks, "a named lease's time without δ"),
        Bug::N3 => (Calm, "a named lease that is kept goes on running out"),
        Bug::N4 => (Restart, "a start gives named leases no time"),
        Bug::N5 => (Calm, "the record of a named lease outlives its end"),
        Bug::N6 => (Swarm, "what cannot go with a named lease at once stays"),
        Bug::N7 => (Calm, "the secret of a named lease is not compared"),
        Bug::N8 => (Calm, "a named lease that is kept lasts twice as long"),
        Bug::N1 => (Swarm, "a locked file's name is moved away"),
        Bug::B1
        | Bug::B2
        | Bug::B3
        | Bug::F3
        | Bug::F4
        | Bug::S10
        | Bug::S11
        | Bug::S14
        | Bug::R1
        | Bug::R2
        | Bug::R3
        | Bug::R4
        | Bug::R5
        | Bug::R6
        | Bug::R7
        | Bug::R8
        | Bug::R9
        | Bug::R20
        | Bug::R21
        | Bug::C1
        | Bug::C2
        | Bug::C3
        | Bug::C4
        | Bug::C6
        | Bug::C7
        | Bug::C8
        | Bug::C9
        | Bug::K1
        | Bug::K2 => (Calm, "found by scenarios"),
    }
}

/// Looks for every bug; `progress` hears of each row.
pub fn look(terms: &Terms, progress: &mut dyn FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    for bug in &terms.bugs {
        choose(Some(*bug));
        let row = look_for(*bug, terms);
        choose(None);
        progress(&row);
        rows.push(row);
    }
    rows
}

fn look_for(bug: Bug, terms: &Terms) -> Row {
    let profile = about(bug).0;
    let row = Row { bug, profile, seeds: Vec::new(), missed: 0, checks: BTreeMap::new(), minimal: None };
    let (next, row) = (AtomicU64::new(0), Mutex::new(row));
    std::thread::scope(|scope| {
        for _ in 0..terms.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= terms.campaigns {
                        return;
                    }
                    let from = number * STRIDE;
                    // Only a second run of the same seed can tell that the first did not depend on the seed alone.
                    let twice_every = u64::from(bug == Bug::M55);
                    let found = campaign(profile, from..from + terms.seeds, terms.budget, twice_every);
                    let mut row = row.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let Some((plan, violation)) = found.first else {
                        row.missed += 1;
                        continue;
                    };
                    row.seeds.push(found.seeds);
                    *row.checks.entry(format!("{} {}", violation.invariant, violation.check)).or_default() += 1;
                    if number == 0 {
                        row.minimal = Some((plan, violation));
                    }
                }
            });
        }
    });
    let mut row = row.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    row.seeds.sort_unstable();
    if terms.shrink
        && let Some((plan, violation)) = row.minimal.take()
    {
        let limits = Limits { runs: 150, time: Duration::from_secs(10) };
        let smaller = shrink(&plan, &violation, limits, &mut |plan| run(plan, None).violation);
        row.minimal = Some((smaller.plan, smaller.violation));
    }
    row
}

/// One row for a terminal.
#[must_use]
pub fn line(row: &Row) -> String {
    let checks: Vec<&str> = row.checks.keys().map(String::as_str).collect();
    let verdict = if row.caught() { "caught" } else { "MISSED" };
    let median = row.median().map_or_else(|| "-".to_owned(), |median| median.to_string());
    let worst = row.seeds.last().map_or_else(|| "-".to_owned(), ToString::to_string);
    format!("{:<5} {verdict}  {:<9} median {median:>4} worst {worst:>4}  {}", row.bug.name(), row.profile.name(), checks.join(", "))
}

/// The last line: how many were caught, missed, and are not built.
#[must_use]
pub fn verdict(rows: &[Row]) -> String {
    let caught = rows.iter().filter(|row| row.caught()).count();
    format!("{caught} caught, {} missed, {} not built", rows.len() - caught, NOT_BUILT.len())
}

/// The rows as JSON.
#[must_use]
pub fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "bug": row.bug.name(),
            "mistake": about(row.bug).1,
            "profile": row.profile,
            "caught": row.caught(),
            "campaigns_missed": row.missed,
            "seeds": row.seeds,
            "median": row.median(),
            "checks": row.checks,
            "minimal": row.minimal.as_ref().map(|(plan, violation)| report::failure_json(plan, violation)),
        })
    };
    let not_built: Vec<Value> = NOT_BUILT.iter().map(|(bug, mistake, why)| json!({ "bug": bug, "mistake": mistake, "why": why })).collect();
    json!({ "bugs": rows.iter().map(row).collect::<Vec<_>>(), "not_built": not_built, "verdict": verdict(rows) })
}

/// The page `BUGS.md`.
#[must_use]
pub fn page(rows: &[Row], terms: &Terms) -> String {
    let mut text = format!(
        "# Deliberate bugs\n\n\
         Each is a mistake that lease protocols are made with, compiled into the cores for this purpose alone (`cistern_link::bugs`).\n\
         The simulator must find every one. This page is written by\n\n\
         ```sh\ncargo run --release -p cistern-sim --features bugs -- bugs --campaigns {} --seeds {} --duration {}s --write tools/sim/BUGS.md\n```\n\n\
         Seeds to detect: how many runs it took until a judge or an assertion of a core spoke, in {} campaigns of at most {} seeds.\n\
         \"core assertion\" is an assertion that stays on in release builds.\n\n\
         | bug | mistake | profile | check that fired | median | worst | smallest failing run |\n|---|---|---|---|---|---|---|\n",
        terms.campaigns,
        terms.seeds,
        terms.budget.as_secs(),
        terms.campaigns,
        terms.seeds
    );
    for row in rows {
        let mut checks: Vec<(&String, &u64)> = row.checks.iter().collect();
        checks.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let checks: Vec<String> = checks.iter().map(|(check, count)| format!("{check} ({count})")).collect();
        let median = row.median().map_or_else(|| "-".to_owned(), |median| median.to_string());
        let worst = match (row.missed, row.seeds.last()) {
            (0, Some(worst)) => worst.to_string(),
            (missed, _) => format!("missed by {missed}"),
        };
        let minimal = row.minimal.as_ref().map_or_else(String::new, |(plan, _)| scenario(plan));
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {median} | {worst} | {minimal} |",
            row.bug.name(),
            about(row.bug).1,
            row.profile,
            checks.join(", ")
        );
    }
    text.push_str("\nFound by scenarios alone (`tests/scenarios/group.rs`, `joining.rs`, `realms.rs`, `rights.rs`, `sealed.rs`, `shares.rs`, `turns.rs`): drawn users may all do everything, begin no realms, and seldom ask for more than there is time or room for; nobody withdraws a key; groups and joining are worlds of their own:\n\n| bug | mistake |\n|---|---|\n");
    for (bug, mistake) in SCRIPTED {
        // Writing into a string does not fail.
        let _ = writeln!(text, "| {} | {mistake} |", bug.name());
    }
    text.push_str("\nNot built, and why:\n\n| bug | mistake | why |\n|---|---|---|\n");
    for (bug, mistake, why) in NOT_BUILT {
        let _ = writeln!(text, "| {bug} | {mistake} | {why} |");
    }
    let _ = writeln!(text, "\n{}", verdict(rows));
    text
}

/// A failing run in a few words.
fn scenario(plan: &Plan) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &plan.faults {
        *kinds.entry(fault.what.name()).or_default() += 1;
    }
    let kinds: Vec<String> =
        kinds.iter().map(|(name, count)| if *count == 1 { (*name).to_owned() } else { format!("{count} × {name}") }).collect();
    let faults = if kinds.is_empty() { "no fault".to_owned() } else { kinds.join(", ") };
    format!("seed {}: {} agents, {} s, {faults}", plan.seed, plan.agents, plan.heal_ns.div_ceil(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_words_and_the_rest_of_the_list_has_reasons() {
        for bug in Bug::ALL {
            assert!(!about(*bug).1.is_empty(), "{}", bug.name());
        }
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).chain(NOT_BUILT.iter().map(|row| row.0)).collect();
        for number in 1..=55 {
            assert!(names.iter().any(|name| *name == format!("M{number}")), "M{number} is in neither list");
        }
    }

    #[test]
    fn a_bug_that_one_campaign_missed_is_missed() {
        let row = |missed| Row { bug: Bug::M1, profile: Profile::Calm, seeds: vec![3], missed, checks: BTreeMap::new(), minimal: None };
        assert!(row(0).caught() && !row(1).caught());
        assert_eq!(verdict(&[row(0), row(1)]), format!("1 caught, 1 missed, {} not built", NOT_BUILT.len()));
    }
}
