//! The table of settings: each with its name, its place in a configuration, the rule that it keeps and a line of help.
//!
//! Decides: the names in settings files, and the words of `cistern settings` and `docs/settings.md`, which are made from this table.
//! Invariant: the names are those by which the crates' own checks call their settings, so a refusal leads back to the file.
//! Leaves to others: defaults and checks (`cistern_server::config`, `cistern_agent::config`), which hold whatever is said here.

use super::kind::{Addresses, Fraction, Kind, LogFilter, Number, Policy, Size, Switch, Time};
use cistern_agent::config::Config as Agent;
use cistern_server::Config as Server;
use toml::Value;

/// A configuration that has a table of its own in settings files.
pub(super) trait Named: Default {
    /// The table's name.
    const TABLE: &'static str;
}

impl Named for Server {
    const TABLE: &'static str = "server";
}

impl Named for Agent {
    const TABLE: &'static str = "agent";
}

/// What a program that asks a server is told, besides the configuration of its agent.
#[derive(Debug)]
pub(super) struct Client {
    /// The server's addresses.
    pub(super) server: Vec<String>,
}

impl Default for Client {
    fn default() -> Self {
        Self { server: vec!["127.0.0.1:7311".to_owned()] }
    }
}

impl Named for Client {
    const TABLE: &'static str = "client";
}

/// What is in the log of daemons.
#[derive(Debug)]
pub(super) struct Log {
    /// Levels, for all and for crates.
    pub(super) filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: crate::logging::DAEMON_FILTER.to_owned() }
    }
}

impl Named for Log {
    const TABLE: &'static str = "log";
}

/// One setting of a configuration.
pub(super) struct Setting<C> {
    /// Its name in settings files.
    pub(super) name: &'static str,
    /// What it must be; follows "it must be".
    pub(super) rule: &'static str,
    /// What it is, without a full stop.
    pub(super) help: &'static str,
    /// How its default follows the lease period, if it does.
    pub(super) follows: Option<&'static str>,
    /// The flag that sets it, too.
    #[cfg_attr(not(test), expect(dead_code, reason = "shown in the manual, which tests make"))]
    pub(super) flag: Option<&'static str>,
    /// What may be written.
    pub(super) wanted: &'static str,
    /// Its value as TOML.
    pub(super) text: fn(&C) -> String,
    /// Sets it; `None` if the value is of another kind.
    pub(super) put: fn(&mut C, &Value) -> Option<()>,
}

macro_rules! settings {
    ($config:ty: $($name:literal $kind:ty = $($field:ident).+, $rule:literal, $help:literal
        $(, follows $follows:literal)? $(, flag $flag:literal)?;)*) => {
        &[$(Setting {
            name: $name,
            rule: $rule,
            help: $help,
            follows: settings!(@option $($follows)?),
            flag: settings!(@option $($flag)?),
            wanted: <$kind as Kind>::WANTED,
            text: |config: &$config| <$kind as Kind>::text(&config.$($field).+),
            put: |config: &mut $config, value| {
                config.$($field).+ = <$kind as Kind>::read(value)?;
                Some(())
            },
        }),*]
    };
    (@option $value:literal) => { Some($value) };
    (@option) => { None };
}

/// The server's settings.
pub(super) const SERVER: &[Setting<Server>] = settings! { Server:
    "lease" Time = lease, "100 ms to 1 h",
        "Lease period τ: how long an agent may act after it sent the request that the server answered last", flag "--lease";
    "lease-min" Time = lease_min, "100 ms to the lease period",
        "Shortest lease period that an agent may ask for", follows "500 ms, or the lease period if that is shorter", flag "--lease-min";
    "lease-max" Time = lease_max, "the lease period to 1 h",
        "Longest lease period that an agent may ask for. One above the server's own costs its agent the cache and each of its locks a \
         commit; it keeps others from these locks alone, and for longer. A volatile server gives none above its own",
        follows "60 s, or the lease period if that is longer", flag "--lease-max";
    "delta" Fraction = delta_ppm, "0.003 to 1",
        "δ: bound on the relative rate of any two clocks; leases are measured on clocks that no time daemon slews, so it covers \
         oscillators only", flag "--delta";
    "epsilon" Time = epsilon, "1 µs to the lease period",
        "ε: what is added to the wait for a silent agent, for the granularity and read error of clocks";
    "delivery-timeout" Time = delivery_timeout, "three retransmission timeouts (60 ms, or 3/8 of a lease below 160 ms) to 1 h",
        "Td: how long a demand or another message of the server's own may go without a receipt before the delivery has failed",
        follows "τ/4, at least 100 ms", flag "--delivery-timeout";
    "probe-period" Time = probe_period, "20 ms (1/8 of a lease below 160 ms) to 1 h",
        "How long an agent that somebody waits for may be silent before it is probed", follows "τ/2, at least 20 ms";
    "compliance-time" Time = compliance_time, "the delivery timeout to one day",
        "How long an agent may keep a cache lock that it was asked to give back, and said that it heard",
        follows "2τ, or the delivery timeout if that is longer";
    "surrender" Switch = surrender, "true or false",
        "Whether an agent that says that nothing of its failed session can be used again ends the wait for it";
    "rescue" Switch = rescue, "true or false",
        "Whether a failed session goes on when what it had to receipt or give back comes late, but before it was refused anything";
    "last-heard" Switch = last_heard, "true or false",
        "Whether the wait for a failed session counts from its last answer that could renew; leave it off where machines may be paused";
    "last-seen" Switch = last_seen, "true or false",
        "Whether the server keeps when each agent's key was heard last, in memory and to the minute, for `cistern admin agents`",
        flag "--last-seen";
    "plain-principal" Number<u32> = plain_principal, "a number",
        "Whose the sessions are that are opened without a key, by the number in `cistern admin agents`; 0: nobody's, and they may do \
         everything. One that there is not may do nothing";
    "window" Number<u16> = window, "1 to 4,096 requests",
        "W: most requests that one agent may have outstanding";
    "max-datagram" Size<u16> = max_datagram, "548 to 8,952 bytes",
        "Largest datagram, in bytes of UDP payload; above 1,232 only where every path carries it unfragmented";
    "sessions-max" Number<u32> = sessions_max, "1 to 16,777,216",
        "Most sessions", flag "--max-sessions";
    "network-sessions-max" Number<u32> = network_sessions_max, "1 to 16,777,216",
        "Most sessions opened from one network: an IPv4 /24, an IPv6 /64; this computer's own addresses are none. In the sealed mode: \
         of one key, wherever from. It keeps whoever has one network, or one key, from taking the places of all others; raise it where one has \
         more agents";
    "opening-max" Number<u32> = opening_max, "1 to 16,777,216",
        "Most half-open sessions, which were offered and not confirmed; beyond it the host with the most loses its oldest";
    "tombstones-max" Number<u32> = tombstones_max, "1 to 16,777,216",
        "Most ended sessions that are remembered, so that their agents are told so at once";
    "cookie-life" Time = cookie_life, "1 s to 1 h",
        "How long an agent has to answer the challenge of a handshake";
    "challenges-per-second" Number<u32> = challenges_per_second, "1 to 1,000,000,000",
        "Most answers in a second to addresses that have not proven themselves";
    "hint-interval" Time = hint_interval, "1 ms to 1 h",
        "Least time between two answers to senders whose session is not known, on average: 16 may be sent at once";
    "notices-in-flight" Number<u16> = notices_in_flight, "1 to 4,096",
        "Most messages of the server's own that are on the way to one agent; the others wait";
    "answer-bytes-max" Size<u32> = answer_bytes_max, "one datagram (8,952) to 1 GiB",
        "Most bytes of answers that wait to be sent to one agent; an answer beyond it is dropped, counted, and asked for again";
    "freed-per-turn" Number<u32> = freed_per_turn, "at least 1",
        "Most locks of an ended session that are freed before other agents are served again";
    "locks-max" Number<usize> = locks.locks_max, "1 to 4,294,967,295",
        "Most locks held by all agents";
    "locks-per-session" Number<usize> = locks.locks_per_session, "1 to locks-max",
        "Most locks held by one agent";
    "waiters-per-object" Number<usize> = locks.waiters_per_object, "at least 1",
        "Most lock requests that wait for one object";
    "waiters-per-session" Number<usize> = locks.waiters_per_session, "at least 1",
        "Most lock requests of one agent that wait";
    "mutations-per-object" Number<usize> = locks.mutations_per_object, "at least 1",
        "Most changes that wait until agents have given back what they cached of one object";
    "demands-outstanding" Number<usize> = locks.demands_outstanding, "at least 1",
        "Most locks that agents were asked to give back, and have not yet";
    "token-run" Number<u32> = locks.run, "1 to 1,048,576 tokens",
        "Fencing tokens that an agent gets with a lock, to give to its local users one after the other";
    "hot-below" Time = locks.hot_below, "any time",
        "A cached object that is demanded back sooner than this after it was cached counts as contended";
    "cooling" Time = locks.cooling, "any time",
        "How long a contended object is not cached anywhere; doubled each time, six times at most";
    "watches-max" Number<usize> = presence.watches_max, "1 to 4,294,967,295",
        "Most watches of all agents";
    "watches-per-session" Number<usize> = presence.watches_per_session, "1 to watches-max",
        "Most files and directories that one agent watches";
    "ephemerals-max" Number<usize> = presence.ephemerals_max, "1 to 4,294,967,295",
        "Most ephemeral files";
    "ephemerals-per-session" Number<usize> = presence.ephemerals_per_session, "1 to ephemerals-max",
        "Most ephemeral files of one agent, and most files that go with one named lease";
    "named-leases-max" Number<usize> = presence.leases_max, "1 to 4,294,967,295",
        "Most named leases";
    "objects-max" Number<u64> = namespace.objects_max, "at least 1",
        "Most files, directories and symbolic links";
    "bytes-max" Size<u64> = namespace.bytes_max, "any number",
        "Most bytes of contents in all files";
    "links-max" Number<u32> = namespace.links_max, "any number",
        "Most names of one file, and most subdirectories of one directory";
    "stages-per-session" Number<usize> = stages.stages_per_session, "1 to 4,096",
        "Most files of several datagrams that one agent may be writing at once";
    "stage-bytes-per-session" Size<usize> = stages.bytes_per_session, "1 MiB (one file's contents) to stage-bytes-total",
        "Most bytes of such files of one agent";
    "stage-bytes-total" Size<usize> = stages.bytes_total, "at least stage-bytes-per-session",
        "Most bytes of such files of all agents";
    "stage-idle" Time = stages.idle, "the lease period to one day",
        "How long the pieces of such a file are kept when no more come", follows "30 s, or the lease period if that is longer";
    "cache-bytes" Size<usize> = cache.bytes_max, "at least 8 MiB",
        "Memory for what was read from the store, in bytes";
    "work-slice" Time = work.slice, "1 µs to 100 ms",
        "For how long requests are executed before the socket is looked at again, by what they are charged; agents on one host (an IPv4 address, \
         an IPv6 /64) take turns by tenths of it";
    "queued-bytes-max" Size<usize> = work.queued_bytes, "at least 1 KiB",
        "Bytes of requests that wait to be executed; those of one host may take four times what is free";
    "spin" Time = spin, "at most 1 s",
        "How long after a datagram the server looks for the next one before it sleeps: \"50us\", say, saves clients that ask one thing \
         after the other the time that waking takes, and keeps a core busy for it. Any datagram counts, from whomever: at \"1s\", one a \
         second keeps a core busy all the time";
};

/// The settings of commands that ask a server, `cistern agent run` included.
pub(super) const CLIENT: &[Setting<Client>] = settings! { Client:
    "server" Addresses = server, "host, host:port, [v6]:port, or a list of such",
        "The server's address; several are tried in turn", flag "--server";
};

/// The log of `cisternd` and `cistern agent run`.
pub(super) const LOG: &[Setting<Log>] = settings! { Log:
    "filter" LogFilter = filter, "levels (off, error, warn, info, debug, trace), for all or for a crate as in \"warn,cistern_server=debug\"",
        "What daemons log; CISTERN_LOG takes precedence, for commands, too";
};

/// The agent's settings.
pub(super) const AGENT: &[Setting<Agent>] = settings! { Agent:
    "lease" Time = lease, "100 ms to lease-max, or 0 for what the server gives",
        "Lease period that the agent asks for: a long one outlives a restart of the server, a short one is short for those who wait; the \
         server's bounds decide", flag "--lease";
    "idle" Policy = idle, "\"eager\", \"lazy\" or \"auto\"",
        "What an idle agent does with its lease: renew it as long as it holds anything, let it lapse and keep what it holds for later, \
         or renew it while that was used lately and then end its session", flag "--idle";
    "idle-after" Time = idle_after, "at most 1 h",
        "With \"auto\": how long after its last use something held is worth renewing the lease for";
    "opportunistic-renewal" Switch = opportunistic, "true or false",
        "Whether every answer of the server renews the lease; false: only answers to keep-alives do, so that one is sent for every 0.6 of \
         a lease period however busy the agent is, as in protocols with explicit renewal, to compare with";
    "lease-max" Time = lease_max, "100 ms to 1 h",
        "Longest lease period that the agent believes in; a server that offers a longer one gets no session", flag "--lease-max";
    "timeout" Time = give_up_after, "100 ms to one day",
        "How long an operation may take before it ends without an answer; waiting for a lock has a limit of its own", flag "--timeout";
    "close-within" Time = close_within, "at most 1 h",
        "How long the end of the session is waited for when the agent ends; after that the server ends it by itself";
    "surrender" Switch = surrender, "true or false",
        "Whether the server is told when nothing of a lost session can be used any more, so that others get its locks sooner; false where \
         users of its locks may act on after they were told that the lock is lost or the lease over";
    "phase-valid" Fraction = phases.valid_ppm, "above 0 and below phase-renewing",
        "Part of the lease period after which the lease is renewed on purpose, if it is worth it";
    "phase-renewing" Fraction = phases.renewing_ppm, "below phase-suspect",
        "Part of the lease period after which nothing new starts under the lease";
    "phase-suspect" Fraction = phases.suspect_ppm, "below phase-flush",
        "Part of the lease period after which only what is owed to external storage is written";
    "phase-flush" Fraction = phases.flush_ppm, "below 1",
        "Part of the lease period after which nothing is done under the lease";
    "window" Number<u16> = window, "1 to 4,096 requests",
        "W: most requests outstanding that the agent asks for; the server may allow fewer";
    "max-datagram" Size<u16> = max_datagram, "548 to 8,952 bytes",
        "Largest datagram, in bytes of UDP payload; the server may allow less";
    "commands-max" Number<usize> = commands_max, "1 to 4,096",
        "Most operations that run at once, those that wait for locks included";
    "cache-objects" Number<usize> = cache.objects, "1 to 4,294,967,295",
        "Most files, directories and symbolic links in the cache; each needs a cache lock at the server";
    "cache-bytes" Size<usize> = cache.bytes, "at least 4,096 bytes",
        "Most bytes in the cache";
    "advisory-max" Number<usize> = advisory_max, "1 to 4,294,967,295",
        "Most files and directories on which the agent holds a lock or waits for one";
    "sent-max" Number<usize> = sent_max, "64 to 16,777,216",
        "Most transmissions whose send times are remembered, in 24 bytes each; an answer to one that is forgotten renews nothing";
    "spin" Time = spin, "at most 1 s",
        "How long after a datagram the agent looks for the next one before it sleeps; as the server's";
};
