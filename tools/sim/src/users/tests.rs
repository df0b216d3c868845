//! Users against an agent that answers at once.
use super::*;
use cistern_agent::api::{HolderId, LockEvent, Locked};
use cistern_link::Instant;
use cistern_wire::{Generation, Mode, ObjectId};

fn file() -> cistern_wire::Attr {
    cistern_wire::Attr { object: ObjectId(2), ..cistern_wire::Attr::FILE }
}

/// Answers every command with success.
fn answer(command: &Command, n: u64) -> Result<Output, OpError> {
    Ok(match command {
        Command::Lock { mode, .. } => Output::Locked(Locked {
            holder: HolderId(n),
            object: ObjectId(2),
            mode: *mode,
            generation: Generation(n),
            token: n,
            valid_until: Instant::new(u64::MAX, u64::MAX),
        }),
        Command::Read { .. } => Output::Data { attr: file(), offset: 0, data: Default::default() },
        _ => Output::Done,
    })
}

/// Runs until `stop`, or until nothing is due; gives every command.
fn run(users: &mut Users, from: u64, stop: u64) -> Vec<(UserOp, Command)> {
    let mut all = Vec::new();
    let mut now = from;
    while let Some(next) = (0..2).filter_map(|agent| users.next(agent)).min().filter(|next| next.0 < stop) {
        now = now.max(next.0);
        for agent in 0..2 {
            for (op, command) in users.act(agent, True(now)) {
                users.ended(agent, op, Some(&answer(&command, op.0)), True(now));
                all.push((op, command));
            }
        }
    }
    all
}

fn users(seed: u64) -> Users {
    let mut rng = SimRng::new(seed);
    let work = Workload {
        weights: Weights {
            lock: 30,
            read: 10,
            write: 10,
            set_attr: 3,
            list: 3,
            names: 20,
            flag: 5,
            misc: 3,
            whole: 9,
            presence: 6,
            leases: 4,
        },
        ..Workload::draw(&mut rng, crate::plan::Profile::Swarm)
    };
    Users::new(&work, 2, rng.fork("users"))
}

#[test]
fn same_seed_makes_the_same_users() {
    assert_eq!(run(&mut users(3), 0, 3_000_000_000), run(&mut users(3), 0, 3_000_000_000));
}

#[test]
fn every_kind_of_act_is_done_and_no_number_comes_twice() {
    let all: Vec<_> =
        (0..6).flat_map(|seed| run(&mut users(seed), 0, 20_000_000_000).into_iter().map(move |(op, c)| (seed, op, c))).collect();
    let mut ops: Vec<_> = all.iter().map(|(seed, op, _)| (*seed, *op)).collect();
    ops.sort_unstable();
    let count = ops.len();
    ops.dedup();
    assert_eq!(ops.len(), count);
    let has = |find: fn(&Command) -> bool| assert!(all.iter().any(|(_, _, command)| find(command)));
    has(|c| matches!(c, Command::Lock { mode: Mode::Shared, .. }));
    has(|c| matches!(c, Command::Lock { mode: Mode::Exclusive, .. }));
    has(|c| matches!(c, Command::Unlock { .. }));
    has(|c| matches!(c.unconditional(), Command::Write { .. }) && c.guard().is_some());
    has(|c| matches!(c, Command::Write { .. }));
    has(|c| matches!(c, Command::Create { exclusive: true, .. }));
    has(|c| matches!(c, Command::Rename { .. }));
    has(|c| matches!(c, Command::Link { .. }));
    has(|c| matches!(c, Command::Unlink { .. }));
    has(|c| matches!(c, Command::Rmdir { .. }));
    has(|c| matches!(c, Command::List { .. }));
    has(|c| matches!(c, Command::SetAttr { .. }));
    has(|c| matches!(c, Command::SetXattr { .. }));
    has(|c| matches!(c, Command::GetXattr { .. }));
    has(|c| matches!(c, Command::Batch { .. }));
    has(|c| matches!(c, Command::Expecting { guard: None, .. }));
}

#[test]
fn after_healing_each_agent_does_one_of_everything_and_is_satisfied() {
    let mut users = users(5);
    run(&mut users, 0, 2_000_000_000);
    assert!(!users.satisfied());
    users.heal(True(2_000_000_000));
    assert!(!users.satisfied());
    let done = run(&mut users, 2_000_000_000, u64::MAX);
    assert!(users.satisfied());
    assert_eq!(done.iter().filter(|(_, command)| *command == Command::Ping).count(), 2);
    assert_eq!((users.next(0), users.next(1)), (None, None), "nothing more is wanted");
}

#[test]
fn failure_after_healing_is_tried_again() {
    let mut users = users(5);
    users.heal(True(0));
    let mut now = 0;
    let mut failed = 0;
    while let Some(next) = users.next(0) {
        now = now.max(next.0);
        for (op, command) in users.act(0, True(now)) {
            let fails = failed < 3;
            failed += u32::from(fails);
            let result = if fails { Err(OpError::Unreachable) } else { answer(&command, op.0) };
            users.ended(0, op, Some(&result), True(now));
        }
    }
    assert_eq!(failed, 3);
    assert!(!users.satisfied(), "the other agent has done nothing");
}

#[test]
fn user_told_that_its_lock_is_lost_confirms_by_giving_it_back() {
    for seed in 0..20 {
        let mut users = users(seed);
        let held = 'found: loop {
            let next = users.next(0).unwrap();
            for (op, command) in users.act(0, next) {
                users.ended(0, op, Some(&answer(&command, op.0)), next);
                if let Command::Lock { .. } = command {
                    break 'found (next, HolderId(op.0));
                }
            }
        };
        let (now, holder) = held;
        users.told(0, &Event::Lock { holder, object: ObjectId(2), what: LockEvent::Lost }, now);
        let all = run(&mut users, now.0, now.0 + 10_000_000_000);
        assert!(all.iter().any(|(_, command)| *command == Command::Unlock { holder }));
    }
}
