//! The bar with live figures, and the interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::load::Shared;
use crate::report::bytes;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(200);

/// Set by the first interrupt, for the rest of the process.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs something, with a bar on a terminal, until it is done; an interrupt stops the users, and
/// what they did by then is reported.
pub(crate) fn watch<T: Send>(
    shared: &Arc<Shared>,
    is_quiet: bool,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    let bar = if is_quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(shared.load.requests.unwrap_or(0))
    };
    let style = match shared.load.requests {
        Some(_) => "{bar:30} {pos}/{len} {msg} {elapsed}",
        None => "{spinner} {pos} {msg} {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(style)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_done = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            let done = work();
            is_done.store(true, Ordering::SeqCst);
            done
        });
        runtime.block_on(async {
            while !is_done.load(Ordering::SeqCst) && !working.is_finished() {
                tokio::select! {
                    () = tokio::time::sleep(TICK) => show(&bar, shared),
                    _ = tokio::signal::ctrl_c() => {
                        IS_INTERRUPTED.store(true, Ordering::SeqCst);
                        shared.stop();
                    }
                }
            }
        });
        working.join()
    });
    bar.finish_and_clear();
    done.map_err(|panic| std::panic::resume_unwind(panic))
}

/// True if someone pressed Ctrl-C: what was begun is told, and nothing else begins.
pub(crate) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::SeqCst)
}

fn show(bar: &ProgressBar, shared: &Shared) {
    let progress = shared.progress();
    let seconds = shared.began().elapsed().as_secs_f64().max(0.001);
    bar.set_position(progress.requests);
    bar.set_message(format!(
        "{:.0}/s {}/s {} faults",
        progress.requests as f64 / seconds,
        bytes(progress.bytes as f64 / seconds),
        progress.faults
    ));
}
