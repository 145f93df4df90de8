//! Meaning of a URL on the command line: the key that a request for it is looked up by.
//!
//! It is asked of `millpond_server::explain`, so the key is made by the code that serves requests.
//! A request with other fields may have another key: then the key itself has to be given.

use anyhow::{Result, anyhow};
use bytes::Bytes;
use millpond_server::explain::{self, End};

use super::access::Site;
use crate::explain::request;

/// A key in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meant {
    pub(super) zone: String,
    pub(super) key: Bytes,
}

/// True for text that may be a URL; a key may be one, too.
pub(super) fn is_url(text: &[u8]) -> bool {
    text.starts_with(b"http://") || text.starts_with(b"https://")
}

/// The key of a GET request for a URL; none if it is no URL, or no cache would be asked.
pub(super) fn of_url(site: &Site, text: &[u8]) -> Result<Option<Meant>> {
    let Some(text) = std::str::from_utf8(text).ok().filter(|_| is_url(text)) else {
        return Ok(None);
    };
    let question = request::get(text)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let conf = site.conf()?;
    let explained = runtime.block_on(async { explain::explain(conf, &question) });
    let explained = explained.map_err(|why| anyhow!("{text}: {why}"))?;
    Ok(match explained.end {
        End::Passed(passed) => passed.cache.ok().map(|cache| Meant {
            zone: cache.zone,
            key: Bytes::from(cache.key),
        }),
        _ => None,
    })
}
