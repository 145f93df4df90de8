//! A client: its request through the machines, as a proxy takes it, and what it is given.

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::conformance::Rules;
use millpond_cache::exchange::{Ask, Exchange, Purpose};
use millpond_cache::extent::Extents;
use millpond_cache::fill::Streaming;
use millpond_cache::fill::pump::Reader;
use millpond_cache::head::StoredHead;
use millpond_cache::slice::reader::{SliceFailure, SliceReader};
use millpond_cache::slice::{ClientWish, First, Slicing};
use millpond_cache::step::{Served, Walk, serve};
use millpond_cache::zone::FoundEntry;
use millpond_semantics::range::{RangeSet, first_range, parse_range};
use millpond_store::Region;

use super::origin::{Answer, respond};
use super::{World, primary};
use crate::scene::{Fail, ReadEnd, drain, pass_time, read, regions};

/// Number of walks for one request, as in the proxy.
const WALKS_MAX: usize = 4;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) key: usize,
    pub(super) wish: Wish,
    pub(super) is_bypassed: bool,
    pub(super) is_not_stored: bool,
    pub(super) is_slow: bool,
    /// Slices to fetch in advance.
    pub(super) prefetch: u64,
}

/// Part of a body that a client asks for.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Head,
    Whole,
    /// The Range field.
    Range(String),
    /// A range of a version that was never there: the whole is sent.
    IfRange(String),
}

impl Wish {
    pub(super) fn range(&self) -> Option<&str> {
        match self {
            Wish::Range(range) | Wish::IfRange(range) => Some(range),
            Wish::Head | Wish::Whole => None,
        }
    }
}

pub(super) struct SimExchange {
    pub(super) world: Rc<World>,
    pub(super) client: Client,
    pub(super) is_background: bool,
}

impl Exchange for SimExchange {
    type Fetched = Answer;
    type Failure = Fail;
    type Background = SimExchange;

    fn now(&self) -> i64 {
        self.world.now()
    }

    fn is_background(&self) -> bool {
        self.is_background
    }

    fn field(&self, name: &[u8]) -> Vec<&[u8]> {
        let range = self.client.wish.range().map(str::as_bytes);
        let range = range.filter(|_| name.eq_ignore_ascii_case(b"range"));
        range.into_iter().collect()
    }

    fn must_bypass(&mut self) -> bool {
        self.client.is_bypassed
    }

    fn extents(&self) -> Option<Extents> {
        self.world.extents
    }

    fn must_not_store(&mut self) -> bool {
        self.client.is_not_stored
    }

    async fn fetch(&mut self, ask: Ask) -> Result<Answer, Fail> {
        let world = Rc::clone(&self.world);
        let number = world.note_ask((self.client.key, &self.client.wish), &ask);
        let delay = world.dice.borrow_mut().ms(400);
        pass_time(delay).await;
        let range = match (&self.client.wish, ask.purpose) {
            (Wish::Range(range), Purpose::Pass) => Some(range.as_str()),
            _ => None,
        };
        respond(&world, (self.client.key, number), &ask, range)
    }

    fn background(&self) -> SimExchange {
        SimExchange {
            world: Rc::clone(&self.world),
            client: self.client.clone(),
            is_background: true,
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.world.spawn(task);
    }
}

fn slicing(world: &World, client: &Client) -> Slicing {
    let wish = match &client.wish {
        Wish::Head => ClientWish::Head,
        Wish::Whole => ClientWish::Whole,
        Wish::Range(range) | Wish::IfRange(range) => match first_range(range.as_bytes()) {
            Some(spec) => ClientWish::Range(spec),
            None => ClientWish::Whole,
        },
    };
    Slicing {
        size: world.size,
        first: if world.is_auto && !wish.is_range() {
            First::Whole
        } else {
            First::Range
        },
        client: wish,
        is_conditional: matches!(client.wish, Wish::IfRange(_)),
        confirms: false,
        trust: world.trust,
    }
}

/// End of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client was given all that it wanted.
    Whole,
    /// The client was told that it was not given all, and why.
    Broken(String),
}

/// Runs a request to its end.
pub(super) async fn request(world: Rc<World>, client: Client) -> Outcome {
    let oldest = world.keys.borrow()[&client.key].oldest;
    let walk = Walk {
        zone: Arc::clone(&world.zone),
        key: primary(&world.zone, world.seed, client.key),
        policies: Arc::clone(&world.policies),
        rules: Rules::Nginx,
        slicing: Some(slicing(&world, &client)),
        past: None,
    };
    let mut x = SimExchange {
        world: Rc::clone(&world),
        client: client.clone(),
        is_background: false,
    };
    for _ in 0..WALKS_MAX {
        let served = serve(&mut x, &walk, &mut |_| {}).await;
        world.check();
        let found = match served {
            Err(failure) => return Outcome::Broken(format!("{failure:?}")),
            Ok(Served::Passed(answer, _)) => return passed(answer).await,
            Ok(Served::Filling(streaming, reader, _)) => {
                world.check_head(&client, &streaming.head, oldest);
                return from_fill(&x, &client, &streaming, reader).await;
            }
            Ok(Served::Entry(found, _)) => found,
        };
        world.check_head(&client, &found.head, oldest);
        if found.head.sliced.is_none() {
            let body = regions(found.entry.regions(0..u64::MAX));
            return whole(&world, &client, &found.head, &body);
        }
        match from_slices(&x, &client, &found).await {
            Ok(outcome) => return outcome,
            Err(SliceFailure::Changed) => {}
            Err(SliceFailure::Refused) => break,
            Err(failure) => return Outcome::Broken(format!("at first: {failure}")),
        }
    }
    match x.fetch(Ask::default()).await {
        Ok(answer) => passed(answer).await,
        Err(failure) => Outcome::Broken(format!("{failure:?}")),
    }
}

async fn passed(answer: Answer) -> Outcome {
    match drain(answer).await {
        Ok(_) => Outcome::Whole,
        Err(_) => Outcome::Broken("passed".to_string()),
    }
}

/// A body that is not in slices.
fn whole(world: &World, client: &Client, head: &StoredHead, body: &[u8]) -> Outcome {
    let len = world.check_bytes(client.key, head, 0, body);
    assert_eq!(body.len() as u64, len, "of {len} as a whole body");
    Outcome::Whole
}

/// Reads along, and goes on by itself where it must.
async fn from_fill(
    x: &SimExchange,
    client: &Client,
    streaming: &Streaming,
    reader: Reader,
) -> Outcome {
    let world = &x.world;
    let pace = || {
        if client.is_slow {
            world.dice.borrow_mut().ms(500)
        } else {
            Duration::ZERO
        }
    };
    let (body, end) = read(reader, pace).await;
    let len = world.check_bytes(client.key, &streaming.head, 0, &body);
    match end {
        ReadEnd::Whole => whole(world, client, &streaming.head, &body),
        ReadEnd::Left if streaming.can_resume() => {
            let slices = &world.zone.slices;
            let generation = slices.ahead_of(&world.zone, streaming, len);
            let range = body.len() as u64..len;
            let mut rest = SliceReader::new(x.background(), &generation, range.clone());
            match read_range(world, client, (&streaming.head, range), &mut rest).await {
                Ok(()) => Outcome::Whole,
                Err(failure) => Outcome::Broken(format!("resumed: {failure}")),
            }
        }
        ReadEnd::Left | ReadEnd::Broken => Outcome::Broken("read along".to_string()),
    }
}

/// Ranges of a body that a client wants.
pub(super) fn wanted(wish: &Wish, total: u64) -> Vec<Range<u64>> {
    let whole = 0..total;
    match wish {
        Wish::Head => Vec::new(),
        Wish::Whole | Wish::IfRange(_) => vec![whole],
        Wish::Range(range) => match parse_range(range.as_bytes(), total, 8) {
            RangeSet::Ignore => vec![whole],
            RangeSet::Unsatisfiable => Vec::new(),
            RangeSet::Ranges(ranges) => {
                let spans = ranges.iter().map(|range| range.start..range.end_exclusive);
                spans.collect()
            }
        },
    }
}

/// Answers as the proxy does: the first bytes before the head, then the rest, each range by a
/// reader.
async fn from_slices(
    x: &SimExchange,
    client: &Client,
    found: &FoundEntry,
) -> Result<Outcome, SliceFailure> {
    let world = &x.world;
    let Some(generation) = world.zone.slices.open(&world.zone.store, found) else {
        panic!("an entry in slices has none");
    };
    let total = generation.set.total;
    world.generations.borrow_mut().push(generation.set);
    let ranges = wanted(&client.wish, total);
    let Some(first) = ranges.first() else {
        return Ok(Outcome::Whole);
    };
    let mut reader = SliceReader::new(x.background(), &generation, first.clone());
    reader.is_at_hand();
    if client.wish.range().is_some() {
        reader.fetch_ahead(client.prefetch, &world.zone.slices);
    }
    reader.first_bytes().await?;
    reader.narrow(first.clone());
    for range in &ranges[1..] {
        let mut next = reader.fork(range.clone());
        let read = read_range(world, client, (&found.head, first.clone()), &mut reader);
        if let Err(failure) = read.await {
            return Ok(Outcome::Broken(failure.to_string()));
        }
        next.narrow(range.clone());
        reader = next;
    }
    let last = ranges[ranges.len() - 1].clone();
    match read_range(world, client, (&found.head, last), &mut reader).await {
        Ok(()) => Ok(Outcome::Whole),
        Err(failure) => Ok(Outcome::Broken(failure.to_string())),
    }
}

/// Reads a range and checks each piece.
async fn read_range(
    world: &World,
    client: &Client,
    (head, range): (&StoredHead, Range<u64>),
    reader: &mut SliceReader<SimExchange>,
) -> Result<(), SliceFailure> {
    let mut at = range.start;
    while let Some(next) = std::future::poll_fn(|cx| reader.poll_next(cx)).await {
        world.check();
        let bytes = bytes_of(next?);
        world.check_bytes(client.key, head, at, &bytes);
        at += bytes.len() as u64;
        world.check();
        world.evict();
        if client.is_slow {
            let delay = world.dice.borrow_mut().ms(500);
            pass_time(delay).await;
        }
    }
    assert_eq!(at, range.end, "a range ended early, as if it were whole");
    Ok(())
}

fn bytes_of(region: Region) -> Bytes {
    match region {
        Region::Memory(bytes) => bytes,
        file => Bytes::from(regions([file])),
    }
}
