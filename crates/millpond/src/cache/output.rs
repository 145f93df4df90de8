//! The standard output, whose reader may go away, and a bar that tells how far something is.
//!
//! 1. Who closes the pipe early (`| head`) has what was wanted: that is no failure.
//! 2. The bar is drawn on a terminal only, on the standard error stream, and is gone at the end.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_server::control::report::ProgressReport;
use millpond_system::clock::{self, Instant};

use super::figures;

/// Interval at which the bar is drawn anew.
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// Width of the bar.
const BAR_WIDTH: usize = 30;

/// Destination of text.
pub(super) struct Output {
    to: BufWriter<To>,
}

enum To {
    Stdout(StdoutLock<'static>),
    File(File),
}

impl Write for To {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            To::Stdout(out) => out.write(buf),
            To::File(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            To::Stdout(out) => out.flush(),
            To::File(out) => out.flush(),
        }
    }
}

/// Nobody reads on.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads on")]
pub(super) struct NobodyReads;

impl Output {
    /// The standard output.
    pub(super) fn stdout() -> Output {
        Output {
            to: BufWriter::new(To::Stdout(io::stdout().lock())),
        }
    }

    /// A new file; one that is there is replaced.
    pub(super) fn file(path: &Path) -> Result<Output> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Output {
            to: BufWriter::new(To::File(file)),
        })
    }

    /// Writes a line.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        let written = self.to.write_all(line.as_bytes());
        checked(written.and_then(|()| self.to.write_all(b"\n")))
    }

    /// Writes out the text so far.
    pub(super) fn flush(&mut self) -> Result<()> {
        checked(self.to.flush())
    }

    /// Writes out what is left, at the end.
    pub(super) fn end(mut self) -> Result<()> {
        self.flush()
    }
}

fn checked(written: io::Result<()>) -> Result<()> {
    match written {
        // INVARIANT 1.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(NobodyReads.into()),
        other => other.context("writing"),
    }
}

/// Bar that shows the progress of something.
pub(super) struct Bar {
    label: String,
    is_shown: bool,
    drawn: Option<Instant>,
}

impl Bar {
    /// A bar with the name of what is done; where its own lines would stand between those of a list
    /// on the same terminal there is none.
    pub(super) fn new(label: &str) -> Bar {
        Bar {
            label: label.to_string(),
            is_shown: io::stderr().is_terminal(),
            drawn: None,
        }
    }

    /// Draws the bar, if it is time.
    pub(super) fn draw(&mut self, progress: &ProgressReport) {
        let now = clock::instant();
        let is_due = |drawn: Instant| now.duration_since(drawn) >= DRAWN_EVERY;
        if !self.is_shown || !self.drawn.is_none_or(is_due) {
            return;
        }
        self.drawn = Some(now);
        eprint!("\r\u{1b}[K{}", bar(&self.label, progress));
        // What cannot be drawn is not seen.
        let _ = io::stderr().flush();
    }

    /// Takes the bar away, so that something else can be written.
    pub(super) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            eprint!("\r\u{1b}[K");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(label: &str, progress: &ProgressReport) -> String {
    let all = progress.all.max(1);
    let done = progress.done.min(all);
    let part = (u128::from(done) * BAR_WIDTH as u128 / u128::from(all)) as usize;
    let bytes = match progress.bytes {
        0 => String::new(),
        bytes => format!(", {}", figures::size(bytes)),
    };
    format!(
        "{label} [{}{}] {:>3}% {done} of {all}{bytes}",
        "#".repeat(part),
        " ".repeat(BAR_WIDTH.saturating_sub(part)),
        u128::from(done) * 100 / u128::from(all),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_how_far_it_is() {
        let said = |done, all, bytes| bar("x", &ProgressReport { done, all, bytes });
        assert_eq!(
            said(5, 10, 0),
            format!("x [{}{}]  50% 5 of 10", "#".repeat(15), " ".repeat(15))
        );
        assert!(said(10, 10, 2048).ends_with("] 100% 10 of 10, 2.0K"));
        assert!(said(0, 0, 0).contains("  0% 0 of 1"));
        assert!(said(u64::MAX, u64::MAX, 0).contains("100%"));
    }
}
