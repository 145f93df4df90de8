//! `$cache_site`: the site of a request, by `cache_site` or the server's name.
//!
//! It is evaluated where it is asked for: a request that goes on inside the server may belong to
//! another site there.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use millpond_cache::site::clean;
use millpond_conf::{OffOr, Template};

use crate::request::{Request, with_scratch};
use crate::stats::site::{SITES_MAX, SiteId, Sites};
use crate::var::ComposedVariable;

/// The variables of this file.
pub const VARIABLES: &[ComposedVariable] = &[ComposedVariable {
    name: "cache_site",
    doc: "The site that the request belongs to: what `cache_site` says, or the first `server_name`.",
    write: |req, out| {
        let site = of(req);
        out.extend_from_slice(&site);
        !site.is_empty()
    },
}];

/// The site that a request belongs to.
pub fn of(req: &mut Request) -> Bytes {
    match given(req) {
        Some(name) => clean(&name),
        None => clean(&req.server.name),
    }
}

/// What `cache_site` says, unless that is nothing.
fn given(req: &mut Request) -> Option<Bytes> {
    let Some(OffOr::On(_)) = &req.location.settings.cache_site.site else {
        return None;
    };
    let location = Arc::clone(&req.location);
    let site = location.settings.cache_site.site.as_ref();
    let name = site.and_then(OffOr::on).map(|template| req.eval(template));
    name.filter(|name| !name.is_empty())
}

/// The number of the site that a request is counted for; none with `cache_site off`.
pub fn id(req: &mut Request) -> Option<SiteId> {
    let number = match &req.location.settings.cache_site.site {
        Some(OffOr::Off) => return None,
        None => None,
        Some(OffOr::On(template)) => match plain_number(req, template) {
            Some(number) => number,
            None => given(req).map(|name| number(req, &name)),
        },
    };
    if number.is_some() {
        return number;
    }
    let sites = &req.down.generation.worker.shared.sites;
    let number = || sites.id(named(&clean(&req.server.name)));
    Some(*req.server.site.get_or_init(number))
}

/// The number of what `cache_site` says, if that is anything; `None` when it takes more than the
/// request as it is to tell.
fn plain_number(req: &Request, template: &Template) -> Option<Option<SiteId>> {
    if let Some(name) = req.lend(template) {
        return Some((!name.is_empty()).then(|| number(req, name)));
    }
    with_scratch(|name| {
        let is_known = req.eval_plain(template, name);
        is_known.then(|| (!name.is_empty()).then(|| number(req, name)))
    })
}

fn number(req: &Request, name: &[u8]) -> SiteId {
    let worker = &req.down.generation.worker;
    worker.site_numbers.of(name, &worker.shared.sites)
}

/// The numbers of names that a worker has met, as `cache_site` gives them: asked for without
/// meeting another worker.
#[derive(Debug, Default)]
pub struct SiteNumbers(RefCell<HashMap<Bytes, SiteId>>);

impl SiteNumbers {
    fn of(&self, name: &[u8], sites: &Sites) -> SiteId {
        let mut known = self.0.borrow_mut();
        if let Some(number) = known.get(name) {
            return *number;
        }
        // Names that mean the same are several here; forgetting them costs a look-up each.
        if known.len() >= NUMBERS_MAX {
            known.clear();
        }
        let number = sites.id(named(&clean(name)));
        // The name may be a part of something long.
        known.insert(Bytes::copy_from_slice(name), number);
        number
    }
}

/// The name under which a site is counted.
fn named(name: &[u8]) -> &[u8] {
    match name.is_empty() {
        true => UNNAMED,
        false => name,
    }
}

/// Names whose numbers a worker remembers (arbitrary: more than there are numbers).
const NUMBERS_MAX: usize = 2 * SITES_MAX;
/// What has no name is counted under this one.
pub const UNNAMED: &[u8] = b"-";
