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

/// Runs something, with a bar on a terminal, until it is done; an interrupt stops the users, and
/// what they did by then is reported.
pub(crate) fn watch<T: Send>(
    shared: &Arc<Shared>,
    is_quiet: bool,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    let bar = match is_quiet {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(shared.load.requests.unwrap_or(0)),
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
                    _ = tokio::signal::ctrl_c() => shared.stop(),
                }
            }
        });
        working.join()
    });
    bar.finish_and_clear();
    done.map_err(|panic| std::panic::resume_unwind(panic))
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
