//! Bodies in slices: clients that read parts of few bodies, come, leave and go on elsewhere, and
//! an origin that stalls, breaks off, changes its versions and lies about its ranges.
//!
//! Invariants, checked whenever the origin is asked or read, a client is given a piece, and at the
//! end:
//! 1. Every piece is the bytes of its place in the version that its head names; a body that is
//!    whole for its client has all that was wanted, and any other is reported as broken.
//! 2. In calm weather (no faults, no purge, one version, room) no byte is read twice for the
//!    cache, none outside of the slices that are wanted or fetched in advance, and each client gets
//!    all.
//! 3. Requests to the origin are bounded by the requests of clients and the slices that they touch.
//! 4. Every client comes to its end, and so does every task; then no fill and no body in slices
//!    is in use.
//! 5. What is stored at the end is exact.
//! 6. Who asks after a purge gets nothing that was asked for before it.
//! 7. With a healthy origin no body is cut, whatever becomes of slices in the store: they are
//!    evicted as soon as they are there, or refused.
//! 8. Where bodies are in extents, a question for slices is about one of them, the one that it
//!    names.

mod client;
mod origin;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::conformance::Rules;
use millpond_cache::exchange::{Ask, Purpose};
use millpond_cache::extent::{ExtentNumber, Extents};
use millpond_cache::head::{SliceSet, StoredHead};
use millpond_cache::purge::{Mode, Target};
use millpond_cache::slice::Trust;
use millpond_cache::slice::generation::Held;
use millpond_cache::step::Policies;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::{CacheZone, LookedUp, PrimaryKey};
use millpond_semantics::range::{RangeSpec, first_range};
use millpond_store::{Fault, Key, NotStored, SimIo};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::client::{Client, Outcome, Wish, request, wanted};
use self::origin::{Ranges, Resource, Validators, body_of};
use crate::scene::{Dice, EPOCH, Stores, Weather, pass_time, policies, regions, run_seeds};

const REQUESTS: usize = 30;
/// Time in which everything must come to its end.
const FOR_EVER: Duration = Duration::from_secs(7200);
/// Requests to the origin that one of a client may cost, besides one for each slice: walks, their
/// steps, and readers that are set back.
const ASKS_MAX: u64 = 64;

type Version = (usize, u64);

/// The origin and what was seen of it.
struct World {
    seed: u64,
    weather: Weather,
    /// Bytes of a slice.
    size: u64,
    is_auto: bool,
    /// Parts of bodies that are asked of different nodes.
    extents: Option<Extents>,
    trust: Trust,
    /// Percent of answers before and after which the version changes.
    changes: u64,
    /// Percent of answers with a lie, and that break off.
    lies: u64,
    is_slow: bool,
    /// Most requests go on where the one before them ended.
    is_orderly: bool,
    began: Instant,
    dice: RefCell<Dice>,
    keys: RefCell<HashMap<usize, Resource>>,
    bodies: RefCell<HashMap<Version, Bytes>>,
    /// Ranges that were read for the cache: end by start.
    reads: RefCell<HashMap<Version, BTreeMap<u64, u64>>>,
    read_bytes: Cell<u64>,
    /// Slices that may be asked for, by key.
    wanted: RefCell<HashMap<usize, Vec<Range<u64>>>>,
    asks: RefCell<u64>,
    asks_max: RefCell<u64>,
    /// Faults that could not be reported where they happened.
    wrongs: RefCell<Vec<String>>,
    /// Generations that are read in slices.
    generations: RefCell<Vec<SliceSet>>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    policies: Arc<Policies>,
    zone: Arc<CacheZone>,
    disk: Arc<SimIo>,
}

impl World {
    fn now(&self) -> i64 {
        EPOCH + self.began.elapsed().as_secs() as i64
    }

    fn body(&self, key: usize, version: u64, len: u64) -> Bytes {
        let mut bodies = self.bodies.borrow_mut();
        let body = bodies.entry((key, version));
        body.or_insert_with(|| body_of(key, version, len)).clone()
    }

    /// Starts a task; in a storm some are given up, before they begin or later.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut dice = self.dice.borrow_mut();
        let patience = match dice.below(100) {
            0..2 if !self.weather.is_calm => return,
            2..5 if !self.weather.is_calm => dice.ms(2000),
            _ => FOR_EVER,
        };
        let task = tokio::task::spawn_local(async move {
            let is_over = timeout(patience, task).await.is_err();
            assert!(!is_over || patience < FOR_EVER, "a task waits for ever");
        });
        self.tasks.borrow_mut().push(task);
    }

    /// Notes a request to the origin; its number.
    fn note_ask(&self, (key, wish): (usize, &Wish), ask: &Ask) -> u64 {
        let mut asks = self.asks.borrow_mut();
        *asks += 1;
        let most = *self.asks_max.borrow();
        if *asks > most {
            self.wrong(format!("more than {most} requests, for {key} {wish:?}"));
        }
        let keys = self.keys.borrow();
        let is_served = !keys[&key].has_refused && !wanted(wish, keys[&key].len).is_empty();
        self.note_extent(ask);
        if ask.purpose == Purpose::Pass && is_served && self.is_strict(key) {
            self.wrong(format!("{wish:?} of {key} was passed"));
        }
        *asks
    }

    /// INVARIANT 8.
    fn note_extent(&self, ask: &Ask) {
        let (Some(extents), Some(number)) = (self.extents, ask.extent.map(ExtentNumber::get))
        else {
            return;
        };
        let field = ask.range.as_deref().unwrap_or_default();
        let spec = first_range(field);
        let is_in = match spec {
            Some(RangeSpec::FromTo {
                start,
                end_exclusive,
            }) => extents.has(self.size, number, &(start..end_exclusive)),
            _ => false,
        };
        if !is_in {
            self.wrong(format!("{field:?} is asked of extent {number}"));
        }
    }

    /// INVARIANT 2.
    fn note_read(&self, (key, version): Version, span: Range<u64>) {
        let mut reads = self.reads.borrow_mut();
        let known = reads.entry((key, version)).or_default();
        let before = known.range(..span.end).next_back();
        if let Some((start, end)) = before
            && *end > span.start
            && self.weather.is_calm
            && !self.weather.is_churned
        {
            self.wrong(format!("{key}: {span:?} was read as of {start}..{end}"));
        }
        known.insert(span.start, span.end);
        let len = span.end - span.start;
        self.read_bytes.set(self.read_bytes.get() + len);
        let wanted = self.wanted.borrow();
        let spans = wanted.get(&key).map_or(&[][..], Vec::as_slice);
        let is_wanted = is_covered(spans, &span);
        if self.is_strict(key) && !is_wanted {
            self.wrong(format!("{key}: {span:?} was read, and wanted {spans:?}"));
        }
        drop(wanted);
        drop(reads);
        self.evict();
    }

    /// Takes slices out of the store that it has just been given, and others.
    fn evict(&self) {
        let mut dice = self.dice.borrow_mut();
        if !self.weather.is_churned || dice.percent(50) {
            return;
        }
        let generations = self.generations.borrow();
        for set in generations.iter() {
            let index = dice.below(set.total.div_ceil(set.size).max(1));
            let count = 1 + dice.below(4);
            for index in index..index + count {
                self.zone.store.remove(&set.key(self.zone.keys(), index));
            }
        }
    }

    /// True if the cache can do what it should: nothing goes wrong, and the origin serves ranges of
    /// versions that can be told apart.
    fn is_strict(&self, key: usize) -> bool {
        let resource = &self.keys.borrow()[&key];
        let is_known = matches!(resource.validators, Validators::Tag | Validators::Date)
            || resource.validators == Validators::None && self.trust == Trust::Unvalidated;
        let is_calm = self.weather.is_calm && !self.weather.is_churned;
        is_calm && is_known && resource.ranges == Ranges::Obeyed
    }

    fn wrong(&self, what: String) {
        self.wrongs.borrow_mut().push(what);
    }

    fn check(&self) {
        let wrongs = self.wrongs.borrow();
        assert!(wrongs.is_empty(), "seed {}: {wrongs:?}", self.seed);
    }

    /// INVARIANT 6.
    fn check_head(&self, client: &Client, head: &StoredHead, oldest: u64) {
        if let Some(number) = number(head, b"x-answer") {
            let seed = self.seed;
            assert!(
                number >= oldest,
                "seed {seed}: purged answer for {client:?}"
            );
        }
    }

    /// INVARIANT 1; the length of the whole body.
    fn check_bytes(&self, key: usize, head: &StoredHead, at: u64, bytes: &[u8]) -> u64 {
        let seed = self.seed;
        let Some(version) = number(head, b"x-version") else {
            assert!(bytes.is_empty(), "seed {seed}: a body of no version");
            return 0;
        };
        let bodies = self.bodies.borrow();
        let body = &bodies[&(key, version)];
        let end = at as usize + bytes.len();
        let expected = body.get(at as usize..end).unwrap_or_default();
        if expected != bytes {
            let differs = expected
                .iter()
                .zip(bytes)
                .position(|(one, other)| one != other);
            let total = body.len();
            panic!("seed {seed}: {key}: {at}..{end} of {total} is not of {version}, {differs:?}");
        }
        body.len() as u64
    }
}

fn number(head: &StoredHead, name: &[u8]) -> Option<u64> {
    let value = head.field(name)?;
    std::str::from_utf8(&value).ok()?.parse().ok()
}

fn is_covered(spans: &[Range<u64>], span: &Range<u64>) -> bool {
    let mut at = span.start;
    while at < span.end {
        match spans.iter().find(|span| span.contains(&at)) {
            Some(span) => at = span.end,
            None => return false,
        }
    }
    true
}

fn primary(zone: &CacheZone, seed: u64, key: usize) -> PrimaryKey {
    zone.primary(Bytes::from(format!("sliced/{seed}/{key}")))
}

fn weather(dice: &mut Dice) -> Weather {
    let is_calm = dice.percent(25);
    Weather {
        is_calm,
        is_locked: is_calm || dice.percent(50),
        is_ageless: is_calm || dice.percent(70),
        is_tight: !is_calm && dice.percent(20),
        is_purged: !is_calm && dice.percent(40),
        is_churned: false,
    }
}

/// Nothing is wrong but with the store.
fn churn(dice: &mut Dice) -> Weather {
    Weather {
        is_calm: true,
        is_locked: true,
        is_ageless: true,
        is_tight: dice.percent(40),
        is_purged: false,
        is_churned: true,
    }
}

fn resource(dice: &mut Dice, size: u64, trust: Trust) -> Resource {
    let most = if size > 100_000 { 8 } else { 40 };
    Resource {
        version: 1,
        len: match dice.below(10) {
            0 => 0,
            1 => dice.below(size),
            2 => size * dice.below(most),
            _ => dice.below(size * most),
        },
        grows: trust == Trust::Unvalidated || dice.percent(30),
        validators: match dice.below(10) {
            _ if trust == Trust::Unvalidated => Validators::None,
            0 => Validators::None,
            1 => Validators::Weak,
            2..4 => Validators::Date,
            _ => Validators::Tag,
        },
        ranges: match dice.below(10) {
            0 => Ranges::Ignored,
            1 => Ranges::DeafToIfRange,
            _ => Ranges::Obeyed,
        },
        has_refused: false,
        oldest: 0,
    }
}

fn world(seed: u64, stores: &Stores, weather: fn(&mut Dice) -> Weather) -> World {
    let mut dice = Dice(seed);
    let weather = weather(&mut dice);
    let size = if dice.percent(20) {
        (128 << 10) + dice.below(128 << 10)
    } else {
        16 + dice.below(4080)
    };
    let trust = if dice.percent(15) {
        Trust::Unvalidated
    } else {
        Trust::Validated
    };
    let keys = 0..1 + dice.below(3) as usize;
    let keys = keys.map(|key| (key, resource(&mut dice, size, trust)));
    let keys = keys.collect();
    let store = match weather {
        Weather { is_tight: true, .. } => &stores.tight,
        Weather {
            is_churned: true, ..
        } if dice.percent(30) => &stores.picky,
        _ => &stores.roomy,
    };
    stores.disk.set(Fault::None);
    let is_auto = dice.percent(40);
    World {
        seed,
        weather,
        size,
        is_auto,
        extents: (!is_auto && seed.is_multiple_of(2)).then(|| Extents::of(size * (seed % 7) + 1)),
        trust,
        changes: [0, 3, 20][dice.below(3) as usize],
        lies: [0, 5, 15][dice.below(3) as usize],
        is_slow: dice.percent(15),
        is_orderly: dice.percent(25),
        began: Instant::now(),
        policies: Arc::new(policies(&mut dice, weather)),
        keys: RefCell::new(keys),
        bodies: RefCell::default(),
        reads: RefCell::default(),
        read_bytes: Cell::default(),
        wanted: RefCell::default(),
        asks: RefCell::default(),
        asks_max: RefCell::default(),
        wrongs: RefCell::default(),
        generations: RefCell::default(),
        tasks: RefCell::default(),
        zone: Arc::new(CacheZone::new("sim".to_string(), Arc::clone(store))),
        disk: Arc::clone(&stores.disk),
        dice: RefCell::new(dice),
    }
}

/// Draws a request; `places` are where the ranges before ended.
fn draw(world: &World, places: &mut HashMap<usize, u64>) -> Client {
    let mut dice = world.dice.borrow_mut();
    let keys = world.keys.borrow();
    let is_orderly = world.is_orderly && dice.percent(90);
    let key = if is_orderly {
        0
    } else {
        dice.below(keys.len() as u64) as usize
    };
    let len = keys[&key].len.max(1);
    let place = places.get(&key).copied().filter(|place| *place < len);
    let start = if is_orderly || dice.percent(50) {
        place.unwrap_or(0)
    } else {
        dice.below(len + 1)
    };
    let most = if dice.percent(50) && !is_orderly {
        len
    } else {
        len.min(2 * world.size)
    };
    let end = start + 1 + dice.below(most);
    let range = match dice.below(20) {
        _ if is_orderly => format!("bytes={start}-{}", end - 1),
        0..3 => format!("bytes={start}-"),
        3..6 => format!("bytes=-{}", dice.below(most)),
        6..8 => {
            let other = dice.below(len);
            let last = other + dice.below(most);
            format!("bytes={start}-{},{other}-{last}", end - 1)
        }
        _ => format!("bytes={start}-{}", end - 1),
    };
    let wish = match dice.below(20) {
        _ if is_orderly => Wish::Range(range),
        0..2 => Wish::Head,
        2..6 => Wish::Whole,
        6 => Wish::IfRange(range),
        _ => Wish::Range(range),
    };
    if matches!(wish, Wish::Range(_)) {
        places.insert(key, end);
    }
    let is_storm = !world.weather.is_calm;
    Client {
        key,
        wish,
        is_bypassed: is_storm && dice.percent(3),
        is_not_stored: is_storm && dice.percent(3),
        is_slow: dice.percent(20),
        prefetch: [0, 2, 4][dice.below(3) as usize],
    }
}

/// Notes the cost that a request may have: its slices, and those in advance.
fn note_wanted(world: &World, client: &Client) {
    let keys = world.keys.borrow();
    let len = keys[&client.key].len;
    let up = |end: u64| end.div_ceil(world.size) * world.size;
    let mut wanted = wanted(&client.wish, len);
    let may_learn = world.extents.is_some();
    if matches!(client.wish, Wish::Whole | Wish::IfRange(_)) || wanted.is_empty() || may_learn {
        // Who wants nothing of it learns the length.
        let first = if world.is_auto { len } else { world.size };
        wanted.push(0..len.min(first));
    }
    let mut all = world.wanted.borrow_mut();
    let spans = all.entry(client.key).or_default();
    let mut slices = 0;
    for range in wanted {
        let ahead = client.prefetch * world.size;
        let span = range.start / world.size * world.size..up(range.end) + ahead;
        slices += (span.end - span.start) / world.size;
        spans.push(span);
    }
    let cost = ASKS_MAX + 3 * slices;
    *world.asks_max.borrow_mut() += cost;
}

/// Purges a key now and then, in one of the ways.
fn purge(world: &World, key: usize) {
    let mut dice = world.dice.borrow_mut();
    if dice.percent(85) {
        return;
    }
    let key_of = primary(&world.zone, world.seed, key);
    let mode = if dice.percent(30) {
        Mode::Soft
    } else {
        Mode::Hard
    };
    let is_purged = match dice.below(3) {
        0 => {
            world.zone.invalidate(&key_of);
            true
        }
        which => {
            let target = match which {
                1 => Target::Key(key_of.text),
                _ => Target::Prefix(key_of.text),
            };
            let now_ms = world.now() as u64 * 1000;
            let purged = world.zone.purge(&target, mode, now_ms);
            purged.is_ok() && mode == Mode::Hard
        }
    };
    if is_purged {
        let mut keys = world.keys.borrow_mut();
        let resource = keys.get_mut(&key).expect("a key of this seed");
        resource.oldest = *world.asks.borrow() + 1;
    }
}

async fn simulate(seed: u64, stores: &Stores, weather: fn(&mut Dice) -> Weather) {
    let world = Rc::new(world(seed, stores, weather));
    let mut places = HashMap::new();
    let mut running = Vec::new();
    for _ in 0..REQUESTS {
        let client = draw(&world, &mut places);
        let (gap, patience) = {
            let mut dice = world.dice.borrow_mut();
            let gap = match dice.below(10) {
                0..5 => Duration::ZERO,
                5 => dice.ms(10_000),
                _ => dice.ms(1000),
            };
            let leaves = dice.percent(20);
            (gap, if leaves { dice.ms(2000) } else { FOR_EVER })
        };
        pass_time(gap).await;
        if world.weather.is_tight {
            let fault = match world.dice.borrow_mut().below(10) {
                0..2 => Fault::NoSpace,
                2 => Fault::WriteError,
                // Who has been told of bytes in a file finds out too late that it cannot be read.
                3 if !world.weather.is_churned => Fault::ReadError,
                4..6 if world.weather.is_churned => Fault::NoSpace,
                _ => Fault::None,
            };
            world.disk.set(fault);
        }
        if world.weather.is_purged {
            purge(&world, client.key);
        }
        note_wanted(&world, &client);
        let served = serve_one(Rc::clone(&world), client, patience);
        running.push(tokio::task::spawn_local(served));
    }
    for one in running {
        let ended = one.await;
        assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    }
    end_tasks(&world).await;
    check_end(&world);
}

async fn serve_one(world: Rc<World>, client: Client, patience: Duration) {
    let walk = request(Rc::clone(&world), client.clone());
    // A client that leaves drops its walk wherever it is.
    let Ok(outcome) = timeout(patience, walk).await else {
        // INVARIANT 4.
        let seed = world.seed;
        assert!(
            patience < FOR_EVER,
            "seed {seed}: {client:?} waits for ever"
        );
        return;
    };
    world.check();
    let seed = world.seed;
    let is_calm = world.weather.is_calm;
    assert!(
        !is_calm || outcome == Outcome::Whole,
        "seed {seed}: {client:?} was broken off: {outcome:?}"
    );
}

async fn end_tasks(world: &World) {
    loop {
        let Some(task) = world.tasks.borrow_mut().pop() else {
            return;
        };
        let ended = task.await;
        assert!(ended.is_ok(), "seed {}: {ended:?}", world.seed);
    }
}

/// Invariants 4 and 5.
fn check_end(world: &World) {
    let seed = world.seed;
    world.check();
    assert!(world.zone.fills.is_empty(), "seed {seed}: a fill is left");
    let in_use = world.zone.slices.in_use();
    assert_eq!(in_use, 0, "seed {seed}: bodies in slices are in use");
    for (key, resource) in world.keys.borrow().iter() {
        let fields = RequestFields {
            lookup: &|_| Vec::new(),
            spelling: Rules::Nginx.spelling(),
        };
        let LookedUp::Found(found) = world
            .zone
            .look_up(&primary(&world.zone, seed, *key), &fields)
        else {
            continue;
        };
        let answer = number(&found.head, b"x-answer");
        assert!(
            answer.is_none_or(|answer| answer >= resource.oldest),
            "seed {seed}: purged"
        );
        let Some(set) = found.head.sliced else {
            let bytes = regions(found.entry.regions(0..u64::MAX));
            let len = world.check_bytes(*key, &found.head, 0, &bytes);
            assert_eq!(bytes.len() as u64, len, "seed {seed}: stored in part");
            continue;
        };
        let generation = world.zone.slices.open(&world.zone.store, &found);
        let generation = generation.expect("an entry in slices");
        for index in 0..set.total.div_ceil(set.size) {
            if let Held::Yes(entry) = generation.held(index) {
                let bytes = regions(entry.regions(0..u64::MAX));
                world.check_bytes(*key, &found.head, set.span(index).start, &bytes);
                assert_eq!(
                    bytes.len() as u64,
                    entry.len(),
                    "seed {seed}: a slice in part"
                );
            }
        }
    }
}

#[test]
fn slices_of_one_version_each_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::open(dir.path());
    run_seeds(&stores, |seed, stores| simulate(seed, stores, weather));
}

#[test]
fn no_body_of_a_healthy_origin_is_cut_while_slices_are_evicted_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::open(dir.path());
    run_seeds(&stores, |seed, stores| simulate(seed, stores, churn));
}

/// Bodies of the zone that refuses, and how many slices they have: as many as one run asks for.
const REFUSED: (usize, u64) = (4, 64);

/// A zone that has taken so much that it takes nothing more that is asked for once.
fn fill_up(zone: &Arc<millpond_store::Zone>) {
    for number in 0_u32..100_000 {
        let mut writer = match zone.begin(Key::of(&number.to_le_bytes()), None) {
            Ok(writer) => writer,
            Err(NotStored::AskedSeldom) => return,
            Err(_) => continue,
        };
        writer.set_head(Bytes::from_static(b"head"));
        // One that is not taken is one of many.
        let _ = writer.append(Bytes::from(vec![b'x'; 16 << 10]));
        let _ = writer.finish();
        zone.flush();
    }
    panic!("the zone takes everything");
}

async fn read_refused(seed: u64, stores: &Stores) {
    let (count, slices) = REFUSED;
    let size = 4 << 10;
    let mut world = world(seed, stores, churn);
    world.weather.is_churned = false;
    world.zone = Arc::new(CacheZone::new("sim".to_string(), Arc::clone(&stores.picky)));
    (world.size, world.is_auto, world.trust) = (size, false, Trust::Validated);
    world.extents = None;
    let resource = |_| Resource {
        version: 1,
        len: size * slices,
        grows: false,
        validators: Validators::Tag,
        ranges: Ranges::Obeyed,
        has_refused: false,
        oldest: 0,
    };
    world.keys = RefCell::new((0..count).map(|key| (key, resource(key))).collect());
    let world = Rc::new(world);
    for key in 0..count {
        let client = Client {
            key,
            wish: Wish::Whole,
            is_bypassed: false,
            is_not_stored: false,
            is_slow: key % 2 == 0,
            prefetch: 0,
        };
        note_wanted(&world, &client);
        serve_one(Rc::clone(&world), client, FOR_EVER).await;
    }
    end_tasks(&world).await;
    assert_eq!(*world.asks.borrow(), count as u64, "requests to the origin");
    assert_eq!(world.read_bytes.get(), count as u64 * size * slices);
    check_end(&world);
}

#[test]
fn bodies_whose_slices_the_store_refuses_are_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::open(dir.path());
    fill_up(&stores.picky);
    run_seeds(&stores, read_refused);
}
