//! `cache_site_quota`: the most that a site may hold in each cache zone.
//!
//! The store obeys it (`store/src/quota.rs`): a site that would hold more loses those of its own
//! entries that were used longest ago. A line says it for one site, in all zones.
//!
//! With `fleet=NAME:split` each node of a fleet has an equal part of it, which changes as nodes
//! come and go: who sweeps a zone brings its limits up to date.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use millpond_cache::site::clean;
use millpond_conf::value::{FromWord, Offset};
use millpond_conf::{Contexts, Statement};
use millpond_fleet::share::Share;
use millpond_store::Zone;

use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::settings::declared::{Declared, SiteQuota};
use crate::stats::site_numbers::UNNAMED;

/// Sites with a quota (arbitrary: a quarter of the sites that a zone tells apart).
const QUOTAS_MAX: usize = 1024;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "cache_site_quota",
    contexts: Contexts::HTTP,
    syntax: "site size [fleet=name:split]",
    is_block: false,
    pass: Pass::First,
    doc: "The most that a site ([`cache_site`](#cache_site)) may hold in each cache zone, as \
          `held.bytes` of the [API](statistics.md#by-site) counts it: heads, bodies and padding on \
          all disks of the zone. What would be more makes those entries of the site leave that \
          were used longest ago, and never those of another site. A client that reads one of \
          them gets all of it. An answer that is larger than the quota is passed on and not \
          stored (`site-quota` in `$cache_status_reason`), as is one that finds no room at once. \
          The name is one of those that are counted; `*` is all sites together that are not \
          counted by themselves, and `-` is for answers to requests without a name. A quota that \
          is lowered holds within seconds of the reload. With `fleet=name:split` the size is that \
          of all nodes of a `fleet` together: each may hold an equal part of it, as with \
          `limit_req_zone`.",
    apply: cache_site_quota,
}];

/// Quotas in force.
#[derive(Debug, Default)]
pub struct Quotas(Mutex<Arc<[Shared]>>);

#[derive(Debug)]
struct Shared {
    site: Bytes,
    bytes: u64,
    share: Option<Arc<Share>>,
}

impl Quotas {
    /// Puts quotas in force; `share` is the share of this node in a fleet.
    pub fn put(&self, quotas: &[SiteQuota], share: impl Fn(&str) -> Arc<Share>) {
        let shared = quotas.iter().map(|quota| Shared {
            site: quota.site.clone(),
            bytes: quota.bytes,
            share: quota.fleet.as_ref().map(|(fleet, _)| share(fleet)),
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shared.collect();
    }

    fn all(&self) -> Arc<[Shared]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Limits the sites of a zone; those that are not told apart there come back.
    pub fn limit(&self, zone: &Zone) -> Vec<Bytes> {
        let all = self.all();
        let limits = all.iter().map(|quota| {
            let nodes = quota.share.as_ref().map_or(1, |share| share.nodes());
            (&quota.site[..], quota.bytes / nodes)
        });
        zone.limit_sites(limits)
    }

    /// Limits the sites of a zone again, if nodes may have come or gone since.
    pub fn follow(&self, zone: &Zone) {
        if self.all().iter().any(|quota| quota.share.is_some()) {
            // Sites without a limit were told of by who put the quotas in force.
            let _unlimited = self.limit(zone);
        }
    }
}

fn cache_site_quota(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let (name, size, fleet) = match statement.args.as_slice() {
        [name, size] => (name, size, None),
        [name, size, fleet] => (name, size, Some(fleet)),
        _ => {
            let message = "invalid number of arguments in \"cache_site_quota\" directive";
            return builder.error(statement.span, message);
        }
    };
    if name.text.contains('$') {
        let message = "a site of \"cache_site_quota\" is a name, without variables";
        return builder.error(name.span, message);
    }
    let bytes = match Offset::from_word(size, &mut builder.cx) {
        Ok(Offset(bytes)) if bytes > 0 => bytes,
        _ => {
            let text = &size.text;
            let message = format!("invalid quota \"{text}\", it must be a size such as \"10g\"");
            return builder.error(size.span, message);
        }
    };
    let fleet = match fleet.map(|word| (word, shared_in(&word.text))) {
        None => None,
        Some((word, Some(fleet))) => Some((fleet.to_owned(), word.span)),
        Some((word, None)) => {
            let text = &word.text;
            let message = format!("invalid parameter \"{text}\", it must be \"fleet=name:split\"");
            return builder.error(word.span, message);
        }
    };
    let site = match clean(name.text.as_bytes()) {
        named if named == UNNAMED => Bytes::new(),
        named => named,
    };
    let quotas = &mut builder.of::<Declared>().site_quotas;
    if quotas.iter().any(|known| known.site == site) {
        let message = format!("quota of site \"{}\" is duplicate", name.text);
        return builder.error(name.span, message);
    }
    if quotas.len() >= QUOTAS_MAX {
        let message = format!("more than {QUOTAS_MAX} sites have a quota");
        return builder.error(statement.span, message);
    }
    quotas.push(SiteQuota { site, bytes, fleet });
}

/// The fleet of `fleet=name:split`.
fn shared_in(text: &str) -> Option<&str> {
    let name = text.strip_prefix("fleet=")?.strip_suffix(":split")?;
    (!name.is_empty()).then_some(name)
}
