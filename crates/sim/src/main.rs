//! The simulator's program.
use cistern_sim::plan::{Plan, Profile};
#[allow(clippy::print_stdout)]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let profile = Profile::ALL.into_iter().find(|p| p.name() == args[1]).unwrap_or_default();
    let (from, n): (u64, u64) = (args[2].parse().unwrap_or(0), args[3].parse().unwrap_or(1));
    let start = std::time::Instant::now();
    let mut bad = 0;
    for seed in from..from + n {
        let plan = Plan::draw(profile, seed);
        let trace = std::env::var("T").is_ok();
        let mut t = cistern_sim::trace::Trace::new(if trace { 1_000_000 } else { 0 }, false);
        let o = cistern_sim::run::run(&plan, trace.then_some(&mut t));
        for line in t.lines() { println!("{line}"); }
        if n < 30 || o.violation.is_some() {
            bad += 1;
            let mut v = o.violation.map(|v| v.to_string()).unwrap_or_default();
            v.truncate(300);
            println!("{seed}: {} steps, {} cmds, {} sent, sim {} heal {}ppm {}", o.steps, o.commands, o.net.sent, o.sim_ns / 1_000_000, o.heal_ppm, v);
        }
    }
    println!("{n} in {:?}, {bad} shown", start.elapsed());
}
