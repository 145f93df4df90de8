//! `inactive_short`, `no_valid_time`, `updating_in_foreground`, `bypass_is_stored`: what is stored,
//! and for how long.
//!
//! Only blocks that pass requests on are looked at: what a server says for its locations is judged
//! where it is used, and reported where it stands.

use std::time::Duration;

use millpond_conf::Code;
use millpond_conf::tree::Statement;
use millpond_conf::value::parse_duration;

use super::Findings;
use super::block::{Blocks, PROTOCOLS, variables, words};
use super::rfc::follows_rfc;
use crate::variables::RECORDS;

/// Entries are removed before their time.
pub(super) const INACTIVE_SHORT: Code = Code {
    name: "inactive_short",
    doc: "What nobody asks for within \"inactive\" is removed, however long it would be fresh. A \
          bare number is seconds: \"inactive=10\" is ten seconds, not minutes, and without the \
          parameter it is ten minutes. Write a time that is longer than the longest \
          \"proxy_cache_valid\", with its unit: \"inactive=1d\". \"max_size\" limits the space \
          in any case.",
};

/// Nothing is stored unless the origin says how long.
pub(super) const NO_VALID_TIME: Code = Code {
    name: "no_valid_time",
    doc: "Answers are stored if something says how long they are fresh: their own Cache-Control, \
          Expires or X-Accel-Expires, or else \"proxy_cache_valid\". Without that directive, \
          answers of origins that send none of these fields are never stored, and every request \
          goes to the origin. Write \"proxy_cache_valid 200 10m;\", or allow the warning if the \
          origin speaks for itself.",
};

/// The first request for a stale entry waits.
pub(super) const UPDATING_IN_FOREGROUND: Code = Code {
    name: "updating_in_foreground",
    doc: "With \"updating\" in \"proxy_cache_use_stale\", requests get the stale entry while \
          another request updates it; but the one that updates it waits for the origin. With \
          \"proxy_cache_background_update on;\" that one gets the stale entry, too, and nobody \
          waits.",
};

/// Code of the lint for answers that are asked past the cache and stored for all.
pub(super) const BYPASS_IS_STORED: Code = Code {
    name: "bypass_is_stored",
    doc: "\"proxy_cache_bypass\" only skips the look-up: the answer is stored and served to \
          everybody. That is right to refresh an entry, and wrong for what belongs to one person \
          (a cookie, an authorization). For that, write the same conditions in \
          \"proxy_no_cache\", too.",
};

/// Below this, minutes were probably meant.
const SHORT: Duration = Duration::from_secs(60);

/// Value of `inactive` unless it is written.
const DEFAULT_INACTIVE: Duration = Duration::from_secs(600);

pub(super) fn inactive_short(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for protocol in PROTOCOLS {
        let name = match protocol {
            "proxy" => "proxy_cache_path",
            "fastcgi" => "fastcgi_cache_path",
            "uwsgi" => "uwsgi_cache_path",
            _ => "scgi_cache_path",
        };
        for path in blocks.declarations(name) {
            check_inactive(blocks, path, findings);
        }
    }
}

fn check_inactive(blocks: &Blocks<'_>, path: &Statement, findings: &mut Findings<'_>) {
    let parameter = |name: &str| {
        let mut words = path.args.iter();
        words.find_map(|word| word.text.strip_prefix(name))
    };
    let Some((zone, _)) = parameter("keys_zone=").and_then(|value| value.split_once(':')) else {
        return;
    };
    let written = parameter("inactive=");
    let time = written.and_then(parse_duration).unwrap_or(DEFAULT_INACTIVE);
    let shown = match written {
        Some(text) => format!("inactive={text}"),
        None => "inactive=10m, the default,".to_string(),
    };
    if time < SHORT {
        let message = format!(
            "\"{shown}\" removes entries of zone \"{zone}\" after {} s without a request",
            time.as_secs()
        );
        if let Some(warning) = findings.warn(INACTIVE_SHORT, path.span, message) {
            warning.help("a number without a unit is seconds; for minutes write \"inactive=10m\"");
        }
        return;
    }
    let users = blocks
        .caching()
        .filter(|user| user.zone().is_some_and(|(name, _)| name == zone));
    let longest = users
        .filter_map(|user| user.longest_valid())
        .max_by_key(|(time, _)| *time);
    let Some((valid, statement)) = longest.filter(|(valid, _)| *valid > time) else {
        return;
    };
    let message = format!("\"{shown}\" removes entries of zone \"{zone}\" while they are fresh");
    if let Some(warning) = findings.warn(INACTIVE_SHORT, path.span, message) {
        let longest = statement.args.last().map_or("", |word| &word.text);
        let also = format!("keeps answers fresh for {longest}");
        warning.also(statement.span, also);
        warning.help(format!(
            "\"{} {}\" asks for {} s: write \"inactive={longest}\" or more",
            statement.name.text,
            words(statement),
            valid.as_secs()
        ));
    }
}

pub(super) fn no_valid_time(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching() {
        let Some((zone, statement)) = user.zone() else {
            continue;
        };
        if !user.in_force("cache_valid").is_empty() {
            continue;
        }
        let valid = user.name("cache_valid");
        let message = format!(
            "zone \"{zone}\" stores only answers that say how long they are fresh: \"{valid}\" is \
             not set"
        );
        if let Some(warning) = findings.warn(NO_VALID_TIME, statement.span, message) {
            warning.help(format!("write, for example, \"{valid} 200 10m;\""));
        }
    }
}

pub(super) fn updating_in_foreground(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching() {
        let stale = user.in_force("cache_use_stale");
        let has_updating = |st: &&Statement| st.args.iter().any(|word| word.text == "updating");
        let Some(statement) = stale.into_iter().find(has_updating) else {
            continue;
        };
        let update = user.name("cache_background_update");
        // By the RFC's rules all such updates run in the background.
        if user.view.value(&update) == Some("on") || follows_rfc(&user) {
            continue;
        }
        let message = "the request that finds an entry stale waits for the origin".to_string();
        if let Some(warning) = findings.warn(UPDATING_IN_FOREGROUND, statement.span, message) {
            warning.help(format!("with \"{update} on;\" it is answered at once, too"));
        }
    }
}

pub(super) fn bypass_is_stored(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    for user in blocks.caching() {
        let bypass = user.in_force("cache_bypass");
        let Some(first) = bypass.first() else {
            continue;
        };
        let args = bypass.iter().flat_map(|st| st.args.iter());
        let mut names = args.flat_map(|word| variables(&word.text));
        let Some(personal) = names.find(|name| is_personal(name)) else {
            continue;
        };
        if !user.in_force("no_cache").is_empty() {
            continue;
        }
        let no_cache = user.name("no_cache");
        let message = format!(
            "answers to requests with ${personal} are not looked up, but they are stored for all"
        );
        if let Some(warning) = findings.warn(BYPASS_IS_STORED, first.span, message) {
            let args = words(first);
            warning.help(format!("to keep them out, add \"{no_cache} {args};\""));
        }
    }
}

/// True if a variable tells clients apart, as far as one can know: fields and arguments that ask
/// for a refresh do not.
fn is_personal(variable: &str) -> bool {
    let refreshes = ["http_pragma", "http_cache_control"];
    match variable {
        "http_authorization" | "http_cookie" | "remote_user" => true,
        _ if refreshes.contains(&variable) => false,
        _ => {
            let by_client = variable.starts_with("cookie_");
            by_client || !RECORDS.has(variable)
        }
    }
}
