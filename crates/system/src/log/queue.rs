//! The queue before a log file that may block: a FIFO, a pipe, a terminal, a file on a network.
//!
//! Whoever logs leaves lines here and goes on; a thread of the file's own writes them. The thread
//! starts with the first line that has to wait.
//!
//! ```text
//! worker ─push─► bytes (at most MAX_QUEUE) ─► thread ─► file
//!            └─► full: the lines are lost
//! ```
//!
//! Invariants:
//! 1. Neither what waits nor what is being written is more than [`MAX_QUEUE`] bytes.
//! 2. Lines keep their order: while the queue is busy, everything goes through it.
//! 3. The thread ends when its file is no log any more, even if the file never takes a byte.
//! 4. A line that was begun is ended before others, as long as the file takes bytes.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error;

/// Most bytes that wait for one file. Arbitrary: a second of ten thousand lines.
pub(crate) const MAX_QUEUE: usize = 1 << 20;

/// Time that the thread waits for a file before it looks whether anybody still wants it to.
const LOOK_ROUND: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Lines on their way to one file.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// True while there are bytes here or being written; looked at without the lock.
    is_busy: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    lines: u64,
    /// File that the bytes go to; the newest file of that name.
    file: Option<Arc<File>>,
    has_thread: bool,
}

/// The queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of {MAX_QUEUE} bytes is full")]
pub(crate) struct Full;

/// Called with lines that the file refused.
pub(crate) type Refused = Box<dyn Fn(u64, &io::Error) + Send>;

impl Queue {
    /// True while earlier lines wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.is_busy.load(Ordering::Acquire)
    }

    /// Leaves lines for a file; `refused` makes what is called with those that it does not take.
    pub(crate) fn push(
        &self,
        file: &Arc<File>,
        bytes: &[u8],
        lines: u64,
        refused: impl FnOnce() -> Refused,
    ) -> Result<(), Full> {
        let mut state = lock(&self.shared.state);
        // INVARIANT 1.
        if state.bytes.len() + bytes.len() > MAX_QUEUE {
            return Err(Full);
        }
        state.bytes.extend_from_slice(bytes);
        state.lines += lines;
        state.file = Some(Arc::clone(file));
        self.shared.is_busy.store(true, Ordering::Release);
        if !state.has_thread {
            let shared = Arc::clone(&self.shared);
            let refused = refused();
            let thread = std::thread::Builder::new().name("log".to_owned());
            // Without a thread the lines wait for the next try, which a later line makes.
            state.has_thread = thread.spawn(move || run(&shared, &refused)).is_ok();
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until everything was written, or for `most`; true when it was.
    pub(crate) fn drain(&self, most: Duration) -> bool {
        let state = lock(&self.shared.state);
        let is_busy = |_: &mut State| self.shared.is_busy.load(Ordering::Acquire);
        let waited = self.shared.changed.wait_timeout_while(state, most, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// INVARIANT 3.
impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }
}

/// The thread: writes what is there, until its queue is gone and empty.
fn run(shared: &Shared, refused: &Refused) {
    let mut bytes = Vec::new();
    while let Some((file, lines)) = take(shared, &mut bytes) {
        if let Err((left, error)) = write_all(shared, &file, &bytes) {
            let left = bytes.get(left..).unwrap_or_default();
            // A batch of compressed lines has few line ends, or none.
            let ends = memchr::memchr_iter(b'\n', left).count() as u64;
            refused(ends.clamp(1, lines.max(1)), &error);
        }
        bytes.clear();
        let state = lock(&shared.state);
        if state.bytes.is_empty() {
            shared.is_busy.store(false, Ordering::Release);
            shared.changed.notify_all();
        }
    }
}

/// Waits for bytes and takes them all.
fn take(shared: &Shared, bytes: &mut Vec<u8>) -> Option<(Arc<File>, u64)> {
    let mut state = lock(&shared.state);
    while state.bytes.is_empty() {
        if shared.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let waited = shared.changed.wait(state);
        state = waited.unwrap_or_else(PoisonError::into_inner);
    }
    std::mem::swap(&mut state.bytes, bytes);
    Some((state.file.clone()?, std::mem::take(&mut state.lines)))
}

/// Writes as long as the file takes bytes; the error says how many it took.
fn write_all(shared: &Shared, file: &File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut writer = file;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match writer.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.is_closed.load(Ordering::Acquire) {
                    return Err((written, error));
                }
                // Whatever this answers, the next write says what is the matter.
                let _ = poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&LOOK_ROUND));
            }
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The state is right after any panic: it is changed by single calls only.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begin of a report of lines that the file refused; in nginx's words.
pub(crate) fn write_failed(path: &std::path::Path, failure: &io::Error) -> String {
    let reason = error::os_error(failure);
    format!("write() to \"{}\" failed ({reason})", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn lines_wait_for_a_slow_reader_in_order_and_within_the_bound() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let file = Arc::new(File::from(writer));
        let queue = Queue::default();
        let line = [b'x'; 1000];
        let mut pushed = 0;
        while queue.push(&file, &line, 1, || Box::new(|_, _| {})).is_ok() {
            pushed += line.len();
        }
        assert!(pushed > MAX_QUEUE / 2 && pushed < 3 * MAX_QUEUE, "{pushed}");
        assert!(queue.is_busy() && !queue.drain(Duration::ZERO));
        let mut seen = 0;
        let mut buf = vec![0; 64 * 1024];
        let mut reader = File::from(reader);
        while seen < pushed {
            match reader.read(&mut buf) {
                Ok(count) => seen += count,
                Err(_) => {
                    let _ = poll(
                        &mut [PollFd::new(&reader, PollFlags::IN)],
                        Some(&LOOK_ROUND),
                    );
                }
            }
        }
        assert!(queue.drain(Duration::from_secs(10)));
        assert!(!queue.is_busy());
    }
}
