//! `proxy_ignore_headers`: fields of an upstream's answer that are not obeyed.
//!
//! A field that is ignored has no influence on caching, buffering, rate, charset or redirection; it
//! is sent to the client unless it is hidden as well.

use millpond_conf::{Flags, Words};

/// A field that can be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum IgnorableField {
    /// X-Accel-Redirect.
    #[word("X-Accel-Redirect")]
    XAccelRedirect,
    /// X-Accel-Expires.
    #[word("X-Accel-Expires")]
    XAccelExpires,
    /// X-Accel-Limit-Rate.
    #[word("X-Accel-Limit-Rate")]
    XAccelLimitRate,
    /// X-Accel-Buffering.
    #[word("X-Accel-Buffering")]
    XAccelBuffering,
    /// X-Accel-Charset.
    #[word("X-Accel-Charset")]
    XAccelCharset,
    /// Expires.
    #[word("Expires")]
    Expires,
    /// Cache-Control.
    #[word("Cache-Control")]
    CacheControl,
    /// Set-Cookie.
    #[word("Set-Cookie")]
    SetCookie,
    /// Vary.
    #[word("Vary")]
    Vary,
}

/// Fields of an answer that are not obeyed.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct IgnorePolicy {
    /// Fields of the upstream's answer that do nothing here; they still reach the client.
    #[directive(name = "proxy_ignore_headers", union)]
    pub fields: Option<Flags<IgnorableField>>,
}

impl IgnorePolicy {
    /// True when the field is to be obeyed.
    pub fn obeys(&self, field: IgnorableField) -> bool {
        self.fields
            .as_ref()
            .is_none_or(|fields| !fields.contains(field))
    }
}
