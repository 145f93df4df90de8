//! `GET /events`, `GET /zones/NAME/events`: what happens to entries, as server-sent events, and the
//! same as lines of a file (`cache_events_log`).
//!
//! ```text
//! event: stored
//! data: {"at":1763719522000,"zone":"pond","kind":"stored","id":"…","key":"…","status":200,…}
//! ```
//!
//! A reader has a queue in the zone ([`watch`]) and a thread here, as lists have: no worker waits
//! for either. It may ask for `kind` (repeated), and for `expiring=SECONDS`: entries that it was
//! told of are told once more so long before they are stale, if they are still there. With
//! `for=SECONDS` the stream ends by itself.
//!
//! 1. What a reader is too slow for is counted, and told as `missed`.
//! 2. A reader that is told nothing for `ALIVE` gets a comment, so that one that has left is
//!    noted.
//! 3. At most `EXPIRING_MAX` entries are remembered for a reader; more are not told of.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::catalogue::Listed;
use millpond_cache::watch::{self, Event, EventKind, Queue, Told, Watch};
use millpond_cache::zone::CacheZone;
use millpond_store::Key;
use millpond_system::clock::{self, Instant};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Body, Lines, MakeLines, Scene, SceneZone, Standing};
use super::query::Reader;
use super::report;

/// Time after which a silent stream says that it is alive (arbitrary: less than usual proxies
/// wait).
const ALIVE: Duration = Duration::from_secs(5);
/// Time between two looks at whether somebody reads.
const LOOK: Duration = Duration::from_secs(1);
/// Entries of a reader that are to be told of before they are stale (arbitrary: ten megabytes).
const EXPIRING_MAX: usize = 1 << 16;

/// Kinds of events, in the order of the manual.
const KINDS: [&str; 11] = [
    "stored",
    "freshened",
    "replaced",
    "evicted",
    "inactive",
    "removed",
    "corrupt",
    "lost",
    "purged",
    "expiring",
    "missed",
];

/// An event, as it is written.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct EventReport {
    /// Time of it, milliseconds since 1970.
    pub at: u64,
    /// Zone in which it happened; none for `missed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Kind of it.
    pub kind: String,
    /// Entry that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Cache key of the entry, as far as 1024 bytes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Last second in which the entry is fresh, since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh_until: Option<i64>,
    /// Kind of what was purged: `exact`, `prefix` and so on.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub purge: Option<String>,
    /// Target of the purge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Effect of the purge: `hard` or `soft`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Number of the purge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Number of events that there was no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// The text of an event.
pub(crate) fn report_of(event: &Event) -> EventReport {
    let report = EventReport {
        at: now_ms(),
        zone: Some(event.zone.to_string()),
        ..EventReport::default()
    };
    match &event.kind {
        EventKind::Stored(told) => about("stored", told, report),
        EventKind::Freshened(told) => about("freshened", told, report),
        EventKind::Left(departure) => EventReport {
            kind: watch::cause_word(departure.cause).to_string(),
            id: Some(departure.key.to_string()),
            bytes: Some(departure.body_len),
            ..report
        },
        EventKind::Purged {
            kind,
            what,
            mode,
            serial,
        } => EventReport {
            kind: "purged".to_string(),
            purge: Some((*kind).to_string()),
            what: Some(report::text(what)),
            mode: Some(mode.word().to_string()),
            number: Some(*serial),
            ..report
        },
    }
}

fn about(kind: &str, told: &Told, report: EventReport) -> EventReport {
    EventReport {
        kind: kind.to_string(),
        id: Some(told.id.to_string()),
        key: Some(report::text(&told.key)),
        status: Some(told.status),
        bytes: Some(told.bytes),
        fresh_until: Some(told.fresh_until),
        ..report
    }
}

fn now_ms() -> u64 {
    u64::try_from(clock::now_ms()).unwrap_or(0)
}

/// The text of events that there was no room for, if there were any.
pub(crate) fn missed(count: u64) -> Option<EventReport> {
    (count > 0).then(|| EventReport {
        at: now_ms(),
        kind: "missed".to_string(),
        count: Some(count),
        ..EventReport::default()
    })
}

fn expiring(zone: &CacheZone, listed: &Listed) -> EventReport {
    let head = &listed.head;
    let told = Told {
        id: listed.key,
        key: head.key.clone(),
        status: head.status,
        bytes: head.sliced.map_or(listed.summary.body_len, |set| set.total),
        fresh_until: head.valid_until,
    };
    let report = EventReport {
        at: now_ms(),
        zone: Some(zone.watch.zone().to_string()),
        ..EventReport::default()
    };
    about("expiring", &told, report)
}

/// Answers with what happens from now on in a zone, or in all.
pub(super) fn answer(
    scene: &Scene,
    zone: Option<&SceneZone>,
    mut reader: Reader,
) -> Result<Answer, String> {
    let wish = Wish::read(&mut reader)?;
    reader.end()?;
    if matches!(scene.standing, Standing::AtRest) {
        return Ok(report::problem(
            404,
            "events are told by a process that runs",
        ));
    }
    let found = match zone {
        Some(found) => std::slice::from_ref(found),
        None => &scene.zones,
    };
    let zones = found.iter().map(|found| Arc::clone(&found.zone));
    let Some(joined) = Joined::new(zones.collect()) else {
        return Ok(report::problem(503, "too many readers of events"));
    };
    let make: MakeLines = Box::new(move |lines| Telling::new(&joined, wish).run(lines));
    Ok(Answer {
        status: 200,
        body: Body::Events(make),
    })
}

/// Events that a reader wants.
struct Wish {
    /// Kinds; empty for all.
    kinds: Vec<Bytes>,
    /// Time before an entry is stale, seconds.
    expiring: Option<i64>,
    /// Time after which it has enough.
    until: Option<Instant>,
}

impl Wish {
    fn read(reader: &mut Reader) -> Result<Wish, String> {
        let expiring = reader.number("expiring")?;
        let seconds = reader.number("for")?;
        let after = |seconds| clock::instant().checked_add(Duration::from_secs(seconds));
        let wish = Wish {
            kinds: reader.texts("kind"),
            expiring: expiring.map(|it| i64::try_from(it).unwrap_or(i64::MAX)),
            until: seconds.and_then(after),
        };
        let is_known = |kind: &&Bytes| KINDS.iter().any(|known| known.as_bytes() == &kind[..]);
        match wish.kinds.iter().find(|kind| !is_known(kind)) {
            Some(_) => Err(format!("\"kind\" must be one of {}", KINDS.join(", "))),
            None => Ok(wish),
        }
    }

    fn has(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind.as_bytes())
    }
}

/// A queue that zones tell, until it is dropped. It does not keep a zone from being closed.
struct Joined {
    zones: Vec<(Arc<Watch>, Weak<CacheZone>)>,
    queue: Arc<Queue>,
}

impl Joined {
    fn new(zones: Vec<Arc<CacheZone>>) -> Option<Joined> {
        let mut joined = Joined {
            zones: Vec::new(),
            queue: Arc::default(),
        };
        for zone in zones {
            if !zone.watch.join(&joined.queue) {
                return None;
            }
            let watch = Arc::clone(&zone.watch);
            joined.zones.push((watch, Arc::downgrade(&zone)));
        }
        Some(joined)
    }
}

impl Joined {
    /// True while there is a zone that could tell something.
    fn is_alive(&self) -> bool {
        let mut zones = self.zones.iter();
        zones.any(|(_, zone)| zone.strong_count() > 0)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        for (watch, _) in &self.zones {
            watch.leave(&self.queue);
        }
    }
}

/// An entry that is to be told of before it is stale: the time to tell, its zone and it.
type Due = Reverse<(i64, usize, Key)>;

/// The stream of one reader.
struct Telling<'j> {
    joined: &'j Joined,
    wish: Wish,
    expiring: BinaryHeap<Due>,
    told_at: Instant,
}

impl<'j> Telling<'j> {
    fn new(joined: &'j Joined, wish: Wish) -> Self {
        Telling {
            joined,
            wish,
            expiring: BinaryHeap::new(),
            told_at: clock::instant(),
        }
    }

    fn run(mut self, lines: &mut dyn Lines) -> io::Result<()> {
        // The head goes out, and what happens from here on is told.
        lines.push("retry: 1000")?;
        lines.push_now("")?;
        while lines.is_wanted() && self.joined.is_alive() {
            let now = clock::instant();
            let left = self
                .wish
                .until
                .map_or(LOOK, |until| until.saturating_duration_since(now));
            let taken = self.joined.queue.take(left.min(LOOK));
            for event in &taken.events {
                self.remember(event);
                self.tell(lines, report_of(event))?;
            }
            if let Some(missed) = missed(taken.lost) {
                self.tell(lines, missed)?;
            }
            self.tell_expiring(lines)?;
            self.stay_alive(lines)?;
            if left.is_zero() {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self, lines: &mut dyn Lines, report: EventReport) -> io::Result<()> {
        // INVARIANT 1: whatever is asked for.
        if report.kind != "missed" && !self.wish.has(&report.kind) {
            return Ok(());
        }
        self.told_at = clock::instant();
        lines.push(&format!("event: {}", report.kind))?;
        lines.push(&format!("data: {}", report::line(&report)))?;
        lines.push_now("")
    }

    /// INVARIANT 2.
    fn stay_alive(&mut self, lines: &mut dyn Lines) -> io::Result<()> {
        if clock::instant() - self.told_at < ALIVE {
            return Ok(());
        }
        self.told_at = clock::instant();
        lines.push(":")?;
        lines.push_now("")
    }

    /// Remembers an entry that is to be told of before it is stale.
    fn remember(&mut self, event: &Event) {
        let (Some(before), EventKind::Stored(told) | EventKind::Freshened(told)) =
            (self.wish.expiring, &event.kind)
        else {
            return;
        };
        let mut zones = self.joined.zones.iter();
        let zone = zones.position(|(watch, _)| *watch.zone() == event.zone);
        // INVARIANT 3.
        if let Some(zone) = zone.filter(|_| self.expiring.len() < EXPIRING_MAX) {
            let at = told.fresh_until.saturating_sub(before);
            self.expiring.push(Reverse((at, zone, told.id)));
        }
    }

    fn tell_expiring(&mut self, lines: &mut dyn Lines) -> io::Result<()> {
        let Some(before) = self.wish.expiring else {
            return Ok(());
        };
        let now = clock::now_ms().div_euclid(1000);
        let mut seen = HashSet::new();
        while let Some(Reverse((at, zone, id))) = self.expiring.peek().copied()
            && at <= now
        {
            self.expiring.pop();
            let zone = self.joined.zones.get(zone);
            let Some(zone) = zone.and_then(|(_, zone)| zone.upgrade()) else {
                continue;
            };
            let listed = zone.listed_at(&id);
            let fresh_until = listed.as_ref().map(|it| it.head.valid_until);
            // Since then it has left, or is fresh for longer.
            let is_due = fresh_until.is_some_and(|until| until.saturating_sub(before) <= now);
            if let Some(listed) = listed.filter(|_| is_due && seen.insert(id)) {
                let report = expiring(&zone, &listed);
                self.tell(lines, report)?;
            }
        }
        Ok(())
    }
}
