//! A server that is killed amid slices with Vary, soft purges, `proxy_cache_min_uses` and updates
//! in the background keeps its promises about all of them.
//!
//! Each page has a version, and one variant for each language; a body says its version, its
//! language and each byte's place. Some answers of the origin are slow, and some break off. Clients
//! ask for whole bodies and ranges while pages change and are purged, mostly softly; then the
//! process is killed with signal 9 and starts again on the same directory. `KILLS=200` runs the
//! long form.
//!
//! 1. No byte is wrong, no body is of two versions or variants, and none is called complete that
//!    is not.
//! 2. After an acknowledged purge, soft or not, nothing is a hit before the origin was asked again,
//!    and no older version is served, before and after a kill.
//! 3. A version that was held is followed by no older one; after a kill, if it was held for longer
//!    than `flush`.
//! 4. What was held for longer than `flush` is found after a kill: as a hit, or as a stale answer
//!    where those are allowed.
//! 5. After a kill, `proxy_cache_min_uses 2` stores at the second use at the latest, and nothing
//!    that was used once is there.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Random, Ranges, Recorded, Request,
    Response, number_from_env,
};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const KILLS: u64 = 4;
const CLIENTS: u64 = 3;
/// Pages of each place that clients ask for.
const BUSY: usize = 12;
/// Number of pages that change and are purged; the others stay as they are, over all kills.
const CHANGING: usize = 8;
/// Further pages of each place, for which nobody asks between their purge and the kill.
const QUIET: usize = 2;
/// Number of requests that the one who purges makes between two purges.
const ASKS: usize = 6;
const LENGTHS: [u64; 4] = [900, 20_000, 70_000, 200_000];
const LANGUAGES: [&str; 2] = ["de", "en"];
/// The zone's `flush`, and half of it again.
const FLUSH: Duration = Duration::from_millis(1500);
/// Life of the server: so long that much of it is older than `FLUSH` at its end.
const LIFE: Duration = Duration::from_millis(2500);
/// Every so many answers of the origin one breaks off in its middle, and one is slow.
const BREAKS: u64 = 19;
const SLOW: u64 = 13;
/// Bytes a second of a slow one (arbitrary: the longest takes 0.4 s).
const SLOW_RATE: u64 = 500_000;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=1g inactive=1d;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid 200 206 1h;
        proxy_cache_revalidate on;
        proxy_cache_disk_timeout 30s;
        proxy_cache_purge PURGE from 127.0.0.1;
        add_header X-Cache $upstream_cache_status;
        location /vary/ { proxy_pass http://%%ORIGIN%%; slice 64k; }
        location /soft/ { proxy_pass http://%%ORIGIN%%; }
        location /uses/ { proxy_pass http://%%ORIGIN%%; proxy_cache_min_uses 2; }
        location /back/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_valid 200 206 1s;
            proxy_cache_use_stale updating;
            proxy_cache_background_update on;
        }
    }";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Sliced, with Vary.
    Vary,
    /// Whole.
    Soft,
    /// Whole, and stored at the second use.
    Uses,
    /// Whole, soon stale, and updated in the background.
    Back,
}

const PLACES: [Place; 4] = [Place::Vary, Place::Soft, Place::Uses, Place::Back];

/// One resource of the origin.
#[derive(Debug)]
struct Page {
    place: Place,
    path: String,
    len: u64,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The version at the origin.
    version: u16,
    /// No older one may be served: the purge of what was before was acknowledged.
    oldest: u16,
    /// Goes up when a purge is sent, and when it is answered.
    purges: u64,
    variants: [Variant; 2],
}

/// One variant of a page; pages without Vary have the first only.
#[derive(Clone, Debug, Default)]
struct Variant {
    /// Requests that the origin has seen.
    asked: u64,
    /// The newest version that the origin has sent.
    sent: u16,
    /// Number of requests that the origin had seen when the last acknowledged purge was sent.
    asked_at_purge: Option<u64>,
    /// A version that came from the cache, with no request to the origin since.
    seen: Option<u16>,
    /// The version that was seen twice, so that it is stored and not only on its way.
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    version: u16,
    since: Instant,
}

/// A request for a variant of a page.
struct Wish<'a> {
    page: &'a Page,
    language: usize,
    range: Range<u64>,
}

/// An answer that was found right.
#[derive(Debug)]
struct Seen {
    version: u16,
    label: String,
    /// True if the answer is the whole body, to its end.
    is_whole: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version of a body, which is of one language.
fn body_version(version: u16, language: usize) -> u16 {
    version * 2 + u16::from(language == 1)
}

impl Page {
    fn new(place: Place, index: usize) -> Page {
        let name = format!("{place:?}").to_ascii_lowercase();
        Page {
            place,
            path: format!("/{name}/{index}"),
            len: LENGTHS[index % LENGTHS.len()] + index as u64,
            state: Mutex::default(),
        }
    }

    fn languages(&self) -> Range<usize> {
        match self.place {
            Place::Vary => 0..2,
            Place::Soft | Place::Uses | Place::Back => 0..1,
        }
    }

    fn whole(&self, language: usize) -> Wish<'_> {
        let range = 0..self.len;
        Wish {
            page: self,
            language,
            range,
        }
    }

    fn answer(&self, request: &Recorded) -> Answer {
        let named = request.header("Accept-Language") == Some(LANGUAGES[1]);
        let language = usize::from(named && self.place == Place::Vary);
        let mut state = lock(&self.state);
        let version = state.version;
        let variant = &mut state.variants[language];
        variant.asked += 1;
        variant.sent = version;
        variant.seen = None;
        let tag = body_version(version, language);
        let answer = Answer::new(200)
            .offset_body(self.len, tag)
            .etag(&format!("\"{tag}\""))
            .ranges(Ranges::Supported);
        let answer = match self.place {
            Place::Vary => answer.header("Vary", "Accept-Language"),
            Place::Soft | Place::Uses | Place::Back => answer,
        };
        // Half of the pages are freshened, half of them are sent again.
        if self.len.is_multiple_of(2) {
            answer.revalidates()
        } else {
            answer
        }
    }

    /// Begins a purge, and says how often the origin was asked for each variant before.
    fn begin_purge(&self, changes: u16) -> [u64; 2] {
        let mut state = lock(&self.state);
        state.version += changes;
        state.forget_held();
        state.variants.each_ref().map(|variant| variant.asked)
    }

    fn end_purge(&self, asked: [u64; 2]) {
        let mut state = lock(&self.state);
        // What was seen between the purge's beginning and its end may be from before it.
        state.forget_held();
        state.oldest = state.version;
        for (variant, asked) in state.variants.iter_mut().zip(asked) {
            variant.asked_at_purge = Some(asked);
        }
    }

    /// Forgets what a kill may have taken, and gives the rest.
    fn outlive(&self, language: usize, killed: Instant) -> Variant {
        let mut state = lock(&self.state);
        let variant = &mut state.variants[language];
        variant.seen = None;
        variant.held = variant.held.filter(|held| held.since + FLUSH < killed);
        variant.clone()
    }
}

impl State {
    fn forget_held(&mut self) {
        self.purges += 1;
        for variant in &mut self.variants {
            (variant.seen, variant.held) = (None, None);
        }
    }

    /// Notes what came from the cache while the origin was asked for nothing, since `before`.
    fn note(&mut self, wish: &Wish<'_>, before: &State, seen: &Seen) {
        let then = &before.variants[wish.language];
        let now = &mut self.variants[wish.language];
        let is_undisturbed = self.purges == before.purges && now.asked == then.asked;
        if !is_undisturbed || !seen.is_whole || seen.label != "HIT" {
            return;
        }
        let is_known = now.held.is_some_and(|held| held.version == seen.version);
        if now.seen == Some(seen.version) && !is_known {
            let (version, since) = (seen.version, Instant::now());
            now.held = Some(Held { version, since });
        }
        now.seen = Some(seen.version);
    }
}

impl Wish<'_> {
    fn request(&self) -> Request {
        let request = Request::get(&self.page.path);
        let request = request.header("Accept-Language", LANGUAGES[self.language]);
        if self.range == (0..self.page.len) {
            return request;
        }
        let field = format!("bytes={}-{}", self.range.start, self.range.end - 1);
        request.header("Range", &field)
    }

    /// Asks and checks what comes; errors of the connection are what a killed server makes.
    fn ask(&self, client: &Client) -> Result<Option<Seen>> {
        let before = lock(&self.page.state).clone();
        let Ok(response) = client.send(&self.request()) else {
            return Ok(None);
        };
        let told = || format!("{} {}", self.page.path, LANGUAGES[self.language]);
        let Some(seen) = self.read(&response).with_context(told)? else {
            return Ok(None);
        };
        let mut now = lock(&self.page.state);
        self.judge(&seen, &before, &now).with_context(told)?;
        now.note(self, &before, &seen);
        Ok(Some(seen))
    }

    /// Rule 1.
    fn read(&self, response: &Response) -> Result<Option<Seen>> {
        let total = self.page.len;
        // A server may answer a range with the whole.
        let range = match response.status {
            206 => self.range.clone(),
            _ => 0..total,
        };
        if response.status == 206 {
            let place = format!("bytes {}-{}/{total}", range.start, range.end - 1);
            let told = response.header("Content-Range").unwrap_or_default();
            ensure!(told == place, "{told} instead of {place}");
        }
        let is_whole = range == (0..total) && response.is_complete();
        let Some(tag) = response.checked_version(range)? else {
            return Ok(None);
        };
        let version = tag / 2;
        let is_ours = tag == body_version(version, self.language);
        ensure!(is_ours, "the body of another language, {tag}");
        Ok(Some(Seen {
            version,
            label: response.header("X-Cache").unwrap_or_default().to_string(),
            is_whole,
        }))
    }

    /// Rules 2 and 3.
    fn judge(&self, seen: &Seen, before: &State, now: &State) -> Result<()> {
        let (then, now) = (
            &before.variants[self.language],
            &now.variants[self.language],
        );
        let is_stale = matches!(seen.label.as_str(), "STALE" | "UPDATING");
        let may_be_stale = self.page.place == Place::Back;
        ensure!(may_be_stale || !is_stale, "{seen:?} is allowed nowhere");
        let is_new = seen.version >= before.oldest;
        ensure!(is_new || is_stale, "{seen:?}: it was purged");
        let held = then.held.map_or(0, |held| held.version);
        ensure!(seen.version >= held, "{seen:?} comes after {held}");
        if seen.label == "HIT" {
            let asked_at_purge = then.asked_at_purge;
            let is_asked = asked_at_purge.is_none_or(|asked| now.asked > asked);
            ensure!(is_asked, "{seen:?} was purged, and not asked for since");
        }
        Ok(())
    }
}

/// The origin's side: all pages, and whether it misbehaves.
#[derive(Debug)]
struct Site {
    pages: Vec<Page>,
    is_faulty: AtomicBool,
    answers: AtomicU64,
}

impl Site {
    /// The busy and quiet pages of all places, and for each life one that is used once in it.
    fn new(lives: u64) -> Site {
        let each = PLACES.iter().map(|place| [*place; BUSY + QUIET]);
        let once = (0..lives).map(|_| Place::Uses);
        let places = each.flatten().chain(once);
        let pages = places.enumerate();
        Site {
            pages: pages
                .map(|(index, place)| Page::new(place, index))
                .collect(),
            is_faulty: AtomicBool::new(false),
            answers: AtomicU64::new(0),
        }
    }

    fn answer(&self, request: &Recorded) -> Answer {
        let mut words = request.path().rsplit('/');
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        let Some(page) = index.and_then(|index| self.pages.get(index)) else {
            return Answer::new(404);
        };
        let answer = page.answer(request);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        if !self.is_faulty.load(Ordering::SeqCst) {
            return answer;
        }
        match (number % BREAKS, number % SLOW) {
            (0, _) => answer.drop_at(page.len / 2),
            (_, 0) => answer.rate(SLOW_RATE),
            _ => answer,
        }
    }

    /// The `number`th of the pages of `place`.
    fn page(&self, place: usize, number: usize) -> &Page {
        &self.pages[place * (BUSY + QUIET) + number]
    }

    /// All busy and quiet pages as wholes.
    fn wishes(&self) -> impl Iterator<Item = Wish<'_>> {
        let pages = self.pages[..PLACES.len() * (BUSY + QUIET)].iter();
        pages.flat_map(|page| page.languages().map(|language| page.whole(language)))
    }

    /// The page that is used once in a life.
    fn once(&self, life: u64) -> &Page {
        &self.pages[PLACES.len() * (BUSY + QUIET) + life as usize]
    }

    fn quiet(&self) -> impl Iterator<Item = &Page> {
        let places = 0..PLACES.len();
        places
            .flat_map(move |place| (BUSY..BUSY + QUIET).map(move |number| self.page(place, number)))
    }
}

struct World {
    origin: Origin,
    site: Arc<Site>,
    is_over: AtomicBool,
    served: AtomicU64,
    purged: AtomicU64,
}

impl World {
    fn start(lives: u64) -> Result<World> {
        let world = World {
            origin: Origin::start()?,
            site: Arc::new(Site::new(lives)),
            is_over: AtomicBool::new(false),
            served: AtomicU64::new(0),
            purged: AtomicU64::new(0),
        };
        let site = Arc::clone(&world.site);
        let answer = move |request: &Recorded| site.answer(request);
        world.origin.answer_with("/*", answer);
        Ok(world)
    }

    fn ask_for_anything(&self, client: &Client, random: &mut Random) -> Result<()> {
        let place = random.below(PLACES.len() as u64) as usize;
        let page = self.site.page(place, random.below(BUSY as u64) as usize);
        let mut wish = page.whole(random.below(page.languages().end as u64) as usize);
        if random.below(3) == 0 {
            wish.range = random.part_of(page.len);
        }
        let seen = wish.ask(client)?;
        self.served
            .fetch_add(u64::from(seen.is_some()), Ordering::Relaxed);
        Ok(())
    }

    /// Changes a page or purges it, or both.
    fn disturb(&self, client: &Client, random: &mut Random) -> Result<()> {
        let place = random.below(PLACES.len() as u64) as usize;
        let page = self
            .site
            .page(place, random.below(CHANGING as u64) as usize);
        if page.place == Place::Back && random.below(3) > 0 {
            lock(&page.state).version += 1;
            return Ok(());
        }
        let changes = random.below(2) as u16;
        let softness = if random.below(4) == 0 { "0" } else { "1" };
        self.purge(client, page, changes, softness)
    }

    fn purge(&self, client: &Client, page: &Page, changes: u16, softness: &str) -> Result<()> {
        let asked = page.begin_purge(changes);
        let request = Request::new("PURGE", &page.path).header("Purge-Soft", softness);
        let status = client.send(&request)?.status;
        ensure!(matches!(status, 200 | 404), "{}: {status}", page.path);
        page.end_purge(asked);
        self.purged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Purges what is fresh and what nobody asks for until the kill, and says how many were hits.
    fn purge_quiet(&self, client: &Client) -> Result<u64> {
        let mut hits = 0;
        for page in self.site.quiet() {
            for language in page.languages() {
                let seen = page.whole(language).ask(client)?;
                hits += u64::from(seen.is_some_and(|seen| seen.label == "HIT"));
            }
            self.purge(client, page, 0, "1")?;
        }
        Ok(hits)
    }

    /// Asks, changes and purges for the time of a life, beside the clients.
    fn live(&self, port: u16, life: u64, random: &mut Random) -> Result<u64> {
        let client = Client::new(port);
        let end = Deadline::after(LIFE);
        while !end.is_over() {
            for _ in 0..ASKS {
                self.ask_for_anything(&client, random)?;
            }
            self.disturb(&client, random)?;
        }
        let seen = self.site.once(life).whole(0).ask(&client)?;
        let is_new = seen.is_some_and(|seen| seen.label == "MISS");
        ensure!(is_new, "what was never asked for is there");
        self.purge_quiet(&client)
    }

    fn ask_until_the_end(&self, port: u16, mut random: Random) -> Result<()> {
        let client = Client::new(port);
        while !self.is_over.load(Ordering::SeqCst) {
            self.ask_for_anything(&client, &mut random)?;
        }
        Ok(())
    }

    /// A life of the server, up to its kill.
    fn live_and_die(&self, proxy: &mut Proxy, life: u64, random: &mut Random) -> Result<Death> {
        let port = proxy.port();
        self.is_over.store(false, Ordering::SeqCst);
        self.site.is_faulty.store(true, Ordering::SeqCst);
        let died = std::thread::scope(|scope| -> Result<Death> {
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                let random = Random(random.below(u64::MAX));
                clients.push(scope.spawn(move || self.ask_until_the_end(port, random)));
            }
            let lived = self.live(port, life, random);
            let when = Instant::now();
            let killed = proxy.kill9();
            self.is_over.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().expect("a client does not panic")?;
            }
            killed?;
            let purged_hits = lived?;
            Ok(Death { when, purged_hits })
        });
        self.site.is_faulty.store(false, Ordering::SeqCst);
        died
    }

    /// Rule 4, and what the others say of a first answer; whether the page had to be there.
    fn check_held(&self, client: &Client, wish: &Wish<'_>, death: &Death) -> Result<bool> {
        let page = wish.page;
        let variant = page.outlive(wish.language, death.when);
        let seen = wish.ask(client)?.context("no answer")?;
        ensure!(seen.is_whole, "{seen:?}: {} is cut off", page.path);
        let Some(held) = variant.held else {
            return Ok(false);
        };
        if held.version != variant.sent {
            // A newer one was on its way; that it is no older one is judged by rule 3.
            return Ok(false);
        }
        let is_found = match page.place {
            Place::Back => matches!(seen.label.as_str(), "HIT" | "STALE" | "UPDATING"),
            Place::Vary | Place::Soft | Place::Uses => seen.label == "HIT",
        };
        let age = death.when - held.since;
        ensure!(
            is_found,
            "{}: held for {age:?}, now {seen:?}, {variant:?}",
            page.path
        );
        Ok(true)
    }

    /// Rule 5.
    fn check_uses(&self, client: &Client, life: u64) -> Result<()> {
        let wish = self.site.once(life).whole(0);
        let mut labels = Vec::new();
        for _ in 0..3 {
            labels.push(wish.ask(client)?.context("no answer")?.label);
        }
        ensure!(labels[0] == "MISS", "used once and stored: {labels:?}");
        ensure!(labels[2] == "HIT", "used twice and not stored: {labels:?}");
        Ok(())
    }
}

/// The end of a life.
struct Death {
    when: Instant,
    /// Pages that were hits, and purged just before.
    purged_hits: u64,
}

#[test]
fn mixed_traffic_outlives_kills() -> Result<()> {
    let kills = number_from_env("KILLS", KILLS);
    let world = World::start(kills)?;
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&world.origin)
        .log_check(LogCheck::Off)
        .start()?;
    let mut random = Random(11);
    let mut warm = [0; PLACES.len()];
    let mut purged_hits = 0;
    for life in 0..kills {
        let told = || format!("life {life}");
        let death = world.live_and_die(&mut proxy, life, &mut random);
        let death = death.with_context(told)?;
        purged_hits += death.purged_hits;
        proxy.restart()?;
        let client = Client::new(proxy.port());
        for wish in world.site.wishes() {
            let was_held = world.check_held(&client, &wish, &death);
            let was_held = was_held.with_context(|| format!("after {}", told()))?;
            warm[wish.page.place as usize] += u64::from(was_held);
        }
        world.check_uses(&client, life).with_context(told)?;
    }
    let (served, purged) = (world.served.into_inner(), world.purged.into_inner());
    println!(
        "{kills} kills, {served} answers, {purged} purges, {purged_hits} of hits just before a kill; \
         warm after a kill by place: {warm:?} of {PLACES:?}"
    );
    let enough = warm.iter().all(|count| *count > 0) && purged > 0 && purged_hits > 0;
    ensure!(enough, "too little happened");
    proxy.quit()
}
