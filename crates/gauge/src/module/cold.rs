//! A range of a large resource that nobody has asked for: cold, again while the rest comes, and
//! once more when nothing comes any more; then the end of another resource.
//!
//! The experiment of "Smart and Efficient Byte-Range Caching with NGINX", with the suffix added.
//! The origin must be slow, as that of the article is; ten bytes a little before the middle are
//! asked for. How long each answer took is recorded by the names of [`PHASES`].
//!
//! That a range comes at once is not held against a clock, which a loaded machine would not keep:
//! when it is there, the origin must have sent less than what lies before it.

use std::time::{Duration, Instant};

use super::{Claim, Knobs};
use crate::client::{Ask, Want};
use crate::load::{Record, User};
use crate::origin::Origin;
use crate::resource::Resource;

/// Bytes that are wanted before the middle, and at the end.
const WANTED: u64 = 10;
const SUFFIX: u64 = 1024;
/// Nothing comes any more when the origin has sent nothing for this long; its pieces are hundredths
/// of a second apart.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two looks at it, and the longest wait.
const LOOK: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_secs(120);

/// Most bytes that the origin had sent of a resource when its cold range was there.
pub(crate) const SENT_AHEAD: &str = "sent_ahead";
/// Most bytes that the origin sent of a resource, when no more came.
pub(crate) const FETCHED: &str = "fetched";

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while let Some(ticket) = user.turn().await {
        let name = |which: &str| format!("cold-{which}-{ticket}");
        let first = Resource::new(&knobs.run, name("first"), knobs.size);
        let second = Resource::new(&knobs.run, name("second"), knobs.size);
        let start = start(first.len());
        let mut range = Ask::part(&first, Want::Part(start, start + WANTED));
        timed(user, "cold", &range).await;
        let sent = sent(user, &first);
        user.record.amount(SENT_AHEAD, sent);
        timed(user, "again", &range).await;
        let fetched = settled(user, &first).await;
        user.record.amount(FETCHED, fetched);
        range.statuses = &["HIT"];
        timed(user, "filled", &range).await;
        timed(user, "suffix", &Ask::part(&second, Want::Last(SUFFIX))).await;
    }
}

/// Offset at which the range begins: in a file of ten slices, deep in the fifth.
fn start(len: u64) -> u64 {
    (len / 2).saturating_sub(len / 40)
}

async fn timed(user: &mut User, phase: &'static str, ask: &Ask) {
    if let Some(answer) = user.ask(ask).await {
        user.record.phase(phase, answer.total);
    }
    // A server may go on with the fill before it reads the connection's next request.
    user.hang_up();
}

fn sent(user: &User, resource: &Resource) -> u64 {
    let asked = |origin: &Origin| origin.asked(resource.path()).body_bytes;
    user.shared.origin.as_ref().map_or(0, asked)
}

/// Waits until the origin sends no more of a resource; what it has sent by then.
async fn settled(user: &User, resource: &Resource) -> u64 {
    let began = Instant::now();
    let mut last = (sent(user, resource), began);
    while last.1.elapsed() < QUIET && began.elapsed() < WAIT {
        tokio::time::sleep(LOOK).await;
        let sent = sent(user, resource);
        if sent != last.0 {
            last = (sent, Instant::now());
        }
    }
    last.0
}

pub(super) fn claims(record: &Record, knobs: &Knobs) -> Vec<Claim> {
    let found = record.amounts.get(SENT_AHEAD).copied().unwrap_or(0);
    vec![Claim::at_most(
        "bytes that the origin had sent when the cold range was there, less than lie before it",
        found,
        start(knobs.size),
    )]
}
