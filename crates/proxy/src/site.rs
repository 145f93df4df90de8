//! `$cache_site`: the site of a request, by `cache_site` or the server's name.
//!
//! It is evaluated where it is asked for: a request that goes on inside the server may belong to
//! another site there.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millpond_cache::site::clean;
use millpond_conf::{OffOr, Template};

use crate::request::Request;
use crate::request::scratch::with_scratch;
use crate::var::ComposedVariable;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::Conf;
use millpond_exchange::settings::names::ServerName;
use millpond_exchange::stats::site::{Counting, SiteId};
use millpond_exchange::stats::site_names::Claim;
use millpond_exchange::stats::site_numbers::{UNNAMED, named};

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

/// Value of `cache_site`, unless that is nothing.
fn given(req: &mut Request) -> Option<Bytes> {
    let Some(OffOr::On(_)) = &req.location.settings.cache_site.site else {
        return None;
    };
    let location = Arc::clone(&req.location);
    let site = location.settings.cache_site.site.as_ref();
    let name = site.and_then(OffOr::on).map(|template| req.eval(template));
    name.filter(|name| !name.is_empty())
}

impl Request {
    /// The site that the request belongs to, if that is known without computing; none with
    /// `cache_site off`.
    pub(crate) fn site_as_it_is(&self) -> Option<Bytes> {
        let mut name = Vec::new();
        match &self.location.settings.cache_site.site {
            Some(OffOr::Off) => return None,
            Some(OffOr::On(template)) if !self.eval_plain(template, &mut name) => return None,
            Some(OffOr::On(_)) | None => {}
        }
        if name.is_empty() {
            name.extend_from_slice(&self.server.name);
        }
        Some(clean(&name))
    }
}

/// The name that a request is counted under; none with `cache_site off`.
pub fn counted(req: &mut Request) -> Option<Bytes> {
    if let Some(OffOr::Off) = &req.location.settings.cache_site.site {
        return None;
    }
    let name = of(req);
    Some(if name.is_empty() {
        Bytes::from_static(UNNAMED)
    } else {
        name
    })
}

/// The names of sites that a configuration says: those of servers, as far as they are names and not
/// patterns that any number of names fit.
pub fn written(conf: &Conf) -> HashSet<Bytes> {
    let listens = conf.bindings.iter().flat_map(|binding| &binding.listens);
    let servers = listens.flat_map(|listen| listen.names.servers());
    let mut names = HashSet::from([Bytes::from_static(UNNAMED)]);
    for server in servers {
        // That of a pattern is the pattern itself, where `cache_site` says nothing else.
        names.insert(Bytes::copy_from_slice(named(&clean(&server.name))));
        names.extend(server.names.iter().filter_map(plain));
    }
    names
}

/// The one name that a server's name stands for.
fn plain(name: &ServerName) -> Option<Bytes> {
    match name {
        ServerName::Exact(text) => Some(clean(text)).filter(|name| !name.is_empty()),
        ServerName::SelfAndUnder(text) => text.get(1..).map(clean),
        ServerName::Under(_) | ServerName::Before(_) | ServerName::Regex(_) => None,
    }
}

/// Counts something of a request for its site, unless `cache_site` is off.
pub fn count(req: &mut Request, count: impl FnOnce(&Counting<'_>, SiteId)) {
    let worker = Rc::clone(req.worker());
    let counting = worker.shared.sites.enter(worker.place.place.shard());
    if let Some(site) = id(req, &counting) {
        count(&counting, site);
    }
}

/// The number of the site that a request is counted for; none with `cache_site off`.
fn id(req: &mut Request, counting: &Counting<'_>) -> Option<SiteId> {
    let number = match &req.location.settings.cache_site.site {
        Some(OffOr::Off) => return None,
        None => None,
        Some(OffOr::On(template)) => match plain_number(req, template, counting) {
            Some(number) => number,
            None => {
                let claim = claim(template);
                given(req).map(|name| number(req, counting, &name, claim))
            }
        },
    };
    if number.is_some() {
        return number;
    }
    let site = req.server.parts.of::<SiteMemo>();
    let look_up = || counting.id(named(&clean(&req.server.name)), Claim::Written);
    Some(site.in_turn(counting.turn(), look_up))
}

/// Claim of a name that `cache_site` gives.
fn claim(template: &Template) -> Claim {
    match template.as_literal() {
        Some(_) => Claim::Written,
        None => Claim::None,
    }
}

/// The number of what `cache_site` says, if that is anything; `None` when it takes more than the
/// request as it is to tell.
fn plain_number(
    req: &Request,
    template: &Template,
    counting: &Counting<'_>,
) -> Option<Option<SiteId>> {
    let claim = claim(template);
    let number = |name: &[u8]| (!name.is_empty()).then(|| number(req, counting, name, claim));
    if let Some(name) = req.lend(template) {
        return Some(number(name));
    }
    with_scratch(|name| req.eval_plain(template, name).then(|| number(name)))
}

fn number(req: &Request, counting: &Counting<'_>, name: &[u8], claim: Claim) -> SiteId {
    let numbers = &req.worker().site_numbers;
    numbers.of(counting, name, claim)
}

/// The number of a server's site, as it was looked up last.
#[derive(Debug, Default)]
pub struct SiteMemo(AtomicU64);

impl SiteMemo {
    /// The number, if it was looked up in the same turn; else what a look-up says.
    fn in_turn(&self, turn: usize, look_up: impl FnOnce() -> SiteId) -> SiteId {
        // From 1 on, so that 0 is nothing; the number takes 12 bits.
        let turn = (turn as u64).wrapping_add(1) << 16;
        let known = self.0.load(Ordering::Relaxed);
        if known & !0xffff == turn {
            return SiteId::of_bits(known as u16);
        }
        let site = look_up();
        self.0.store(turn | site.index() as u64, Ordering::Relaxed);
        site
    }
}

impl Part for SiteMemo {
    const PLACE: Place = Place::SiteMemo;
}
