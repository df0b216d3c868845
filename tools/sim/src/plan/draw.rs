//! Draws a plan from a seed: settings, clocks, network, disk; the faults come from `swarm`.
//!
//! Decides ranges. τ is 0.2 to 2 s so that a run of some seconds sees many leases; everything else is drawn around τ, mostly at sane
//! values and sometimes at the edge of what is legal. Invariant: what is drawn passes the cores' checks; clocks keep δ unless the
//! profile is the one that breaks it.
//! Leaves to others: what users do (`Workload::draw`), faults (`swarm`).

use crate::clock::{Rates, UNIT};
use crate::plan::settings::Idle;
use crate::plan::{AgentSettings, ClockPlan, DiskPlan, MS, NetPlan, Plan, Profile, SEC, SealedSettings, ServerSettings, US, swarm};
use crate::rng::SimRng;
use crate::users::Workload;

/// How many runs are sealed, in parts per million.
const SEALED_PPM: u64 = 250_000;

/// The plan of a seed.
pub(super) fn plan(profile: Profile, seed: u64) -> Plan {
    let rng = SimRng::new(seed).fork(profile.name());
    let mut draw = rng.fork("settings");
    let agents = usize::try_from(draw.between(2, 5)).unwrap_or(2);
    let tiny = profile == Profile::Tiny || (profile == Profile::Swarm && draw.chance(80_000));
    let mut server = server(&mut draw, agents, tiny);
    // In one run in four the server has time for a request or a few in a turn: the others wait for their turns, or are shed.
    let mut work = rng.fork("work");
    server.work_slice_us = *work.pick(&[1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 10, 1]);
    server.queued_bytes = *work.pick(&[64 << 20, 64 << 20, 1 << 10]);
    if !tiny {
        // In half of the runs there is room for few who open sessions at once: those who come later push the others out, who ask again.
        server.opening_max = *rng.fork("opening").pick(&[4_096, 4_096, 4_096, 16, 2, 1]);
    }
    let asked = leases(&mut rng.fork("leases"), &mut server, agents);
    // In one run in ten all agents renew by keep-alives alone.
    let opportunistic = rng.fork("renewal").chance(900_000);
    let mut settings = || AgentSettings { opportunistic, ..agent(&mut draw, &server, tiny) };
    let agent = asked.into_iter().map(|lease_us| AgentSettings { lease_us, ..settings() }).collect();
    let heal_ns = length(&mut draw, &server);
    let (clocks, window) = clocks(&mut rng.fork("clocks"), profile, agents, &server);
    let mut workload = Workload::draw(&mut rng.fork("workload"), profile);
    unhurried(&mut workload, agents, heal_ns, if draw.chance(100_000) { 3_000 } else { 400 });
    let mut plan = Plan {
        seed,
        profile,
        agents,
        agent,
        workload,
        net: net(&mut rng.fork("net"), profile, &server),
        disk: disk(&mut rng.fork("disk")),
        restart_wait_ns: rng.fork("supervisor").spread(2 * MS, 200 * MS),
        server,
        clocks,
        heal_ns,
        fence_only: profile == Profile::Fence,
        sealed: None,
        faults: Vec::new(),
    };
    plan.faults = swarm::faults(&mut rng.fork("faults"), &plan, window);
    plan.sealed = rng.fork("sealed").chance(SEALED_PPM).then(|| sealed(&mut rng.fork("generations"), &plan));
    plan
}

/// In half of the sealed runs keys change all the time. A late packet still has its key, as far as a network without faults goes.
fn sealed(rng: &mut SimRng, plan: &Plan) -> SealedSettings {
    let own = SealedSettings::default();
    if rng.chance(500_000) {
        return own;
    }
    let old_kept_us = 8 * (plan.net.delay_ns + plan.net.jitter_ns) / US + rng.between(MS, plan.server.lease_ns() / 4) / US;
    let apart_us = old_kept_us * rng.between(2, 6);
    // Forgeries end no session here: attackers send more of them than there would be.
    SealedSettings {
        packets: rng.between(1, 200),
        failed_soft: rng.between(1, 20),
        failed: own.failed,
        age_us: rng.pick(&[1, 3, 30]) * apart_us,
        apart_us,
        old_kept_us,
    }
}

/// How long the safety phase is: 5 to 60 s, mostly short, and always several leases.
fn length(rng: &mut SimRng, server: &ServerSettings) -> u64 {
    let seconds = match rng.below(10) {
        0..=6 => rng.between(5, 9),
        7 | 8 => rng.between(9, 20),
        _ => rng.between(20, 60),
    };
    (seconds * SEC).max(server.lease_ns() * 5).max(server.lease_max_us * US * 3) + rng.below(SEC)
}

/// Lets users think for longer where the run would otherwise have more commands than `most`: many short runs find more than few
/// crowded ones.
fn unhurried(workload: &mut Workload, agents: usize, heal_ns: u64, most: u64) {
    let users = (agents * workload.users.max(1)) as u64;
    let (least, longest) = workload.think_ns;
    let commands = users * heal_ns / (least.midpoint(longest)).max(1);
    let times = commands.div_ceil(most).max(1);
    workload.think_ns = (least * times, longest * times);
}

fn server(rng: &mut SimRng, agents: usize, tiny: bool) -> ServerSettings {
    let lease_us = rng.spread(200_000, 2_000_000);
    let floor_us = 20_000.min(lease_us / 8).max(1) + 1;
    let delivery_timeout_us = rng.between(3 * floor_us, (lease_us / 2).max(4 * floor_us));
    let mut settings = ServerSettings {
        lease_us,
        lease_min_us: lease_us,
        lease_max_us: lease_us,
        delta_ppm: match rng.below(10) {
            0 => 3_000,
            1..=5 => 10_000,
            6 | 7 => 100_000,
            8 => u32::try_from(rng.between(3_000, 1_000_000)).unwrap_or(3_000),
            _ => 1_000_000,
        },
        epsilon_us: rng.spread(1, 10_000),
        delivery_timeout_us,
        probe_period_us: rng.between(floor_us, lease_us),
        compliance_time_us: delivery_timeout_us + rng.below(lease_us),
        surrender: rng.chance(500_000),
        rescue: !rng.chance(200_000),
        last_heard: rng.chance(300_000),
        new_cluster: rng.chance(700_000),
        window: *rng.pick(&[64, 64, 64, 16, 4, 1]),
        max_datagram: *rng.pick(&[1_232, 1_232, 1_232, 548, 8_952]),
        sessions_max: 10_000,
        opening_max: 4_096,
        tombstones_max: 1_024,
        notices_in_flight: *rng.pick(&[64, 64, 4, 1]),
        freed_per_turn: *rng.pick(&[1_024, 1_024, 1]),
        hint_interval_us: rng.spread(1_000, 50_000),
        locks_max: 1_000_000,
        locks_per_session: 100_000,
        waiters_per_object: 64,
        waiters_per_session: 256,
        mutations_per_object: 1_024,
        demands_outstanding: 4_096,
        token_run: *rng.pick(&[1_024, 1_024, 16, 2, 1]),
        objects_max: 10_000_000,
        work_slice_us: 1_000,
        queued_bytes: 64 << 20,
    };
    if tiny {
        let mut few = |least: usize, most: usize| usize::try_from(rng.between(least as u64, most as u64)).unwrap_or(1);
        // Room for what each agent caches and locks at once: cache locks that an idle agent keeps are never asked back for want of room.
        settings.locks_per_session = few(8, 12);
        settings.locks_max = settings.locks_per_session * few(agents, agents * 2);
        settings.waiters_per_object = few(1, 3);
        settings.waiters_per_session = few(1, 4);
        settings.mutations_per_object = few(1, 3);
        settings.demands_outstanding = few(1, 3);
        settings.sessions_max = small(few(agents, agents * 2));
        settings.opening_max = small(few(1, 2));
        settings.tombstones_max = small(few(1, 4));
        settings.objects_max = few(100, 300) as u64;
    }
    settings
}

/// In half of the runs agents ask for lease periods: some for none, some for shorter ones than the server's own, some for longer ones.
/// What each asks for, in microseconds.
fn leases(rng: &mut SimRng, server: &mut ServerSettings, agents: usize) -> Vec<u64> {
    let own = server.lease_us;
    if rng.chance(500_000) {
        return vec![0; agents];
    }
    server.lease_min_us = rng.between((own / 4).max(100_000), own);
    server.lease_max_us = rng.between(own, own * 4);
    let (least, most) = (server.lease_min_us, server.lease_max_us);
    let mut ask = || match rng.below(4) {
        0 => 0,
        1 => rng.between(least, own),
        _ => rng.between(own, most),
    };
    (0..agents).map(|_| ask()).collect()
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn agent(rng: &mut SimRng, server: &ServerSettings, tiny: bool) -> AgentSettings {
    let lease_us = server.lease_us;
    let chain_us = server.compliance_time_us + server.delivery_timeout_us + 2 * server.longest_wait_ns() / US;
    AgentSettings {
        lease_us: 0,
        idle: *rng.pick(&[Idle::Eager, Idle::Lazy, Idle::Auto, Idle::Auto]),
        idle_after_us: rng.between(0, lease_us * 4),
        opportunistic: true,
        window: *rng.pick(&[64, 64, 16, 4, 1]),
        max_datagram: *rng.pick(&[1_232, 1_232, 1_232, 548, 8_952]),
        give_up_after_us: if rng.chance(800_000) { chain_us * 2 + SEC / US } else { rng.between(100_000, chain_us.max(200_000)) },
        close_within_us: lease_us,
        surrender: rng.chance(700_000),
        commands_max: if tiny { 4 } else { 4_096 },
        cache_objects: if tiny { usize::try_from(rng.between(1, 4)).unwrap_or(1) } else { 65_536 },
        cache_bytes: if tiny { 4_096 } else { 64 << 20 },
        advisory_max: if tiny { usize::try_from(rng.between(4, 8)).unwrap_or(4) } else { 65_536 },
        sent_max: if tiny { 64 } else { 65_536 },
        valid_ppm: *rng.pick(&[600_000, 600_000, 300_000, 750_000]),
    }
}

/// The slowest and the fastest rate that clocks of the run may have, δ apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) slow: u64,
    pub(super) fast: u64,
}

fn clocks(rng: &mut SimRng, profile: Profile, agents: usize, server: &ServerSettings) -> (Vec<ClockPlan>, Window) {
    let delta = u64::from(server.delta_ppm);
    // The largest ratio that δ allows, wherever true time lies in between.
    let slow = UNIT - rng.below(UNIT / (1_000_000 + delta) * delta + 1);
    let window = Window { slow, fast: slow / 1_000_000 * (1_000_000 + delta) };
    let extreme = profile != Profile::Calm && rng.chance(500_000);
    let plans = (0..=agents).map(|node| {
        let mut within = || rng.between(window.slow, window.fast);
        let mut rates = match (extreme, node) {
            (true, 0) => Rates::both(window.fast),
            (true, _) => Rates::both(window.slow),
            (false, _) => Rates { raw_ppb: within(), boot_ppb: within() },
        };
        if profile == Profile::Fence && node > 0 && rng.chance(500_000) {
            rates = Rates::both(rates.raw_ppb / rng.between(2, 5));
        }
        ClockPlan { raw_ns: rng.below(1 << 50), boot_ns: rng.below(1 << 50), rates }
    });
    (plans.collect(), window)
}

fn net(rng: &mut SimRng, profile: Profile, server: &ServerSettings) -> NetPlan {
    let calm = profile == Profile::Calm;
    let delay_ns = rng.spread(20 * US, (server.lease_ns() / 50).min(20 * MS));
    NetPlan {
        delay_ns,
        jitter_ns: rng.below(delay_ns * if calm { 1 } else { 3 }),
        loss_ppm: if calm || rng.chance(400_000) { 0 } else { rng.spread(100, 30_000) },
        duplicate_ppm: if calm || rng.chance(400_000) { 0 } else { rng.spread(100, 30_000) },
        socket_max: *rng.pick(&[4_096, 4_096, 256, 64]),
        batch: *rng.pick(&[4_096, 4_096, 8, 1]),
        stall_ppm: if calm || rng.chance(600_000) { 0 } else { rng.spread(50, 5_000) },
        stall_ns: rng.spread(MS, server.lease_ns() * 2),
        latency_ns: rng.spread(US, 500 * US),
    }
}

fn disk(rng: &mut SimRng) -> DiskPlan {
    DiskPlan { sync_ns: rng.spread(10 * US, 10 * MS), load_ns: rng.spread(10 * US, 5 * MS), reached_ppm: rng.below(1_000_001) }
}
