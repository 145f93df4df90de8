//! The proxy in front of one resource, and what is asserted of its answers and of what the origin
//! sent.

use anyhow::{Context, Result};
use millpond_testkit::{
    Client, Connection, Deadline, Exchange, Kind, LogCheck, Manners, Origin, Protocol, Proxy,
    Request, Resource, Response, offset_bytes,
};
use std::ops::Range;
use std::time::Duration;

/// Slice of the forms that name one.
pub(crate) const SLICE: u64 = 64 << 10;
/// Slice of `slice auto`, and of tests that need a deep one.
pub(crate) const LARGE_SLICE: u64 = 1 << 20;
/// Length of the body: some slices of either size, and a short last one.
pub(crate) const LEN: u64 = 3 * LARGE_SLICE + 5_000;
/// Time that what goes on behind the answers may take.
const WAIT: Duration = Duration::from_secs(10);
/// Time to wait for what may not come at all.
const MOMENT: Duration = Duration::from_millis(100);

/// The directive alone.
pub(crate) const ALONE: &str = "slice 64k;";
/// Waiting for the fill of another request, however slow the machine is.
pub(crate) const LOCKED: &str =
    "proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;";
/// The directive alone, with large slices.
pub(crate) const LARGE: &str = "slice 1m;";
/// nginx's form.
pub(crate) const LISTING: &str = "
    slice 64k;
    proxy_cache_key $host$uri$is_args$args$slice_range;
    proxy_set_header Range $slice_range;
    proxy_http_version 1.1;
    proxy_cache_valid 200 206 1h;";
/// Every way to ask for slices, and the slice that it means.
pub(crate) const FORMS: [(&str, u64); 4] = [
    (ALONE, SLICE),
    (LARGE, LARGE_SLICE),
    ("slice auto;", LARGE_SLICE),
    (LISTING, SLICE),
];

/// A whole file, so that the number of workers can be told.
const CONF: &str = "
%%GLOBALS%%
worker_processes %%WORKERS%%;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=200m;
    map $request_method $is_purge { PURGE 1; default 0; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 206 1h;
        add_header X-Cache $upstream_cache_status always;
        location / {
            proxy_pass http://%%ORIGIN%%;
            %%LINES%%
        }
    }
}
";

/// A proxy whose location has given lines, in front of `/film`.
pub(crate) struct Bench {
    pub(crate) origin: Origin,
    pub(crate) film: Resource,
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
}

impl Bench {
    /// An honest origin with a strong validator behind `lines`.
    pub(crate) fn new(protocol: Protocol, lines: &str) -> Result<Bench> {
        Bench::with(protocol, lines, Manners::of(LEN))
    }

    /// An origin of such manners behind `lines`.
    pub(crate) fn with(protocol: Protocol, lines: &str, manners: Manners) -> Result<Bench> {
        Bench::with_workers(protocol, 1, lines, manners)
    }

    /// Bench behind so many workers.
    pub(crate) fn with_workers(
        protocol: Protocol,
        workers: u32,
        lines: &str,
        manners: Manners,
    ) -> Result<Bench> {
        let origin = Origin::start()?;
        let film = Resource::new(manners);
        origin.resource("/film", &film);
        let conf = CONF
            .replace("%%WORKERS%%", &workers.to_string())
            .replace("%%LINES%%", lines);
        let proxy = Proxy::new(Kind::Millpond, &conf)
            .over(protocol)
            .origin(&origin)
            .log_check(LogCheck::On)
            .start()?;
        let client = protocol.client(proxy.port());
        Ok(Bench {
            origin,
            film,
            client,
            proxy,
        })
    }

    /// Asks for a range.
    pub(crate) fn ask(&self, range: Range<u64>) -> Result<Response> {
        self.ask_as(&bytes_field(&range))
    }

    /// Asks with a Range field as it is written.
    pub(crate) fn ask_as(&self, range: &str) -> Result<Response> {
        self.client.send(&request(range))
    }

    /// Asks for the whole film.
    pub(crate) fn ask_whole(&self) -> Result<Response> {
        self.client.get("/film")
    }

    /// Asks for a range, and leaves the answer to be read.
    pub(crate) fn begin(&self, range: &str) -> Result<Connection> {
        let mut connection = self.client.connect()?;
        connection.ask(&request(range).header("Connection", "close"))?;
        Ok(connection)
    }

    /// Asks for a range again and again until the answer has this label.
    pub(crate) fn ask_until(&self, range: Range<u64>, expected: &str) -> Result<Response> {
        self.poll(range, |label| label == expected)
            .with_context(|| format!("waiting for {expected}"))
    }

    /// Asks for a range that is held again and again until it is no longer fresh.
    pub(crate) fn ask_until_not_fresh(&self, range: Range<u64>) -> Result<Response> {
        self.poll(range, |label| label != "HIT")
    }

    fn poll(&self, range: Range<u64>, is_it: impl Fn(&str) -> bool) -> Result<Response> {
        let mut labels = Vec::new();
        let found = Deadline::after(WAIT).poll(|| {
            let response = self.ask(range.clone()).ok()?;
            if labels.last().is_none_or(|last| last != label(&response)) {
                labels.push(label(&response).to_string());
            }
            is_it(label(&response)).then_some(response)
        });
        found.with_context(|| format!("answers for {range:?} were {labels:?}"))
    }

    /// Asks for the whole again and again until the answer is the right one.
    pub(crate) fn poll_whole(&self, is_it: impl Fn(&Response) -> bool) -> Result<Response> {
        let mut last = None;
        let found = Deadline::after(WAIT).poll(|| {
            let whole = self.ask_whole().ok()?;
            if is_it(&whole) {
                return Some(whole);
            }
            let end = whole.end.clone();
            last = Some((whole.status, whole.headers, end));
            None
        });
        found.with_context(|| format!("the right answer never came, but {last:?}"))
    }

    /// Waits until the origin has seen so many requests, or for a moment; says whether it has.
    pub(crate) fn wait_for_more_requests(&self, count: usize) -> bool {
        let enough = || (self.origin.requests().len() >= count).then_some(());
        Deadline::after(MOMENT).poll(enough).is_some()
    }

    /// The Range fields that the origin saw, in order; `-` where there was none.
    pub(crate) fn ranges_asked(&self) -> Vec<String> {
        self.fields_asked("Range")
    }

    /// The values of a field that the origin saw, in order; `-` where there was none.
    pub(crate) fn fields_asked(&self, name: &str) -> Vec<String> {
        let requests = self.origin.requests();
        let of = |value: Option<&str>| value.unwrap_or("-").to_string();
        requests
            .iter()
            .map(|asked| of(asked.header(name)))
            .collect()
    }

    /// Asserts that the origin comes to have sent exactly the bytes of `expected`, each once.
    pub(crate) fn assert_fetched_once(&self, expected: Range<u64>) {
        self.assert_all_fetched_once(std::slice::from_ref(&expected));
    }

    /// Asserts that several ranges were fetched once, which are in order and do not touch.
    pub(crate) fn assert_all_fetched_once(&self, expected: &[Range<u64>]) {
        let total: u64 = expected.iter().map(|range| range.end - range.start).sum();
        let _enough = Deadline::after(WAIT).poll(|| (self.fetched_bytes() >= total).then_some(()));
        let mut sent = self.fetched();
        sent.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in &sent {
            match merged.last_mut() {
                Some(last) if last.end > range.start => panic!("twice: {sent:?}"),
                Some(last) if last.end == range.start => last.end = range.end,
                _ => merged.push(range.clone()),
            }
        }
        assert_eq!(merged, expected, "fetched {sent:?}");
    }

    /// The bytes that the origin sent, by answer.
    pub(crate) fn fetched(&self) -> Vec<Range<u64>> {
        let exchanges = self.origin.exchanges();
        let sent = exchanges
            .iter()
            .filter(|exchange| matches!(exchange.status, 200 | 206))
            .map(Exchange::sent_range);
        sent.filter(|range| !range.is_empty()).collect()
    }

    /// Number of bytes of the resource that the origin sent.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.fetched()
            .iter()
            .map(|sent| sent.end - sent.start)
            .sum()
    }

    /// Forgets what was asked and sent so far.
    pub(crate) fn forget(&self) {
        self.origin.forget_requests();
    }
}

/// `bytes=first-last`.
pub(crate) fn bytes_field(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// A request for a range of the film.
pub(crate) fn request(range: &str) -> Request {
    Request::get("/film").header("Range", range)
}

/// The slices of `size` that a range touches, as one range.
pub(crate) fn slices_of(range: &Range<u64>, size: u64) -> Range<u64> {
    let start = range.start / size * size;
    start..LEN.min(range.end.div_ceil(size) * size)
}

/// Label that the cache gives an answer.
pub(crate) fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or("-")
}

/// Asserts a complete 206 with these bytes of `version`, of a body of `LEN` bytes.
pub(crate) fn assert_part(response: &Response, range: Range<u64>, version: u16) {
    let place = format!("bytes {}-{}/{LEN}", range.start, range.end - 1);
    assert_eq!(response.status, 206, "{}", response.text());
    assert_eq!(response.header("Content-Range"), Some(&*place));
    assert!(response.is_complete(), "{range:?}: {:?}", response.end);
    assert_bytes(&response.body, range, version);
}

/// Asserts a complete 200 with all of `version`.
pub(crate) fn assert_whole(response: &Response, version: u16) {
    assert_eq!(response.status, 200);
    assert!(response.is_complete(), "{:?}", response.end);
    assert_bytes(&response.body, 0..LEN, version);
}

/// Asserts that a body is these bytes, and says where it first is not.
pub(crate) fn assert_bytes(body: &[u8], range: Range<u64>, version: u16) {
    let expected = offset_bytes(range.clone(), version);
    let differs = || body.iter().zip(&expected).position(|(a, b)| a != b);
    assert!(
        body == expected,
        "{range:?} of version {version}: {} bytes came, wrong from {:?} on",
        body.len(),
        differs()
    );
}

/// Asserts that a body, truncated or not, has bytes of one version only, from `start` on; gives
/// the version.
pub(crate) fn assert_one_version(body: &[u8], start: u64) -> u16 {
    let end = start + body.len() as u64;
    let known = 1..=100;
    let found = known.into_iter().find(|version| {
        // A glance first: most versions are not it.
        let glance = end.min(start + 32);
        body.starts_with(&offset_bytes(start..glance, *version))
    });
    let version = found.unwrap_or_else(|| panic!("bytes of no version: {:?}", body.get(..40)));
    assert_bytes(body, start..end, version);
    version
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// The next one, below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // Knuth's multiplier; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
