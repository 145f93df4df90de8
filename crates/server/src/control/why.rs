//! `GET /why?url=URL`: what becomes of a request for a URL right now, and why.
//!
//! ```text
//! URL, fields ──► explain: server, location, zone, key ──► zone: entries, fills, memory
//!                 (as requests are, by the configuration in force)        └─► one sentence
//! ```
//!
//! `method=METHOD` is for requests other than GET, `field=Name: value` gives their fields.
//!
//! The request is not made: nothing is asked of an origin, and nothing is marked used.
//!
//! 1. The key is made by the code that serves requests.
//! 2. It runs on a thread of its own, which may wait for the disk.

use millpond_cache::fill::FillProgress;
use millpond_cache::refresh_backoff::RefreshFailure;
use millpond_cache::unstored::NotStoredNote;
use millpond_cache::why::Known;
use millpond_cache::zone::CacheZone;
use millpond_proxy::handler::access::Foreseen;
use millpond_system::clock;
use serde::{Deserialize, Serialize};

use super::api::{Answer, Scene, SceneZone, Standing};
use super::holdings::{self, QuotaReport};
use super::query::Reader;
use super::report::{self, EntryReport};
use crate::explain::{self, Caching, End, Question, ValueInForce};

/// Explanation of the fate of a request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WhyReport {
    /// URL that was asked about.
    pub url: String,
    /// In one sentence.
    pub verdict: String,
    /// The status with which a gate refuses the request, if that is certain.
    pub refused: Option<u16>,
    /// Verdicts of the location's gates on the request, and whether `limit_except` holds.
    pub gates: Vec<String>,
    /// Part of the cache in the answer; none if no cache takes part.
    pub cache: Option<WhyCacheReport>,
}

/// Facts that a cache knows of a request's key.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WhyCacheReport {
    /// The zone.
    pub zone: String,
    /// The cache key.
    pub key: String,
    /// The part of the query that counts by the No-Vary-Search of the path's last answer, and why;
    /// none where all of it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Ruling of the function of `js_cache_verdict` about the entry's head, asked now; none where
    /// there is no such function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The site that the request belongs to.
    pub site: String,
    /// Quota of the site in the zone; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaReport>,
    /// True if the look-up is skipped (`proxy_cache_bypass`).
    pub is_bypassed: bool,
    /// True if answers are not stored (`proxy_no_cache`), as far as the request decides it.
    pub is_not_stored: bool,
    /// Values of the `proxy_cache_bypass` in force.
    pub bypass: Vec<ValueInForce>,
    /// Values of the `proxy_no_cache` in force.
    pub no_cache: Vec<ValueInForce>,
    /// Number of requests for the key before an answer is stored.
    pub min_uses: u32,
    /// The entry that answers the request, fresh or stale.
    pub entry: Option<EntryReport>,
    /// Entries of other variants.
    pub others: Vec<EntryReport>,
    /// True if the stored entry was purged, and lies there until it is swept.
    pub is_purged: bool,
    /// Purges in force that are about it.
    pub purges: Vec<PurgeInForceReport>,
    /// Fills that run now.
    pub fills: Vec<FillReport>,
    /// The last answer that was not stored, if that is remembered.
    pub not_stored: Option<NotStoredReport>,
    /// For how many milliseconds nobody waits for another's answer (`proxy_cache_hit_for_pass`).
    pub passes_for_ms: Option<u64>,
    /// The reason why the origin is left alone (`proxy_cache_refresh_backoff`).
    pub backoff: Option<BackoffReport>,
    /// The status of a failure that is answered without asking.
    pub failure: Option<u16>,
}

/// A purge that counts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PurgeInForceReport {
    /// `all`, `key`, `host`, `site`, `tag`, `prefix` or `wildcard`.
    pub kind: String,
    /// The name, prefix or pattern.
    pub what: String,
    /// `hard` or `soft`.
    pub mode: String,
    /// Number of the purge.
    pub number: u64,
    /// Time of a soft purge.
    pub at: Option<i64>,
}

/// A fill.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct FillReport {
    /// The first byte.
    pub from: u64,
    /// The next byte to come.
    pub at: u64,
    /// The byte behind the last, if it is known.
    pub end: Option<u64>,
    /// For how many milliseconds it has run; not known of slices.
    pub since_ms: Option<u64>,
    /// Number of requests that wait for the fill or read along.
    pub followers: u32,
}

/// An answer that was not stored.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NotStoredReport {
    /// The reason, in the words of `$cache_status_reason`.
    pub reason: String,
    /// Meaning of the reason.
    pub meaning: String,
    /// Status of the answer.
    pub status: u16,
    /// Time of the answer.
    pub at: i64,
}

/// An origin that is left alone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BackoffReport {
    /// For how many milliseconds.
    pub left_ms: u64,
    /// Failure that began the pause.
    pub why: String,
}

/// Answers `GET /why`.
pub(super) fn answer(scene: &Scene, mut reader: Reader) -> Result<Answer, String> {
    let url = reader.text("url");
    let method = reader.text("method");
    let given = reader.texts("field");
    let client = reader.text("client");
    reader.end()?;
    let url = report::text(&url.ok_or("\"url\" must be there")?);
    let method = method.map_or("GET".to_string(), |method| report::text(&method));
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(format!(
            "\"{method}\" is no method: write GET, HEAD, POST or another"
        ));
    }
    let fields: Result<Vec<_>, String> = given.iter().map(|given| field(given)).collect();
    let mut question = Question::of_url(&url, &method, &fields?)?;
    if let Some(client) = client {
        let client = report::text(&client);
        let address = client.parse();
        let address = address.map_err(|_| format!("\"{client}\" is no IP address"))?;
        question = question.from_client(address);
    }
    let Standing::Running(facts) = &scene.standing else {
        return Err("only a process that runs can say why".to_string());
    };
    let conf = facts.conf.clone().ok_or("nothing is served yet")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no event loop: {error}"))?;
    // The explanation stays on this thread.
    let explained = runtime.block_on(async { explain::explain(conf, &question) })?;
    let reason = explained.location_reason;
    let limit = Some(reason).filter(|reason| reason.starts_with("\"limit_except\""));
    let Foreseen { refused, notes } = explained.gates;
    let gates = limit.into_iter().chain(notes).collect();
    let cache = match explained.end {
        End::Passed(passed) => passed.cache,
        End::Answered(status, _) => Err(format!("the server answers with {status} itself")),
        End::Files(path) => Err(format!("files answer {path}")),
        End::Itself(_) => Err("the server answers itself".to_string()),
        End::Purges(zone) => Err(format!("it is a purge of zone \"{zone}\"")),
    };
    let mut told = match cache {
        Ok(caching) => about(scene, &caching, url)?,
        Err(why) => WhyReport {
            url,
            verdict: format!("no cache takes part: {why}"),
            refused,
            gates: Vec::new(),
            cache: None,
        },
    };
    if let Some(status) = refused {
        told.verdict = format!("{status} is answered: a gate of the location refuses the request");
    }
    let told = WhyReport {
        refused,
        gates,
        ..told
    };
    Ok(report::json(200, &told))
}

/// `Name: value`.
fn field(given: &[u8]) -> Result<(String, String), String> {
    let text = String::from_utf8_lossy(given);
    let is_token = |name: &str| !name.is_empty() && name.bytes().all(|it| it.is_ascii_graphic());
    match text.split_once(':') {
        Some((name, value)) if is_token(name) && !value.contains(['\r', '\n']) => {
            Ok((name.to_string(), value.trim().to_string()))
        }
        _ => Err(format!("\"{text}\" is no field: write \"Name: value\"")),
    }
}

fn about(scene: &Scene, caching: &Caching, url: String) -> Result<WhyReport, String> {
    let named = |it: &&SceneZone| it.declared.name == caching.zone;
    let open = scene.zones.iter().find(named);
    let found = open.ok_or("its zone is not open")?;
    let zone = &found.zone;
    let now = clock::now_ms().div_euclid(1000);
    let simplified = caching.simplified(zone);
    let key = simplified.as_ref().map_or(&caching.key_bytes, |it| &it.key);
    let mut cache = cache(zone, caching, (zone.known(key, now), now));
    cache.quota = holdings::quota_of(found, caching.site.as_bytes());
    if let Some(it) = simplified {
        cache.key = report::text(&it.key);
        cache.query = Some(explain::query_in_words(&it.said, &it.query));
    }
    Ok(WhyReport {
        url,
        verdict: verdict(caching, &cache, now),
        refused: None,
        gates: Vec::new(),
        cache: Some(cache),
    })
}

fn cache(zone: &CacheZone, caching: &Caching, (known, now): (Known, i64)) -> WhyCacheReport {
    let mut entry = None;
    let mut others = Vec::new();
    for listed in &known.entries {
        let vary = &listed.head.vary;
        let is_meant = vary.is_empty() || caching.variant(vary) == listed.head.variant;
        let told = report::entry_in_full(zone, listed, now);
        if is_meant && entry.is_none() {
            entry = Some(told)
        } else {
            others.push(told)
        }
    }
    let purges = known.purges.iter().map(|rule| PurgeInForceReport {
        kind: rule.kind.to_string(),
        what: report::text(&rule.what),
        mode: rule.mode.word().to_string(),
        number: rule.serial,
        at: rule.at,
    });
    let script = entry.as_ref().and_then(|entry: &EntryReport| {
        let detail = entry.detail.as_ref()?;
        let ruling = caching.ruling(entry.status, &detail.fields)?;
        Some(explain::ruling_in_words(&ruling))
    });
    WhyCacheReport {
        zone: caching.zone.clone(),
        key: caching.key.clone(),
        query: None,
        script,
        site: caching.site.clone(),
        quota: None,
        is_bypassed: caching.is_bypassed,
        is_not_stored: caching.is_not_stored,
        bypass: caching.bypass.clone(),
        no_cache: caching.no_cache.clone(),
        min_uses: caching.min_uses,
        entry,
        others,
        is_purged: known.is_purged,
        purges: purges.collect(),
        fills: known.running.iter().map(fill).collect(),
        not_stored: known.unstored.as_ref().map(not_stored),
        passes_for_ms: known.passes_for.map(millis),
        backoff: known.backoff.map(|(left, why)| BackoffReport {
            left_ms: millis(left),
            why: failure(why),
        }),
        failure: known.failure,
    }
}

fn fill(running: &FillProgress) -> FillReport {
    FillReport {
        from: running.from,
        at: running.at,
        end: running.end,
        since_ms: running.since.map(millis),
        followers: running.followers,
    }
}

fn not_stored(note: &NotStoredNote) -> NotStoredReport {
    NotStoredReport {
        reason: note.account.word().unwrap_or("unknown").to_string(),
        meaning: note.account.meaning().unwrap_or_default().to_string(),
        status: note.status,
        at: note.at,
    }
}

fn failure(why: RefreshFailure) -> String {
    match why {
        RefreshFailure::Status(status) => format!("it answered with {status}"),
        RefreshFailure::Failed(_) => "it gave no answer, or not the whole".to_string(),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sentence on the fate of the request, from the first rule that applies.
fn verdict(caching: &Caching, cache: &WhyCacheReport, now: i64) -> String {
    let is_whole = |entry: &EntryReport| entry.held >= entry.length;
    match &cache.entry {
        _ if cache.is_bypassed => {
            let decides = |it: &&ValueInForce| !matches!(it.value.as_str(), "" | "0");
            let value = cache.bypass.iter().find(decides);
            let value = value.map_or("bypass".to_string(), |it| format!("bypass: {it}"));
            format!("the look-up is skipped ({value}): the origin is asked")
        }
        Some(entry) if entry.is_fresh && is_whole(entry) => {
            "it is answered from the cache".to_string()
        }
        Some(entry) if entry.is_fresh => {
            "it is answered from the cache; what is missing of the body is fetched".to_string()
        }
        Some(entry) => stale(caching, cache, entry, now),
        None => missing(cache),
    }
}

fn stale(caching: &Caching, cache: &WhyCacheReport, entry: &EntryReport, now: i64) -> String {
    let since = now.saturating_sub(entry.fresh_until);
    let detail = entry.detail.as_deref();
    let may = detail.is_some_and(|it| since <= i64::from(it.stale_while_revalidate));
    let may = may || caching.serves_while_updating();
    let what = match (&cache.backoff, cache.fills.is_empty()) {
        (Some(_), _) => "the origin, which failed, is left alone for a while",
        (None, false) if may => "it is served, since another request updates it (updating)",
        (None, false) => "it is being updated, and the request waits for that",
        (None, true) if may && caching.updates_behind() => {
            "it is served while the origin is asked behind it (background update)"
        }
        (None, true) if may => {
            "the origin is asked, and others are served the stale answer meanwhile (updating)"
        }
        (None, true) => "the origin is asked whether it has changed, or for a new one",
    };
    let is_purged = cache.purges.iter().any(|rule| rule.mode == "soft");
    let why = if is_purged {
        "what is stored is stale, or was purged softly"
    } else {
        "what is stored is stale"
    };
    format!("{why}: {what}")
}

fn missing(cache: &WhyCacheReport) -> String {
    if !cache.fills.is_empty() {
        return "it is being fetched: the answer is read along with that".to_string();
    }
    if let Some(status) = cache.failure {
        return format!("the origin failed a moment ago: {status} is answered without asking it");
    }
    let what = match () {
        () if cache.is_purged => "what was stored was purged",
        () if !cache.others.is_empty() => "only other variants are stored",
        () => "nothing is stored",
    };
    let then = match (&cache.not_stored, cache.is_not_stored) {
        (_, true) => "the origin is asked, and the answer is not stored (no_cache)".to_string(),
        (Some(last), _) => format!(
            "the origin is asked; its last answer was not stored ({})",
            last.reason
        ),
        (None, _) if cache.min_uses > 1 => format!(
            "the origin is asked, and the answer is stored if it is asked for {} times",
            cache.min_uses
        ),
        (None, _) => "the origin is asked, and the answer is stored if it may be".to_string(),
    };
    format!("{what}: {then}")
}
