//! The march through a record: images after each step, judged by all cores.
//!
//! Decides at which steps images are made, and of which ways. After a change, everything that is seen and chance; after a sync or a
//! promise, what is synced and chance. Where time is short it is shared: one half for steps that are the same for every transaction (the
//! journal's, the witness's), one for all others, both evenly over the whole record. While a journal is nearly full, and every opening
//! has to read it, most steps are passed over, unless each is asked for.
//! Invariant: every image is judged by what was promised before the crash.
//! Leaves to others: what is wrong with an image (`judge`).

use super::crash::{Image, Way};
use super::disk::{Change, Disk, Naming, Node, Step};
use super::judge::{self, Promised};
use super::known::Known;
use super::plant::{is_journal, is_list};
use super::replay::Replay;
use cistern_link::Rng;
use cistern_text::progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most failures that are told.
const FAILURES_MAX: usize = 10;
/// From so many bytes in a journal on, of so many steps one is looked at: of names and tables, of transactions.
const LONG: (u64, usize, usize) = (8 << 20, 8, 64);
/// Images a second, until it is seen how many there are; and at a step, without those by chance.
const RATE: f64 = 20.0;
const WAYS: f64 = 2.0;

/// How images are made of a record.
#[derive(Clone, Copy)]
pub(super) struct March<'a> {
    pub(super) known: &'a Known,
    /// What files and directories were called.
    pub(super) names: &'a [String],
    pub(super) dir: &'a Path,
    /// Images by chance at each step.
    pub(super) mixes: u64,
    pub(super) seed: u64,
    /// Steps at which a journal is long are looked at as all others.
    pub(super) every_step: bool,
    /// After so many failures it ends.
    pub(super) stop_at: usize,
    /// Only after these steps there are images.
    pub(super) focus: (usize, usize),
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Steps after which there were images.
    pub(super) steps: u64,
    pub(super) ways: BTreeMap<&'static str, u64>,
    pub(super) openings: u64,
    pub(super) failures: Vec<String>,
}

impl Tally {
    pub(super) fn failure(what: String) -> Self {
        Self { failures: vec![what], ..Self::default() }
    }

    pub(super) fn images(&self) -> u64 {
        self.ways.values().sum()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.openings += other.openings;
        self.failures.extend(other.failures);
        for (way, count) in other.ways {
            *self.ways.entry(way).or_default() += count;
        }
    }
}

/// An image to be judged.
struct Job {
    at: usize,
    way: Way,
    image: Image,
    promised: Promised,
}

type Verdict = (Job, Result<Promised, String>);

impl March<'_> {
    /// Makes and judges images of what `steps` make of a disk.
    pub(super) fn images(&self, disk: Disk, steps: &[Step], promised: Promised, at_most: Option<Duration>) -> Result<Tally, String> {
        let (jobs, to_do) = sync_channel::<Job>(8);
        let to_do = Mutex::new(to_do);
        let (say, said) = channel();
        thread::scope(|scope| {
            for number in 0..thread::available_parallelism().map_or(1, usize::from) {
                let (say, to_do) = (say.clone(), &to_do);
                scope.spawn(move || self.work(&self.dir.join(format!("image-{number}")), to_do, &say));
            }
            drop(say);
            let mut tally = Tally::default();
            self.go(disk, steps, promised, at_most, &mut tally, &|job| jobs.send(job).is_ok(), &said)?;
            drop(jobs);
            said.iter().for_each(|verdict| self.told(&mut tally, steps, verdict));
            Ok(tally)
        })
    }

    #[allow(clippy::too_many_arguments, reason = "one caller, which has made them all")]
    fn go(
        &self,
        mut disk: Disk,
        steps: &[Step],
        mut promised: Promised,
        at_most: Option<Duration>,
        tally: &mut Tally,
        send: &dyn Fn(Job) -> bool,
        said: &Receiver<Verdict>,
    ) -> Result<(), String> {
        let mut pace = Pace::new(self, steps, at_most);
        for (at, step) in steps.iter().enumerate() {
            disk.step(step);
            match step {
                Step::Promise(batches) => promised.batches = *batches,
                Step::PromiseExtra(value) => promised.extra = *value,
                _ => {}
            }
            let in_focus = (self.focus.0..self.focus.1).contains(&at);
            if !in_focus || !pace.is_due(step, tally.images()) {
                continue;
            }
            tally.steps += 1;
            for way in self.ways(at, step) {
                if !send(Job { at, way, image: Image::of(&disk, way), promised }) {
                    return Err("the judges have gone".to_owned());
                }
            }
            said.try_iter().for_each(|verdict| self.told(tally, steps, verdict));
            if tally.failures.len() >= self.stop_at {
                return Ok(());
            }
            if tally.steps.is_multiple_of(32) {
                progress(&format!("step {at} of {}: {} images, {} failures", steps.len(), tally.images(), tally.failures.len()));
            }
        }
        Ok(())
    }

    fn ways(&self, at: usize, step: &Step) -> Vec<Way> {
        let mut ways = match step {
            Step::Sync(..) | Step::Promise(_) | Step::PromiseExtra(_) => vec![Way::Synced],
            Step::Change(node, _) if is_common(&self.names[*node]) => vec![Way::Seen],
            _ => vec![Way::Seen, Way::Named, Way::Grown],
        };
        let chance = |n| crate::worker::rng(self.seed, (at as u64) << 16 | n).next_u64();
        ways.extend((0..self.mixes).map(|n| Way::Mixed(chance(n))));
        ways
    }

    fn work(&self, dir: &Path, to_do: &Mutex<Receiver<Job>>, say: &Sender<Verdict>) {
        loop {
            let job = to_do.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            let verdict = judge::judge(dir, &job.image, self.known, job.promised);
            if say.send((job, verdict)).is_err() {
                return;
            }
        }
    }

    fn told(&self, tally: &mut Tally, steps: &[Step], (job, verdict): Verdict) {
        *tally.ways.entry(name(job.way)).or_default() += 1;
        let Err(why) = verdict else { return };
        if tally.failures.len() >= FAILURES_MAX {
            return;
        }
        let kept = self.dir.join(format!("failed-{}-{}", job.at, tally.failures.len()));
        // It is told all the same.
        let _ = judge::put(&kept, &job.image);
        tally.failures.push(format!(
            "after step {} ({}), {:?}, in {}: {why}",
            job.at,
            self.describe(&steps[job.at]),
            job.way,
            kept.display()
        ));
    }

    fn describe(&self, step: &Step) -> String {
        let of = |node: &Node| self.names[*node].as_str();
        match step {
            Step::Make { .. } => "something new".to_owned(),
            Step::Name(node, Naming::Add(name, _)) => format!("{}/{name} made", of(node)),
            Step::Name(node, Naming::Remove(name)) => format!("{}/{name} removed", of(node)),
            Step::Name(node, Naming::Rename(from, to, _)) => format!("{}/{from} renamed to {to}", of(node)),
            Step::Change(node, Change::Write(at, data)) => format!("{} bytes written to {} at {at}", data.len(), of(node)),
            Step::Change(node, Change::Resize(len)) => format!("{} is {len} bytes long", of(node)),
            Step::Sync(node, count) => format!("{} synced, {count} changes", of(node)),
            Step::Promise(batches) => format!("{batches} batches promised"),
            Step::PromiseExtra(value) => format!("value {value} promised"),
        }
    }
}

const fn name(way: Way) -> &'static str {
    match way {
        Way::Seen => "seen",
        Way::Synced => "synced",
        Way::Named => "named",
        Way::Grown => "grown",
        Way::Mixed(_) => "mixed",
    }
}

/// Whether a file is written for every transaction.
fn is_common(name: &str) -> bool {
    is_journal(name) || name.ends_with("/witness")
}

/// Which kind of step it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One of every transaction.
    Common,
    /// A name, a table, a list.
    Rare,
    /// Nothing that a crash could change.
    None,
}

fn kind(step: &Step, names: &[String]) -> Kind {
    match step {
        Step::Make { .. } => Kind::None,
        Step::Promise(_) => Kind::Common,
        Step::Change(node, _) | Step::Sync(node, _) if is_common(&names[*node]) => Kind::Common,
        _ => Kind::Rare,
    }
}

/// Which steps are looked at.
struct Pace<'a> {
    names: &'a [String],
    begun: Instant,
    at_most: Option<Duration>,
    /// Bytes written to the journals that there are.
    lengths: BTreeMap<Node, u64>,
    /// Steps that are still to come, of every transaction and others.
    to_come: (usize, usize),
    /// Images at a step.
    each: f64,
    every_step: bool,
    /// Steps passed over since the last that was looked at, while a journal is long: of every transaction and others.
    passed: (usize, usize),
    rng: Rng,
}

impl<'a> Pace<'a> {
    fn new(march: &March<'a>, steps: &[Step], at_most: Option<Duration>) -> Self {
        let focus = &steps[march.focus.0.min(steps.len())..march.focus.1.min(steps.len())];
        let count = |wanted| focus.iter().filter(|step| kind(step, march.names) == wanted).count();
        Self {
            names: march.names,
            begun: Instant::now(),
            at_most,
            lengths: BTreeMap::new(),
            to_come: (count(Kind::Common), count(Kind::Rare)),
            each: WAYS + figure(march.mixes),
            every_step: march.every_step,
            passed: (0, 0),
            rng: crate::worker::rng(march.seed, 1),
        }
    }

    fn is_due(&mut self, step: &Step, images: u64) -> bool {
        match step {
            Step::Change(node, Change::Write(start, data)) if is_journal(&self.names[*node]) => {
                *self.lengths.entry(*node).or_default() = start + data.len() as u64;
            }
            Step::Name(_, Naming::Remove(name)) => self.lengths.retain(|node, _| !self.names[*node].ends_with(&**name)),
            _ => {}
        }
        let common = match kind(step, self.names) {
            Kind::None => return false,
            Kind::Common => true,
            Kind::Rare => false,
        };
        let to_come = if common { &mut self.to_come.0 } else { &mut self.to_come.1 };
        let left = std::mem::replace(to_come, to_come.saturating_sub(1)).max(1);
        !self.is_passed_over(common) && self.is_in_time(left, images)
    }

    /// Whether this one of the steps that are left of its kind is looked at: there is time for some of them.
    fn is_in_time(&mut self, left: usize, images: u64) -> bool {
        let Some(at_most) = self.at_most else { return true };
        let elapsed = self.begun.elapsed().as_secs_f64();
        let rate = if elapsed < 1.0 { RATE } else { figure(images) / elapsed };
        let share = (at_most.as_secs_f64() - elapsed) * rate / 2.0 / (figure(left as u64) * self.each);
        figure(self.rng.below(1 << 20)) < share * figure(1 << 20)
    }

    fn is_passed_over(&mut self, common: bool) -> bool {
        let (long, some, few) = LONG;
        // While there are two, one is about to go.
        if self.every_step || self.lengths.len() != 1 || self.lengths.values().all(|len| *len < long) {
            return false;
        }
        let (passed, one_of) = if common { (&mut self.passed.0, few) } else { (&mut self.passed.1, some) };
        *passed = (*passed + 1) % one_of;
        *passed != 0
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^53")]
const fn figure(count: u64) -> f64 {
    count as f64
}

/// What happened in a record, so that it can be seen that it did.
#[derive(Debug, Default, Serialize)]
pub(super) struct Seen {
    journals_begun: usize,
    journals_removed: usize,
    tables_written: usize,
    tables_removed: usize,
    lists_of_tables: usize,
    syncs: usize,
}

impl Seen {
    pub(super) fn of(replay: &Replay) -> Self {
        let mut seen = Self::default();
        for step in &replay.steps {
            match step {
                Step::Name(_, Naming::Add(name, _)) if is_journal(name) => seen.journals_begun += 1,
                Step::Name(_, Naming::Remove(name)) if is_journal(name) => seen.journals_removed += 1,
                Step::Name(_, Naming::Add(name, _)) if is_list(name) => seen.lists_of_tables += 1,
                Step::Name(place, naming) if replay.names[*place].ends_with("/tables") => match naming {
                    Naming::Add(..) => seen.tables_written += 1,
                    Naming::Remove(_) | Naming::Rename(..) => seen.tables_removed += 1,
                },
                Step::Sync(..) => seen.syncs += 1,
                _ => {}
            }
        }
        seen
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} journals begun, {} removed, {} tables written, {} removed, {} lists of tables, {} syncs",
            self.journals_begun, self.journals_removed, self.tables_written, self.tables_removed, self.lists_of_tables, self.syncs
        )
    }
}
