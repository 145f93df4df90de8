//! Sessions: one follower at one log, from opening it until it fails.
//!
//! ```text
//!   beat ──► standing ──► feed ──┬─ records ──► follower
//!                                ├─ each second a beat, while the one before may be on its way
//!                                └─ five beats that do not come back, an error ──► over
//! ```
//!
//! 1. A session ends only with an error. Whoever runs it begins another after a while; nothing is
//!    lost with it, since each begins behind what the zones have taken.
//! 2. A beat is made before it is sent, and its time is read before it is made.

use std::fmt::Display;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{MissedTickBehavior, interval};

use crate::follower::{Follower, Replica};
use crate::log::{Feed, FleetLog, LogError};

/// Time between two beats: a fifth of the usual limit of the lag.
pub const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Beats that may stay out before a session is given up.
const BEATS_OUT_MAX: u32 = 5;
/// Records that are taken together, with one sync of the journal.
const BATCH_MAX: usize = 1024;

type Sending<'a> = Pin<Box<dyn Future<Output = Result<u64, LogError>> + 'a>>;

/// World of a session.
pub trait Scene<R> {
    /// Milliseconds by the clock that zones are confirmed by.
    fn now_ms(&self) -> u64;
    /// The follower has gone on.
    fn tell(&self, follower: &mut Follower<R>);
}

/// Follows the log until that fails.
pub async fn follow<L, R>(
    log: &L,
    follower: &mut Follower<R>,
    scene: &impl Scene<R>,
) -> Result<std::convert::Infallible, LogError>
where
    L: FleetLog,
    R: Replica,
    R::Error: Display,
{
    let mut feed = open(log, follower, scene).await?;
    scene.tell(follower);
    let mut ticks = interval(BEAT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sending: Option<Sending<'_>> = None;
    let mut out = 0;
    loop {
        tokio::select! {
            records = feed.next(BATCH_MAX) => {
                let before = follower.confirmed_ms();
                follower.handle_records(&records?).map_err(|it| refused(&it))?;
                if follower.confirmed_ms() > before {
                    out = 0;
                }
                scene.tell(follower);
            }
            _ = ticks.tick() => {
                if out >= BEATS_OUT_MAX {
                    return Err(lost("beats do not come back"));
                }
                out += 1;
                let beat = follower.beat(scene.now_ms());
                sending = Some(Box::pin(async move { log.append(&beat).await }));
            }
            // What comes of a beat is seen among the records.
            Some(_) = OptionFuture::from(sending.as_mut()) => sending = None,
        }
    }
}

async fn open<L, R>(
    log: &L,
    follower: &mut Follower<R>,
    scene: &impl Scene<R>,
) -> Result<L::Feed, LogError>
where
    L: FleetLog,
    R: Replica,
    R::Error: Display,
{
    // It makes the stream where there is none.
    log.standing().await?;
    // The newest entry is of now: `gap.rs` needs it.
    let beat = follower.beat(scene.now_ms());
    log.append(&beat).await?;
    let standing = log.standing().await?;
    let behind = follower
        .handle_standing(&standing)
        .map_err(|it| refused(&it))?;
    let mut opened = log.read_behind(behind).await?;
    let is_read = follower.handle_pending(opened.pending, &standing);
    if !is_read.map_err(|it| refused(&it))? {
        opened = log.read_behind(standing.last).await?;
    }
    if opened.log != standing.log {
        return Err(lost("the log was made anew"));
    }
    Ok(opened.feed)
}

fn refused(why: &dyn Display) -> LogError {
    LogError {
        what: "writing down what the log says",
        why: why.to_string(),
    }
}

fn lost(why: &str) -> LogError {
    LogError {
        what: "following the log",
        why: why.to_owned(),
    }
}
