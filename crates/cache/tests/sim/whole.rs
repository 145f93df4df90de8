//! Whole entries: many clients, few keys, an origin that fails, and what must hold all the same.
//!
//! Each seed draws policies, an origin and a schedule of requests, and runs them on a paused
//! clock. Only the order in which waiters of one moment wake is tokio's.
//!
//! Invariants, checked whenever the origin is asked or a client is done, and at the end:
//! 1. A whole body is one version of its own key and variant, byte for byte; a broken one is a
//!    prefix of one.
//! 2. Every walk asks the origin at most once, in the foreground or behind.
//! 3. With a lock that never ages, at most one fill of a key without Vary waits for the origin,
//!    besides those that began while it was remembered that the key's answer is none to store.
//! 4. In calm weather (no faults, one version, lock on) the origin is asked once for each key and
//!    variant.
//! 5. What is stored at the end is whole, and no fill is left.
//! 6. Of a key without Vary, at most one answer at a time is written, with the lock or without, as
//!    long as no fill grows old.
//! 7. Who asks after a purge gets nothing from before it, and neither does a look-up at the end.
//! 8. With a healthy origin everybody gets a whole body, whatever the store and its disk do.
//!
//! Some seeds run in a small zone on a disk that is full now and then.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::conformance::Rules;
use millpond_cache::exchange::{Ask, Exchange, FetchEnd, Fetched, Purpose};
use millpond_cache::purge::{Mode, Target};
use millpond_cache::step::{Policies, Served, Trail, Walk, serve};
use millpond_cache::tag::TagWriter;
use millpond_cache::targeted::EachField;
use millpond_cache::use_stale::StaleCause;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::{CacheZone, LookedUp, PrimaryKey};
use millpond_store::{Fault, SimIo};
use tokio::time::Instant;

use crate::scene::{
    Dice, EPOCH, Fail, ReadEnd, Stores, Weather, drain, fail, pass_time, policies, read, regions,
    run_seeds,
};

const REQUESTS: usize = 40;
const ACCEPTS: [&str; 3] = ["", "a", "b"];

/// The origin and what was seen of it.
struct World {
    seed: u64,
    weather: Weather,
    began: Instant,
    dice: RefCell<Dice>,
    keys: RefCell<HashMap<usize, Resource>>,
    asked: RefCell<Vec<(usize, &'static str)>>,
    started: RefCell<BTreeSet<(usize, &'static str)>>,
    walks: RefCell<usize>,
    zone: Arc<CacheZone>,
    disk: Arc<SimIo>,
}

/// Resource that the origin has under a key.
struct Resource {
    version: u32,
    /// The oldest version that was not purged.
    oldest: u32,
    /// Length of the bodies, roughly.
    size: usize,
    varies: Varies,
    /// Answers that are read into the store.
    written: usize,
    /// Fills that wait for a head and began under the lock.
    waiting: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Varies {
    Never,
    Always,
    Sometimes,
}

/// The body of a version: its name over and over, and an end that is there once.
fn body_of(key: usize, accept: &str, version: u32, size: usize) -> String {
    let name = format!("[{key}/{accept}/{version}/{size}]");
    let mut body = name.repeat(1 + size / name.len());
    body.push_str("<end>");
    body
}

impl World {
    fn now(&self) -> i64 {
        EPOCH + self.began.elapsed().as_secs() as i64
    }

    /// Invariants 2 and 3.
    fn check_invariants(&self) {
        let (asked, walks) = (self.asked.borrow().len(), *self.walks.borrow());
        assert!(
            asked <= walks,
            "seed {}: {asked} asks of {walks} walks",
            self.seed
        );
        if !(self.weather.is_ageless && self.weather.is_locked) {
            return;
        }
        for (key, resource) in self.keys.borrow().iter() {
            let is_one = resource.waiting <= 1 || resource.varies != Varies::Never;
            assert!(
                is_one,
                "seed {}: {} fills of {key}",
                self.seed, resource.waiting
            );
        }
    }

    /// INVARIANTS 1 and 7; the client's request began when `oldest` was the oldest version.
    fn check_body(&self, client: &Client, oldest: u32, body: &Result<Vec<u8>, Vec<u8>>) {
        let (Ok(bytes) | Err(bytes)) = body;
        let text = std::str::from_utf8(bytes).expect("text");
        let seed = self.seed;
        // What broke off within its name cannot be told.
        if text == "error" || body.is_err() && !text.contains(']') {
            return;
        }
        let name = text
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        let name = name.unwrap_or_else(|| panic!("seed {seed}: no body of ours: {text:.60}"));
        let parts: Vec<&str> = name.split('/').collect();
        let [key, accept, version, size] = parts[..] else {
            panic!("seed {seed}: {name}")
        };
        assert_eq!(
            key,
            client.key.to_string(),
            "seed {seed}: another key's body"
        );
        let varies = self.keys.borrow()[&client.key].varies;
        if varies == Varies::Always {
            assert_eq!(accept, client.accept, "seed {seed}: another variant");
        }
        let version: u32 = version.parse().expect("a version");
        assert!(
            version >= oldest,
            "seed {seed}: {version} was purged before {oldest}"
        );
        let Ok(size) = size.parse() else {
            panic!("seed {seed}: {name}")
        };
        let whole = body_of(client.key, accept, version, size);
        match body {
            Ok(_) => assert!(
                text == whole,
                "seed {seed}: not whole: {} of {}",
                text.len(),
                whole.len()
            ),
            Err(_) => assert!(whole.starts_with(text), "seed {seed}: mixed: {name}"),
        }
    }
}

/// A client's request.
#[derive(Clone)]
struct Client {
    key: usize,
    accept: &'static str,
    is_bypassed: bool,
    is_not_stored: bool,
    is_slow: bool,
}

struct SimExchange {
    world: Rc<World>,
    client: Client,
    is_background: bool,
}

/// An answer of the origin.
struct SimFetched {
    status: u16,
    length: Option<u64>,
    fields: Vec<(&'static str, String)>,
    pieces: VecDeque<(Instant, Result<Bytes, FetchEnd>)>,
    reading: Reading,
}

/// Reader of an answer.
enum Reading {
    /// Nobody has begun.
    Unknown,
    /// Cache that fills the entry, once it begins.
    Cache(Rc<World>, usize),
    /// Cache that fills the entry.
    Written(#[expect(dead_code, reason = "a guard")] Writing),
    /// Client of the request itself.
    Client,
}

impl SimFetched {
    /// INVARIANT 6: who reads first of an answer that was not passed on is what writes it.
    fn begin_to_read(&mut self) {
        self.reading = match std::mem::replace(&mut self.reading, Reading::Unknown) {
            Reading::Cache(world, key) => Reading::Written(Writing::new(&world, key)),
            known => known,
        };
    }
}

/// Guard that counts an answer while it is written.
struct Writing(Rc<World>, usize);

impl Writing {
    fn new(world: &Rc<World>, key: usize) -> Self {
        let mut keys = world.keys.borrow_mut();
        let resource = keys.get_mut(&key).expect("a key");
        resource.written += 1;
        let weather = world.weather;
        let is_free = resource.varies != Varies::Never || !weather.is_ageless || weather.is_tight;
        let seed = world.seed;
        assert!(
            is_free || resource.written == 1,
            "seed {seed}: two answers of {key} are written"
        );
        drop(keys);
        Writing(Rc::clone(world), key)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut keys = self.0.keys.borrow_mut();
        keys.get_mut(&self.1).expect("a key").written -= 1;
    }
}

impl Fetched for SimFetched {
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
        self.begin_to_read();
        let due = self.pieces.front()?.0;
        pass_time(due.saturating_duration_since(Instant::now())).await;
        self.pieces.pop_front().map(|(_, piece)| piece)
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        self.begin_to_read();
        match self.pieces.front() {
            None => Some(None),
            Some((due, _)) if *due > Instant::now() => None,
            Some(_) => Some(self.pieces.pop_front().map(|(_, piece)| piece)),
        }
    }
}

/// Counts a fill while it waits for its head.
struct Waiting(Rc<World>, usize);

impl Waiting {
    fn new(world: &Rc<World>, key: usize) -> Self {
        world
            .keys
            .borrow_mut()
            .get_mut(&key)
            .expect("a key")
            .waiting += 1;
        Waiting(Rc::clone(world), key)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0
            .keys
            .borrow_mut()
            .get_mut(&self.1)
            .expect("a key")
            .waiting -= 1;
    }
}

impl Exchange for SimExchange {
    type Fetched = SimFetched;
    type Failure = Fail;
    type Background = SimExchange;

    fn now(&self) -> i64 {
        self.world.now()
    }

    fn is_background(&self) -> bool {
        self.is_background
    }

    fn field(&self, name: &[u8]) -> Vec<&[u8]> {
        let is_accept = name.eq_ignore_ascii_case(b"accept") && !self.client.accept.is_empty();
        is_accept
            .then_some(self.client.accept.as_bytes())
            .into_iter()
            .collect()
    }

    fn must_bypass(&mut self) -> bool {
        self.client.is_bypassed
    }

    fn tags(&mut self, _: EachField<'_>, _: &[Bytes]) -> Bytes {
        let mut tags = TagWriter::new(b"host", b"site");
        tags.push_all(format!("{}-{}", self.world.seed, self.client.key).as_bytes());
        tags.finish()
    }

    fn must_not_store(&mut self) -> bool {
        self.client.is_not_stored
    }

    async fn fetch(&mut self, ask: Ask) -> Result<SimFetched, Fail> {
        let world = Rc::clone(&self.world);
        let (key, accept) = (self.client.key, self.client.accept);
        world.asked.borrow_mut().push((key, accept));
        let own = primary(&world.zone, world.seed, key);
        let mark = world.zone.mark(&own.key, &own.text);
        let is_open = world.zone.unstorable.has(&mark);
        let is_locked = ask.purpose == Purpose::Fill && !is_open;
        let _waiting = is_locked.then(|| Waiting::new(&world, key));
        world.check_invariants();
        let delay = world.dice.borrow_mut().ms(1500);
        pass_time(delay).await;
        let answer = respond(&world, &self.client, &ask);
        world.check_invariants();
        answer.map(|mut fetched| {
            fetched.reading = Reading::Cache(world, key);
            fetched
        })
    }

    fn background(&self) -> SimExchange {
        SimExchange {
            world: Rc::clone(&self.world),
            client: self.client.clone(),
            is_background: true,
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(task);
    }
}

/// Draws the origin's answer.
fn respond(world: &World, client: &Client, ask: &Ask) -> Result<SimFetched, Fail> {
    let mut dice = world.dice.borrow_mut();
    let mut keys = world.keys.borrow_mut();
    let resource = keys.get_mut(&client.key).expect("a key");
    let is_calm = world.weather.is_calm;
    if !is_calm {
        resource.version += u32::from(dice.percent(20));
        match dice.below(100) {
            0..8 => return Err(fail(StaleCause::Error, 502)),
            8..12 => return Err(fail(StaleCause::Timeout, 504)),
            12..18 => return Ok(error_answer(500)),
            18..22 => return Ok(error_answer(404)),
            _ => {}
        }
    }
    let is_varied = match resource.varies {
        Varies::Never => false,
        Varies::Always => true,
        Varies::Sometimes => dice.percent(70),
    };
    let accept = if is_varied { client.accept } else { "" };
    let etag = format!("\"{accept}-{}\"", resource.version);
    let mut fields = vec![("Cache-Control", cache_control(&mut dice, is_calm))];
    if is_varied {
        fields.push(("Vary", "Accept".to_string()));
    }
    if ask.if_none_match.as_deref() == Some(etag.as_bytes()) {
        return Ok(SimFetched {
            status: 304,
            length: None,
            fields,
            pieces: VecDeque::new(),
            reading: Reading::Unknown,
        });
    }
    fields.push(("ETag", etag));
    let body = body_of(client.key, accept, resource.version, resource.size);
    Ok(in_pieces(&mut dice, is_calm, fields, &body))
}

fn cache_control(dice: &mut Dice, is_calm: bool) -> String {
    let age = if is_calm { 1000 } else { 1 + dice.below(8) };
    match dice.below(10) {
        0 if !is_calm => "no-store".to_string(),
        1 if !is_calm => format!("max-age={age}, stale-while-revalidate=5"),
        2 if !is_calm => format!("max-age={age}, stale-if-error=5"),
        _ => format!("max-age={age}"),
    }
}

fn error_answer(status: u16) -> SimFetched {
    SimFetched {
        status,
        length: None,
        fields: vec![],
        pieces: [(Instant::now(), Ok(Bytes::from_static(b"error")))].into(),
        reading: Reading::Unknown,
    }
}

/// A 200 whose body comes in a few pieces, and perhaps not to its end.
fn in_pieces(
    dice: &mut Dice,
    is_calm: bool,
    fields: Vec<(&'static str, String)>,
    body: &str,
) -> SimFetched {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let length = dice.percent(50).then_some(bytes.len() as u64);
    let keep = if !is_calm && dice.percent(15) {
        dice.below(bytes.len() as u64) as usize
    } else {
        bytes.len()
    };
    let mut due = Instant::now();
    let mut pieces = VecDeque::new();
    let mut from = 0;
    while from < keep {
        let to = keep.min(from + 1 + dice.below(1 + body.len() as u64 / 2) as usize);
        pieces.push_back((due, Ok(bytes.slice(from..to))));
        due += if dice.percent(40) {
            dice.ms(2000)
        } else {
            Duration::ZERO
        };
        from = to;
    }
    // Without an announced length only an error tells that the body broke off.
    if keep < bytes.len() && (length.is_none() || dice.percent(50)) {
        pieces.push_back((due, Err(FetchEnd::Truncated)));
    }
    SimFetched {
        status: 200,
        length,
        fields,
        pieces,
        reading: Reading::Unknown,
    }
}

/// Nothing is wrong but with the store.
fn refusing(_: &mut Dice) -> Weather {
    Weather {
        is_calm: true,
        is_locked: true,
        is_ageless: true,
        is_tight: true,
        is_purged: false,
        is_churned: true,
    }
}

fn weather(dice: &mut Dice) -> Weather {
    let is_calm = dice.percent(20);
    let weather = Weather {
        is_calm,
        is_locked: is_calm || dice.percent(60),
        is_ageless: is_calm || dice.percent(60),
        is_tight: !is_calm && dice.percent(15),
        is_purged: !is_calm && dice.percent(30),
        is_churned: false,
    };
    // A purge lets another fill run beside an old one, as age does.
    Weather {
        is_ageless: weather.is_ageless && !weather.is_purged,
        ..weather
    }
}

fn world(
    seed: u64,
    stores: &Stores,
    weather: fn(&mut Dice) -> Weather,
) -> (Rc<World>, Arc<Policies>) {
    let mut dice = Dice(seed);
    let weather = weather(&mut dice);
    let is_calm = weather.is_calm;
    let store = if weather.is_tight {
        &stores.tight
    } else {
        &stores.roomy
    };
    let policies = Arc::new(policies(&mut dice, weather));
    let mut keys = HashMap::new();
    for key in 0..1 + dice.below(3) as usize {
        let varies = match dice.below(4) {
            0 => Varies::Always,
            1 if !is_calm => Varies::Sometimes,
            _ => Varies::Never,
        };
        let sizes = match weather {
            // Some are longer than the zone.
            Weather {
                is_churned: true, ..
            } => [20_000, 300_000, 1_500_000, 3_000_000],
            Weather { is_tight: true, .. } => [300, 20_000, 100_000, 300_000],
            _ => [0, 300, 6000, 20_000],
        };
        let size = sizes[dice.below(4) as usize];
        let resource = Resource {
            version: 1,
            oldest: 1,
            size,
            varies,
            written: 0,
            waiting: 0,
        };
        keys.insert(key, resource);
    }
    let world = World {
        seed,
        weather,
        began: Instant::now(),
        dice: RefCell::new(dice),
        keys: RefCell::new(keys),
        asked: RefCell::default(),
        started: RefCell::default(),
        walks: RefCell::default(),
        zone: Arc::new(CacheZone::new("sim".to_string(), Arc::clone(store))),
        disk: Arc::clone(&stores.disk),
    };
    (Rc::new(world), policies)
}

fn primary(zone: &CacheZone, seed: u64, key: usize) -> PrimaryKey {
    zone.primary(Bytes::from(format!("{seed}/{key}")))
}

async fn request(world: Rc<World>, policies: Arc<Policies>, client: Client) {
    *world.walks.borrow_mut() += 1;
    let (varies, oldest) = {
        let keys = world.keys.borrow();
        (keys[&client.key].varies, keys[&client.key].oldest)
    };
    let accept = if varies == Varies::Always {
        client.accept
    } else {
        ""
    };
    world.started.borrow_mut().insert((client.key, accept));
    let walk = Walk {
        zone: Arc::clone(&world.zone),
        key: primary(&world.zone, world.seed, client.key),
        policies,
        rules: Rules::Nginx,
        slicing: None,
        past: None,
    };
    let mut x = SimExchange {
        world: Rc::clone(&world),
        client: client.clone(),
        is_background: false,
    };
    let mut trail = Trail::new();
    let body = match serve(&mut x, &walk, &mut |step| trail.push(step)).await {
        Ok(Served::Entry(found, _)) => Ok(regions(found.entry.regions(0..u64::MAX))),
        Ok(Served::Filling(_, reader, _)) => {
            let pace = || {
                if client.is_slow {
                    world.dice.borrow_mut().ms(500)
                } else {
                    Duration::ZERO
                }
            };
            match read(reader, pace).await {
                (body, ReadEnd::Whole) => Ok(body),
                (body, _) => Err(body),
            }
        }
        Ok(Served::Passed(mut fetched, _)) => {
            fetched.reading = Reading::Client;
            drain(fetched).await
        }
        Err(_) => Err(Vec::new()),
    };
    world.check_body(&client, oldest, &body);
    assert!(
        !world.weather.is_calm || body.is_ok(),
        "seed {}: {trail:?}",
        world.seed
    );
    world.check_invariants();
}

/// Purges a key now and then, with a new version behind it, and sweeps.
fn purge(world: &World, key: usize) {
    let mut dice = world.dice.borrow_mut();
    if dice.percent(70) {
        return;
    }
    let text = primary(&world.zone, world.seed, key).text;
    let target = match dice.below(4) {
        0 => Target::Key(text),
        1 => Target::Prefix(text),
        2 => Target::Wildcard(Bytes::from(format!("*{}/{key}", world.seed))),
        _ => Target::Tags(vec![Bytes::from(format!("{}-{key}", world.seed))]),
    };
    let mut keys = world.keys.borrow_mut();
    let resource = keys.get_mut(&key).expect("a key of this seed");
    resource.version += 1;
    // What cannot be written down is not purged.
    let now_ms = world.now() as u64 * 1000;
    if world.zone.purge(&target, Mode::Hard, now_ms).is_ok() {
        resource.oldest = resource.version;
    }
    if dice.percent(50) {
        world.zone.sweep_purges(u64::MAX, &|| false);
    }
}

async fn simulate(seed: u64, stores: &Stores, weather: fn(&mut Dice) -> Weather) {
    let (world, policies) = world(seed, stores, weather);
    let is_calm = world.weather.is_calm;
    let mut running = Vec::new();
    for _ in 0..REQUESTS {
        let (client, gap, patience) = {
            let mut dice = world.dice.borrow_mut();
            let client = Client {
                key: dice.below(world.keys.borrow().len() as u64) as usize,
                accept: ACCEPTS[dice.below(3) as usize],
                is_bypassed: !is_calm && dice.percent(4),
                is_not_stored: !is_calm && dice.percent(4),
                is_slow: dice.percent(20),
            };
            let gap = if dice.percent(50) {
                Duration::ZERO
            } else {
                dice.ms(1000)
            };
            let leaves = !is_calm && dice.percent(20);
            let patience = if leaves {
                dice.ms(3000)
            } else {
                Duration::from_secs(3600)
            };
            (client, gap, patience)
        };
        pass_time(gap).await;
        if world.weather.is_tight {
            let fault = match world.dice.borrow_mut().below(10) {
                0..3 => Fault::NoSpace,
                3 if world.weather.is_churned => Fault::WriteError,
                4..6 if world.weather.is_churned => Fault::StallWrites,
                _ => Fault::None,
            };
            world.disk.set(fault);
        }
        if world.weather.is_purged {
            purge(&world, client.key);
        }
        let walk = request(Rc::clone(&world), Arc::clone(&policies), client);
        running.push(tokio::task::spawn_local(async move {
            // A client that leaves drops its walk wherever it is.
            let _ = tokio::time::timeout(patience, walk).await;
        }));
    }
    for one in running {
        one.await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    pass_time(Duration::from_secs(3600)).await;
    world.disk.set(Fault::None);
    check_end(&world);
}

/// Invariants 4 and 5.
fn check_end(world: &World) {
    let seed = world.seed;
    assert!(world.zone.fills.is_empty(), "seed {seed}: a fill is left");
    if world.weather.is_calm && !world.weather.is_churned {
        let (asked, things) = (world.asked.borrow().len(), world.started.borrow().len());
        assert_eq!(asked, things, "seed {seed}: {:?}", world.asked.borrow());
    }
    for key in 0..world.keys.borrow().len() {
        for accept in ACCEPTS {
            let client = Client {
                key,
                accept,
                is_bypassed: false,
                is_not_stored: false,
                is_slow: false,
            };
            let fields = RequestFields {
                lookup: &|name| {
                    let is_accept = name.eq_ignore_ascii_case(b"accept") && !accept.is_empty();
                    is_accept.then_some(accept.as_bytes()).into_iter().collect()
                },
                spelling: Rules::Nginx.spelling(),
            };
            let key = primary(&world.zone, seed, key);
            if let LookedUp::Found(found) = world.zone.look_up(&key, &fields) {
                let body = regions(found.entry.regions(0..u64::MAX));
                let oldest = world.keys.borrow()[&client.key].oldest;
                world.check_body(&client, oldest, &Ok(body));
            }
        }
    }
}

#[test]
fn whatever_clients_and_origin_do_the_invariants_hold() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::open(dir.path());
    run_seeds(&stores, |seed, stores| simulate(seed, stores, weather));
}

#[test]
fn everybody_gets_the_whole_body_of_a_healthy_origin_whatever_the_store_does() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Stores::open(dir.path());
    run_seeds(&stores, |seed, stores| simulate(seed, stores, refusing));
}
