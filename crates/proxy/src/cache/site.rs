//! `$cache_site`: the site of a request, by `cache_site` or the server's name.
//!
//! It is evaluated where it is asked for: a request that goes on inside the server may belong to
//! another site there.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::site::clean;

use crate::request::Request;
use crate::stats::site::SiteId;
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
    let location = Arc::clone(&req.location);
    if let Some(template) = &location.settings.cache_site.site {
        let name = req.eval(template);
        if !name.is_empty() {
            return clean(&name);
        }
    }
    clean(&req.server.name)
}

/// The number of the site that a request belongs to.
pub fn id(req: &mut Request) -> SiteId {
    if req.location.settings.cache_site.site.is_some() {
        let site = of(req);
        return req.down.generation.worker.shared.sites.id(named(&site));
    }
    let sites = &req.down.generation.worker.shared.sites;
    let number = || sites.id(named(&clean(&req.server.name)));
    *req.server.site.get_or_init(number)
}

/// The name under which a site is counted.
fn named(name: &[u8]) -> &[u8] {
    match name.is_empty() {
        true => UNNAMED,
        false => name,
    }
}

/// What has no name is counted under this one.
const UNNAMED: &[u8] = b"-";
