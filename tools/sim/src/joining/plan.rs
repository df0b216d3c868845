//! What a run of joining is made of: invites, the hosts that come with them, and who dies when.

use crate::plan::{MS, SEC};
use crate::rng::SimRng;

/// Most times that the server dies.
const CRASHES_MAX: u64 = 8;

/// A command `join` on some host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvitedHost {
    /// With which invite it comes.
    pub invite: usize,
    /// With which key: the command may be given again, also beside another one that still runs.
    pub key: usize,
    /// When it begins, in nanoseconds of true time.
    pub at: u64,
    /// It is killed at that time, and given again.
    pub killed_at: Option<u64>,
}

/// A run.
#[derive(Clone, Debug)]
pub struct InvitedPlan {
    /// What everything else is drawn from.
    pub seed: u64,
    /// How many keys each invite admits.
    pub uses: Vec<u16>,
    /// Who comes.
    pub hosts: Vec<InvitedHost>,
    /// Datagrams lost, in parts per million.
    pub loss_ppm: u64,
    /// When the server dies, and when it is started again.
    pub crashes: Vec<(u64, u64)>,
    /// Most time that the disk takes.
    pub sync_ns: u64,
    /// In a crash, how likely each batch on its way has reached the disk, in parts per million.
    pub reached_ppm: u64,
    /// From when on nothing is lost and nobody dies.
    pub heal_ns: u64,
}

impl InvitedPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed).fork("joining plan");
        let uses: Vec<u16> = (0..=rng.index(2)).map(|_| *rng.pick(&[1, 1, 1, 2, 3])).collect();
        let heal_ns = rng.between(2, 8) * SEC;
        // Half of the runs have all of them come at one moment.
        let apart = if rng.chance(500_000) { 5 * MS } else { heal_ns };
        let mut hosts: Vec<InvitedHost> = Vec::new();
        for number in 0..rng.between(2, 6) {
            let at = 500 * MS + rng.between(0, apart);
            let killed_at = rng.chance(200_000).then(|| at + rng.between(MS, SEC));
            let again = hosts.get(rng.index(hosts.len().max(1))).copied().filter(|_| rng.chance(350_000));
            let host = match again {
                Some(before) => InvitedHost { at, killed_at, ..before },
                None => InvitedHost { invite: rng.index(uses.len()), key: usize::try_from(number).unwrap_or(0), at, killed_at },
            };
            hosts.push(host);
        }
        let mut crashes = Vec::new();
        let mut at = 300 * MS;
        for _ in 0..rng.below(CRASHES_MAX + 1) {
            at += rng.spread(MS, heal_ns / 3);
            let up = at + rng.spread(MS, 400 * MS);
            if up >= heal_ns {
                break;
            }
            crashes.push((at, up));
            at = up;
        }
        Self {
            seed,
            uses,
            hosts,
            loss_ppm: *rng.pick(&[0, 20_000, 200_000]),
            crashes,
            sync_ns: rng.spread(MS, 200 * MS),
            reached_ppm: *rng.pick(&[0, 500_000, 1_000_000]),
            heal_ns,
        }
    }

    /// How many keys come with an invite.
    pub(super) fn keys_of(&self, invite: usize) -> usize {
        let mut keys: Vec<usize> = self.hosts.iter().filter(|host| host.invite == invite).map(|host| host.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }
}
