//! The lines of a turn: those of all tasks that were ready together are written together.
//!
//! A busy worker answers dozens of requests between two waits for its sockets. What they add to one
//! file is written at once, for about what one line costs. The first line of a turn makes a task
//! ready that writes: it comes behind those that are ready already, and before the worker waits. A
//! worker with one request writes one line.
//!
//! ```text
//! line ──► turn ──the other tasks had their turn | a connection ends | no room──► file
//! ```
//!
//! Invariants:
//! 1. While a thread holds a line, its task is ready; and it never holds more than `TURN_BYTES`
//!    for a file.
//! 2. Only files that answer at once are written so: a stream takes whole lines only as long as
//!    they are short.
//! 3. A thread without such a task writes each line at once.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::file::LogFile;

/// The most that is gathered for one file (arbitrary: more lines than most turns have).
const TURN_BYTES: usize = 16 * 1024;

thread_local! {
    /// Lines that this thread has gathered; none if no task writes them.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

struct Turn {
    all: Vec<Gathered>,
    /// The task that writes.
    task: Waker,
    /// True if the task is ready.
    is_woken: bool,
}

/// Lines of one file.
struct Gathered {
    file: Arc<LogFile>,
    bytes: Vec<u8>,
    lines: u64,
}

/// The task that writes what its thread gathers, from when it begins until it is dropped.
pub async fn write_turns() {
    let _end = End;
    poll_fn::<(), _>(|cx| {
        write_out();
        TURN.with_borrow_mut(|turn| match turn {
            Some(turn) => {
                turn.is_woken = false;
                turn.task.clone_from(cx.waker());
            }
            None => {
                *turn = Some(Turn {
                    all: Vec::new(),
                    task: cx.waker().clone(),
                    is_woken: false,
                });
            }
        });
        Poll::Pending
    })
    .await;
}

/// Ends the gathering: INVARIANT 3.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        write_out();
        // A thread that ends gathers nothing.
        let _ = TURN.try_with(RefCell::take);
    }
}

/// Adds a line to a file.
pub fn append(file: &Arc<LogFile>, line: &[u8]) {
    let is_gathered = file.is_direct()
        && line.len() <= TURN_BYTES
        && TURN.with_borrow_mut(|turn| match turn {
            Some(turn) => {
                turn.gather(file, line);
                true
            }
            None => false,
        });
    if !is_gathered {
        file.write(line, 1);
    }
}

/// Writes what was gathered.
pub fn write_out() {
    TURN.with_borrow_mut(|turn| {
        let Some(Turn { all, .. }) = turn else {
            return;
        };
        let mut is_forgotten = false;
        for gathered in all.iter_mut().filter(|gathered| gathered.lines > 0) {
            gathered.write();
            is_forgotten |= Arc::strong_count(&gathered.file) == 1;
        }
        if is_forgotten {
            // Nobody else has the file any more.
            all.retain(|gathered| Arc::strong_count(&gathered.file) > 1);
        }
    });
}

impl Turn {
    fn gather(&mut self, file: &Arc<LogFile>, line: &[u8]) {
        let all = &mut self.all;
        let known = all.iter().position(|it| Arc::ptr_eq(&it.file, file));
        let index = known.unwrap_or_else(|| {
            all.push(Gathered {
                file: Arc::clone(file),
                bytes: Vec::new(),
                lines: 0,
            });
            all.len() - 1
        });
        if let Some(gathered) = all.get_mut(index) {
            // INVARIANT 1.
            if gathered.bytes.len() + line.len() > TURN_BYTES {
                gathered.write();
            }
            gathered.bytes.extend_from_slice(line);
            gathered.lines += 1;
        }
        if !std::mem::replace(&mut self.is_woken, true) {
            self.task.wake_by_ref();
        }
    }
}

impl Gathered {
    fn write(&mut self) {
        self.file.write(&self.bytes, self.lines);
        self.bytes.clear();
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_of_tasks_that_are_ready_together_are_written_together() {
        let path = std::env::temp_dir().join(format!("millpond-turn-{}", std::process::id()));
        let file = LogFile::at(&path);
        file.open().unwrap();
        let written = || std::fs::read_to_string(&path).unwrap();
        // INVARIANT 3.
        append(&file, b"a\n");
        assert_eq!(written(), "a\n");
        let local = tokio::task::LocalSet::new();
        let turns = async {
            let task = tokio::task::spawn_local(write_turns());
            tokio::task::yield_now().await;
            append(&file, b"b\n");
            append(&file, b"c\n");
            assert_eq!(written(), "a\n");
            tokio::task::yield_now().await;
            assert_eq!(written(), "a\nb\nc\n");
            append(&file, b"d\n");
            append(&file, &[b'x'; TURN_BYTES]);
            assert_eq!(written(), "a\nb\nc\nd\n");
            tokio::task::yield_now().await;
            assert_eq!(written().len(), 8 + TURN_BYTES);
            append(&file, b"e\n");
            task.abort();
            assert!(task.await.is_err());
            assert_eq!(written().len(), 10 + TURN_BYTES);
            append(&file, b"f\n");
            assert_eq!(written().len(), 12 + TURN_BYTES);
        };
        local.run_until(turns).await;
        std::fs::remove_file(path).unwrap();
    }
}
