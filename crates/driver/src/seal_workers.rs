//! Threads that compute the handshakes of a server in the sealed mode: they have its private keys, the loop has not.
//!
//! Decides how many there are, and that little waits with them: what waits with the machine keeps the turns that hosts have there. A
//! handshake stays with the thread that began it. Leaves to `cistern_seal::work`: the computing; to the machine: what is computed.

use cistern_seal::work::{SealDone, SealWork, Worker};
use cistern_seal::{Entropy, KeySink, SecretKey};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder};
use std::{io, iter};

/// More threads than this take up nothing that a server has not lost elsewhere.
const THREADS_MAX: usize = 4;
/// So much work waits for each thread, besides what it does: about half a millisecond, for which the loop is not woken.
const WAITING_MAX: usize = 7;

/// What a thread is given.
enum Given {
    Work(SealWork),
    Keys(Vec<SecretKey>),
}

/// The threads.
#[derive(Debug)]
pub struct SealWorkers {
    to: Vec<Sender<Given>>,
    done: Receiver<SealDone>,
    /// What was taken and is not done.
    busy: usize,
}

impl SealWorkers {
    /// Starts one thread less than there are processors, but one at least. `wake` is called whenever a thread has done all that it was given;
    /// sessions are told to `log`, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(keys: &[SecretKey], log: Option<&KeySink>, wake: impl Fn() + Clone + Send + 'static) -> io::Result<Self> {
        let threads = thread::available_parallelism().map_or(1, |all| (all.get() - 1).clamp(1, THREADS_MAX));
        let (tell, done) = channel();
        let mut to = Vec::new();
        for number in 0..threads {
            let (sender, work) = channel();
            let (mut worker, tell, wake) = (Worker::new(keys.iter().cloned()).logged(log.cloned()), tell.clone(), wake.clone());
            Builder::new().name(format!("cistern-seal-{number}")).spawn(move || {
                while let Ok(first) = work.recv() {
                    for given in iter::once(first).chain(work.try_iter()) {
                        let done = match given {
                            Given::Work(work) => do_work(&mut worker, work),
                            Given::Keys(keys) => {
                                worker.set_keys(keys);
                                None
                            }
                        };
                        if done.is_some_and(|done| tell.send(done).is_err()) {
                            // Nobody is there any more.
                            return;
                        }
                    }
                    // Once for all that waited: what a handshake costs the loop is to be woken for it.
                    wake();
                }
            })?;
            to.push(sender);
        }
        Ok(Self { to, done, busy: 0 })
    }

    /// Whether more work may be given to it now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.busy < self.to.len() * (1 + WAITING_MAX)
    }

    /// Has the threads take other keys, behind what they were given before.
    pub fn set_keys(&self, keys: &[SecretKey]) {
        for to in &self.to {
            // One that has ended is told of where it is given work.
            let _ = to.send(Given::Keys(keys.to_vec()));
        }
    }

    /// Takes a piece of work.
    pub fn take(&mut self, work: SealWork) {
        self.busy += usize::from(work.is_answered());
        let threads = self.to.len() as u64;
        let place = usize::try_from(work.job().0 % threads).unwrap_or(0);
        // A thread ends with this only.
        if self.to.get(place).is_none_or(|to| to.send(Given::Work(work)).is_err()) {
            log::error!("a thread that computes handshakes has ended");
        }
    }

    /// The next piece of work that is done.
    pub fn done(&mut self) -> Option<SealDone> {
        let done = self.done.try_recv().ok()?;
        self.busy -= 1;
        Some(done)
    }
}

fn do_work(worker: &mut Worker, work: SealWork) -> Option<SealDone> {
    //= docs/sealed.md#the-handshake
    //# An ephemeral key MUST be drawn from the system's random source for its handshake.
    match crate::seed() {
        Ok(random) => worker.work(work, Entropy::from_bytes(random)),
        Err(error) => {
            log::error!("no handshake without randomness: {error}");
            work.is_answered().then(|| SealDone::Failed { job: work.job() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_seal::handshake::Psk;
    use cistern_seal::key::KeyId;
    use cistern_seal::work::{Beginning, Handshaker as _, JobId, KeyHolder, Opening};
    use cistern_wire::sealed::{PROLOGUE_LEN, WelcomePayload};

    fn secret() -> SecretKey {
        SecretKey::from_bytes(crate::seed().unwrap())
    }

    //= docs/sealed.md#the-handshake
    //= type=test
    //# An ephemeral key MUST be drawn from the system's random source for its handshake.
    #[test]
    fn handshakes_are_computed_beside_and_a_wrong_one_fails() {
        let (server, prologue) = (secret(), [7; PROLOGUE_LEN]);
        let (bell, rung) = channel();
        let mut workers = SealWorkers::start(std::slice::from_ref(&server), None, move || bell.send(()).unwrap()).unwrap();
        let mut agents: Vec<_> = (0..5).map(|_| KeyHolder::new(secret(), || Entropy::from_bytes(crate::seed().unwrap()))).collect();
        let public = server.public();
        for (job, agent) in agents.iter_mut().enumerate() {
            let mut message = agent.begin(&Beginning::Open(&public, &Psk::none()), &prologue, b"payload").unwrap();
            message[40] ^= u8::from(job == 4);
            let opening = Opening::Open(KeyId::of(&public));
            workers.take(SealWork::Read { job: JobId(job as u64), opening, prologue, message });
        }
        let (mut ephemerals, mut failed) = (std::collections::BTreeSet::new(), 0);
        while ephemerals.len() + failed < 5 {
            rung.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            while let Some(done) = workers.done() {
                match done {
                    SealDone::Read { job, payload, .. } => {
                        assert_eq!(payload, b"payload");
                        workers.take(SealWork::Write { job, psk: Psk::none(), payload: [1; WelcomePayload::WELCOME_LEN] });
                    }
                    SealDone::Written { job, message, chain } => {
                        let (payload, agents_chain) = agents[usize::try_from(job.0).unwrap()].finish(&message).unwrap();
                        assert_eq!((&payload[..], agents_chain.expose()), (&[1; WelcomePayload::WELCOME_LEN][..], chain.expose()));
                        assert!(ephemerals.insert(message[..32].to_vec()), "each handshake draws its own");
                    }
                    SealDone::Failed { job } => {
                        assert_eq!(job, JobId(4));
                        failed += 1;
                    }
                }
            }
        }
        assert!(workers.has_room());
    }
}
