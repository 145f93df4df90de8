//! Answers that pass by the cache: fetched for one client alone, and never stored.
//!
//! They may still say that something stored is wrong now, which is removed before they go on.

use std::sync::Arc;

use super::{invalidate, zones};
use crate::request::Request;
use crate::upstream::answer::{self, Stored};
use crate::upstream::ask::Ask;
use crate::upstream::exchange::{self, Fetched};
use crate::upstream::pass::PassTarget;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;

/// Answers from the upstream for this client alone.
pub(crate) async fn fetch(
    req: &mut Request,
    target: &Arc<PassTarget>,
) -> Result<Box<Response>, Failure> {
    let fetched = Box::pin(exchange::fetch(req, target, &Ask::default())).await?;
    remove_stored(req, target, &fetched).await?;
    answer::from_fetched(req, target, fetched, Stored::No)
}

/// Removes from the cache the entries for a URI that are wrong after an unsafe method has
/// succeeded.
async fn remove_stored(
    req: &mut Request,
    target: &PassTarget,
    fetched: &Fetched,
) -> Result<(), Failure> {
    if !invalidate::may_be_due(req, (target, &fetched.head)) {
        return Ok(());
    }
    let location = Arc::clone(&req.location);
    let Some(cache) = zones::of_location(&location, target.protocol) else {
        return Ok(());
    };
    let Some(zone) = cache.zone_for(req)? else {
        return Ok(());
    };
    let zone = zone.into_arc();
    Box::pin(invalidate::invalidate(req, (target, &zone), &fetched.head)).await
}
