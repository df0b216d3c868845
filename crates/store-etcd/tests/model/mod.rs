//! A model of etcd, servers on it, and a network between that delays, repeats and loses; judged after every step.

use bytes::Bytes;
use cistern_server::store::{Batch, Key};
use cistern_store_etcd::{Answer, Compare, Entry, Event, Header, Identity, Keyspace, Op, Outcome, Reason, Sequencer, Txn};
use cistern_wire::{ObjectId, SessionId, StoreId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys and values of the server's.
type Data = BTreeMap<Bytes, Bytes>;

/// One etcd, as all members together show it.
#[derive(Clone)]
pub(crate) struct Etcd {
    values: BTreeMap<Bytes, Entry>,
    revision: u64,
    cluster: u64,
}

impl Etcd {
    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Revision(key, revision) => self.values.get(key).map_or(0, |entry| entry.revision) == *revision,
            Compare::Value(key, value) => self.values.get(key).map(|entry| &entry.value) == value.as_ref(),
        }
    }

    /// One with an empty store in it.
    pub(crate) fn with_store(keys: &Keyspace) -> Self {
        let identity = Identity { store: StoreId([1; 16]), cluster: 1, servers: None };
        let values = [(keys.identity(), Entry { value: identity.to_bytes(), revision: 1 })].into();
        Self { values, revision: 1, cluster: 1 }
    }

    /// The same, restored: another cluster.
    pub(crate) fn restored(&self) -> Self {
        Self { cluster: 2, ..self.clone() }
    }

    /// How many keys begin so.
    #[allow(dead_code, reason = "for scripts; the test of bugs has none")]
    pub(crate) fn count(&self, prefix: &[u8]) -> usize {
        self.values.keys().filter(|key| key.starts_with(prefix)).count()
    }

    pub(crate) fn execute(&mut self, txn: &Txn) -> Answer {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let mut found = Vec::new();
        let mut touched = std::collections::BTreeSet::new();
        let cleared = |key: &Bytes| ops.iter().any(|op| matches!(op, Op::Clear(from, to) if (from..to).contains(&key)));
        let next = self.revision + 1;
        for op in ops {
            match op {
                Op::Get(key) => found.push(self.values.get(key).cloned()),
                Op::Any(prefix) => {
                    let first = self.values.range(prefix.clone()..).next().filter(|at| at.0.starts_with(prefix));
                    found.push(first.map(|at| at.1.clone()));
                }
                Op::Put(key, value) => {
                    assert!(touched.insert(key.clone()) && !cleared(key), "a key twice in one transaction");
                    self.values.insert(key.clone(), Entry { value: value.clone(), revision: next });
                    self.revision = next;
                }
                Op::Delete(key) => {
                    assert!(touched.insert(key.clone()) && !cleared(key), "a key twice in one transaction");
                    self.revision = if self.values.remove(key).is_some() { next } else { self.revision };
                }
                Op::Clear(from, to) => {
                    let before = self.values.len();
                    self.values.retain(|key, _| !(from..to).contains(&key));
                    self.revision = if self.values.len() < before { next } else { self.revision };
                }
            }
        }
        assert!(txn.compares.len().max(txn.then.len()).max(txn.otherwise.len()) <= 128, "more operations than etcd takes");
        Answer { header: Header { cluster: self.cluster, revision: self.revision }, succeeded, found }
    }
}

/// One start of a server.
struct Life {
    sequencer: Sequencer,
    name: Bytes,
    /// After 0, 1, 2, ... of its batches; empty until it has loaded.
    states: Vec<Data>,
    durable: usize,
    /// How many of its batches its successor has loaded.
    inherited: Option<usize>,
    alive: bool,
    /// It was not the owner any more when it loaded, and does not know yet: nothing that it writes may be done.
    late: bool,
}

/// A copy of a transaction on its way to etcd.
struct Flying {
    life: usize,
    number: u64,
    txn: Arc<Txn>,
}

/// All of it.
pub(crate) struct World {
    keys: Keyspace,
    etcd: Etcd,
    /// What a restore goes back to.
    snapshot: Etcd,
    restored: bool,
    lives: Vec<Life>,
    flying: Vec<Flying>,
    answers: Vec<(usize, u64, Outcome)>,
    random: u64,
    /// The life that has loaded last.
    loaded: Option<usize>,
}

/// What a judge says.
pub(crate) type Verdict = Result<(), String>;

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let keys = Keyspace::new("/cistern");
        let etcd = Etcd::with_store(&keys);
        let snapshot = etcd.clone();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        Self { keys, etcd, snapshot, restored: false, lives: Vec::new(), flying: Vec::new(), answers: Vec::new(), random, loaded: None }
    }

    /// A number below `below`.
    fn pick(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap()
    }

    fn chance(&mut self, of_100: usize) -> bool {
        self.pick(100) < of_100
    }

    /// What a server that began now would load.
    fn loaded(&self) -> Data {
        let mut etcd = self.etcd.clone();
        let mut next = Sequencer::new(self.keys.clone(), Bytes::from_static(b"judge"));
        while let Some((number, txn)) = next.step() {
            let answer = etcd.execute(&txn);
            next.answered(number, Outcome::Answered(answer));
        }
        self.data_in(&etcd)
    }

    fn data_in(&self, etcd: &Etcd) -> Data {
        let prefix = self.keys.data();
        let of = etcd.values.iter().filter(|(key, _)| key.starts_with(&prefix));
        of.map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }

    /// Random moves, then a last server on a network that does what it is asked: it must serve.
    pub(crate) fn run(&mut self, moves: usize) -> Verdict {
        for _ in 0..moves {
            self.one_move()?;
        }
        if self.restored {
            return Ok(());
        }
        self.settle()
    }

    fn one_move(&mut self) -> Verdict {
        let alive: Vec<usize> = (0..self.lives.len()).filter(|life| self.lives[*life].alive).collect();
        let one = (!alive.is_empty()).then(|| alive[self.pick(alive.len().max(1))]);
        match (self.pick(100), one) {
            (0..3, _) if alive.len() < 2 && self.lives.len() < 6 => self.start(),
            (_, None) => self.start(),
            (0..4, Some(life)) => self.lives[life].alive = self.pick(3) > 0,
            (4, _) if self.chance(10) => self.restore(),
            (4..8, _) => self.snapshot = if self.chance(20) { self.etcd.clone() } else { self.snapshot.clone() },
            (8..22, Some(life)) => self.push(life),
            (22..46, Some(life)) => self.send(life),
            (46..48, Some(life)) => self.read(life)?,
            (48..70, _) if !self.flying.is_empty() => self.deliver()?,
            (70..76, _) if !self.flying.is_empty() => {
                // Its time limit, while the copy is still under way.
                let at = self.pick(self.flying.len());
                let Flying { life, number, .. } = self.flying[at];
                self.answers.push((life, number, Outcome::Unknown));
            }
            _ if !self.answers.is_empty() => self.answer()?,
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self) {
        let name = Bytes::from(format!("server {}", self.lives.len()));
        let sequencer = Sequencer::new(self.keys.clone(), name.clone());
        self.lives.push(Life { sequencer, name, states: Vec::new(), durable: 0, inherited: None, alive: true, late: false });
    }

    fn restore(&mut self) {
        self.restored = true;
        self.etcd = self.snapshot.restored();
    }

    fn push(&mut self, life: usize) {
        let Some(mut next) = self.lives[life].states.last().cloned() else { return };
        let id = self.lives[life].states.len() as u64;
        let many = if self.chance(12) { 100 + self.pick(200) } else { self.pick(3) };
        let from = self.pick(40);
        let mut writes = vec![(Key::Object(ObjectId(0)), Some(Bytes::from(format!("{life}.{id}"))))];
        // What is written together, and deleted together: the blocks of a file, the outcomes of a session, single objects.
        let (kind, deletes) = (self.pick(3), self.chance(40));
        for n in from..from + many {
            let n = u16::try_from(n).unwrap();
            let key = match kind {
                0 => Key::Block(ObjectId(9), n.into()),
                1 => Key::Outcome(SessionId(9), n),
                _ => Key::Object(ObjectId(1 + u64::from(n))),
            };
            let value = (!deletes && self.chance(70)).then(|| Bytes::from(format!("{life}.{id}.{n}")));
            writes.push((key, value));
        }
        for (key, value) in &writes {
            match value {
                Some(value) => next.insert(self.keys.of(key), value.clone()),
                None => next.remove(&self.keys.of(key)),
            };
        }
        self.lives[life].states.push(next);
        self.lives[life].sequencer.push(Batch { id, writes });
    }

    fn send(&mut self, life: usize) {
        if self.chance(5) {
            self.lives[life].sequencer.rest();
        }
        if let Some((number, txn)) = self.lives[life].sequencer.step() {
            self.flying.push(Flying { life, number, txn });
        }
    }

    /// A server reads, as soon as it may: at least what it was told is durable.
    fn read(&mut self, life: usize) -> Verdict {
        let is_ready = self.loaded == Some(life) && self.is_owner(life) && !self.restored;
        if is_ready && self.lives[life].sequencer.may_read() {
            let (data, Life { states, durable, .. }) = (self.data_in(&self.etcd), &self.lives[life]);
            if !states[*durable..].contains(&data) {
                return Err("what is read is older than what was told to be durable".to_owned());
            }
        }
        Ok(())
    }

    /// A copy comes to etcd; its answer comes back, or does not.
    fn deliver(&mut self) -> Verdict {
        let at = self.pick(self.flying.len());
        let Flying { life, number, txn } = self.flying.swap_remove(at);
        let outcome = match self.pick(100) {
            0..5 => return Ok(()),
            5..10 => Outcome::NoSpace,
            10..15 => Outcome::Unknown,
            15..20 => {
                self.execute(life, &txn)?;
                Outcome::NoSpace
            }
            20..28 => {
                self.execute(life, &txn)?;
                Outcome::Unknown
            }
            28..34 => {
                self.execute(life, &txn)?;
                return Ok(());
            }
            _ => Outcome::Answered(self.execute(life, &txn)?),
        };
        self.answers.push((life, number, outcome.clone()));
        if self.chance(10) {
            self.answers.push((life, number, outcome));
        }
        Ok(())
    }

    /// Judges what is written: by whom, and whether what is there is what its owner has written so far.
    fn execute(&mut self, life: usize, txn: &Txn) -> Result<Answer, String> {
        let answer = self.etcd.execute(txn);
        let prefix = self.keys.data();
        let is_data = |op: &Op| matches!(op, Op::Put(key, _) | Op::Delete(key) | Op::Clear(key, _) if key.starts_with(&prefix));
        if answer.succeeded && txn.then.iter().any(is_data) && !self.restored && !self.is_owner(life) {
            return Err("written under a former fence".to_owned());
        }
        Ok(answer)
    }

    fn answer(&mut self) -> Verdict {
        let at = self.pick(self.answers.len());
        let (life, number, outcome) = self.answers.swap_remove(at);
        if self.lives[life].alive {
            let of_restored = matches!(&outcome, Outcome::Answered(answer) if answer.header.cluster != 1);
            self.lives[life].sequencer.answered(number, outcome);
            self.take_events(life, of_restored)?;
        }
        Ok(())
    }

    /// `of_restored`: what was answered last was answered by the restored etcd.
    fn take_events(&mut self, life: usize, of_restored: bool) -> Verdict {
        while let Some(event) = self.lives[life].sequencer.event() {
            match event {
                Event::Ready { .. } | Event::Durable(_) if of_restored => return Err("serves a restored etcd".to_owned()),
                // Answered before the restore.
                Event::Ready { .. } | Event::Durable(_) if self.restored => {}
                Event::Ready { .. } => self.load(life)?,
                Event::Durable(id) => self.durable(life, usize::try_from(id).unwrap())?,
                Event::Over(reason) => self.over(life, &reason)?,
            }
        }
        Ok(())
    }

    /// A server loads all that there is: a prefix of what its predecessor has executed, with all that it was told is durable.
    fn load(&mut self, life: usize) -> Verdict {
        let data = self.data_in(&self.etcd);
        if !self.is_owner(life) {
            self.lives[life].late = true;
            self.lives[life].states.push(data);
            return Ok(());
        }
        if let Some(former) = self.loaded {
            let Life { states, durable, .. } = &self.lives[former];
            let Some(found) = states.iter().position(|state| *state == data) else {
                return Err("what was loaded is no prefix of what was executed".to_owned());
            };
            if found < *durable {
                return Err("what was durable is not loaded".to_owned());
            }
            self.lives[former].inherited = Some(found);
        }
        self.lives[life].states.push(data);
        self.loaded = Some(life);
        Ok(())
    }

    fn is_owner(&self, life: usize) -> bool {
        self.etcd.values.get(&self.keys.owner()).is_some_and(|owner| owner.value == self.lives[life].name)
    }

    fn durable(&mut self, life: usize, id: usize) -> Verdict {
        if self.lives[life].late {
            return Err("a server writes that was not the owner when it loaded".to_owned());
        }
        let is_owner = self.loaded == Some(life) && self.is_owner(life);
        let Life { states, durable, inherited, .. } = &mut self.lives[life];
        *durable = id;
        if inherited.is_some_and(|inherited| inherited < id) {
            return Err("told to be durable, and not what the successor has loaded".to_owned());
        }
        let expected = states[id].clone();
        // Whoever has fenced it out may be finishing what it has committed later.
        if is_owner && expected != self.loaded() {
            return Err("told to be durable, and not what is there".to_owned());
        }
        Ok(())
    }

    fn over(&mut self, life: usize, reason: &Reason) -> Verdict {
        self.lives[life].alive = false;
        match reason {
            Reason::Superseded(_) if self.restored || !self.is_owner(life) => Ok(()),
            Reason::Restored | Reason::WentBack if self.restored => Ok(()),
            // Compares that do not hold may tell before the header does.
            Reason::Broken(_) if self.restored => Ok(()),
            reason => Err(format!("over without a reason: {reason}")),
        }
    }

    /// The network is whole: one more server serves, and its batch becomes durable.
    fn settle(&mut self) -> Verdict {
        while let Some(Flying { life, txn, .. }) = self.flying.pop() {
            self.execute(life, &txn)?;
        }
        self.lives.iter_mut().for_each(|life| life.alive = false);
        self.start();
        let life = self.lives.len() - 1;
        for _ in 0..3_000 {
            if let Some((number, txn)) = self.lives[life].sequencer.step() {
                let answer = self.execute(life, &txn)?;
                self.lives[life].sequencer.answered(number, Outcome::Answered(answer));
                self.take_events(life, false)?;
            }
            if self.lives[life].states.len() == 1 {
                self.push(life);
            }
            if self.lives[life].durable == 1 {
                let journals = self.keys.journals();
                if !self.etcd.values.keys().any(|key| key.starts_with(&journals)) {
                    return Ok(());
                }
                self.lives[life].sequencer.rest();
            }
        }
        Err("nothing becomes durable any more, or parts of a journal are left behind".to_owned())
    }
}
