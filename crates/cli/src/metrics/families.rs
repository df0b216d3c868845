//! Which metrics there are: the one list of names, helps and values.
//!
//! Decides: names (base units, `_total` for what only grows), labels, which figure each shows, and what to do about it. `docs/metrics.md` is made from
//! them. Invariant: a family is always there, also while nothing was counted.
//! Leaves to others: how they look (`text`), what the system says of the process (`process`).

use super::{Family, Figure, Sample, Snapshot, StandbySnapshot, Type};
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
    if let Some(group) = &snapshot.group {
        servers(group, &mut all);
    }
    all
}

/// Every family of a server that stands by: it has no core of which to tell.
pub(crate) fn of_standby(snapshot: &StandbySnapshot) -> Vec<Family> {
    let mut all = Vec::new();
    serving(false, &mut all);
    servers(&snapshot.group, &mut all);
    events(&snapshot.driver, &mut all);
    all
}

fn serving(serving: bool, all: &mut Vec<Family>) {
    let help = "0 before the store is loaded, after it failed, and at a server that stands by: alert when 0 for a minute, in a group at all of its servers.";
    gauge(all, "serving", usize::from(serving), help);
}

/// The group, as a server sees it.
fn servers(group: &Value, all: &mut Vec<Family>) {
    let members = group["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    gauge(all, "group_servers", members.len(), "Servers in the list of the group.");
    gauge(
        all,
        "group_number",
        usize::try_from(group["number"].as_u64().unwrap_or(0)).unwrap_or(0),
        "Number of that list: the same at all of them.",
    );
    let known = usize::from(!group["serves"].is_null());
    gauge(
        all,
        "group_lease_known",
        known,
        "1 while some server is known to have the lease of the group: at 0 none serves, or this one hears too few.",
    );
    // By its place in the list, from 1: nothing at this port names a host unless it is told to.
    let numbered = || (1_usize..).map(|place| [place.to_string()]).zip(members);
    let heard = numbered().filter_map(|(place, member)| Some((place, nanoseconds(Duration::from_millis(member["heard_ms"].as_u64()?)))));
    let help = "How long ago this server has heard each other one, by its place in the list; without a sample: not since it started. Alert above 10 s.";
    labelled(all, Gauge, "group_heard_seconds", help, &["member"], heard);
    let in_trouble = numbered().map(|(place, member)| (place, Whole(u64::from(!member["trouble"].is_null()))));
    let help = "1: its datagrams are refused, for a reason that `cistern admin status` tells.";
    labelled(all, Gauge, "group_trouble", help, &["member"], in_trouble);
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
    labelled(all, kind, name, help, &[], [([], value)]);
}

fn gauge(all: &mut Vec<Family>, name: &str, value: usize, help: &'static str) {
    one(all, Gauge, name, Whole(value as u64), help);
}

fn total(all: &mut Vec<Family>, name: &str, value: u64, help: &'static str) {
    one(all, Type::Counter, name, Whole(value), help);
}

type Labels = Vec<(&'static str, String)>;

fn labelled<const N: usize>(
    all: &mut Vec<Family>,
    kind: Type,
    name: &str,
    help: &'static str,
    labels: &'static [&'static str; N],
    values: impl IntoIterator<Item = ([String; N], Figure)>,
) {
    let samples = values.into_iter().map(|(of, value)| Sample { suffix: "", labels: labels.iter().copied().zip(of).collect(), value });
    all.push(Family { name: format!("cistern_{name}"), kind, help, labels, samples: samples.collect() });
}

fn histogram(all: &mut Vec<Family>, name: &str, help: &'static str, labels: &'static [&'static str], samples: Vec<Sample>) {
    all.push(Family { name: format!("cistern_{name}"), kind: Type::Histogram, help, labels, samples });
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
    let values = [id.store.to_string(), id.epoch.to_string(), id.incarnation.to_string(), env!("CARGO_PKG_VERSION").to_owned()];
    let help = "Who the server is; always 1. The incarnation grows with each start, the epoch with each restore.";
    labelled(all, Gauge, "server_info", help, &["store", "epoch", "incarnation", "version"], [(values, Whole(1))]);
    one(all, Gauge, "uptime_seconds", nanoseconds(status.uptime), "Time since the start.");
    serving(status.serving, all);
    gauge(all, "grace", usize::from(status.grace.is_some()), "1 during the grace period after a restart: no locks are granted.");
    gauge(
        all,
        "grace_awaited_sessions",
        status.grace.map_or(0, |grace| grace.awaited),
        "Agents from before the restart that have not reconnected.",
    );
    one(all, Gauge, "lease_seconds", nanoseconds(status.lease), "Lease period of agents that ask for none.");
    one(
        all,
        Type::Counter,
        "stalled_seconds_total",
        nanoseconds(status.stalled),
        "Delay of the loop past its planned wake-ups, during which no timeout ran: an overcommitted or paused machine. Idle time does not count.",
    );
}

fn sessions(figures: &Figures, all: &mut Vec<Family>) {
    let (status, stats) = (&figures.status, &figures.stats);
    let (half_open, over) = figures.half_open_and_over;
    let standing = [("half_open", half_open), ("good", status.sessions), ("timing_out", status.timing_out), ("over", over)];
    let values = standing.map(|(name, count)| ([name.to_owned()], Whole(count as u64)));
    let help = "Sessions. `timing_out` is all the lease state there is: above 0 for long means unreachable agents.";
    labelled(all, Gauge, "sessions", help, &["standing"], values);
    total(
        all,
        "sessions_opened_total",
        stats.opened,
        "Sessions opened. Grows fast when agents cannot keep sessions, or commands run without a host agent.",
    );
    total(all, "sessions_resumed_total", stats.resumed, "Of these, by RESUME: with keys, nearly all after a restart of the server.");
    let refused = |reason: &RefuseReason| ([format!("{reason:?}").to_lowercase()], Whole(stats.refused(*reason)));
    let help = "Refused agents. `busy` and `crowded`: `sessions-max` or `network-sessions-max` is reached, which is also logged.";
    labelled(all, Type::Counter, "handshakes_refused_total", help, &["reason"], RefuseReason::ALL.iter().map(refused));
    total(all, "session_moves_total", stats.moves, "Agents whose address changed (NAT, a moved machine).");
    total(
        all,
        "delivery_failures_total",
        stats.failures,
        "Agents that did not answer a demand in time; each is followed by a rescue or a steal.",
    );
    total(
        all,
        "rescues_total",
        stats.rescues,
        "Failures that were reverted: a slow network, not a dead agent. If frequent, raise `delivery-timeout`.",
    );
    total(
        all,
        "steals_total",
        stats.steals,
        "Sessions whose locks were taken, excluding those that waited for a lock and held none: find out who it was (log) and why it was gone.",
    );
    gauge(
        all,
        "named_leases",
        status.named_leases,
        "Named leases (`cistern lease`), each with a timer that was asked for. They are no lease state of sessions.",
    );
    let ended = [("time", stats.leases_run_out), ("removed", stats.leases_revoked)];
    let ended = ended.map(|(how, count)| ([how.to_owned()], Whole(count)));
    let help = "Named leases that ended. `time`: nobody kept it, so its holder is gone or cut off; `removed`: it was revoked.";
    labelled(all, Type::Counter, "named_leases_ended_total", help, &["how"], ended);
    total(
        all,
        "suspected_clones_total",
        stats.clones,
        "Superseded sessions that went on sending: an agent's state directory, or its machine, was copied. Give the copy its own identity.",
    );
    total(all, "reclaim_conflicts_total", stats.reclaim_conflicts, "Locks that two agents claimed after a restart: a copied agent, too.");
    gauge(all, "silence_deadlines", figures.listening, "Deadlines by which an agent must be heard; 0 while nobody waits for anybody.");
}

fn locks(figures: &Figures, all: &mut Vec<Family>) {
    let counts = &figures.locks;
    gauge(all, "locks", counts.held, "Locks held, including cache locks. Near `locks-max` requests are refused: raise it.");
    gauge(all, "lock_waiters", counts.waiters, "Queued lock requests; `cistern locks` shows who waits for whom.");
    gauge(all, "lock_mutations", counts.mutations, "Changes that wait for cache locks to be released, or execute.");
    gauge(all, "demands_outstanding", counts.demands_outstanding, "Cache locks demanded and not yet released.");
    total(all, "demands_total", counts.demands, "Demands sent. Compared with requests: contention between agents.");
}

fn requests(stats: &Stats, all: &mut Vec<Family>) {
    let result = |of: &KindServed| {
        let kind = of.kind();
        of.results().map(move |(result, count)| ([kind.name().to_owned(), result.to_owned()], Whole(count))).collect::<Vec<_>>()
    };
    let results = stats.served.kinds().iter().flat_map(result);
    let help = "Requests. `BUSY`: a limit is reached; `EIO`: the store cannot be read (alert); `ENOSPC`: no room; `IN_GRACE`: a restart, or \
                later a lock that is kept for an agent with a longer lease; `QUEUED`: it waits for a lock; `DROPPED`: cancelled, or the \
                session ended first.";
    labelled(all, Type::Counter, "requests_total", help, &["kind", "result"], results);
    let mut samples = Vec::new();
    for of in stats.served.kinds().iter().filter(|of| of.waits().count() > 0) {
        parts(of.waits(), &vec![("kind", of.kind().name().to_owned())], Nanoseconds, &mut samples);
    }
    let help = "Time from receipt to answer spent waiting for locks or the store; 0 for a request that waits for nothing.";
    histogram(all, "request_wait_seconds", help, &["kind"], samples);
    total(all, "requests_begun_total", stats.requests, "Requests, each counted once.");
    total(
        all,
        "requests_repeated_total",
        stats.repeated,
        "Duplicates answered from the reply cache or told to wait: packet loss, or a disk slower than the retransmission timeout.",
    );
}

fn store(figures: &Figures, all: &mut Vec<Family>) {
    let (status, memory) = (&figures.status, &figures.memory);
    one(all, Gauge, "stored_objects", Whole(figures.objects), "Files, directories and links.");
    one(all, Gauge, "stored_content_bytes", Whole(figures.content_bytes), "Sum of their sizes.");
    gauge(all, "memory_objects", memory.objects, "Objects in memory.");
    gauge(all, "memory_directories", memory.directories, "Directories in memory, whole or in part.");
    gauge(all, "memory_blocks", memory.blocks, "Blocks of contents in memory.");
    gauge(
        all,
        "memory_bytes",
        memory.bytes,
        "Memory that these take. At the bound the least recently used are evicted, and read again when needed.",
    );
    gauge(all, "memory_max_bytes", memory.bytes_max, "The bound on that memory.");
    gauge(all, "loads_outstanding", memory.asked, "Reads queued at the store. If always high: more memory or a faster disk.");
    gauge(all, "operations_parked", status.parked, "Operations that wait for locks or for the store.");
    let work = &figures.work;
    gauge(
        all,
        "requests_queued",
        work.queued,
        "Requests that wait until it is the turn of their key or host; 0 unless there is more to do than time.",
    );
    gauge(all, "requests_queued_bytes", work.queued_bytes, "Their bytes, with what is kept around each.");
    gauge(
        all,
        "owners",
        work.owners,
        "Keys, in clear hosts (IPv4 addresses, IPv6 /64), that have sessions: each has an equal share of the server.",
    );
    let charged = nanoseconds(Duration::from_nanos(work.charged_ns));
    one(
        all,
        Type::Counter,
        "charged_seconds_total",
        charged,
        "What requests were charged, in seconds of one core: an estimate by counted work.",
    );
    gauge(all, "replies_held", status.held, "Replies that wait for their own transaction.");
}

fn commits(commits: &Commits, all: &mut Vec<Family>) {
    total(all, "batches_total", commits.batches, "Batches handed to the store: one for each turn that changed something.");
    total(all, "batch_writes_total", commits.writes, "Keys that they wrote.");
    total(all, "batch_bytes_total", commits.bytes, "Bytes of the keys and values that they wrote.");
    gauge(all, "batches_flying", commits.flying(), "Batches handed over and not yet durable.");
    let mut samples = Vec::new();
    parts(commits.sizes(), &Labels::new(), Whole, &mut samples);
    histogram(all, "commit_batches", "Batches per group commit.", &[], samples);
    let mut samples = Vec::new();
    parts(commits.times(), &Labels::new(), Nanoseconds, &mut samples);
    let help = "From the hand-over of a group's oldest batch until all are durable, including queueing.";
    histogram(all, "commit_seconds", help, &[], samples);
}

/// What a store in a directory tells of itself.
fn engine(store: &CommitStats, all: &mut Vec<Family>) {
    total(all, "store_reads_total", store.reads, "Reads answered by the store.");
    total(
        all,
        "store_failed_reads_total",
        store.failed_reads,
        "Damaged data or a failing disk: alert, stop the server, run `cisternd check`.",
    );
    one(all, Gauge, "store_used_bytes", Whole(store.used), "Size of the store.");
    one(all, Gauge, "store_free_bytes", Whole(store.free), "Free space of its file system.");
    one(all, Gauge, "store_room", Whole(u64::from(store.room)), "0: changes that need room fail with ENOSPC, nothing is lost: alert.");
    let help = "One transaction with its sync: the disk itself.";
    powers(all, "store_commit_seconds", help, &store.spans, |us| Nanoseconds(us.saturating_mul(1_000)), Nanoseconds(store.nanos));
    total(all, "store_written_bytes_total", store.bytes, "Bytes of keys and values in its transactions.");
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
    histogram(all, name, help, &[], samples);
}

fn traffic(stats: &Stats, driver: &Counts, all: &mut Vec<Family>) {
    let (received, sent) = (stats.received(), stats.transmitted());
    total(all, "datagrams_received_total", received.0, "Datagrams received.");
    total(all, "datagrams_sent_total", sent.0, "Datagrams sent.");
    total(all, "received_bytes_total", received.1, "Bytes of UDP payload received.");
    total(all, "sent_bytes_total", sent.1, "Bytes of UDP payload sent.");
    let by_kind = |count: &dyn Fn(Kind) -> u64| -> Vec<_> {
        let counted = Kind::ALL.iter().map(|kind| (kind, count(*kind))).filter(|counted| counted.1 > 0);
        counted.map(|(kind, count)| ([kind.name().to_owned()], Whole(count))).collect()
    };
    let help = "Messages received in valid datagrams, including retransmissions.";
    labelled(all, Type::Counter, "messages_received_total", help, &["kind"], by_kind(&|kind| stats.messages_in(kind)));
    let help = "Messages sent, including retransmissions. `NACK`: agents learned that their session is lost.";
    labelled(all, Type::Counter, "messages_sent_total", help, &["kind"], by_kind(&|kind| stats.messages_out(kind)));
    let protocol = stats.drops().map(|(reason, count)| ("protocol", reason, count));
    let entries = driver.entries();
    let drops = entries.iter().filter_map(|(name, count)| Some(("driver", name.strip_prefix("dropped_")?, *count)));
    let drops = protocol.chain(drops.filter(|drop| drop.2 > 0));
    let sample = |(layer, reason, count): (&str, &str, u64)| ([layer.to_owned(), reason.to_owned()], Whole(count));
    let help = "Datagrams and messages dropped; docs/operating.md says what to do about each reason.";
    labelled(all, Type::Counter, "drops_total", help, &["layer", "reason"], drops.map(sample));
    events(driver, all);
}

/// What the driver counts.
fn events(driver: &Counts, all: &mut Vec<Family>) {
    let events = [
        ("receive_error", driver.receive_errors),
        ("send_would_block", driver.send_would_block),
        ("icmp_unreachable", driver.icmp_unreachable),
        ("icmp_too_big", driver.icmp_too_big),
        ("icmp_other", driver.icmp_other),
    ];
    let values = events.map(|(event, count)| ([event.to_owned()], Whole(count)));
    let help = "`send_would_block`: the interface is too slow; `icmp_*`: errors reported by the network.";
    labelled(all, Type::Counter, "socket_events_total", help, &["event"], values);
    let help = "Datagrams lost to a full receive buffer: raise `net.core.rmem_max`, or the server is overloaded.";
    total(all, "socket_overflow_total", driver.receive_overflows, help);
    total(all, "loop_turns_total", driver.turns, "Turns of the event loop; an idle server makes none.");
}
