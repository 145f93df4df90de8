//! The lines of a turn: gathered while a worker has something to do, written before it waits.
//!
//! A busy worker answers dozens of requests between two waits for its sockets. What they add to one
//! file is written at once, for about what one line costs; a worker with one request writes one
//! line.
//!
//! ```text
//! line ──► turn ──the worker is about to wait | a connection ends | no room──► file
//! ```
//!
//! Invariants:
//! 1. No worker waits while it holds a line, and none holds more than [`TURN_BYTES`] for a file.
//! 2. Only files that answer at once are written so: a stream takes whole lines only as long as
//!    they are short.
//! 3. A thread that does not say when it waits writes each line at once.

use std::cell::RefCell;
use std::sync::Arc;

use super::file::LogFile;

/// The most that is gathered for one file (arbitrary: more lines than most turns have).
const TURN_BYTES: usize = 16 * 1024;

thread_local! {
    /// What this thread has gathered; none if it does not.
    static TURN: RefCell<Option<Vec<Gathered>>> = const { RefCell::new(None) };
}

/// Lines of one file.
struct Gathered {
    file: Arc<LogFile>,
    bytes: Vec<u8>,
    lines: u64,
}

/// From now on this thread gathers lines, and calls [`write_out`] whenever it is about to wait.
pub fn begin() {
    TURN.with_borrow_mut(|turn| *turn = Some(Vec::new()));
}

/// Adds a line to a file.
pub fn append(file: &Arc<LogFile>, line: &[u8]) {
    let is_gathered = file.is_direct()
        && line.len() <= TURN_BYTES
        && TURN.with_borrow_mut(|turn| match turn {
            Some(all) => {
                gather(all, file, line);
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
        let Some(all) = turn else { return };
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

fn gather(all: &mut Vec<Gathered>, file: &Arc<LogFile>, line: &[u8]) {
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

    #[test]
    fn lines_are_written_together_before_the_thread_waits() {
        let path = std::env::temp_dir().join(format!("millpond-turn-{}", std::process::id()));
        let file = LogFile::at(&path);
        file.open().unwrap();
        let written = || std::fs::read_to_string(&path).unwrap();
        // INVARIANT 3.
        append(&file, b"a\n");
        assert_eq!(written(), "a\n");
        begin();
        append(&file, b"b\n");
        append(&file, b"c\n");
        assert_eq!(written(), "a\n");
        write_out();
        assert_eq!(written(), "a\nb\nc\n");
        let long = [b'd'; TURN_BYTES];
        append(&file, b"e\n");
        append(&file, &long);
        assert_eq!(written(), "a\nb\nc\ne\n");
        write_out();
        write_out();
        assert_eq!(written().len(), 8 + TURN_BYTES);
        std::fs::remove_file(path).unwrap();
    }
}
