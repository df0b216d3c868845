//! Three nodes of etcd, and of ZooKeeper, of which the leader is killed, until a lock can be taken that nobody has.
//!
//! Decides that whoever asks is connected before, knows all nodes, and asks again at once when it is refused, as their users do; and that
//! each node is configured as it comes, but for etcd once more as the store's members are in `takeover`. A round has a cluster of its own.
//! Place: beside the workload of groups. Leaves to others: ours (`crate::takeover`), the clusters (`cistern_testkit::Etcds`, `zookeeper`).

use super::{asked, zookeeper};
use crate::cases::Plan;
use crate::figures::Spread;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_testkit::Etcds;
use etcd_client::{Client, Error, LockOptions};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// etcd's defaults: heartbeat and election timeout.
const DEFAULTS: [&str; 4] = ["--heartbeat-interval", "100", "--election-timeout", "1000"];
/// Seconds of the lease that a lock is under.
const TTL_S: i64 = 60;
/// How long one call is waited for before it is made again, and all of them.
const ONE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Adds a row for each that is installed.
pub(crate) fn leaders_lost(dir: &Path, plan: &Plan, progress: &Progress, section: &mut Section) -> Result<(), Trouble> {
    let (by_default, as_ours) = ("etcd, three nodes, its leader killed", "etcd, the same, with the timeouts of our store");
    type Try<'a> = &'a dyn Fn() -> Result<Result<Duration, String>, Trouble>;
    let tries: [(&str, Try<'_>); 3] = [
        (by_default, &|| etcd(dir, &DEFAULTS)),
        (as_ours, &|| etcd(dir, &[])),
        ("ZooKeeper, three nodes, its leader killed", &|| zookeeper::leader_lost(dir, LONGEST)),
    ];
    for (name, measure) in tries {
        let mut ms = Vec::new();
        for round in 1..=plan.rounds {
            progress.say(&format!("{name}: round {round} of {}", plan.rounds));
            match measure()? {
                Ok(took) => ms.push(took.as_secs_f64() * 1e3),
                Err(skipped) => {
                    section.notes.push(skipped);
                    break;
                }
            }
        }
        let rounds = ms.len() as u64;
        let Some(Spread { median, max, .. }) = Spread::of(ms) else { continue };
        section.rows.push(
            Row::new(name)
                .with("lock_p50_ms", "new lock, median", median)
                .with("lock_max_ms", "longest", max)
                .with("rounds", "rounds", rounds),
        );
    }
    Ok(())
}

/// From the kill of etcd's leader until a lock is taken; the inner error says why it is skipped.
fn etcd(dir: &Path, flags: &[&str]) -> Result<Result<Duration, String>, Trouble> {
    let Some(mut etcds) = Etcds::start_in(dir, 3, flags) else {
        return Ok(Err("etcd is not installed (Debian: apt-get install etcd-server): skipped.".to_owned()));
    };
    // After the members, so that they are dropped before them.
    let _guards: Vec<_> = etcds.ids().map(|id| super::process::guard(id, etcds.dir())).collect::<Result<_, _>>()?;
    let runtime = asked::runtime()?;
    let urls: Vec<String> = (0..3).map(|at| format!("http://{}", etcds.address(at))).collect();
    let wrong = |error: Error| Trouble::starting("taking a lock of etcd")(error);
    let mut client = runtime.block_on(Client::connect(urls, None)).map_err(wrong)?;
    runtime.block_on(lock(&mut client, "before")).map_err(wrong)?;
    etcds.kill(etcds.leader());
    let begin = Instant::now();
    runtime.block_on(async {
        while begin.elapsed() < LONGEST {
            if let Ok(Ok(())) = timeout(ONE, lock(&mut client, "after")).await {
                return Ok(Ok(begin.elapsed()));
            }
        }
        Err(Trouble::Silence { while_doing: "waiting for a lock of etcd", seconds: LONGEST.as_secs() })
    })
}

async fn lock(client: &mut Client, name: &str) -> Result<(), Error> {
    let lease = client.lease_grant(TTL_S, None).await?.id();
    client.lock(name, Some(LockOptions::new().with_lease(lease))).await.map(drop)
}
