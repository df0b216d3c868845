#![allow(missing_docs)]
mod agent; mod bugs; mod canon; mod model; mod network; mod properties; mod rules; mod server; mod state;
use stateright::{Checker, Model, HasDiscoveries};
fn main() {
    let n: u8 = std::env::args().nth(1).unwrap().parse().unwrap();
    let h: i32 = std::env::args().nth(2).unwrap().parse().unwrap();
    let opts = std::env::args().nth(3).unwrap_or_default();
    let rules = rules::Rules { requests: n, horizon: if h < 0 { None } else { Some(h as u8) }, rescue: opts.contains('r'), surrender: opts.contains('s'), last_heard: opts.contains('l'), reduce: !opts.contains('f'), ..Default::default() };
    let t = std::time::Instant::now();
    let c = model::LeaseModel::new(rules).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("states {} unique {} depth {} {:?} unseen {:?}", c.state_count(), c.unique_state_count(), c.max_depth(), t.elapsed(), properties::unseen(c.model()));
    for (n, p) in c.discoveries() { println!("{n}: {:#?}", p.into_vec().iter().map(|(s,a)| format!("{a:?}  {s:?}")).collect::<Vec<_>>()); }
}
