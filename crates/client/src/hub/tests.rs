//! The hub without a server: threads that panic under its lock, and children of forks that no handler told of.

use super::*;
use crate::call::Call;
use crate::client::Client;
use crate::error::ErrorKind;
use crate::op::kinds;
use cistern_agent::Identity;
use cistern_agent::api::{Target, Wait};
use cistern_agent::config::Config;
use cistern_wire::{AgentId, Mode};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Longer than anything here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of nobody: as long as nothing is asked, its driver sleeps.
pub(crate) fn client() -> Client {
    Client::builder().insecure().server("127.0.0.1:9").start().unwrap()
}

/// The client as the child of a fork has it, of which no handler told.
pub(crate) fn child_of(client: &Client) -> Arc<Inner> {
    let inner = &client.inner;
    Arc::new(Inner {
        home: Home::elsewhere(),
        hub: Arc::clone(&inner.hub),
        clock: inner.clock.clone(),
        handle: inner.handle.clone(),
        servers: inner.servers.clone(),
        agent: inner.agent,
        user: inner.user,
        give_up_after: inner.give_up_after,
        stats: Arc::default(),
    })
}

fn is_forked<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Forked)
}

#[test]
fn child_of_which_no_handler_told_gets_no_lock_and_waits_for_nothing() {
    let client = client();
    let child = child_of(&client);
    let command = Command::Lock { target: Target::Object(ObjectId(7)), mode: Mode::Exclusive, wait: Wait::Forever };
    let call = |progress| Call::new(Arc::clone(&child), progress, Subject::Named("test"), kinds::Ping);
    assert!(is_forked(call(child.begin(command, None)).wait()));
    assert!(client.lease().unwrap().session.is_none() && child.hub.lock().unwrap().pending.is_empty(), "nothing was begun");

    let mut running = call(Progress::Running(Arc::default()));
    assert!(running.wait_timeout(PATIENCE).is_some_and(is_forked));
    let polled = Pin::new(&mut running).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(polled) = polled else { panic!("it waits") };
    assert!(is_forked(polled));

    // The lock is held by a thread that is not there.
    let held = client.inner.hub.lock().unwrap();
    assert!(is_forked(child.with(|_| ())));
    drop(held);
}

#[test]
fn driver_that_sleeps_ends_when_a_use_finds_that_a_thread_has_panicked_under_the_lock() {
    let client = client();
    // It goes to sleep.
    std::thread::sleep(Duration::from_millis(100));
    let inner = Arc::clone(&client.inner);
    let panicked = std::thread::spawn(move || inner.with(|hub| assert!(hub.over, "a defect")));
    assert!(panicked.join().is_err());
    assert!(client.ping().wait().is_err_and(|error| error.kind() == ErrorKind::Internal));
    let begun = std::time::Instant::now();
    while !client.inner.hub.lock().unwrap_or_else(PoisonError::into_inner).over {
        assert!(begun.elapsed() < PATIENCE, "the driver sleeps on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_panic_under_the_lock_leaves_nobody_waiting() {
    let identity = Identity { agent: AgentId([1; 16]), incarnation: 1, boot: [0; 16], label: Vec::new() };
    let agent = Agent::new(Config::default(), identity, [0; 32], Vec::new()).unwrap();
    let hub = Arc::new(Mutex::new(Hub::new(agent, Clock::new().unwrap(), "test".to_owned(), String::new(), Duration::ZERO)));
    let (pending, guard) = (Arc::new(Pending::default()), Arc::new(Mailbox::new(1)));
    let until_over = UntilOver(Arc::clone(&hub));
    let (here, there) = (Arc::clone(&pending), Arc::clone(&guard));
    let panicked = std::thread::spawn(move || {
        let _until_over = until_over;
        let mut hub = hub.lock().unwrap();
        hub.pending.insert(OpId(1), Waiting { pending: here, next: None });
        hub.guards.insert(HolderId(1), there);
        panic!("a defect");
    });
    assert!(panicked.join().is_err());
    assert!(matches!(pending.take(), Some(Done::Failed(OpError::Closed))));
    assert!(guard.is_closed());
}
