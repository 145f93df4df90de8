//! Buffers of access logs (`buffer=`, `flush=`, `gzip`): one for each file and worker.
//!
//! Lines are gathered until the next would not fit, or until the oldest has waited for `flush`;
//! then they are written at once, compressed if that is wanted. A worker's end and a reopening
//! write out everything.
//!
//! ```text
//! empty ──line──► filling ──full | flush passed | flush_all──► written ──► empty
//! ```
//!
//! Invariants:
//! 1. A buffer never grows beyond its size; a line longer than that is written by itself.
//! 2. At most one timer runs for a buffer.
//! 3. Each compressed write is a gzip member of its own, so the file is valid after each.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::file::LogFile;
use crate::clock::{self, Instant};

/// Rule by which a file's lines are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// Bytes of the buffer.
    pub size: usize,
    /// The longest time that a line waits.
    pub flush: Option<Duration>,
    /// Level of compression, 1 to 9.
    pub gzip: Option<u32>,
}

struct Buffer {
    file: Arc<LogFile>,
    how: Buffering,
    bytes: Vec<u8>,
    /// Number of lines in `bytes`.
    lines: u64,
    /// Time when the first byte came; meaningful while there are bytes.
    since: Instant,
    has_timer: bool,
}

thread_local! {
    /// The buffers of this worker; a configuration has few.
    static BUFFERS: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Adds a line to a file's buffer.
pub fn append(file: &Arc<LogFile>, how: Buffering, line: &[u8]) {
    BUFFERS.with_borrow_mut(|buffers| {
        let known = buffers
            .iter()
            .position(|buffer| Arc::ptr_eq(&buffer.file, file));
        let index = known.unwrap_or_else(|| {
            buffers.push(Buffer::new(file, how));
            buffers.len() - 1
        });
        if let Some(buffer) = buffers.get_mut(index) {
            buffer.append(how, line);
        }
    });
}

/// Writes out all buffers of this thread; those whose file nobody else uses are gone then.
pub fn flush_all() {
    BUFFERS.with_borrow_mut(|buffers| {
        for buffer in buffers.iter_mut() {
            buffer.flush();
        }
        buffers.retain(|buffer| Arc::strong_count(&buffer.file) > 1);
    });
}

impl Buffer {
    fn new(file: &Arc<LogFile>, how: Buffering) -> Buffer {
        Buffer {
            file: Arc::clone(file),
            how,
            bytes: Vec::with_capacity(how.size),
            lines: 0,
            since: clock::instant(),
            has_timer: false,
        }
    }

    fn append(&mut self, how: Buffering, line: &[u8]) {
        if self.how != how || self.bytes.len() + line.len() > how.size {
            self.flush();
            self.how = how;
        }
        if line.len() > how.size {
            return write(&self.file, how.gzip, line, 1);
        }
        if self.bytes.is_empty() {
            self.since = clock::instant();
        }
        self.bytes.extend_from_slice(line);
        self.lines += 1;
        if let (Some(flush), false) = (how.flush, self.has_timer) {
            self.has_timer = true;
            tokio::task::spawn_local(flush_in_time(Arc::clone(&self.file), self.since + flush));
        }
    }

    fn flush(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        write(&self.file, self.how.gzip, &self.bytes, self.lines);
        self.bytes.clear();
        self.lines = 0;
    }

    /// Instant at which the buffer must be flushed; none when it is empty or may wait for ever.
    fn deadline(&self) -> Option<Instant> {
        let waits = self.how.flush.filter(|_| !self.bytes.is_empty());
        waits.map(|flush| self.since + flush)
    }
}

/// Flushes a file's buffer when its oldest line has waited long enough.
async fn flush_in_time(file: Arc<LogFile>, mut at: Instant) {
    loop {
        clock::sleep_until(at).await;
        let next = BUFFERS.with_borrow_mut(|buffers| {
            let buffer = buffers
                .iter_mut()
                .find(|buffer| Arc::ptr_eq(&buffer.file, &file))?;
            let deadline = buffer.deadline();
            if deadline.is_some_and(|deadline| deadline > clock::instant()) {
                return deadline;
            }
            buffer.has_timer = false;
            buffer.flush();
            None
        });
        match next {
            Some(deadline) => at = deadline,
            None => return,
        }
    }
}

fn write(file: &LogFile, gzip: Option<u32>, bytes: &[u8], lines: u64) {
    let Some(level) = gzip else {
        return file.write(bytes, lines);
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    // Writing into memory never fails.
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    file.write(&packed.unwrap_or_default(), lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of its own for each test.
    fn log(name: &str) -> (Arc<LogFile>, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("millpond-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let file = LogFile::at(&path);
        file.open().unwrap();
        (file, path)
    }

    fn how(size: usize) -> Buffering {
        Buffering {
            size,
            flush: None,
            gzip: None,
        }
    }

    #[test]
    fn lines_wait_until_the_next_does_not_fit() {
        let (file, path) = log("full");
        let written = || std::fs::read_to_string(&path).unwrap();
        append(&file, how(8), b"abc\n");
        append(&file, how(8), b"def\n");
        assert_eq!(written(), "");
        append(&file, how(8), b"g\n");
        assert_eq!(written(), "abc\ndef\n");
        append(&file, how(8), b"longer than all\n");
        assert_eq!(written(), "abc\ndef\ng\nlonger than all\n");
        append(&file, how(8), b"x\n");
        flush_all();
        assert_eq!(written(), "abc\ndef\ng\nlonger than all\nx\n");
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_line_waits_no_longer_than_flush() {
        let (file, path) = log("flush");
        let how = Buffering {
            flush: Some(Duration::from_secs(5)),
            ..how(100)
        };
        let local = tokio::task::LocalSet::new();
        let written = || std::fs::read_to_string(&path).unwrap();
        local
            .run_until(async {
                append(&file, how, b"a\n");
                clock::pause(Duration::from_secs(4)).await;
                append(&file, how, b"b\n");
                assert_eq!(written(), "");
                clock::pause(Duration::from_secs(2)).await;
                assert_eq!(written(), "a\nb\n");
                append(&file, how, b"c\n");
                clock::pause(Duration::from_secs(6)).await;
                assert_eq!(written(), "a\nb\nc\n");
            })
            .await;
        std::fs::remove_file(path).unwrap();
    }
}
