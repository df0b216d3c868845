//! The smallest executors: enough to await a call, and the ones that do what a library is most easily surprised by.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use crate::world::PATIENCE;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(PATIENCE);
        assert!(begun.elapsed() < PATIENCE, "the future was not woken");
    }
}

/// A task that nobody owns but those who will wake it, and that runs wherever it is woken.
pub(crate) struct Inline {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Inline {
    pub(crate) fn start(future: impl Future<Output = ()> + Send + 'static) {
        Arc::new(Self { future: Mutex::new(Some(Box::pin(future))) }).run();
    }

    fn run(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = self.future.lock().unwrap();
        if let Some(future) = place.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *place = None;
        }
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

/// A task whose executor is gone: to wake it for the last time is to drop it, with all that it awaits.
pub(crate) struct Doomed {
    future: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Doomed {
    /// Polls the future once, and leaves it to its wakers.
    pub(crate) fn start(future: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Self { future: Mutex::new(Box::pin(future)) });
        let waker = Waker::from(Arc::clone(&task));
        let polled = task.future.lock().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
}

impl Wake for Doomed {
    fn wake(self: Arc<Self>) {}
}
