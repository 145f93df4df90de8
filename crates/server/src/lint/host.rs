//! `cache_key_without_host`: two sites that share a zone and cannot be told apart there.
//!
//! A site is a set of server names: two servers with the same names, such as one for each port, are
//! one site. A key with a variable of the configuration is taken for one that tells sites apart.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use millpond_conf::Code;
use millpond_conf::tree::Statement;

use super::Findings;
use super::block::{Blocks, Passing, variables};
use crate::variables::RECORDS;

/// Two servers have the same keys.
pub(super) const CACHE_KEY_WITHOUT_HOST: Code = Code {
    name: "cache_key_without_host",
    doc: "Several servers store answers in one zone under keys that do not say which site they \
          are of, so that a page of one site is served for the same path of another. The default \
          key has $proxy_host, the name in \"proxy_pass\", not the client's host: sites that pass \
          to one upstream share it. Write \"proxy_cache_key $scheme$host$request_uri;\", or give \
          each site a zone of its own.",
};

/// Variables that differ from site to site.
const OF_SITE: &[&str] = &[
    "host",
    "http_host",
    "server_name",
    "server_addr",
    "server_port",
    "ssl_server_name",
    "document_root",
    "realpath_root",
    "request_filename",
];

/// A block that stores answers under keys that do not name the site.
struct User<'a> {
    keys: Keys<'a>,
    names: BTreeSet<&'a str>,
    /// The statement to warn at.
    at: &'a Statement,
}

/// Facts that decide whether two keys may be the same for different sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Keys<'a> {
    zone: &'a str,
    key: &'a str,
    /// Value of `$proxy_host`, where the key has it.
    upstream: Option<&'a str>,
}

pub(super) fn cache_key_without_host(blocks: &Blocks<'_>, findings: &mut Findings<'_>) {
    let mut first_users: HashMap<Keys<'_>, User<'_>> = HashMap::new();
    for passing in blocks.caching() {
        let Some(user) = user_of(&passing) else {
            continue;
        };
        match first_users.entry(user.keys) {
            Entry::Vacant(slot) => {
                slot.insert(user);
            }
            Entry::Occupied(first) if first.get().names != user.names => {
                report(&user, first.get(), findings);
            }
            Entry::Occupied(_) => {}
        }
    }
}

fn report(user: &User<'_>, first: &User<'_>, findings: &mut Findings<'_>) {
    let Keys { zone, key, .. } = user.keys;
    let message = format!("sites share zone \"{zone}\" and the cache key does not tell them apart");
    let (at, also) = (user.at.span, first.at.span);
    let Some(warning) = findings.warn(CACHE_KEY_WITHOUT_HOST, at, message) else {
        return;
    };
    if also != at && also.file == at.file {
        warning.also(also, "another site with the same keys");
    }
    let protocol = user.at.name.text.split('_').next().unwrap_or("proxy");
    let better = if key.contains("$proxy_host") {
        key.replace("$proxy_host", "$host")
    } else {
        format!("$host{key}")
    };
    warning.help(format!("write \"{protocol}_cache_key {better};\""));
}

/// A block whose key may be that of another site; none if the key names the site.
fn user_of<'a>(passing: &Passing<'_, 'a>) -> Option<User<'a>> {
    let (zone, cache) = passing.zone()?;
    let (key, statement) = passing.key()?;
    let names = variables(key);
    let differs = |name: &String| OF_SITE.contains(&&**name) || !RECORDS.has(name);
    if names.iter().any(differs) {
        return None;
    }
    let has_upstream = names.iter().any(|name| name == "proxy_host");
    // An origin that does not learn the client's host has one site only.
    if has_upstream && !passes_host(passing) {
        return None;
    }
    let upstream = has_upstream.then(|| host_part(passing.pass)).flatten();
    Some(User {
        keys: Keys {
            zone,
            key,
            upstream,
        },
        names: server_names(passing),
        at: statement.unwrap_or(cache),
    })
}

/// True if the upstream is told the client's host.
fn passes_host(passing: &Passing<'_, '_>) -> bool {
    let fields = passing.in_force("set_header");
    let host = fields.iter().find_map(|st| match st.args.as_slice() {
        [name, value] if name.text.eq_ignore_ascii_case("host") => Some(&value.text),
        _ => None,
    });
    host.is_some_and(|value| {
        variables(value)
            .iter()
            .any(|name| name.ends_with("host") && name != "proxy_host")
    })
}

/// The authority in `proxy_pass`.
fn host_part(pass: &Statement) -> Option<&str> {
    let url = &pass.args.first()?.text;
    let rest = url.split_once("://").map_or(&**url, |(_, rest)| rest);
    rest.split(['/', '?']).next()
}

fn server_names<'a>(passing: &Passing<'_, 'a>) -> BTreeSet<&'a str> {
    let server = passing.view.server();
    let lists = server
        .into_iter()
        .flat_map(|server| server.own("server_name"));
    lists
        .flat_map(|st| st.args.iter().map(|word| &*word.text))
        .collect()
}
