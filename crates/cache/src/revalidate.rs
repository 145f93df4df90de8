//! `proxy_cache_revalidate`, `proxy_cache_background_update`: how a stale entry is made fresh.
//!
//! Declares the policy; the step that obeys it is `step/fetch.rs`, and RFC 9111, section 4.3 is
//! what it follows.

/// Manner in which stale entries are brought up to date.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct RevalidatePolicy {
    /// Lets a stale entry be asked for with its validators, so that an unchanged body is not sent
    /// again.
    ///
    /// # Differs from nginx
    ///
    /// A 304 with another Vary than that of the stored answer counts: the entry is from then on for
    /// requests that say the same as the one that was validated, or, with `Vary: *`, for none.
    /// nginx serves it to those that it served it to before.
    #[directive(name = "proxy_cache_revalidate", default = "off")]
    pub conditional: bool,
    /// Lets a stale entry that may be served be updated while it is served, by a request of its
    /// own.
    ///
    /// # Differs from nginx
    ///
    /// No client waits for the update. Where the client has asked for its connection to be closed,
    /// nginx closes it when the update has ended; here 200ms after the answer at the latest, and
    /// 10s for a client of HTTP/1.1, which knows where its answer ends.
    #[directive(name = "proxy_cache_background_update", default = "off")]
    pub in_background: bool,
}
