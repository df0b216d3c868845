//! What stands before the sealed mode's Diffie-Hellman: keys, checks, cookies, and how many handshakes are computed at once.
//!
//! Decides who may cost the server a Diffie-Hellman, and in whose turn: who knows the server's public key, receives at its address, and has a
//! cookie that paid for none yet. Hosts take turns, and where many wait none has more than its share; of a session that is resumed the newest
//! handshake waits, and no other. Implements `docs/sealed.md`. Invariants:
//! no private key is here; a job is in the table from its OPEN until a worker has said that it is over.
//! Leaves to others: who may have a session, and what it is offered (the machine); the computing (workers).

use crate::ids::Owner;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path, Rng};
use cistern_seal::cookie::{COOKIE_LEN, Worth};
use cistern_seal::key::KeyId;
use cistern_seal::work::{JobId, Opening as Secret, SealWork};
use cistern_seal::{Cookies, FirstCheck, Psk, PublicKey};
use cistern_wire::SessionId;
use cistern_wire::sealed::{SealedKind, SealedOpen, SealedResume, prologue};
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use hashbrown::HashMap;

/// Most handshakes that are computed or wait for it.
const JOBS_MAX: usize = 1_024;
/// Of them so many of one host, once half of the places are taken.
const SHARE_MAX: usize = 64;

/// So many that resume a session go before one that opens another: they are in a hurry, and cost a third.
const RESUMES_FIRST: u32 = 3;

/// A handshake that a worker computes, or will.
#[derive(Debug)]
pub(crate) struct Job {
    /// Where it came from.
    pub(crate) path: Path,
    /// Its number, and that of the datagram that is answered.
    pub(crate) handshake: u64,
    pub(crate) echo: u64,
    /// By which it was paid for, and when that was made.
    pub(crate) cookie: [u8; COOKIE_LEN],
    pub(crate) made: Duration,
    /// What it begins with.
    pub(crate) begins: Begins,
}

/// By what the sender of a handshake is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// OPEN: its key, and the secret of this id.
    Open {
        /// Zeros: none.
        psk_id: [u8; 8],
    },
    /// RESUME: the resume secret of this session.
    Resume {
        /// Of before the start.
        former: SessionId,
    },
}

/// What OPEN or RESUME brings.
pub(crate) struct Brought {
    pub(crate) handshake: u64,
    pub(crate) cookie: [u8; COOKIE_LEN],
    pub(crate) begins: Begins,
    /// By which a worker reads it.
    pub(crate) secret: Secret,
}

impl Brought {
    /// By OPEN.
    pub(crate) const fn open(open: &SealedOpen) -> Self {
        let SealedOpen { handshake, key_id, cookie, psk_id, .. } = *open;
        Self { handshake, cookie, begins: Begins::Open { psk_id }, secret: Secret::Open(KeyId(key_id)) }
    }

    /// By RESUME, of a session whose secret this is.
    pub(crate) const fn resume(resume: &SealedResume, secret: Psk) -> Self {
        let SealedResume { handshake, cookie, former, .. } = *resume;
        Self { handshake, cookie, begins: Begins::Resume { former }, secret: Secret::Resume(secret) }
    }

    const fn message(&self) -> Option<Range<usize>> {
        match self.begins {
            Begins::Open { .. } => SealedKind::Open.message(),
            Begins::Resume { .. } => SealedKind::Resume.message(),
        }
    }
}

/// What becomes of a handshake that has a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is computed.
    Begun,
    /// It is to bring another cookie.
    Stale,
    /// Its cookie has paid already.
    Used,
    /// Its cookie is none.
    Forged,
    /// As many are computed as may be.
    Busy,
}

/// All that a server keeps of handshakes of which nobody has decided anything yet.
pub(crate) struct Gate {
    keys: Vec<(KeyId, FirstCheck)>,
    cookies: Cookies,
    /// What the boot clock is shown shifted by: how long this machine has been up is nobody's business.
    shift: Duration,
    jobs: HashMap<JobId, Job>,
    last_job: u64,
    /// What goes on with a handshake that was read; before all that begins another.
    going_on: VecDeque<SealWork>,
    /// What begins one, by host, and the hosts of which something waits, in turn.
    beginning: HashMap<Owner, VecDeque<SealWork>>,
    turns: VecDeque<Owner>,
    /// How many jobs each host has.
    shares: HashMap<Owner, usize>,
    /// Sessions that are resumed, in turn, and what no worker has yet of that, by session; how many such jobs there are and may be, and how many
    /// went before others since one of these.
    turns_to_resume: VecDeque<SessionId>,
    resuming: HashMap<SessionId, SealWork>,
    resumes: usize,
    resumes_max: usize,
    preferred: u32,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Gate {
    /// With the public halves of all keys by which the server may be addressed, for at most so many who resume a session at once.
    pub(crate) fn new(now: Instant, rng: &mut Rng, keys: &[PublicKey], resumes_max: usize) -> Self {
        let (mut key, shift) = ([0; 16], Duration::from_nanos(rng.next_u64() >> 1));
        rng.fill(&mut key);
        Self {
            keys: keys.iter().map(|key| (KeyId::of(key), FirstCheck::of(key))).collect(),
            cookies: Cookies::new(key, now.uptime() + shift),
            shift,
            jobs: HashMap::new(),
            last_job: 0,
            going_on: VecDeque::new(),
            beginning: HashMap::new(),
            turns: VecDeque::new(),
            shares: HashMap::new(),
            turns_to_resume: VecDeque::new(),
            resuming: HashMap::new(),
            resumes: 0,
            resumes_max,
            preferred: 0,
        }
    }

    /// Other keys from now on; those of jobs under way stay with the workers.
    pub(crate) fn set_keys(&mut self, keys: &[PublicKey]) {
        self.keys = keys.iter().map(|key| (KeyId::of(key), FirstCheck::of(key))).collect();
    }

    /// The check of the key that a datagram names, if it is one of this server's and the datagram was made for it.
    pub(crate) fn check(&self, id: [u8; 8], datagram: &[u8]) -> Option<&FirstCheck> {
        let (_, check) = self.keys.iter().find(|(key, _)| key.0 == id)?;
        check.holds(datagram).then_some(check)
    }

    /// The check of what is sent to whoever has named no key.
    pub(crate) fn first_check(&self) -> Option<&FirstCheck> {
        self.keys.first().map(|(_, check)| check)
    }

    /// The cookie for a handshake.
    pub(crate) fn cookie(&self, now: Instant, path: Path, handshake: u64) -> [u8; COOKIE_LEN] {
        self.cookies.give(self.time(now), path.remote, handshake)
    }

    /// How long ago a cookie was made that was taken: no less than the round trip.
    pub(crate) fn age(&self, now: Instant, job: &Job) -> Duration {
        self.time(now).saturating_sub(job.made)
    }

    /// Takes OPEN or RESUME, which has its check.
    pub(crate) fn enter(&mut self, now: Instant, path: Path, echo: u64, brought: Brought, datagram: &[u8]) -> Entered {
        let owner = Owner::of(path.remote);
        let own = self.shares.get(&owner).copied().unwrap_or(0);
        let openings = self.jobs.len() - self.resumes;
        // Who had a session before the start does not compete with strangers for places.
        let room = match brought.begins {
            Begins::Open { .. } => openings < JOBS_MAX && (openings < JOBS_MAX / 2 || own < SHARE_MAX),
            Begins::Resume { former } => self.resumes < self.resumes_max || self.resuming.contains_key(&former),
        };
        let message = brought.message().and_then(|message| datagram.get(message));
        let (Some(message), Some(prologue)) = (message, prologue(datagram)) else {
            return Entered::Forged;
        };
        if !room {
            return Entered::Busy;
        }
        let Brought { handshake, cookie, begins, secret } = brought;
        //= docs/sealed.md#the-handshake
        //# A server MUST verify mac1 and the cookie before it computes a Diffie-Hellman.
        match self.cookies.take(self.time(now), path.remote, handshake, &cookie) {
            Worth::Good => {}
            Worth::Used if bugs::is(Bug::S4) => {}
            Worth::Stale => return Entered::Stale,
            Worth::Used => return Entered::Used,
            Worth::Forged => return Entered::Forged,
        }
        self.last_job += 1;
        let job = JobId(self.last_job);
        let micros = cookie.first_chunk().map_or(0, |made| u64::from_be_bytes(*made));
        self.jobs.insert(job, Job { path, handshake, echo, cookie, made: Duration::from_micros(micros), begins });
        let work = SealWork::Read { job, opening: secret, prologue, message: message.to_vec() };
        if let Begins::Resume { former } = begins {
            match self.resuming.insert(former, work) {
                // It has the place of the one before it: who asks again and again has no more turns than others.
                Some(before) => drop(self.jobs.remove(&before.job())),
                None => {
                    self.resumes += 1;
                    self.turns_to_resume.push_back(former);
                }
            }
            return Entered::Begun;
        }
        *self.shares.entry(owner).or_default() += 1;
        let waiting = self.beginning.entry(owner).or_default();
        if waiting.is_empty() {
            self.turns.push_back(owner);
        }
        waiting.push_back(work);
        Entered::Begun
    }

    /// A handshake that is computed.
    pub(crate) fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// It goes on.
    pub(crate) fn go_on(&mut self, work: SealWork) {
        self.going_on.push_back(work);
    }

    /// It is over.
    pub(crate) fn end(&mut self, job: JobId) -> Option<Job> {
        let ended = self.jobs.remove(&job)?;
        if matches!(ended.begins, Begins::Resume { .. }) {
            self.resumes -= 1;
            return Some(ended);
        }
        let owner = Owner::of(ended.path.remote);
        if let Some(own) = self.shares.get_mut(&owner) {
            *own -= 1;
            if *own == 0 {
                self.shares.remove(&owner);
            }
        }
        Some(ended)
    }

    /// The next work for a worker. One that takes more than it can do soon leaves the hosts no turns.
    pub(crate) fn poll(&mut self) -> Option<SealWork> {
        if let Some(work) = self.going_on.pop_front() {
            return Some(work);
        }
        if (self.preferred < RESUMES_FIRST || self.turns.is_empty())
            && let Some(former) = self.turns_to_resume.pop_front()
            && let Some(work) = self.resuming.remove(&former)
        {
            self.preferred += 1;
            return Some(work);
        }
        self.preferred = 0;
        let owner = self.turns.pop_front()?;
        let waiting = self.beginning.get_mut(&owner)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.beginning.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        work
    }

    fn time(&self, now: Instant) -> Duration {
        now.uptime() + self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::sealed::MAC_LEN;
    use core::net::SocketAddr;

    const NOW: Instant = Instant::new(1_000_000_000, 1_000_000_000);

    fn gate() -> Gate {
        Gate::new(NOW, &mut Rng::from_seed([1; 32]), &[PublicKey::from_bytes([7; 32])], 10)
    }

    fn host(number: u8) -> Path {
        Path::to(SocketAddr::from(([192, 0, 2, number], 4_000)))
    }

    /// A host brings a good cookie.
    fn enter(gate: &mut Gate, path: Path, handshake: u64) -> Entered {
        let cookie = gate.cookie(NOW, path, handshake);
        gate.enter(NOW, path, 1, Brought::open(&open(handshake, cookie)), &[0; 384])
    }

    fn open(handshake: u64, cookie: [u8; COOKIE_LEN]) -> SealedOpen {
        SealedOpen {
            handshake,
            key_id: [0; 8],
            cookie,
            psk_id: [0; 8],
            ephemeral: [0; 32],
            agent_key: [0; 48],
            payload: [0; 216],
            mac1: [0; MAC_LEN],
        }
    }

    #[test]
    fn a_host_has_its_share_once_half_of_the_places_are_taken() {
        let mut gate = gate();
        let begun = (0..1_000).filter(|handshake| enter(&mut gate, host(1), *handshake) == Entered::Begun).count();
        assert_eq!(begun, JOBS_MAX / 2, "one host alone has half");
        assert_eq!(enter(&mut gate, host(1), 5_000), Entered::Busy);
        for number in 2..20 {
            let begun = (0..100).filter(|handshake| enter(&mut gate, host(number), *handshake) == Entered::Begun).count();
            assert!(begun == SHARE_MAX || gate.jobs.len() == JOBS_MAX, "host {number} has {begun}");
        }
        assert_eq!((gate.jobs.len(), enter(&mut gate, host(99), 1)), (JOBS_MAX, Entered::Busy));
        let jobs: Vec<JobId> = gate.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| assert!(gate.end(job).is_some()));
        assert!(gate.shares.is_empty());
        assert_eq!(enter(&mut gate, host(1), 6_000), Entered::Begun);
    }

    #[test]
    fn hosts_take_turns_and_what_was_begun_goes_first() {
        let mut gate = gate();
        for (path, handshake) in [(host(1), 1), (host(1), 2), (host(1), 3), (host(2), 4)] {
            assert_eq!(enter(&mut gate, path, handshake), Entered::Begun);
        }
        let mut next = || {
            let work = gate.poll()?;
            gate.job(work.job()).map(|job| job.handshake)
        };
        assert_eq!([next(), next()], [Some(1), Some(4)]);
        let job = JobId(1);
        gate.go_on(SealWork::Drop { job });
        assert!(matches!(gate.poll(), Some(SealWork::Drop { .. })));
        let mut next = || gate.poll().map(|work| work.job().0);
        assert_eq!([next(), next(), next()], [Some(2), Some(3), None]);
    }

    /// A host brings a good cookie to resume a session.
    fn resume(gate: &mut Gate, former: u64, handshake: u64) -> Entered {
        let SealedOpen { cookie, .. } = open(handshake, gate.cookie(NOW, host(1), handshake));
        let begins = Begins::Resume { former: SessionId(former) };
        gate.enter(NOW, host(1), 1, Brought { handshake, cookie, begins, secret: Secret::Resume(Psk::none()) }, &[0; 328])
    }

    #[test]
    fn a_session_that_is_resumed_again_and_again_has_one_place_for_the_newest() {
        let mut gate = gate();
        assert!((1..=50).all(|handshake| resume(&mut gate, 1, handshake) == Entered::Begun), "more than there are places");
        assert_eq!((resume(&mut gate, 2, 100), gate.jobs.len()), (Entered::Begun, 2));
        let next = |gate: &mut Gate| gate.poll().and_then(|work| gate.job(work.job()).map(|job| job.handshake));
        assert_eq!(next(&mut gate), Some(50));
        // While that is computed another one waits behind who came before it.
        assert!((51..=60).all(|handshake| resume(&mut gate, 1, handshake) == Entered::Begun));
        assert_eq!([(); 3].map(|()| next(&mut gate)), [Some(100), Some(60), None]);
        let jobs: Vec<JobId> = gate.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| assert!(gate.end(job).is_some()));
        assert_eq!(gate.resumes, 0);
    }

    #[test]
    fn who_resumes_has_places_of_its_own_and_three_turns_in_four() {
        let mut gate = gate();
        let resume = |gate: &mut Gate, handshake| resume(gate, handshake, handshake);
        assert!((0..10).all(|handshake| resume(&mut gate, handshake) == Entered::Begun));
        assert_eq!(
            (resume(&mut gate, 10), enter(&mut gate, host(1), 50), enter(&mut gate, host(1), 51)),
            (Entered::Busy, Entered::Begun, Entered::Begun)
        );
        let mut next = || gate.poll().and_then(|work| gate.job(work.job()).map(|job| job.handshake));
        assert_eq!([(); 9].map(|()| next()), [0, 1, 2, 50, 3, 4, 5, 51, 6].map(Some));
        assert!(gate.end(JobId(1)).is_some());
        assert_eq!(resume(&mut gate, 11), Entered::Begun, "one is over");
    }

    #[test]
    fn a_cookie_of_the_gate_shows_no_uptime() {
        let moment = |seed: u8| {
            let cookie = Gate::new(NOW, &mut Rng::from_seed([seed; 32]), &[], 10).cookie(NOW, host(1), 1);
            Duration::from_micros(u64::from_be_bytes(cookie[..8].try_into().unwrap()))
        };
        // Within a year of the clock by chance: once in 290 draws of one seed, never of four.
        let year = Duration::from_secs(365 * 86_400);
        assert!((1..=4).any(|seed| moment(seed).abs_diff(NOW.uptime()) > year));
        assert_ne!(moment(1), moment(2));
    }

    #[test]
    fn a_cookie_is_taken_once_and_from_its_host() {
        let mut gate = gate();
        assert_eq!(enter(&mut gate, host(1), 1), Entered::Begun);
        assert_eq!(enter(&mut gate, host(1), 1), Entered::Used);
        let cookie = gate.cookie(NOW, host(2), 2);
        let open = open(2, cookie);
        assert_eq!(gate.enter(NOW, host(3), 1, Brought::open(&open), &[0; 384]), Entered::Forged);
        let later = NOW.plus(Duration::from_secs(11));
        assert_eq!(gate.enter(later, host(2), 1, Brought::open(&open), &[0; 384]), Entered::Stale);
    }
}
