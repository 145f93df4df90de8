//! The origin: versioned bodies, ranges of them, and all that goes wrong with both.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::exchange::{Ask, FetchEnd, Fetched, Purpose};
use millpond_cache::slice::Trust;
use millpond_cache::use_stale::StaleCause;
use millpond_semantics::date::format_http_date;
use millpond_semantics::range::{RangeSet, parse_range};
use tokio::time::Instant;

use super::World;
use crate::scene::{Dice, EPOCH, Fail, fail, pass_time};

/// Resource that the origin has under a key.
pub(super) struct Resource {
    pub(super) version: u64,
    /// Length of the body of version 1.
    pub(super) len: u64,
    /// True if each version is longer than the one before.
    pub(super) grows: bool,
    pub(super) validators: Validators,
    pub(super) ranges: Ranges,
    /// True if the origin was asked for what it does not have: who waited twice for that asks for
    /// itself.
    pub(super) has_refused: bool,
    /// Answers that were asked for before this one were purged.
    pub(super) oldest: u64,
}

/// Validators by which answers name their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validators {
    Tag,
    Date,
    Weak,
    None,
}

/// Treatment of Range fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    Obeyed,
    Ignored,
    /// Also when If-Range says otherwise.
    DeafToIfRange,
}

impl Resource {
    pub(super) fn len_of(&self, version: u64) -> u64 {
        if self.grows {
            self.len + version - 1
        } else {
            self.len
        }
    }

    fn validator(&self) -> Option<(&'static str, String)> {
        let version = self.version;
        match self.validators {
            Validators::Tag => Some(("ETag", format!("\"v{version}\""))),
            Validators::Weak => Some(("ETag", format!("W/\"v{version}\""))),
            Validators::Date => {
                let date = format_http_date(EPOCH - 100_000 + version as i64);
                let date = String::from_utf8(date.to_vec()).expect("text");
                Some(("Last-Modified", date))
            }
            Validators::None => None,
        }
    }
}

/// The bytes of a version: no two places and no two versions look alike.
pub(super) fn body_of(key: usize, version: u64, len: u64) -> Bytes {
    let mut dice = Dice((key as u64) << 48 | version << 24);
    let mut body = Vec::with_capacity(len as usize + 8);
    while (body.len() as u64) < len {
        body.extend_from_slice(&dice.roll().to_le_bytes());
    }
    body.truncate(len as usize);
    Bytes::from(body)
}

/// An answer; what is read of it is written down.
pub(super) struct Answer {
    status: u16,
    length: Option<u64>,
    pub(super) fields: Vec<(&'static str, String)>,
    pieces: VecDeque<(Instant, Result<Bytes, FetchEnd>)>,
    at: u64,
    /// Ledger of the cache for these bytes, when the cache reads them.
    ledger: Option<(Rc<World>, usize, u64)>,
}

impl Answer {
    fn take(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        let (_, piece) = self.pieces.pop_front()?;
        if let (Ok(bytes), Some((world, key, version))) = (&piece, &self.ledger) {
            let end = self.at + bytes.len() as u64;
            world.note_read((*key, *version), self.at..end);
            self.at = end;
        }
        Some(piece)
    }
}

impl Fetched for Answer {
    fn status(&self) -> u16 {
        self.status
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in &self.fields {
            each(name.as_bytes(), value.as_bytes());
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        let due = self.pieces.front()?.0;
        pass_time(due.saturating_duration_since(Instant::now())).await;
        self.take()
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        match self.pieces.front() {
            None => Some(None),
            Some((due, _)) if *due > Instant::now() => None,
            Some(_) => Some(self.take()),
        }
    }
}

/// Statements of an answer about the bytes that it has.
struct Said {
    status: u16,
    start: u64,
    end: u64,
    length: Option<u64>,
    content_range: Option<String>,
}

/// Draws the answer to a request that was the `number`th.
pub(super) fn respond(
    world: &Rc<World>,
    (key, number): (usize, u64),
    ask: &Ask,
    clients_range: Option<&str>,
) -> Result<Answer, Fail> {
    let mut dice = world.dice.borrow_mut();
    let mut keys = world.keys.borrow_mut();
    let resource = keys.get_mut(&key).expect("a key");
    if !world.weather.is_calm {
        resource.version += u64::from(dice.percent(world.changes));
        if let Some(error) = error(&mut dice) {
            return error;
        }
    }
    let version = resource.version;
    let body = world.body(key, version, resource.len_of(version));
    let mut fields = fields(&mut dice, world, resource, number);
    let validator = resource.validator();
    let current = validator.as_ref().map(|(_, value)| value.as_bytes());
    if current.is_some() && ask.if_none_match.as_deref() == current {
        return Ok(empty(304, fields));
    }
    let range = match ask.purpose {
        Purpose::Fill => ask.range.as_deref(),
        Purpose::Pass => clients_range.map(str::as_bytes),
    };
    let is_other = ask.if_range.is_some() && ask.if_range.as_deref() != current;
    let range = range.filter(|_| match resource.ranges {
        Ranges::Obeyed => !is_other,
        Ranges::Ignored => false,
        Ranges::DeafToIfRange => true,
    });
    let total = body.len() as u64;
    let mut said = match range.map(|range| parse_range(range, total, 8)) {
        None | Some(RangeSet::Ignore) => whole(&mut dice, total),
        Some(RangeSet::Unsatisfiable) => {
            fields.push(("Content-Range", format!("bytes */{total}")));
            resource.has_refused = true;
            return Ok(empty(416, fields));
        }
        Some(RangeSet::Ranges(ranges)) => {
            part(&mut dice, (ranges[0].start, ranges[0].end_exclusive), total)
        }
    };
    if said.status == 206 && !world.weather.is_calm && dice.percent(world.lies) {
        lie(&mut dice, &mut said, total, world.trust);
    }
    fields.extend(
        said.content_range
            .clone()
            .map(|value| ("Content-Range", value)),
    );
    if said.status == 416 {
        return Ok(empty(416, fields));
    }
    // Another version while this one is sent.
    resource.version += u64::from(!world.weather.is_calm && dice.percent(world.changes));
    let bytes = body.slice(said.start as usize..said.end as usize);
    Ok(Answer {
        status: said.status,
        length: said.length,
        fields,
        pieces: pieces(
            &mut dice,
            world,
            (said.start, said.length.is_some()),
            &bytes,
        ),
        at: said.start,
        ledger: (ask.purpose == Purpose::Fill).then(|| (Rc::clone(world), key, version)),
    })
}

/// The fields of an answer, whatever it is.
fn fields(
    dice: &mut Dice,
    world: &World,
    resource: &Resource,
    number: u64,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("X-Version", resource.version.to_string()),
        ("X-Answer", number.to_string()),
        ("Date", date(world.now())),
        ("Cache-Control", cache_control(dice, world.weather.is_calm)),
    ];
    fields.extend(resource.validator());
    // Who says so and ignores ranges all the same looks like another version.
    let is_honest = resource.ranges != Ranges::Ignored || !world.weather.is_calm;
    if dice.percent(80) && is_honest {
        fields.push(("Accept-Ranges", "bytes".to_string()));
    }
    fields
}

fn date(now: i64) -> String {
    String::from_utf8(format_http_date(now).to_vec()).expect("text")
}

fn cache_control(dice: &mut Dice, is_calm: bool) -> String {
    if is_calm {
        return "max-age=1000000".to_string();
    }
    let age = 1 + dice.below(30);
    match dice.below(20) {
        0 => "no-store".to_string(),
        1 => format!("max-age={age}, stale-while-revalidate=5"),
        2 => format!("max-age={age}, stale-if-error=5"),
        _ => format!("max-age={age}"),
    }
}

fn error(dice: &mut Dice) -> Option<Result<Answer, Fail>> {
    let status = match dice.below(100) {
        0..4 => return Some(Err(fail(StaleCause::Error, 502))),
        4..6 => return Some(Err(fail(StaleCause::Timeout, 504))),
        6..9 => 500,
        9..11 => 404,
        11..13 => 403,
        _ => return None,
    };
    Some(Ok(empty(status, Vec::new())))
}

fn empty(status: u16, fields: Vec<(&'static str, String)>) -> Answer {
    Answer {
        status,
        length: Some(0),
        fields,
        pieces: VecDeque::new(),
        at: 0,
        ledger: None,
    }
}

fn whole(dice: &mut Dice, total: u64) -> Said {
    Said {
        status: 200,
        start: 0,
        end: total,
        length: dice.percent(80).then_some(total),
        content_range: None,
    }
}

fn part(dice: &mut Dice, (start, end): (u64, u64), total: u64) -> Said {
    Said {
        status: 206,
        start,
        end,
        length: dice.percent(80).then_some(end - start),
        content_range: Some(format!("bytes {start}-{}/{total}", end - 1)),
    }
}

/// A part that is not what was asked for, or not what is said.
fn lie(dice: &mut Dice, said: &mut Said, total: u64, trust: Trust) {
    let (start, last) = (said.start, said.end - 1);
    let named = |total: String| Some(format!("bytes {start}-{last}/{total}"));
    match dice.below(14) {
        0 if start < last => *said = part(dice, (start + 1, last + 1), total),
        1 if start > 0 => *said = part(dice, (start - 1, last + 1), total),
        // Nothing else names the version then.
        2 if trust == Trust::Validated => said.content_range = named((total + 1).to_string()),
        3 if trust == Trust::Validated && last + 1 < total => {
            said.content_range = named((total - 1).to_string());
        }
        4 => said.content_range = None,
        5 => said.content_range = named("*".to_string()),
        6 => said.length = Some(last - start + 2),
        7 => {
            said.status = 416;
            said.content_range = dice.percent(50).then(|| format!("bytes */{total}"));
        }
        8 => said.content_range = Some("bytes of mine".to_string()),
        // Fewer bytes, as a server may give.
        _ => {
            let end = start + 1 + dice.below(last + 1 - start);
            *said = part(dice, (start, end), total);
        }
    }
}

/// Pieces of the bytes as they come, and perhaps not to their end.
fn pieces(
    dice: &mut Dice,
    world: &World,
    (start, is_announced): (u64, bool),
    bytes: &Bytes,
) -> VecDeque<(Instant, Result<Bytes, FetchEnd>)> {
    let len = bytes.len() as u64;
    let is_broken = !world.weather.is_calm && len > 0 && dice.percent(world.lies);
    let keep = if is_broken { dice.below(len) } else { len };
    let mut due = Instant::now();
    let mut pieces = VecDeque::new();
    let mut from = 0;
    while from < keep {
        let most = if world.is_slow {
            1 + dice.below(16 << 10)
        } else {
            1 + dice.below(1 + len / 2)
        };
        // A piece of two slices would be read for both of them where a run is cut.
        let edge = world.size - (start + from) % world.size;
        let to = keep.min(from + most.min(edge));
        pieces.push_back((due, Ok(bytes.slice(from as usize..to as usize))));
        due += match dice.below(10) {
            0..2 => dice.ms(300),
            2 if !world.weather.is_calm => dice.ms(3000),
            _ if world.is_slow => dice.ms(100),
            _ => Duration::ZERO,
        };
        from = to;
    }
    // Without an announced length only an error tells that the body broke off.
    if is_broken && (!is_announced || dice.percent(50)) {
        pieces.push_back((due, Err(FetchEnd::Truncated)));
    }
    pieces
}
