//! Locations that do nothing but purge.
//!
//! `proxy_cache_purge zone key` makes one of the block that it stands in.

use std::sync::Arc;

use crate::cache::zones::ZonesUsed;
use crate::cache_settings::purge::PurgeLocation;
use crate::content::{ContentHandler, Explained, Handler};
use crate::phase::{Begun, Flow};
use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::level::Closing;

/// A location that does nothing else but to purge.
#[derive(Debug)]
struct Purging(Arc<PurgeLocation>);

impl Handler for Purging {
    fn begin<'a>(&self, req: &'a mut Request) -> Result<Begun<'a>, Failure> {
        let location = Arc::clone(&self.0);
        Ok(Begun::waits(req, async move |req| {
            let response = super::run_location(req, &location).await?;
            Ok(Flow::Respond(Box::new(response)))
        }))
    }

    fn explain(&self) -> Explained {
        Explained::Purges(self.0.zone.clone())
    }
}

/// `proxy_cache_purge zone key` makes the location one that does nothing else.
pub fn close(level: &mut Closing<'_>) {
    for protocol in Protocol::ALL {
        let prefix = protocol.prefix();
        let purge = &level.settings.pass(protocol).purge;
        let (name, span) = (format!("{prefix}_cache_purge"), purge.form.span);
        let location = match purge.location(level.draft.context) {
            Ok(Some(location)) if level.own_span(&name).is_some() => Arc::clone(location),
            Ok(_) => continue,
            Err(why) => {
                level.builder.error(span, format!("\"{name}\" {why}"));
                continue;
            }
        };
        let other = if level.draft.has::<ContentHandler>() {
            Some(format!("{prefix}_pass"))
        } else {
            Some(format!("{prefix}_cache")).filter(|name| level.own_span(name).is_some())
        };
        if let Some(other) = other {
            let message = format!("\"{name}\" directive is incompatible with \"{other}\"");
            level.builder.error(span, message);
            continue;
        }
        let used = level.builder.of::<ZonesUsed>();
        used.by_purges
            .push((protocol, location.zone.clone(), location.span));
        level.draft.put(ContentHandler::own(Purging(location)));
    }
}
