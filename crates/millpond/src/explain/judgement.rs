//! Judgement of the cache about an answer, and the field that decides.
//!
//! The cache's own code judges. What decides is found by asking it again without each field: the
//! first without which the verdict differs is the one.

use millpond_semantics::reuse;

use millpond_server::explain::{Caching, Kept, NotKept, Ruling};

/// The fields that say how long, the strongest first; between them stand those that the
/// configuration names.
const STRONGEST: [&str; 3] = ["X-Accel-Redirect", "Set-Cookie", "X-Accel-Expires"];
const WEAKEST: [&str; 2] = ["Cache-Control", "Expires"];

/// Lines about an answer at a time: a label and a text each.
pub(super) fn of(
    caching: &Caching,
    (status, fields): (u16, &[(String, String)]),
    now: i64,
) -> Vec<(&'static str, String)> {
    let verdict = caching.judge(status, fields, now);
    let ruling = caching.ruling(status, fields);
    let tags = ruling.as_ref().map(tags).unwrap_or_default();
    let decisive = decisive(caching, (status, fields), now);
    let by = match decisive {
        _ if ruling.is_some_and(|ruling| ruling.fresh.is_some()) => {
            "the function of js_cache_verdict says so".to_string()
        }
        Some(field) => format!("{field} says so"),
        None => format!("the time for {status} in _cache_valid says so"),
    };
    match verdict {
        Err(why) => vec![("stored", format!("no: {}", reason(caching, why, status)))],
        Ok(_) if caching.excludes(status, fields) => {
            vec![(
                "stored",
                "no: a value of the _no_cache in force is not empty".to_string(),
            )]
        }
        Ok(kept) => {
            let mut lines = kept_lines(&kept, &by, now);
            let dictionary = caching.said_of_dictionary(fields);
            lines.extend(dictionary.map(|said| ("dictionary", said.to_string())));
            lines.extend(caching.said_of_query(fields).map(|said| ("query", said)));
            lines.extend(tags);
            lines
        }
    }
}

/// The line about tags that a function gives, if it does.
fn tags(ruling: &Ruling) -> Option<(&'static str, String)> {
    let joined = ruling.tags.join(&b' ');
    let tags = String::from_utf8_lossy(&joined);
    (!tags.is_empty()).then(|| ("tags", format!("{tags}, by js_cache_verdict")))
}

fn kept_lines(kept: &Kept, by: &str, now: i64) -> Vec<(&'static str, String)> {
    let seconds = kept.until.saturating_sub(now);
    let mut lines = vec![("stored", format!("yes, fresh for {seconds} s: {by}"))];
    if kept.stale_updating > 0 {
        let text = format!("for {} s more while it is updated", kept.stale_updating);
        lines.push(("stale", text));
    }
    if kept.stale_error > 0 {
        let text = format!("for {} s more when the origin fails", kept.stale_error);
        lines.push(("stale", text));
    }
    if !kept.vary.is_empty() {
        let names = String::from_utf8_lossy(&kept.vary).into_owned();
        lines.push(("variants", format!("by {names}")));
    }
    lines
}

/// The field without which the verdict would be another one.
fn decisive(
    caching: &Caching,
    (status, fields): (u16, &[(String, String)]),
    now: i64,
) -> Option<String> {
    let verdict = caching.judge(status, fields, now);
    let deciding = STRONGEST
        .into_iter()
        .chain(caching.targeted())
        .chain(WEAKEST);
    let found = deciding.into_iter().find(|field| {
        let mut others = fields.to_vec();
        others.retain(|(name, _)| !name.eq_ignore_ascii_case(field));
        others.len() < fields.len() && caching.judge(status, &others, now) != verdict
    });
    found.map(str::to_string)
}

fn rule(why: reuse::Refusal) -> &'static str {
    match why {
        reuse::Refusal::Status => "answers with its status are not stored",
        reuse::Refusal::NoStore => "no-store",
        reuse::Refusal::Private => "private",
        reuse::Refusal::Authorization => "the request has an Authorization, and it is not public",
        reuse::Refusal::NotUnderstood => "must-understand, and its status is not understood",
        reuse::Refusal::NothingSaid => "nothing says how long it is fresh",
        reuse::Refusal::Cookie => "it sets a cookie and does not say how long it is fresh",
        reuse::Refusal::Useless => "it is stale at once and cannot be validated",
    }
}

fn reason(caching: &Caching, why: NotKept, status: u16) -> String {
    use millpond_semantics::upstream_validity::Refusal;
    match why {
        NotKept::Ruled => "the function of js_cache_verdict says so, or has failed".to_string(),
        NotKept::Interim => "it is not a final answer".to_string(),
        NotKept::AccelRedirect => "X-Accel-Redirect sends the request on".to_string(),
        NotKept::Rules(why) => format!("the rules of RFC 9111 forbid it: {}", rule(why)),
        NotKept::NoTime if caching.has_told_times() => format!(
            "its fields do not say how long {status} is fresh; what _cache_valid says in variables \
             is known when an answer has come"
        ),
        NotKept::NoTime => {
            format!("neither its fields nor _cache_valid say how long {status} is fresh")
        }
        NotKept::Vary | NotKept::Refused(Refusal::Vary) => "its Vary is * or too long".to_string(),
        NotKept::Refused(Refusal::Forbidden(_)) => "Cache-Control forbids it".to_string(),
        NotKept::Refused(Refusal::Malformed) => "Cache-Control is malformed".to_string(),
        NotKept::Refused(Refusal::AccelExpires) => "X-Accel-Expires forbids it".to_string(),
        NotKept::Refused(Refusal::Expired) => "Expires is past or malformed".to_string(),
        NotKept::Refused(Refusal::SetCookie) => "it sets a cookie".to_string(),
    }
}
