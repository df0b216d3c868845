//! The writer against a model of etcd: scripts of single outcomes, and random schedules of losses, delays, repetitions, changes of servers,
//! restores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod model;

use bytes::Bytes;
use cistern_server::store::{Batch, Key};
use cistern_store_etcd::{Event, Header, Keyspace, Outcome, Reason, Sequencer, ServerList};
use cistern_wire::{ObjectId, StoreId};
use model::{Etcd, World};

#[test]
fn what_is_durable_is_a_prefix_of_what_was_executed_under_any_order_of_answers() {
    for seed in 0..1_000 {
        World::new(seed).run(300).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

/// Bytes of a value of which as many as fit into a transaction are about as large as one may be.
const LARGE: usize = 8_192;

/// A writer, and the etcd that it asks.
struct Script {
    etcd: Etcd,
    writer: Sequencer,
}

impl Script {
    fn new() -> Self {
        let etcd = Etcd::with_store(&keys());
        Self { etcd, writer: Sequencer::new(keys(), Bytes::from_static(b"one")) }
    }

    fn ready() -> Self {
        let mut script = Self::new();
        script.run();
        assert_eq!(script.events(), [Event::Ready { store: StoreId([1; 16]), had_owner: false, servers: None }]);
        script
    }

    /// Answers whatever is asked.
    fn run(&mut self) {
        while let Some((number, txn)) = self.writer.step() {
            let answer = self.etcd.execute(&txn);
            assert!(self.writer.answered(number, Outcome::Answered(answer)));
        }
    }

    /// Answers whatever is asked, each the second time.
    fn run_losing_each_answer(&mut self) {
        while self.writer.step().is_some() {
            self.lose_answer_untold();
            let (number, txn) = self.writer.step().unwrap();
            let answer = self.etcd.execute(&txn);
            assert!(self.writer.answered(number, Outcome::Answered(answer)));
        }
    }

    /// Keys of the server, and parts of a journal, that there are.
    fn counts(&self) -> (usize, usize) {
        (self.etcd.count(&keys().data()), self.etcd.count(&keys().journals()))
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.writer.event()).collect()
    }

    /// The step under way is executed, and nobody hears of it.
    fn lose_answer(&mut self) {
        self.lose_answer_untold();
        assert_eq!(self.events(), [], "nothing is told of it");
    }

    fn lose_answer_untold(&mut self) {
        let (number, txn) = self.writer.step().unwrap();
        self.etcd.execute(&txn);
        assert!(!self.writer.answered(number, Outcome::Unknown));
        assert_eq!(self.writer.step().unwrap(), (number, txn), "the same is asked again");
    }
}

fn keys() -> Keyspace {
    Keyspace::new("/x")
}

fn batch(id: u64, count: u64) -> Batch {
    batch_of(id, count, 1)
}

/// One that puts so many bytes under each of these keys.
fn batch_of(id: u64, count: u64, len: usize) -> Batch {
    let write = |n| (Key::Object(ObjectId(n)), Some(Bytes::from(vec![u8::try_from(id).unwrap(); len])));
    Batch { id, writes: (0..count).map(write).collect() }
}

#[test]
fn answers_that_are_lost_are_found_out_by_asking_the_same_again() {
    let mut script = Script::new();
    script.lose_answer();
    script.lose_answer();
    let (look, _) = script.writer.step().unwrap();
    let answer = script.etcd.execute(&script.writer.step().unwrap().1);
    script.writer.answered(look, Outcome::Answered(answer));
    // The fence, of which the first copy is executed.
    script.lose_answer();
    script.run();
    assert_eq!(script.events(), [Event::Ready { store: StoreId([1; 16]), had_owner: false, servers: None }]);
    // A COMMIT, and each step of a journal.
    script.writer.push(batch(1, 3));
    script.lose_answer();
    script.run();
    assert_eq!(script.events(), [Event::Durable(1)]);
    script.writer.push(batch_of(2, 300, LARGE));
    script.run_losing_each_answer();
    assert_eq!(script.events(), [Event::Durable(2)]);
    assert_eq!(script.counts(), (3, 3));
    assert!(!script.writer.may_read());
    script.run_losing_each_answer();
    assert_eq!(script.counts(), (300, 0));
    assert!(script.writer.may_read());
}

#[test]
fn of_what_goes_by_the_journal_the_last_values_are_applied_when_somebody_reads_or_in_rest_or_when_it_is_full() {
    for reads in [true, false] {
        let mut script = Script::ready();
        for id in 1..=5 {
            script.writer.push(batch(id, 60));
            let (_, txn) = script.writer.step().unwrap();
            assert_eq!(txn.then.len(), 2, "the sequence, and a part for all keys");
            script.run();
            assert_eq!(script.events(), [Event::Durable(id)]);
        }
        assert_eq!(script.counts(), (0, 5), "nobody has read yet");
        if reads {
            assert!(!script.writer.may_read());
        } else {
            script.writer.rest();
        }
        let (_, txn) = script.writer.step().unwrap();
        assert_eq!(txn.then.len(), 62, "the sequence, the last value of each key, the parts' removal");
        script.run();
        assert_eq!(script.counts(), (60, 0));
        assert!(script.writer.may_read());
    }
    let mut script = Script::ready();
    for id in 1..=17 {
        script.writer.push(batch(id, 60));
        script.run();
    }
    assert_eq!(script.counts(), (60, 1), "all before the seventeenth");
}

#[test]
fn a_few_keys_are_written_where_they_belong_unless_the_journal_is_before_them() {
    let mut script = Script::ready();
    script.writer.push(batch(1, 5));
    script.run();
    assert_eq!(script.counts(), (5, 0));
    script.writer.push(batch(2, 60));
    script.run();
    script.writer.push(batch(3, 1));
    script.run();
    assert_eq!(script.counts(), (5, 2));
    script.writer.rest();
    script.run();
    assert_eq!(script.counts(), (60, 0));
}

fn list(number: u32, servers: &str) -> ServerList {
    ServerList { number, servers: servers.to_owned() }
}

#[test]
fn the_first_fence_of_a_group_names_its_servers_and_who_others_have_elected_takes_nothing() {
    let mut script = Script::new();
    let elected = |name: &'static str, by: ServerList, etcd: &Etcd| Script {
        writer: Sequencer::new(keys(), Bytes::from(name)).elected_by(by),
        etcd: etcd.clone(),
    };
    let mut first = elected("first", list(0, "a,b,c"), &script.etcd);
    // Another group has looked before, and fences after.
    let mut other = elected("other", list(0, "c,d"), &script.etcd);
    let (number, look) = other.writer.step().unwrap();
    let seen = other.etcd.execute(&look);
    other.writer.answered(number, Outcome::Answered(seen));
    first.lose_answer();
    first.run();
    let ready = |servers, had_owner| Event::Ready { store: StoreId([1; 16]), had_owner, servers: Some(servers) };
    assert_eq!(first.events(), [ready(list(1, "a,b,c"), false)]);
    other.etcd = first.etcd.clone();
    other.run();
    assert_eq!(other.events(), [Event::Over(Reason::OtherServers(list(1, "a,b,c")))]);
    assert_eq!(other.etcd.count(&keys().owner()), 1);
    // One change after the other, and none twice.
    assert!(!first.writer.change_servers(list(1, "a,b")) && !first.writer.change_servers(list(3, "a,b")));
    assert!(first.writer.change_servers(list(2, "a,b,c,d")) && !first.writer.change_servers(list(2, "a,b")));
    first.lose_answer();
    first.writer.push(batch(1, 1));
    first.run();
    assert_eq!(first.events(), [Event::Durable(1)]);
    // Who was elected by the list before learns of the next; who knows a later one finds that the store has gone back.
    for (by, came) in [
        (list(1, "a,b,c"), ready(list(2, "a,b,c,d"), true)),
        (list(0, "a,b,c,d"), ready(list(2, "a,b,c,d"), true)),
        (list(0, "a,b,c"), Event::Over(Reason::OtherServers(list(2, "a,b,c,d")))),
        (list(3, "a,b,d"), Event::Over(Reason::OtherServers(list(2, "a,b,c,d")))),
    ] {
        let mut next = elected("next", by, &first.etcd);
        next.run();
        assert_eq!(next.events(), [came]);
    }
    // A server without a group leaves it as it is; one of a group finds it.
    script.etcd = first.etcd.clone();
    script.run();
    assert_eq!(script.events(), [ready(list(2, "a,b,c,d"), true)]);
    first.etcd = script.etcd.clone();
    assert!(first.writer.change_servers(list(3, "a")));
    first.run();
    assert_eq!(first.events(), [Event::Over(Reason::Superseded("one".to_owned()))]);
}

#[test]
fn a_change_of_the_servers_leaves_what_is_in_the_journal() {
    let mut script = Script::new();
    script.writer = Sequencer::new(keys(), Bytes::from_static(b"one")).elected_by(list(0, "a,b,c"));
    script.run();
    script.writer.push(batch(1, 60));
    script.run();
    script.writer.push(batch(2, 60));
    // What is under way is finished first.
    let (number, txn) = script.writer.step().unwrap();
    assert!(script.writer.change_servers(list(2, "a,b")));
    let answer = script.etcd.execute(&txn);
    script.writer.answered(number, Outcome::Answered(answer));
    script.run();
    assert_eq!(script.counts(), (0, 2));
    script.writer = Sequencer::new(keys(), Bytes::from_static(b"two"));
    script.run();
    assert_eq!(script.counts(), (60, 0));
    assert_eq!(script.writer.servers(), Some(&list(2, "a,b")));
}

#[test]
fn what_has_no_space_may_have_been_executed() {
    let mut script = Script::ready();
    script.writer.push(batch(1, 1));
    let (number, txn) = script.writer.step().unwrap();
    script.etcd.execute(&txn);
    assert!(!script.writer.answered(number, Outcome::NoSpace));
    script.run();
    assert_eq!(script.events(), [Event::Durable(1)]);
}

#[test]
fn a_writer_that_was_replaced_is_over_with_its_next_write_and_when_it_asks() {
    for writes in [true, false] {
        let mut script = Script::ready();
        let mut other = Script { writer: Sequencer::new(keys(), Bytes::from_static(b"two")), etcd: script.etcd.clone() };
        other.run();
        assert_eq!(other.events(), [Event::Ready { store: StoreId([1; 16]), had_owner: true, servers: None }]);
        script.etcd = other.etcd;
        if writes {
            script.writer.push(batch(1, 1));
        } else {
            script.writer.rest();
        }
        script.run();
        assert_eq!(script.events(), [Event::Over(Reason::Superseded("two".to_owned()))]);
        assert_eq!(script.etcd.count(&keys().data()), 0);
    }
}

#[test]
fn a_successor_finishes_what_was_committed_and_removes_what_was_not() {
    // Two parts laid ready, the third with the commit point, three parts applied and removed.
    for (steps, there) in [(1, 0), (2, 0), (3, 300), (4, 300), (5, 300), (6, 300)] {
        let mut script = Script::ready();
        script.writer.push(batch_of(1, 300, LARGE));
        for _ in 0..steps {
            if script.writer.step().is_none() {
                script.writer.rest();
            }
            let (number, txn) = script.writer.step().unwrap();
            let answer = script.etcd.execute(&txn);
            script.writer.answered(number, Outcome::Answered(answer));
        }
        script.writer = Sequencer::new(keys(), Bytes::from_static(b"two"));
        script.run();
        let ready = Event::Ready { store: StoreId([1; 16]), had_owner: true, servers: None };
        assert_eq!(script.events(), [ready], "after {steps} steps");
        assert_eq!(script.counts(), (there, 0), "after {steps} steps");
    }
}

#[test]
fn a_restored_etcd_is_refused_until_it_is_adopted() {
    let mut script = Script::ready();
    script.writer.push(batch(1, 1));
    script.run();
    script.etcd = script.etcd.restored();
    script.writer.push(batch(2, 1));
    script.run();
    assert_eq!(script.events(), [Event::Durable(1), Event::Over(Reason::Restored)]);
    script.writer = Sequencer::new(keys(), Bytes::from_static(b"two"));
    script.run();
    assert_eq!(script.events(), [Event::Over(Reason::Restored)]);
    script.writer = Sequencer::restoring(keys(), Bytes::from_static(b"three"));
    script.run();
    script.writer.push(batch(1, 1));
    script.run();
    script.writer.adopt(2);
    script.run();
    assert_eq!(script.events()[1..], [Event::Durable(1), Event::Durable(2)]);
    script.writer = Sequencer::new(keys(), Bytes::from_static(b"four"));
    script.run();
    assert_eq!(script.events(), [Event::Ready { store: StoreId([1; 16]), had_owner: true, servers: None }]);
}

#[test]
fn an_etcd_that_went_back_is_not_believed_by_reads_either() {
    let mut script = Script::ready();
    let revision = script.writer.revision();
    assert!(script.writer.believes(Header { cluster: 1, revision: revision + 5 }, revision));
    assert!(script.writer.believes(Header { cluster: 1, revision }, revision), "asked for before the newer one was known");
    assert!(!script.writer.believes(Header { cluster: 1, revision }, revision + 5));
    assert_eq!(script.events(), [Event::Over(Reason::WentBack)]);
    assert_eq!(script.writer.step(), None);
}

#[test]
fn what_etcd_can_never_execute_ends_the_writer_and_a_missing_store_is_told() {
    let mut script = Script::ready();
    script.writer.push(batch(1, 1));
    let (number, _) = script.writer.step().unwrap();
    assert!(script.writer.answered(number, Outcome::Refused("request is too large".to_owned())));
    let [Event::Over(Reason::Broken(told))] = &script.events()[..] else { panic!("it is not over") };
    assert!(told.contains("request is too large"), "{told}");
    let mut elsewhere = Script { writer: Sequencer::new(Keyspace::new("/y"), Bytes::from_static(b"one")), ..Script::new() };
    elsewhere.run();
    assert_eq!(elsewhere.events(), [Event::Over(Reason::Missing)]);
}
