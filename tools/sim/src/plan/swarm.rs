//! Draws the faults of a plan: which kinds it has at all, how many of each, when and how hard.
//!
//! Decides by swarm testing: each run has a random subset of the kinds, because a run with everything never lets one kind of
//! trouble last for long enough to matter. Other profiles fix the subset. Times are drawn around τ and T, where the protocol's
//! decisions fall. Invariant: clock faults keep the plan's window, except where only one of a machine's two clocks leaves it to the
//! side on which the other one protects (section 11.1).
//! Leaves to others: what faults do (`net`, `world::faults`, `host`).

use crate::attack::AttackerKind;
use crate::clock::Rates;
use crate::observe::Node;
use crate::plan::draw::Window;
use crate::plan::{Fault, Link, MS, Plan, Profile, US, What};
use crate::rng::SimRng;
use cistern_wire::Kind;

/// A kind of fault that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Loss,
    Duplicate,
    Delay,
    Reorder,
    Cut,
    Flap,
    DropKind,
    DelayKind,
    Corrupt,
    Replay,
    PauseAgent,
    PauseServer,
    SleepAgent,
    SleepServer,
    CrashAgent,
    CrashServer,
    Move,
    Slew,
    SlewBoot,
    Freeze,
    DiskSlow,
    DiskStall,
    DiskBroken,
    ReadErrors,
    Restore,
    Attack,
}

use Class::{
    Attack, Corrupt, CrashAgent, CrashServer, Cut, Delay, DelayKind, DiskBroken, DiskSlow, DiskStall, DropKind, Duplicate, Flap, Freeze,
    Loss, Move, PauseAgent, PauseServer, ReadErrors, Reorder, Replay, Restore, SleepAgent, SleepServer, Slew, SlewBoot,
};

/// How often a run that draws everything has attackers, in parts per million.
const ATTACKED_PPM: u64 = 100_000;

/// Everything but what breaks the lease's assumptions, and attackers.
const ALL: [Class; 24] = [
    Loss,
    Duplicate,
    Delay,
    Reorder,
    Cut,
    Flap,
    DropKind,
    DelayKind,
    Corrupt,
    Replay,
    PauseAgent,
    PauseServer,
    SleepAgent,
    SleepServer,
    CrashAgent,
    CrashServer,
    Move,
    Slew,
    SlewBoot,
    DiskSlow,
    DiskStall,
    DiskBroken,
    ReadErrors,
    Restore,
];

/// The faults of a plan.
pub(super) fn faults(rng: &mut SimRng, plan: &Plan, window: Window) -> Vec<Fault> {
    let mut hand = Hand { lease: plan.server.lease_ns(), wait: plan.server.wait_ns(), plan, window, rng: rng.fork("each") };
    let mut drawn = Vec::new();
    for class in classes(rng, plan.profile) {
        for _ in 0..rng.between(1, 4) {
            hand.draw(class, &mut drawn);
        }
    }
    keep_one_clock(&mut drawn);
    drawn.retain(|fault| fault.at < plan.heal_ns);
    drawn.sort_by_key(|fault| fault.at);
    for (id, fault) in (0..).zip(&mut drawn) {
        fault.id = id;
        fault.until = fault.until.min(plan.heal_ns);
    }
    drawn.extend(attacks(rng, plan, window, drawn.len()));
    drawn
}

/// Attackers in a run that draws everything: they are drawn apart and come last, so that the others are what they are without them.
fn attacks(rng: &SimRng, plan: &Plan, window: Window, from: usize) -> Vec<Fault> {
    let mut rng = rng.fork("attackers");
    if plan.profile != Profile::Swarm || !rng.chance(ATTACKED_PPM) {
        return Vec::new();
    }
    let mut hand = Hand { lease: plan.server.lease_ns(), wait: plan.server.wait_ns(), plan, window, rng };
    let mut drawn = Vec::new();
    (0..2).for_each(|_| hand.draw(Attack, &mut drawn));
    for (id, fault) in (from..).zip(&mut drawn) {
        fault.id = u32::try_from(id).unwrap_or(u32::MAX);
        fault.until = fault.until.min(plan.heal_ns);
    }
    drawn
}

/// A machine that sleeps has no raw clock to protect it while its boot clock is slewed too far.
fn keep_one_clock(drawn: &mut [Fault]) {
    let sleepers: Vec<Node> =
        drawn.iter().filter_map(|fault| if let What::Suspend { node } = fault.what { Some(node) } else { None }).collect();
    for fault in drawn {
        if let What::Rate { node, rates } = &mut fault.what
            && sleepers.contains(node)
        {
            rates.boot_ppb = rates.raw_ppb;
        }
    }
}

/// The kinds that a run of this profile has; one that stands twice has twice as many.
fn classes(rng: &mut SimRng, profile: Profile) -> Vec<Class> {
    let (always, sometimes): (&[Class], &[Class]) = match profile {
        Profile::Calm => return Vec::new(),
        Profile::Swarm => (&[], &ALL),
        Profile::Partition => (&[Cut, Cut, Flap], &[Loss, Delay, Move]),
        Profile::Clocks => (&[Slew, Slew, Cut, Loss], &[SlewBoot, SleepAgent, SleepServer, PauseAgent, Delay]),
        Profile::Crash => (&[CrashAgent, CrashAgent], &[Cut, Loss, Reorder, PauseAgent, Replay]),
        Profile::Restart => (&[CrashServer], &[CrashServer, Cut, Loss, CrashAgent, DiskSlow, Replay, PauseAgent]),
        Profile::Disk => (&[DiskSlow, DiskStall], &[DiskBroken, ReadErrors, CrashServer, Restore, Loss]),
        Profile::Kinds => (&[DropKind, DropKind, DropKind, DelayKind], &[Duplicate, Reorder]),
        Profile::Pauses => (&[PauseAgent, PauseAgent, PauseServer], &[SleepAgent, SleepServer, Loss, Cut]),
        Profile::Fence => (&[Freeze, PauseAgent], &[Cut, Loss, Freeze, CrashAgent]),
        Profile::Lossy => (&[Loss, Loss], &[Delay, Delay, Flap, Duplicate, Reorder, Replay, Cut]),
        Profile::Attack => (&[Attack, Attack], &[CrashServer, CrashAgent, Loss, Cut, Move, Replay, Duplicate]),
        Profile::Tiny => (&[Loss], &[Cut, CrashAgent, Delay, DropKind]),
    };
    let per_million = if profile == Profile::Swarm { 220_000 } else { 400_000 };
    let mut chosen = always.to_vec();
    chosen.extend(sometimes.iter().filter(|_| rng.chance(per_million)));
    chosen
}

/// What faults are drawn from.
struct Hand<'a> {
    lease: u64,
    wait: u64,
    plan: &'a Plan,
    window: Window,
    rng: SimRng,
}

impl Hand<'_> {
    fn draw(&mut self, class: Class, drawn: &mut Vec<Fault>) {
        if self.plan.profile == Profile::Lossy && matches!(class, Loss | Delay | Flap) {
            return drawn.push(self.lasting(class));
        }
        let at = self.rng.between(MS, self.plan.heal_ns);
        let (short, long) = (self.span(20, 1), self.span(10, 3));
        let what = match class {
            Loss => What::Loss { link: self.link(), ppm: self.rng.spread(20_000, 900_000) },
            Duplicate => What::Duplicate { link: self.link(), ppm: self.rng.spread(20_000, 1_000_000), spread: self.span(100, 3) },
            Delay => What::Delay { link: self.link(), extra: self.span(50, 1), jitter: self.span(50, 1) },
            Reorder => What::Reorder { link: self.link(), ppm: self.rng.spread(20_000, 500_000), by: self.span(100, 2) },
            Cut => What::Cut { link: self.link() },
            Flap => What::Flap { link: self.link(), period: self.span(20, 1).max(MS) },
            DropKind => self.drop_kind(),
            DelayKind => self.delay_kind(),
            Corrupt => What::Corrupt { link: self.link(), ppm: self.rng.spread(10_000, 500_000) },
            Replay => What::Replay { link: self.link(), count: u32::try_from(self.rng.spread(1, 200)).unwrap_or(1) },
            Attack => self.attack(),
            PauseAgent => What::Pause { node: self.agent() },
            PauseServer => What::Pause { node: Node::Server },
            SleepAgent => What::Suspend { node: self.agent() },
            SleepServer => What::Suspend { node: Node::Server },
            Freeze => What::Freeze { node: self.agent() },
            CrashAgent => What::Crash { node: self.agent() },
            CrashServer => What::Crash { node: Node::Server },
            Move => What::Move { agent: self.rng.index(self.plan.agents) },
            Slew => self.slew(),
            SlewBoot => self.slew_boot(),
            DiskSlow => What::DiskSlow { by: self.span(100, 1) },
            DiskStall => What::DiskStall,
            DiskBroken => What::DiskBroken,
            ReadErrors => What::ReadErrors { ppm: self.rng.spread(10_000, 500_000) },
            Restore => What::Restore { down: self.span(20, 1) },
        };
        let length = match class {
            Cut | Flap | Loss | DropKind | DelayKind | Slew | SlewBoot | PauseAgent | SleepAgent | Freeze | Restore | Attack => long,
            Move => 0,
            _ => short,
        };
        // A second crash soon after the first meets a server that has hardly begun.
        if matches!(class, CrashServer | CrashAgent) && self.rng.chance(300_000) {
            let again = at + length + self.rng.spread(100 * US, self.lease);
            drawn.push(Fault { id: 0, at: again, until: again + self.rng.spread(MS, self.wait), what: what.clone() });
        }
        drawn.push(Fault { id: 0, at, until: at + length, what });
    }

    /// A network that is bad for a good part of the run, and never so bad that nothing comes through.
    fn lasting(&mut self, class: Class) -> Fault {
        let (lease, link) = (self.lease, self.link());
        let what = match class {
            Delay => What::Delay { link, extra: self.rng.spread(lease / 40, lease / 8), jitter: self.rng.spread(lease / 40, lease / 8) },
            Flap => What::Flap { link, period: self.rng.spread(lease / 8, lease) },
            _ => What::Loss { link, ppm: self.rng.between(100_000, 500_000) },
        };
        let at = self.rng.between(MS, self.plan.heal_ns / 2);
        let length = self.rng.between(self.plan.heal_ns / 4, self.plan.heal_ns);
        Fault { id: 0, at, until: at + length, what }
    }

    /// A span from a part of τ to several T, small ones likelier.
    fn span(&mut self, part: u64, times: u64) -> u64 {
        self.rng.spread(self.lease / part, self.wait * times)
    }

    fn agent(&mut self) -> Node {
        Node::Agent(self.rng.index(self.plan.agents))
    }

    fn node(&mut self) -> Node {
        if self.rng.chance(400_000) { Node::Server } else { self.agent() }
    }

    fn link(&mut self) -> Link {
        let agent = if self.rng.chance(250_000) { None } else { Some(self.rng.index(self.plan.agents)) };
        let (up, down) = *self.rng.pick(&[(true, true), (true, true), (true, false), (false, true)]);
        Link { agent, up, down }
    }

    fn attack(&mut self) -> What {
        // Where tables are tiny a session that nobody uses keeps agents out.
        let roomy = self.plan.server.sessions_max > 100;
        let by = *self.rng.pick(&[
            AttackerKind::Stranger,
            AttackerKind::Witness,
            AttackerKind::Witness,
            AttackerKind::Insider,
            AttackerKind::Insider,
        ]);
        let by = if roomy || by != AttackerKind::Insider { by } else { AttackerKind::Witness };
        What::Attack { by, count: u32::try_from(self.rng.spread(10, 200)).unwrap_or(10) }
    }

    fn drop_kind(&mut self) -> What {
        let (kind, link) = self.kind();
        What::DropKind { link, kind, ppm: *self.rng.pick(&[1_000_000, 1_000_000, 500_000, 900_000]) }
    }

    fn delay_kind(&mut self) -> What {
        let (kind, link) = self.kind();
        What::DelayKind { link, kind, ppm: *self.rng.pick(&[1_000_000, 500_000]), extra: self.span(20, 2) }
    }

    fn kind(&mut self) -> (u8, Link) {
        let kind = self.rng.pick(Kind::ALL).code();
        let agent = if self.rng.chance(500_000) { None } else { Some(self.rng.index(self.plan.agents)) };
        (kind, Link { agent, up: true, down: true })
    }

    fn slew(&mut self) -> What {
        let node = self.node();
        let Window { slow, fast } = self.window;
        let mut rate = || if self.rng.chance(500_000) { *self.rng.pick(&[slow, fast]) } else { self.rng.between(slow, fast) };
        What::Rate { node, rates: Rates { raw_ppb: rate(), boot_ppb: rate() } }
    }

    /// The boot clock alone leaves the window: an agent's runs slow, the server's fast; the raw clock protects.
    fn slew_boot(&mut self) -> What {
        let node = self.node();
        let Window { slow, fast } = self.window;
        let boot_ppb = if node == Node::Server { fast + fast / 12 } else { slow - slow / 12 };
        What::Rate { node, rates: Rates { raw_ppb: self.rng.between(slow, fast), boot_ppb } }
    }
}
