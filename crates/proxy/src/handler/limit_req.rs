//! `limit_req_zone`, `limit_req`, `limit_req_status`, `limit_req_log_level`, `limit_req_dry_run`:
//! how many requests a second.
//!
//! A leaky bucket for each key: each request adds 1000 to its `excess`, which runs out at `rate`
//! thousandths a second. Above `burst` a request is refused, above `delay` it waits until the
//! excess would be at `delay`.
//!
//! ```text
//! excess ─ 0 ──── delay ───────── burst ────────►
//!            pass        wait           refuse
//! ```
//!
//! Invariants:
//! 1. A refused request adds to no bucket.
//! 2. With several limits, a request that passes adds to all of them and waits for the slowest.
//! 3. A request is limited once, also when it is redirected inside.
//! 4. With `fleet=name:lease` a request that has no tokens waits for the owner of its key once, and
//!    no longer than `ANSWER_MS`; then it is judged by what is there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Contexts, Spanned, Statement, Template};
use millpond_fleet::lease::{self, ANSWER_MS, Held, KeyId, Outcome as Leased};
use millpond_fleet::lending::{Leases, Lessee, Need};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::limit_zone::{KeyTable, LimitLevel, LimitStatus, Split, read_zone};
use crate::handler::limit_zone::LimitZones;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase::Flow;
use crate::request::Request;
use crate::var::WordVariable;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::stats::limit::{LimitTally, Outcome};

/// The longest key that is counted (nginx's bound).
const MAX_KEY: usize = 65_535;

/// Idle buckets that are swept when a key is new, at most (nginx's number).
const SWEPT: usize = 2;

/// Milliseconds for which a bucket is kept though it is empty (nginx's number).
const IDLE_MS: u64 = 60_000;

/// The row of the zones.
pub const ROWS: &[Row] = &[Row {
    name: "limit_req_zone",
    contexts: Contexts::HTTP,
    syntax: "key zone=name:size rate=rate [fleet=name:split | fleet=name:lease]",
    is_block: false,
    pass: Pass::First,
    doc: "Names a table of buckets by key, and the rate at which they leak. With \
          `fleet=name:split` the rate is that of all nodes of a `fleet` together: each has an \
          equal share of it, which changes as nodes come (at once) and go (after three seconds). \
          `burst` of `limit_req` stays that of each node. A node that does not hear the fleet's \
          log keeps its share; one that has not heard it since it started has the whole rate. With \
          `fleet=name:lease` the nodes have as much of the rate as they need: the owner of each \
          key hands out requests for a tenth of a second, so a client has the whole rate whichever \
          nodes it asks. A request that finds none left waits for that, at most for 0.1 s. Where \
          the owner does not answer, the node has its equal share. The parameter is Millpond's own.",
    apply: limit_req_zone,
}];

/// The variable.
pub const WORDS: &[WordVariable] = &[WordVariable {
    name: "limit_req_status",
    doc: "What `limit_req` did: PASSED, DELAYED, REJECTED, DELAYED_DRY_RUN or REJECTED_DRY_RUN.",
    word: |req| req.limits.req_status,
}];

/// The limits of requests a second.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct LimitReqPolicy {
    /// Limits requests by the keys of a zone: how many may come ahead of the rate, and how many of
    /// those at once.
    #[directive(name = "limit_req", repeat)]
    pub limits: Vec<Spanned<LimitReq>>,
    /// The status of a refused request.
    #[directive(name = "limit_req_status", default = "503")]
    pub status: LimitStatus,
    /// The level at which refusals are logged; waits are logged one level below.
    #[directive(name = "limit_req_log_level", default = "error")]
    pub log_level: LimitLevel,
    /// Counts requests only, and neither delays nor refuses any.
    #[directive(name = "limit_req_dry_run", default = "off")]
    pub dry_run: bool,
}

/// One `limit_req`.
#[derive(Clone, Debug)]
pub struct LimitReq {
    /// Name of the zone.
    pub zone: String,
    /// Thousandths of requests that may come ahead of the rate.
    burst: u64,
    /// Thousandths of requests that need not wait.
    delay: u64,
}

/// A zone.
#[derive(Debug)]
pub struct RequestZone {
    name: String,
    key: Template,
    /// Thousandths of requests a second.
    rate: u64,
    split: Option<Split>,
    created: Instant,
    /// Shared with the zone of the configuration before, if a reload kept it.
    buckets: Arc<Mutex<KeyTable<Bucket>>>,
    tally: Arc<LimitTally>,
}

/// A bucket: how full it was, and when.
#[derive(Debug, Default)]
struct Bucket {
    excess: u64,
    last_ms: u64,
    /// True if no request was counted yet; the first one finds the bucket empty.
    is_new: bool,
    /// Tokens of a rate that is leased, once some were needed.
    held: Option<Box<Held>>,
}

/// The moment when a request that is let through is counted: at once, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Account {
    Now,
    Later,
}

/// The reason why a request is not let through.
enum Refusal {
    /// The bucket is too full; by how much.
    Excess(u64),
    /// The zone has no room for the key.
    NoRoom,
}

impl FromArgs for LimitReq {
    const SYNTAX: &'static str = "zone=name [burst=number] [nodelay | delay=number]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut limit = LimitReq {
            zone: String::new(),
            burst: 0,
            delay: 0,
        };
        for (index, word) in args.at_least(1)?.iter().enumerate() {
            let text = word.text.as_str();
            let invalid = |what: &str| ArgError::value(index, format!("invalid {what} \"{text}\""));
            match text.split_once('=') {
                Some(("zone", name)) => limit.zone = name.to_string(),
                Some(("burst", number)) => {
                    limit.burst = thousandths(number).ok_or_else(|| invalid("burst value"))?;
                }
                Some(("delay", number)) => {
                    limit.delay = thousandths(number).ok_or_else(|| invalid("delay value"))?;
                }
                None if text == "nodelay" => limit.delay = u64::MAX,
                _ => return Err(invalid("parameter")),
            }
        }
        if limit.zone.is_empty() {
            return Err(ArgError::other(
                "\"limit_req\" must have \"zone\" parameter",
            ));
        }
        let named = args.cx.shared.name(&limit.zone, "limit_req");
        named.map(|()| limit).map_err(ArgError::other)
    }
}

fn thousandths(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_digits.then(|| text.parse::<u64>().ok()).flatten()?;
    number.checked_mul(1000).filter(|number| *number > 0)
}

fn limit_req_zone(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 3..=5) {
        return;
    }
    let Some(zone) = read_zone(builder, statement, "limit_req") else {
        return;
    };
    // nginx: one request a second, unless it is said otherwise.
    let mut rate = 1000;
    for word in zone.others {
        if word.text == "sync" {
            continue;
        }
        let Some(text) = word.text.strip_prefix("rate=") else {
            builder.error(word.span, format!("invalid parameter \"{}\"", word.text));
            return;
        };
        let Some(parsed) = parse_rate(text) else {
            builder.error(word.span, format!("invalid rate \"{}\"", word.text));
            return;
        };
        rate = parsed;
    }
    let zones = &mut builder.of::<LimitZones>().limit_req;
    if zones.iter().any(|other| other.name == zone.name) {
        let message = format!("limit_req_zone \"{}\" is already bound to a key", zone.name);
        builder.error(statement.span, message);
        return;
    }
    zones.push(Arc::new(RequestZone {
        name: zone.name,
        key: zone.key,
        rate,
        split: zone.split,
        created: clock::instant(),
        buckets: Arc::new(Mutex::new(KeyTable::new(zone.size))),
        tally: Arc::default(),
    }));
}

/// `10r/s` or `30r/m` in thousandths a second.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, scale) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    Some(thousandths(number)? / scale)
}

impl RequestZone {
    /// Name of the zone.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fleet whose nodes share the rate.
    pub(super) fn split(&self) -> Option<&Split> {
        self.split.as_ref()
    }

    /// Number of nodes that share the rate.
    fn nodes(&self) -> u64 {
        self.split.as_ref().map_or(1, Split::nodes)
    }

    /// Counts of what the limits of the zone did to requests.
    pub fn tally(&self) -> &LimitTally {
        &self.tally
    }

    /// Goes on with the table of a zone of the same name, if the size is the same.
    pub fn inherit(&mut self, old: &RequestZone) -> Result<(), String> {
        self.tally = Arc::clone(&old.tally);
        let size = |table: &Mutex<KeyTable<Bucket>>| {
            table.lock().unwrap_or_else(PoisonError::into_inner).size()
        };
        // nginx: a zone of another size is another zone.
        if size(&self.buckets) != size(&old.buckets) {
            return Ok(());
        }
        if self.key.source != old.key.source {
            return Err(format!(
                "limit_req \"{}\" uses the \"{}\" key while previously it used the \"{}\" key",
                self.name, self.key.source, old.key.source
            ));
        }
        self.buckets = Arc::clone(&old.buckets);
        self.created = old.created;
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        let elapsed = clock::instant().saturating_duration_since(self.created);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    /// The excess of the bucket with one more request.
    fn excess_with_one(&self, bucket: &Bucket, now_ms: u64) -> u64 {
        if bucket.is_new {
            return 0;
        }
        let leaked = self.leaked(bucket, now_ms);
        (bucket.excess + 1000).saturating_sub(leaked)
    }

    fn leaked(&self, bucket: &Bucket, now_ms: u64) -> u64 {
        let mut since_ms = bucket.last_ms;
        if let Some(held) = &bucket.held {
            match held.alone_since(now_ms) {
                Some(alone_ms) => since_ms = since_ms.max(alone_ms),
                None => return held.tokens(now_ms),
            }
        }
        let ms = now_ms.saturating_sub(since_ms);
        self.rate.saturating_mul(ms) / (1000 * self.nodes())
    }

    /// Leases of the rate, if it is leased.
    fn leases(&self) -> Option<&Arc<Leases>> {
        self.split.as_ref()?.leases()
    }

    /// Counts a request in its bucket, which it leaves this full.
    fn fill(&self, bucket: &mut Bucket, excess: u64, now_ms: u64) {
        if self.leases().is_some() {
            let needed = if bucket.is_new {
                0
            } else {
                bucket.excess + 1000 - excess
            };
            let held = bucket.held.get_or_insert_default();
            held.spend(needed, now_ms);
        }
        bucket.excess = excess;
        bucket.last_ms = bucket.last_ms.max(now_ms);
        bucket.is_new = false;
    }

    /// Asks for tokens where they are leased; what a request waits for that would be refused
    /// without. INVARIANT 4.
    fn fetch(self: &Arc<Self>, key: &Bytes, burst: u64) -> Option<OwnedNotified> {
        let leases = self.leases()?;
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.find(key).filter(|bucket| !bucket.is_new)?;
        let is_enough = self.excess_with_one(bucket, now_ms) <= burst;
        let held = bucket.held.get_or_insert_default();
        held.is_wanted |= !is_enough;
        let was_tended = std::mem::replace(&mut held.is_tended, true);
        let must_call = !was_tended || !is_enough && held.may_ask(now_ms);
        let awaited = held.awaited(now_ms).filter(|_| !is_enough);
        // From here on it is told of each answer.
        let news = awaited.map(Notify::notified_owned);
        drop(buckets);
        if must_call {
            let lessee: Arc<dyn Lessee> = Arc::<Self>::clone(self);
            leases.call(&lessee, key);
        }
        news
    }

    /// Lets a request through, or says how much too full its bucket is.
    fn check(&self, key: &[u8], burst: u64, account: Account) -> Result<u64, Refusal> {
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = buckets.use_key(key) else {
            let bucket = Bucket {
                last_ms: now_ms,
                is_new: account == Account::Later,
                ..Bucket::default()
            };
            return self.add(&mut buckets, key, bucket);
        };
        let excess = self.excess_with_one(bucket, now_ms);
        if excess > burst {
            return Err(Refusal::Excess(excess));
        }
        if account == Account::Now {
            self.fill(bucket, excess, now_ms);
        }
        Ok(excess)
    }

    fn add(&self, buckets: &mut KeyTable<Bucket>, key: &[u8], new: Bucket) -> Result<u64, Refusal> {
        let now_ms = new.last_ms;
        for _ in 0..SWEPT {
            let is_idle = |bucket: &Bucket| {
                now_ms.saturating_sub(bucket.last_ms) >= IDLE_MS
                    && self.leaked(bucket, now_ms) >= bucket.excess
            };
            if buckets.oldest().is_some_and(is_idle) {
                buckets.remove_oldest();
            }
        }
        if !buckets.has_room(key) {
            buckets.remove_oldest();
        }
        match buckets.insert(key, new) {
            Some(_) => Ok(0),
            None => Err(Refusal::NoRoom),
        }
    }

    /// Counts a request that all limits let through; returns the bucket's excess.
    fn account(&self, key: &[u8]) -> u64 {
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = buckets.use_key(key) else {
            return 0;
        };
        let excess = self.excess_with_one(bucket, now_ms);
        self.fill(bucket, excess, now_ms);
        excess
    }

    /// The time that a request for a key waits.
    fn delay(&self, key: &[u8], excess: u64, free: u64) -> Duration {
        let over = excess.saturating_sub(free);
        if over == 0 {
            return Duration::ZERO;
        }
        let nodes = self.sharing(key);
        Duration::from_millis(over.saturating_mul(1000 * nodes) / self.rate.max(1))
    }

    /// Number of nodes that share the rate of a key.
    fn sharing(&self, key: &[u8]) -> u64 {
        if self.leases().is_none() {
            return self.nodes();
        }
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let held = buckets.use_key(key).and_then(|bucket| bucket.held.as_ref());
        let leased = held.filter(|held| held.alone_since(now_ms).is_none());
        leased.map_or(self.nodes(), |held| held.askers())
    }
}

impl Lessee for RequestZone {
    fn id(&self, key: &[u8]) -> KeyId {
        lease::key_id(self.name.as_bytes(), key)
    }

    fn need(&self, key: &[u8]) -> Need {
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = buckets.find(key) else {
            return Need::Nothing;
        };
        let excess = bucket.excess;
        let held = bucket.held.get_or_insert_default();
        if !held.may_ask(now_ms) {
            return Need::Later;
        }
        if held.is_idle(excess) {
            held.is_tended = false;
            return Need::Nothing;
        }
        let want = held.ask(excess, self.rate, now_ms);
        Need::Ask {
            rate: self.rate,
            want,
        }
    }

    fn take(&self, key: &[u8], outcome: Leased) {
        let now_ms = self.now_ms();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.find(key)
            && let Some(held) = &mut bucket.held
        {
            held.take(outcome, &mut bucket.excess, now_ms);
        }
    }
}

/// A limit that counts for the request.
struct Active<'a> {
    limit: &'a LimitReq,
    zone: Arc<RequestZone>,
    key: Bytes,
}

/// True if there are limits that the request was not counted against yet.
pub fn is_due(req: &Request) -> bool {
    // INVARIANT 3.
    !req.location
        .settings
        .of::<HandlerSettings>()
        .limit_req
        .limits
        .is_empty()
        && req.limits.req_status.is_none()
}

/// Refuses or delays the request where there are limits.
pub async fn run(req: &mut Request) -> Result<Flow, Failure> {
    if !is_due(req) {
        return Ok(Flow::Next);
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().limit_req;
    let active = active(req, policy);
    for limit in &active {
        let news = limit.zone.fetch(&limit.key, limit.limit.burst);
        if let Some(news) = news.filter(|_| !policy.dry_run) {
            let _told = clock::within(Duration::from_millis(ANSWER_MS), news).await;
        }
    }
    let Some(wait) = admit(req, policy, &active)? else {
        return Ok(Flow::Next);
    };
    if wait.delay.is_zero() {
        req.limits.req_status = Some("PASSED");
        return Ok(Flow::Next);
    }
    let dry = if policy.dry_run { ", dry run" } else { "" };
    let (whole, rest) = (wait.excess / 1000, wait.excess % 1000);
    request_error::write(
        req,
        policy.log_level.below(),
        format_args!(
            "delaying request{dry}, excess: {whole}.{rest:03}, by zone \"{}\"",
            wait.zone.name
        ),
    );
    if policy.dry_run {
        req.limits.req_status = Some("DELAYED_DRY_RUN");
        return Ok(Flow::Next);
    }
    req.limits.req_status = Some("DELAYED");
    req.pause(wait.delay).await?;
    Ok(Flow::Next)
}

fn active<'a>(req: &mut Request, policy: &'a LimitReqPolicy) -> Vec<Active<'a>> {
    let conf = Arc::clone(&req.conf);
    let mut active = Vec::with_capacity(policy.limits.len());
    for limit in &policy.limits {
        let limit = &limit.value;
        let zones = &conf.parts.of::<LimitZones>().limit_req;
        let Some(zone) = zones.iter().find(|zone| zone.name == limit.zone) else {
            continue;
        };
        let key = req.eval(&zone.key);
        if key.len() > MAX_KEY {
            let source = &zone.key.source;
            let message =
                format_args!("the value of the \"{source}\" key is more than 65535 bytes");
            request_error::write(req, Level::Error, message);
        } else if !key.is_empty() {
            let zone = Arc::clone(zone);
            active.push(Active { limit, zone, key });
        }
    }
    active
}

/// The longest wait that a limit asks for.
struct Wait {
    delay: Duration,
    excess: u64,
    zone: Arc<RequestZone>,
}

/// Asks all limits; `None` when none counts or the refusal is a dry run's.
fn admit(
    req: &mut Request,
    policy: &LimitReqPolicy,
    active: &[Active<'_>],
) -> Result<Option<Wait>, Failure> {
    let Some((last, others)) = active.split_last() else {
        return Ok(None);
    };
    for limit in others {
        if let Err(refusal) = limit
            .zone
            .check(&limit.key, limit.limit.burst, Account::Later)
        {
            return refuse(req, policy, &limit.zone, refusal);
        }
    }
    let excess = match last.zone.check(&last.key, last.limit.burst, Account::Now) {
        Ok(excess) => excess,
        Err(refusal) => return refuse(req, policy, &last.zone, refusal),
    };
    let mut wait = Wait {
        delay: last.zone.delay(&last.key, excess, last.limit.delay),
        excess,
        zone: Arc::clone(&last.zone),
    };
    count(policy, &last.zone, wait.delay);
    for limit in others {
        let excess = limit.zone.account(&limit.key);
        let delay = limit.zone.delay(&limit.key, excess, limit.limit.delay);
        count(policy, &limit.zone, delay);
        if delay > wait.delay {
            wait = Wait {
                delay,
                excess,
                zone: Arc::clone(&limit.zone),
            };
        }
    }
    Ok(Some(wait))
}

fn count(policy: &LimitReqPolicy, zone: &RequestZone, delay: Duration) {
    zone.tally.add(match (delay.is_zero(), policy.dry_run) {
        (true, _) => Outcome::Passed,
        (false, false) => Outcome::Delayed,
        (false, true) => Outcome::DelayedDryRun,
    });
}

fn refuse(
    req: &mut Request,
    policy: &LimitReqPolicy,
    zone: &RequestZone,
    refusal: Refusal,
) -> Result<Option<Wait>, Failure> {
    if let Refusal::Excess(excess) = refusal {
        let dry = if policy.dry_run { ", dry run" } else { "" };
        let (whole, rest) = (excess / 1000, excess % 1000);
        request_error::write(
            req,
            policy.log_level.level(),
            format_args!(
                "limiting requests{dry}, excess: {whole}.{rest:03} by zone \"{}\"",
                zone.name
            ),
        );
    }
    if policy.dry_run {
        zone.tally.add(Outcome::RejectedDryRun);
        req.limits.req_status = Some("REJECTED_DRY_RUN");
        return Ok(None);
    }
    zone.tally.add(Outcome::Rejected);
    req.limits.req_status = Some("REJECTED");
    Err(Failure::Status(policy.status.0))
}

impl LimitLevel {
    /// The level of the log.
    pub fn level(self) -> Level {
        match self {
            LimitLevel::Info => Level::Info,
            LimitLevel::Notice => Level::Notice,
            LimitLevel::Warn => Level::Warn,
            LimitLevel::Error => Level::Error,
        }
    }

    /// The next level that is less severe.
    pub fn below(self) -> Level {
        match self {
            LimitLevel::Info | LimitLevel::Notice => Level::Info,
            LimitLevel::Warn => Level::Notice,
            LimitLevel::Error => Level::Warn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(rate: u64) -> RequestZone {
        RequestZone {
            name: "one".to_string(),
            key: Template::literal("k"),
            rate,
            split: None,
            created: clock::instant(),
            buckets: Arc::new(Mutex::new(KeyTable::new(1024))),
            tally: Arc::default(),
        }
    }

    fn excess(zone: &RequestZone, burst: u64) -> Result<u64, u64> {
        zone.check(b"k", burst, Account::Now)
            .map_err(|refusal| match refusal {
                Refusal::Excess(excess) => excess,
                Refusal::NoRoom => u64::MAX,
            })
    }

    #[test]
    fn rates_are_thousandths_a_second() {
        for (text, rate) in [
            ("1r/s", Some(1000)),
            ("30r/m", Some(500)),
            ("2", Some(2000)),
            ("0r/s", None),
            ("r/s", None),
            ("1r/h", None),
            ("-1r/s", None),
        ] {
            assert_eq!(parse_rate(text), rate, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_fill_with_requests_and_leak_with_time() {
        let zone = zone(2000);
        assert_eq!(excess(&zone, 1000), Ok(0));
        assert_eq!(excess(&zone, 1000), Ok(1000));
        assert_eq!(excess(&zone, 1000), Err(2000));
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(excess(&zone, 1000), Err(1500));
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(excess(&zone, 1000), Ok(1000));
        assert_eq!(zone.delay(b"k", 1000, 0), Duration::from_millis(500));
        assert_eq!(zone.delay(b"k", 1000, u64::MAX), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn new_keys_take_the_place_of_the_oldest() {
        let zone = zone(1000);
        for number in 0..100u8 {
            assert!(zone.check(&[number], 0, Account::Now).is_ok());
        }
        assert!(zone.check(&[99], 0, Account::Now).is_err());
        assert!(zone.check(&[0], 0, Account::Now).is_ok());
    }
}
