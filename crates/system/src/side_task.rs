//! Requests that run beside those of clients, in tasks of their own that nobody waits for.
//!
//! Invariants:
//! 1. Of a kind, a worker runs at most as many as its caller allows at a time.
//! 2. Such a task belongs to a generation: a graceful shutdown waits for it.

use std::cell::Cell;
use std::future::Future;
use std::thread::LocalKey;

/// Counts the tasks of a kind that run on this worker.
pub type Count = Cell<u32>;

/// A task that runs, or is about to.
#[derive(Debug)]
pub struct Running(&'static LocalKey<Count>);

impl Running {
    /// A place for one more; none if `most` run already.
    pub fn enter(count: &'static LocalKey<Count>, most: u32) -> Option<Self> {
        let running = count.get();
        (running < most).then(|| {
            count.set(running + 1);
            Running(count)
        })
    }

    /// Runs a task in this place; `member` is held for as long as it runs, and makes it one of its
    /// generation.
    pub fn spawn(self, member: impl Sized + 'static, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(async move {
            task.await;
            drop((member, self));
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static RUNNING: Count = const { Count::new(0) };
    }

    #[test]
    fn no_more_run_than_are_allowed() {
        let first = Running::enter(&RUNNING, 2);
        let second = Running::enter(&RUNNING, 2);
        assert!(first.is_some() && second.is_some());
        assert!(Running::enter(&RUNNING, 2).is_none());
        drop(first);
        assert!(Running::enter(&RUNNING, 2).is_some());
        drop(second);
        assert_eq!(RUNNING.get(), 0);
    }
}
