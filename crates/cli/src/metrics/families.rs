//! Which metrics there are: the one list of names, helps and values.
//!
//! Decides: names (base units, `_total` for what only grows), labels, and which figure each shows. `docs/operating.md` has the same
//! list with what to do about each; a test compares them. Invariant: a family is always there, also while nothing was counted.
//! Leaves to others: how they look (`text`), what the system says of the process (`process`).

use super::{Family, Figure, Sample, Snapshot, Type};
use cistern_driver::stats::Counts;
use cistern_server::stats::{Commits, Histogram, KindServed};
use cistern_server::{Figures, Stats, Status};
use cistern_store::CommitStats;
use cistern_wire::{Kind, RefuseReason};
use serde_json::{Map, Value, json};
use std::time::Duration;

use Figure::{Nanoseconds, Whole};
use Type::Gauge;

/// Every family, of the server and its driver.
pub(crate) fn all(snapshot: &Snapshot) -> Vec<Family> {
    let figures = &snapshot.figures;
    let mut all = Vec::with_capacity(96);
    server(&figures.status, &mut all);
    sessions(figures, &mut all);
    locks(figures, &mut all);
    requests(&figures.stats, &mut all);
    store(figures, &mut all);
    commits(&figures.stats.commits, &mut all);
    if let Some(store) = &snapshot.store {
        engine(store, &mut all);
    }
    traffic(&figures.stats, &snapshot.driver, &mut all);
    all
}

/// The same as JSON: by name, the samples with their labels.
pub(crate) fn as_json(families: &[Family]) -> Value {
    let sample = |sample: &Sample| {
        let labels: Map<String, Value> = sample.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let value = match sample.value {
            Whole(n) => json!(n),
            Nanoseconds(ns) => json!(Duration::from_nanos(ns).as_secs_f64()),
        };
        json!({ "part": sample.suffix, "labels": labels, "value": value })
    };
    let family = |family: &Family| {
        let samples: Vec<_> = family.samples.iter().map(sample).collect();
        (family.name.clone(), json!({ "type": super::text::type_name(family.kind), "help": family.help, "samples": samples }))
    };
    Value::Object(families.iter().map(family).collect())
}

fn one(all: &mut Vec<Family>, kind: Type, name: &str, value: Figure, help: &'static str) {
    labelled(all, kind, name, help, [(Vec::new(), value)]);
}

fn gauge(all: &mut Vec<Family>, name: &str, value: usize, help: &'static str) {
    one(all, Gauge, name, Whole(value as u64), help);
}

fn total(all: &mut Vec<Family>, name: &str, value: u64, help: &'static str) {
    one(all, Type::Counter, name, Whole(value), help);
}

type Labels = Vec<(&'static str, String)>;

fn labelled(all: &mut Vec<Family>, kind: Type, name: &str, help: &'static str, values: impl IntoIterator<Item = (Labels, Figure)>) {
    let samples = values.into_iter().map(|(labels, value)| Sample { suffix: "", labels, value }).collect();
    all.push(Family { name: format!("cistern_{name}"), kind, help, samples });
}

/// The samples of a histogram.
fn parts<const N: usize>(of: &Histogram<N>, labels: &Labels, unit: fn(u64) -> Figure, samples: &mut Vec<Sample>) {
    let mut push = |suffix, bound: Option<String>, value| {
        let labels = labels.iter().cloned().chain(bound.map(|bound| ("le", bound))).collect();
        samples.push(Sample { suffix, labels, value });
    };
    for (bound, count) in of.up_to() {
        push("_bucket", Some(super::text::number(unit(bound))), Whole(count));
    }
    push("_bucket", Some("+Inf".to_owned()), Whole(of.count()));
    push("_sum", None, unit(of.sum()));
    push("_count", None, Whole(of.count()));
}

fn nanoseconds(span: Duration) -> Figure {
    Nanoseconds(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn server(status: &Status, all: &mut Vec<Family>) {
    let id = &status.identity;
    let labels = vec![
        ("store", id.store.to_string()),
        ("epoch", id.epoch.to_string()),
        ("incarnation", id.incarnation.to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    labelled(all, Gauge, "server_info", "Who the server is; always 1.", [(labels, Whole(1))]);
    one(all, Gauge, "uptime_seconds", nanoseconds(status.uptime), "Since the server was started.");
    gauge(all, "serving", usize::from(status.serving), "1 while requests are executed; 0 before the store was read and after it failed.");
    gauge(all, "grace", usize::from(status.grace.is_some()), "1 in the grace after a restart, in which no locks are granted.");
    gauge(all, "grace_awaited_sessions", status.grace.map_or(0, |grace| grace.awaited), "Sessions of before the restart that are awaited.");
    one(all, Gauge, "lease_seconds", nanoseconds(status.lease), "The lease period.");
    one(
        all,
        Type::Counter,
        "stalled_seconds_total",
        nanoseconds(status.stalled),
        "Time by which the loop came later than it had planned, so that no timeout ran.",
    );
}

fn sessions(figures: &Figures, all: &mut Vec<Family>) {
    let (status, stats) = (&figures.status, &figures.stats);
    let (opening, over) = figures.opening_and_over;
    let standing = [("opening", opening), ("good", status.sessions), ("timing_out", status.timing_out), ("over", over)];
    let values = standing.map(|(name, count)| (vec![("standing", name.to_owned())], Whole(count as u64)));
    labelled(all, Gauge, "sessions", "Sessions by standing; timing_out is all the lease state there is.", values);
    total(all, "sessions_opened_total", stats.welcomes, "Sessions opened.");
    let refused = |reason: &RefuseReason| (vec![("reason", format!("{reason:?}").to_lowercase())], Whole(stats.refused(*reason)));
    labelled(all, Type::Counter, "handshakes_refused_total", "Handshakes refused, by reason.", RefuseReason::ALL.iter().map(refused));
    total(all, "session_moves_total", stats.moves, "Sessions that went on from another address.");
    total(
        all,
        "delivery_failures_total",
        stats.failures,
        "Messages of the server's own that were not acknowledged in time, or not complied with.",
    );
    total(all, "rescues_total", stats.rescues, "Sessions timing out that were taken back, since what was missing came after all.");
    total(all, "steals_total", stats.steals, "Sessions whose locks were taken when their lease was certainly over.");
    total(all, "suspected_clones_total", stats.clones, "Superseded sessions that went on sending: copies of an agent, perhaps.");
    total(all, "reclaim_conflicts_total", stats.reclaim_conflicts, "Locks that two agents claimed after a restart.");
    gauge(all, "silence_deadlines", figures.listening, "Deadlines by which somebody must be heard: none while nobody waits for anybody.");
}

fn locks(figures: &Figures, all: &mut Vec<Family>) {
    let counts = &figures.locks;
    gauge(all, "locks", counts.held, "Locks held, cache locks and advisory ones.");
    gauge(all, "lock_waiters", counts.waiters, "Lock requests that wait.");
    gauge(all, "lock_mutations", counts.mutations, "Mutations that wait for cache locks, or execute.");
    gauge(all, "demands_outstanding", counts.demands_outstanding, "Cache locks that were demanded back and have not come yet.");
    total(all, "demands_total", counts.demands, "Demands sent.");
}

fn requests(stats: &Stats, all: &mut Vec<Family>) {
    let result = |of: &KindServed| {
        let kind = of.kind();
        of.results()
            .map(move |(result, count)| (vec![("kind", kind.name().to_owned()), ("result", result.to_owned())], Whole(count)))
            .collect::<Vec<_>>()
    };
    let results = stats.served.kinds().iter().flat_map(result);
    labelled(all, Type::Counter, "requests_total", "Requests by kind and result; QUEUED waits for a lock, DROPPED got no answer.", results);
    let mut samples = Vec::new();
    for of in stats.served.kinds().iter().filter(|of| of.waits().count() > 0) {
        parts(of.waits(), &vec![("kind", of.kind().name().to_owned())], Nanoseconds, &mut samples);
    }
    let help = "From the receipt of a request to its answer, as far as it waited: for locks, for the store.";
    all.push(Family { name: "cistern_request_wait_seconds".to_owned(), kind: Type::Histogram, help, samples });
    total(all, "requests_begun_total", stats.requests, "Requests begun, each once.");
    total(all, "requests_repeated_total", stats.repeated, "Duplicates of requests, answered from the reply cache or told to wait.");
}

fn store(figures: &Figures, all: &mut Vec<Family>) {
    let (status, memory) = (&figures.status, &figures.memory);
    one(all, Gauge, "stored_objects", Whole(figures.objects), "Files, directories and links in the namespace.");
    one(all, Gauge, "stored_content_bytes", Whole(figures.content_bytes), "Sum of the sizes of all files and links.");
    gauge(all, "memory_objects", memory.objects, "Objects in memory.");
    gauge(all, "memory_directories", memory.directories, "Directories in memory, in whole or in part.");
    gauge(all, "memory_blocks", memory.blocks, "Blocks of contents in memory.");
    gauge(all, "memory_bytes", memory.bytes, "Memory that they take.");
    gauge(all, "memory_max_bytes", memory.bytes_max, "The bound on that.");
    gauge(all, "loads_outstanding", memory.asked, "Questions that the store has not answered.");
    gauge(all, "operations_parked", status.parked, "Operations that wait, for the store or for locks.");
    gauge(all, "replies_held", status.held, "Replies and other messages that wait for the store.");
}

fn commits(commits: &Commits, all: &mut Vec<Family>) {
    total(all, "batches_total", commits.batches, "Batches of writes handed to the store: one for each turn that changed something.");
    total(all, "batch_writes_total", commits.writes, "Keys that they wrote.");
    total(all, "batch_bytes_total", commits.bytes, "Bytes of the keys and values that they wrote.");
    gauge(all, "batches_flying", commits.flying(), "Batches that are not durable yet.");
    let mut samples = Vec::new();
    parts(commits.sizes(), &Labels::new(), Whole, &mut samples);
    let help = "How many batches became durable together.";
    all.push(Family { name: "cistern_commit_batches".to_owned(), kind: Type::Histogram, help, samples });
    let mut samples = Vec::new();
    parts(commits.times(), &Labels::new(), Nanoseconds, &mut samples);
    let help = "From the handing over of a batch until it was durable.";
    all.push(Family { name: "cistern_commit_seconds".to_owned(), kind: Type::Histogram, help, samples });
}

/// What a store in a directory tells of itself.
fn engine(store: &CommitStats, all: &mut Vec<Family>) {
    total(all, "store_reads_total", store.reads, "Questions that the store has answered.");
    total(
        all,
        "store_failed_reads_total",
        store.failed_reads,
        "Questions that it could not answer: what is there is damaged, or the disk fails.",
    );
    one(all, Gauge, "store_used_bytes", Whole(store.used), "Bytes that the store takes on disk.");
    one(all, Gauge, "store_free_bytes", Whole(store.free), "Bytes that are free on its file system.");
    one(all, Gauge, "store_room", Whole(u64::from(store.room)), "1 while there is room; 0 while only reads, locks and removals go on.");
    let help = "How long each transaction took, its sync included.";
    powers(all, "store_commit_seconds", help, &store.spans, |us| Nanoseconds(us.saturating_mul(1_000)), Nanoseconds(store.nanos));
    total(all, "store_written_bytes_total", store.bytes, "Bytes of the keys and values in them.");
}

/// A histogram that was counted by powers of two: part n is below 2^(n+1), the last one is without a bound.
fn powers(all: &mut Vec<Family>, name: &str, help: &'static str, counts: &[u64], unit: fn(u64) -> Figure, sum: Figure) {
    let mut total = 0;
    let mut samples = Vec::with_capacity(counts.len() + 2);
    let mut push = |suffix, bound: Option<String>, value| {
        samples.push(Sample { suffix, labels: bound.map(|bound| ("le", bound)).into_iter().collect(), value });
    };
    for (n, count) in counts.iter().enumerate() {
        total += count;
        let bound = if n + 1 == counts.len() { "+Inf".to_owned() } else { super::text::number(unit(2 << n)) };
        push("_bucket", Some(bound), Whole(total));
    }
    push("_sum", None, sum);
    push("_count", None, Whole(total));
    all.push(Family { name: format!("cistern_{name}"), kind: Type::Histogram, help, samples });
}

fn traffic(stats: &Stats, driver: &Counts, all: &mut Vec<Family>) {
    let (received, sent) = (stats.received(), stats.transmitted());
    total(all, "datagrams_received_total", received.0, "Datagrams received.");
    total(all, "datagrams_sent_total", sent.0, "Datagrams sent.");
    total(all, "received_bytes_total", received.1, "Bytes of UDP payload received.");
    total(all, "sent_bytes_total", sent.1, "Bytes of UDP payload sent.");
    let by_kind = |count: &dyn Fn(Kind) -> u64| -> Vec<_> {
        let counted = Kind::ALL.iter().map(|kind| (kind, count(*kind))).filter(|counted| counted.1 > 0);
        counted.map(|(kind, count)| (vec![("kind", kind.name().to_owned())], Whole(count))).collect()
    };
    let help = "Messages received in valid datagrams, by kind; duplicates included.";
    labelled(all, Type::Counter, "messages_received_total", help, by_kind(&|kind| stats.messages_in(kind)));
    let help = "Messages sent, by kind; retransmissions included.";
    labelled(all, Type::Counter, "messages_sent_total", help, by_kind(&|kind| stats.messages_out(kind)));
    let protocol = stats.drops().map(|(reason, count)| ("protocol", reason, count));
    let entries = driver.entries();
    let drops = entries.iter().filter_map(|(name, count)| Some(("driver", name.strip_prefix("dropped_")?, *count)));
    let drops = protocol.chain(drops.filter(|drop| drop.2 > 0));
    let sample =
        |(layer, reason, count): (&str, &str, u64)| (vec![("layer", layer.to_owned()), ("reason", reason.to_owned())], Whole(count));
    labelled(all, Type::Counter, "drops_total", "Datagrams and messages dropped, by reason.", drops.map(sample));
    let events = [
        ("receive_error", driver.receive_errors),
        ("send_would_block", driver.send_would_block),
        ("icmp_unreachable", driver.icmp_unreachable),
        ("icmp_too_big", driver.icmp_too_big),
        ("icmp_other", driver.icmp_other),
    ];
    let values = events.map(|(event, count)| (vec![("event", event.to_owned())], Whole(count)));
    labelled(all, Type::Counter, "socket_events_total", "What the sockets met that is not a datagram.", values);
    let help = "Datagrams that the system dropped because a socket's queue was full.";
    total(all, "socket_overflow_total", driver.receive_overflows, help);
    total(all, "loop_turns_total", driver.turns, "Turns of the server's loop; an idle one makes none.");
}
