//! `proxy_cache_vary`: what a request says in the fields that a Vary names.
//!
//! The values are computed once, before the first look-up, and kept with the request: variables may
//! change later, and the answer is stored under what was looked up. Requests that are made of it
//! have the same. They count in their location alone: a request may go on in another one.

use std::sync::Arc;

use millpond_exchange::settings::Location;
use millpond_semantics::vary::names;

use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;

/// Values that count in the place of fields.
struct Varied {
    location: Arc<Location>,
    /// Fields in small letters, with their values.
    values: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Computes the values.
pub fn note(req: &mut Request, target: &PassTarget) {
    let location = Arc::clone(&req.location);
    let fields = &location.settings.pass(target.protocol).vary_as.fields;
    if fields.is_empty() || by_rfc::rules(req, target).is_rfc() {
        return;
    }
    let mut values = Vec::with_capacity(fields.len());
    for it in fields {
        values.push((it.name.clone(), req.eval(&it.value).to_vec()));
    }
    req.notes.put(Varied { location, values });
}

/// The values of a field by which variants are told apart.
pub fn values<'r>(req: &'r Request, name: &[u8]) -> Vec<&'r [u8]> {
    let varied: Option<&Varied> = req.notes.get();
    let own = varied.filter(|varied| Arc::ptr_eq(&varied.location, &req.location));
    let mut fields = own.iter().flat_map(|varied| &varied.values);
    match fields.find(|(field, _)| field.eq_ignore_ascii_case(name)) {
        Some((_, value)) => vec![value],
        None => req.head.find_all(name).collect(),
    }
}

/// True if a value of the configuration tells apart the variants that a Vary selects.
pub(super) fn has_part_in(req: &Request, target: &PassTarget, vary: &[u8]) -> bool {
    let fields = &req.location.settings.pass(target.protocol).vary_as.fields;
    !fields.is_empty() && !vary.is_empty() && {
        let mut named = names(vary);
        let is_varied = |name: &[u8]| fields.iter().any(|it| name.eq_ignore_ascii_case(&it.name));
        named.any(is_varied) && !by_rfc::rules(req, target).is_rfc()
    }
}
