//! The last judgement: what the workers have written, beside what the server shows when all is quiet.
//!
//! Decides: what must hold of the history of each file, of tokens, and of counters. A client of its own looks, which has cached nothing.
//! Invariant: every record is judged, and every name that the server shows belongs to some record.
//! Leaves to others: the store's own structure (`cisternd check`).

use crate::life::{Answer, Life, NAMES, State, letter};
use crate::record::Record;
use crate::worker::{self, LIVES_PER_DIRECTORY, LOCKS, TALLIES};
use cistern_client::{Client, Config, ErrorKind, FileId};
use cistern_testkit::PATIENCE;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What the workers have done.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) lives: u64,
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    pub(crate) holds: u64,
    pub(crate) beats: u64,
    pub(crate) raised: u64,
    pub(crate) stepped: u64,
    pub(crate) looks: u64,
}

/// Judges a campaign that is over, except for its server; what was done, and what must not be.
pub(crate) fn judge(dir: &Path, server: &str, agents: u8, users: u8) -> Result<(Verdict, Vec<String>), String> {
    let config = Config { give_up_after: PATIENCE, ..Config::default() };
    let client = worker::client_of(server).label("judge").config(config).connect().map_err(|e| e.to_string())?;
    let (mut verdict, mut violations) = (Verdict::default(), Vec::new());
    for agent in 0..agents {
        for user in 0..users {
            let name = worker::user_name(agent, user);
            let records = Record::read_all(&worker::records_of(dir, &name)).map_err(|e| e.to_string())?;
            let lives = replay(&records, &mut verdict);
            let shown = show(&client, &name)?;
            violations.extend(compare(&name, &lives, &shown));
        }
    }
    let records = Record::read_all(&worker::shared_records(dir)).map_err(|e| e.to_string())?;
    let finals = (0..LOCKS).map(|lock| count(&client, &format!("/counter{lock}"))).collect::<Result<Vec<_>, _>>()?;
    violations.extend(locks(&records, &finals, &mut verdict));
    let finals = (0..TALLIES).map(|tally| count(&client, &worker::tally_path(tally))).collect::<Result<Vec<_>, _>>()?;
    violations.extend(tallies(&records, &finals, &mut verdict));
    Ok((verdict, violations))
}

/// What each file can be, by its history.
fn replay(records: &[Record], verdict: &mut Verdict) -> BTreeMap<u64, Life> {
    let (mut lives, mut begun) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        match *record {
            Record::Begin(life, op) => {
                lives.entry(life).or_insert_with(Life::default);
                begun.insert(life, op);
            }
            Record::End(life, answer) => {
                if let (Some(op), Some(of)) = (begun.remove(&life), lives.get_mut(&life)) {
                    of.answered(op, answer);
                    *(if answer == Answer::Unknown { &mut verdict.unknown } else { &mut verdict.answered }) += 1;
                }
            }
            Record::Seen(life, state) => {
                if let Some(of) = lives.get_mut(&life) {
                    of.seen(state);
                }
            }
            _ => {}
        }
    }
    // What was begun and not answered: its worker was killed.
    for (life, op) in begun {
        if let Some(of) = lives.get_mut(&life) {
            of.answered(op, Answer::Unknown);
            verdict.unknown += 1;
        }
    }
    verdict.lives += lives.len() as u64;
    lives
}

/// A file as the server shows it.
#[derive(Debug, Default)]
struct Shown {
    names: u8,
    objects: BTreeSet<FileId>,
    links: BTreeSet<u32>,
    contents: Option<u32>,
}

/// All files of a user, and names that are none of a file.
type Directory = (BTreeMap<u64, Shown>, Vec<String>);

fn show(client: &Client, user: &str) -> Result<Directory, String> {
    let (mut files, mut others) = (BTreeMap::<u64, Shown>::new(), Vec::new());
    let list = |path: &str| match client.read_dir(path).with_metadata().wait() {
        Ok(listing) => Ok(listing.entries),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(format!("the judge cannot look: {e}")),
    };
    for directory in list(&format!("/{user}"))? {
        let number = directory.file_name.to_string_lossy().into_owned();
        let mut reads = Vec::new();
        for entry in list(&format!("/{user}/{number}"))? {
            let name = entry.file_name.to_string_lossy().into_owned();
            let Some((life, which)) = parse(&name).filter(|(life, _)| number.parse() == Ok(life / LIVES_PER_DIRECTORY)) else {
                others.push(format!("{number}/{name}"));
                continue;
            };
            let shown = files.entry(life).or_default();
            if shown.names == 0 {
                reads.push((life, client.read(format!("/{user}/{number}/{name}")).start()));
            }
            shown.names |= 1 << which;
            shown.objects.insert(entry.id);
            shown.links.extend(entry.metadata.map(|metadata| metadata.nlink()));
        }
        for (life, read) in reads {
            let contents = read.wait().map_err(|e| format!("the judge cannot read: {e}"))?;
            files.entry(life).or_default().contents = Some(worker::read_contents(life, &contents.bytes).unwrap_or(u32::MAX));
        }
    }
    Ok((files, others))
}

/// The life and the name that a file's name tells.
fn parse(name: &str) -> Option<(u64, u8)> {
    let which = (0..NAMES).find(|which| name.ends_with(letter(*which)))?;
    Some((name[..name.len() - 1].parse().ok()?, which))
}

fn compare(user: &str, lives: &BTreeMap<u64, Life>, shown: &Directory) -> Vec<String> {
    let mut wrong: Vec<String> = shown.1.iter().map(|name| format!("/{user}/{name} is there, and nobody made it")).collect();
    wrong.extend(
        shown.0.keys().filter(|life| !lives.contains_key(life)).map(|life| format!("{user} file {life} is there, and nobody made it")),
    );
    let nothing = Shown::default();
    for (number, life) in lives {
        let shown = shown.0.get(number).unwrap_or(&nothing);
        let state = State { names: shown.names, contents: shown.contents.unwrap_or(0) };
        if !life.can_be(state) {
            wrong.push(format!("{user} file {number} is {state}; by what was answered it is {life}"));
        }
        if shown.objects.len() > 1 {
            wrong.push(format!("{user} file {number} has names that are not of one object: {:?}", shown.objects));
        }
        if shown.names != 0 && shown.links != BTreeSet::from([shown.names.count_ones()]) {
            wrong.push(format!("{user} file {number} has {} names and says that it has {:?} links", shown.names.count_ones(), shown.links));
        }
    }
    wrong
}

/// The number in a file; 0 if there is none.
fn count(client: &Client, path: &str) -> Result<u64, String> {
    match client.read(path).wait() {
        Ok(contents) => worker::number(&contents.bytes).ok_or_else(|| format!("{path} has {:?}", contents.bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
        Err(e) => Err(format!("the judge cannot read: {e}")),
    }
}

/// What the holders of locks have written, in the order in which they wrote it.
fn locks(records: &[Record], finals: &[u64], verdict: &mut Verdict) -> Vec<String> {
    let certain: BTreeSet<(u8, u64, u64)> = records
        .iter()
        .filter_map(|record| if let Record::Certain(lock, token, beat) = record { Some((*lock, *token, *beat)) } else { None })
        .collect();
    let mut wrong = Vec::new();
    for (lock, last) in (0..).zip(finals) {
        let (mut newest, mut acked, mut most) = (0, 0, 0);
        for record in records {
            match *record {
                Record::Held(of, token, value) if of == lock && certain.contains(&(lock, token, 0)) => {
                    verdict.holds += 1;
                    if token <= newest {
                        wrong.push(format!("lock {lock}: token {token} was shown after {newest}"));
                    }
                    if value < acked {
                        wrong.push(format!(
                            "counter {lock}: read as {value} under token {token}, after {acked} was answered: a change is lost"
                        ));
                    }
                    if value > most {
                        wrong.push(format!("counter {lock}: read as {value} under token {token}, and nobody has raised it above {most}"));
                    }
                    newest = token;
                    most = most.max(value + 1);
                }
                Record::Beat(of, token, beat) if of == lock && certain.contains(&(lock, token, beat)) => {
                    verdict.beats += 1;
                    if token < newest {
                        wrong.push(format!("lock {lock}: the holder of token {token} went on after {newest} had it"));
                    }
                }
                Record::Raised(of, token, value) if of == lock => {
                    verdict.raised += 1;
                    if value <= acked {
                        wrong.push(format!("counter {lock}: raised to {value} under token {token}, after {acked} was answered"));
                    }
                    acked = acked.max(value);
                }
                _ => {}
            }
        }
        if !(acked..=most).contains(last) {
            wrong.push(format!("counter {lock} is {last} in the end; it was raised to {acked} for certain, and to {most} at most"));
        }
    }
    wrong
}

/// What was done by compare-and-set: each value was set by one who read the one before, and by one only.
fn tallies(records: &[Record], finals: &[u64], verdict: &mut Verdict) -> Vec<String> {
    let mut wrong = Vec::new();
    for (tally, last) in (0..).zip(finals) {
        let (mut tried, mut stepped) = (BTreeSet::new(), BTreeSet::new());
        // What every look from now on must see, since it was answered or seen; and that at the beginning of each look.
        let (mut seen, mut looking) = (0, BTreeMap::new());
        for record in records {
            match *record {
                Record::Trying(of, value, _) if of == tally => _ = tried.insert(value),
                Record::Stepped(of, value, _) if of == tally => {
                    verdict.stepped += 1;
                    if !stepped.insert(value) {
                        wrong.push(format!("tally {tally}: two were told that they set it to {value}"));
                    }
                    seen = seen.max(value);
                }
                Record::Looking(of, who, _) if of == tally => _ = looking.insert(who, seen),
                Record::Looked(of, who, value) if of == tally => {
                    verdict.looks += 1;
                    let least = looking.remove(&who).unwrap_or_default();
                    if value < least {
                        wrong.push(format!("tally {tally}: read as {value}, after {least} was answered or read: a read of the past"));
                    }
                    if value > 0 && !tried.contains(&value) {
                        wrong.push(format!("tally {tally}: read as {value}, which nobody has set"));
                    }
                    seen = seen.max(value);
                }
                _ => {}
            }
        }
        if stepped.last().is_some_and(|newest| newest > last) {
            wrong.push(format!("tally {tally} is {last} in the end, and was set to {stepped:?}: a change is lost"));
        }
        if let Some(nobody) = (1..=*last).find(|value| !tried.contains(value)) {
            wrong.push(format!("tally {tally} is {last} in the end, and nobody has set it to {nobody}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Op;

    fn judged(records: &[Record], last: u64) -> usize {
        locks(records, &[last], &mut Verdict::default()).len()
    }

    fn hold(token: u64, value: u64) -> [Record; 3] {
        [Record::Held(0, token, value), Record::Certain(0, token, 0), Record::Raised(0, token, value + 1)]
    }

    #[test]
    fn tokens_that_fall_and_changes_that_are_lost_or_invented_are_found() {
        let sound = [hold(5, 0), hold(9, 1)].concat();
        assert_eq!(judged(&sound, 2), 0);
        assert!(judged(&[hold(9, 0), hold(5, 1)].concat(), 2) > 0, "a token falls");
        assert!(judged(&[hold(5, 0), hold(9, 0)].concat(), 1) > 0, "a change is lost");
        assert!(judged(&[hold(5, 0), hold(9, 2)].concat(), 3) > 0, "a change is made twice");
        assert!(judged(&sound, 1) > 0 && judged(&sound, 3) > 0, "in the end, too");
        let uncertain = [vec![Record::Held(0, 9, 0)], hold(5, 0).to_vec()].concat();
        assert_eq!(judged(&uncertain, 1), 0, "who was not certain any more says nothing");
        let beat = |token, beat| vec![Record::Beat(0, token, beat), Record::Certain(0, token, beat)];
        let (first, second) = (hold(5, 0).to_vec(), hold(9, 1).to_vec());
        assert_eq!(judged(&[first.clone(), beat(5, 1), second.clone(), beat(9, 1)].concat(), 2), 0);
        assert!(judged(&[first.clone(), second.clone(), beat(5, 1)].concat(), 2) > 0, "two at once");
        assert_eq!(judged(&[first, second, vec![Record::Beat(0, 5, 1)]].concat(), 2), 0);
    }

    #[test]
    fn a_tally_that_was_stepped_twice_or_by_nobody_is_found() {
        let judged = |records: &[Record], last| tallies(records, &[last], &mut Verdict::default()).len();
        let step = |value| [Record::Trying(0, value, 1), Record::Stepped(0, value, 1)];
        assert_eq!(judged(&[step(1), step(2)].concat(), 2), 0);
        let unanswered = [Record::Trying(0, 3, 1), Record::Trying(0, 3, 1)];
        assert_eq!(judged(&[&step(1)[..], &step(2), &unanswered].concat(), 3), 0, "one of them may have done it");
        assert!(judged(&[step(1), step(1)].concat(), 1) > 0, "both from the same value");
        assert!(judged(&[step(1), step(2)].concat(), 1) > 0, "lost");
        assert!(judged(&step(1), 2) > 0, "made twice");
        let look = |who, value| [Record::Looking(0, who, 0), Record::Looked(0, who, value)];
        assert_eq!(judged(&[&step(1)[..], &look(7, 1), &step(2), &look(8, 2)].concat(), 2), 0);
        let during = [Record::Looking(0, 7, 0), Record::Trying(0, 2, 2), Record::Stepped(0, 2, 2), Record::Looked(0, 7, 1)];
        assert_eq!(judged(&[&step(1)[..], &during].concat(), 2), 0, "it began before that was answered");
        assert!(judged(&[&step(1)[..], &step(2), &look(7, 1)].concat(), 2) > 0, "of the past");
        let begun = [Record::Trying(0, 2, 2)];
        assert!(judged(&[&step(1)[..], &begun, &look(7, 2), &look(8, 1)].concat(), 2) > 0, "seen by another one before");
        assert!(judged(&[&step(1)[..], &look(7, 2)].concat(), 1) > 0, "of the future");
    }

    #[test]
    fn files_that_no_history_allows_are_found() {
        let begun = [Record::Begin(1, Op::Create(0)), Record::End(1, Answer::Done), Record::Begin(1, Op::Link(0, 1))];
        let lives = replay(&begun, &mut Verdict::default());
        let compare = |names: u8, links: u32, objects: &[u64]| {
            let objects = objects.iter().map(|id| FileId(*id)).collect();
            let shown = Shown { names, objects, links: BTreeSet::from([links]), contents: Some(0) };
            compare("u", &lives, &(BTreeMap::from([(1, shown)]), Vec::new())).len()
        };
        assert_eq!((compare(1, 1, &[7]), compare(3, 2, &[7])), (0, 0), "the worker was killed before it was answered");
        assert!(compare(2, 1, &[7]) > 0 && compare(1, 2, &[7]) > 0 && compare(3, 2, &[7, 8]) > 0);
        let nothing = (BTreeMap::new(), vec!["0/x".to_owned()]);
        assert_eq!(super::compare("u", &lives, &nothing).len(), 2, "a file that is gone, and a name that nobody made");
    }
}
